"""Bands tell nothing: no private part of a state moves one, and none is even looked at.

A band is published with its value and costs nothing only as long as it is a function of what is public already.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from unit.mechanisms.private_parts import Band, check_band, private_parts, states
from unit.mechanisms.test_kinds import labelled_mechanisms

from stream_dp.core.mechanism import IntArray
from stream_dp.core.neighbors import Neighbors, Users, UserShape
from stream_dp.core.row_relations import Arrivals
from stream_dp.core.sealed import inside_of
from stream_dp.errors import TaintError
from stream_dp.mechanisms.hss.hss import HSS, GaussianHSS
from stream_dp.mechanisms.hss.per_bin_hss import PerBinHSS
from stream_dp.mechanisms.hss.sparse_vector import MAXIMUM, ColumnsAbove, Largest, Quantity
from stream_dp.mechanisms.linear.arrival_counter import ArrivalCounter, CutOffCounter
from stream_dp.mechanisms.linear.counter import Counter, HandOverCounter, HybridCounter, SumCounter
from stream_dp.mechanisms.linear.ended_windows import (
    EndedArrivals,
    EndedCounts,
    EndedSums,
    RunningWindows,
)
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.linear.joint_windows import (
    CorrelatedWindows,
    NestedCounter,
    NestedWindows,
)
from stream_dp.mechanisms.linear.noisy_forest import FLAT, ForestShape
from stream_dp.mechanisms.linear.pairs import (
    GaussianAndEver,
    MeansWithinTotal,
    SharedSums,
    SumsAndCounts,
    SumsAndEver,
    UserSums,
    WindowsAndEver,
)
from stream_dp.mechanisms.linear.window_forest import GaussianForest, SumForest, WindowForest
from stream_dp.mechanisms.papers import GaussianPaperHSS, PaperHSS
from stream_dp.mechanisms.quantiles.bucket_windows import (
    RankLevels,
    RankWindow,
    TumblingQuantiles,
)
from stream_dp.mechanisms.quantiles.value_tree import SlidingQuantiles, ValueLevels, ValueTree
from stream_dp.mechanisms.serving import Bands, Lags
from stream_dp.mechanisms.watches.block import WatchTerms
from stream_dp.mechanisms.watches.kinds import Alerts, Monitor, SumMonitor, WindowAlerts
from stream_dp.testing.noise import SeededNoise

TICKS, WIDTH = 12, 3
ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
HALF, SHARES = Fraction(1, 2), (Fraction(2), Fraction(1), Fraction(2))

COUNTER = Counter(WIDTH, HALF, ADD, TICKS)
HYBRID = HybridCounter(WIDTH, HALF, REPLACE)
ALERTS = Alerts(WIDTH, HALF, ADD, 20)
COUNTS_HSS = HSS(WIDTH, None, *SHARES, ADD, TICKS)
ENDLESS_HSS = HSS(WIDTH, None, *SHARES, REPLACE, None)
MAXIMUM_ADDED = HSS(WIDTH, MAXIMUM, *SHARES, ADD, None)
MAXIMUM_REPLACED = HSS(WIDTH, MAXIMUM, *SHARES, REPLACE, TICKS)
FOREST = WindowForest(WIDTH, HALF, ADD, (1, 6), ForestShape((2,), (HALF, HALF)))

BINS = PerBinHSS(WIDTH, Fraction(2), Fraction(2), ADD, TICKS)
ENDLESS_BINS = PerBinHSS(WIDTH, Fraction(2), Fraction(2), REPLACE, None)
HEARD = Monitor(WIDTH, HALF, ADD, (WatchTerms(20, 2), WatchTerms(9, tick=True)), value_epsilon=HALF)
VALUES = ValueTree(ValueLevels(3, 3), WindowForest(3, HALF, REPLACE, (1, 4), FLAT))
RANKS = ValueTree(RankLevels(3, 300), RankWindow(3, HALF, ADD, 2, RankLevels(3, 300)))

MECHANISMS: list[Any] = [
    COUNTER,
    Counter(WIDTH, HALF, REPLACE, 2_000),
    HYBRID,
    ALERTS,
    COUNTS_HSS,
    ENDLESS_HSS,
    MAXIMUM_ADDED,
    MAXIMUM_REPLACED,
    HSS(WIDTH, Largest(2), *SHARES, REPLACE, None, ones=2),
    HSS(WIDTH, ColumnsAbove(100), *SHARES, ADD, None),
    PaperHSS(WIDTH, MAXIMUM, Fraction(20), TICKS),
    PaperHSS(WIDTH, Largest(2), Fraction(20), None),
    FOREST,
    WindowForest(WIDTH, HALF, REPLACE, (1, 4), FLAT),
    WindowsAndEver(FOREST, HybridCounter(WIDTH, HALF, ADD)),
    GaussianHSS(WIDTH, None, *SHARES[:2], ADD, TICKS, rho=HALF),
    GaussianHSS(WIDTH, MAXIMUM, *SHARES[:2], REPLACE, None, ones=2, rho=HALF),
    GaussianPaperHSS(WIDTH, MAXIMUM, Fraction(20), TICKS, rho=HALF),
    SumForest(WIDTH, HALF, REPLACE, (1, 4), FLAT, -3, 8),
    GaussianForest(WIDTH, HALF, REPLACE, (1, 4), FLAT),
    GaussianForest(WIDTH, HALF, ADD, (1, 4), FLAT, 1, UserShape(Users(20), 1, 9)),
    GaussianAndEver(
        GaussianForest(WIDTH, HALF, ADD, (1, 4), FLAT), GaussianCounter(WIDTH, HALF, ADD, TICKS)
    ),
    NestedCounter(WIDTH, HALF, ADD, FLAT),
    NestedWindows(NestedCounter(WIDTH, HALF, ADD, FLAT), (1, 4), ever=True),
    CorrelatedWindows(GaussianCounter(WIDTH, HALF, ADD, TICKS), (1, 4), ever=True),
    SumsAndEver(
        SumForest(WIDTH, HALF, ADD, (1, 4), FLAT, 0, 8), SumCounter(WIDTH, HALF, ADD, None, 0, 8)
    ),
    SumsAndCounts(SumCounter(WIDTH, HALF, ADD, TICKS, -3, 8), Counter(WIDTH, HALF, ADD, TICKS)),
    SumsAndCounts(
        SumForest(WIDTH, HALF, REPLACE, (1, 4), FLAT, -3, 8),
        WindowForest(WIDTH, HALF, REPLACE, (1, 4), FLAT),
    ),
    SumsAndCounts(
        EndedSums(WIDTH, HALF, ADD, (2, 3), -3, 8), EndedCounts(WIDTH, HALF, ADD, (2, 3))
    ),
    SumCounter(WIDTH, HALF, ADD, TICKS, -3, 8),
    SumCounter(WIDTH, HALF, REPLACE, None, 0, 8),
    TumblingQuantiles(WIDTH, HALF, ADD, (2, 3), (HALF,)),
    TumblingQuantiles(WIDTH, HALF, ADD, (2, 3), (HALF / 2, HALF), 0, True),
    EndedCounts(WIDTH, HALF, REPLACE, (2, 3)),
    EndedSums(WIDTH, HALF, ADD, (2, 3), -3, 8),
    RunningWindows((Counter(WIDTH, HALF / 2, REPLACE, 2), Counter(WIDTH, HALF / 2, REPLACE, 3))),
    RunningWindows((SumCounter(WIDTH, HALF, ADD, 3, -3, 8),)),
    SumsAndCounts(
        RunningWindows((SumCounter(WIDTH, HALF, ADD, 2, -3, 8),)),
        RunningWindows((Counter(WIDTH, HALF, ADD, 2),)),
    ),
    EndedArrivals(HALF, ADD, Arrivals(3, ended=True)),
    UserSums(SumCounter(WIDTH, HALF, ADD, TICKS, 0, 1), 9, Users(20, 5)),
    UserSums(SumForest(WIDTH, HALF, ADD, (1, 4), FLAT, 0, 1), 9, Users(20)),
    SharedSums(SumCounter(WIDTH, HALF, ADD, TICKS, 0, 1), 9, Users(20, 5)),
    MeansWithinTotal(
        SharedSums(EndedSums(WIDTH, HALF, ADD, (2, 3), 0, 1), 9, Users(20, 5)),
        EndedCounts(WIDTH, HALF, ADD, (2, 3)),
    ),
    CutOffCounter(HALF, ADD, TICKS, Users(20, 5)),
    CutOffCounter(HALF, ADD, None, Users(20)),
    VALUES,
    SlidingQuantiles(VALUES, (HALF,), Fraction(19, 20)),
    RANKS.counts,
    RANKS,
    SlidingQuantiles(RANKS, (HALF,), Fraction(19, 20)),
    replace(VALUES, hop=5),
    SlidingQuantiles(replace(VALUES, hop=5), (HALF,), Fraction(19, 20)),
    ArrivalCounter(HALF, ADD, TICKS, Arrivals(5)),
    ArrivalCounter(HALF, REPLACE, None, Arrivals()),
    HandOverCounter(WIDTH, HALF, ADD),
    GaussianCounter(WIDTH, HALF, REPLACE, TICKS),
    GaussianCounter(WIDTH, HALF, ADD, None),
    GaussianCounter(WIDTH, HALF, ADD, None, shape=UserShape(Users(20), 1, 9)),
    WindowAlerts(WIDTH, HALF, REPLACE, (WatchTerms(9, 3, below=True, window=2),)),
    SumMonitor(WIDTH, HALF, ADD, (WatchTerms(20, 2, window=3), WatchTerms(9)), -3, 8),
    SumMonitor(WIDTH, HALF, ADD, (WatchTerms(9, 3),), -3, 8, 2, HALF),
    Monitor(WIDTH, HALF, ADD, (WatchTerms(20, window=3), WatchTerms(9, 2, below=True, window=2))),
    HEARD,
    BINS,
    ENDLESS_BINS,
]
UNPUBLISHED = {
    "CountWatchers", "LocalProtocol", "MultiSparseVector", "NoisyQuantity", "PaperSparseVector", "SeparateCounters",
    "SparseVector",
}  # fmt: skip
"""Parts of other mechanisms, and papers' protocols: no release has a band of theirs."""


