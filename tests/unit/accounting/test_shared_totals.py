"""A ledger where series share a total of users' amounts, against every stream of a user; broken ones charge less."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from oracles.shared_totals import Running, worst

from stream_dp.accounting import ledger as ledgers
from stream_dp.accounting.amounts import UNITS
from stream_dp.accounting.derive import derive
from stream_dp.accounting.filters.filter import NOTHING, Entry
from stream_dp.accounting.filters.linear import PureFilter
from stream_dp.accounting.filters.optimal import OptimalFilter
from stream_dp.accounting.filters.squares import ZCDPFilter
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.loads import Loads
from stream_dp.accounting.rules.fixed import reached
from stream_dp.accounting.rules.groups import TOTAL, currency_of, in_currencies, seen_box
from stream_dp.accounting.situations import (
    Alive,
    Filtered,
    Fixed,
    OfUsers,
    SharedTotals,
    Ticks,
    UserTotals,
)
from stream_dp.accounting.subledgers import Subledgers
from stream_dp.core.box import EVERYTHING, Box
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import ZCDP, ApproxDP, Guarantee, Protected, PureDP
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.errors import BudgetRefused, NotDerivable, UsageError
from stream_dp.pipeline.derivations import Part, whole

ADD, CAP, MOST, WINDOW = Neighbors.ADD_REMOVE, 2, 2, 2
USERS = Users(CAP, WINDOW)
BOXES = {
    "A": Box((("kind", frozenset("A")),)),
    "B": Box((("kind", frozenset("B")),)),
    "AB": EVERYTHING,
}
LARGE = PureFilter.of(Fraction(1000))
Alone = tuple[Running, ...]


NAMED = "", "pieces"


def derived(what: str, price: Fraction | int, users: Users = USERS, of: int = 0) -> Derivation:
    """What a series of this kind costs, by the product's rules."""
    if what == "mean":
        half = Fraction(price) / 2
        both = derived("shared", half, users, of), derived("count", half, users)
        return derive(both, Fixed("mean"))
    parts = CAP if what == "count" else MOST
    leaf = Derivation("leaf", Guarantee(PureDP(Fraction(price, parts)), ADD), "leaf", "here")
    if what == "count":
        return derive((leaf,), OfUsers("count", users))
    if what == "own":
        return derive((leaf,), UserTotals(what, users, MOST))
    return derive((leaf,), SharedTotals(what, users, MOST, NAMED[of]))


def empty(users: Users = USERS) -> Ledger:
    return Ledger.under(LARGE, protected=Protected(ADD, users), shares=True)


def booked(every: Sequence[Running], users: Users = USERS) -> Fraction:
    """The least budget that would have admitted these, as they come and go."""
    ledger, most = empty(users), 0
    entries = [ledger.price(derived(s.what, s.price, users, s.of), BOXES[s.kinds]) for s in every]
    for tick in range(max(s.end for s in every) + 1):
        for entry, series in zip(entries, every, strict=True):
            if series.end == tick:
                ledger = ledger.halt(entry, tick)
        for entry, series in zip(entries, every, strict=True):
            if series.start == tick:
                asked = ledger.preview(entry, tick)
                most = max(most, asked.met.amount + asked.asked.amount)
                ledger = ledger.charge(entry, tick)
    assert ledger.peak.amount == most
    return Fraction(most, UNITS)


def run(
    what: str, kinds: str, start: int = 0, end: int = WINDOW, price: int = 4, of: int = 0
) -> Running:
    return Running(what, kinds, price, start, end, of)


def lost(every: Sequence[Running]) -> int:
    return worst(every, WINDOW, "AB", MOST, CAP, MOST)


