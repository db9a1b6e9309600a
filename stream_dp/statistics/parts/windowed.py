"""What statistics that count over windows have alike: the keys `window` and `windows`, and what is shown of them."""

from collections.abc import Iterator
from typing import ClassVar

from pydantic_core import InitErrorDetails

from stream_dp.journal.release import Shape
from stream_dp.records.groupings import By, Place
from stream_dp.statistics.choice.choice import Choice, Setting
from stream_dp.statistics.choice.choose_windows import choose_windows
from stream_dp.statistics.parts.series_spec import Rest, SeriesSpec
from stream_dp.statistics.parts.windows import (
    Window,
    Windows,
    views,
    window_lengths,
    window_problems,
    windows_words,
)


class WindowedSeries(SeriesSpec):
    """A statistic that may be released over sliding windows, at every tick, instead of so far."""

    later: ClassVar[tuple[str, ...]] = ("window", "windows")

    window: Window | None = None
    windows: Windows = ()

    @property
    def declared(self) -> tuple[str, ...]:
        """The windows that are asked; none: it counts so far."""
        return self.windows if self.window is None else (self.window,)

    @property
    def views(self) -> tuple[str, ...]:
        """The names of what is shown."""
        return views(self.declared)

    @property
    def form(self) -> Shape:
        """The shape of its releases."""
        return Shape.WINDOWS if self.declared else self.shape

    @property
    def over(self) -> str:
        """What is counted over, in a few words."""
        return windows_words(self.declared) if self.declared else "so far"

    def windowed(self, setting: Setting, method: str = "tree") -> Choice:
        """Choose what answers the windows, as `method` says."""
        return choose_windows(setting, self.epsilon, self.declared, method)

    def own_problems(self) -> list[InitErrorDetails]:
        """Return those of every series, and those of its windows."""
        return [*super().own_problems(), *window_problems(self.windows, self.window)]

    def problems(self, rest: Rest) -> list[InitErrorDetails]:
        """Return those of every series, and which windows do not go with the rest.clock."""
        lengths = window_lengths(rest.clock, self.windows, self.window)
        return [*super().problems(rest), *lengths]


class SingleOrKeyed(WindowedSeries):
    """A windowed statistic of all records, or by what it goes by where it goes by anything."""

    by: By | None = None

    @property
    def grouped_by(self) -> By | None:
        """What it goes by, if anything."""
        return self.by

    def groupings(self) -> Iterator[tuple[Place, By]]:
        """Return what it goes by, if anything."""
        if self.by is not None:
            yield (), self.by

    @property
    def form(self) -> Shape:
        """One value, or values by key, or either for each window."""
        if self.declared:
            return Shape.WINDOWS
        return Shape.HISTOGRAM if self.keyed else Shape.SCALAR

    @property
    def keyed(self) -> bool:
        """Whether it goes by anything."""
        return self.grouped_by is not None
