"""Every mechanism passes the published suite; a new mechanism is one line in `CASES`."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import pytest
from unit.mechanisms.test_kinds import labelled_mechanisms

from stream_dp.core.composition import ConcurrentComposition
from stream_dp.core.neighbors import Neighbors, Users, UserShape
from stream_dp.core.row_relations import Arrivals
from stream_dp.mechanisms.hss.hss import HSS, GaussianHSS
from stream_dp.mechanisms.hss.per_bin_hss import PerBinHSS
from stream_dp.mechanisms.hss.sparse_vector import MAXIMUM, ColumnsAbove, Largest, SparseVector, Sum
from stream_dp.mechanisms.linear.arrival_counter import ArrivalCounter, CutOffCounter
from stream_dp.mechanisms.linear.counter import (
    Counter,
    HandOverCounter,
    HybridCounter,
    SeparateCounters,
    SumCounter,
)
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
    best_decays,
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
from stream_dp.mechanisms.papers import (
    GaussianPaperHSS,
    NoisyQuantity,
    PaperHSS,
    PaperSparseVector,
)
from stream_dp.mechanisms.quantiles.bucket_windows import (
    UNTOLD,
    RankLevels,
    RankWindow,
    TumblingQuantiles,
)
from stream_dp.mechanisms.quantiles.value_tree import Over, SlidingQuantiles, ValueLevels, ValueTree
from stream_dp.mechanisms.watches.block import WatchTerms
from stream_dp.mechanisms.watches.kinds import (
    Alerts,
    CountWatchers,
    Monitor,
    SumMonitor,
    WindowAlerts,
)
from stream_dp.testing.conformance import TICKS, Case, Check, checks_of

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
ONE, HALF, EIGHTH, FIFTIETH = Fraction(1), Fraction(1, 2), Fraction(1, 8), Fraction(1, 50)
TWO, FOUR, MANY = Fraction(2), Fraction(4), Fraction(60)
LEVELS = ForestShape((3, 2), (HALF, Fraction(1, 4), Fraction(1, 4)))
AMOUNTS = -3, 60
OF_USERS = UserShape(Users(6), 2, 3)
SO_FAR: dict[str, Any] = {"counts": True}
EVER: dict[str, Any] = {"windows": (1, 6, 1_000)}
AT = (HALF, Fraction(9, 10))


def _same(mechanism: Any) -> Any:
    return mechanism


def case(kind: type[Any], *own: Any, column: tuple[Any, ...] = (), **facts: Any) -> Case:
    """The case of a mechanism with these parameters; `column` are those of one of its columns."""
    return Case(
        name=f"{kind.__name__} {' '.join(map(str, own))}"[:90],
        make=lambda: kind(*own),
        horizon=getattr(kind(*own), "horizon", None),
        column=(lambda: kind(*column)) if column else None,
        **facts,
    )


def counter(
    kind: type[Any], width: int, relation: Neighbors, *more: Any, epsilon: Fraction = ONE
) -> Case:
    """The case of a counter, whose columns are counters alone."""
    column = (1, epsilon, relation, *more[:1])
    return case(kind, width, epsilon, relation, *more, column=column, **SO_FAR)


def over(name: str, make: Callable[[ConcurrentComposition], Any], *touched: type) -> Case:
    """The case of a composite: one event reaches one part of these types."""
    return Case(
        name=name,
        make=lambda: make(ConcurrentComposition()),
        composite=make,
        touches=tuple((kind, 1) for kind in touched),
    )


def composite(quantity: Any, relation: Neighbors, ones: int = 1, gaussian: bool = False) -> Case:
    """The case of an HSS of three columns, or of four for lists, that closes several intervals in a few ticks."""

    def make(composition: ConcurrentComposition) -> HSS:
        width = 3 + (ones > 1)
        more: Any = (None, ones, composition)
        if gaussian:
            shares = Fraction(3), Fraction(3)
            return GaussianHSS(width, quantity, *shares, relation, TICKS, *more, rho=TWO)
        return HSS(width, quantity, TWO, TWO, TWO, relation, TICKS, Fraction(2, 5), *more[1:])

    kind = GaussianCounter if gaussian else HandOverCounter
    name = f"{'Gaussian' * gaussian}HSS {quantity} {relation} {ones}"
    return over(name, make, SparseVector, kind)


def paper(quantity: Any, gaussian: bool = False) -> Case:
    def make(composition: ConcurrentComposition) -> PaperHSS:
        own = 3, quantity, MANY, TICKS
        if gaussian:
            return GaussianPaperHSS(*own, composition=composition, rho=Fraction(5))
        return PaperHSS(*own, composition=composition)

    parts = PaperSparseVector, NoisyQuantity, GaussianCounter if gaussian else HandOverCounter
    return over(f"{'Gaussian' * gaussian}PaperHSS {quantity}", make, *parts)


def per_bin(relation: Neighbors, horizon: int | None) -> Case:
    return over(
        f"PerBinHSS {relation} {horizon}",
        lambda parts: PerBinHSS(3, FOUR, FOUR, relation, horizon, composition=parts),
        CountWatchers,
        SeparateCounters,
    )


def sparse(offset: tuple[int, ...], threshold: int, relation: Neighbors, quantity: Any) -> Case:
    own = len(offset), ONE, ONE, relation, offset, quantity
    return case(SparseVector, *own, threshold=threshold)


def monitor(width: int, relation: Neighbors, **terms: Any) -> Case:
    watches = (WatchTerms(**terms),) * width
    own = width, ONE, relation, watches
    return case(Monitor, *own, column=(1, ONE, relation, watches[:1]))


def totals(
    inner: Any, horizon: int | None, kind: type[UserSums] | type[SharedSums] = UserSums
) -> Case:
    return Case(
        name=f"{kind.__name__} {type(inner).__name__}",
        make=lambda: kind(inner, 9, Users(3, 4)),
        horizon=horizon,
        counts=horizon is not None,
        signed=True,  # negative rows are refused by nobody, and made by nothing
    )


def distinct(relation: Neighbors, window: int | None, horizon: int | None) -> Case:
    own = ONE, relation, horizon, Arrivals(window)
    return Case(
        name=f"ArrivalCounter {relation} {window} {horizon}",
        make=lambda: ArrivalCounter(*own),
        horizon=horizon if window is None else None,
        counts=window is None,
    )


def cut_off(window: int | None, horizon: int | None) -> Case:
    return Case(
        name=f"CutOffCounter {window} {horizon}",
        make=lambda: CutOffCounter(ONE, ADD, horizon, Users(20, window)),
        horizon=horizon if window is None else None,
        counts=window is None,
    )


def with_ever(horizon: int | None) -> Iterator[Case]:
    counts = HybridCounter(3, ONE, ADD) if horizon is None else Counter(3, ONE, ADD, horizon)
    sums, normal = (3, ONE, REPLACE), (3, EIGHTH, ADD)
    for kind, forest, so_far, signed in (
        (WindowsAndEver, WindowForest(3, ONE, ADD, (1, 6), LEVELS), counts, False),
        (
            SumsAndEver,
            SumForest(*sums, (1, 6), LEVELS, *AMOUNTS),
            SumCounter(*sums, horizon, *AMOUNTS),
            True,
        ),
        (
            GaussianAndEver,
            GaussianForest(*normal, (1, 6), LEVELS),
            GaussianCounter(*normal, horizon),
            False,
        ),
    ):
        made = case(kind, forest, so_far, signed=signed, **EVER)
        yield replace(made, name=f"{kind.__name__} {horizon}", horizon=horizon)


def correlated(width: int, horizon: int | None, ones: int = 1) -> Case:
    """The case of windows that are differences of one Gaussian counter's answers; with the count so far."""
    decays = best_decays((1, 6), True, horizon)

    def made(columns: int) -> CorrelatedWindows:
        counter = GaussianCounter(columns, EIGHTH, ADD, horizon, ones, decays=decays)
        return CorrelatedWindows(counter, (1, 6), ever=True)

    return Case(
        name=f"CorrelatedWindows {width} {horizon} {ones}",
        make=lambda: made(width),
        horizon=horizon,
        **EVER,
    )


