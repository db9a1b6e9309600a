"""A series made of what others release at the same tick: post-processing ([HSV] 2.14), which costs nothing.

Rules: a body is a function of the bodies that its inputs have at the same tick, and of public parameters; it has no
mechanism, row, state or noise. It stands behind them in the same commit, with the next numbers of the sequence. Numbers
are read from the bytes exactly, never as floats. This file knows no actor, journal or statistic.
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
"""What a release says of one window, or of all where it has none: `value` or `values`, in exact numbers."""
Make: TypeAlias = Callable[[int, str, Sequence[Part]], Mapping[str, Any]]
"""Returns the fields of a part at a tick, of the window of this name ("": none), from those of the inputs."""


@dataclass(frozen=True, slots=True)
class MadeSeries:
    """The series `name`, made of the releases of `inputs`; `keys` and `windows` name what its releases show.

    The first of `makes` writes each part, with the ends that hold with `confidence`. The others wrote it in earlier
    versions, whose journals hold such releases. Where `private` is False (the noise of the test kit), every body says
    so.
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
        """How many bytes a release has, about and at most; public."""
        part = sum(map(name_bytes, self.keys)) + _ENTRY_BYTES * len(self.keys)
        return _HEAD_BYTES + part * max(1, len(self.windows))

    def body(self, grid: TickGrid, sequence: int, tick: int, bodies: Mapping[str, bytes]) -> bytes:
        """Return the exact public bytes of one release, from those of this tick's, by series.

        Raises:
            KeyError: an input has none.
        """
        return self._written(self.makes[0], grid, sequence, tick, bodies)

    def gives(
        self, body: bytes, grid: TickGrid, sequence: int, tick: int, bodies: Mapping[str, bytes]
    ) -> bool:
        """Return whether the releases of this tick give this body, in this version or in an earlier one.

        Raises:
            KeyError: an input has none.
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
    """Return the releases of one tick, and behind them what is made of them."""
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