def test_every_mechanism_that_publishes_stands_here() -> None:
    assert {
        each.__name__ for each in labelled_mechanisms() - {*map(type, MECHANISMS)}
    } == UNPUBLISHED


def published(mechanism: Any) -> Band:
    """The bands that a mechanism's releases carry; one made anew for each state remembers nothing."""
    return lambda tick, state: Bands(mechanism, 0.95)(tick, state)


def rows(burst: int, width: int = WIDTH) -> list[IntArray]:
    return [
        np.array([(burst if t % 4 == 2 else 1) * (i + t) % (burst + 2) for i in range(width)])
        for t in range(TICKS)
    ]


def check(mechanism: Any, band: Band) -> None:
    """The band of every state of a run that closes some intervals and fires some alerts."""
    for tick, state in states(mechanism, rows(90, mechanism.width), SeededNoise(3)):
        check_band(band, tick, state)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
def test_a_band_depends_on_public_parts_only(mechanism: Any) -> None:
    check(mechanism, published(mechanism))


@pytest.mark.parametrize(
    "mechanism",
    [each for each in MECHANISMS if isinstance(each, Lags)],
    ids=lambda m: type(m).__name__,
)
def test_the_ends_beside_a_band_depend_on_public_parts_only(mechanism: Any) -> None:
    def ends(tick: int, state: Any) -> int:
        return hash(tuple(side.tobytes() for side in mechanism.sides(state, 0.95)))

    check(mechanism, ends)


