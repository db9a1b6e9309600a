"""Every mechanism passes the published suite; a new mechanism is one line in `CASES`."""

from dataclasses import replace
from fractions import Fraction

import pytest

from stream_dp.core.composition import ConcurrentComposition
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.core.row_relations import Arrivals
from stream_dp.mechanisms.hss.gaussian_hss import GaussianHSS, GaussianPaperHSS
from stream_dp.mechanisms.hss.hss import HSS, GaussianInner, Inner
from stream_dp.mechanisms.hss.per_bin_hss import PerBinHSS
from stream_dp.mechanisms.hss.quantities import MAXIMUM, ColumnsAbove, Largest, Quantity, Sum
from stream_dp.mechanisms.hss.sparse_vector import SparseVector
from stream_dp.mechanisms.linear.arrival_counter import ArrivalCounter, CutOffCounter
from stream_dp.mechanisms.linear.counter import Counter, HandOverCounter, HybridCounter
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.linear.noisy_forest import FLAT, ForestShape
from stream_dp.mechanisms.linear.separate_counters import SeparateCounters
from stream_dp.mechanisms.linear.sum_counter import SumCounter
from stream_dp.mechanisms.linear.sums_and_counts import SumsAndCounts
from stream_dp.mechanisms.linear.window_forest import GaussianForest, SumForest, WindowForest
from stream_dp.mechanisms.linear.windows_and_ever import (
    GaussianAndEver,
    SumsAndEver,
    WindowsAndEver,
)
from stream_dp.mechanisms.papers.paper_hss import NoisyQuantity, PaperHSS, PaperSparseVector
from stream_dp.mechanisms.quantiles.sliding_quantiles import SlidingQuantiles
from stream_dp.mechanisms.quantiles.tumbling_quantiles import UNTOLD, TumblingQuantiles
from stream_dp.mechanisms.quantiles.value_tree import Over, ValueLevels, ValueTree
from stream_dp.mechanisms.watches.kinds import (
    Alerts,
    CountWatchers,
    Monitor,
    SumMonitor,
    WindowAlerts,
)
from stream_dp.mechanisms.watches.monitor_state import WatchTerms
from stream_dp.testing.conformance import TICKS, Case, Check, checks_of

ONE = Fraction(1)
ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
LEVELS = ForestShape((3, 2), (ONE / 2, ONE / 4, ONE / 4))


def hss(
    quantity: Quantity | None, relation: Neighbors, composition: ConcurrentComposition | None = None
) -> HSS:
    """A histogram or maximum of three columns that closes several intervals in a few ticks."""
    shares, over = (Fraction(2),) * 3, composition or ConcurrentComposition()
    return HSS(3, quantity, *shares, relation, TICKS, composition=over)


def counter(width: int, horizon: int, relation: Neighbors) -> Case:
    """The case of a counter."""
    return Case(
        name=f"Counter {width} {relation}",
        make=lambda: Counter(width, ONE, relation, horizon),
        horizon=horizon,
        counts=True,
        column=lambda: Counter(1, ONE, relation, horizon),
    )


def sums(width: int, horizon: int | None, relation: Neighbors) -> Case:
    """The case of a sum counter; a column of its own has the noise that all together are made for."""
    return Case(
        name=f"SumCounter {width} {horizon} {relation}",
        make=lambda: SumCounter(width, ONE, relation, horizon, -3, 60),
        horizon=horizon,
        counts=True,
        signed=True,
    )


def means(horizon: int | None, relation: Neighbors) -> Case:
    """The case of sums beside counts, so far."""

    def make() -> SumsAndCounts:
        counts = HybridCounter(3, ONE, relation)
        added = SumCounter(3, ONE, relation, horizon, -3, 60)
        return SumsAndCounts(added, Counter(3, ONE, relation, horizon) if horizon else counts)

    return Case(name=f"SumsAndCounts {horizon} {relation}", make=make, horizon=horizon, counts=True)


def means_over_windows(relation: Neighbors) -> Case:
    """The case of sums beside counts over windows."""
    windows = (1, 7)
    return Case(
        name=f"SumsAndCounts {windows} {relation}",
        make=lambda: SumsAndCounts(
            SumForest(2, ONE, relation, windows, LEVELS, -3, 60),
            WindowForest(2, ONE, relation, windows, LEVELS),
        ),
        windows=windows,
    )


def hybrid(width: int, relation: Neighbors) -> Case:
    """The case of a hybrid counter."""
    return Case(
        name=f"HybridCounter {width} {relation}",
        make=lambda: HybridCounter(width, ONE, relation),
        counts=True,
        column=lambda: HybridCounter(1, ONE, relation),
    )


