"""Quantiles from noisy counts of a tree over values: the tree, a shift of the noise for each event, ranges that hold.

The dense oracle (`oracles.value_tree`) knows which nodes hold an event and the best estimates; what is told is read off
estimates and margins by a reading of the description, in fractions, one quantile at a time, without arrays.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from oracles import value_tree as oracle
from unit.mechanisms.shifted_noise import NoNoise, answers

from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import NotDerivable, RejectedMessage
from stream_dp.mechanisms.checks import LARGEST
from stream_dp.mechanisms.linear.counter import Counter, HybridCounter
from stream_dp.mechanisms.linear.noisy_forest import BLOCK, FLAT, ForestShape, WindowForestState
from stream_dp.mechanisms.linear.pairs import WindowsAndEver
from stream_dp.mechanisms.linear.tree import FRACTION_BITS
from stream_dp.mechanisms.linear.window_forest import WindowForest
from stream_dp.mechanisms.noise_quantiles import Term, laplace_quantile
from stream_dp.mechanisms.quantiles.value_tree import (
    EACH,
    PARTS,
    RUNNING,
    Over,
    SlidingQuantiles,
    ValueLevels,
    ValueTree,
    best_levels,
    rank_margins,
)
from stream_dp.mechanisms.serving import derived
from stream_dp.testing.noise import ScriptedNoise, SeededNoise, ZeroNoise

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
ONE, HALF, HIGH, SURE = Fraction(1), Fraction(1, 2), Fraction(9, 10), Fraction(19, 20)
AT = (Fraction(1, 4), HALF, HIGH)
LEVELS, WIDE = ValueLevels(11, 4), ValueLevels(34, 17)
PAIRS = ForestShape((2,), (HALF, HALF))


# --- levels of nodes over values ------------------------------------------------------------------

SHAPES = [(1, 2), (2, 2), (5, 5), (7, 2), (10, 3), (22, 8)]
SHAPED = pytest.mark.parametrize(("leaves", "arity"), SHAPES)


@SHAPED
def test_an_event_is_counted_in_the_nodes_that_hold_it_one_a_level(leaves: int, arity: int) -> None:
    levels = ValueLevels(leaves, arity)
    counted = np.array([levels.counted(row) for row in np.eye(leaves, dtype=np.int64)]).T
    np.testing.assert_array_equal(counted, oracle.membership(leaves, arity))
    assert levels.nodes == len(counted)
    assert set(counted.sum(axis=0)) == {levels.height}


@SHAPED
def test_estimates_are_the_dense_least_squares(leaves: int, arity: int) -> None:
    """Of wide noise too; and without noise the counts, however large."""
    levels, rng = ValueLevels(leaves, arity), np.random.default_rng(1)
    best = oracle.best(leaves, arity)
    np.testing.assert_allclose(levels.weights, best, atol=1e-4)
    noise = rng.integers(-(1 << 40), 1 << 40, levels.nodes)
    own, more = levels.estimates(noise)
    np.testing.assert_allclose(
        own + more / (1 << FRACTION_BITS), best @ noise, atol=1e-4 * (1 << 40)
    )
    counts = rng.integers(0, 1 << 50, leaves)
    own, more = levels.estimates(levels.counted(counts))
    np.testing.assert_array_equal(own, counts)
    assert not more.any()


@pytest.mark.parametrize(("leaves", "arity"), [(5, 5), (22, 8)])
def test_the_spread_of_ranks_is_that_of_the_dense_estimates(leaves: int, arity: int) -> None:
    through = np.cumsum(oracle.best(leaves, arity), axis=0)
    squares, fourths = ValueLevels(leaves, arity).spread((HALF, Fraction(99, 100)))
    for place, quantile in enumerate((0.5, 0.99)):
        weights = through - quantile * through[-1]
        np.testing.assert_allclose(squares[place], (weights**2).sum(axis=1), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(fourths[place], (weights**4).sum(axis=1), rtol=1e-3, atol=1e-4)


def worst(levels: ValueLevels, quantiles: tuple[float, ...]) -> float:
    """The largest deviation of a rank at epsilon 1, by the dense estimates."""
    through = np.cumsum(oracle.best(levels.leaves, levels.arity), axis=0)
    squares = max(float(((through - q * through[-1]) ** 2).sum(axis=1).max()) for q in quantiles)
    return float(np.sqrt(2 * squares)) * levels.height


@pytest.mark.parametrize(
    ("leaves", "at", "error", "flat"),
    [(22, (HALF,), 3.32, 3.32), (202, (HALF, Fraction(99, 100)), 10.44, 19.9)],
)
def test_the_tree_that_is_taken_is_the_best_and_better_than_the_buckets_alone(
    leaves: int, at: tuple[Fraction, ...], error: float, flat: float
) -> None:
    asked = tuple(map(float, at))
    taken = worst(best_levels(leaves, at), asked)
    assert taken == pytest.approx(error, abs=0.02)
    assert worst(ValueLevels(leaves, leaves), asked) == pytest.approx(flat, abs=0.1)
    for arity in (2, 3, 7, 14, 64):
        assert worst(ValueLevels(leaves, arity), asked) >= 0.99 * taken


def test_what_is_no_tree_is_refused() -> None:
    for leaves, arity in ((0, 2), (4, 1)):
        with pytest.raises(NotDerivable, match="at least one bucket"):
            ValueLevels(leaves, arity)


# --- margins of noisy ranks ------------------------------------------------------------------------

TIMES: list[tuple[Any, ...]] = [
    ((Fraction(10), 1),),
    ((Fraction(1, 3), 5),),
    ((Fraction(20), 3), (Fraction(7), 9)),
    (Term(Fraction(40), 3, 0.4), Term(Fraction(9), 11, 0.8)),
]


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize(("leaves", "arity"), [(5, 5), (202, 24)])
@pytest.mark.parametrize("failure", [0.05 / 3, 0.001])
def test_a_margin_is_the_exact_quantile_of_the_very_sums_and_hardly_more(
    times: tuple[Any, ...], leaves: int, arity: int, failure: float
) -> None:
    levels = ValueLevels(leaves, arity)
    margins = rank_margins(times, *levels.spread((HALF, Fraction(99, 100))), failure)
    through = np.cumsum(levels.weights, axis=0)
    for place, quantile in enumerate((0.5, 0.99)):
        for bucket in sorted({0, leaves // 4, leaves // 2, leaves - 2}):
            weights = np.abs(through[bucket] - quantile * through[-1])
            exact = laplace_quantile(tuple(summed(times, weights)), failure)
            assert exact <= int(margins[place, bucket]) <= 1.06 * exact + 3


def summed(times: tuple[Any, ...], weights: Any) -> list[Term]:
    """The noises of a weighted sum of nodes, each of which has those of `times`."""
    unique = zip(*np.unique(np.round(weights, 5), return_counts=True), strict=True)
    return [
        Term(scale, int(number) * each, float(weight) * (rest[0] if rest else 1.0))
        for weight, number in unique
        if weight
        for scale, each, *rest in times
    ]


def test_a_normal_margin_is_too_narrow_where_one_noise_decides() -> None:
    """The twin: as if every sum of noises were normal."""
    squares, one = np.ones((1, 1)), (Fraction(1_000), 1)
    exact = laplace_quantile((one,), 0.001)
    assert exact <= rank_margins([one], squares, squares, 0.001)[0, 0]
    assert rank_margins([one], squares, 0 * squares, 0.001)[0, 0] < 0.7 * exact


# --- counts of the nodes ---------------------------------------------------------------------------


def forest(
    windows: tuple[int, ...],
    epsilon: Fraction = ONE,
    shape: ForestShape = FLAT,
    levels: ValueLevels = LEVELS,
) -> WindowForest:
    return WindowForest(levels.nodes, epsilon, ADD, windows, shape, levels.height)


def test_nodes_count_whole_numbers_of_any_size() -> None:
    """Up to the largest of a row, but not 16 or 17 times as much: that is 0, or 2^60 again, in 64 bits."""
    tree, noise = ValueTree(WIDE, forest((2,), levels=WIDE)), ZeroNoise()
    for large in ((1 << 53) + 1, LARGEST):
        row = np.zeros(34, dtype=np.int64)
        row[20] = large
        assert answers(tree, noise, [row]).tolist() == [[*row.tolist(), 0, large]]
    for many in (16, 17):
        with pytest.raises(RejectedMessage, match=r"counts from 0 to 2\^60"):
            answers(tree, noise, [[LARGEST] * many + [0] * (34 - many)])


def test_the_band_of_nodes_is_that_of_what_counts_them() -> None:
    counter = Counter(WIDE.nodes, HALF, ADD, 20, WIDE.height)
    over: list[Over] = [
        forest((3, 8), shape=PAIRS, levels=WIDE), counter,
        WindowsAndEver(forest((5, 2), levels=WIDE), counter),
    ]  # fmt: skip
    for counts in over:
        for updates in (1, 7, 9, 20):
            assert ValueTree(WIDE, counts).band(updates, 0.95) == counts.band(updates, 0.95)


class OtherLevels(ValueLevels):
    """Levels of which nothing is proven."""


def test_counts_for_other_rows_or_other_events_are_refused() -> None:
    for wrong in (
        Counter(WIDE.nodes, HALF, ADD, 20, WIDE.height - 1),
        Counter(WIDE.nodes + 1, HALF, ADD, 20, WIDE.height), WindowForest(9, ONE, ADD, (1,), FLAT, 2),
    ):  # fmt: skip
        with pytest.raises(NotDerivable, match="an event is counted in 2 of 36 nodes"):
            ValueTree(WIDE, wrong)
    narrow: Any = ValueTree(ValueLevels(4, 4), WindowForest(4, ONE, ADD, (1, 3), FLAT), 1, 2)
    for row in ([1, 0, 0, 0], [0, 0, -1, 0, 0]):
        with pytest.raises(RejectedMessage):
            narrow.step(narrow.init(ZeroNoise()), Update(np.array(row)), ZeroNoise())
    assert narrow.after_hops(1, 10**9) == narrow.after_hops(1, 10**6) < 10
    tree = ValueTree(OtherLevels(11, 4), forest((1,)))
    for made in (tree, SlidingQuantiles(tree, (HALF,), SURE)):
        with pytest.raises(NotDerivable, match="another class"):
            derived(made, "it")


@dataclass
class OneMore(NoNoise):
    """Noise that is 1 larger in the nodes of `held` at one draw; what that costs is added up."""

    held: IntArray
    draw: int
    seeded: SeededNoise = field(default_factory=lambda: SeededNoise(6))
    draws: int = 0
    cost: Fraction = Fraction(0)

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        self.draws += 1
        drawn = self.seeded.laplace(scale, size)
        if self.draws != self.draw:
            return drawn
        self.cost += int(np.abs(self.held).sum()) / scale
        return drawn + self.held[:size]


def shifted(tree: type[ValueTree], bucket: int, hop: int = 1) -> Fraction:
    """What the shift costs that hides one event of the third tick in the noise: all answers are the same."""
    counts, holds = forest((2, 5), Fraction(2, 3)), np.eye(11, dtype=np.int64)[bucket]
    rows = np.random.default_rng(7).integers(0, 5, (9, 12))
    runs = []
    for moved in (0, 1):
        noise = OneMore(oracle.membership(11, 4) @ holds * moved, 1 + 2 // hop)
        mechanism = SlidingQuantiles(tree(LEVELS, counts, 1, hop), AT, SURE)
        state, told = mechanism.init(noise), []
        for tick, row in enumerate(rows, start=1):
            less = np.append(holds, 0) * (moved if tick == 3 else 0)
            state, _ = mechanism.step(state, Update(row + 1 - less), noise)
            state, answer = mechanism.step(state, Query(), noise)
            assert answer is not None
            told.append((answer.tolist(), state.counts))
        runs.append(told)
    for (first, counted), (second, again) in zip(*runs, strict=True):
        assert first == second, "an answer tells who was there"
        for ring, other in zip(counted.sums, again.sums, strict=True):
            assert np.array_equal(np.concatenate(ring), np.concatenate(other))
    return noise.cost


class NoiseReused(ValueTree):
    """Broken: the nodes above have the noise of the buckets, handed out again."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        return super().step(state, message, Repeated(noise))


