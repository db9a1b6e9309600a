"""Users and time, exact: who has events at many ticks meets mechanisms that come and go.

Two kinds of mechanism. `Noisy` answers every row with noise: k events of a user cost it all that it claims, each of
them a k-th. `First` says of its first row alone whether anybody was there: it may lose all that it claims to one event.
The adversary begins and ends them at will, as far as the books of a ledger allow. The books of one event free a tick as
soon as a mechanism has ended: right for the first kind, and broken for the second, which counts in whole windows.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import pytest

from stream_dp.accounting.derive import derive
from stream_dp.accounting.filters.linear import PureFilter
from stream_dp.accounting.filters.squares import ZCDPFilter
from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.rules.time import loads
from stream_dp.accounting.situations import (  # fmt: skip
    Alive,
    Fixed,
    Group,
    Moved,
    OfUsers,
    Parallel,
    SharedTotals,
    Situation,
    Ticks,
    Touched,
    UserTotals,
)
from stream_dp.accounting.subledgers import Subledgers
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.errors import BudgetRefused, InvalidCost, NotDerivable
from stream_dp.verify.exact.exact_delta import worst_ratio
from stream_dp.verify.exact.finite import FiniteMachine, Law
from stream_dp.verify.exact.randomized_response import noisy_bit
from stream_dp.verify.exact_checks.alive import Begin, End, TickComposition, TickRow

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
ONE, TWO, THREE, NINE = Fraction(1), Fraction(2), Fraction(3), Fraction(9)
CAP = 2


@dataclass(frozen=True)
class Noisy:
    """The row with geometric noise, clamped to 0 ... CAP: an event more or less multiplies odds by `odds`."""

    odds: Fraction

    def initial(self) -> Mapping[tuple[()], Fraction]:
        return {(): ONE}

    def step(self, state: tuple[()], query: int) -> Law[tuple[()]]:
        a = 1 / self.odds
        inner = {y: (1 - a) / (1 + a) * a ** abs(y - query) for y in range(1, CAP)}
        ends = {0: a**query / (1 + a), CAP: a ** (CAP - query) / (1 + a)}
        return {(y, ()): p for y, p in (inner | ends).items()}


@dataclass(frozen=True)
class First:
    """Whether anybody was there in its first row, as a noisy bit; nothing of later ones."""

    odds: Fraction

    def initial(self) -> Mapping[bool, Fraction]:
        return {False: ONE}

    def step(self, state: bool, query: int) -> Law[bool]:
        law = {0: ONE} if state else noisy_bit(min(query, 1), self.odds)
        return {(bit, True): p for bit, p in law.items()}


@dataclass(frozen=True)
class Books:
    """What an adversary may do: mechanisms within `budget` at every tick, by `rule`, and one user's events.

    `prices` are e^epsilon for a user. Under the rule "event" a mechanism counts while it lives; under "window" from the
    beginning of its first public window to the end of its last, for ever where there is none; under "ends" that is so
    of its end alone. The kinds in `divided` always count as under "event".
    """

    prices: tuple[Fraction, ...]
    budget: Fraction
    users: Users
    rule: str
    ticks: int
    creations: int
    divided: tuple[int, ...] = ()
    living: tuple[int, ...] = ()
    held: Fraction = ONE
    peak: Fraction = ONE
    tick: int = 0
    window: int = -1
    events: int = 0

    def moves(self) -> Iterator[tuple[tuple[Any, Any], "Books"]]:
        for kind in range(len(self.prices)):
            begun = replace(self, creations=self.creations - 1, living=(*self.living, kind))
            early = self.rule == "window" and kind not in self.divided
            if self.creations and begun.load(early) <= self.budget:
                yield (Begin(kind),) * 2, begun
        for place, kind in enumerate(self.living):
            living = (*self.living[:place], *self.living[place + 1 :])
            kept = self.rule != "event" and kind not in self.divided and not self._between
            held = self.held * (self.prices[kind] if kept else 1)
            yield (End(place),) * 2, replace(self, living=living, held=held)
        if self.ticks:
            yield from self._rows()

    def load(self, early: bool = False) -> Fraction:
        """What is alive now and what still counts; or, `early`, at the worst tick of the window so far."""
        noisy, others = ONE, self.held
        for kind in self.living:
            if kind in self.divided:
                noisy *= self.prices[kind]
            else:
                others *= self.prices[kind]
        return (max(noisy, self.peak) if early else noisy) * others

    @property
    def _between(self) -> bool:
        return self.users.window is not None and self.tick % self.users.window == 0

    def _rows(self) -> Iterator[tuple[tuple[Any, Any], "Books"]]:
        noisy = [self.prices[kind] for kind in self.living if kind in self.divided]
        peak = max(self.peak, math.prod(noisy, start=ONE))
        later = replace(self, ticks=self.ticks - 1, tick=self.tick + 1, peak=peak)
        later = replace(later, held=ONE, peak=ONE) if later._between else later
        yield (TickRow(0),) * 2, later
        now = 0 if self.users.window is None else self.tick // self.users.window
        if self.window in (-1, now):
            for events in range(1, self.users.cap - self.events + 1):
                after = replace(later, window=now, events=self.events + events)
                yield (TickRow(events), TickRow(0)), after
                yield (TickRow(0), TickRow(events)), after


def worst(books: Books, *kinds: FiniteMachine[Any, Any]) -> Fraction | float:
    """The largest odds that any adversary reaches."""
    return worst_ratio(TickComposition(kinds), books, books.ticks + 2 * books.creations)


FOR_EVER, BY_TWO = Users(CAP), Users(CAP, 2)


@pytest.mark.parametrize("users", [FOR_EVER, BY_TWO])
def test_what_each_event_costs_a_part_of_is_freed_by_a_halt(users: Users) -> None:
    """Dashboards for ever, one after the other, also for ever-protected users: met, and never exceeded."""
    books = Books((NINE,), NINE, users, "event", ticks=2, creations=2)
    assert worst(books, Noisy(THREE)) == 9
    two_at_once = Books((NINE, Fraction(4)), Fraction(36), users, "event", ticks=2, creations=3)
    assert worst(two_at_once, Noisy(THREE), Noisy(TWO)) == 36


def test_two_dashboards_one_after_the_other_lose_twice_the_claim_for_ever() -> None:
    """The rule for events books ln 9 where ln 81 is lost: a user has events at the ticks of both."""
    one = Books((NINE,), NINE, FOR_EVER, "event", ticks=2, creations=1)
    assert worst(one, First(NINE)) == 9
    broken = Books((NINE,), NINE, FOR_EVER, "event", ticks=2, creations=2)
    assert worst(broken, First(NINE)) == 81
    assert worst(replace(broken, rule="window"), First(NINE)) == 9
    assert worst(replace(broken, rule="window", budget=NINE**2), First(NINE)) == 81


def test_two_dashboards_one_after_the_other_lose_twice_the_claim_within_a_window() -> None:
    """Not in two windows, of which one differs; a window's end frees what has ended."""
    broken = Books((NINE,), NINE, BY_TWO, "event", ticks=4, creations=3)
    assert worst(broken, First(NINE)) == 81
    assert worst(replace(broken, rule="window"), First(NINE)) == 9
    assert worst(replace(broken, users=Users(CAP, 1)), First(NINE)) == 9


