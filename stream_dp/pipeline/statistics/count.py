"""The statistic `count`: how many events so far."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic_core import InitErrorDetails

from stream_dp.core.messages import IntArray
from stream_dp.pipeline.cadence import ReleaseEvery, cadence_words, tree_choice, without_tree
from stream_dp.pipeline.choice import Choice, Setting, by_gaussian
from stream_dp.pipeline.statistics.series_spec import Place, SeriesSpec
from stream_dp.runtime.release import Shape


class CountSeries(SeriesSpec):
    """How many events so far."""

    shape: ClassVar[Shape] = Shape.SCALAR
    later: ClassVar[tuple[str, ...]] = ("method", "release_every")

    statistic: Literal["count"] = "count"
    method: Literal["tree", "gaussian"] = "tree"
    release_every: ReleaseEvery = 1

    @property
    def about(self) -> str:
        """What is released, in a few words."""
        return f"count so far{cadence_words(self.release_every)}"

    @classmethod
    def problems(
        cls, at: Place, series: Any, fields: Mapping[str, Any] | None
    ) -> list[InitErrorDetails]:
        """Return those of every series, and a cadence without a tree."""
        return [*without_tree(at, series), *super().problems(at, series, fields)]

    def choose(self, setting: Setting) -> Choice:
        """Choose what `method` names."""
        if self.method == "gaussian":
            return by_gaussian(setting, self.epsilon)
        return tree_choice(setting, self.epsilon, self.release_every, "a count is a tree counter")

    def exact(self, totals: IntArray, keys: Sequence[str]) -> int:
        """Return the count."""
        return int(totals[0])