@dataclass
class Repeated(NoNoise):
    noise: Any

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        return np.resize(self.noise.laplace(scale, LEVELS.leaves), size)


def test_an_event_is_a_shift_of_its_nodes_that_costs_the_epsilon() -> None:
    for hop in (1, 2, 3):
        assert {shifted(ValueTree, bucket, hop) for bucket in range(11)} == {Fraction(2, 3)}
    with pytest.raises(AssertionError):
        shifted(NoiseReused, 4)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_the_claim_is_derived(relation: Neighbors) -> None:
    counts = WindowForest(LEVELS.nodes, ONE / 3, relation, (4,), FLAT, LEVELS.height)
    mechanism = quantiles(counts)
    claim = Guarantee(PureDP(ONE / 3), relation)
    assert mechanism.guarantee == derived(mechanism, "it").guarantee == claim
    assert counts.scales == (3 * Fraction(LEVELS.height * (1 if relation is ADD else 2)),)


# --- hops of several updates -----------------------------------------------------------------------


OVER_HOPS: list[tuple[Over, tuple[int, ...]]] = [
    (forest((1, 2)), (1, 2)), (forest((4,), shape=PAIRS), (4,)),
    (Counter(LEVELS.nodes, ONE, ADD, 5, LEVELS.height), (99,)),
    (WindowsAndEver(forest((2,)), HybridCounter(LEVELS.nodes, ONE, ADD, LEVELS.height)), (2, 99)),
]  # fmt: skip
HOP = 3


