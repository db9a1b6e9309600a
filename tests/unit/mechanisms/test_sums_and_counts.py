"""Sums beside counts: what one record changes, by trying every content; the loss of the real noises on it, exactly.

Independent of the code: contents are those of `oracles.mean_contents`, and a difference costs what it costs each half:
every unit shifts one noise of scale s by one, in each level.
"""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from oracles.mean_contents import Row, pairs
from unit.mechanisms.broken_means import ScaleOfCounts

from stream_dp.core.guarantee import PureDP
from stream_dp.core.mechanism import Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_relations import HalvedRows
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.noisy_forest import ForestShape
from stream_dp.mechanisms.linear.sum_counter import SumCounter
from stream_dp.mechanisms.linear.sums_and_counts import SumsAndCounts, sums_share
from stream_dp.mechanisms.linear.window_forest import SumForest, WindowForest
from stream_dp.mechanisms.linear.windows_and_ever import SumsAndEver, WindowsAndEver
from stream_dp.mechanisms.serving import derived

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
ONE, TWO = Fraction(1), Fraction(2)
SHAPE = ForestShape((2,), (ONE / 2, ONE / 2))
SETTINGS = [
    (keys, ones, low, high)
    for keys in (1, 2, 3)
    for ones in (1, 2)
    for low, high in ((0, 1), (0, 4), (7, 10), (-9, -6), (-2, 2))
]


def built(
    relation: Neighbors, setting: tuple[int, ...], kind: type[SumForest] = SumForest
) -> SumsAndCounts:
    """Windows of one tick and of two, and so far: 3 units of epsilon for sums, 2 for counts."""
    keys, ones, low, high = setting
    middle = (low + high) // 2
    amounts = low - middle, high - middle
    sums = SumsAndEver(
        kind(keys, TWO, relation, (1, 2), SHAPE, *amounts, ones),
        SumCounter(keys, ONE, relation, 5, *amounts, ones),
    )
    counts = WindowsAndEver(
        WindowForest(keys, ONE, relation, (1, 2), SHAPE, ones),
        Counter(keys, ONE, relation, 5, ones),
    )
    return SumsAndCounts(sums, counts)


def loss(both: Any, pair: tuple[Row, Row]) -> Fraction:
    """What this difference in one tick costs."""
    keys = both.sums.width
    added, counted = (
        sum(abs(a - b) for a, b in zip(left, right, strict=True))
        for left, right in zip(*((row[:keys], row[keys:]) for row in pair), strict=True)
    )
    tree, trees = both.counts.ever.tree, both.sums.ever.trees
    sums = [ONE / s for s in both.sums.forest.scales] + [t.shape.height / t.scale for t in trees]
    counts = [ONE / s for s in both.counts.forest.scales] + [tree.shape.height / tree.scale]
    return Fraction(added * sum(sums) + counted * sum(counts))


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_no_record_costs_more_than_is_claimed_and_the_worst_as_much(relation: Neighbors) -> None:
    """Under replace with one key never both at once: a changed amount changes no count."""
    for setting in SETTINGS:
        both, found = built(relation, setting), pairs(relation, *setting)
        assert both.guarantee.measure == PureDP(Fraction(5))
        assert derived(both, "it").guarantee == both.guarantee
        worst = max(loss(both, pair) for pair in found)
        assert worst <= 5
        if relation is ADD or (setting[:2] == (2, 1) and (setting[2] + setting[3]) % 2 == 0):
            assert worst == 5, setting


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_the_relation_takes_every_record_and_not_two(relation: Neighbors) -> None:
    for setting in SETTINGS:
        both, found = built(relation, setting), pairs(relation, *setting)
        rows = both.rows.relation(relation)
        assert isinstance(rows, HalvedRows)
        for left, right in found:
            assert rows.accept(np.array(left), np.array(right)) is not None
            assert both.takes(Update(np.array(left)))
        nothing = np.zeros(both.width, np.int64)
        beyond, twice = nothing.copy(), nothing.copy()
        beyond[0] = both.sums.rows.l1 + 1
        twice[setting[0]] = 2
        after = rows.accept(nothing, np.array(found[-1][1] if any(found[-1][1]) else found[-1][0]))
        assert rows.accept(nothing, beyond) is None
        assert rows.accept(nothing, twice) is None
        assert after is not None
        assert (
            after.accept(nothing, np.array(next(p for pair in found for p in pair if any(p))))
            is None
        )
        assert rows.accept(nothing[1:], nothing[1:]) is None
        assert not both.takes(Update(-twice))


def test_twins_lose_more_than_they_claim() -> None:
    setting = (1, 1, 3, 8)
    assert max(loss(built(ADD, setting, ScaleOfCounts), pair) for pair in pairs(ADD, *setting)) > 7
    forgetful = pairs(ADD, *setting, centred=False)
    assert max(loss(built(ADD, setting), pair) for pair in forgetful) > 8


def test_sums_with_too_little_noise_are_not_derived() -> None:
    both = SumsAndCounts(
        ScaleOfCounts(1, TWO, ADD, (1, 2), SHAPE, -3, 3), WindowForest(1, ONE, ADD, (1, 2), SHAPE)
    )
    with pytest.raises(NotDerivable):
        derived(both, "it")


def test_the_share_is_the_best_of_twenty() -> None:
    """By hand, of the mean square error over the clamp; its neighbours are worse."""
    for l1, touched, half in ((120, 1, 120), (240, 1, 120), (240, 2, 120), (3, 5, 3)):
        best = sums_share(l1, touched, Fraction(half))

        def error(share: float, l1: int = l1, touched: int = touched, half: int = half) -> float:
            return (l1 / share) ** 2 + (touched * half / (1 - share)) ** 2 / 3

        assert error(float(best)) <= min(error(float(best) + 0.05), error(float(best) - 0.05))
        right = 1 / (1 + (touched * half / l1) ** (2 / 3) * 3 ** (-1 / 3))
        assert abs(float(best) - right) <= 0.05
