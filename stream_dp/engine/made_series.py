"""A series made of other series' releases at the same tick: post-processing ([HSV] 2.14), which costs nothing.

Rules: a body is a function of its inputs' bodies at the same tick and of public parameters; it has no mechanism,
row, state or noise. Its release stands after those of its inputs in the same commit, with the next numbers of the
sequence. Numbers are read from the bytes exactly, never as floats. This file knows no actor, journal or statistic.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from stream_dp.core.tick_grid import TickGrid
from stream_dp.journal.commit import Release
from stream_dp.journal.release import (
    VERSION,
    Released,
    WindowPart,
    is_recorded,
    name_bytes,
    read_exactly,
    write,
)

_HEAD_BYTES = 250
_ENTRY_BYTES = 90

Part: TypeAlias = Mapping[str, Any]
"""The content of a release for one window, or for all if it has no windows: `value` or `values`, exact."""
Make: TypeAlias = Callable[[int, str, Sequence[Part]], Mapping[str, Any]]
"""Computes the fields of a part from the inputs' parts, at a tick, for the window of this name ("": no windows)."""


@dataclass(frozen=True, slots=True)
class MadeSeries:
    """The series `name`, made of the releases of `inputs`; `keys` and `windows` name what its releases show.

    The first of `makes` writes each part, with ends that hold with `confidence`. The other functions wrote parts in
    earlier versions; the journals of those versions hold such releases. Where `private` is False (noise of the test
    kit), every body says so.
    """

    name: str
    inputs: tuple[str, ...]
    keys: tuple[str, ...]
    windows: tuple[str, ...]
    makes: tuple[Make, ...]
    confidence: float
    private: bool = True

    @property
    def most_bytes(self) -> int:
        """The largest size of a release in bytes, roughly; public."""
        part = sum(map(name_bytes, self.keys)) + _ENTRY_BYTES * len(self.keys)
        return _HEAD_BYTES + part * max(1, len(self.windows))

    def body(self, grid: TickGrid, sequence: int, tick: int, bodies: Mapping[str, bytes]) -> bytes:
        """Return the exact public bytes of one release; `bodies` are those of the same tick, by series.

        Raises:
            KeyError: an input has no body.
        """
        return self._written(self.makes[0], grid, sequence, tick, bodies)

    def gives(
        self, body: bytes, grid: TickGrid, sequence: int, tick: int, bodies: Mapping[str, bytes]
    ) -> bool:
        """Return whether this version or an earlier one makes `body` from the bodies of the same tick.

        Raises:
            KeyError: an input has no body.
        """
        written = (self._written(make, grid, sequence, tick, bodies) for make in self.makes)
        return any(is_recorded(body, one) for one in written)

    def _written(
        self, make: Make, grid: TickGrid, sequence: int, tick: int, bodies: Mapping[str, bytes]
    ) -> bytes:
        said = [read_exactly(bodies[name]) for name in self.inputs]
        released = Released(
            v=VERSION,
            sequence=sequence,
            series=self.name,
            tick=tick,
            end=grid.end_text(tick),
            **self._content(make, tick, said),
            confidence=self.confidence,
            not_private=not self.private,
        )
        return write(released)

    def _content(self, make: Make, tick: int, said: Sequence[Part]) -> Mapping[str, Any]:
        if not self.windows:
            return make(tick, "", said)
        parts = {name: [each["windows"][name] for each in said] for name in self.windows}
        return {"windows": {name: WindowPart(**make(tick, name, of)) for name, of in parts.items()}}


def with_made(
    releases: Sequence[Release], made: Sequence[MadeSeries], grid: TickGrid
) -> tuple[Release, ...]:
    """Return the releases of one tick, followed by those of the series made of them."""
    if not made:
        return tuple(releases)
    bodies = {each.series: each.body for each in releases}
    last = releases[-1]
    numbered = enumerate(made, start=last.sequence + 1)
    return (
        *releases,
        *(
            Release(number, one.name, last.tick, one.body(grid, number, last.tick, bodies))
            for number, one in numbered
        ),
    )
