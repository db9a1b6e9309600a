"""Widths of A - r B: against the exact law of both noises added up, and against closed forms.

Oracles: the law of a rounded sum on a lattice (`test_noise_quantiles.law`), of which two are added up term by term; of
two Laplaces the tail in closed form. Twins that are killed: widths of the noise of A alone, of noises that are taken
for one and the same, and without what discrete noise is more.
"""

import math
import random
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest
from unit.mechanisms.test_noise_quantiles import law, terms

from stream_dp.mechanisms import noise_law
from stream_dp.mechanisms.noise_law import BITS, NOTHING, SMOOTH, NoiseLaw, contrast_widths
from stream_dp.mechanisms.noise_quantiles import Term, Terms
from stream_dp.mechanisms.quotients import Widths

QUOTIENTS = (0, 0.001, 0.02, 0.1, 0.21, 1 / 3, 0.5, 0.77, 1, 1.3, 2, 3.7, 10, 64, 1000)
ONE = (Term(Fraction(4), 1),)
FEW = (Term(Fraction(1), 3),)
SPARSE = (Term(Fraction(1, 3), 1),)
TREE = terms((14, 3), Fraction(1), 500)
STEEP = terms((14, 3), Fraction(5), 500)
LONG = (Term(Fraction(1), 150),)
PAIRS = {
    "one each": (ONE, ONE, 1.04),
    "trees": (TREE, TREE, 1.06),
    "one and few": (ONE, FEW, 1.15),
    "scales below 1": (SPARSE, FEW, 1.7),
    "a tree of scales below 1": (STEEP, ONE, 1.5),
    "a long window of single ticks": (LONG, ONE, 1.15),
}
"""Two noises, and how many times its quantile the width of their difference is at most, but for a unit of each."""


def beyond(of: Terms, over: Terms, quotient: float, width: float) -> float:
    """P(|A - r B| > width), by adding up."""
    first, second = law(of), law(over)
    middle = len(first) // 2
    below = np.concatenate([[0.0], np.cumsum(first)])
    moved = quotient * (np.arange(len(second)) - len(second) // 2)
    low = np.clip(np.ceil(moved - width - 1e-9) + middle, 0, len(first)).astype(int)
    high = np.clip(np.floor(moved + width + 1e-9) + middle + 1, 0, len(first)).astype(int)
    return float(1 - second @ np.maximum(below[high] - below[low], 0))


@pytest.mark.parametrize("failure", [0.3, 0.05, 1e-3])
@pytest.mark.parametrize("pair", PAIRS)
def test_a_width_is_exceeded_as_seldom_as_it_says_and_is_not_much_more(
    pair: str, failure: float
) -> None:
    of, over, times = PAIRS[pair]
    widths = contrast_widths(NoiseLaw(of), NoiseLaw(over), failure)
    for r in QUOTIENTS:
        width = float(widths.at(Fraction(r)))
        assert beyond(of, over, r, width) <= failure * 1.001, r
        assert beyond(of, over, r, (width - 1 - r) / times - 1e-6) > failure or width < 3 * (
            1 + r
        ), r


def test_where_the_quotient_is_not_farther_the_widths_are_the_same_with_fewer_lines() -> None:
    law_of, law_over = NoiseLaw(TREE), NoiseLaw(ONE)
    whole = contrast_widths(law_of, law_over, 0.05)
    near = contrast_widths(law_of, law_over, 0.05, Fraction(2))
    assert max(b for _, b in near.pairs) < max(b for _, b in whole.pairs)
    for r in (0, 0.3, 1, 1.7, 2):
        assert float(near.at(Fraction(r))) == pytest.approx(float(whole.at(Fraction(r))), rel=0.01)
        assert beyond(TREE, ONE, r, float(near.at(Fraction(r)))) <= 0.05


@pytest.mark.parametrize("failure", [0.2, 0.05, 1e-4])
def test_of_wide_laplaces_it_is_the_closed_form(failure: float) -> None:
    """At all quotients, so that no chord is below the quantile."""
    wide = NoiseLaw((Term(Fraction(1000), 1),), rest=0.0)
    widths = contrast_widths(wide, wide, failure)
    for r in np.geomspace(0.01, 100, 200).tolist():
        t = float(widths.at(Fraction(r))) / 1000
        tail = (
            (math.exp(-t) - r * r * math.exp(-t / r)) / (1 - r * r)
            if abs(r - 1) > 1e-6
            else math.exp(-t) * (1 + t / 2)
        )
        assert 0.85 * failure < tail <= failure * (1 + 1e-5)


def test_of_normal_noise_it_is_the_square_root_of_squares() -> None:
    of, over = NoiseLaw(variance=9.0e6, rest=0.25), NoiseLaw(variance=4.0e6, rest=3.0)
    widths = contrast_widths(of, over, 0.05)
    for r in (0, 0.2, 1, 1.5, 4, 100):
        exact = 1.959964 * math.sqrt(9.0e6 + 4.0e6 * r * r) + 0.25 + 3.0 * r
        assert exact <= float(widths.at(Fraction(r))) <= 1.007 * exact


def test_nothing_has_no_width() -> None:
    assert contrast_widths(NOTHING, NOTHING, 0.05) == Widths(((Fraction(0), Fraction(0)),))
    ((a, b),) = contrast_widths(NoiseLaw(ONE), NOTHING, 0.05).pairs
    assert a > 0
    assert b == 0
    ((a, b),) = contrast_widths(NOTHING, NoiseLaw(ONE), 0.05, Fraction(1)).pairs
    assert a == 0
    assert b > 0


@pytest.mark.parametrize("pair", PAIRS)
def test_twins_are_exceeded_more_often(pair: str) -> None:
    """The noise of A alone; and one noise for both, whose difference is nothing where both weigh the same."""
    of, over, _ = PAIRS[pair]
    found = contrast_widths(NoiseLaw(of), NoiseLaw(over), 0.05)
    alone, far = float(found.at(Fraction(0))), float(found.at(Fraction(1000))) / 1000
    alike = alone / far
    assert beyond(of, over, 2 * alike, alone) > 0.1
    assert beyond(of, over, 0.5 * alike, alone - 0.5 * alike * far) > 0.06


def test_a_width_has_room_for_what_is_between_the_integers() -> None:
    """The twin has none: it says 12.8 where 13 is too often exceeded by 12 and more."""
    failure = math.exp(-12.8 * 2 * math.tanh(1 / 8))
    for rest, right in ((0.5, True), (0.0, False)):
        widths = contrast_widths(NoiseLaw(ONE, rest=rest), NOTHING, failure)
        assert (beyond(ONE, ONE, 0, float(widths.at(Fraction(0)))) <= failure) == right


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1, 2), Fraction(1)])
@pytest.mark.parametrize("place", [0.05, 1.1, 3.05])
def test_a_discrete_noise_with_a_uniform_one_is_within_the_law_that_is_computed(
    scale: Fraction, place: float
) -> None:
    """Step 1 of the proof, in closed form; a Laplace of the same scale is exceeded more often near the integers."""
    a, k = math.exp(-1 / scale), round(place)
    tail = 2 * a**k / (1 + a) * (a + (1 - a) * (0.5 - place + k))  # P(|noise + uniform| > place)
    widths = contrast_widths(NoiseLaw(((scale, 1),), rest=0.0), NOTHING, tail)
    assert float(widths.at(Fraction(0))) >= place
    assert scale * math.log(1 / tail) < place