MET: list[tuple[Alone, int]] = [
    ((run("shared", "A"), run("shared", "B")), 4),
    ((run("shared", "A"), run("shared", "AB")), 8),
    ((run("shared", "A", 0, 1), run("shared", "A", 1, 2)), 4),
    ((run("shared", "A", 0, 1), run("shared", "AB", 1, 2), run("shared", "B")), 8),
    ((run("count", "A"), run("count", "B")), 4),
    ((run("shared", "A"), run("shared", "B", of=1)), 8),
    ((run("shared", "A", 0, 1), run("shared", "A", 1, 2, of=1)), 8),
    (
        (
            run("shared", "A", 0, 1),
            run("shared", "B", 0, 1),
            run("shared", "A", 1, 2, of=1),
            run("shared", "B", 0, 2, of=1),
        ),
        8,
    ),
    ((run("mean", "A"),), 4),
    ((run("mean", "A"), run("mean", "B")), 4),
    ((run("mean", "A", 0, 1), run("mean", "AB", 1, 2)), 4),
]
MIXED: list[tuple[Alone, int]] = [
    ((run("shared", "A"), run("count", "B")), 8),
    ((run("count", "A", 0, 1), run("shared", "A", 1, 2)), 8),
    ((run("shared", "A", 0, 1), run("count", "B", 1, 2)), 8),
    ((run("count", "A", 0, 1), run("shared", "A", 0, 1), run("shared", "B", 1, 2, 8)), 12),
    (
        (
            run("count", "A", 0, 1),
            run("count", "B", 0, 1),
            run("shared", "A", 1, 2),
            run("shared", "B", 1, 2),
        ),
        8,
    ),
    ((run("mean", "A"), run("shared", "B", price=6), run("mean", "AB", 1, 2)), 12),
    ((run("mean", "A"), run("mean", "B", of=1)), 6),
    ((run("mean", "A", 0, 1), run("count", "B", 1, 2)), 6),
    ((run("count", "A"), run("shared", "AB"), run("shared", "B", of=1)), 12),
]


@pytest.mark.parametrize(("every", "price"), MET)
def test_of_one_currency_the_ledger_charges_what_a_user_loses(every: Alone, price: int) -> None:
    assert lost(every) == booked(every) == price


@pytest.mark.parametrize(("every", "price"), MIXED)
def test_currencies_add_up_in_a_whole_window(every: Alone, price: int) -> None:
    """Less one event's part, which the record with all the units cannot have besides."""
    assert booked(every) == price
    assert price - Fraction(4, CAP) <= lost(every) <= price
    assert lost(every) > 4


def some(random: Random, *, all_kinds: bool = False) -> Alone:
    """Series that come and go; of all kinds, also means and sums of a second amount."""
    series = []
    for _ in range(random.randint(1, 4)):
        start = random.randrange(WINDOW)
        end = random.randint(start + 1, WINDOW)
        whats = ["count", "shared", "mean"] if all_kinds else ["count", "shared"]
        what, kinds = random.choice(whats), random.choice(["A", "B", "AB"])
        price = random.choice([4, 8] if all_kinds else [2, 4, 6])
        of = random.randrange(2) if all_kinds and what != "count" else 0
        series.append(run(what, kinds, start, end, price, of))
    return tuple(series)


@pytest.mark.parametrize("seed", range(60))
def test_no_user_loses_more_than_the_ledger_charges(seed: int) -> None:
    every = some(Random(seed))
    price, most = booked(every), lost(every)
    assert most <= price
    if len({series.what for series in every}) == 1:
        assert most == price
    parts = tuple(derived(series.what, series.price) for series in every)
    alive = [Alive(series.start, series.end - 1) for series in every]
    loads = reached(parts, alive, [BOXES[series.kinds] for series in every], LARGE)
    assert Fraction(max(load.amount for load in loads), UNITS) == price


@pytest.mark.parametrize("seed", range(150))
def test_no_user_loses_more_by_means_and_a_second_total(seed: int) -> None:
    every = some(Random(seed), all_kinds=True)
    price = booked(every)
    assert lost(every) <= price
    parts = tuple(derived(series.what, series.price, of=series.of) for series in every)
    alive = [Alive(series.start, series.end - 1) for series in every]
    loads = reached(parts, alive, [BOXES[series.kinds] for series in every], LARGE)
    assert Fraction(max(load.amount for load in loads), UNITS) == price


