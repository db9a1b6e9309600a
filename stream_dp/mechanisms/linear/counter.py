"""Continual counters and sums: totals of the rows so far, per column, with tree noise at every step.

A linear mechanism is a law of its rows, a structure of trees over time and the noise of their nodes. The l1 norm of an
event's change of a row (`l1`) determines what one unit of it may spend (`unit_epsilon`). The trees that an update lies
in share that amount, and the noise of a tree is private for any integer stream (`tree` has the proof): one tree over a
declared horizon, a hybrid, or trees that hand over, for any number of updates. The answer is the exact integer total
plus integer noise. This file knows no ticks, no thresholds and no names.

`SeparateCounters` are columns that close their updates separately: trees of different ages in one block of arrays. A
column's update is the sum of its rows since it was last closed. A `CloseQuery` names the columns that close now; each
answers its exact total plus the noise of its own trees. One tree hands over to the next as in `HandOverCounter`, but
after 96, 768, 6,144, ... updates: best where columns close some tens to a thousand updates. Rules: which columns close,
and when, is public; columns with equal numbers of updates advance together.

`SumCounter` counts events that add an integer amount, from `lowest` to `highest`, instead of 1. A tree's noise is
private for any integer stream: a shift of its nodes by R y explains a difference y at a step, and the norm of R y is
the height times the norm of y. So all columns together are one leaf, at the l1 norm of a row's difference between
neighbours (`AmountLaw`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from stream_dp.accounting.amounts import text
from stream_dp.accounting.derive import derive
from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.situations import Parallel, Touched
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import IntArray, Message, Noise, Query, Step, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_law import AmountLaw
from stream_dp.core.row_relations import AMOUNTS
from stream_dp.core.wire import wire
from stream_dp.core.wording import how_many
from stream_dp.errors import RejectedMessage
from stream_dp.mechanisms.checks import checked, checked_amounts, of_the_exact_class, require_left
from stream_dp.mechanisms.linear.tree import (
    TreeNoise,
    TreeShape,
    TreeState,
    best_tree,
    rounded,
    worst_prefix,
)
from stream_dp.mechanisms.noise_law import NOTHING, NoiseLaw
from stream_dp.mechanisms.noise_quantiles import Term
from stream_dp.mechanisms.serving import Additive, CountRows

SOURCE = "k-ary tree, l1 sensitivity = height (arXiv 2408.07021), decoded by least squares"
HYBRID_SOURCE = "hybrid of trees (Chan, Shi, Song 2011)"
HAND_OVER_SOURCE = (
    "one tree after the other, each update in one ([HSV] Cor 5.5, k = 1), decoded by least squares"
)
TOTALS_SHARE = Fraction(3, 10)
TOTALS_SHAPE = TreeShape(arity=8, height=2)
LAST_EPOCH = 40
LAST_TREE = 17  # about 2^40 updates

S = TypeVar("S")


class PureShares:
    """A pure claim at `epsilon`, and the share of it for one unit of an event's change."""

    epsilon: Fraction
    neighbors: Neighbors

    @property
    def l1(self) -> int:
        raise NotImplementedError

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(PureDP(self.epsilon), self.neighbors)

    @cached_property
    def unit_epsilon(self) -> Fraction:
        """The epsilon that one unit may spend: epsilon / l1; for counts a column's share, epsilon / L0."""
        return self.epsilon / self.l1


class Trees(PureShares):
    """Noise of trees whose number and scales follow from the number of updates."""

    @property
    def trees(self) -> tuple[TreeNoise, ...]:
        """The trees that one update lies in: one tree of each kind."""
        raise NotImplementedError

    def noise_terms(self, updates: int) -> Sequence[Term]:
        """Return the independent noises in the answer after `updates` updates, before rounding."""
        raise NotImplementedError

    def noise(self, public: int, view: int | None = None) -> NoiseLaw:
        return NoiseLaw(tuple(self.noise_terms(public))) if public else NOTHING


