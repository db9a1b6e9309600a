"""Ledgers that are told untrue entries, each with the exact loss beyond its promise, and our answer.

A ledger adds up and frees by what an entry says: the box, whether the mechanism is fresh, and for which neighbours its
price is derived. The books here are the product's own ledger, told one of these wrongly, in the game of
`exact_checks.live` against all adaptive adversaries; `_past_ticks` alone has the books of `exact_checks.alive`. Our
answer is what the ledger says to the true entries.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from stream_dp.accounting.amounts import Interval
from stream_dp.accounting.filters.filter import Filter
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.rules.groups import first_arrivals
from stream_dp.accounting.situations import FirstArrivals
from stream_dp.core.box import EVERYTHING, Box, Stretch
from stream_dp.core.guarantee import Protected
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.core.row_relations import Arrivals
from stream_dp.verify.counterexamples import NaiveBook, first_sentence
from stream_dp.verify.exact.exact_delta import worst_ratio
from stream_dp.verify.exact.randomized_response import NoisyBits
from stream_dp.verify.exact_checks.alive import FirstBits, OneTick, TickComposition
from stream_dp.verify.exact_checks.instance import Instance, claimed, compare, logarithm, private
from stream_dp.verify.exact_checks.live import (
    A_OR_B,
    CORE,
    EVENT,
    FOUR,
    IN_A,
    IN_B,
    LARGE,
    NULL,
    SIZED,
    SMALL_A,
    TENTH,
    THREE,
    TWO,
    A,
    B,
    Kind,
    Record,
    Stream,
    basic,
    core,
    for_moves,
    for_users,
    in_kinds,
    late,
    optimal,
    played,
    pure,
    renyi,
    response,
)

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
MOVING = Protected(Neighbors.REPLACE_ANY_TICK)
BOXES, TIME = "docs/time.md, what sees other records", "docs/time.md, users and events that move"


def untrue_entries() -> tuple[NaiveBook, ...]:
    return *boxes(), *replacements(), *halts(), *users()


def boxes() -> tuple[NaiveBook, ...]:
    """Return boxes that hold less than what their mechanisms see: RR of ln 2, for a promised ln 2."""
    first, second, third = (in_kinds(name) for name in "XYZ")
    x, y, both = ((("tags", tags),) for tags in ("x", "y", "x and y"))
    small, large = SIZED[:2]  # both of kind A
    few, many = A.cut(Box((("size", Stretch(high=4)),))), A.cut(LARGE)
    return (
        _smaller(
            "boxes that overlap, booked as disjoint", "in A, in A or B, in all",
            {first: (IN_A,), second: (IN_A, IN_B), third: (IN_A, IN_B, NULL)}, (A, A_OR_B, EVERYTHING),
        ),
        _smaller(
            "a null value booked in no box, but counted in two", "in A or null, in B or null",
            {A: (IN_A, NULL), B: (IN_B, NULL)}, (EVERYTHING, EVERYTHING),
        ),
        _smaller(
            "two values of a list as disjoint boxes", "a record has both",
            {first: (x, both), second: (y, both)}, (EVERYTHING, EVERYTHING), (x, y, both),
        ),
        _smaller(
            "the box of a watch booked instead of its monitor's box", "the monitor of A, a count of small ones in A",
            {many: (small, large), few: (small,)}, (A, few), SIZED,
        ),
        _smaller(
            "a value at the end of two ranges, booked only in one", "in A up to 5, in A from 5 on",
            {few: (small, large), many: (large,)}, (SMALL_A, many), SIZED,
        ),
    )  # fmt: skip


def replacements() -> tuple[NaiveBook, ...]:
    """Return replacements booked as an event more: in two boxes that do not meet, and at two ticks."""
    kinds, within = [response(TWO, A), response(TWO, B)], Protected(REPLACE)
    return (
        _exceeded(
            "a replacement booked only at its new record", BOXES, "a count of A sees the old record, a count of B "
            "the new record",
            played("", pure(TWO), kinds, (), Stream(within), EVENT),
            _refusal(pure(TWO), within, [response(TWO, box, REPLACE) for box in (A, B)]),
        ),
        _exceeded(
            "an event that moves, booked as an event that does not move", TIME, "one count of A sees it at two ticks",
            played("", pure(TWO), kinds[:1], (), Stream(MOVING, (IN_A,)), EVENT),
            _refusal(pure(TWO), MOVING, map(for_moves, kinds)),
        ),
    )  # fmt: skip


def halts() -> tuple[NaiveBook, ...]:
    """Return halts that free what may have failed before the event came, or ticks that are over."""
    third, order_two = basic(THREE, TENTH), renyi(CORE)
    refilled, waits = Stream(records=(IN_A,), ticks=4), "3 created, one runs at a time"
    return (
        _exceeded(
            "a halt frees the delta of what is not fresh", "[HSV] Thm 5.2", waits,
            played("", third, [_fresh(late())], (), refilled), _refusal(third, EVENT, [late()] * 2, halted=True),
        ),
        _exceeded(
            "two boxes, booked at the larger delta of what is not fresh", "[HSV] Thm 5.4", "one in A, one in B",
            played("", third, [_fresh(late(box)) for box in (A, B)], (), Stream(creations=2)),
            _refusal(third, EVENT, [late(A), late(B)]),
        ),
        _exceeded(
            "a halt frees the Renyi epsilon of what is not fresh", "[HSV] Thm 13.5", waits,
            played("", order_two, [_fresh(core())], (), refilled),
            _refusal(order_two, EVENT, [core()] * 2, halted=True),
        ),
        _past_ticks(),
    )  # fmt: skip


def users() -> tuple[NaiveBook, ...]:
    """Return a user's events booked as single ones, and what one event may exhaust booked as shared by all."""
    two, counts, ninths = Users(2), response(TWO, A), Fraction(2, 9)
    pair = Protected(ADD, two)
    return (
        _exceeded(
            "optimal filter: two events of a user, booked at the price of one", TIME, "two run at each of two ticks",
            played("", optimal(TWO, ninths), [counts], (), Stream(pair, (IN_A,)), EVENT),
            _refusal(optimal(TWO, ninths, 2), pair, [for_users(counts, two)]),
        ),
        _exceeded(
            "which users were there, booked by boxes", TIME, "a user with an event in A and one in B",
            played("", pure(FOUR), [_whole_as_shares(two, box) for box in (A, B)], (), Stream(pair, (IN_A, IN_B))),
            _refusal(pure(FOUR), pair, [_whole(two, box) for box in (A, B)]),
        ),
    )  # fmt: skip


