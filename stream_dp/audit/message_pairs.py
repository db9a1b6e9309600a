"""Verification functions on pairs of messages, for games ([HSV] Def 3.3, 4.5, 5.1, 5.3).

Rules: incremental, constant work per message; `accept` returns the function for the rest of the stream, or None where
the pair is not f-valid. This file knows no bit, no noise and no adversary.
"""

from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol, TypeAlias

import numpy as np

from stream_dp.core.composition import Ask, Create
from stream_dp.core.guarantee import differential_privacy
from stream_dp.core.messages import Query, Update
from stream_dp.core.neighbors import Neighbors, OneHotPair

Parameters: TypeAlias = tuple[Fraction, Fraction]  # (epsilon, delta)


class PairCheck(Protocol):
    """An incremental verification function on pairs of messages."""

    def accept(self, left: Any, right: Any) -> "PairCheck | None":
        """Take the next pair."""
        ...


@dataclass(frozen=True, slots=True)
class StreamPairs:
    """Messages of one mechanism: equal queries, and rows that `rows` accepts."""

    rows: OneHotPair

    @classmethod
    def of(cls, neighbors: Neighbors) -> "StreamPairs":
        """Before the first pair."""
        return cls(OneHotPair(neighbors))

    def accept(self, left: Any, right: Any) -> "StreamPairs | None":
        """Take the next pair."""
        match left, right:
            case Update(), Update():
                rows = self.rows.accept(left.row, right.row)
                return None if rows is None else StreamPairs(rows)
            case Query(), Query():
                return self if left == right else None
            case _:
                return None


@dataclass(frozen=True, slots=True)
class SparseComposition:
    """Suitable sequences ([HSV] Def 4.5) in which the mechanisms that got a pair of different messages have
    parameters that are a sub-multiset of `allowed`.

    Without `delta_budget`: [HSV] Def 5.1, f_infinity, the bookkeeping by the largest delta, which Thm 5.2 breaks. With
    it: Def 5.3, where only the epsilons are matched and 1 - prod(1 - delta_j) over EVERY mechanism created, touched
    or not, stays within the budget (Thm 5.4).
    """

    allowed: tuple[Parameters, ...]
    delta_budget: Fraction | None = None
    unfailed: Fraction = Fraction(1)
    live: tuple[tuple[Parameters, PairCheck], ...] = ()
    touched: frozenset[int] = frozenset()

    def accept(self, left: Any, right: Any) -> "SparseComposition | None":
        """Take the next pair."""
        match left, right:
            case Create(a), Create(b) if a == b:
                return self._created(a.guarantee.measure, StreamPairs.of(a.guarantee.neighbors))
            case Ask(i, a), Ask(j, b) if i == j and 0 <= i < len(self.live):
                return self._asked(i, a, b)
            case _:
                return None

    def _created(self, stated: Any, check: PairCheck) -> "SparseComposition | None":
        measure = differential_privacy(stated)
        unfailed = self.unfailed * (1 - measure.delta)
        if self.delta_budget is not None and 1 - unfailed > self.delta_budget:
            return None
        live = (*self.live, ((measure.epsilon, measure.delta), check))
        return replace(self, unfailed=unfailed, live=live)

    def _asked(self, index: int, left: Any, right: Any) -> "SparseComposition | None":
        parameters, check = self.live[index]
        after = check.accept(left, right)
        if after is None:
            return None
        touched = self.touched | {index} if _differ(left, right) else self.touched
        if not self._covered(touched):
            return None
        live = (*self.live[:index], (parameters, after), *self.live[index + 1 :])
        return replace(self, live=live, touched=touched)

    def _covered(self, touched: frozenset[int]) -> bool:
        """Whether the parameters of the touched mechanisms are a sub-multiset of the allowed ones."""
        only = slice(1) if self.delta_budget is not None else slice(2)
        used = Counter(self.live[index][0][only] for index in touched)
        return used <= Counter(parameters[only] for parameters in self.allowed)


def _differ(left: object, right: object) -> bool:
    if isinstance(left, Update) and isinstance(right, Update):
        return not np.array_equal(left.row, right.row)
    return left != right