def test_both_kinds_beside_each_other() -> None:
    """Noise that has ended is freed at once, what says all of one row counts from the window's first tick to its last.

    Counted from its creation on, it meets events after those that the noise before it has met.
    """
    books = Books((NINE, THREE), NINE * 3, BY_TWO, "window", ticks=2, creations=4, divided=(0,))
    kinds = Noisy(THREE), First(THREE)
    assert worst(books, *kinds) == 27
    assert worst(replace(books, rule="ends"), *kinds) == 81
    assert worst(replace(books, rule="event"), *kinds) == 81


# --- the rule that the accounting has ------------------------------------------------------------


def claims(*epsilons: Fraction, users: Users = FOR_EVER) -> tuple[Derivation, ...]:
    """Guarantees for users by a proof that says nothing of one event."""
    return tuple(
        leaf("first", Guarantee(PureDP(epsilon), ADD, users=users), "this file")
        for epsilon in epsilons
    )


def divided(*epsilons: Fraction, users: Users = FOR_EVER) -> tuple[Derivation, ...]:
    """Guarantees for users by those for one event."""
    return tuple(
        derive(
            (leaf("noisy", Guarantee(PureDP(epsilon / users.cap), ADD), "this file"),),
            OfUsers("noisy", users),
        )
        for epsilon in epsilons
    )


def over_time(parts: tuple[Derivation, ...], *alive: tuple[int, int | None]) -> Fraction:
    """The epsilon that the time rule gives these parts."""
    result = derive(parts, Ticks("time", tuple(Alive(*one) for one in alive)))
    assert isinstance(result.guarantee.measure, PureDP)
    assert result.guarantee.users == parts[0].guarantee.users
    return result.guarantee.measure.epsilon