@pytest.mark.parametrize(("counts", "windows"), OVER_HOPS)
def test_nodes_count_the_windows_of_whole_hops_and_change_when_one_ends(
    counts: Over, windows: tuple[int, ...]
) -> None:
    rows = np.random.default_rng(5).integers(0, 99, (17, 12))
    told = answers(ValueTree(LEVELS, counts, 1, HOP), ZeroNoise(), rows)
    holds = oracle.membership(11, 4)
    for tick, nodes in enumerate(told, start=1):
        ended = tick // HOP * HOP
        views = [
            holds @ rows[max(0, ended - HOP * window) : ended, :11].sum(axis=0)
            for window in windows
        ]
        assert nodes.tolist() == np.concatenate(views).tolist()


@pytest.mark.parametrize(("counts", "windows"), OVER_HOPS)
def test_a_hop_has_the_noise_and_the_margins_of_one_update(
    counts: Over, windows: tuple[int, ...]
) -> None:
    """What hops tell is, at their ends, what the same noise tells of the sums of their rows: no draw between."""
    rows = np.random.default_rng(6).integers(0, 9, (5 * HOP + 1, 12))
    sums = rows[: 5 * HOP].reshape(5, HOP, 12).sum(axis=1)
    whole = quantiles(counts)
    over = SlidingQuantiles(ValueTree(LEVELS, counts, 1, HOP), AT, SURE)
    pairs: list[tuple[Any, Any]] = [(over, whole), (over.tree, whole.tree)]
    for made, same in pairs:
        told = answers(made, SeededNoise(9), rows)
        for tick in range(HOP, len(rows) + 1):
            assert np.array_equal(told[tick - 1], told[tick // HOP * HOP - 1])
        assert np.array_equal(told[HOP - 1 :: HOP], answers(same, SeededNoise(9), sums))
    for tick in range(1, len(rows) + 1):
        hops = max(1, tick // HOP)
        for made, same in pairs:
            assert made.band(made.public(tick, None), 0.95) == same.band(hops, 0.95)
            for place in range(len(windows)):
                bands = [
                    each.view_band(place, each.view_public(place, updates, None), 0.95)
                    for each, updates in ((made, tick), (same, hops))
                ]
                assert bands[0] == bands[1]


def test_hops_are_counted_exactly_up_to_the_largest_number_and_forgotten() -> None:
    """A state of hops grows no longer once it holds the window, and has no row that it was given."""
    tree, noise = (
        ValueTree(ValueLevels(3, 3), forest((2,), levels=ValueLevels(3, 3)), 1, 4),
        ZeroNoise(),
    )
    state, sizes = tree.init(noise), []
    for tick in range(1, 400):
        row = np.array([LARGEST, 1, 0, 9], dtype=np.int64)
        state, _ = tree.step(state, Update(row), noise)
        row[:] = 0
        assert (state.open is None) == (tick % 4 == 0)
        if state.open is not None:
            assert state.open.tolist() == [LARGEST, tick % 4, 0]
        if tick % 4 == 0:
            answer = tree.step(state, Query(), noise)[1]
            assert answer is not None
            assert answer.tolist() == [min(2, tick // 4) * LARGEST, 4 * min(2, tick // 4), 0]
            assert isinstance(state.counts, WindowForestState)
            sizes.append(sum(len(block) for block in state.counts.sums[0]))
    assert max(sizes) <= 2 * BLOCK + 3


def test_a_hop_of_no_update_is_refused() -> None:
    with pytest.raises(NotDerivable, match="a hop must be at least one update long, not 0"):
        ValueTree(LEVELS, forest((2,)), 1, 0)


# --- what is told of quantiles ------------------------------------------------------------------------


def quantiles(counts: Over, at: Sequence[Fraction] = AT) -> SlidingQuantiles:
    return SlidingQuantiles(ValueTree(LEVELS, counts, 1), tuple(at), SURE)


ENDLESS = HybridCounter(LEVELS.nodes, ONE, ADD, LEVELS.height)
WHOLE: list[tuple[Over, tuple[int, ...]]] = [
    (forest((3, 8)), (3, 8)),
    (forest((5,), shape=PAIRS), (5,)),
    (Counter(LEVELS.nodes, ONE, ADD, 20, LEVELS.height), (99,)),
    (WindowsAndEver(forest((3,)), ENDLESS), (3, 99)),
]


@pytest.mark.parametrize(("counts", "windows"), WHOLE)
def test_without_noise_the_buckets_are_those_of_the_quantiles(
    counts: Over, windows: tuple[int, ...]
) -> None:
    """At every tick and for each window; inside a bucket in proportion to the rank."""
    rows = np.random.default_rng(3).integers(0, 9, (14, 12))
    told = answers(quantiles(counts), ZeroNoise(), rows).reshape(14, len(windows), len(AT), EACH)
    for tick, views in enumerate(told.tolist(), start=1):
        for window, view in zip(windows, views, strict=True):
            held = rows[max(0, tick - window) : tick, :11].sum(axis=0).tolist()
            for quantile, (place, below, above) in zip(AT, view, strict=True):
                right = list(oracle.true_buckets(held, quantile))
                assert place // PARTS in right
                assert below <= right[0]
                assert right[-1] <= 10 - above
                if len(right) == 1:
                    inside = (quantile * sum(held) - sum(held[: right[0]])) / held[right[0]]
                    assert place % PARTS == min(int(inside * PARTS), PARTS - 1)


def test_nothing_that_came_rules_nothing_out_and_many_events_leave_the_bucket_alone() -> None:
    rows = np.repeat([0, 10, 10**5], 3)[:, None] + np.zeros(12, dtype=np.int64)
    told = answers(quantiles(forest((3,), ONE / 50)), SeededNoise(4), rows).reshape(
        9, len(AT), EACH
    )
    assert not told[0, :, 1:].any()
    for places, below, above in told.transpose(0, 2, 1)[2::3]:
        assert (np.diff(places) >= 0).all()
        assert (below <= places // PARTS).all()
        assert (places // PARTS <= 10 - above).all()
    assert (10 - above - below).tolist() == [0, 0, 0]


def test_what_is_told_so_far_has_the_margins_of_what_it_is_made_of() -> None:
    """First of the longest window, and then of the counter: the noise of its nodes, and no wider bands."""
    counts = WindowsAndEver(forest((3, 8)), ENDLESS)
    both, windows, so_far = quantiles(counts), quantiles(counts.forest), quantiles(ENDLESS)
    assert 0 < counts.covered < 12
    for updates in range(1, 13):
        alone, place = (windows, 1) if updates <= counts.covered else (so_far, 0)
        assert both.view_band(2, updates, 0.95) == alone.view_band(place, updates, 0.95)


def test_no_quantiles_and_no_confidence_are_refused() -> None:
    for at, sure in (((), SURE), (AT, ONE), (AT, Fraction(0))):
        with pytest.raises(NotDerivable, match="at least one share"):
            SlidingQuantiles(ValueTree(LEVELS, forest((1,)), 1), at, sure)


def test_one_bucket_holds_everything() -> None:
    tree = ValueTree(ValueLevels(1, 2), WindowForest(1, ONE, ADD, (2,), FLAT), 1)
    told = answers(SlidingQuantiles(tree, (HALF,), SURE), SeededNoise(8), [[9, 0]])
    assert told[0, 1:].tolist() == [0, 0]


def reading(
    counts: Sequence[Fraction], at: Sequence[Fraction], margins: Sequence[Sequence[int]]
) -> list[tuple[int, int, int]]:
    """Of each quantile its bucket, and how many buckets below and above are ruled out."""
    through, last, told = list(accumulate(counts)), len(counts) - 1, []
    lowest = 0
    for share, margin in zip(at, margins, strict=True):
        ends = [rank - share * through[-1] for rank in through]
        sums = list(accumulate(ends, initial=Fraction(0)))[:-1]
        lowest = bucket = max(lowest, sums.index(min(sums)))
        low = next((b for b in range(last) if ends[b] >= -margin[b]), last)
        high = next((b for b in range(last, 0, -1) if ends[b - 1] <= margin[b - 1]), 0)
        told.append((bucket, min(low, bucket), last - max(high, bucket)))
    return told


EPSILON, TICKS = Fraction(1, 50), 10
NOISY = forest((2, 6), EPSILON)
COUNTER = Counter(LEVELS.nodes, EPSILON / 5, ADD, TICKS, LEVELS.height)


def terms_of(counts: Over, updates: int) -> list[list[Any]]:
    windows = [[(LEVELS.height / EPSILON, min(updates, each))] for each in NOISY.windows]
    if isinstance(counts, WindowForest):
        return list(windows)
    so_far = [(scale, number) for scale, number, *_ in COUNTER.noise_terms(updates)]
    if not isinstance(counts, WindowsAndEver):
        return [so_far]
    return [*windows, windows[-1] if updates <= counts.covered else so_far]


@pytest.mark.parametrize("counts", [NOISY, COUNTER, WindowsAndEver(NOISY, COUNTER)])
def test_what_is_told_is_read_off_the_estimates_and_the_margins_of_the_tick(counts: Over) -> None:
    """Little data in much noise, with totals below 0, and more of it from run to run; every answer is the oracle's."""
    tree = ValueTree(LEVELS, counts)
    mechanism, moved = SlidingQuantiles(tree, AT, SURE), 0
    for run in range(0, 12, 2):
        rows = np.random.default_rng(run).integers(0, 1 + 120 * run, (TICKS, LEVELS.leaves))
        told = answers(mechanism, SeededNoise(run), rows)
        nodes = answers(tree, SeededNoise(run), rows)
        for updates in range(1, TICKS + 1):
            terms = terms_of(counts, updates)
            seen = told[updates - 1].reshape(len(terms), len(AT), EACH).tolist()
            views = nodes[updates - 1].reshape(len(terms), LEVELS.nodes)
            for place, (noises, view) in enumerate(zip(terms, views, strict=True)):
                failure = float(1 - SURE) / len(AT)
                margins = rank_margins(noises, *LEVELS.spread(AT), failure).tolist()
                own, more = (part.tolist() for part in LEVELS.estimates(view))
                best = [a + Fraction(b, 1 << FRACTION_BITS) for a, b in zip(own, more, strict=True)]
                right = reading(best, AT, margins)
                assert [(p // PARTS, low, high) for p, low, high in seen[place]] == right
                alone = [reading(best, (q,), (m,))[0] for q, m in zip(AT, margins, strict=True)]
                moved += right != alone
                band = mechanism.view_band(place, tree.view_public(place, updates), float(SURE))
                assert band - 1 < RUNNING * max(map(max, margins)) <= band
    assert moved, "no quantile was held back by the one before"


def single(
    row: Sequence[int],
    at: Sequence[Fraction] = (HALF,),
    noise: Any = None,
    epsilon: Fraction = EPSILON,
) -> list[tuple[int, int, int]]:
    counts = WindowForest(5, epsilon, ADD, (1,), FLAT)
    mechanism = SlidingQuantiles(ValueTree(ValueLevels(5, 5), counts), tuple(at), SURE)
    told = answers(mechanism, noise or ZeroNoise(), [row]).reshape(len(at), EACH)
    return [(place, low, high) for place, low, high in told.tolist()]


def test_a_rank_at_its_margin_rules_nothing_out_and_one_beyond_does() -> None:
    """The noise may be as large as its margin; the median of events in the first and in the last bucket."""
    spread = ValueLevels(5, 5).spread((HALF,))
    (margin,) = set(rank_margins([(1 / EPSILON, 1)], *spread, float(1 - SURE))[0].tolist())
    for beyond in (0, 1):
        row = [7, 0, 0, 0, 7 + 2 * (margin + beyond)]
        ((place, low, high),) = single(row)
        assert (place // PARTS, low, high) == (4, 4 * beyond, 0)
        ((place, low, high),) = single(row[::-1])
        assert (place // PARTS, low, high) == (0, 0, 4 * beyond)


def test_where_all_counts_are_far_below_nothing_quantiles_keep_their_order() -> None:
    """The last bucket ends all events, whatever the noise says of their number; ranks are in the wrong order."""
    few, far = Fraction(1, 100), [-(10**6)] * 5
    ((place, low, high),) = single([0] * 5, (few,), ScriptedNoise(far))
    assert (place // PARTS, low, high) == (4, 4, 0)
    told = single([0] * 5, (Fraction(1, 4), HIGH), ScriptedNoise(far))
    assert [(place // PARTS, low, high) for place, low, high in told] == [(4, 0, 0)] * 2


def test_ranks_and_margins_beyond_64_bits_are_compared_as_they_are() -> None:
    """Ranks are up to 1,000 times as large as counts, in fixed point."""
    half, most = 1 << 57, (Fraction(999, 1000),)
    for row, bucket in (([0, half, 0, half + 1, 0], 3), ([0, half + 1, 0, half, 0], 1)):
        assert single(row)[0][0] // PARTS == bucket
    assert single([0, half, 0, 0, 1], most)[0][0] // PARTS == 1
    assert single([0, 9, 0, 1, 0], most, epsilon=Fraction(1, 10**11))[0][1:] == (0, 0)


@pytest.mark.parametrize(
    ("row", "quantile", "place"),
    [
        ((0, 10, 0, 30, 0), HALF, 333), ((0, 20, 0, 20, 0), HALF, 150), ((40, 0, 0, 0, 0), HALF, 50),
        ((30, 0, 10, 0, 0), HALF, 66), ((30, 10, 0, 0, 0), HALF / 5, 13),
    ],
)  # fmt: skip
def test_a_place_inside_a_bucket_is_in_proportion_and_the_middle_where_the_rank_ends(
    row: Sequence[int], quantile: Fraction, place: int
) -> None:
    assert single(list(row), (quantile,))[0][0] == place
