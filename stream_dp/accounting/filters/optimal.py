"""The filter of the optimal composition of what one event meets."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

from stream_dp.accounting.amounts import Interval, budget_units, cost_units, exact
from stream_dp.accounting.filters.filter import (
    DP,
    NOTHING,
    Entry,
    Spend,
    budget,
    checked_entry,
    dp_entry,
    whole_units,
    without_delta,
)
from stream_dp.accounting.filters.linear import OPTIMAL, EpsilonUnits
from stream_dp.accounting.optimal import (
    FEW,
    LISTED,
    Curve,
    beside,
    least_epsilon,
    loss_curve,
    spare,
)
from stream_dp.core.guarantee import ApproxDP, Measure
from stream_dp.errors import InvalidCost

KINDS = 8
"""The most different epsilons that are composed; of more, neighbours count as the larger one."""
_Parts: TypeAlias = tuple[tuple[Fraction, int], ...]
_ROUNDS = 4
_NEAR = Fraction(21, 20)  # grids differ by less


@dataclass(frozen=True, slots=True)
class OptimalFilter(EpsilonUnits):
    """All admitted mechanisms together are (epsilon, delta)-DP: at each tick the optimal composition of what is alive.

    Proof (docs/time.md): an event lies at one tick. What was answered before it has the same law on both streams, and
    fixes which mechanisms the event meets and at which parameters. All others see equal pairs for ever. So given that
    history the event costs what fixed mechanisms cost ([HSV] Thm 4.10): the optimal composition of RR_(e_j,d_j).
    Averaged over histories, delta stays. A mechanism that is not fresh may fail before the event comes: its delta is
    never freed.

    `steps`: neighbouring streams are that many steps apart, each of one event that costs its part of every epsilon: 2
    where a replacement may move to another tick, k for a user with k events. One step is (e', d')-DP for
    e' = epsilon / steps; all of them together are (steps e', d' (e^(steps e') - 1) / (e^e' - 1))-DP.

    Source: [HSV] Thm 4.10, Cor 5.7; Kairouz, Oh, Viswanath (arXiv 1311.0776); Murtagh, Vadhan (arXiv 1507.03113).
    """

    capacity: Spend
    steps: int = 1

    def __post_init__(self) -> None:
        whole_units("an epsilon", self.capacity.amount)
        whole_units("a delta", self.capacity.delta)
        if type(self.steps) is not int or self.steps < 1:
            raise InvalidCost(f"a filter needs at least one step, not {self.steps!r}")

    @classmethod
    def of(cls, epsilon: Fraction, delta: Fraction, steps: int = 1) -> "OptimalFilter":
        """Return the filter with these budgets, rounded down (InvalidCost: one is not exact or out of range)."""
        amount = budget_units(budget("the epsilon", epsilon))
        own = budget_units(budget("the delta", delta, below=Fraction(1)))
        return cls(Spend(amount, own), steps)

    @property
    def name(self) -> str:
        return OPTIMAL

    @property
    def promise(self) -> ApproxDP:
        return _promise(self.capacity)

    def entry(self, name: str, measure: Measure, rule: str, *, finite: bool = False) -> Entry:
        return dp_entry(self, name, measure, rule)

    def cost(self, entry: Entry) -> Spend:
        """Return the entry's epsilon and delta; a delta is refused where there are several steps."""
        checked_entry(self, entry, DP)
        if self.steps > 1:
            without_delta(self, entry)
        return Spend(entry.epsilon, entry.delta, ((entry.epsilon, 1),) if entry.epsilon else ())

    def admits(self, used: Spend, more: Spend = NOTHING) -> bool:
        together = used + more
        if together.within(self.capacity):
            return True  # basic composition
        delta = self._step_delta(self.promise.epsilon, together.delta)
        if delta <= 0:
            return False
        kinds = more.epsilons
        if [number for _, number in kinds] != [1]:
            least, limit = _least(self._parts(together), delta), self.promise.epsilon / self.steps
            if least <= limit or least > limit * _NEAR:
                return least <= limit
            kinds = together.epsilons
        return any(self._fits_beside(together, epsilon, delta) for epsilon, _ in kinds)

    def _fits_beside(self, together: Spend, epsilon: int, delta: Fraction) -> bool:
        """Say whether `together` fits, computed as the charge of one epsilon beside the others.

        Whatever fitted as a charge fits as a whole, though grids round the two differently.
        """
        added, limit = exact(epsilon) / self.steps, self.promise.epsilon / self.steps
        used = together - Spend(epsilon, 0, ((epsilon, 1),))
        curve = _curve(self._parts(used), self._step_delta(self.promise.epsilon, 0))
        return added <= limit and beside(curve, added, limit) <= delta

    def reached(self, used: Spend) -> Spend:
        return Spend(cost_units(self.least(used).epsilon), used.delta)

    def least(self, used: Spend) -> ApproxDP:
        """Return the least epsilon, rounded up, that holds at the filter's delta; (0, 0) if nothing was used."""
        if used == NOTHING:
            return ApproxDP(Fraction(0), Fraction(0))
        epsilon = exact(used.amount)
        for _ in range(1 if self.steps == 1 else _ROUNDS):
            delta = self._step_delta(epsilon, used.delta)  # grows as epsilon falls
            if delta > 0:
                epsilon = min(epsilon, self.steps * _least(self._parts(used), delta))
        if epsilon > self.promise.epsilon and self.admits(used):
            epsilon = self.promise.epsilon
        return ApproxDP(epsilon, self.promise.delta)

    def _step_delta(self, epsilon: Fraction, own: int) -> Fraction:
        """Return the delta of one step, rounded down, where all steps together have `epsilon`; `own`: spent deltas."""
        delta = spare(self.promise.delta, exact(own)) if own else self.promise.delta
        if self.steps == 1 or delta <= 0 or epsilon <= 0:
            return delta
        one, every = (Interval.of(e).exp() - 1 for e in (epsilon / self.steps, epsilon))
        return ((one / every) * delta).lower

    def _parts(self, used: Spend) -> _Parts:
        kinds = coarse(used.epsilons)
        return tuple((exact(epsilon) / self.steps, number) for epsilon, number in kinds)


def coarse(epsilons: Iterable[tuple[int, int]], kinds: int = KINDS) -> tuple[tuple[int, int], ...]:
    """Return at most `kinds` epsilons with their numbers; of the others, those are raised for which that adds least.

    >>> coarse([(10, 3), (11, 1), (50, 2)], 2)
    ((11, 4), (50, 2))
    """
    left = sorted(epsilons)
    while len(left) > kinds:
        at = min(
            range(len(left) - 1), key=lambda i: ((left[i + 1][0] - left[i][0]) * left[i][1], i)
        )
        (_, fewer), (larger, number) = left[at : at + 2]
        left[at : at + 2] = [(larger, fewer + number)]
    return tuple(left)


def _listed(parts: _Parts) -> int:
    return LISTED if len(parts) == 1 else FEW


@lru_cache(maxsize=64)
def _promise(capacity: Spend) -> ApproxDP:
    return ApproxDP(exact(capacity.amount), exact(capacity.delta))


@lru_cache(maxsize=256)
def _least(parts: _Parts, delta: Fraction) -> Fraction:
    return least_epsilon(Counter(dict(parts)).elements(), delta, listed=_listed(parts))


@lru_cache(maxsize=32)
def _curve(parts: _Parts, delta: Fraction) -> Curve:
    return loss_curve(Counter(dict(parts)), delta, listed=_listed(parts))
