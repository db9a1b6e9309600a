"""Linear mechanisms of one law are one: on the same draws they answer, draw and state the same, bit for bit.

So what is shown exactly of trees of counts (test_counters_exact) and of a forest of counts (test_forest_exact) holds of
sums, at what an event changes in all, and of first ticks, at what it changes in time.
"""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from unit.mechanisms.shifted_noise import answers

from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_relations import Arrivals
from stream_dp.mechanisms.linear.arrival_counter import ArrivalCounter
from stream_dp.mechanisms.linear.counter import Counter, HybridCounter, SumCounter
from stream_dp.mechanisms.linear.noisy_forest import FLAT, ForestShape
from stream_dp.mechanisms.linear.window_forest import SumForest, WindowForest
from stream_dp.testing.noise import SeededNoise

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
EPSILON, TICKS, WINDOWS = Fraction(2, 3), 40, (1, 4, 9)
PAIRS = ForestShape((2,), (Fraction(1, 3), Fraction(2, 3)))
ROWS = [(ADD, 1, 1), (ADD, 4, 2), (REPLACE, 1, 1), (REPLACE, 4, 1), (REPLACE, 5, 2)]


def require_same(left: Any, right: Any) -> None:
    """Fail where two mechanisms answer, draw or state otherwise, from one seed."""
    rows = np.random.default_rng(5).integers(0, 9, (TICKS, left.width))
    noises = SeededNoise(11), SeededNoise(11)
    assert np.array_equal(answers(left, noises[0], rows), answers(right, noises[1], rows))
    assert noises[0].calls == noises[1].calls
    for updates in (0, 1, 9, TICKS):
        public = left.public(updates, None)
        assert left.noise(public) == right.noise(public)
        assert left.band(public, 0.95) == right.band(public, 0.95)


def pairs_of(relation: Neighbors, width: int, ones: int) -> dict[str, tuple[Any, Any]]:
    own, amounts = (width, EPSILON, relation), (-3, 9)
    unit = (width, EPSILON / SumCounter(*own, TICKS, *amounts, ones).l1, ADD)
    return {
        "counts": (Counter(*own, TICKS, ones), SumCounter(*own, TICKS, 0, 1, ones)),
        "endless counts": (HybridCounter(*own, ones), SumCounter(*own, None, 0, 1, ones)),
        "sums": (SumCounter(*own, TICKS, *amounts, ones), Counter(*unit, TICKS)),
        "endless sums": (SumCounter(*own, None, *amounts, ones), HybridCounter(*unit)),
        "windows of counts": (
            WindowForest(*own, WINDOWS, PAIRS, ones),
            SumForest(*own, WINDOWS, PAIRS, 0, 1, ones),
        ),
        "windows of sums": (
            SumForest(*own, WINDOWS, FLAT, *amounts, ones),
            WindowForest(*unit, WINDOWS, FLAT),
        ),
    }


@pytest.mark.parametrize("name", pairs_of(ADD, 1, 1))
def test_mechanisms_of_one_law_are_one(name: str) -> None:
    for rows in ROWS:
        require_same(*pairs_of(*rows)[name])


def test_first_ticks_are_counted_with_the_noise_of_what_they_change() -> None:
    share = EPSILON / ArrivalCounter(EPSILON, REPLACE, TICKS, Arrivals()).rows.changes
    for horizon, counter in (
        (TICKS, Counter(1, share, REPLACE, TICKS)), (None, HybridCounter(1, share, REPLACE)),
    ):  # fmt: skip
        require_same(ArrivalCounter(EPSILON, REPLACE, horizon, Arrivals()), counter)


@pytest.mark.parametrize(
    "other",
    [
        SumCounter(2, EPSILON, ADD, TICKS, 0, 2), SumCounter(2, EPSILON, ADD, TICKS, 0, 1, 2),
        SumCounter(2, EPSILON, REPLACE, TICKS, 0, 1), SumCounter(2, EPSILON, ADD, None, 0, 1),
    ],
)  # fmt: skip
def test_another_law_answers_otherwise(other: SumCounter) -> None:
    with pytest.raises(AssertionError):
        require_same(Counter(2, EPSILON, ADD, TICKS), other)
