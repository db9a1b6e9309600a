"""The statistic `count`: how many events so far, or over sliding windows."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic_core import InitErrorDetails

from stream_dp.core.messages import IntArray
from stream_dp.journal.release import Shape
from stream_dp.statistics.choice.cadence import (
    ReleaseEvery,
    cadence_words,
    method_problems,
    tree_choice,
)
from stream_dp.statistics.choice.choice import Choice, Setting, by_gaussian
from stream_dp.statistics.choice.choose_noise import better_counter
from stream_dp.statistics.parts.series_spec import RECORDS
from stream_dp.statistics.parts.windowed import WindowedSeries


class CountSeries(WindowedSeries):
    """How many events so far, or over sliding windows."""

    shape: ClassVar[Shape] = Shape.SCALAR
    later: ClassVar[tuple[str, ...]] = ("method", "release_every", *WindowedSeries.later)

    statistic: Literal["count"] = "count"
    method: Literal["tree", "gaussian", "auto"] = "auto"
    release_every: ReleaseEvery = 1

    @property
    def counted(self) -> str:
        """Records."""
        return RECORDS

    @property
    def about(self) -> str:
        """What is released, in a few words."""
        return f"count {self.over}{cadence_words(self.release_every)}"

    @property
    def cadence(self) -> int:
        """What `release_every` says."""
        return self.release_every

    def own_problems(self) -> list[InitErrorDetails]:
        """Return those of every series, and a cadence without a tree."""
        method = method_problems(
            self.declared, self.method, self.release_every, held=("tree", "auto")
        )
        return [*super().own_problems(), *method]

    def choose(self, setting: Setting) -> Choice:
        """Choose what answers the windows, or what `method` names; `auto` weighs tree and Gaussian noise."""
        if self.declared:
            return self.windowed(setting, self.method)
        if self.method == "gaussian":
            return by_gaussian(setting, self.epsilon)
        tree = tree_choice(setting, self.epsilon, self.release_every, "a count is a tree counter")
        weighed = self.method == "auto" and self.release_every == 1
        return better_counter(setting, self.epsilon, tree) if weighed else tree

    def exact(self, totals: IntArray, keys: Sequence[str]) -> int | None:
        """Return the count; nothing over windows, for the totals of a run are none."""
        return None if self.declared else int(totals[0])