def test_what_is_held_counts_until_the_window_ends() -> None:
    """And for ever where the cap has no window; of the same currency it is free at once."""
    for users, held in ((USERS, (True, False)), (Users(CAP), (True, True))):
        ledger = empty(users)
        count, shared = (ledger.price(derived(what, 4, users)) for what in ("count", "shared"))
        ledger = ledger.charge(count, 2).halt(count, 3)
        assert ledger.loads.around(count, 3) == NOTHING
        for start, counts in zip((3, 4), held, strict=True):
            assert (ledger.loads.around(shared, start) != NOTHING) == counts
        assert ledger.preview(shared).met == ledger.filter.cost(count)
    ledger = empty()
    count, shared = (ledger.price(derived(what, 4)) for what in ("count", "shared"))
    ended = ledger.charge(count, 0).halt(count, 2)  # with its window
    assert ended.loads.around(shared, 2) == NOTHING
    again = ended.charge(count, 2).charge(count, 2).halt(count, 3).halt(count, 3)
    assert again.loads.around(shared, 3).amount == 8 * UNITS


class Summed(Loads):
    """A twin: all currencies are one, so that their heaviest points need not add up."""

    def at(
        self, box: Any = EVERYTHING, search: Any = None, currency: str = "", start: Any = None
    ) -> Any:
        parts: dict[tuple[str, Box], Any] = {}
        for (_, b), part in self.local.items():
            parts["", b] = parts.get(("", b), NOTHING) + part
        one = Loads(self.filter, self.protected, False, self.everywhere, parts)
        return one.at(box) if search is None else one.at(box, search)


class FreeAtOnce(Loads):
    """A twin: a halt frees the open window for other currencies, too."""

    def _holding(self, currency: str, end: int) -> Any:
        return self.held


class OneTotalForgotten(Loads):
    """A twin: what is of the second total counts for nothing."""

    def _most(self, currency: str, tick: Any) -> Any:
        return NOTHING if currency == f"{TOTAL} of {NAMED[1]}" else super()._most(currency, tick)


TOTALS_APART, TOTALS_IN_TURN, MEANS = MET[5][0], MET[6][0], MIXED[-2][0]


@pytest.mark.parametrize(
    ("twin", "caught"),
    [
        (Summed, MIXED[0][0]),
        (Summed, TOTALS_APART),
        (Summed, MEANS),
        (FreeAtOnce, MIXED[1][0]),
        (FreeAtOnce, TOTALS_IN_TURN),
        (FreeAtOnce, MEANS),
        (OneTotalForgotten, tuple(reversed(TOTALS_APART))),
    ],
)
def test_broken_ledgers_charge_too_little(
    twin: Any, caught: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledgers, "Loads", twin)
    assert booked(caught) < lost(caught)


def test_totals_of_single_series_are_not_shared() -> None:
    """Each has a total of its own: two of them in disjoint boxes, or in turn, lose both; booked as shared it is too
    little, and the ledger books all of them.
    """
    apart = (run("own", "A"), run("own", "B"))
    in_turn = (run("own", "A", 0, 1), run("own", "A", 1, 2))
    for every in (apart, in_turn):
        shared = tuple(series._replace(what="shared") for series in every)
        assert lost(every) == 8 > booked(shared)
    assert booked(apart) == 8
    ledger = Subledgers.open(LARGE, {}, Protected(ADD, USERS), shares=True)
    with pytest.raises(BudgetRefused, match="for one event of a user"):
        ledger.price(derived("own", 4))
    assert ledger.price(derived("shared", 4), box=BOXES["A"]).currency == TOTAL


def test_a_refusal_of_a_mean_is_of_the_whole_and_says_what_fits() -> None:
    """Of what is left for it where other records' counts, or sums, are the heaviest: half of it is of each kind."""
    ledger = Ledger.under(PureFilter.of(Fraction(8)), protected=Protected(ADD, USERS), shares=True)
    for what, kinds, price in (("count", "B", 5), ("shared", "A", 1), ("shared", "B", 2)):
        ledger = ledger.charge(ledger.price(derived(what, price), BOXES[kinds]))
    mean = ledger.price(derived("mean", 10), BOXES["A"])
    assert empty().preview(mean).largest.epsilon == empty().epsilon
    found = ledger.preview(mean)
    assert (found.fits, found.asked.amount) == (False, 10 * UNITS)
    assert found.largest.epsilon == 4 * UNITS  # 5 + 1 + 2, beside counts in B
    assert ledger.charge(found.largest).used.amount == 8 * UNITS
    with pytest.raises(BudgetRefused, match=r"mean asks for epsilon 10; .*, epsilon 4 is the most"):
        ledger.charge(mean)
    with pytest.raises(BudgetRefused):
        ledger.charge(mean.scaled(4 * UNITS + 2))