@pytest.mark.parametrize(
    ("users", "alive", "counted"),
    [
        (FOR_EVER, ((0, 0), (1, None)), 3),
        (FOR_EVER, ((0, 0), (9, 9)), 3),
        (BY_TWO, ((0, 0), (1, None)), 3),
        (BY_TWO, ((0, 1), (2, None)), 2),
        (BY_TWO, ((0, 2), (3, None)), 3),
        (BY_TWO, ((5, 5), (0, 3)), 2),
        (Users(CAP, 1), ((0, 0), (1, None)), 2),
    ],
)
def test_what_an_event_may_cost_in_full_counts_in_whole_windows(
    users: Users, alive: tuple[tuple[int, int | None], ...], counted: int
) -> None:
    assert over_time(claims(ONE, TWO, users=users), *alive) == counted
    assert over_time(divided(ONE, TWO, users=users), *alive) == 2
    event_rule = loads([Alive(*one) for one in alive], [ONE, TWO])
    assert max(load for _, load in event_rule) == 2  # the broken twin


def test_one_claim_among_divided_ones_counts_in_whole_windows() -> None:
    (claim,), (part,) = claims(ONE), divided(TWO)
    assert over_time((claim, part), (0, 0), (1, None)) == 3
    assert over_time((part, claim), (0, 0), (1, None)) == 3
    assert over_time((part, part), (0, 0), (1, None)) == 2
    block = derive((claim, part), Fixed("both"))
    assert block.guarantee == Guarantee(PureDP(THREE), ADD, users=FOR_EVER)
    assert over_time((block, part), (0, 0), (1, None)) == 5
    assert over_time((derive((part, part), Fixed("both")), part), (0, 0), (1, None)) == 4


def test_parts_for_other_users_do_not_add_up() -> None:
    for other in (BY_TWO, Users(3)):
        with pytest.raises(NotDerivable, match="under add_remove, users of at most 2 events for"):
            derive((*divided(ONE), *divided(ONE, users=other)), Fixed("both"))
    event = leaf("event", Guarantee(PureDP(ONE), ADD), "this file")
    with pytest.raises(NotDerivable, match="add_remove and under add_remove, users of at most 2"):
        derive((event, *divided(ONE)), Fixed("both"))


@pytest.mark.parametrize(
    "guarantee",
    [
        Guarantee(PureDP(ONE), REPLACE),
        Guarantee(PureDP(ONE), ADD, 2),
        Guarantee(PureDP(ONE), ADD, users=FOR_EVER),
    ],
)
@pytest.mark.parametrize(
    "situation",
    [OfUsers("x", FOR_EVER), UserTotals("x", FOR_EVER, 3), SharedTotals("x", FOR_EVER, 3)],
)
def test_only_a_guarantee_for_one_event_is_multiplied(
    guarantee: Guarantee, situation: Situation
) -> None:
    with pytest.raises(NotDerivable, match=r"one (event|unit) more each"):
        derive((leaf("x", guarantee, "this file"),), situation)


def test_rules_that_count_for_one_event_take_no_users() -> None:
    part = divided(ONE)
    with pytest.raises(NotDerivable, match="groups or users"):
        derive(part, Parallel("parallel", Touched(1, ADD, "one"), (2,)))
    with pytest.raises(NotDerivable, match="one removed, one added"):
        derive(part, Moved("moved"))
    several = derive(part, Group("several users", 3))
    assert several.guarantee == Guarantee(PureDP(THREE), ADD, 3, users=FOR_EVER)
    with pytest.raises(NotDerivable, match="many ticks"):
        derive((several,), Ticks("time", (Alive(0, None),)))


@pytest.mark.parametrize(("cap", "window"), [(0, 1), (True, 1), (1, 0), (1, -1), (1.5, 1)])
def test_no_users_without_a_cap(cap: Any, window: Any) -> None:
    with pytest.raises(InvalidCost, match="at least 1"):
        Users(cap, window)


def test_what_a_halt_would_free_too_early_is_not_created_live() -> None:
    """In the pipeline file, whose series are never halted, it may stand; under a filter that frees nothing as well."""
    (claim,), (part,) = claims(ONE), divided(ONE)
    whom = claim.guarantee.protected
    ledgers = Subledgers.open(PureFilter.of(TWO), protected=whom)
    assert ledgers.price(part).epsilon == ledgers.main.price(claim).epsilon == 10**12
    with pytest.raises(BudgetRefused, match="its full price for one event of a user"):
        ledgers.price(claim)
    zcdp = Subledgers.open(ZCDPFilter.of(TWO), protected=whom)
    assert zcdp.price(claim) == zcdp.main.price(claim)