def test_every_mechanism_has_private_parts() -> None:
    """Or the test above would be empty."""
    for mechanism in MECHANISMS:
        *_, (_, state) = states(mechanism, rows(90, mechanism.width), SeededNoise(3))
        assert len(list(private_parts(state))) >= 1
        if isinstance(mechanism, HSS | PaperHSS):
            assert state.intervals > 1
            assert state.pending.any()


class Deaf(SeededNoise):
    """Thresholds so high that nothing is ever above them."""

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        return np.full(size, 1 << 30 if scale == 1 / SHARES[0] else 0, dtype=np.int64)


@pytest.mark.parametrize("quantity", [None, MAXIMUM, ColumnsAbove(40)])
def test_two_streams_with_the_same_answers_have_the_same_bands(quantity: Quantity | None) -> None:
    """Reached, not made: an interval that goes on holds whatever the data say, and the band does not tell how much."""
    mechanism = HSS(WIDTH, quantity, *SHARES, ADD, None)
    bands = []
    for burst in (0, 5_000):
        run = list(states(mechanism, rows(burst), Deaf(1)))
        assert {state.intervals for _, state in run} == {0}
        assert bool(run[-1][1].pending.max() > 5_000) == bool(burst)
        bands.append([Bands(mechanism, 0.95)(tick, state) for tick, state in run])
    assert bands[0] == bands[1]


