"""Bands from the law of the noise: of each mechanism whose noise is added, and of all differences of its values.

A mechanism's own band comes out of the law of its answers. The band of all differences is checked against exact laws by
brute force, with its shares over pairs and views.
"""

import itertools
import math
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.core.row_relations import Arrivals
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.hss.hss import HSS
from stream_dp.mechanisms.hss.per_bin_hss import PerBinHSS
from stream_dp.mechanisms.linear.arrival_counter import ArrivalCounter, CutOffCounter
from stream_dp.mechanisms.linear.counter import Counter, HybridCounter, SumCounter
from stream_dp.mechanisms.linear.ended_windows import EndedCounts, EndedSums
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.linear.noisy_forest import FLAT
from stream_dp.mechanisms.linear.pairs import (
    GaussianAndEver,
    SumsAndEver,
    WindowsAndEver,
)
from stream_dp.mechanisms.linear.window_forest import GaussianForest, SumForest, WindowForest
from stream_dp.mechanisms.noise_law import NOTHING, contrast_widths
from stream_dp.mechanisms.serving import Answer, Bands, Contrasts, Differences, all_at_once

ADD, HALF = Neighbors.ADD_REMOVE, Fraction(1, 2)
TENTH, SMALL = Fraction(1, 10), Fraction(1, 500)


def laplace(scale: float, reach: int = 400) -> np.ndarray[Any, Any]:
    """The law of a discrete Laplace noise from -reach to reach."""
    a = math.exp(-1 / scale)
    return (1 - a) / (1 + a) * a ** np.abs(np.arange(-reach, reach + 1))


def range_exceeds(law: np.ndarray[Any, Any], width: int, bound: int) -> float:
    """P(largest - smallest > bound) of so many independent noises of this law, from its distribution function."""
    below = np.concatenate([np.zeros(1), np.cumsum(law), np.ones(bound)])
    top = below[1 + bound :] - below[: -1 - bound]  # all within [x, x + bound]
    without = below[1 + bound :] - np.concatenate([below[1 : -bound or None]])
    return 1 - float((top[: len(without)] ** width - without**width).sum())


def test_the_oracle_of_the_range_is_right() -> None:
    """By all outcomes of three noises."""
    law = laplace(1.0, 6)
    law /= law.sum()
    for bound in (0, 1, 3):
        exact = 0.0
        for noises in itertools.product(range(len(law)), repeat=3):
            if max(noises) - min(noises) > bound:
                exact += float(np.prod(law[list(noises)]))
        assert range_exceeds(law, 3, bound) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize(("width", "scale"), [(2, 1), (5, 5), (40, 5)])
def test_the_order_of_any_two_is_told_wrongly_as_rarely_as_stated(width: int, scale: int) -> None:
    """Where all counts are equal every order is wrong; of single noises the law is known: an eighth is lost at most."""
    counter = Counter(width, Fraction(1, scale), ADD, 1)
    band = Differences(counter).band(1, 0.95)
    law = laplace(scale)
    assert range_exceeds(law, width, band) <= 0.05
    least = next(b for b in range(400) if range_exceeds(law, width, b) <= 0.05)
    assert band <= 1.12 * least + 1


