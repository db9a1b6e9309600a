"""The adversary of `stream-dp audit`: equal rows but for one event, placed where it shows most.

Where that is follows from public structure: noise protects a decision least where it is nearly taken, so alerts and
intervals are filled up to their thresholds first. Rules: deterministic; whether its pairs are neighbours is for the
verifier to say. This file knows no statistics and no data.
"""

from dataclasses import dataclass
from functools import singledispatch
from typing import Any, TypeAlias

import numpy as np

from stream_dp.audit.transcript import HALT, View
from stream_dp.core.composition import Ask, Create
from stream_dp.core.mechanism import Mechanism, Noise
from stream_dp.core.messages import IntArray, Query, Update
from stream_dp.mechanisms.alerts import Alerts
from stream_dp.mechanisms.hss import HSS, Statistic

RowPair: TypeAlias = tuple[IntArray, IntArray]
LEAD = 1 << 30  # events: no noise catches up with so many


@dataclass(frozen=True, slots=True)
class OneEventAdversary:
    """Creates `mechanism` in a composition, sends a pair of rows per tick, and asks after each."""

    mechanism: Mechanism[Any]
    pairs: tuple[RowPair, ...]

    @classmethod
    def against(cls, mechanism: Mechanism[Any], ticks: int) -> "OneEventAdversary":
        """The event lies in the first of `ticks` ticks; the later rows are empty."""
        zeros = np.zeros(mechanism.width, dtype=np.int64)
        return cls(mechanism, (worst_pair(mechanism), *[(zeros, zeros)] * (ticks - 1)))

    @property
    def columns(self) -> int:
        """How many columns, from the first, the event can touch."""
        return mechanism_l0(self.mechanism)

    def init(self, noise: Noise) -> int:
        """Nothing sent."""
        return 0

    def step(self, sent: int, message: Any, noise: Noise) -> tuple[int, Any]:
        """Create, then an update and a query per tick, then HALT."""
        if sent == 0:
            return 1, (Create(self.mechanism),) * 2
        tick, asks = divmod(sent - 1, 2)
        if tick == len(self.pairs):
            return sent, HALT
        if asks:
            return sent + 1, (Ask(0, Query()),) * 2
        left, right = self.pairs[tick]
        return sent + 1, (Ask(0, Update(left)), Ask(0, Update(right)))


def answers(view: View) -> IntArray:
    """All answers of a view, shape (ticks, entries of an answer)."""
    return np.array([m for m in view.transcript.messages if isinstance(m, np.ndarray)])


def mechanism_l0(mechanism: Mechanism[Any]) -> int:
    """How many columns of the mechanism's rows one event can change."""
    return mechanism.guarantee.neighbors.l0(mechanism.width)


def worst_pair(mechanism: Mechanism[Any]) -> RowPair:
    """The rows of the tick with the event, each of shape (width,).

    The right one has the event in column 0; the left one has it in column 1 where the relation allows, else not at all.
    """
    left = np.zeros(mechanism.width, dtype=np.int64)
    two = mechanism_l0(mechanism) > 1
    for column, events in zip(range(mechanism.width), opening(mechanism), strict=False):
        left[column] = events
    right = left.copy()
    right[0] += 1
    if two:
        left[1] += 1
    return left, right


@singledispatch
def opening(mechanism: Any) -> tuple[int, int]:
    """How many other events columns 0 and 1 get in that tick: none, where nothing is decided by counts."""
    return 0, 0


@opening.register
def _(mechanism: Alerts) -> tuple[int, int]:
    """One short of the threshold: the chances of an alert are then a : 1 and 1 : a with a = e^(-1/scale)."""
    beside = mechanism.threshold - 1 if mechanism_l0(mechanism) > 1 else 0
    return mechanism.threshold - 1, beside


@opening.register
def _(mechanism: HSS) -> tuple[int, int]:
    """At the public threshold: whether the interval closes and, if so, what is released, both depend on the event.

    Where only the largest column is released, a lead beyond all noise: the other columns would hide the event.
    """
    return LEAD if mechanism.statistic is Statistic.MAXIMUM else mechanism.gamma(1, 0), 0
