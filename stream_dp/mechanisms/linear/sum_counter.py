"""Continual sums so far, per column, where an event adds an integer amount instead of 1.

An event adds one amount, from `lowest` to `highest`, to the entries it sets. The sensitivity is the l1 norm of a row's
difference between neighbours (`AmountLaw`). A tree's noise is private for any integer stream: a shift of its nodes by R
y explains a difference y at a step, and the norm of R y is the height times the norm of y (`tree` has the proof). So
all columns together are one leaf. This file knows no ticks, no names and no grid: amounts are whole units.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from stream_dp.accounting.amounts import text
from stream_dp.accounting.rules.rule import leaf
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.mechanism import IntArray, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_law import AmountLaw
from stream_dp.core.row_relations import AMOUNTS
from stream_dp.core.wire import wire
from stream_dp.core.wording import how_many
from stream_dp.mechanisms.checks import checked_amounts, of_the_exact_class
from stream_dp.mechanisms.linear.counter import (
    Counter,
    CounterState,
    HybridCounter,
    HybridState,
    TreeCounter,
    counter_for,
)
from stream_dp.mechanisms.linear.tree import TreeNoise
from stream_dp.mechanisms.noise_quantiles import Term


class EventAmounts:
    """Mixin for rows of sums: an event adds nothing, or an amount from `lowest` to `highest` to at most `ones`."""

    width: int
    neighbors: Neighbors
    lowest: int
    highest: int
    ones: int

    @property
    def rows(self) -> AmountLaw:
        """What one event changes in its rows (NotDerivable: the amounts are invalid, or beyond `MOST_UNITS`)."""
        return AmountLaw(self.width, self.neighbors, self.ones, self.lowest, self.highest)

    def _require_amounts(self) -> None:
        _ = self.rows

    @property
    def weight(self) -> int:
        return self.rows.weight

    @property
    def l1(self) -> int:
        return self.rows.l1

    def checked_row(self, row: IntArray) -> IntArray:
        return checked_amounts(row, self.width)

    def takes(self, message: object) -> bool:
        if isinstance(message, Update):
            return AMOUNTS.of_width(self.width).holds(message.row)
        return isinstance(message, Query)


SOURCE = (
    "k-ary tree on integer rows, l1 sensitivity = height times that of a row (arXiv 2408.07021)"
)


@wire("sum-counter-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class SumCounterState:
    """`total`: exact sums, shape (width,), private. `noise`: the state of a counter of nothing."""

    total: IntArray
    noise: CounterState | HybridState


@wire("sum-counter", 1, rests_on=(Counter, HybridCounter))
@dataclass(frozen=True)
class SumCounter(EventAmounts, TreeCounter[SumCounterState]):
    """`width` continual sums for at most `horizon` updates, or for any number (up to 2^40) where it is None.

    An event adds one amount from `lowest` to `highest` (in units) to at most `ones` entries of its row, or nothing.

    >>> sums = SumCounter(1, Fraction(1), Neighbors.ADD_REMOVE, 10, lowest=-5, highest=240)
    >>> sums.l1, sums.unit_epsilon
    (240, Fraction(1, 240))
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    horizon: int | None
    lowest: int
    highest: int
    ones: int = 1

    def __post_init__(self) -> None:
        self._require_amounts()

    @cached_property
    def counter(self) -> Counter | HybridCounter:
        """The counter whose noise is added; its noise is private for rows that differ by 1 in l1 norm."""
        return counter_for(self.width, self.unit_epsilon, Neighbors.ADD_REMOVE, self.horizon)

    @property
    def trees(self) -> tuple[TreeNoise, ...]:
        return self.counter.trees

    @of_the_exact_class
    def derivation(self) -> Derivation:
        paid = sum((self.l1 * tree.shape.height / tree.scale for tree in self.trees), Fraction(0))
        sums = " + ".join(f"{self.l1} * {t.shape.height} / {text(t.scale)}" for t in self.trees)
        why = f"l1 norm of a row * height / scale = {sums}, at most {text(self.epsilon)}"
        drawn = Condition("noise", paid <= self.epsilon, why)
        return leaf(f"{how_many(self.width, 'sum')}", self.guarantee, SOURCE, (drawn,))

    def noise_terms(self, updates: int) -> list[Term]:
        return self.counter.noise_terms(updates)

    def init(self, noise: Noise) -> SumCounterState:
        return SumCounterState(np.zeros(self.width, dtype=np.int64), self.counter.init(noise))

    def advanced(self, state: SumCounterState, total: IntArray, noise: Noise) -> SumCounterState:
        counter: Any = self.counter
        return SumCounterState(total, counter.advanced(state.noise, state.noise.total, noise))

    def fine(self, state: SumCounterState) -> IntArray:
        counter: Any = self.counter
        fine: IntArray = counter.fine(state.noise)
        return fine
