"""Counts of the nodes over values: integers of any size, their band, and of which trees they are proven."""

from fractions import Fraction

import numpy as np
import pytest
from unit.mechanisms import broken_value_trees as broken

from stream_dp.core.mechanism import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import NotDerivable, RejectedMessage
from stream_dp.mechanisms.checks import LARGEST
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.noisy_forest import FLAT, ForestShape
from stream_dp.mechanisms.linear.window_forest import WindowForest
from stream_dp.mechanisms.linear.windows_and_ever import WindowsAndEver
from stream_dp.mechanisms.quantiles.sliding_quantiles import SlidingQuantiles
from stream_dp.mechanisms.quantiles.value_tree import Over, ValueLevels, ValueTree
from stream_dp.mechanisms.serving import derived
from stream_dp.testing.noise import ZeroNoise

ADD, ONE, HALF = Neighbors.ADD_REMOVE, Fraction(1), Fraction(1, 2)
WIDE = ValueLevels(34, 17)


def forest(levels: ValueLevels, windows: tuple[int, ...]) -> WindowForest:
    """Counts of the nodes over windows, of two levels of ticks where there are several."""
    shape = ForestShape((2,), (HALF, HALF)) if len(windows) > 1 else FLAT
    return WindowForest(levels.nodes, ONE, ADD, windows, shape, levels.height)


COUNTER = Counter(WIDE.nodes, HALF, ADD, 20, WIDE.height)
OVER: list[Over] = [
    forest(WIDE, (3,)),
    forest(WIDE, (3, 8)),
    COUNTER,
    WindowsAndEver(forest(WIDE, (5, 2)), COUNTER),
]


@pytest.mark.parametrize("large", [(1 << 53) + 1, (1 << 59) + 1, LARGEST])
def test_nodes_count_whole_numbers_of_any_size(large: int) -> None:
    tree, noise = ValueTree(WIDE, forest(WIDE, (2,))), ZeroNoise()
    row = np.zeros(34, dtype=np.int64)
    row[20] = large
    state, _ = tree.step(tree.init(noise), Update(row), noise)
    _, answer = tree.step(state, Query(), noise)
    assert answer is not None
    assert answer.tolist() == [*row.tolist(), 0, large]


def test_a_node_of_more_than_a_row_may_count_is_a_bad_row_and_none_that_begins_anew() -> None:
    """17 times 2^60 is 2^60 in 64 bits, and 16 times is 0."""
    tree, noise = ValueTree(WIDE, forest(WIDE, (2,))), ZeroNoise()
    for many in (16, 17):
        row = np.array([LARGEST] * many + [0] * (34 - many), dtype=np.int64)
        with pytest.raises(RejectedMessage, match=r"counts from 0 to 2\^60"):
            tree.step(tree.init(noise), Update(row), noise)


@pytest.mark.parametrize("counts", OVER, ids=lambda each: type(each).__name__)
def test_its_band_is_that_of_what_counts_the_nodes(counts: Over) -> None:
    tree = ValueTree(WIDE, counts)
    for updates in (1, 2, 7, 9, 20):
        assert tree.band(updates, 0.95) == counts.band(updates, 0.95)


def test_what_is_made_of_a_tree_is_not_proven_of_another_tree() -> None:
    """Two objects deep: the twin counts an event in two nodes of a level."""
    levels = broken.CountedTwice(11, 4)
    tree = ValueTree(levels, forest(levels, (2,)))
    with pytest.raises(NotDerivable, match="another class"):
        derived(SlidingQuantiles(tree, (HALF,), Fraction(19, 20)), "it")


@pytest.mark.parametrize(
    "counts",
    [
        Counter(
            WIDE.nodes, HALF, ADD, 20, WIDE.height - 1
        ),  # an event sets more entries than it is made for
        Counter(WIDE.nodes, HALF, ADD, 20),
        Counter(WIDE.nodes + 1, HALF, ADD, 20, WIDE.height),  # rows of another tree
        Counter(WIDE.nodes - 1, HALF, ADD, 20, WIDE.height),
    ],
)
def test_counts_that_are_made_for_other_rows_are_refused(counts: Counter) -> None:
    with pytest.raises(NotDerivable, match="an event is counted in 2 of 36 nodes"):
        ValueTree(WIDE, counts)