def test_half_of_the_band_and_that_of_a_single_value_are_too_narrow() -> None:
    """Twins: a band for one value, and that of one difference without its share."""
    law, counter = laplace(5), Counter(20, Fraction(1, 5), ADD, 1)
    right = Differences(counter).band(1, 0.95)
    assert range_exceeds(law, 20, counter.band(1, 0.95)) > 0.5
    assert range_exceeds(law, 20, right // 2) > 0.5
    one = Differences(Counter(2, Fraction(1, 5), ADD, 1)).band(1, 0.95)
    assert range_exceeds(law, 20, one) > 0.5


MECHANISMS: dict[str, tuple[Any, Any]] = {
    "counter": (Counter(20, HALF, ADD, 300), 299),
    "hybrid": (HybridCounter(20, HALF, ADD), 299),
    "gaussian": (GaussianCounter(20, Fraction(1, 50), ADD, 300), 299),
    "bins": (PerBinHSS(20, HALF, HALF, ADD, 300), (300, frozenset({0, 7, 20}))),
    "hss": (HSS(20, None, HALF, HALF, HALF, ADD, 300, None), (300, 7, b"")),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_difference_has_less_error_than_two_bands(name: str) -> None:
    """Both for all at once: wider than the band of one value, narrower than the sum of two."""
    mechanism, public = MECHANISMS[name]
    found = Differences(mechanism).band(public, 0.95)
    one = mechanism.band(public, all_at_once(0.95, 20))
    assert one < found < 2 * one


@pytest.mark.parametrize(("name", "intervals"), [("bins", (0, 7, 20)), ("hss", (7,))])
def test_what_lags_is_too_high_by_its_noise_alone(name: str, intervals: tuple[int, ...]) -> None:
    """Half of the failure for each side, shared out over all entries; above there is no lag, and only one tail."""
    (mechanism, public), half = MECHANISMS[name], 0.05 / 2 / 20
    low, counter = mechanism.band(public, 1 - half), mechanism.closing.counter
    high = max(counter.noise(number).band(1 - 2 * half) for number in intervals)
    assert 0 < high == Differences(mechanism).band(public, 0.95) - low


def test_normal_noises_are_apart_by_what_two_of_them_are() -> None:
    """At the failure of one pair of 190: the deviation of a difference is sqrt 2 that of one noise."""
    counter = GaussianCounter(20, Fraction(1, 50), ADD, 300)
    forest = GaussianForest(20, Fraction(1, 50), ADD, (1, 24), FLAT)
    for mechanism in (counter, forest):
        law = mechanism.noise(24)
        apart = NormalDist(0, math.sqrt(2 * law.variance)).inv_cdf(1 - 0.05 / 190 / 2)
        assert apart <= Differences(mechanism).band(24, 0.95) <= apart + 2 * law.rest + 1


def test_each_window_has_its_own_and_the_count_so_far_that_of_its_counter() -> None:
    forest, ever = WindowForest(4, HALF, ADD, (1, 24), FLAT), Counter(4, HALF, ADD, 100)
    both = WindowsAndEver(forest, ever)
    found = [Bands(Differences(both, place), 0.95)(49, None) for place in range(3)]
    alone = [Bands(Differences(forest, place), 0.95)(49, None) for place in range(2)]
    assert found == [*alone, Bands(Differences(ever), 0.95)(49, None)]
    assert alone[0] < alone[1]


def test_where_there_is_one_name_or_nothing_was_counted_no_order_is_in_doubt() -> None:
    assert Differences(Counter(1, HALF, ADD, 9)).band(3, 0.95) == 0
    assert Differences(GaussianCounter(3, Fraction(1, 50), ADD, 9)).band(0, 0.95) == 0


WINDOWS = (1, 6)
FOREST = WindowForest(2, TENTH, ADD, WINDOWS, FLAT)
SUMS = SumForest(2, TENTH, ADD, WINDOWS, FLAT, -3, 9)
NORMAL = GaussianForest(2, SMALL, ADD, WINDOWS, FLAT)
SO_FAR = {
    "counter": Counter(2, TENTH, ADD, 90),
    "hybrid": HybridCounter(2, TENTH, ADD),
    "sums": SumCounter(2, TENTH, ADD, 90, -3, 9),
    "arrivals": ArrivalCounter(TENTH, ADD, 90, Arrivals(window=7)),
    "gaussian": GaussianCounter(2, SMALL, ADD, 90),
}
VIEWED = {
    "windows": FOREST,
    "windows of sums": SUMS,
    "gaussian windows": NORMAL,
    "and ever": WindowsAndEver(FOREST, Counter(2, TENTH, ADD, 90)),
    "sums and ever": SumsAndEver(SUMS, SumCounter(2, TENTH, ADD, 90, -3, 9)),
    "gaussian and ever": GaussianAndEver(NORMAL, GaussianCounter(2, SMALL, ADD, 90)),
    "cut off": CutOffCounter(TENTH, ADD, 90, Users(20, 7)),
    "ended": EndedCounts(2, TENTH, ADD, WINDOWS),
    "ended sums": EndedSums(2, TENTH, ADD, WINDOWS, -3, 9),
}


def width_of(answer: Answer, updates: int) -> float:
    """How far the noise is from 0 at most, with 0.95."""
    law = answer.law(answer.public(updates))
    return float(contrast_widths(law, NOTHING, 0.05).at(Fraction(0)))


@pytest.mark.parametrize("name", [*SO_FAR, *VIEWED])
def test_its_band_comes_out_of_the_law_of_an_answer(name: str) -> None:
    mechanism: Any = SO_FAR.get(name) or VIEWED[name]
    places = [None] if name in SO_FAR else range(2 + ("ever" in name))
    for place, updates in itertools.product(places, (1, 4, 5, 6, 7, 41, 90)):
        answer = Answer(mechanism, place)
        band = answer.band(answer.public(updates), 0.95)
        assert band - 0.5 <= width_of(answer, updates) <= 1.01 * band + 1.5, (place, updates)


def test_another_window_or_time_has_another_law() -> None:
    ever = VIEWED["and ever"]
    widths = [width_of(Answer(ever, place), 90) for place in range(3)]
    assert len(set(widths)) == 3
    assert width_of(Answer(SO_FAR["counter"]), 90) > width_of(Answer(SO_FAR["counter"]), 1)
    assert Answer(SO_FAR["counter"]).law(0) == NOTHING


def test_widths_are_those_of_the_tick_and_kept() -> None:
    above, below = Answer(SO_FAR["sums"]), Answer(SO_FAR["arrivals"])
    contrasts = Contrasts(above, below, 0.95)
    laws = [each.law(each.public(9)) for each in (above, below)]
    assert contrasts(8) == contrast_widths(laws[0], laws[1], 1 - 0.95)
    assert contrasts(8) is contrasts(8)
    assert contrasts(8) != contrasts(9)
    near = Contrasts(above, below, 0.95, Fraction(2))
    assert near(8) == contrast_widths(laws[0], laws[1], 1 - 0.95, Fraction(2)) != contrasts(8)


def test_of_gaussian_counts_the_roundings_inside_are_a_part() -> None:
    counter = GaussianCounter(1, Fraction(2), ADD, 5_000)
    drift = counter.lattice.drift(4_000)
    assert drift > 0
    assert Answer(counter).law(4_000).rest == 0.5 + drift


def test_what_decides_has_no_law_of_its_own() -> None:
    hss = HSS(2, None, TENTH, TENTH, TENTH, ADD, 90)
    with pytest.raises(NotDerivable, match="noise of HSS depends on the mechanism's own decisions"):
        Answer(hss).law((1, 2))
