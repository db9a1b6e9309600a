"""The attack on small real mechanisms: enumerate all noise, compare neighbours, bracket the worst loss.

Rules: the mechanism is a black box; what was cut off the noise only widens the bracket (`oracles.transcripts`), so
`least` is a loss that certainly occurs and a claim below it is refuted.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from oracles.transcripts import Transcripts, enumerate_transcripts, loss_bounds, tail_support

from stream_dp.core.mechanism import Mechanism, Message, Query, Update

Rows: TypeAlias = tuple[tuple[int, ...], ...]
Pair: TypeAlias = tuple[Rows, Rows]


@dataclass(frozen=True, slots=True)
class Attack:
    """Neighbouring streams against mechanisms from `make`; each tick is an update and a query."""

    make: Callable[[], Mechanism[Any]]
    threshold: int | None = None
    mass: float = 1e-7

    def law(self, rows: Rows) -> Transcripts:
        messages: list[Message] = []
        for row in rows:
            messages += [Update(np.array(row, dtype=np.int64)), Query(self.threshold)]
        return enumerate_transcripts(self.make, messages, tail_support(self.mass))

    def worst(self, pairs: Iterable[Pair]) -> "Loss":
        law = lru_cache(maxsize=None)(self.law)
        least = most = 0.0
        for left, right in pairs:
            found = loss_bounds(law(left), law(right), tolerance=1e-2)
            least, most = max(least, found.lower), max(most, found.upper)
        return Loss(least, most)


@dataclass(frozen=True, slots=True)
class Loss:
    """`least` certainly occurs; `most` bounds it on all transcripts but the rarest."""

    least: float
    most: float


def added(horizon: int, values: Sequence[int], width: int = 1) -> Iterable[Pair]:
    """All pairs of streams with entries from `values` where the right one has one more event."""
    for base in _bases(horizon, values, width):
        for tick, column in itertools.product(range(horizon), range(width)):
            yield base, _plus(base, tick, column)


def _bases(horizon: int, values: Sequence[int], width: int) -> Iterable[Rows]:
    return itertools.product(list(itertools.product(values, repeat=width)), repeat=horizon)


def _plus(base: Rows, tick: int, column: int) -> Rows:
    row = tuple(v + int(i == column) for i, v in enumerate(base[tick]))
    return (*base[:tick], row, *base[tick + 1 :])
