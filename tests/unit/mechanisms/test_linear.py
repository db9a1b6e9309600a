"""Linear mechanisms of one law are one: on the same draws they answer, draw and state the same, bit for bit.

So what is shown exactly of a tree of counts (test_tree_exact, test_hybrid_exact) and of a forest of counts
(test_forest_exact) holds of sums, at what an event changes in all, and of first ticks, at what it changes in time.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_relations import Arrivals
from stream_dp.mechanisms.linear.arrival_counter import ArrivalCounter
from stream_dp.mechanisms.linear.counter import Counter, HandOverCounter, HybridCounter
from stream_dp.mechanisms.linear.noisy_forest import FLAT, ForestShape
from stream_dp.mechanisms.linear.sum_counter import SumCounter
from stream_dp.mechanisms.linear.window_forest import SumForest, WindowForest
from stream_dp.testing.noise import Draw, ScriptedNoise, SeededNoise

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
BIG = 1 << 20
EPSILON, TICKS, WINDOWS = Fraction(2, 3), 40, (1, 4, 9)
PAIRS = ForestShape((2,), (Fraction(1, 3), Fraction(2, 3)))
ROWS = [(ADD, 1, 1), (ADD, 4, 2), (REPLACE, 1, 1), (REPLACE, 4, 1), (REPLACE, 5, 2)]


def played(
    mechanism: Any, rows: IntArray, noise: SeededNoise | ScriptedNoise | None = None
) -> tuple[list[list[int]], Sequence[Draw]]:
    """The answers after each row, and all that was drawn; by default from one seed."""
    noise, answers = noise or SeededNoise(11), []
    state = mechanism.init(noise)
    for row in rows:
        state, _ = mechanism.step(state, Update(row), noise)
        _, answer = mechanism.step(state, Query(), noise)
        answers.append(answer.tolist())
    return answers, noise.calls


def require_same(left: Any, right: Any) -> None:
    """Fail where two mechanisms answer, draw or state otherwise."""
    rows = np.random.default_rng(5).integers(0, 9, (TICKS, left.width))
    assert played(left, rows) == played(right, rows)
    for updates in (0, 1, 9, TICKS):
        public = left.public(updates, None)
        assert left.noise(public) == right.noise(public)
        assert left.band(public, 0.95) == right.band(public, 0.95)


def pairs_of(relation: Neighbors, width: int, ones: int) -> dict[str, tuple[Any, Any]]:
    """Pairs of mechanisms of one law."""
    own, amounts = (width, EPSILON, relation), (-3, 9)
    l1 = SumCounter(*own, TICKS, *amounts, ones).l1
    unit = (width, EPSILON / l1, ADD)
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


@pytest.mark.parametrize("rows", ROWS, ids=str)
@pytest.mark.parametrize("name", pairs_of(ADD, 1, 1))
def test_mechanisms_of_one_law_are_one(name: str, rows: tuple[Neighbors, int, int]) -> None:
    require_same(*pairs_of(*rows)[name])


@pytest.mark.parametrize("horizon", [TICKS, None])
def test_first_ticks_are_counted_with_the_noise_of_what_they_change(horizon: int | None) -> None:
    distinct = ArrivalCounter(EPSILON, REPLACE, horizon, Arrivals())
    share = EPSILON / distinct.rows.changes
    require_same(
        distinct,
        HybridCounter(1, share, REPLACE)
        if horizon is None
        else Counter(1, share, REPLACE, horizon),
    )


@pytest.mark.parametrize(
    "other",
    [
        SumCounter(2, EPSILON, ADD, TICKS, 0, 2), SumCounter(2, EPSILON, ADD, TICKS, 0, 1, 2),
        SumCounter(2, EPSILON, REPLACE, TICKS, 0, 1), SumCounter(2, EPSILON, ADD, TICKS + 40, 0, 1),
        SumCounter(2, EPSILON, ADD, None, 0, 1),
    ],
)  # fmt: skip
def test_another_law_answers_otherwise(other: SumCounter) -> None:
    with pytest.raises(AssertionError):
        require_same(Counter(2, EPSILON, ADD, TICKS), other)


def weights_of(counter: Any, updates: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The real answers after each update, per unit of each noise that is drawn, and the scales of these noises."""
    rows, silent = np.zeros((updates, 1), dtype=np.int64), ScriptedNoise([0] * 2_000)
    played(counter, rows, silent)
    scales = [float(call.scale) for call in silent.calls for _ in range(call.size)]
    columns = []
    for place in range(len(scales)):
        script = [0] * len(scales)
        script[place] = BIG
        columns.append(np.array(played(counter, rows, ScriptedNoise(script))[0])[:, 0] / BIG)
    return np.array(columns).T, np.array(scales)


@pytest.mark.parametrize("kind", [HybridCounter, HandOverCounter])
def test_the_stated_noise_is_that_of_the_streaming_code(kind: type[Any]) -> None:
    """Around the ends of epochs and of the first tree, which the terms must know of to the update."""
    counter = kind(1, EPSILON, ADD)
    matrix, scales = weights_of(counter, 70)
    drawn = 2 * (matrix**2) @ scales**2
    stated = [counter.noise(updates).spread for updates in range(1, 71)]
    np.testing.assert_allclose(stated, drawn, rtol=1e-3)