def means() -> Iterator[Case]:
    for relation, horizon in ((ADD, TICKS), (REPLACE, None)):
        own = 3, ONE, relation
        counts = Counter(*own, horizon) if horizon else HybridCounter(*own)
        made = case(SumsAndCounts, SumCounter(*own, horizon, *AMOUNTS), counts, **SO_FAR)
        yield replace(made, name=f"SumsAndCounts {relation}", horizon=horizon)
    windows = 2, ONE, REPLACE, (1, 7), LEVELS
    made = case(
        SumsAndCounts, SumForest(*windows, *AMOUNTS), WindowForest(*windows), windows=(1, 7)
    )
    yield replace(made, name="SumsAndCounts of windows")
    ended = 2, ONE, REPLACE, (2, 5)
    made = case(SumsAndCounts, EndedSums(*ended, *AMOUNTS), EndedCounts(*ended))
    yield replace(made, name="SumsAndCounts of windows that end")
    ended = 2, ONE, ADD, (2, 5)
    within: list[tuple[Any, Any]] = [
        (EndedSums(*ended, 0, 1), EndedCounts(*ended)),
        (SumCounter(2, ONE, ADD, TICKS, 0, 1), Counter(2, ONE, ADD, TICKS)),
    ]
    for inner, counted in within:
        so_far = SO_FAR if isinstance(inner, SumCounter) else {}
        made = case(MeansWithinTotal, SharedSums(inner, 9, Users(3, 4)), counted, **so_far)
        yield replace(
            made,
            name=f"MeansWithinTotal {type(inner).__name__}",
            horizon=TICKS if so_far else None,
        )