class CountedTrees(CountRows, Trees):
    """Trees for rows of counts; every column has its share of the budget. Subclasses are dataclasses."""

    def side_by_side(self, number: int) -> Self:
        """Return a mechanism that steps so many of this one at once, each on columns of its own.

        Its trees have the same scale, and its state has the columns of theirs, one after the other.
        """
        wide: Self = replace(self, width=number * self.width)  # type: ignore[type-var]
        return replace(wide, epsilon=self.unit_epsilon * wide.l1)  # type: ignore[type-var]

    def _by_columns(self, subject: str, source: str) -> Derivation:
        """Derive the guarantee from the trees of one column; an event sets at most `ones` columns.

        Raises:
            NotDerivable: the noise is too small for a column's share, or no rule covers the columns.
        """
        share = self.unit_epsilon
        paid = sum((tree.shape.height / tree.scale for tree in self.trees), Fraction(0))
        sums = " + ".join(f"{tree.shape.height} / {text(tree.scale)}" for tree in self.trees)
        why = f"height / scale = {sums}, at most {text(share)}"
        claim = Guarantee(PureDP(share), self.neighbors)
        column = leaf(subject, claim, source, (Condition("noise", paid <= share, why),))
        touched = Touched.columns(self.rows)
        return derive(
            (column,), Parallel(f"{how_many(self.width, 'column')}", touched, (self.width,))
        )


class Linear(Additive, Generic[S]):
    """Totals of rows plus noise, all columns updated together; the noise law depends on the number of updates alone."""

    forest: ClassVar[None] = None

    @property
    def ever(self) -> Self:
        return self

    def checked_row(self, row: IntArray) -> IntArray:
        """Return `row` if it is a row for this mechanism, else raise RejectedMessage."""
        raise NotImplementedError

    def advanced(self, state: S, total: IntArray, noise: Noise) -> S:
        """Return the state after one more update, with this total; raise RejectedMessage after the last update."""
        raise NotImplementedError

    def value(self, state: S) -> IntArray:
        """Return the noise of an answer, as integers."""
        raise NotImplementedError

    def step(self, state: S, message: Message, noise: Noise) -> Step[S]:
        """Add a row, or answer the noisy totals of shape (width,)."""
        before: IntArray = state.total  # type: ignore[attr-defined]  # every state of a kind has one
        if isinstance(message, Query):
            return state, before + self.value(state)
        return self.advanced(state, before + self.checked_row(message.row), noise), None


class TreeCounter(Trees, Linear[S]):
    """A linear mechanism with the noise of trees.

    Privacy claim: `epsilon`-DP for its rows under `neighbors`, at every prefix, adaptively: an event changes one
    update, which lies in one node of each level of `trees`; over counts the columns are composed in parallel ([HSV] Cor
    5.5, k = L0).
    """

    def fine(self, state: S) -> IntArray:
        """Return the noise of an answer, in the fixed point of a tree's noise."""
        raise NotImplementedError

    def value(self, state: S) -> IntArray:
        return rounded(self.fine(state))


