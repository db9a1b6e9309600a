"""The noise of all tree counters, exactly: which nodes are drawn when, the privacy that follows, the decoding.

Privacy: the shift of the node noises that stands for one event (`shifted_noise`), in the streaming code, in integers.
One tree: its cost is the height over the scale. Hybrid: by 1 at the nodes of the epoch's tree, and at those of the tree
of totals, that hold the event; both costs add up to the epsilon of a column. Trees that hand over: by 1 at the nodes of
the event's own tree and at none before and after. Columns that close apart: each answers what a counter of its own
answers from the very noise that was drawn for it, so its law is that of columns that close together.
Quality: the linear map of the streaming code is that of least squares (`oracles.decoded_tree`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from oracles import decoded_tree as oracle
from unit.mechanisms.shifted_noise import (
    BIG,
    Drawn,
    NoNoise,
    Shifted,
    check_counter,
    check_tree,
    linear_map,
)

from stream_dp.core.mechanism import IntArray, Message, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import NotDerivable, RejectedMessage
from stream_dp.mechanisms.linear.counter import (
    LAST_TREE,
    TOTALS_SHARE,
    CloseQuery,
    Counter,
    HandOverCounter,
    HandOverSchedule,
    HandOverState,
    HybridCounter,
    SeparateCounters,
    SeparateState,
)
from stream_dp.mechanisms.linear.tree import (
    FRACTION_BITS,
    TreeNoise,
    TreeShape,
    TreeState,
    sampled,
    worst_prefix,
)
from stream_dp.mechanisms.noise_law import NoiseLaw
from stream_dp.testing.noise import ScriptedNoise, SeededNoise, ZeroNoise


class TopStays(TreeNoise):
    """The highest node is drawn once and for all."""

    def _moved_on(self, state: TreeState, changed: int, noise: Noise) -> TreeState:
        after = super()._moved_on(state, changed, noise)
        windows = (*after.windows[:-1], state.windows[-1])
        return self._begun(after.prefix, windows, after.left, after.here)


class SharesApart(TreeNoise):
    """A finished node's two weights are rounded apart and do not add up to 1: L R is not A."""

    def _moved_on(self, state: TreeState, changed: int, noise: Noise) -> TreeState:
        after = super()._moved_on(state, changed, noise)
        left = list(after.left)
        left[-1] = left[-1] + (state.windows[0].sum(axis=0) << (FRACTION_BITS - 8))
        return self._begun(after.prefix, after.windows, tuple(left), after.here)


class FloatEstimates(TreeNoise):
    """The estimates are single precision floats."""

    def fine(self, state: TreeState) -> IntArray:
        return super().fine(state).astype(np.float32).astype(np.int64)


class TotalsStay(HybridCounter):
    """The tree of totals does not move on: its answer at prefix 0 is 0, the totals are exact."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        after, answer = super().step(state, message, noise)
        return replace(after, totals=state.totals), answer


class TotalsDrawnAnew(HybridCounter):
    """The tree of totals takes fresh noise for the same nodes: they can be averaged."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        after, answer = super().step(state, message, noise)
        if after.epoch == state.epoch:
            return after, answer
        fresh = replace(after.totals, windows=self.totals.init(noise).windows)
        return replace(after, totals=fresh), answer