def value_trees() -> Iterator[Case]:
    """The cases of trees over five values and an entry without one, and of quantiles that are read from them."""
    nodes, single = WindowForest(7, ONE, REPLACE, (1, 6), LEVELS, 2), Counter(5, ONE, ADD, TICKS)
    both = WindowsAndEver(nodes, HybridCounter(7, ONE, REPLACE, 2))
    counted: list[tuple[Over, int]] = [(nodes, 3), (single, 5), (both, 3)]
    for counts, arity in counted:
        tree, horizon = (
            ValueTree(ValueLevels(5, arity), counts, 1),
            TICKS if counts is single else None,
        )
        name = type(counts).__name__
        yield Case(name=f"ValueTree {name}", make=partial(_same, tree), horizon=horizon)
        quantiles = SlidingQuantiles(tree, AT, Fraction(19, 20))
        yield Case(name=f"SlidingQuantiles {name}", make=partial(_same, quantiles), horizon=horizon)
    hops = SlidingQuantiles(ValueTree(ValueLevels(5, 3), both, 1, 3), AT, Fraction(19, 20))
    for made in (hops.tree, hops):
        yield Case(name=f"{type(made).__name__} hops", make=partial(_same, made))
    ranks = RankLevels(5, 300)
    for relation, hop in ((ADD, 1), (REPLACE, 3)):
        window = RankWindow(5, TWO, relation, 2, ranks)
        own = SlidingQuantiles(ValueTree(ranks, window, 1, hop), AT, Fraction(19, 20))
        for each in (window, own.tree, own):
            yield Case(name=f"{type(each).__name__} ranks {hop}", make=partial(_same, each))


