"""Tumbling quantiles: exact laws equal the oracles', the worst exact loss is below the claim and tends to it.

No statistics but in the last test, which says its error probability: all noise of the real mechanism is enumerated, or
summed in closed form with the scales that the real mechanism draws with.
"""

import itertools
import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from oracles.exact import decay
from oracles.noisy_maximum import (
    Counts,
    Law,
    added,
    exponential,
    histograms,
    noisy_maximum,
    permute_and_flip,
    rank_losses,
    worst_ratio,
)
from statistical.attack import Attack
from unit.mechanisms import broken_quantiles as broken

from stream_dp.core.mechanism import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.quantiles.tumbling_quantiles import TumblingQuantiles
from stream_dp.testing.noise import SeededNoise

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
HALF, THIRD, HIGH = Fraction(1, 2), Fraction(1, 3), Fraction(9, 10)
ONE = Fraction(1)


def lopsided(quantile: Fraction, relation: Neighbors, buckets: int = 24) -> tuple[Counts, Counts]:
    """Neighbours that bring many empty buckets nearer by the sensitivity and the last one farther away by it.

    For quantiles 1/s. The event comes into the first bucket, or into it from the last one.
    """
    s, below, empty = quantile.denominator, 10, (0,) * (buckets - 3)
    if relation is ADD:
        above = (s - 1) * (below + 1) - 1
        return (below, *empty, 1, above), (below + 1, *empty, 1, above)
    above = (s - 1) * below - 1
    return (below - 1, *empty, 1, above + 1), (below, *empty, 1, above)


def loss(mechanism: TumblingQuantiles, pair: tuple[Counts, Counts]) -> float:
    """The exact loss of one choice of the first quantile, with the scale that the mechanism draws with."""
    (quantile, *_) = mechanism.at
    a = decay(float(1 / mechanism.scale(quantile)))
    laws = [noisy_maximum(rank_losses(counts, quantile), a) for counts in pair]
    return math.log(worst_ratio([(laws[0], laws[1])]))


@pytest.mark.parametrize("quantile", [HALF, THIRD, HIGH])
def test_no_small_neighbours_lose_more_than_the_claim(quantile: Fraction) -> None:
    """Every histogram of three and of four buckets, exactly: e^eps = a^(-2 sensitivity)."""
    a = Fraction(1, 2)
    for buckets, top in ((3, 3), (4, 2)):
        every = histograms(buckets, range(top + 2))
        law: dict[Counts, Law] = {
            counts: noisy_maximum(rank_losses(counts, quantile), a) for counts in every
        }
        comes, moves = [], []
        for counts in histograms(buckets, range(top)):
            more = added(counts)
            comes += [(law[counts], law[other]) for other in more]
            moves += [(law[x], law[y]) for x, y in itertools.combinations(more, 2)]
        for pairs, relation in ((comes, ADD), (comes + moves, REPLACE)):
            mechanism = TumblingQuantiles(buckets, ONE, relation, (1,), (quantile,))
            most = a ** (-2 * mechanism.sensitivity(quantile))
            assert worst_ratio(pairs) <= most


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("quantile", [HALF, THIRD])
def test_many_buckets_lose_nearly_all_of_the_claim(quantile: Fraction, relation: Neighbors) -> None:
    """And so the twins, with half the noise or a sensitivity that is too small, lose more than it."""
    pair = lopsided(quantile, relation)
    arguments = (24, Fraction(3), relation, (1,), (quantile,))
    assert 0.85 * 3 < loss(TumblingQuantiles(*arguments), pair) <= 3
    assert loss(broken.OneSided(*arguments), pair) > 1.2 * 3
    if relation is REPLACE:
        assert loss(broken.ReplaceForgotten(*arguments), pair) > 1.2 * 3


