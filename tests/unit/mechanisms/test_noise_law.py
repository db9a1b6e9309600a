"""The law of the noise in answers: of each mechanism whose noise is added, its own band comes out of it.

Twins: the law of another window, and of another number of updates, says another band.
"""

from fractions import Fraction
from typing import Any

import pytest

from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.core.row_relations import Arrivals
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.hss.hss import HSS
from stream_dp.mechanisms.linear.arrival_counter import ArrivalCounter, CutOffCounter
from stream_dp.mechanisms.linear.counter import Counter, HybridCounter
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.linear.noisy_forest import FLAT
from stream_dp.mechanisms.linear.sum_counter import SumCounter
from stream_dp.mechanisms.linear.window_forest import GaussianForest, SumForest, WindowForest
from stream_dp.mechanisms.linear.windows_and_ever import (
    GaussianAndEver,
    SumsAndEver,
    WindowsAndEver,
)
from stream_dp.mechanisms.noise_law import NOTHING, contrast_widths
from stream_dp.mechanisms.serving import Answer, Contrasts

ADD, TENTH, SMALL = Neighbors.ADD_REMOVE, Fraction(1, 10), Fraction(1, 500)
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
}


def width_of(answer: Answer, updates: int) -> float:
    """How far the noise is from 0 at most, with 0.95."""
    law = answer.law(answer.public(updates))
    return float(contrast_widths(law, NOTHING, 0.05).at(Fraction(0)))


@pytest.mark.parametrize("updates", [4, 5, 41, 90])
@pytest.mark.parametrize("name", SO_FAR)
def test_its_band_comes_out_of_the_law_of_an_answer(name: str, updates: int) -> None:
    mechanism: Any = SO_FAR[name]
    band = mechanism.band(mechanism.public(updates, None), 0.95)
    assert band - 0.5 <= width_of(Answer(mechanism), updates) <= 1.01 * band + 1.5


@pytest.mark.parametrize("updates", [1, 4, 5, 6, 7, 41, 90])
@pytest.mark.parametrize("name", VIEWED)
def test_and_that_of_each_window(name: str, updates: int) -> None:
    mechanism: Any = VIEWED[name]
    for place in range(2 + ("ever" in name)):
        public = mechanism.view_public(place, updates, None)
        band = mechanism.view_band(place, public, 0.95)
        assert band - 0.5 <= width_of(Answer(mechanism, place), updates) <= 1.01 * band + 1.5


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
    with pytest.raises(NotDerivable, match="noise of HSS depends on what it has decided"):
        Answer(hss).law((1, 2))
