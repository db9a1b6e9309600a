"""The closed forms of noisy choices: they add up, agree with a sum over the noise, and know what is known of them."""

import itertools
from collections.abc import Callable
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
LOSSES = [(0,), (0, 0), (0, 3), (2, 0, 1)]


@pytest.mark.parametrize("law", [noisy_maximum, permute_and_flip, exponential])
def test_every_law_adds_up_to_one(law: Callable[..., tuple[Fraction, ...]]) -> None:
    for losses in (*LOSSES, (5, 5, 5), (4, 0, 0, 7)):
        assert sum(law(losses, THIRD)) == 1


@pytest.mark.parametrize("losses", LOSSES)
def test_the_noisy_maximum_is_the_sum_over_all_noise(losses: tuple[int, ...]) -> None:
    """All noise below 16; what is beyond has less mass than `slack`."""
    top, chances = 16, [Fraction(0)] * len(losses)
    for draws in itertools.product(range(top), repeat=len(losses)):
        scores = [z - loss for z, loss in zip(draws, losses, strict=True)]
        chances[scores.index(max(scores))] += (1 - HALF) ** len(losses) * HALF ** sum(draws)
    slack = len(losses) * HALF**top
    for low, exact in zip(chances, noisy_maximum(losses, HALF), strict=True):
        assert low <= exact <= low + slack


@pytest.mark.parametrize("losses", LOSSES)
def test_permute_and_flip_is_the_first_accepted_in_a_uniform_order(losses: tuple[int, ...]) -> None:
    """The algorithm as published: every order, every flip."""
    chances = [Fraction(0)] * len(losses)
    orders = list(itertools.permutations(range(len(losses))))
    for order in orders:
        left = Fraction(1, len(orders))
        for i in order:
            accepted = HALF ** (losses[i] - min(losses))
            chances[i] += left * accepted
            left *= 1 - accepted
    assert tuple(chances) == permute_and_flip(losses, HALF)


def test_an_event_moves_no_loss_by_more_than_the_sensitivity() -> None:
    assert rank_losses((2, 0, 3, 1), HALF) == (2, 2, 0, 4)
    for quantile in (HALF, THIRD, Fraction(9, 10)):
        p, s = quantile.as_integer_ratio()
        moves = [
            abs(x - y)
            for counts in histograms(3, (0, 1, 2))
            for more in added(counts)
            for x, y in zip(rank_losses(counts, quantile), rank_losses(more, quantile), strict=True)
        ]
        assert max(moves) == max(p, s - p)
    assert worst_ratio([((HALF, HALF), (THIRD, 1 - THIRD))]) == Fraction(3, 2)