def hand_over(width: int, relation: Neighbors) -> Case:
    """The case of a hand-over counter."""
    return Case(
        name=f"HandOverCounter {width} {relation}",
        make=lambda: HandOverCounter(width, ONE, relation),
        counts=True,
        column=lambda: HandOverCounter(1, ONE, relation),
    )


def gaussian(width: int, horizon: int | None, relation: Neighbors, ones: int = 1) -> Case:
    """The case of a Gaussian counter."""
    rho = Fraction(1, 50)
    return Case(
        name=f"GaussianCounter {width} {horizon} {relation}",
        make=lambda: GaussianCounter(width, rho, relation, horizon, ones),
        horizon=horizon,
        counts=True,
        column=lambda: GaussianCounter(1, rho, relation, horizon),
    )


def forest(
    width: int, relation: Neighbors, windows: tuple[int, ...], shape: ForestShape = FLAT
) -> Case:
    """The case of a forest of windows; several windows of a block are not those of its columns, one after the other."""
    alone = len(windows) == 1
    return Case(
        name=f"WindowForest {width} {relation} {windows}",
        make=lambda: WindowForest(width, ONE, relation, windows, shape),
        windows=windows,
        column=(lambda: WindowForest(1, ONE, relation, windows, shape)) if alone else None,
    )


def gaussian_forest(
    width: int, relation: Neighbors, windows: tuple[int, ...], shape: ForestShape = FLAT
) -> Case:
    """The case of a forest with Gaussian noise."""
    return Case(
        name=f"GaussianForest {width} {relation} {windows}",
        make=lambda: GaussianForest(width, ONE / 8, relation, windows, shape),
        windows=windows,
    )


def gaussian_with_ever(horizon: int | None) -> Case:
    """The case of windows with the count so far, in zCDP."""

    def make() -> GaussianAndEver:
        so_far = GaussianCounter(3, ONE / 8, ADD, horizon)
        return GaussianAndEver(GaussianForest(3, ONE / 8, ADD, (1, 6), LEVELS), so_far)

    name = f"GaussianAndEver {horizon}"
    return Case(name=name, make=make, horizon=horizon, windows=(1, 6, 1_000))


def with_ever(horizon: int | None) -> Case:
    """The case of windows with the count so far."""

    def make() -> WindowsAndEver:
        so_far = HybridCounter(3, ONE, ADD) if horizon is None else Counter(3, ONE, ADD, horizon)
        return WindowsAndEver(WindowForest(3, ONE, ADD, (1, 6), LEVELS), so_far)

    return Case(name=f"WindowsAndEver {horizon}", make=make, horizon=horizon, windows=(1, 6, 1_000))


def sum_forest(
    width: int, relation: Neighbors, windows: tuple[int, ...], shape: ForestShape = FLAT
) -> Case:
    """The case of a forest of sums; a column of its own has the noise that all together are made for."""
    return Case(
        name=f"SumForest {width} {relation} {windows}",
        make=lambda: SumForest(width, ONE, relation, windows, shape, -3, 60),
        windows=windows,
        signed=True,
    )


def sums_with_ever(horizon: int | None) -> Case:
    """The case of windows with the sum so far."""

    def make() -> SumsAndEver:
        so_far = SumCounter(3, ONE, REPLACE, horizon, -3, 60)
        return SumsAndEver(SumForest(3, ONE, REPLACE, (1, 6), LEVELS, -3, 60), so_far)

    return Case(
        name=f"SumsAndEver {horizon}",
        make=make,
        horizon=horizon,
        windows=(1, 6, 1_000),
        signed=True,
    )


def alerts(width: int, relation: Neighbors) -> Case:
    """The case of a block of alerts."""
    return Case(
        name=f"Alerts {width} {relation}",
        make=lambda: Alerts(width, ONE, relation, 40),
        column=lambda: Alerts(1, ONE, relation, 40),
    )


def monitor(width: int, relation: Neighbors, watch: WatchTerms) -> Case:
    """The case of a block of equal watches."""
    watches = tuple(replace(watch, places=1) for _ in range(width))
    return Case(
        name=f"Monitor {width} {relation} {watch}",
        make=lambda: Monitor(width, ONE, relation, watches),
        column=lambda: Monitor(1, ONE, relation, watches[:1]),
    )


def distinct(relation: Neighbors, window: int | None, horizon: int | None) -> Case:
    """The case of a counter of first ticks."""
    return Case(
        name=f"ArrivalCounter {relation} {window} {horizon}",
        make=lambda: ArrivalCounter(ONE, relation, horizon, Arrivals(window)),
        horizon=horizon if window is None else None,
        counts=window is None,
    )