class OldWindow(HandOverCounter):
    """A new tree's first noises are the finished one's."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        after, answer = super().step(state, message, noise)
        if after.number == state.number:
            return after, answer
        used, fresh = state.tree.windows[0], after.tree.windows[0]
        window = np.concatenate([used, fresh])[: len(fresh)]
        tree = replace(after.tree, windows=(window, *after.tree.windows[1:]))
        return replace(after, tree=tree), answer


ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
SCALE, EPSILON, ONE = Fraction(7, 2), Fraction(2, 3), Fraction(1)


# --- one tree -----------------------------------------------------------------------------------

SHAPES = [(2, 1), (3, 2), (2, 4), (4, 3), (5, 3), (3, 4), (14, 2)]


def steps_of(shape: tuple[int, int]) -> int:
    """Some way into the third of the highest nodes."""
    return 2 * int(shape[0] ** (shape[1] - 1)) + shape[0] + 1


def nodes(shape: tuple[int, int], steps: int, scale: Fraction = SCALE) -> Iterator[Drawn]:
    for node in oracle.drawn(*shape, steps):
        yield Drawn(scale, *oracle.first_and_last(node, shape[0]))


@pytest.mark.parametrize("shape", SHAPES)
def test_an_event_is_a_shift_that_costs_height_over_scale(shape: tuple[int, int]) -> None:
    steps = steps_of(shape)
    noise = check_tree(TreeNoise(TreeShape(*shape), SCALE, steps + 1), nodes(shape, steps), steps)
    assert {noise.cost(step) for step in range(1, steps + 1)} == {shape[1] / SCALE}


@pytest.mark.parametrize("shape", [(2, 4), (5, 3)])
@pytest.mark.parametrize("twin", [TopStays, SharesApart, FloatEstimates])
def test_a_tree_that_no_shift_explains_is_caught(
    twin: type[TreeNoise], shape: tuple[int, int]
) -> None:
    steps = steps_of(shape)
    with pytest.raises(AssertionError):
        check_tree(twin(TreeShape(*shape), SCALE, steps + 1), nodes(shape, steps), steps)


class Units(NoNoise):
    """The n-th node drawn is BIG in column n and 0 elsewhere."""

    def __init__(self, width: int) -> None:
        self.width, self.drawn = width, 0

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        here = self.drawn + np.arange(size // self.width)
        self.drawn += len(here)
        units = here[:, None] == np.arange(self.width)
        return np.where(units, BIG, 0).astype(np.int64).reshape(-1)


def map_of(shape: tuple[int, int], steps: int) -> NDArray[np.float64]:
    """L, shape (steps, draws): the values at large unit vectors of node noises."""
    number = len(oracle.drawn(*shape, steps))
    tree, units = TreeNoise(TreeShape(*shape), SCALE, number), Units(number)
    state, rows = tree.init(units), []
    for _ in range(steps):
        state = tree.advance(state, units)
        rows.append(tree.fine(state) / (BIG << FRACTION_BITS))
    assert units.drawn == number
    return np.array(rows)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_decoding_is_least_squares_and_has_the_stated_terms(shape: tuple[int, int]) -> None:
    steps = steps_of(shape)
    weights, best = map_of(shape, steps), oracle.least_squares(*shape, steps)
    assert np.abs(weights - best).max() < 2e-3
    variances = (best**2).sum(axis=1)
    np.testing.assert_allclose((weights**2).sum(axis=1), variances, rtol=1e-5)
    stated = TreeShape(*shape).variances(np.arange(1, steps + 1))
    np.testing.assert_allclose(stated, variances, rtol=1e-9)
    tree = TreeNoise(TreeShape(*shape), SCALE, 1)
    for prefix in range(1, steps + 1):
        terms = [w for _, number, w in tree.terms(prefix) for _ in range(number)]
        wanted = np.zeros(weights.shape[1])
        wanted[: len(terms)] = np.sort(terms)[::-1]
        used = np.sort(np.abs(weights[prefix - 1]))[::-1]
        np.testing.assert_allclose(used, wanted, atol=1e-5)


def test_the_sample_stands_for_the_whole() -> None:
    for horizon in (3_000, 2**16):
        shape = TreeShape.best(horizon)
        variances = shape.variances(np.arange(1, horizon + 1))
        assert shape.variances(sampled(horizon)).mean() == pytest.approx(variances.mean(), rel=0.01)
        worst = variances[worst_prefix(shape, horizon) - 1]
        assert 0.97 * variances.max() <= worst <= variances.max()


@pytest.mark.parametrize("horizon", [1, 9, 40, 300, 2_999, 70_000])
def test_the_best_shape_is_the_best(horizon: int) -> None:
    """No other height, nor another arity near by, has a smaller error."""
    shape, prefixes = TreeShape.best(horizon), sampled(horizon)
    error = shape.height**2 * shape.variances(prefixes).mean()
    near = [TreeShape(shape.arity + d, shape.height) for d in (-2, -1, 1, 2) if shape.arity + d > 1]
    for other in [*near, TreeShape(2, 1), TreeShape(5, 4), TreeShape(12, 2), TreeShape(14, 3)]:
        assert error <= other.height**2 * other.variances(prefixes).mean() * (1 + 1e-12)
    digits = [shape.digit(level, horizon) for level in range(shape.height)]
    assert sum(d * shape.arity**i for i, d in enumerate(digits)) == horizon


@pytest.mark.parametrize(("relation", "ones"), [(REPLACE, 1), (ADD, 3)])
def test_a_counter_is_its_counts_and_its_tree(relation: Neighbors, ones: int) -> None:
    """With the shape it chooses itself; an event costs each of L0 columns epsilon / L0."""
    horizon, events = 300, np.arange(1, 301)
    l0 = relation.l0(len(events) + 1, ones)
    shape = TreeShape.best(horizon)
    wanted = nodes((shape.arity, shape.height), horizon, shape.height * l0 / EPSILON)
    noise = check_counter(
        lambda width: Counter(width, EPSILON, relation, horizon, ones), wanted, horizon, events
    )
    assert {noise.cost(step) for step in (1, 2, horizon)} == {EPSILON / l0}


def test_noise_too_wide_for_64_bits_is_refused() -> None:
    assert Counter(1, Fraction(1, 10**6), REPLACE, 2**20).tree.scale > 10**6
    with pytest.raises(NotDerivable, match="too wide for 64 bits"):
        _ = Counter(1, Fraction(1, 10**12), ADD, 2**20).tree


# --- the hybrid ---------------------------------------------------------------------------------

TOTALS = (8, 2)


def totals_drawn(epoch: int) -> Iterator[Drawn]:
    """What the tree of totals draws with its item `epoch` (from 0): nodes that cover the steps of whole epochs."""
    scale = TOTALS[1] / (TOTALS_SHARE * EPSILON)
    for node in oracle.drawn_with(*TOTALS, epoch):
        first, last = oracle.first_and_last(node, TOTALS[0])  # epochs, counted from 1
        yield Drawn(scale, 1 << (first - 1), (1 << last) - 1)


def inner_drawn(epoch: int, item: int) -> Iterator[Drawn]:
    shape, before = TreeShape.best(1 << epoch), (1 << epoch) - 1
    scale = shape.height / ((1 - TOTALS_SHARE) * EPSILON)
    for node in oracle.drawn_with(shape.arity, shape.height, item):
        first, last = oracle.first_and_last(node, shape.arity)
        yield Drawn(scale, before + first, min(before + last, 2 * before + 1))


def hybrid_nodes(updates: Sequence[int]) -> Iterator[Drawn]:
    yield from inner_drawn(0, 0)
    yield from totals_drawn(0)
    for update in updates:
        epoch = update.bit_length() - 1
        if update == 1 << epoch and epoch > 1:
            yield from totals_drawn(epoch - 1)
        yield from inner_drawn(epoch, update - (1 << epoch))


def check_hybrid(kind: type[HybridCounter], updates: int) -> Shifted:
    """Events at and around the ends of all epochs, and between, against every answer."""
    ends = [1 << e for e in range(updates.bit_length())]
    near = {step for end in ends for step in (end - 1, end, end + 1, end + end // 3)}
    events = np.array(sorted(step for step in near if 1 <= step <= updates))
    drawn = hybrid_nodes(range(2, updates + 1))
    return check_counter(lambda width: kind(width, EPSILON, ADD), drawn, updates, events)


def test_an_event_of_a_hybrid_costs_the_epsilon_of_its_column() -> None:
    noise = check_hybrid(HybridCounter, (1 << 11) + 40)  # into epoch 11
    assert {noise.cost(step) for step in noise.steps.tolist()} == {EPSILON}


@pytest.mark.parametrize("twin", [TotalsStay, TotalsDrawnAnew])
def test_a_hybrid_that_uses_a_noise_twice_or_none_is_caught(twin: type[HybridCounter]) -> None:
    with pytest.raises(AssertionError):
        check_hybrid(twin, 40)


def test_every_epoch_has_its_own_noise_up_to_the_last() -> None:
    """What lies between the first two updates of an epoch and its end is leapt over; no window would change."""
    noise = Shifted(hybrid_nodes([1 << epoch for epoch in range(1, 41)]), np.array([1]))
    counter = HybridCounter(2, EPSILON, ADD)
    silent, state = Update(np.zeros(2, dtype=np.int64)), counter.init(noise)
    for epoch in range(1, 41):
        state = replace(state, inner=replace(state.inner, prefix=1 << (epoch - 1)))
        state, _ = counter.step(state, silent, noise)
        assert (state.epoch, state.inner.prefix) == (epoch, 1)
        _, answer = counter.step(state, Query(), noise)
        assert answer is not None
        assert answer[1] - answer[0] == 1
    state = replace(state, inner=replace(state.inner, prefix=1 << 40))
    with pytest.raises(RejectedMessage, match="create a new one"):
        counter.step(state, silent, noise)


# --- trees that hand over, columns together or apart ----------------------------------------------


@dataclass(frozen=True)
class Together:
    """Separate counters whose columns all close at each update; a query repeats what they answered."""

    counters: SeparateCounters

    @property
    def width(self) -> int:
        return self.counters.width

    def init(self, noise: Noise) -> Any:
        return self.counters.init(noise), None

    def step(self, state: Any, message: Message, noise: Noise) -> tuple[Any, IntArray | None]:
        if isinstance(message, Query):
            return state, state[1]
        taken, _ = self.counters.step(state[0], message, noise)
        return self.counters.step(taken, close(range(self.width)), noise), None


def close(columns: Sequence[int]) -> CloseQuery:
    return CloseQuery(columns=np.array(columns, dtype=np.int64))


def hand_over_nodes(updates: int, epsilon: Fraction, first: int, growth: int) -> Iterator[Drawn]:
    """All that is drawn, in order, by trees of `first`, `first * growth`, ... updates; nodes end with their tree."""
    size, inside = first, 0
    for update in range(1, updates + 1):
        if inside == size:
            size, inside = growth * size, 0
        inside += 1
        shape, before = TreeShape.best(size), update - inside
        for node in oracle.drawn_with(shape.arity, shape.height, inside - 1):
            begin, end = oracle.first_and_last(node, shape.arity)
            yield Drawn(shape.height / epsilon, before + begin, before + min(end, size))


class HastyHandOver(HandOverCounter):
    """The counter with trees of three updates each, which comes to every tree that there may be."""

    schedule = HandOverSchedule(3, 1)


class HastySeparate(SeparateCounters):
    schedule = HandOverSchedule(3, 1)


class GrowingHandOver(HandOverCounter):
    """Trees of 2, 4, 8, ... updates: six of them have ended after 126, and the later ones have levels."""

    schedule = HandOverSchedule(2, 2)


class GrowingSeparate(SeparateCounters):
    schedule = HandOverSchedule(2, 2)


class LateBaseForgotten(HastyHandOver):
    """Broken: what tree 9 answered last is exact from then on."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        after, answer = super().step(state, message, noise)
        return (replace(after, base=state.base) if after.number == 10 else after), answer


