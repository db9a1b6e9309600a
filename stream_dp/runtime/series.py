"""A series: a mechanism, the part of the row it sees, and how its answers become releases.

Rules: the body of a release is written here, once, from the answer and from public values. This file knows no
actor, journal or file format of the pipeline.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from stream_dp.core.mechanism import Mechanism
from stream_dp.core.messages import IntArray
from stream_dp.core.tick_grid import TickGrid


@dataclass(frozen=True, slots=True)
class Series:
    """`rows` is the slice of the tick row that the mechanism sees; `keys` names its answer's entries.

    `keys` is None for a scalar. `band(tick, state)` is the half-width that holds with `confidence`; it may
    look at the public part of the state only. `flags` says that entries are alerts (true/false). Where `private`
    is False (the noise of the test kit), every body says so.
    """

    name: str
    mechanism: Mechanism[Any]
    rows: slice
    keys: tuple[str, ...] | None
    flags: bool
    band: Callable[[int, Any], int]
    confidence: float
    private: bool = True

    def body(self, grid: TickGrid, sequence: int, tick: int, state: Any, answer: IntArray) -> bytes:
        """The exact public bytes of one release."""
        values: list[Any] = [bool(v) for v in answer] if self.flags else answer.tolist()
        content: dict[str, Any] = {
            "v": 1,
            "sequence": sequence,
            "series": self.name,
            "tick": tick,
            "end": grid.end_text(tick),
        }
        if self.keys is None:
            content["value"] = values[0]
        else:
            content["values"] = dict(zip(self.keys, values, strict=True))
        content["band"] = self.band(tick, state)
        content["confidence"] = self.confidence
        if not self.private:
            content["not_private"] = True
        return msgspec.json.encode(content)
