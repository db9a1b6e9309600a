"""Which series runs at which tick: those of the first start, and those created and halted since.

Rules: a change takes effect at a cut, so every tick has one list of series; numbers are never used twice. A series
made of others' releases has no number; neither it nor its inputs are ever halted. This file knows no state, actor
or journal.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stream_dp.engine.made_series import MadeSeries
from stream_dp.engine.series import Series
from stream_dp.errors import UnknownMechanism


@dataclass(frozen=True, slots=True)
class LiveSeries:
    """A series that runs, as mechanism `number`, on ticks from `start` on.

    `created` is True for series created while the engine runs (the live series of the documentation), and False for
    those of the first start.
    """

    number: int
    series: Series
    start: int = 0
    created: bool = False


class Registry:
    """All running series, in the order of their numbers; `made` are made of the releases of the `first` ones."""

    def __init__(self, first: Sequence[Series], made: Sequence[MadeSeries] = ()) -> None:
        self.made = tuple(made)
        self._live = {number: LiveSeries(number, series) for number, series in enumerate(first)}
        self._numbers = {series.name: number for number, series in enumerate(first)}
        self._next = len(first)

    @property
    def live(self) -> tuple[LiveSeries, ...]:
        """The series that have not been halted."""
        return tuple(self._live.values())

    def at(self, tick: int) -> tuple[LiveSeries, ...]:
        """Return the series that have not been halted and see this tick."""
        return tuple(live for live in self._live.values() if live.start <= tick)

    @property
    def releasing(self) -> tuple[Series | MadeSeries, ...]:
        """All series with a release at every tick, in the order of the releases."""
        return (*(live.series for live in self._live.values()), *self.made)

    def numbered(self, number: int) -> LiveSeries | None:
        """Return the series of this number; None if it does not run."""
        return self._live.get(number)

    def named(self, name: str) -> LiveSeries | None:
        """Return the series of this name; None if it does not run or is made of others' releases."""
        return self._live.get(self._numbers.get(name, -1))

    def made_named(self, name: str) -> MadeSeries | None:
        """Return the made series of this name; None if there is none."""
        return next((each for each in self.made if each.name == name), None)

    @property
    def next_number(self) -> int:
        """The number of the next series to be created."""
        return self._next

    def add(self, number: int, series: Series, start: int) -> LiveSeries:
        """Add a series that sees ticks from `start` on, and return it.

        Raises:
            ValueError: `number` is not the next number.
        """
        if number != self._next:
            raise ValueError(f"the next series has number {self._next}, not {number}")
        self._next += 1
        self._live[number] = LiveSeries(number, series, start, created=True)
        self._numbers[series.name] = number
        return self._live[number]

    def change(self, number: int, series: Series) -> LiveSeries:
        """Replace a running series from this cut on, and return it."""
        live = self._live[number] = replace(self._live[number], series=series)
        return live

    def remove(self, number: int) -> LiveSeries:
        """Halt a series at this cut, and return it.

        Raises:
            UnknownMechanism: it does not run.
        """
        if number not in self._live:
            raise UnknownMechanism(f"no series with number {number} runs")
        del self._numbers[self._live[number].series.name]
        return self._live.pop(number)