class LateBaseLost(HastySeparate):
    """Broken as `LateBaseForgotten`; `age` is the number of updates that were closed before."""

    def _close(self, state: Any, columns: Any, age: int, noise: Any) -> Any:
        after, noisy = super()._close(state, columns, age, noise)
        return (replace(after, base=state.base) if age == 30 else after), noisy


class BaseOfAll(SeparateCounters):
    """Broken: where one column's tree ends, all columns get its last noise."""

    def _close(self, state: Any, columns: Any, age: int, noise: Any) -> Any:
        after, noisy = super()._close(state, columns, age, noise)
        return replace(after, base=state.base + (after.base - state.base)[columns[0]]), noisy


class LateHandOver(SeparateCounters):
    """Broken: the first tree takes an update more than the oracle's."""

    schedule = HandOverSchedule(97, 8)


def made(kind: type[Any], width: int, relation: Neighbors) -> Any:
    counter = kind(width, EPSILON, relation)
    return Together(counter) if issubclass(kind, SeparateCounters) else counter


def check_hand_over(kind: type[Any], relation: Neighbors = ADD) -> Shifted:
    """Events around the first two hand-overs and between, against every answer."""
    first, growth = (96, 8) if issubclass(kind, SeparateCounters) else (64, 4)
    last = first + first * growth + 100
    near = {e + d for e in (1, first, last - 100) for d in (-1, 0, 1, 2, 40)} | {
        200,
        last - 1,
        last,
    }
    events = np.array(sorted(step for step in near if 1 <= step <= last))
    each = EPSILON / relation.l0(len(events) + 1)
    drawn = hand_over_nodes(last, each, first, growth)
    return check_counter(lambda width: made(kind, width, relation), drawn, last, events)


