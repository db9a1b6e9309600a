"""Tumbling quantiles: exact laws equal the oracles', the worst exact loss is below the claim and tends to it.

No statistics: all noise of the real mechanism is enumerated, or summed in closed form with the scales that the real
mechanism draws with.
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
    histograms,
    joint_losses,
    noisy_maximum,
    rank_losses,
    worst_ratio,
)
from statistical.attack import Attack
from unit.mechanisms import broken_quantiles as broken

from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.quantiles.bucket_windows import TumblingQuantiles, _tuples

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


PAIRS = [(THIRD, 2 * THIRD), (HALF, HIGH), (Fraction(1, 4), HALF)]


def neighbours(buckets: int, top: int, relation: Neighbors) -> list[tuple[Counts, Counts]]:
    """All pairs of histograms: one event comes, or one of an update moves as well."""
    pairs = []
    for counts in histograms(buckets, range(top)):
        more = added(counts)
        pairs += [(counts, other) for other in more]
        pairs += [*itertools.combinations(more, 2)] if relation is REPLACE else []
    return pairs


def tuple_losses(mechanism: TumblingQuantiles, counts: Counts) -> list[int]:
    """The losses of all tuples, by the mechanism's own code."""
    moves = mechanism.moves(mechanism.at)
    own = [
        mechanism._losses(np.array(counts), q, moves // mechanism.sensitivity(q))
        for q in mechanism.at
    ]
    return [int(x) for x in mechanism._largest(own, _tuples(len(counts), len(mechanism.at)))]


def farthest_move(mechanism: TumblingQuantiles, top: int) -> Fraction:
    """The most by which neighbours differ in the loss of a tuple, as a part of what the noise is made for."""
    made_for = mechanism.scale(*mechanism.at) * mechanism.choice_epsilon / 2
    moved = 0
    for x, y in neighbours(mechanism.buckets, top, mechanism.neighbors):
        pairs = zip(tuple_losses(mechanism, x), tuple_losses(mechanism, y), strict=True)
        moved = max(moved, *(abs(a - b) for a, b in pairs))
    return moved / made_for


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("at", PAIRS)
def test_what_is_chosen_together_loses_no_more_than_the_claim(
    at: tuple[Fraction, ...], relation: Neighbors
) -> None:
    """All neighbours of three buckets, exactly: the losses are the oracle's, they move as said, and so do the laws."""
    mechanism, a = TumblingQuantiles(3, ONE, relation, (1,), at, 0, True), Fraction(1, 2)
    moved, unit = [mechanism.sensitivity(q) for q in at], mechanism.moves(at)
    laws: dict[Counts, Law] = {}
    for counts in histograms(3, range(4)):
        losses = joint_losses(counts, at, moved, unit)
        assert list(losses.values()) == tuple_losses(mechanism, counts)
        assert min(losses.values()) == 0
        laws[counts] = noisy_maximum(list(losses.values()), a)
    assert farthest_move(mechanism, 3) == 1
    pairs = [(laws[x], laws[y]) for x, y in neighbours(3, 3, relation)]
    assert worst_ratio(pairs) <= a ** (-2 * unit)


@pytest.mark.parametrize(
    ("twin", "at"),
    [(broken.LossesAdded, PAIRS[0]), (broken.SmallestMove, PAIRS[1]), (broken.OneSided, PAIRS[2])],
)
def test_losses_that_move_by_more_than_the_noise_is_made_for_are_caught(
    twin: type[TumblingQuantiles], at: tuple[Fraction, ...]
) -> None:
    assert farthest_move(twin(3, ONE, ADD, (1,), at, 0, True), 3) > 1


def test_tuples_lose_three_quarters_of_the_claim_and_a_twin_with_half_the_noise_more_than_it() -> (
    None
):
    lost = []
    for kind in (TumblingQuantiles, broken.OneSided):
        mechanism = kind(4, Fraction(12), ADD, (1,), PAIRS[0], 0, True)
        a = decay(float(1 / mechanism.scale(*mechanism.at)))
        laws = [noisy_maximum(tuple_losses(mechanism, c), a) for c in ((2, 0, 4, 0), (2, 0, 4, 1))]
        lost.append(math.log(worst_ratio([(laws[0], laws[1])])) / 12)
    assert 0.74 < lost[0] <= 1 < 1.4 < lost[1]


@pytest.mark.parametrize(("relation", "at"), [(ADD, PAIRS[0]), (REPLACE, PAIRS[1])])
def test_the_real_choice_of_two_has_the_oracles_law(
    relation: Neighbors, at: tuple[Fraction, ...]
) -> None:
    """Windows of two ticks, a fourth entry that holds no value; at a scale of 1/3, so that few noises are likely."""
    rows = ((0, 1, 0, 7), (2, 0, 1, 7))
    moves = TumblingQuantiles(4, ONE, relation, (2,), at, 1, True).moves(at)
    make = partial(TumblingQuantiles, 4, Fraction(6 * moves), relation, (2,), at, 1, True)
    mechanism = make()
    law = Attack(make, mass=1e-4).law(rows)
    losses = joint_losses(
        (2, 1, 1), at, [mechanism.sensitivity(q) for q in at], mechanism.moves(at)
    )
    exact = noisy_maximum(list(losses.values()), decay(float(1 / mechanism.scale(*at))))
    for told, chance in zip(losses, exact, strict=True):
        low, high = law.bounds((None, (-1, -1), None, told))
        assert low - 1e-12 <= float(chance) <= high + 1e-12
    assert law.missing < 0.02


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
