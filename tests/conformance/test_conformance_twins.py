"""The suite can fail: each check catches mechanisms that break its rule, and passes a right one."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from conformance import broken_composites as composites
from conformance import broken_counters as counters

from stream_dp.core.composition import ConcurrentComposition
from stream_dp.core.mechanism import Mechanism
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import TaintError
from stream_dp.mechanisms.hss.hss import HSS
from stream_dp.mechanisms.hss.per_bin_hss import PerBinHSS
from stream_dp.mechanisms.hss.sparse_vector import SparseVector
from stream_dp.mechanisms.linear.counter import HandOverCounter
from stream_dp.testing import conformance as suite
from stream_dp.testing.conformance import Case, Check, NotConforming, checks_of


def counting(make: Callable[..., Mechanism[Any]], **more: Any) -> Case:
    """The case of a counter among `broken_counters`."""
    return Case(
        name=str(make), make=make, counts=True, codec=counters.COUNT, column=lambda: make(1), **more
    )


@pytest.mark.parametrize("check", checks_of(counting(counters.Right)), ids=lambda c: c.__name__)
def test_a_right_counter_passes(check: Check) -> None:
    check(counting(counters.Right))


BROKEN: list[tuple[Callable[..., Mechanism[Any]], Check]] = [
    (counters.MutatesTheState, suite.keeps_nothing),
    (counters.MutatesTheRow, suite.keeps_nothing),
    (counters.KeepsTheRow, suite.keeps_nothing),
    (counters.HandsOutItsState, suite.keeps_nothing),
    (counters.ForgetsOnRestore, suite.restores),
    (counters.SwallowsBadRows, suite.refuses),
    (counters.DrawsBeforeItRefuses, suite.refuses),
    (counters.TakesNegatives, suite.refuses),
    (counters.CountsSilence, suite.silence_is_zeros),
    (counters.CapsBursts, suite.counts_exactly),
    (counters.DrawsPerEvent, suite.draws_ignore_the_data),
    (counters.NoiseOnEachQuestion, suite.queries_change_nothing),
    (counters.MixesColumns, suite.block_is_columns),
]


@pytest.mark.parametrize(("make", "check"), BROKEN, ids=lambda x: x.__name__)
def test_a_broken_counter_is_caught(make: Callable[..., Mechanism[Any]], check: Check) -> None:
    with pytest.raises(NotConforming):
        check(counting(make))


def test_a_horizon_that_is_not_kept_is_caught() -> None:
    with pytest.raises(NotConforming, match="not refused"):
        suite.refuses(counting(counters.Right, horizon=20))
    with pytest.raises(NotConforming, match="within the horizon"):
        suite.refuses(counting(counters.EndsEarly, horizon=20))


def test_continuing_after_the_crossing_is_caught() -> None:
    own = 2, Fraction(1), Fraction(1), Neighbors.ADD_REMOVE, (0, 0)
    case = Case(name="never halts", make=lambda: composites.NeverHalts(*own), threshold=100)
    with pytest.raises(NotConforming, match="not refused"):
        suite.refuses(case)


def over(kind: type[HSS], relation: Neighbors = Neighbors.ADD_REMOVE, ones: int = 1) -> Case:
    """The case of a composite among `broken_composites`."""

    def make(composition: ConcurrentComposition) -> HSS:
        shares = (Fraction(2),) * 3
        made = kind(3, None, *shares, relation, 14, ones=ones, composition=composition)
        if isinstance(made, composites.FeedsTheCrossingTickTwice):
            object.__setattr__(made, "last", composites.Last())
        return made

    return Case(
        name=kind.__name__,
        make=lambda: make(ConcurrentComposition()),
        composite=make,
        touches=((SparseVector, 1), (HandOverCounter, 1)),
    )


@pytest.mark.parametrize("check", checks_of(over(HSS)), ids=lambda c: c.__name__)
def test_a_right_composite_passes(check: Check) -> None:
    check(over(HSS))


@pytest.mark.parametrize(
    "kind",
    [
        composites.PeeksAtPending, composites.SkipsEmptyRows, composites.AnswersWithPending,
        composites.FormatsARow, composites.PrivateThreshold, composites.PrivateDestination,
        composites.PrivateOffset, composites.HaltsByContent,
    ],
)  # fmt: skip
def test_private_control_flow_is_caught_by_taint(kind: type[HSS]) -> None:
    with pytest.raises(TaintError):
        suite.taint(over(kind))


@pytest.mark.parametrize(
    "kind",
    [
        composites.FeedsTheCrossingTickTwice, composites.KeepsPending, composites.DoublesARow,
        composites.CountsEveryTick, composites.ContinuesAfterCrossing, composites.HaltsByContent,
        composites.PrivateThreshold,
    ],
)  # fmt: skip
def test_inputs_that_are_no_neighbours_are_caught(kind: type[HSS]) -> None:
    with pytest.raises(NotConforming):
        suite.neighbours_stay_neighbours(over(kind))


@pytest.mark.parametrize("relation", [Neighbors.ADD_REMOVE, Neighbors.REPLACE])
def test_a_part_that_is_made_for_one_entry_of_a_list_is_caught(relation: Neighbors) -> None:
    with pytest.raises(NotConforming, match="not neighbours"):
        suite.neighbours_stay_neighbours(over(composites.OneEntryInside, relation, ones=2))


@pytest.mark.parametrize("kind", [composites.ReadsItsPart, composites.ReadsItsWatcher])
@pytest.mark.parametrize("check", [suite.taint, suite.neighbours_stay_neighbours, suite.restores])
def test_a_composite_cannot_read_its_parts(kind: type[HSS], check: Check) -> None:
    with pytest.raises(TaintError, match="sealed"):
        check(over(kind))


def test_a_composite_that_breaks_the_seal_is_caught() -> None:
    with pytest.raises(TaintError, match="opened the state"):
        suite.taint(over(composites.OpensItsPart))
    with pytest.raises(NotConforming, match="what is answered"):
        suite.neighbours_stay_neighbours(over(composites.OpensItsPart))


def test_a_question_from_an_earlier_state_is_caught() -> None:
    with pytest.raises(TaintError, match="used again"):
        suite.taint(over(composites.AsksAgain))


def test_noise_of_ones_own_is_caught() -> None:
    with pytest.raises(TaintError, match="other noise"):
        suite.taint(over(composites.BringsItsOwnNoise))


def test_an_alias_of_the_release_is_caught() -> None:
    with pytest.raises(NotConforming, match="alias"):
        suite.keeps_nothing(over(composites.AliasesTheRelease))


def bin_by_bin(kind: type[PerBinHSS]) -> Case:
    """The case of a composite bin by bin."""

    def make(composition: ConcurrentComposition) -> PerBinHSS:
        shares = Fraction(4), Fraction(4)
        return kind(3, *shares, Neighbors.ADD_REMOVE, 14, composition=composition)

    return Case(name=kind.__name__, make=lambda: make(ConcurrentComposition()), composite=make)


@pytest.mark.parametrize("kind", [composites.ClosesByContent, composites.SkipsEmptyRowsOfBins])
def test_private_control_flow_bin_by_bin_is_caught_by_taint(kind: type[PerBinHSS]) -> None:
    with pytest.raises(TaintError):
        suite.taint(bin_by_bin(kind))


@pytest.mark.parametrize("kind", [composites.WatchesTwice, composites.SkipsEmptyRowsOfBins])
def test_inputs_bin_by_bin_that_are_no_neighbours_are_caught(kind: type[PerBinHSS]) -> None:
    with pytest.raises(NotConforming):
        suite.neighbours_stay_neighbours(bin_by_bin(kind))
