"""The closed forms of noisy choices: they add up, agree with a sum over the noise, and know what is known of them."""

import itertools
from fractions import Fraction

import pytest
from oracles.noisy_maximum import (
    added,
    exponential,
    histograms,
    noisy_maximum,
    permute_and_flip,
    rank_losses,
    worst_ratio,
)

HALF, THIRD = Fraction(1, 2), Fraction(1, 3)
LOSSES = [(0,), (0, 0), (0, 3), (2, 0, 1), (5, 5, 5), (4, 0, 0, 7)]


@pytest.mark.parametrize("losses", LOSSES)
@pytest.mark.parametrize("law", [noisy_maximum, permute_and_flip, exponential])
def test_every_law_adds_up_to_one(law: object, losses: tuple[int, ...]) -> None:
    assert callable(law)
    assert sum(law(losses, THIRD)) == 1


@pytest.mark.parametrize("losses", LOSSES[:4])
def test_the_noisy_maximum_is_the_sum_over_all_noise(losses: tuple[int, ...]) -> None:
    """All noise below 16; what is beyond has less mass than `slack`."""
    top, found = 16, [Fraction(0)] * len(losses)
    masses = [(1 - HALF) * HALF**z for z in range(top)]
    for draws in itertools.product(range(top), repeat=len(losses)):
        scores = [z - loss for z, loss in zip(draws, losses, strict=True)]
        chance = Fraction(1)
        for z in draws:
            chance *= masses[z]
        found[scores.index(max(scores))] += chance
    slack = len(losses) * HALF**top
    for low, exact in zip(found, noisy_maximum(losses, HALF), strict=True):
        assert low <= exact <= low + slack


@pytest.mark.parametrize("losses", LOSSES[:4])
def test_permute_and_flip_is_the_first_accepted_in_a_uniform_order(losses: tuple[int, ...]) -> None:
    """The algorithm as published: every order, every flip."""
    found, orders = [Fraction(0)] * len(losses), list(itertools.permutations(range(len(losses))))
    for order in orders:
        left = Fraction(1, len(orders))
        for i in order:
            accepted = HALF ** (losses[i] - min(losses))
            found[i] += left * accepted
            left *= 1 - accepted
    assert tuple(found) == permute_and_flip(losses, HALF)


def test_finer_losses_bring_the_noisy_maximum_to_permute_and_flip() -> None:
    """The whole part of exponential noise: read to 1/f of a unit, it tends to the published law."""
    far, fine = [], Fraction(99, 100)
    target = permute_and_flip((2, 0, 1), fine**64)
    for fineness in (1, 4, 16, 64):
        law = noisy_maximum([fineness * loss for loss in (2, 0, 1)], fine ** (64 // fineness))
        far.append(sum(abs(x - y) for x, y in zip(law, target, strict=True)) / 2)
    assert far == sorted(far, reverse=True)
    assert far[-1] < Fraction(1, 200) < Fraction(1, 20) < far[0]


def test_a_rank_lies_in_a_bucket() -> None:
    assert rank_losses((2, 0, 3, 1), Fraction(1, 2)) == (2, 2, 0, 4)
    for counts in histograms(3, (0, 1, 2)):
        for quantile in (HALF, THIRD, Fraction(9, 10)):
            assert min(rank_losses(counts, quantile)) == 0


def test_an_event_moves_no_loss_by_more_than_the_sensitivity() -> None:
    for quantile in (HALF, THIRD, Fraction(9, 10)):
        p, s = quantile.as_integer_ratio()
        found = 0
        for counts in histograms(3, (0, 1, 2)):
            for more in added(counts):
                pairs = zip(rank_losses(counts, quantile), rank_losses(more, quantile), strict=True)
                found = max(found, *(abs(x - y) for x, y in pairs))
        assert found == max(p, s - p)


def test_the_worst_ratio_looks_both_ways() -> None:
    assert worst_ratio([((HALF, HALF), (THIRD, 1 - THIRD))]) == Fraction(3, 2)