TOLD = (WatchTerms(40, 2, rearm=False), WatchTerms(9, tick=True))
SUMS_TOLD = (WatchTerms(-5, 2, below=True, window=3), WatchTerms(9, tick=True))
CASES = [
    counter(Counter, 1, ADD, TICKS),
    counter(Counter, 3, REPLACE, 100),
    counter(Counter, 4, ADD, 40, 3),
    counter(GaussianCounter, 1, ADD, TICKS, epsilon=FIFTIETH),
    counter(GaussianCounter, 4, REPLACE, 40, epsilon=FIFTIETH),
    counter(GaussianCounter, 5, ADD, None, 3, epsilon=FIFTIETH),
    counter(HybridCounter, 4, REPLACE),
    counter(HandOverCounter, 4, REPLACE),
    case(SumCounter, 1, ONE, ADD, TICKS, *AMOUNTS, signed=True, **SO_FAR),
    case(SumCounter, 4, ONE, REPLACE, None, *AMOUNTS, signed=True, **SO_FAR),
    case(WindowForest, 3, ONE, ADD, (1,), FLAT, column=(1, ONE, ADD, (1,), FLAT), windows=(1,)),
    case(WindowForest, 3, ONE, ADD, (1, 3, 8), LEVELS, windows=(1, 3, 8)),
    case(GaussianForest, 4, EIGHTH, REPLACE, (1, 7), LEVELS, windows=(1, 7)),
    case(GaussianForest, 2, EIGHTH, ADD, (1, 7), LEVELS, 1, OF_USERS, windows=(1, 7)),
    case(GaussianCounter, 2, FIFTIETH, ADD, TICKS, 1, False, OF_USERS, **SO_FAR),
    case(SumForest, 4, ONE, REPLACE, (1, 7), LEVELS, *AMOUNTS, windows=(1, 7), signed=True),
    *with_ever(TICKS),
    *with_ever(None),
    correlated(1, TICKS),
    correlated(3, None, 2),
    counter(NestedCounter, 2, ADD, LEVELS),
    case(NestedWindows, NestedCounter(3, ONE, REPLACE, LEVELS, 2), (1, 6), True, **EVER),
    *means(),
    distinct(ADD, None, TICKS),
    distinct(REPLACE, None, None),
    distinct(ADD, 3, None),
    distinct(REPLACE, 5, TICKS),
    cut_off(None, TICKS),
    cut_off(3, None),
    case(EndedCounts, 3, ONE, ADD, (1,)),
    case(EndedCounts, 3, ONE, REPLACE, (3, 5), 2),
    case(EndedSums, 2, ONE, REPLACE, (3,), *AMOUNTS, signed=True),
    case(RunningWindows, (Counter(3, ONE / 2, REPLACE, 2, 2), Counter(3, ONE / 2, REPLACE, 5, 2))),
    case(RunningWindows, (SumCounter(2, ONE, REPLACE, 3, *AMOUNTS),), signed=True),
    case(EndedArrivals, ONE, ADD, Arrivals(3, ended=True)),
    case(EndedArrivals, ONE, REPLACE, Arrivals(1, ended=True)),
    totals(SumCounter(2, ONE, ADD, TICKS, 0, 1), TICKS),
    totals(SumCounter(2, ONE, ADD, TICKS, 0, 1), TICKS, SharedSums),
    totals(SumForest(2, ONE, ADD, (1, 7), LEVELS, 0, 1), None),
    totals(EndedSums(2, ONE, ADD, (3,), 0, 1), None),
    totals(RunningWindows((SumCounter(2, ONE, ADD, 3, 0, 1),)), None),
    case(TumblingQuantiles, 5, ONE, ADD, (1,), AT, untold=UNTOLD),
    case(TumblingQuantiles, 5, ONE, REPLACE, (3, 5), AT, 1, untold=UNTOLD),
    case(TumblingQuantiles, 5, ONE, ADD, (2, 3), AT, 1, True, untold=UNTOLD),
    *value_trees(),
    case(Alerts, 4, ONE, REPLACE, 40, column=(1, ONE, REPLACE, 40)),
    case(Alerts, 4, ONE, ADD, 90, 3),
    monitor(4, ADD, threshold=40, tick=True),
    monitor(2, REPLACE, threshold=9, window=2, rearm=False),
    case(Monitor, 5, ONE, ADD, TOLD, 2, ONE),
    case(SumMonitor, 4, ONE, REPLACE, SUMS_TOLD, -9, 60, 2, ONE, signed=True),
    case(
        WindowAlerts, 4, ONE, REPLACE, (WatchTerms(40, 4, window=3),), 2,
        column=(1, ONE, REPLACE, (WatchTerms(40, window=3),)),
    ),
    sparse((0,), 400, ADD, MAXIMUM),
    sparse((5, 0, 2), 150, REPLACE, MAXIMUM),
    sparse((5, 0, 2), 150, ADD, Largest(2)),
    sparse((5, 0, 2), 600, REPLACE, Sum()),
    sparse((0, 0, 0), 2, ADD, ColumnsAbove(60)),
    Case(
        name="PaperSparseVector",
        make=lambda: PaperSparseVector(2, ONE, ONE, REPLACE, (3, 0), MAXIMUM, 2),
        threshold=200,
    ),
    case(NoisyQuantity, 2, ONE, REPLACE, (0, 0), Sum(), 2),
    composite(None, ADD),
    composite(None, REPLACE),
    composite(None, ADD, ones=3),
    composite(None, REPLACE, ones=3),
    composite(MAXIMUM, REPLACE),
    composite(Largest(2), REPLACE),
    composite(Sum(), REPLACE),
    composite(ColumnsAbove(25), ADD),
    composite(None, REPLACE, gaussian=True),
    composite(None, ADD, ones=3, gaussian=True),
    composite(MAXIMUM, REPLACE, gaussian=True),
    composite(Largest(2), ADD, gaussian=True),
    paper(MAXIMUM),
    paper(Largest(2)),
    paper(MAXIMUM, gaussian=True),
    per_bin(ADD, TICKS),
    per_bin(REPLACE, None),
]  # fmt: skip


ELSEWHERE = {"CountWatchers", "LocalProtocol", "MultiSparseVector", "SeparateCounters"}
"""Mechanisms that answer other messages than updates and queries, and have tests of their own."""


def test_every_mechanism_has_a_case() -> None:
    made = {type(case.make()) for case in CASES}
    assert {each.__name__ for each in labelled_mechanisms() - made} == ELSEWHERE


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