def check_all_hand_overs(kind: type[Any]) -> Shifted:
    """An event at each update of all trees of three updates, or of six trees that grow, against every answer."""
    first, growth = kind.schedule.first, kind.schedule.growth
    updates = 130 if growth > 1 else 3 * (LAST_TREE + 1)
    drawn = hand_over_nodes(updates, EPSILON, first, growth)
    return check_counter(
        lambda width: made(kind, width, ADD), drawn, updates, np.arange(1, updates + 1)
    )


@pytest.mark.parametrize("kind", [HandOverCounter, SeparateCounters])
@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_an_event_is_in_one_tree_and_costs_the_epsilon_of_its_column(
    kind: type[Any], relation: Neighbors
) -> None:
    noise = check_hand_over(kind, relation)
    assert {noise.cost(e) for e in noise.steps.tolist()} == {EPSILON / relation.l0(9)}


@pytest.mark.parametrize("twin", [OldWindow, LateHandOver])
def test_a_hand_over_that_keeps_or_forgets_noise_is_caught(twin: type[Any]) -> None:
    with pytest.raises((AssertionError, IndexError, StopIteration)):
        check_hand_over(twin)


@pytest.mark.parametrize(
    ("kind", "twin", "answer"),
    [(HastyHandOver, LateBaseForgotten, 31), (HastySeparate, LateBaseLost, 32)],
)
def test_every_hand_over_keeps_the_noise_of_the_tree_that_ends(
    kind: type[Any], twin: type[Any], answer: int
) -> None:
    noise = check_all_hand_overs(kind)
    assert {noise.cost(e) for e in noise.steps.tolist()} == {EPSILON}
    with pytest.raises(AssertionError, match=f"answer {answer} moves otherwise"):
        check_all_hand_overs(twin)