def seen_in(state: Any) -> Any:
    return inside_of(state.parts.live[0].state)


PEEKS: dict[str, tuple[Any, Callable[[Any], int]]] = {
    "counts": (COUNTER, lambda state: int(state.total.sum() > 100)),
    "node noise": (COUNTER, lambda state: int(state.tree.windows[0][0, 0] > 3)),
    "epoch noise": (HYBRID, lambda state: int(state.inner.windows[0].max() > 100)),
    "open node": (FOREST, lambda state: int(state.open.max() > 50)),
    "noisy ticks": (FOREST, lambda state: int(state.sums[0][-1][-1].max() > 90)),
    "surplus": (FOREST, lambda state: sum(int(row[-1].max()) for row in state.surpluses[0])),
    "alert counts": (ALERTS, lambda state: int(state.count.max())),
    "alert lift": (ALERTS, lambda state: int(state.lift[1] > 5)),
    "noisy tick": (HEARD, lambda state: int(state.heard.max() > 9)),
    "pending": (COUNTS_HSS, lambda state: int(state.pending.max() > 50)),
    "pending of one": (MAXIMUM_ADDED, lambda state: int(state.pending[2] % 2)),
    "counter in HSS": (ENDLESS_HSS, lambda state: int(seen_in(state).total.sum() > 50)),
    "lift in HSS": (
        MAXIMUM_REPLACED,
        lambda state: int(inside_of(state.parts.live[state.watcher].state).lift),
    ),
    "count in a bin": (
        BINS,
        lambda state: int(inside_of(state.parts.live[0].state).count[1]),
    ),
    "base of a bin": (
        ENDLESS_BINS,
        lambda state: int(inside_of(state.parts.live[1].state).base[0] > 2),
    ),
    "looks away": (COUNTS_HSS, lambda state: 0 * int(state.pending.sum())),
}


@pytest.mark.parametrize("twin", PEEKS)
def test_a_band_that_looks_at_private_data_is_caught(twin: str) -> None:
    mechanism, peek = PEEKS[twin]
    right = published(mechanism)
    with pytest.raises((AssertionError, TaintError)):
        check(mechanism, lambda tick, state: right(tick, state) + peek(state))


def test_only_equal_mechanisms_share_bands_and_at_one_confidence() -> None:
    counts: Any = RANKS.counts
    bands = Bands.of(counts, 0.95)
    assert Bands.of(replace(counts), 0.95) is bands
    for other, sure in ((counts, 0.99), (replace(counts, rho=HALF / 2), 0.95)):
        assert Bands.of(other, sure)(1, None) == Bands(other, sure)(1, None) != bands(1, None)