@pytest.mark.parametrize("deviation", [5.0, 7.9, 300.0])
def test_a_width_is_rounded_up(deviation: float) -> None:
    """The quantile of the law with a little normal noise, by less than a unit; and what is added to it."""
    for failure in (0.3, 0.05, 1e-4):
        law_of = NoiseLaw(variance=deviation**2, rest=0.0)
        width = float(contrast_widths(law_of, NOTHING, failure).at(Fraction(0)))
        wider = deviation * math.sqrt(1 + SMOOTH**2)
        exact = NormalDist(0, wider).inv_cdf(1 - failure / 2)
        assert exact <= width < exact + deviation / 2**BITS
    ((a, b),) = contrast_widths(NoiseLaw(rest=0.3), NoiseLaw(rest=1e-4), 0.05).pairs
    assert 0.3 <= a < 0.301
    assert 1e-4 <= b < 1e-3


def by_halves(summed: noise_law._Sum, failure: float) -> Fraction:
    """The quantile from the transform at all angles, searched for by halves: in thirty times the time."""
    deviation = math.sqrt(summed.variance)
    unlikely = math.log(2 / (failure * 1e-6))
    bound = math.sqrt(2 * unlikely) + unlikely * max([0.0, *summed.scales]) / deviation + 1
    spacing, step = math.pi / bound, 2.0**summed.bits / deviation
    theta = spacing * np.arange(1, math.ceil(math.sqrt(2 * unlikely) / SMOOTH / spacing) + 1)
    waves = np.log1p(np.multiply.outer(summed.scales / deviation, theta) ** 2)
    normal = (summed.normal / summed.variance + SMOOTH**2) / 2 * theta**2
    mass = 2 / math.pi * spacing * np.exp(-(summed.numbers @ waves) - normal) / theta
    low, high = 0, math.ceil(bound / step)
    while high - low > 1:
        middle = (low + high) // 2
        edge = middle * step
        inside = edge * spacing / math.pi + float(mass @ np.sin(theta * edge))
        low, high = (low, middle) if 1 - inside <= failure else (middle, high)
    return Fraction(high << max(0, summed.bits), 1 << max(0, -summed.bits))


def some_sums(number: int) -> list[tuple[noise_law._Sum, float]]:
    choose, found = random.Random(7), list[tuple[noise_law._Sum, float]]()
    while len(found) < number:
        terms = tuple(
            Term(
                Fraction(choose.randint(1, 5000), choose.randint(1, 200)),
                choose.choice((1, 1, 2, 168, 2000)),
                choose.choice((1.0, choose.random() + 1e-4)),
            )
            for _ in range(choose.choice((0, 1, 1, 3, 9)))
        )
        normal = choose.choice((0.0, choose.random() * 10 ** choose.randint(0, 8)))
        summed = noise_law._Sum.of(NoiseLaw(terms, normal))
        if summed.variance:
            found.append((summed, choose.choice((0.5, 0.05, 1 - 0.95, 1e-3, 1e-6, 1e-9))))
    return found


def test_a_quantile_is_that_of_all_angles_and_of_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin sees the first angles alone, however near to the failure a probability is."""
    sums = some_sums(120)
    right = [by_halves(*each) for each in sums]
    assert [summed.quantile(failure) for summed, failure in sums] == right
    monkeypatch.setattr(noise_law, "FEW", 4)
    assert [summed.quantile(failure) for summed, failure in sums] == right
    monkeypatch.setattr(noise_law, "LEFT_OUT", 1e9)
    assert [summed.quantile(failure) for summed, failure in sums] == right
    monkeypatch.setattr(noise_law, "ROUNDING", -np.inf)
    assert [summed.quantile(failure) for summed, failure in sums] != right
