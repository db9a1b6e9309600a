"""Bands and widths from the exact law of weighted sums of noise, and of A - r B, against that law by brute force.

A weight is rounded to 1/256 there, which moves no probability here by more than 1e-3 of itself; the rounded sum's law
is then a plain Fourier sum, without the smoothing and the stopping rule of the product. Of A - r B two such laws are
added up term by term; of two Laplaces the tail is known in closed form.
"""

import math
import random
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_dp.mechanisms import noise_law, noise_quantiles
from stream_dp.mechanisms.linear.tree import TreeNoise, TreeShape
from stream_dp.mechanisms.noise_law import BITS, NOTHING, SMOOTH, NoiseLaw, contrast_widths
from stream_dp.mechanisms.noise_quantiles import (
    Term,
    Terms,
    _Sum,
    lagging_quantile,
    laplace_quantile,
)
from stream_dp.mechanisms.quotients import Widths

FINE = 256


def terms(shape: tuple[int, int], epsilon: Fraction, prefix: int) -> Terms:
    return tuple(TreeNoise(TreeShape(*shape), shape[1] / epsilon, 1).terms(prefix))


def law(noises: Terms) -> NDArray[np.float64]:
    """P(rounded sum = n) for n = -m .. m."""
    named = [Term(*term) for term in noises]
    widest = max(float(t.scale) * t.weight for t in named)
    reach = int(8 * math.sqrt(_Sum.of(noises).variance) + 40 * widest) + 2
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


TREE, STEEP = terms((14, 3), Fraction(1), 500), terms((14, 3), Fraction(5), 500)
CASES = {
    "tree": TREE,
    "one step of a tree": terms((14, 3), Fraction(1), 1),
    "scales below 1": STEEP,
    "much epsilon": terms((12, 2), Fraction(20), 3),
    "many steps": terms((21, 4), Fraction(1, 2), 60_000),
}


@pytest.mark.parametrize("failure", [0.3, 0.05, 1e-3])
@pytest.mark.parametrize("name", CASES)
def test_a_band_is_the_quantile_of_the_rounded_sum_or_one_more(name: str, failure: float) -> None:
    pmf, band = law(CASES[name]), laplace_quantile(CASES[name], failure)
    assert beyond(pmf, band) <= failure * 1.001
    assert band < 2 or beyond(pmf, band - 2) > failure * 0.999


@pytest.mark.parametrize("noises", [TREE, STEEP], ids=["tree", "scales below 1"])
def test_the_lagging_quantile_is_that_of_the_rounded_sum(noises: Terms) -> None:
    """`lagging_quantile` at lift 3: N the rounded sum, G a geometric, all by adding up."""
    lift, behind, late = Fraction(3), 4, 1.5
    pmf = law(noises)
    quantile = lagging_quantile(behind, noises, lift, 2, 0.05, late)
    a, middle = math.exp(-1 / 3), len(pmf) // 2
    geometric = (1 - a) * a ** np.arange(200)
    lagging = np.convolve(pmf[::-1], geometric)  # of G - N, from -middle on

    def failing(bound: int) -> float:
        high = float(pmf[middle + bound + 1 :].sum())
        return 2 * high + late * float(lagging[middle + bound - behind + 1 :].sum())

    assert failing(quantile) <= 0.05 * 1.001
    assert quantile == behind or failing(quantile - 1) > 0.05 * 0.999


def test_a_weight_is_not_a_smaller_scale() -> None:
    """Why terms have weights: many small multiples of a wide noise vary more than as many narrow ones."""
    weighted, narrow = (Term(Fraction(4), 60, 0.05),), (Term(Fraction(1, 5), 60),)
    assert _Sum.of(weighted).variance > 4 * _Sum.of(narrow).variance
    assert beyond(law(weighted), laplace_quantile(narrow, 0.05)) > 0.05


WIDE = [  # scales beyond those that are counted one by one
    ((Fraction(60_000), 40), (Fraction(9_000), 7)),
    ((Fraction(500_000), 3), (Fraction(50_000), 24)),
    ((Fraction(5_000), 30),),  # few integers a step: nothing is left out
]


