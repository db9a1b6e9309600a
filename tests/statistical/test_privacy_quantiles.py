"""Tumbling quantiles: exact laws equal the oracles', the worst exact loss is below the claim and tends to it.

No statistics: all noise of the real mechanism is enumerated, or summed in closed form with the scales that the real
mechanism draws with.
"""

import itertools
import math
from fractions import Fraction
from functools import partial

import pytest
from oracles.exact import decay
from oracles.noisy_maximum import (
    Counts,
    Law,
    added,
    histograms,
    noisy_maximum,
    rank_losses,
    worst_ratio,
)
from statistical.attack import Attack
from unit.mechanisms import broken_quantiles as broken

from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.quantiles.tumbling_quantiles import TumblingQuantiles

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