@wire("counter-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class CounterState:
    """`total`: exact counts, shape (width,), private. `tree`: the state of the noise."""

    total: IntArray
    tree: TreeState


@wire("counter", 1, rests_on=(TreeNoise,))
@dataclass(frozen=True)
class Counter(CountedTrees, TreeCounter[CounterState]):
    """`width` continual counters for at most `horizon` updates, with one tree per column.

    `ones`: the most entries of a row that one event sets (1: one-hot rows).

    >>> from stream_dp.testing.noise import ZeroNoise
    >>> from stream_dp.core.mechanism import Update
    >>> counter = Counter(1, Fraction(1), Neighbors.ADD_REMOVE, horizon=10)
    >>> state = counter.init(ZeroNoise())
    >>> state, _ = counter.step(state, Update(np.array([3])), ZeroNoise())
    >>> counter.step(state, Query(), ZeroNoise())[1]
    array([3])
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    horizon: int
    ones: int = 1

    @cached_property
    def tree(self) -> TreeNoise:
        return best_tree(self.horizon, self.unit_epsilon, self.width)

    @property
    def trees(self) -> tuple[TreeNoise, ...]:
        return (self.tree,)

    def noise_terms(self, updates: int) -> list[Term]:
        return self.tree.terms(updates)

    @of_the_exact_class
    def derivation(self) -> Derivation:
        return self._by_columns(f"one counter, {how_many(self.horizon, 'update')}", SOURCE)

    def init(self, noise: Noise) -> CounterState:
        return CounterState(np.zeros(self.width, dtype=np.int64), self.tree.init(noise))

    def advanced(self, state: CounterState, total: IntArray, noise: Noise) -> CounterState:
        require_left(state.tree.prefix, self.horizon)
        return CounterState(total, self.tree.advance(state.tree, noise))

    def fine(self, state: CounterState) -> IntArray:
        return self.tree.fine(state.tree)


@wire("hybrid-counter-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class HybridState:
    """`total`: exact counts, private. `epoch`: number of the epoch. `inner`, `totals`: the states of the two noises."""

    total: IntArray
    epoch: int
    inner: TreeState
    totals: TreeState


@wire("hybrid-counter", 2, rests_on=(TreeNoise,))
@dataclass(frozen=True)
class HybridCounter(CountedTrees, TreeCounter[HybridState]):
    """`width` continual counters for up to 2^40 updates, not declared in advance (Chan, Shi, Song 2011).

    Epoch e covers 2^e updates and runs its own tree at the share 1 - w of the budget. The totals of the finished
    epochs go into one tree of at most 40 steps at the share w (w and the tree's shape are best for 2^10 to 2^20
    updates). An update lies in one epoch (parallel over the epochs, [HSV] Cor 5.5 with k = 1) and in one total, so
    the two add up to the whole.
    """

    horizon: ClassVar[None] = None

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    ones: int = 1

    @cached_property
    def totals(self) -> TreeNoise:
        scale = TOTALS_SHAPE.height / (TOTALS_SHARE * self.unit_epsilon)
        return TreeNoise(TOTALS_SHAPE, scale, self.width)

    @cached_property
    def _inner_epsilon(self) -> Fraction:
        return (1 - TOTALS_SHARE) * self.unit_epsilon

    def inner(self, epoch: int) -> TreeNoise:
        return best_tree(1 << epoch, self._inner_epsilon, self.width)

    @property
    def trees(self) -> tuple[TreeNoise, ...]:
        return self.inner(0), self.totals

    def noise_terms(self, updates: int) -> list[Term]:
        epoch = max(0, updates.bit_length() - 1)  # an epoch ends with its own last update
        inside = updates and updates - (1 << epoch) + 1
        return [*self.inner(epoch).terms(inside), *self.totals.terms(epoch)]

    @of_the_exact_class
    def derivation(self) -> Derivation:
        return self._by_columns("one counter, any number of updates", HYBRID_SOURCE)

    def most_noise_terms(self, updates: int) -> list[Term]:
        """Return the noises of the answer with the largest variance in the epoch that `updates` lies in."""
        epoch = max(0, updates.bit_length() - 1)
        inner = self.inner(epoch)
        return [*inner.terms(worst_prefix(inner.shape, 1 << epoch)), *self.totals.terms(epoch)]

    def init(self, noise: Noise) -> HybridState:
        zeros = np.zeros(self.width, dtype=np.int64)
        return HybridState(zeros, 0, self.inner(0).init(noise), self.totals.init(noise))

    def advanced(self, state: HybridState, total: IntArray, noise: Noise) -> HybridState:
        epoch, inner, totals = state.epoch, state.inner, state.totals
        if inner.prefix == 1 << epoch:
            if epoch == LAST_EPOCH:
                raise RejectedMessage("this counter has had 2^40 updates; create a new one")
            totals = self.totals.advance(totals, noise)
            epoch, inner = epoch + 1, self.inner(epoch + 1).init(noise)
        return HybridState(total, epoch, self.inner(epoch).advance(inner, noise), totals)

    def fine(self, state: HybridState) -> IntArray:
        return self.inner(state.epoch).fine(state.inner) + self.totals.fine(state.totals)


def counter_for(
    width: int, epsilon: Fraction, neighbors: Neighbors, horizon: int | None
) -> Counter | HybridCounter:
    """Return counters for at most `horizon` updates, or for any number (up to 2^40) where it is None."""
    if horizon is None:
        return HybridCounter(width, epsilon, neighbors)
    return Counter(width, epsilon, neighbors, horizon)


@dataclass(frozen=True, slots=True)
class HandOverSchedule:
    """Schedule of hand-overs: tree n takes `first` * `growth`^n updates, including its last one.

    >>> HandOverSchedule(64, 4).place(64), HandOverSchedule(64, 4).place(65)
    ((0, 64), (1, 1))
    """

    first: int
    growth: int

    def size(self, number: int) -> int:
        return self.first * int(self.growth**number)

    def place(self, updates: int) -> tuple[int, int]:
        """Return (number of the tree, updates inside it) after `updates` updates."""
        number = 0
        while updates > self.size(number):
            updates, number = updates - self.size(number), number + 1
        return number, updates


class HandsOver(CountedTrees):
    """Trees one after the other, each at the whole budget: an update lies in one ([HSV] Cor 5.5, k = 1).

    The noise in a finished tree's last answer stays in all answers after it.
    """

    schedule: ClassVar[HandOverSchedule]

    def tree(self, number: int, width: int | None = None) -> TreeNoise:
        return best_tree(self.schedule.size(number), self.unit_epsilon, width or self.width)

    @property
    def trees(self) -> tuple[TreeNoise, ...]:
        """The tree that an update lies in; the first one stands for all."""
        return (self.tree(0),)

    def noise_terms(self, updates: int) -> list[Term]:
        return self._terms(*self.schedule.place(updates))

    def most_noise_terms(self, updates: int) -> list[Term]:
        """Return the noises of the answer with the largest variance under the tree that `updates` lies in."""
        number, _ = self.schedule.place(updates)
        worst = worst_prefix(self.tree(number).shape, self.schedule.size(number))
        return self._terms(number, worst)

    def _terms(self, number: int, inside: int) -> list[Term]:
        """Return the noises after `inside` updates of this tree: its own, and those that finished trees left."""
        ends = [term for n in range(number) for term in self.tree(n).terms(self.schedule.size(n))]
        return [*ends, *self.tree(number).terms(inside)]


@wire("hand-over-counter-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class HandOverState:
    """`total`: exact counts, private. `number`: the tree in use. `tree`: the state of its noise.

    `base`: the summed noise of finished trees' last answers, private, in the fixed point of a tree's noise.
    """

    total: IntArray
    number: int
    base: IntArray
    tree: TreeState


@wire("hand-over-counter", 1, rests_on=(TreeNoise,))
@dataclass(frozen=True)
class HandOverCounter(HandsOver, TreeCounter[HandOverState]):
    """`width` continual counters for any number of updates (up to 2^40), best for the first thousand.

    Each tree takes four times the updates of the tree before. The cost is the noise of all finished trees.
    """

    schedule: ClassVar[HandOverSchedule] = HandOverSchedule(64, 4)

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    ones: int = 1

    @of_the_exact_class
    def derivation(self) -> Derivation:
        return self._by_columns("one counter, any number of updates", HAND_OVER_SOURCE)

    def init(self, noise: Noise) -> HandOverState:
        zeros = np.zeros(self.width, dtype=np.int64)
        return HandOverState(zeros, 0, zeros, self.tree(0).init(noise))

    def advanced(self, state: HandOverState, total: IntArray, noise: Noise) -> HandOverState:
        number, base, tree = state.number, state.base, state.tree
        if tree.prefix == self.schedule.size(number):
            if number == LAST_TREE:
                raise RejectedMessage("this counter has had 2^40 updates; create a new one")
            base = base + self.tree(number).fine(tree)
            number, tree = number + 1, self.tree(number + 1).init(noise)
        return HandOverState(total, number, base, self.tree(number).advance(tree, noise))

    def fine(self, state: HandOverState) -> IntArray:
        return state.base + self.tree(state.number).fine(state.tree)


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
        subject = "one column's counter: trees one after the other, with each update in one tree"
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
            raise RejectedMessage("this query must name the columns whose updates end now")
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


SUMS_SOURCE = (
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
        return leaf(how_many(self.width, "sum"), self.guarantee, SUMS_SOURCE, (drawn,))

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