def cut_off(window: int | None, horizon: int | None) -> Case:
    """The case of the counters of users who were active and who were cut off."""
    return Case(
        name=f"CutOffCounter {window} {horizon}",
        make=lambda: CutOffCounter(ONE, ADD, horizon, Users(20, window)),
        horizon=horizon if window is None else None,
        counts=window is None,
    )


def quantiles(relation: Neighbors, windows: tuple[int, ...], unranked: int = 0) -> Case:
    """The case of tumbling quantiles."""
    at = (Fraction(1, 2), Fraction(9, 10))
    return Case(
        name=f"TumblingQuantiles {relation} {windows}",
        make=lambda: TumblingQuantiles(5, ONE, relation, windows, at, unranked),
        untold=UNTOLD,
    )


def value_tree(counts: Over, arity: int) -> Case:
    """The case of a tree over five values, and of an entry without one."""
    levels = ValueLevels(5, arity)
    return Case(
        name=f"ValueTree {type(counts).__name__}",
        make=lambda: ValueTree(levels, counts, 1),
        horizon=counts.horizon if isinstance(counts, Counter) else None,
    )


def sliding_quantiles(counts: Over, arity: int) -> Case:
    """The case of quantiles that are read from such a tree."""
    at, tree = (Fraction(1, 2), Fraction(9, 10)), ValueTree(ValueLevels(5, arity), counts, 1)
    return Case(
        name=f"SlidingQuantiles {type(counts).__name__}",
        make=lambda: SlidingQuantiles(tree, at, Fraction(19, 20)),
        horizon=counts.horizon if isinstance(counts, Counter) else None,
    )


def sparse(
    offset: tuple[int, ...], threshold: int, relation: Neighbors, quantity: Quantity = MAXIMUM
) -> Case:
    """The case of a sparse vector instance."""
    return Case(
        name=f"SparseVector {len(offset)} {relation} {quantity}",
        make=lambda: SparseVector(len(offset), ONE, ONE, relation, offset, quantity),
        threshold=threshold,
    )


def composite(quantity: Quantity | None, relation: Neighbors) -> Case:
    """The case of an HSS."""
    return Case(
        name=f"HSS {quantity} {relation}",
        make=lambda: hss(quantity, relation),
        composite=lambda composition: hss(quantity, relation, composition),
        touches=((SparseVector, 1), (Inner, 1)),
    )


def paper(quantity: Quantity) -> Case:
    """The case of the paper's own HSS."""

    def make(composition: ConcurrentComposition) -> PaperHSS:
        return PaperHSS(3, quantity, Fraction(60), TICKS, composition=composition)

    return Case(
        name=f"PaperHSS {quantity}",
        make=lambda: make(ConcurrentComposition()),
        composite=make,
        touches=((PaperSparseVector, 1), (NoisyQuantity, 1), (Inner, 1)),
    )


def gaussian_composite(quantity: Quantity | None, relation: Neighbors, ones: int = 1) -> Case:
    """The case of an HSS with a Gaussian counter."""

    def make(composition: ConcurrentComposition) -> GaussianHSS:
        shares, rho = (Fraction(3), Fraction(3)), Fraction(2)
        return GaussianHSS(3, quantity, *shares, relation, TICKS, None, ones, composition, rho=rho)

    return Case(
        name=f"GaussianHSS {quantity} {relation} {ones}",
        make=lambda: make(ConcurrentComposition()),
        composite=make,
        touches=((SparseVector, 1), (GaussianInner, 1)),
    )


def gaussian_paper(quantity: Quantity) -> Case:
    """The case of the paper's own HSS with Gaussian counters."""

    def make(composition: ConcurrentComposition) -> GaussianPaperHSS:
        return GaussianPaperHSS(
            3, quantity, Fraction(60), TICKS, composition=composition, rho=Fraction(5)
        )

    return Case(
        name=f"GaussianPaperHSS {quantity}",
        make=lambda: make(ConcurrentComposition()),
        composite=make,
        touches=((PaperSparseVector, 1), (NoisyQuantity, 1), (GaussianInner, 1)),
    )


def per_bin(relation: Neighbors, horizon: int | None) -> Case:
    """The case of an HSS bin by bin."""

    def make(composition: ConcurrentComposition) -> PerBinHSS:
        shares = Fraction(4), Fraction(4)
        return PerBinHSS(3, *shares, relation, horizon, composition=composition)

    return Case(
        name=f"PerBinHSS {relation} {horizon}",
        make=lambda: make(ConcurrentComposition()),
        composite=make,
        touches=((CountWatchers, 1), (SeparateCounters, 1)),
    )


