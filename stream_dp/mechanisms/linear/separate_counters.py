"""Continual counters whose columns close their updates separately: trees of different ages in one block of arrays.

A column's update is the sum of its rows since it was last closed. A `CloseQuery` names the columns that close now; each
answers its exact total plus the noise of its own trees. One tree hands over to the next as in `HandOverCounter`, but
after 96, 768, 6,144, ... updates: best where columns close some tens to a thousand updates. Rules: which columns close,
and when, is public; columns with equal numbers of updates advance together. This file knows no thresholds and no ticks.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

import numpy as np

from stream_dp.core.derivation import Derivation
from stream_dp.core.mechanism import IntArray, Message, Noise, Query, Step
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.errors import RejectedMessage
from stream_dp.mechanisms.checks import checked, of_the_exact_class
from stream_dp.mechanisms.linear.counter import HAND_OVER_SOURCE, HandOverSchedule, HandsOver
from stream_dp.mechanisms.linear.tree import TreeNoise, TreeState, rounded


@dataclass(frozen=True, slots=True, eq=False)
class CloseQuery(Query):
    """Close the updates of these columns (distinct, a public choice) and answer their counts."""

    columns: IntArray = field(kw_only=True)

    def __eq__(self, other: object) -> bool:
        # the inherited comparison looks at the threshold alone
        return isinstance(other, CloseQuery) and np.array_equal(self.columns, other.columns)

    def __hash__(self) -> int:
        return hash(self.columns.tobytes())


@wire("separate-counters-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class SeparateState:
    """`total`: exact counts, private. `updates`: closed updates, public. Both and `base` have shape (width,).

    `base` is the summed noise of finished trees' last answers, in the fixed point of a tree's noise. `trees[n]` holds
    tree number n of every column that has reached it, and zeros for the other columns.
    """

    total: IntArray
    updates: IntArray
    base: IntArray
    trees: tuple[TreeState, ...]


@wire("separate-counters", 2, rests_on=(TreeNoise,))
@dataclass(frozen=True)
class SeparateCounters(HandsOver):
    """`width` counters for any number of updates; each column closes its updates at its own public times.

    Answers to a `CloseQuery` of shape (columns,). `ones`: the most entries of a row that one event sets.

    Privacy claim: `epsilon`-DP under `neighbors`, at every time, adaptively: an event lies in one update of a
    column, an update in one tree, which has the column's whole epsilon / L0; the trees of a column in parallel
    ([HSV] Cor 5.5, k = 1), the columns in parallel (k = L0).
    """

    schedule: ClassVar[HandOverSchedule] = HandOverSchedule(96, 8)

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    ones: int = 1

    @of_the_exact_class
    def derivation(self) -> Derivation:
        subject = "one column's counter: trees one after the other, an update in one"
        return self._by_columns(subject, HAND_OVER_SOURCE)

    def init(self, noise: Noise) -> SeparateState:
        zeros = np.zeros(self.width, dtype=np.int64)
        return SeparateState(zeros, zeros, zeros, ())

    def step(self, state: SeparateState, message: Message, noise: Noise) -> Step[SeparateState]:
        """Add a row to the open updates, or close the updates of some columns and answer their counts."""
        if not isinstance(message, Query):
            total = state.total + checked(message.row, self.width)
            return SeparateState(total, state.updates, state.base, state.trees), None
        if not isinstance(message, CloseQuery):
            raise RejectedMessage("this query needs the columns whose updates close now")
        columns, ages = message.columns, state.updates[message.columns]
        answer = np.zeros(len(columns), dtype=np.int64)
        for age in sorted(set(ages.tolist())):
            alike = ages == age
            state, noisy = self._close(state, columns[alike], age, noise)
            answer[alike] = noisy
        return state, answer

    def _close(
        self, state: SeparateState, columns: IntArray, age: int, noise: Noise
    ) -> tuple[SeparateState, IntArray]:
        """Close the updates of columns that have all closed `age` updates; return the state and their noisy counts."""
        number, inside = self.schedule.place(age + 1)
        base, trees = state.base, state.trees
        tree = self.tree(number, len(columns))
        known = _part(trees[number], columns, inside - 1) if inside > 1 else None
        now = tree.advance(tree.init(noise) if known is None else known, noise)
        if known is None and number:
            ended = _part(trees[number - 1], columns, self.schedule.size(number - 1))
            left = self.tree(number - 1, len(columns)).fine(ended)
            base = _written(base, columns, base[columns] + left)
        if number == len(trees):
            blank = _mapped(0, lambda a: np.zeros((*a.shape[:-1], self.width), dtype=np.int64), now)
            trees = (*trees, blank)
        after = _put(trees[number], columns, now, known)
        trees = (*trees[:number], after, *trees[number + 1 :])
        updates = _written(state.updates, columns, np.full(len(columns), age + 1))
        noisy = state.total[columns] + rounded(base[columns] + tree.fine(now))
        return SeparateState(state.total, updates, base, trees), noisy


def _written(whole: IntArray, columns: IntArray, part: IntArray) -> IntArray:
    after = whole.copy()
    after[..., columns] = part
    return after


def _mapped(prefix: int, change: Callable[..., IntArray], *trees: TreeState) -> TreeState:
    """Return the state whose arrays are `change` of the arrays of `trees`; columns are the last axis of all arrays."""
    windows = zip(*[tree.windows for tree in trees], strict=True)
    left = zip(*[tree.left for tree in trees], strict=True)
    return TreeState(
        prefix,
        tuple([change(*arrays) for arrays in windows]),
        tuple([change(*arrays) for arrays in left]),
        change(*[tree.here for tree in trees]),
        change(*[tree.slope for tree in trees]),
    )


def _part(tree: TreeState, columns: IntArray, prefix: int) -> TreeState:
    return _mapped(prefix, lambda array: array[..., columns], tree)


def _put(tree: TreeState, columns: IntArray, now: TreeState, known: TreeState | None) -> TreeState:
    """Return the state with these columns replaced; its `prefix` is unused, because every column has its own.

    `known`: the state of the columns in `tree`; an array that `now` has from it is there already.
    """

    def put(whole: IntArray, new: IntArray, old: IntArray | None = None) -> IntArray:
        return whole if new is old else _written(whole, columns, new)

    return _mapped(0, put, tree, now, *([] if known is None else [known]))
