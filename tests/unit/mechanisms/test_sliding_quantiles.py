"""Quantiles from noisy counts: right without noise, a shift of the noise for each event, and ranges that hold."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pytest
from oracles import value_tree as oracle
from unit.mechanisms import broken_value_trees as broken

from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.linear.counter import Counter, HybridCounter
from stream_dp.mechanisms.linear.noisy_forest import FLAT, ForestShape
from stream_dp.mechanisms.linear.window_forest import WindowForest
from stream_dp.mechanisms.linear.windows_and_ever import WindowsAndEver
from stream_dp.mechanisms.quantiles.sliding_quantiles import EACH, PARTS, SlidingQuantiles
from stream_dp.mechanisms.quantiles.value_tree import Over, ValueLevels, ValueTree
from stream_dp.mechanisms.serving import derived
from stream_dp.testing.noise import SeededNoise, ZeroNoise

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
ONE, HALF, HIGH = Fraction(1), Fraction(1, 2), Fraction(9, 10)
AT, SURE = (Fraction(1, 4), HALF, HIGH), Fraction(19, 20)
LEVELS = ValueLevels(11, 4)
PAIRS = ForestShape((2,), (HALF, HALF))


def made(
    counts: Over, levels: ValueLevels = LEVELS, at: Sequence[Fraction] = AT
) -> SlidingQuantiles:
    """Quantiles with an entry that has no value."""
    return SlidingQuantiles(ValueTree(levels, counts, 1), tuple(at), SURE)


def forest(
    windows: tuple[int, ...], epsilon: Fraction = ONE, shape: ForestShape = FLAT
) -> WindowForest:
    """Counts of the nodes over windows."""
    return WindowForest(LEVELS.nodes, epsilon, ADD, windows, shape, LEVELS.height)


COUNTER = Counter(LEVELS.nodes, ONE, ADD, 20, LEVELS.height)
ENDLESS = HybridCounter(LEVELS.nodes, ONE, ADD, LEVELS.height)
WHOLE: list[tuple[Over, tuple[int, ...]]] = [
    (forest((3, 8)), (3, 8)),
    (forest((5,), shape=PAIRS), (5,)),
    (COUNTER, (99,)),
    (ENDLESS, (99,)),
    (WindowsAndEver(forest((3,)), ENDLESS), (3, 99)),
]


@pytest.mark.parametrize(("counts", "windows"), WHOLE)
def test_without_noise_the_buckets_are_those_of_the_quantiles(
    counts: Over, windows: tuple[int, ...]
) -> None:
    """At every tick and for each window; inside a bucket in proportion to the rank."""
    mechanism, noise = made(counts), ZeroNoise()
    state, rows = mechanism.init(noise), np.random.default_rng(3).integers(0, 9, (14, 12))
    for tick, row in enumerate(rows, start=1):
        state, _ = mechanism.step(state, Update(row), noise)
        _, answer = mechanism.step(state, Query(), noise)
        assert answer is not None
        told = answer.reshape(len(windows), len(AT), EACH).tolist()
        for window, view in zip(windows, told, strict=True):
            held = rows[max(0, tick - window) : tick, :11].sum(axis=0).tolist()
            for quantile, (place, below, above) in zip(AT, view, strict=True):
                right = list(oracle.true_buckets(held, quantile))
                assert place // PARTS in right
                assert below <= right[0]
                assert right[-1] <= 10 - above
                if len(right) == 1:
                    inside = (quantile * sum(held) - sum(held[: right[0]])) / held[right[0]]
                    assert place % PARTS == min(int(inside * PARTS), PARTS - 1)


def test_nothing_that_came_rules_nothing_out() -> None:
    mechanism, noise = made(forest((3,))), SeededNoise(2)
    state, _ = mechanism.step(mechanism.init(noise), Update(np.zeros(12, dtype=np.int64)), noise)
    _, answer = mechanism.step(state, Query(), noise)
    assert answer is not None
    _, below, above = answer.reshape(len(AT), EACH).T.tolist()
    assert below == above == [0] * len(AT)


def test_many_events_leave_the_bucket_alone_and_quantiles_keep_their_order() -> None:
    mechanism, noise = made(forest((3,), Fraction(1, 50))), SeededNoise(4)
    state = mechanism.init(noise)
    for many in (0, 10, 10**5):
        for _ in range(3):
            row = np.full(12, many, dtype=np.int64)
            state, _ = mechanism.step(state, Update(row), noise)
        _, answer = mechanism.step(state, Query(), noise)
        assert answer is not None
        places, below, above = answer.reshape(len(AT), EACH).T
        assert (np.diff(places) >= 0).all()
        assert (below <= places // PARTS).all()
        assert (places // PARTS <= 10 - above).all()
    assert (10 - above - below).tolist() == [0, 0, 0]


@dataclass(slots=True)
class OneMore:
    """Noise that is 1 larger in the nodes of `held` at one draw; what that costs is added up."""

    held: IntArray
    draw: int
    seeded: SeededNoise = field(default_factory=lambda: SeededNoise(6))
    draws: int = 0
    cost: Fraction = Fraction(0)

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """As the seed has it, shifted once."""
        self.draws += 1
        found = self.seeded.laplace(scale, size)
        if self.draws != self.draw:
            return found
        self.cost += int(np.abs(self.held).sum()) / scale
        return found + self.held[:size]

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        """Not drawn."""
        raise NotImplementedError

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        """Nor this."""
        raise NotImplementedError


def shifted(tree: type[ValueTree], bucket: int) -> Fraction:
    """What the shift costs that hides one event of the third tick in the noise: all answers are the same."""
    counts = forest((2, 5), Fraction(2, 3))
    holds = np.eye(11, dtype=np.int64)[bucket]
    rows = np.random.default_rng(7).integers(0, 5, (9, 12))
    runs = []
    for moved in (0, 1):
        held = oracle.membership(11, 4) @ holds * moved
        noise = OneMore(held, 3)
        mechanism = SlidingQuantiles(tree(LEVELS, counts, 1), AT, SURE)
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


@pytest.mark.parametrize("bucket", range(11))
def test_an_event_is_a_shift_of_its_nodes_that_costs_the_epsilon(bucket: int) -> None:
    assert shifted(ValueTree, bucket) == Fraction(2, 3)


def test_noise_that_is_used_twice_is_caught_by_the_shift() -> None:
    with pytest.raises(AssertionError):
        shifted(broken.NoiseReused, 4)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_the_claim_is_derived(relation: Neighbors) -> None:
    claim = Guarantee(PureDP(Fraction(1, 3)), relation)
    counts = WindowForest(LEVELS.nodes, Fraction(1, 3), relation, (4,), FLAT, LEVELS.height)
    mechanism = made(counts)
    assert mechanism.guarantee == derived(mechanism, "it").guarantee == claim
    both = LEVELS.height * (1 if relation is ADD else 2)
    assert counts.scales == (3 * Fraction(both),)


def test_counts_for_other_rows_or_other_events_are_refused() -> None:
    for wrong in (WindowForest(9, ONE, ADD, (1,), FLAT, 2), Counter(14, ONE, ADD, 9)):
        with pytest.raises(NotDerivable, match="an event is counted in 2 of 14 nodes"):
            ValueTree(LEVELS, wrong)
    twin = broken.LevelsForgotten(LEVELS, Counter(14, ONE, ADD, 9))
    with pytest.raises(NotDerivable, match="not proven of a subclass"):
        derived(twin, "it")
    with pytest.raises(NotDerivable, match="another class"):
        derived(ValueTree(broken.CountedTwice(11, 4), forest((1,))), "it")


def test_no_quantiles_and_no_confidence_are_refused() -> None:
    for at, sure in (((), SURE), (AT, ONE), (AT, Fraction(0))):
        with pytest.raises(NotDerivable, match="one share or more"):
            SlidingQuantiles(ValueTree(LEVELS, forest((1,)), 1), at, sure)


def test_one_bucket_holds_everything() -> None:
    levels = ValueLevels(1, 2)
    mechanism = made(WindowForest(1, ONE, ADD, (2,), FLAT), levels, (HALF,))
    noise = SeededNoise(8)
    state, _ = mechanism.step(mechanism.init(noise), Update(np.array([9, 0])), noise)
    _, answer = mechanism.step(state, Query(), noise)
    assert answer is not None
    assert answer.tolist()[1:] == [0, 0]


def test_counts_beyond_64_bits_of_ranks_are_compared_as_they_are() -> None:
    """Ranks are 1,000 times as large as counts, in fixed point."""
    at = (Fraction(999, 1000),)
    mechanism, noise = made(forest((2,)), at=at), ZeroNoise()
    row = np.zeros(12, dtype=np.int64)
    row[[2, 7]] = 1 << 57, 1
    state, _ = mechanism.step(mechanism.init(noise), Update(row), noise)
    _, answer = mechanism.step(state, Query(), noise)
    assert answer is not None
    assert answer[0] // PARTS == 2


def test_what_is_told_so_far_has_the_margins_of_what_it_is_made_of() -> None:
    """First of the longest window, and then of the counter: the noise of its nodes, and no wider bands."""
    counts = WindowsAndEver(forest((3, 8)), ENDLESS)
    quantiles = made(counts)
    assert 0 < counts.covered < 12
    for updates in range(1, 13):
        alone = made(forest((3, 8)) if updates <= counts.covered else ENDLESS)
        place = 1 if updates <= counts.covered else 0
        assert quantiles.view_band(2, updates, 0.95) == alone.view_band(place, updates, 0.95)