@pytest.mark.parametrize("noises", WIDE)
@pytest.mark.parametrize("failure", [0.05, 1e-6])
def test_what_is_left_out_of_wide_sums_changes_no_band(
    noises: Terms, failure: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 7, noises, Fraction(90_000), 3, failure, 1.5
    band = laplace_quantile.__wrapped__(noises, failure)
    watched = lagging_quantile.__wrapped__(*asked)
    monkeypatch.setattr(noise_quantiles, "NOTHING", 0.0)
    assert band == laplace_quantile.__wrapped__(noises, failure)
    assert watched == lagging_quantile.__wrapped__(*asked)


def test_a_sum_of_many_wide_noises_is_looked_at_at_few_angles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A week of hours of a sum to the cent: each band of the week would take a fifth of a second."""
    transform, angles = noise_quantiles._Sum.transform, list[int]()

    def counted(self: noise_quantiles._Sum, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        angles[-1] += len(theta)
        return transform(self, theta)

    monkeypatch.setattr(noise_quantiles._Sum, "transform", counted)
    for nothing in (noise_quantiles.NOTHING, 0.0):
        angles.append(0)
        monkeypatch.setattr(noise_quantiles, "NOTHING", nothing)
        noise_quantiles._whole_quantile(noise_quantiles._Sum.of(((Fraction(60_000), 168),)), 0.05)
    assert angles[0] < 10_000 <= angles[1]


QUICK: list[Terms] = [
    ((Fraction(60_000), 168),),
    ((Fraction(4_001, 3), 1),),
    ((Fraction(50), 1), (Fraction(20), 3)),
    (Term(Fraction(900), 2, 0.75), Term(Fraction(900), 1, 0.31)),
    (Term(Fraction(30), 2, 0.5), Term(Fraction(300), 5, 0.21)),
]


@pytest.mark.parametrize("noises", [(), *QUICK])
def test_the_quick_ways_say_what_the_whole_law_says(noises: Terms) -> None:
    """Released bands are replayed byte by byte, so what an earlier version computed stays as it is."""
    summed = noise_quantiles._Sum.of(noises)
    quick, whole = (
        (noise_quantiles._whole_quickly, noise_quantiles._whole_quantile)
        if summed.whole
        else (noise_quantiles._weighted_quickly, noise_quantiles._weighted_quantile)
    )
    if noises:
        for failure in (0.2, 0.05, 1e-4):
            assert quick(summed, failure) == whole(summed, failure)
    step = noise_quantiles._step(summed.widest, 1_000.0)
    for behind, columns, failure in ((70, 1, 0.05), (9_000, 30, 0.01)):
        asked = noise_quantiles._Lagging(behind, 1_000 / step, columns, failure, 1.25)
        lagging = noise_quantiles._lagging_quickly(summed, step, asked)
        assert lagging == noise_quantiles._lagging_cells(summed, step, asked)
    assert laplace_quantile((), 0.05) == laplace_quantile(((Fraction(3), 0),), 0.05) == 0


def test_what_is_too_near_to_say_is_left_to_the_whole_law() -> None:
    """At the probability of a number itself a quick look cannot know on which side the least one lies."""
    summed = noise_quantiles._Sum.of(((Fraction(50), 2),))
    theta = 2 * np.pi * np.arange((1 << 15) + 1) / (1 << 16)
    failure = 2 * float(noise_quantiles._upper_tail(summed.transform(theta), 1 << 16)[160])
    assert noise_quantiles._whole_quickly(summed, failure) is None
    assert noise_quantiles._whole_quickly(summed, failure * 1.001) == 160


# --- widths of A - r B -------------------------------------------------------------------------------

QUOTIENTS = (0, 0.001, 0.02, 0.21, 1 / 3, 0.77, 1, 1.3, 3.7, 64, 1000)
ONE, FEW = (Term(Fraction(4), 1),), (Term(Fraction(1), 3),)
PAIRS = {
    "one each": (ONE, ONE, 1.04),
    "trees": (TREE, TREE, 1.06),
    "scales below 1": ((Term(Fraction(1, 3), 1),), FEW, 1.7),
    "a tree of scales below 1": (STEEP, ONE, 1.5),
    "a long window of single ticks": ((Term(Fraction(1), 150),), ONE, 1.15),
}
"""Two noises, and how many times its quantile the width of their difference is at most, but for a unit of each."""


def apart(of: Terms, over: Terms, quotient: float, width: float) -> float:
    """P(|A - r B| > width), by adding up."""
    first, second = law(of), law(over)
    middle = len(first) // 2
    below = np.concatenate([[0.0], np.cumsum(first)])
    moved = quotient * (np.arange(len(second)) - len(second) // 2)
    low = np.clip(np.ceil(moved - width - 1e-9) + middle, 0, len(first)).astype(int)
    high = np.clip(np.floor(moved + width + 1e-9) + middle + 1, 0, len(first)).astype(int)
    return float(1 - second @ np.maximum(below[high] - below[low], 0))


@pytest.mark.parametrize("failure", [0.3, 1e-3])
@pytest.mark.parametrize("pair", PAIRS)
def test_a_width_is_exceeded_as_seldom_as_it_says_and_is_not_much_more(
    pair: str, failure: float
) -> None:
    of, over, times = PAIRS[pair]
    widths = contrast_widths(NoiseLaw(of), NoiseLaw(over), failure)
    for r in QUOTIENTS:
        width = float(widths.at(Fraction(r)))
        assert apart(of, over, r, width) <= failure * 1.001, r
        less, little = (width - 1 - r) / times - 1e-6, width < 3 * (1 + r)
        assert little or apart(of, over, r, less) > failure, r


def test_where_the_quotient_is_not_farther_the_widths_are_the_same_with_fewer_lines() -> None:
    whole, near = (
        contrast_widths(NoiseLaw(TREE), NoiseLaw(ONE), 0.05, *most) for most in ((), (Fraction(2),))
    )
    assert max(b for _, b in near.pairs) < max(b for _, b in whole.pairs)
    for r in (0, 1, 1.7, 2):
        width = float(near.at(Fraction(r)))
        assert width == pytest.approx(float(whole.at(Fraction(r))), rel=0.01)
        assert apart(TREE, ONE, r, width) <= 0.05


@pytest.mark.parametrize("failure", [0.2, 1e-4])
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
    for r in (0, 0.2, 1, 4, 100):
        exact = 1.959964 * math.sqrt(9.0e6 + 4.0e6 * r * r) + 0.25 + 3.0 * r
        assert exact <= float(widths.at(Fraction(r))) <= 1.007 * exact


def test_nothing_has_no_width() -> None:
    assert contrast_widths(NOTHING, NOTHING, 0.05) == Widths(((Fraction(0), Fraction(0)),))
    ((a, b),) = contrast_widths(NoiseLaw(ONE), NOTHING, 0.05).pairs
    assert a > 0 == b
    ((a, b),) = contrast_widths(NOTHING, NoiseLaw(ONE), 0.05, Fraction(1)).pairs
    assert a == 0 < b


@pytest.mark.parametrize("pair", PAIRS)
def test_twins_are_exceeded_more_often(pair: str) -> None:
    """The noise of A alone; and one noise for both, whose difference is nothing where both weigh the same."""
    of, over, _ = PAIRS[pair]
    widths = contrast_widths(NoiseLaw(of), NoiseLaw(over), 0.05)
    alone, far = float(widths.at(Fraction(0))), float(widths.at(Fraction(1000))) / 1000
    alike = alone / far
    assert apart(of, over, 2 * alike, alone) > 0.1
    assert apart(of, over, 0.5 * alike, alone - 0.5 * alike * far) > 0.06


def test_a_width_has_room_for_what_is_between_the_integers() -> None:
    """The twin has none: it says 12.8 where 13 is too often exceeded by 12 and more."""
    failure = math.exp(-12.8 * 2 * math.tanh(1 / 8))
    for rest, right in ((0.5, True), (0.0, False)):
        widths = contrast_widths(NoiseLaw(ONE, rest=rest), NOTHING, failure)
        assert (apart(ONE, ONE, 0, float(widths.at(Fraction(0)))) <= failure) == right


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1)])
def test_a_discrete_noise_with_a_uniform_one_is_within_the_law_that_is_computed(
    scale: Fraction,
) -> None:
    """Step 1 of the proof, in closed form; a Laplace of the same scale is exceeded more often near the integers."""
    for place in (0.05, 1.1, 3.05):
        a, k = math.exp(-1 / scale), round(place)
        tail = 2 * a**k / (1 + a) * (a + (1 - a) * (0.5 - place + k))  # of |noise + uniform|
        widths = contrast_widths(NoiseLaw(((scale, 1),), rest=0.0), NOTHING, tail)
        assert float(widths.at(Fraction(0))) >= place
        assert scale * math.log(1 / tail) < place


def test_a_width_is_rounded_up() -> None:
    """The quantile of the law with a little normal noise, by less than a unit; and what is added to it."""
    for deviation, failure in ((5.0, 0.3), (7.9, 0.05), (300.0, 1e-4)):
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
    choose, sums = random.Random(7), list[tuple[noise_law._Sum, float]]()
    while len(sums) < number:
        noises = tuple(
            Term(
                Fraction(choose.randint(1, 5000), choose.randint(1, 200)),
                choose.choice((1, 1, 2, 168, 2000)),
                choose.choice((1.0, choose.random() + 1e-4)),
            )
            for _ in range(choose.choice((0, 1, 1, 3, 9)))
        )
        normal = choose.choice((0.0, choose.random() * 10 ** choose.randint(0, 8)))
        summed = noise_law._Sum.of(NoiseLaw(noises, normal))
        if summed.variance:
            sums.append((summed, choose.choice((0.5, 0.05, 1 - 0.95, 1e-3, 1e-6, 1e-9))))
    return sums


def test_a_quantile_is_that_of_all_angles_and_of_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin sees the first angles alone, however near to the failure a probability is."""
    sums = some_sums(60)
    right = [by_halves(*each) for each in sums]
    assert [summed.quantile(failure) for summed, failure in sums] == right
    for name, value, same in (
        ("FEW", 4, True),
        ("LEFT_OUT", 1e9, True),
        ("ROUNDING", -np.inf, False),
    ):
        monkeypatch.setattr(noise_law, name, value)
        assert ([summed.quantile(failure) for summed, failure in sums] == right) == same
