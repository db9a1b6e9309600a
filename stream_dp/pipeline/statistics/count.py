"""The statistic `count`: how many events so far."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from stream_dp.core.messages import IntArray
from stream_dp.pipeline.cadence import ReleaseEvery, cadence_words, tree_choice
from stream_dp.pipeline.choice import Choice, Setting
from stream_dp.pipeline.statistics.series_spec import SeriesSpec
from stream_dp.runtime.release import Shape


class CountSeries(SeriesSpec):
    """How many events so far."""

    shape: ClassVar[Shape] = Shape.SCALAR
    later: ClassVar[tuple[str, ...]] = ("release_every",)

    statistic: Literal["count"] = "count"
    release_every: ReleaseEvery = 1

    @property
    def about(self) -> str:
        """What is released, in a few words."""
        return f"count so far{cadence_words(self.release_every)}"

    def choose(self, setting: Setting) -> Choice:
        """Choose a tree counter."""
        return tree_choice(setting, self.epsilon, self.release_every, "a count is a tree counter")

    def exact(self, totals: IntArray, keys: Sequence[str]) -> int:
        """Return the count."""
        return int(totals[0])