@pytest.mark.parametrize("kind", [GrowingHandOver, GrowingSeparate])
def test_six_hand_overs_of_growing_trees_keep_the_noise_of_their_last_answers(
    kind: type[Any],
) -> None:
    """An ended tree is read at its own last update: with several levels that is another noise than one before."""
    assert TreeShape.best(kind.schedule.size(5)).height > 1
    noise = check_all_hand_overs(kind)
    assert {noise.cost(e) for e in noise.steps.tolist()} == {EPSILON}


def test_the_last_tree_refuses_more_than_it_takes() -> None:
    schedule = HandOverCounter.schedule
    assert [schedule.place(t) for t in (0, 320, 321, 1345)] == [(0, 0), (1, 256), (2, 1), (3, 1)]
    assert schedule.place(2**40)[0] <= LAST_TREE
    counter = HandOverCounter(1, ONE, ADD)
    tree, zero = counter.tree(LAST_TREE), np.zeros(1, dtype=np.int64)
    full = replace(tree.init(ZeroNoise()), prefix=schedule.size(LAST_TREE))
    with pytest.raises(RejectedMessage, match="create a new one"):
        counter.step(HandOverState(zero, LAST_TREE, zero, full), Update(zero), ZeroNoise())


@pytest.mark.parametrize(
    ("kind", "updates"),
    [(HybridCounter, 70), (HandOverCounter, 70), (HastyHandOver, 20), (GrowingHandOver, 130)],
)
def test_the_stated_noise_is_that_of_the_streaming_code(kind: type[Any], updates: int) -> None:
    """Around the ends of epochs and of six trees and more, which the terms must know of to the update."""
    counter = kind(1, EPSILON, ADD)
    matrix, scales = linear_map(counter, updates)
    drawn = 2 * (matrix**2) @ np.array(scales, dtype=float) ** 2
    stated = [counter.noise(update).spread for update in range(1, updates + 1)]
    np.testing.assert_allclose(stated, drawn, rtol=1e-3)


@pytest.mark.parametrize("kind", [HybridCounter, GrowingHandOver])
def test_the_most_noise_is_that_of_the_worst_answer_under_the_same_tree(kind: type[Any]) -> None:
    counter, updates = kind(1, EPSILON, ADD), 127
    most = [NoiseLaw(tuple(counter.most_noise_terms(u))).spread for u in range(1, updates + 1)]
    spreads = [counter.noise(update).spread for update in range(1, updates + 1)]
    for tree in range(1, 7):
        first = (1 << tree) - 1 - (kind is GrowingHandOver)  # updates before it
        worst = max(spreads[first : first + (1 << tree)])
        assert most[first : first + (1 << tree)] == pytest.approx([worst] * (1 << tree))


