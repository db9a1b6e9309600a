"""Bands from the exact law of weighted sums, against that law by brute force on a fine lattice.

A weight is rounded to 1/256 there, which moves no probability here by more than 1e-3 of itself; the rounded sum's law
is then a plain Fourier sum, without the smoothing and the stopping rule of the product.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_dp.mechanisms import noise_quantiles
from stream_dp.mechanisms.linear.tree import TreeNoise, TreeShape
from stream_dp.mechanisms.noise_quantiles import (
    Term,
    Terms,
    lagging_quantile,
    laplace_quantile,
    sum_variance,
)

FINE = 256


def terms(shape: tuple[int, int], epsilon: Fraction, prefix: int) -> Terms:
    """The terms of a tree's answer."""
    return tuple(TreeNoise(TreeShape(*shape), shape[1] / epsilon, 1).terms(prefix))


def law(noises: Terms) -> NDArray[np.float64]:
    """P(rounded sum = n) for n = -m .. m."""
    named = [Term(*term) for term in noises]
    widest = max(float(t.scale) * t.weight for t in named)
    reach = int(8 * math.sqrt(sum_variance(noises)) + 40 * widest) + 2
    size = 2 * reach * FINE
    theta = 2 * np.pi * np.arange(size // 2 + 1) / size
    log = np.zeros_like(theta)
    for scale, number, weight in named:
        a = math.exp(-1 / float(scale))
        turned = np.cos(round(weight * FINE) * theta)
        log += number * np.log((1 - a) ** 2 / (1 - 2 * a * turned + a * a))
    mass = np.roll(np.fft.irfft(np.exp(log), size), size // 2 + FINE // 2)
    return np.asarray(mass.reshape(-1, FINE).sum(axis=1)[1:])


def beyond(pmf: NDArray[np.float64], bound: int) -> float:
    """P(|rounded sum| > bound)."""
    middle = len(pmf) // 2
    return float(1 - pmf[max(0, middle - bound) : middle + bound + 1].sum())


CASES = [
    ((14, 3), Fraction(1), 500),
    ((14, 3), Fraction(1), 1),
    ((14, 3), Fraction(5), 500),
    ((14, 3), Fraction(10), 9),
    ((12, 2), Fraction(20), 3),
    ((21, 4), Fraction(1, 2), 60_000),
]


@pytest.mark.parametrize("failure", [0.3, 0.05, 1e-3])
@pytest.mark.parametrize(("shape", "epsilon", "prefix"), CASES)
def test_a_band_is_the_quantile_of_the_rounded_sum_or_one_more(
    shape: tuple[int, int], epsilon: Fraction, prefix: int, failure: float
) -> None:
    noises = terms(shape, epsilon, prefix)
    pmf, found = law(noises), laplace_quantile(noises, failure)
    assert beyond(pmf, found) <= failure * 1.001
    assert found < 2 or beyond(pmf, found - 2) > failure * 0.999


@pytest.mark.parametrize(("shape", "epsilon", "prefix"), CASES[:4])
def test_the_lagging_quantile_is_that_of_the_rounded_sum(
    shape: tuple[int, int], epsilon: Fraction, prefix: int
) -> None:
    """`lagging_quantile` at lift 3: N the rounded sum, G a geometric, all by adding up."""
    noises, lift, behind, late = terms(shape, epsilon, prefix), Fraction(3), 4, 1.5
    pmf = law(noises)
    found = lagging_quantile(behind, noises, lift, 2, 0.05, late)
    a, middle = math.exp(-1 / 3), len(pmf) // 2
    geometric = (1 - a) * a ** np.arange(200)
    lagging = np.convolve(pmf[::-1], geometric)  # of G - N, from -middle on

    def failing(bound: int) -> float:
        high = float(pmf[middle + bound + 1 :].sum())
        return 2 * high + late * float(lagging[middle + bound - behind + 1 :].sum())

    assert failing(found) <= 0.05 * 1.001
    assert found == behind or failing(found - 1) > 0.05 * 0.999


def test_a_weight_is_not_a_smaller_scale() -> None:
    """Why terms have weights: many small multiples of a wide noise vary more than as many narrow ones."""
    weighted, narrow = (Term(Fraction(4), 60, 0.05),), (Term(Fraction(1, 5), 60),)
    assert sum_variance(weighted) > 4 * sum_variance(narrow)
    assert beyond(law(weighted), laplace_quantile(narrow, 0.05)) > 0.05


WIDE = [  # scales beyond those that are counted one by one
    ((Fraction(60_000), 168),),
    ((Fraction(60_000), 40), (Fraction(9_000), 7)),
    ((Fraction(500_000), 3), (Fraction(50_000), 24)),
    ((Fraction(5_000), 30),),  # few integers a step: nothing is left out
]


@pytest.mark.parametrize("noises", WIDE)
@pytest.mark.parametrize("failure", [0.05, 1e-6])
def test_what_is_left_out_of_wide_sums_changes_no_band(
    noises: Terms, failure: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = laplace_quantile.__wrapped__(noises, failure)
    watched = lagging_quantile.__wrapped__(7, noises, Fraction(90_000), 3, failure, 1.5)
    monkeypatch.setattr(noise_quantiles, "NOTHING", 0.0)
    assert found == laplace_quantile.__wrapped__(noises, failure)
    assert watched == lagging_quantile.__wrapped__(7, noises, Fraction(90_000), 3, failure, 1.5)


@pytest.mark.parametrize(("nothing", "few"), [(noise_quantiles.NOTHING, True), (0.0, False)])
def test_a_sum_of_many_wide_noises_is_looked_at_at_few_angles(
    nothing: float, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A week of hours of a sum to the cent: each band of the week would take a fifth of a second."""
    transform, angles = noise_quantiles._Sum.transform, [0]

    def counted(self: noise_quantiles._Sum, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        angles[0] += len(theta)
        return transform(self, theta)

    monkeypatch.setattr(noise_quantiles._Sum, "transform", counted)
    monkeypatch.setattr(noise_quantiles, "NOTHING", nothing)
    noise_quantiles._whole_quantile(noise_quantiles._Sum.of(((Fraction(60_000), 168),)), 0.05)
    assert (angles[0] < 10_000) == few


def test_nothing_has_a_band_of_nothing() -> None:
    assert laplace_quantile((), 0.05) == laplace_quantile(((Fraction(3), 0),), 0.05) == 0


QUICK: list[Terms] = [
    ((Fraction(60_000), 168),),
    ((Fraction(4_001, 3), 1),),
    ((Fraction(7_000), 1),),
    ((Fraction(50), 1), (Fraction(20), 3)),
    (Term(Fraction(900), 2, 0.75), Term(Fraction(900), 1, 0.31)),
    (Term(Fraction(30), 2, 0.5), Term(Fraction(300), 5, 0.21)),
]


@pytest.mark.parametrize("failure", [0.2, 0.05, 1e-4])
@pytest.mark.parametrize("noises", QUICK)
def test_the_quick_way_says_what_the_whole_law_says(noises: Terms, failure: float) -> None:
    """Released bands are replayed byte by byte, so what an earlier version computed stays as it is."""
    summed = noise_quantiles._Sum.of(noises)
    quick, whole = (
        (noise_quantiles._whole_quickly, noise_quantiles._whole_quantile)
        if summed.whole
        else (noise_quantiles._weighted_quickly, noise_quantiles._weighted_quantile)
    )
    assert quick(summed, failure) == whole(summed, failure)


@pytest.mark.parametrize("noises", [(), *QUICK])
def test_the_quick_lagging_one_says_what_the_whole_law_says(noises: Terms) -> None:
    summed = noise_quantiles._Sum.of(noises)
    step = noise_quantiles._step(summed.widest, 1_000.0)
    for behind, columns, failure in ((70, 1, 0.05), (9_000, 30, 0.01)):
        asked = noise_quantiles._Lagging(behind, 1_000 / step, columns, failure, 1.25)
        found = noise_quantiles._lagging_quickly(summed, step, asked)
        assert found == noise_quantiles._lagging_cells(summed, step, asked)


def test_what_is_too_near_to_say_is_left_to_the_whole_law() -> None:
    """At the probability of a number itself a quick look cannot know on which side the least one lies."""
    summed = noise_quantiles._Sum.of(((Fraction(50), 2),))
    law = noise_quantiles._upper_tail(
        summed.transform(2 * np.pi * np.arange((1 << 15) + 1) / (1 << 16)), 1 << 16
    )
    failure = 2 * float(law[160])
    assert noise_quantiles._whole_quickly(summed, failure) is None
    assert noise_quantiles._whole_quickly(summed, failure * 1.001) == 160