def test_weights_in_floating_point_lose_everything() -> None:
    """The exponential mechanism with weights e^(-loss / scale) as floats: what underflows is told apart for sure."""

    def weights(counts: Counts) -> list[float]:
        return [math.exp(-each / 2) for each in rank_losses(counts, HALF)]

    far, farther = weights((1490, 0, 0)), weights((1491, 0, 0))
    assert far[2] > 0 == farther[2]
    exact = exponential(rank_losses((1491, 0, 0), HALF), decay(0.5))
    assert exact[2] > 0


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("rows", [((0, 1, 0), (2, 0, 1)), ((0, 0, 0), (0, 0, 0)), ((3, 0, 1),) * 2])
def test_the_real_choice_has_the_oracles_law(
    relation: Neighbors, rows: tuple[Counts, Counts]
) -> None:
    """Windows of two ticks, a fourth entry that holds no value; the second answer is that of both rows."""
    epsilon = Fraction(4)
    make = partial(TumblingQuantiles, 4, epsilon, relation, (2,), (THIRD,), 1)
    law = Attack(make, mass=1e-5).law(tuple((*row, 7) for row in rows))
    counts = tuple(map(sum, zip(*rows, strict=True)))
    expected = noisy_maximum(rank_losses(counts, THIRD), decay(float(1 / make().scale(THIRD))))
    for bucket, chance in enumerate(expected):
        low, high = law.bounds((None, (-1,), None, (bucket,)))
        assert low - 1e-12 <= float(chance) <= high + 1e-12
    assert law.missing < 1e-4


def test_two_quantiles_are_chosen_apart_and_told_in_order() -> None:
    at = (THIRD, HALF)
    mechanism = TumblingQuantiles(2, Fraction(16), ADD, (1,), at)
    law = Attack(lambda: mechanism, mass=1e-4).law(((2, 1),))
    low_law, high_law = (
        noisy_maximum(rank_losses((2, 1), q), decay(float(1 / mechanism.scale(q)))) for q in at
    )
    for told in ((0, 0), (0, 1), (1, 1)):
        expected = sum(low_law[i] * high_law[j] for i, j in {told, told[::-1]})
        low, high = law.bounds((None, told))
        assert low - 1e-12 <= float(expected) <= high + 1e-12


@pytest.mark.parametrize("quantile", [HALF, THIRD, HIGH])
def test_a_choice_is_as_good_as_permute_and_flip(quantile: Fraction) -> None:
    """The rank error to expect differs by less than 1/s of an event, and is below the exponential mechanism's."""
    a = decay(0.05)
    for counts in ((4, 0, 2, 1, 3), (0, 0, 9, 0, 0), (1, 1, 1, 1, 1), (20, 0, 0, 0, 1)):
        losses = rank_losses(counts, quantile)

        def mean(law: Law, losses: tuple[int, ...] = losses) -> Fraction:
            return sum((p * x for p, x in zip(law, losses, strict=True)), Fraction(0))

        found = mean(noisy_maximum(losses, a))
        assert abs(found - mean(permute_and_flip(losses, a))) < 1
        assert found <= mean(exponential(losses, a)) + 1


def test_the_sampler_draws_the_closed_form() -> None:
    """4,000 windows of the product's own noise against the exact law, five cells.

    Each cell is off by more than 5 standard deviations with chance below 6e-7 (and a little for the binomial), the test
    fails by chance once in 200,000; that of the twin is off by tens of them.
    """
    counts, windows = (3, 0, 2, 1, 4), 4_000
    row = np.array(counts, dtype=np.int64)

    def off(kind: type[TumblingQuantiles]) -> float:
        mechanism = kind(5, Fraction(1, 2), ADD, (1,), (HIGH,))
        right = TumblingQuantiles(5, Fraction(1, 2), ADD, (1,), (HIGH,))
        law = noisy_maximum(rank_losses(counts, HIGH), decay(float(1 / right.scale(HIGH))))
        noise, found = SeededNoise(20), np.zeros(5)
        state = mechanism.init(noise)
        for _ in range(windows):
            state, _ = mechanism.step(state, Update(row), noise)
            _, answer = mechanism.step(state, Query(), noise)
            assert answer is not None
            found[answer[0]] += 1
        spread = [math.sqrt(windows * p * (1 - p)) for p in law]
        return max(abs(n - windows * p) / s for n, p, s in zip(found, law, spread, strict=True))

    assert off(TumblingQuantiles) < 5 < 20 < off(broken.SensitivityForgotten)