@dataclass
class ByColumn(NoNoise):
    """Random noise that remembers which column each value was drawn for."""

    rng: np.random.Generator
    closing: Sequence[int] = ()
    drawn: dict[int, list[int]] = field(default_factory=dict)

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        values = self.rng.integers(-(1 << 20), 1 << 20, size)
        for place, column in enumerate(self.closing):
            mine = values[place :: len(self.closing)]
            self.drawn.setdefault(column, []).extend(mine.tolist())
        return values


def telling(kind: type[SeparateCounters]) -> type[SeparateCounters]:
    """The same counters, which tell the noise whose update closes."""

    class Telling(kind):  # type: ignore[misc, valid-type]  # a class made from a parameter
        def _close(
            self, state: SeparateState, columns: IntArray, age: int, noise: Any
        ) -> tuple[SeparateState, IntArray]:
            noise.closing = columns.tolist()
            closed: tuple[SeparateState, IntArray] = super()._close(state, columns, age, noise)
            return closed

    return Telling


@lru_cache(maxsize=1)
def closings() -> tuple[tuple[int, ...], ...]:
    """Who closes when: one always, one nearly, one seldom, one late; so that all ages meet."""
    rng, chances = np.random.default_rng(1), np.array([1, 0.95, 0.15, 0.5])
    columns = []
    for t in range(964):
        closes = rng.random(4) < chances
        closes[3] &= t > 96
        columns.append(tuple(np.flatnonzero(closes).tolist()))
    return tuple(columns)


def apart(kind: type[SeparateCounters]) -> bool:
    """Whether each column of four answers what it would alone, from the noise that was drawn for it."""
    counters, noise = telling(kind)(4, EPSILON, REPLACE), ByColumn(np.random.default_rng(2))
    state = counters.init(noise)
    answers: dict[int, list[int]] = {column: [] for column in range(4)}
    for t, columns in enumerate(closings()):
        state, _ = counters.step(state, Update(np.arange(4) + t % 5), noise)
        state, answer = counters.step(state, close(columns), noise)
        assert answer is not None
        for column, value in zip(columns, answer.tolist(), strict=True):
            answers[column].append(value)
    return all(alone(column, noise.drawn[column]) == told for column, told in answers.items())


def alone(column: int, drawn: list[int]) -> list[int]:
    """The answers of this column's own counter; none where it draws more or less than `drawn`."""
    counter = SeparateCounters(1, EPSILON, ADD)
    script = ScriptedNoise([*drawn, *[0] * 10_000])
    state, told = counter.init(script), list[int]()
    for t, columns in enumerate(closings()):
        state, _ = counter.step(state, Update(np.array([column + t % 5])), script)
        if column in columns:
            state, answer = counter.step(state, close((0,)), script)
            assert answer is not None
            told.append(int(answer[0]))
    return told if script.used == len(drawn) else []


def test_each_column_is_its_own_counter_wherever_the_others_stand() -> None:
    assert apart(SeparateCounters)
    numbers = [sum(column in columns for columns in closings()) for column in range(4)]
    assert numbers[0] > 864 > numbers[3] > numbers[2] > 96
    assert numbers[1] > 864


def test_a_query_closes_one_update_of_each_column() -> None:
    """Columns one update apart were taken for one another: the younger one closed twice, its band counted once."""
    counters, noise = SeparateCounters(3, EPSILON, ADD), SeededNoise(1)
    state, closed = counters.init(noise), np.zeros(3, dtype=np.int64)
    for columns in ([0], [0, 1], [0, 1, 2], [1, 2], [0, 1, 2]):
        state, _ = counters.step(state, close(columns), noise)
        closed[columns] += 1
        assert state.updates.tolist() == closed.tolist()


class Twice(SeparateCounters):
    """Broken: as it was, it looks for the columns of an age among those that have just closed."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        if not isinstance(message, CloseQuery):
            return super().step(state, message, noise)
        columns = message.columns
        answer = np.zeros(len(columns), dtype=np.int64)
        for age in sorted(set(state.updates[columns].tolist())):
            alike = state.updates[columns] == age
            state, noisy = self._close(state, columns[alike], age, noise)
            answer[alike] = noisy
        return state, answer


@pytest.mark.parametrize("twin", [BaseOfAll, Twice])
def test_columns_that_mix_are_caught(twin: type[SeparateCounters]) -> None:
    try:
        right = apart(twin)
    except (IndexError, ValueError):
        right = False  # the columns' trees do not fit each other
    assert not right