NODES = WindowForest(7, ONE, REPLACE, (1, 6), LEVELS, 2)
CASES = [
    counter(1, TICKS, ADD),
    counter(3, 100, REPLACE),
    gaussian(1, TICKS, ADD),
    gaussian(4, 40, REPLACE),
    gaussian(5, None, ADD, ones=3),
    hybrid(4, REPLACE),
    sums(1, TICKS, ADD),
    sums(4, None, REPLACE),
    hand_over(4, REPLACE),
    forest(1, ADD, (1,)),
    forest(3, ADD, (1, 3, 8), LEVELS),
    gaussian_forest(1, ADD, (1,)),
    gaussian_forest(4, REPLACE, (1, 7), LEVELS),
    gaussian_with_ever(TICKS),
    gaussian_with_ever(None),
    with_ever(TICKS),
    with_ever(None),
    sum_forest(4, REPLACE, (1, 7), LEVELS),
    sums_with_ever(TICKS),
    sums_with_ever(None),
    means(TICKS, ADD),
    means(None, REPLACE),
    means_over_windows(REPLACE),
    sparse((0,), 400, ADD),
    sparse((5, 0, 2), 150, REPLACE),
    sparse((5, 0, 2), 150, ADD, Largest(2)),
    sparse((5, 0, 2), 600, REPLACE, Sum()),
    sparse((0, 0, 0), 2, ADD, ColumnsAbove(60)),
    alerts(4, REPLACE),
    monitor(4, ADD, WatchTerms(40, tick=True)),
    Case(
        name="Monitor with counts",
        make=lambda: Monitor(
            5, ONE, ADD, (WatchTerms(40, 2, rearm=False), WatchTerms(9, tick=True)), 2, ONE
        ),
    ),
    Case(
        name="SumMonitor with sums told",
        make=lambda: SumMonitor(
            4,
            ONE,
            REPLACE,
            (WatchTerms(-5, 2, below=True, window=3), WatchTerms(9, tick=True)),
            -9,
            60,
            2,
            ONE,
        ),
        signed=True,
    ),
    monitor(2, REPLACE, WatchTerms(9, window=2, rearm=False)),
    Case(
        name="WindowAlerts",
        make=lambda: WindowAlerts(4, ONE, REPLACE, (WatchTerms(40, 4, window=3),), 2),
        column=lambda: WindowAlerts(1, ONE, REPLACE, (WatchTerms(40, window=3),)),
    ),
    composite(None, ADD),
    composite(None, REPLACE),
    composite(MAXIMUM, ADD),
    composite(MAXIMUM, REPLACE),
    composite(Largest(2), REPLACE),
    composite(Sum(), REPLACE),
    paper(MAXIMUM),
    paper(Largest(2)),
    gaussian_composite(None, ADD),
    gaussian_composite(None, REPLACE),
    gaussian_composite(None, ADD, ones=3),
    gaussian_composite(MAXIMUM, REPLACE),
    gaussian_composite(Largest(2), ADD),
    gaussian_paper(MAXIMUM),
    Case(name="NoisyQuantity", make=lambda: NoisyQuantity(2, ONE, REPLACE, (0, 0), Sum(), 2)),
    Case(
        name="PaperSparseVector",
        make=lambda: PaperSparseVector.at(2, ONE, REPLACE, (3, 0), MAXIMUM, 2),
        threshold=200,
    ),
    composite(ColumnsAbove(25), ADD),
    distinct(ADD, None, TICKS),
    distinct(REPLACE, None, None),
    distinct(ADD, 3, None),
    distinct(REPLACE, 5, TICKS),
    cut_off(None, TICKS),
    cut_off(None, None),
    cut_off(3, None),
    quantiles(ADD, (1,)),
    quantiles(REPLACE, (3, 5), 1),
    value_tree(NODES, 3),
    value_tree(Counter(5, ONE, ADD, TICKS), 5),
    sliding_quantiles(NODES, 3),
    sliding_quantiles(WindowsAndEver(NODES, HybridCounter(7, ONE, REPLACE, 2)), 3),
    sliding_quantiles(Counter(5, ONE, ADD, TICKS), 5),
    per_bin(ADD, TICKS),
    per_bin(REPLACE, None),
]


@pytest.mark.parametrize(
    ("case", "check"),
    [
        pytest.param(case, check, id=f"{case.name}-{check.__name__}")
        for case in CASES
        for check in checks_of(case)
    ],
)
def test_conforms(case: Case, check: Check) -> None:
    check(case)