def test_a_ledger_without_shared_totals_takes_none() -> None:
    shared, protected = derived("shared", 4), Protected(ADD, USERS)
    with pytest.raises(BudgetRefused, match="this ledger was created without a shared total"):
        Ledger.under(LARGE, protected=protected).price(shared)
    optimal = OptimalFilter.of(Fraction(9), Fraction(1, 1000), CAP)
    with pytest.raises(BudgetRefused, match="the optimal filter charges each event only"):
        Ledger.under(optimal, protected=protected, shares=True).price(shared)


def test_a_filter_that_frees_nothing_charges_a_mean_as_a_whole() -> None:
    mean, filter_ = derived("mean", 1), ZCDPFilter.of(Fraction(9))
    with pytest.raises(BudgetRefused, match="this ledger was created without a shared total"):
        Ledger.under(filter_, protected=Protected(ADD, USERS)).price(mean)
    ledger = Ledger.under(filter_, protected=Protected(ADD, USERS), shares=True)
    entry = ledger.price(mean)
    assert entry.each == (entry,)
    assert ledger.charge(entry).halt(entry, 1).used == filter_.cost(entry)


def test_an_analyst_with_records_of_her_own_has_no_shared_totals() -> None:
    """The main ledger counts her part by events in her box, and one of them may use all of a total."""
    books = Subledgers.open(
        LARGE, {"a": LARGE.of(Fraction(1)), "b": LARGE.of(Fraction(1))}, Protected(ADD, USERS),
        {"a": BOXES["A"]}, shares=True,
    )  # fmt: skip
    with pytest.raises(UsageError, match="may use the whole total"):
        books.price(derived("shared", 1), "a", BOXES["A"])
    with pytest.raises(UsageError, match="may use the whole total"):
        books.price(derived("mean", 1), "a", BOXES["A"])
    assert books.price(derived("shared", 1), "b", BOXES["A"]).currency == TOTAL
    parts = books.price(derived("mean", 1), "b", BOXES["A"]).each
    assert [(part.currency, part.box) for part in parts] == [(TOTAL, BOXES["A"]), ("", BOXES["A"])]


def test_what_was_met_of_another_currency_is_refused_until_the_window_ends() -> None:
    """Also where a longer search looks for room before it refuses."""
    ledger = Ledger.under(PureFilter.of(Fraction(8)), protected=Protected(ADD, USERS), shares=True)
    count, shared = ledger.price(derived("count", 4)), ledger.price(derived("shared", 5))
    ledger = ledger.charge(count).halt(count, 1)
    with pytest.raises(BudgetRefused):
        ledger.charge(shared, 1)
    assert ledger.charge(shared, WINDOW).used.amount == 5 * UNITS


def test_under_an_optimal_main_ledger_an_analyst_has_no_shared_totals() -> None:
    """It composes by events, each of which costs its part of what an analyst may pay."""
    optimal = OptimalFilter.of(Fraction(9), Fraction(1, 1000), CAP)
    books = Subledgers.open(
        optimal, {"a": LARGE.of(Fraction(4))}, Protected(ADD, USERS), shares=True
    )
    with pytest.raises(BudgetRefused, match="charges each event of analyst a only a part"):
        books.price(derived("shared", 4), "a")
    assert books.price(derived("count", 4), "a").currency == ""