def _smaller(
    title: str, seen: str, declared: dict[Box, Sequence[Record]], true: Sequence[Box],
    records: Sequence[Record] = (IN_A, IN_B, NULL),
) -> NaiveBook:  # fmt: skip
    """Return the book of RR(ln 2) of these records, by the boxes that the ledger is told."""
    kinds = [
        replace(response(TWO, box), cells=(frozenset(sees),)) for box, sees in declared.items()
    ]
    game = played("", pure(TWO), kinds, (), Stream(records=tuple(records)))
    refusal = _refusal(pure(TWO), EVENT, [response(TWO, box) for box in true])
    return _exceeded(title, BOXES, f"RR(ln 2): {seen}", game, refusal)


def _fresh(kind: Kind) -> Kind:
    """Return the kind as one that the ledger takes for fresh."""
    return replace(kind, fresh=True)


def _whole(users: Users, box: Box) -> Kind:
    """Return RR(ln 2^k) of whether a user with at most k events is there for the first time."""
    bits = claimed("which users were there", private(TWO**users.cap))
    arrivals = FirstArrivals("which users were there", Arrivals(None, users))
    machine = FirstBits(TWO**users.cap, None)
    return Kind(machine, first_arrivals((bits,), arrivals), box)


def _whole_as_shares(users: Users, box: Box) -> Kind:
    """Return the same as if each event cost a k-th of it, as an event of a count does."""
    return replace(_whole(users, box), premise=for_users(response(TWO, box), users).premise)


def _past_ticks() -> NaiveBook:
    """Return the book that a halt frees for good: what comes next may read the tick that the halted one has seen."""
    bits, created = NoisyBits(THREE), 3
    pairs = OneTick(
        (THREE,), THREE, (0,), ((0, 1), (1, 0)), ticks=2, creations=created, backfill=(0, 1), charges_past=False
    )  # fmt: skip
    exact = Fraction(worst_ratio(TickComposition((bits,), kept=1), pairs, 2 * created + 2))
    ledger = Ledger.under(pure(THREE), protected=EVENT)
    entry = response(THREE).entry(ledger)
    halted = ledger.charge(entry).halt(entry, 1)
    return NaiveBook(
        "a halt frees ticks that are over",
        TIME,
        "epsilon",
        logarithm(THREE),
        Interval.of(exact).ln().lower,
        f"{created} created, one after the other, that read the last tick",
        first_sentence(lambda: halted.charge(entry, 0)),
    )


def _exceeded(title: str, source: str, adversary: str, game: Instance, ours: str) -> NaiveBook:
    """Return the book of a game, whose filter promises less than an adversary gets."""
    situation: Any = game.situation
    promise = situation.filter.promise
    compared = compare(promise, game)
    at = compared.at or (
        f"epsilon {float(promise.epsilon):.3g}" if compared.quantity == "delta" else ""
    )
    quantity = f"{compared.quantity} at {at}" if at else compared.quantity
    exact = Fraction(compared.exact)
    return NaiveBook(title, source, quantity, compared.booked, exact, adversary, ours)


def _refusal(
    filter_: Filter, protected: Protected, kinds: Iterable[Kind], *, halted: bool = False
) -> str:
    """Return the refusal of a ledger that is told the truth; `halted`: a kind ends where the next one begins."""
    ledger = Ledger.under(filter_, protected=protected)

    def charge_all() -> None:
        book = ledger
        for tick, kind in enumerate(kinds):
            entry = kind.entry(book)
            book = book.charge(entry, tick)
            book = book.halt(entry, tick + 1) if halted else book

    return first_sentence(charge_all)