def test_the_rules_say_of_which_currency_a_price_is() -> None:
    shared, count = derived("shared", 4), derived("count", 4)
    assert (currency_of(shared), currency_of(count), currency_of(derived("own", 4))) == (
        TOTAL,
        "",
        "",
    )
    assert currency_of(derive((shared, shared), Fixed("both"))) == TOTAL
    assert currency_of(derive((shared, count), Fixed("both"))) == ""
    assert shared.guarantee.measure == PureDP(Fraction(4))
    with pytest.raises(NotDerivable, match="units of a shared total"):
        derive((shared, count), Ticks("time", (Alive(0, 0), Alive(1, 1))))
    boxes = BOXES["A"], BOXES["B"]
    four = PureFilter.of(Fraction(4))
    apart = derive((shared, shared), Filtered("apart", four, boxes=boxes))
    assert apart.guarantee.measure == PureDP(Fraction(4))
    with pytest.raises(NotDerivable, match="exceed"):
        derive((shared, count), Filtered("apart", four, boxes=boxes))


def test_only_a_sum_of_parts_that_are_divided_is_in_currencies() -> None:
    """What else rests on several currencies may cost all of its price for one event, in all records."""
    shared, count, own, more = (derived(what, 4) for what in ("shared", "count", "own", "mean"))
    pieces = derived("shared", 4, of=1)
    for parts in ((shared, count), (shared, pieces)):
        both = derive(parts, Fixed("both"))
        assert (in_currencies(both), currency_of(both)) == (parts, "")
        assert seen_box(both, BOXES["A"]) == BOXES["A"]
    gaussian = Derivation("leaf", Guarantee(ZCDP(Fraction(1, 8)), ADD), "leaf", "here")
    noisy = derive((gaussian,), OfUsers("count", USERS))
    for all_of_it in (
        derive((shared, own), Fixed("a total of its own")),
        derive((shared, noisy), Fixed("not pure")),
        derive((more, pieces), Fixed("of a sum")),
        derive((shared, count), Filtered("of a filter", PureFilter.of(Fraction(8)))),
    ):
        assert (in_currencies(all_of_it), currency_of(all_of_it)) == ((), "")
        assert seen_box(all_of_it, BOXES["A"]) == EVERYTHING


def test_means_in_turn_are_derived_by_currencies() -> None:
    mean, times = derived("mean", 4), (Alive(0, 0), Alive(1, 1))
    four, parts = PureFilter.of(Fraction(4)), [Part(mean, time) for time in times]
    assert whole(
        "means", four, parts, ApproxDP(Fraction(4), Fraction(0))
    ).guarantee.measure == PureDP(Fraction(4))


def test_no_filter_proves_that_what_is_paid_in_full_is_free_elsewhere() -> None:
    """A part that one event of a user may cost in full: neither at other ticks of a window nor for other records."""
    own, four = derived("own", 4), PureFilter.of(Fraction(4))
    mixed = derive((derived("mean", 2), derived("shared", 2, of=1)), Fixed("of a sum"))
    assert lost((run("own", "A", 0, 1), run("own", "A", 1, 2))) == 8
    for part in (own, mixed):
        for elsewhere in (
            Filtered("ticks", four, (Alive(0, 0), Alive(1, 1))),
            Filtered("records", four, boxes=(BOXES["A"], BOXES["B"])),
        ):
            with pytest.raises(NotDerivable, match="exceed"):
                derive((part, part), elsewhere)
        windows = Filtered("windows", four, (Alive(0, 0), Alive(WINDOW, WINDOW)))
        assert derive((part, part), windows).guarantee.measure == PureDP(Fraction(4))
    moves = Guarantee(PureDP(Fraction(4)), Neighbors.REPLACE_ANY_TICK)
    moved = Derivation("leaf", moves, "leaf", "here")
    with pytest.raises(NotDerivable, match="exceed"):
        derive((moved, moved), Filtered("ticks", four, (Alive(0, 0), Alive(WINDOW, WINDOW))))


def test_entries_of_two_currencies_show_no_heaviest_records() -> None:
    ledger = empty()
    entries: list[Entry] = [
        ledger.price(derived(what, 4), BOXES[kinds])
        for what, kinds in (("count", "A"), ("shared", "B"))
    ]
    one = ledger.charge(entries[0])
    assert one.loads.heaviest_records() == BOXES["A"]
    assert one.charge(entries[1]).loads.heaviest_records() == EVERYTHING
    assert replace(entries[1], currency="") != entries[1]
