"""Time: mechanisms start and end, and every live one gets each tick's row. Also events that move, and groups of events.

The rule (docs/time.md): for pure event-level guarantees the composition costs the largest sum of epsilons alive at
one tick. `TickComposition` is the machine, `OneTick` the verification function that the ledger's accounting implies.
A replacement that may move is an event removed at one tick and added at another. Identifiers may count at their first
tick only (`FirstBits`). Rules: prices are e^eps, rationals, so that sums of epsilons are products of prices. This file
knows no budget in units, no real ledger and no time but ticks.
"""

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any, TypeAlias

from stream_dp.accounting.conversions import pure_to_zcdp
from stream_dp.accounting.rules.groups import moved, of_users
from stream_dp.accounting.rules.rule import Premises
from stream_dp.accounting.situations import (
    Alive,
    FirstArrivals,
    Group,
    Moved,
    OfUsers,
    SharedTotals,
    Ticks,
    UserTotals,
)
from stream_dp.core.composition import Ask, Create, Halt
from stream_dp.core.guarantee import Measure, PureDP
from stream_dp.core.neighbors import Users
from stream_dp.core.row_relations import Arrivals
from stream_dp.verify.exact.exact_sparse_vector import AboveThreshold, RearmedAlerts
from stream_dp.verify.exact.finite import (
    BIT_PAIRS,
    DifferAtMost,
    FiniteMachine,
    FirstPair,
    Law,
    OnceEach,
    Pairs,
)
from stream_dp.verify.exact.randomized_response import Ladder, NoisyBits, noisy_bit
from stream_dp.verify.exact_checks.compositions import ADDED, SMALL, gaussian_claim
from stream_dp.verify.exact_checks.instance import (
    Instance,
    OneBitDiffers,
    Part,
    claimed,
    composed,
    logarithm,
    private,
)

HALF, ONE, TWO, THREE, EIGHT = Fraction(1, 2), Fraction(1), Fraction(2), Fraction(3), Fraction(8)
Living: TypeAlias = tuple[tuple[int, Any], ...]  # (kind, its state), oldest first
TickState: TypeAlias = tuple[Living, tuple[Hashable, ...]]  # and the last rows, for backfill


@dataclass(frozen=True, slots=True)
class Begin:
    """Create a machine of this kind before the next tick; it first reads the rows of the last `past` ticks."""

    kind: int
    past: int = 0


@dataclass(frozen=True, slots=True)
class End:
    """Halt the machine at this index among the live ones; it sees no later row."""

    place: int


@dataclass(frozen=True, slots=True)
class TickRow:
    """One tick's row, for every live machine; they answer in the order of their age, oldest first."""

    row: Hashable


@dataclass(frozen=True)
class TickComposition:
    """Machines of these `kinds`, started and halted at any time; the last `kept` rows stay for later readers."""

    kinds: tuple[FiniteMachine[Any, Any], ...]
    kept: int = 0

    def initial(self) -> Mapping[TickState, Fraction]:
        return {((), ()): ONE}

    def step(self, state: TickState, query: Begin | End | TickRow) -> Law[TickState]:
        living, rows = state
        match query:
            case Begin(kind, past):
                begun = self._begun(kind, rows[len(rows) - past :])
                return {(a, ((*living, (kind, s)), rows)): p for (a, s), p in begun.items()}
            case End(place):
                return {(True, ((*living[:place], *living[place + 1 :]), rows)): ONE}
            case TickRow(row):
                kept = (*rows, row)[-self.kept :] if self.kept else ()
                answered = self.answered(living, row)
                return {(answer, (after, kept)): p for (answer, after), p in answered.items()}

    def answered(self, living: Living, row: Hashable) -> Law[Living]:
        """Return the joint law of all answers to a row; the machines draw independently."""
        law: dict[tuple[Any, Living], Fraction] = {((), ()): ONE}
        for kind, inner in living:
            steps = self.kinds[kind].step(inner, row).items()
            law = {
                ((*answers, answer), (*before, (kind, after))): p * q
                for (answers, before), p in law.items()
                for (answer, after), q in steps
                if q
            }
        return law

    def _begun(self, kind: int, past: tuple[Hashable, ...]) -> Law[Any]:
        """Return the law of a new machine's answers to the rows of the past, and of its state after them."""
        law: dict[Any, Fraction] = {((), s): p for s, p in self.kinds[kind].initial().items()}
        for row in past:
            longer: dict[Any, Fraction] = {}
            for (answers, inner), p in law.items():
                for (answer, after), q in self.kinds[kind].step(inner, row).items():
                    key = ((*answers, answer), after)
                    longer[key] = longer.get(key, Fraction(0)) + p * q
            law = longer
        return law


@dataclass(frozen=True, slots=True)
class OneTick:
    """Streams whose rows differ in at most `times` ticks, and mechanisms that fit `budget` at every tick.

    `once_each`: each pair of `different` comes at most once, so an event may be removed at one tick and added at
    another. `prices` holds e^eps of each kind. A new mechanism must fit beside the live ones at the next tick and, if
    it reads the past and `charges_past` is set, at each tick that it reads. A halt frees later ticks only; with
    `charges_past` False it frees past ticks too, which is wrong. `ticks` and `creations` bound the game.
    """

    prices: tuple[Fraction, ...]
    budget: Fraction
    rows: tuple[Hashable, ...]
    different: tuple[tuple[Hashable, Hashable], ...]
    ticks: int
    creations: int
    backfill: tuple[int, ...] = (0,)
    charges_past: bool = True
    times: int = 1
    once_each: bool = False
    living: tuple[int, ...] = ()
    spent: tuple[Fraction, ...] = ()

    def moves(self) -> Iterator[tuple[tuple[Any, Any], "OneTick"]]:
        now = math.prod((self.prices[kind] for kind in self.living), start=ONE)
        for kind, price in enumerate(self.prices):
            if self.creations and now * price <= self.budget:
                yield from self._begun(kind)
        for place in range(len(self.living)):
            living = (*self.living[:place], *self.living[place + 1 :])
            yield (End(place),) * 2, replace(self, living=living)
        if self.ticks:
            most = max(self.backfill)  # the ticks that can still be read
            spent = (*self.spent, now)[-most:] if most else ()
            after = replace(self, ticks=self.ticks - 1, spent=spent)
            yield from (((TickRow(row), TickRow(row)), after) for row in self.rows)
            if self.times:
                touched = replace(after, times=self.times - 1)
                for a, b in self.different:
                    left = tuple(pair for pair in self.different if pair != (a, b))
                    rest = replace(touched, different=left) if self.once_each else touched
                    yield (TickRow(a), TickRow(b)), rest

    def _begun(self, kind: int) -> Iterator[tuple[tuple[Any, Any], "OneTick"]]:
        for past in self.backfill:
            first = len(self.spent) - past
            if first < 0:
                continue
            charged = tuple(spent * self.prices[kind] for spent in self.spent[first:])
            if self.charges_past and max(charged, default=ONE) > self.budget:
                continue
            after = replace(
                self,
                creations=self.creations - 1,
                living=(*self.living, kind),
                spent=(*self.spent[:first], *charged),
            )
            yield (Begin(kind, past),) * 2, after


def bits(odds: Fraction) -> Part:
    return Part("bits", NoisyBits(odds), private(odds), OneBitDiffers())


LIVES = (Alive(0, 1), Alive(1, 2), Alive(2, None))
TICKS = 3
BITS: tuple[Any, Any] = (0, 1)


def schedule(parts: tuple[Part, ...]) -> tuple[tuple[int, Create | Halt | int], ...]:
    """Return (tick; a creation, a halt, or the index of the mechanism asked), in order."""
    steps: list[tuple[int, Create | Halt | int]] = []
    for tick in range(TICKS):
        lives = [(i, life.first, life.last) for i, life in enumerate(LIVES)]
        steps += [(tick, parts[i].create) for i, first, _ in lives if first == tick]
        steps += [(tick, Halt(i)) for i, _, last in lives if last == tick - 1]
        steps += [
            (tick, i)
            for i, first, last in lives
            if first <= tick <= (TICKS if last is None else last)
        ]
    return tuple(steps)


@dataclass(frozen=True, slots=True)
class OneTickDiffers:
    """Messages by schedule; the pairs of one tick may differ, for every mechanism alive at it."""

    steps: tuple[tuple[int, Create | Halt | int], ...]
    differs: int | None = None

    def moves(self) -> Iterator[tuple[tuple[Any, Any], "OneTickDiffers"]]:
        if not self.steps:
            return
        (tick, what), after = self.steps[0], replace(self, steps=self.steps[1:])
        if not isinstance(what, int):
            yield (what, what), after
            return
        zero, one = (Ask(what, bit) for bit in BITS)
        yield (zero, zero), after
        if self.differs in (None, tick):
            yield (zero, one), replace(after, differs=tick)


def lives() -> Instance:
    """Return three mechanisms whose lives overlap: the loads are ln 3, ln 6 and ln 5."""
    parts = tuple(bits(odds) for odds in (THREE, TWO, Fraction(5, 2)))
    steps = schedule(parts)
    return Instance(
        "bits of ln 3, ln 2, ln 2.5, which run at ticks 0-1, 1-2, 2; one tick differs",
        tuple(part.leaf for part in parts),
        Ticks("time", LIVES),
        composed(),
        OneTickDiffers(steps),
        len(steps),
    )


KINDS = (bits(THREE), bits(TWO))
DIFFERENT = ((0, 1), (1, 0))


def _at_will(words: str, premises: Premises, pairs: OneTick) -> Instance:
    """Return mechanisms of both kinds that the adversary starts and halts at any time."""
    situation = Ticks("time", (Alive(0, None), Alive(0, None)))
    machine = TickComposition(tuple(part.machine for part in KINDS))
    rounds = 2 * pairs.creations + pairs.ticks
    return Instance(
        f"started and ended at any time; at most {words}",
        premises,
        situation,
        machine,
        pairs,
        rounds,
    )


def coming_and_going() -> Instance:
    """Return mechanisms within ln 6 at every tick."""
    pairs = OneTick((THREE, TWO), Fraction(6), (0,), DIFFERENT, ticks=3, creations=3)
    return _at_will("ln 3 and ln 2 run at a tick", tuple(part.leaf for part in KINDS), pairs)


def _twice(creations: int, **more: Any) -> OneTick:
    """Return the books for two differing rows, where each may cost half of ln 9 and ln 4."""
    prices, budget = (THREE**2, TWO**2), Fraction(36)
    return OneTick(prices, budget, (0,), DIFFERENT, ticks=2, creations=creations, times=2, **more)


def moving() -> Instance:
    """Return mechanisms that start and halt also between the two ticks of an event that moves."""
    premises = tuple(moved((part.leaf,), Moved("an event moves")) for part in KINDS)
    words = "ln 9 and ln 4 run at a tick; an event moves"
    return _at_will(words, premises, _twice(4, once_each=True))


def used() -> Instance:
    """Return mechanisms that start and halt also between the ticks of one user's two events."""
    users = Users(2)
    premises = tuple(of_users((part.leaf,), OfUsers("user", users)) for part in KINDS)
    return _at_will(f"ln 9 and ln 4 run at a tick; {users}", premises, _twice(3))


def ticks() -> tuple[Instance, ...]:
    return lives(), coming_and_going(), moving(), used()


LEVEL = 2


def _moved(words: str, odds: Fraction, machine: FiniteMachine[Any, Any], pairs: Pairs) -> Instance:
    part = claimed("one event", private(odds))
    return Instance(f"{words}; an event moves", (part,), Moved("moved"), machine, pairs, TICKS)


def moved_events() -> tuple[Instance, ...]:
    """Return a noisy bit at every tick; one re-armed key, whose event leaves one instance and comes to the next.

    Then two columns over three ticks: far more than ln 8, the one-tick cost, but less than the rule allows.
    """
    rows = tuple(((count,), LEVEL) for count in (0, 1, 2))
    alerts = OnceEach(rows, ((rows[1], rows[0]), (rows[0], rows[1])))
    columns = OnceEach(((0, 0), (0, 2), (2, 0)), (ADDED[0], ADDED[0][::-1]))
    hss = "HSS of ln 8, 2 columns, between its intervals"
    return (
        _moved("bits of ln 3", THREE, NoisyBits(THREE), OnceEach((0,), DIFFERENT)),
        _moved("re-armed alerts of ln 2", TWO, RearmedAlerts(HALF, HALF), alerts),
        _moved(hss, EIGHT, replace(SMALL, high=6), columns),
    )


FirstState: TypeAlias = tuple[int, bool]


@dataclass(frozen=True, slots=True)
class FirstBits:
    """Takes at each tick whether an identifier is there; answers by a noisy bit whether it is there for the first time.

    First in the window of `window` ticks (None: ever). One identifier is enough: every other identifier is the same
    in both streams, and its units are added independently.
    """

    odds: Fraction
    window: int | None

    def initial(self) -> Mapping[FirstState, Fraction]:
        return {(0, False): ONE}

    def step(self, state: FirstState, query: int) -> Law[FirstState]:
        tick, seen = state
        if self.window is not None and tick % self.window == 0:
            seen = False
        after = (tick + 1, seen or bool(query))
        first = int(bool(query) and not seen)
        return {(bit, after): chance for bit, chance in noisy_bit(first, self.odds).items()}


@dataclass(frozen=True, slots=True)
class WholeBits:
    """Takes the same as `FirstBits`; answers at the end of a window by a noisy bit whether the identifier was there."""

    odds: Fraction
    window: int

    def initial(self) -> Mapping[FirstState, Fraction]:
        return {(0, False): ONE}

    def step(self, state: FirstState, query: int) -> Law[FirstState]:
        tick, seen = state
        seen = bool(query) or (seen and tick % self.window != 0)
        after = (tick + 1, seen)
        if (tick + 1) % self.window:
            return {(0, after): ONE}
        return {(bit, after): chance for bit, chance in noisy_bit(int(seen), self.odds).items()}


@dataclass(frozen=True, slots=True)
class InTwoEntries:
    """Takes at each tick whether an identifier is there in a first entry (1), a second one (2) or both (3).

    Each entry answers as `entry` does.
    """

    entry: FirstBits | WholeBits

    def initial(self) -> Mapping[Any, Fraction]:
        (begin,) = self.entry.initial()
        return {(begin, begin): ONE}

    def step(self, state: Any, query: int) -> Law[Any]:
        one, other = (self.entry.step(own, query >> at & 1) for at, own in enumerate(state))
        return {
            ((a, b), (left, right)): p * q
            for (a, left), p in one.items()
            for (b, right), q in other.items()
        }


@dataclass(frozen=True, slots=True)
class OneUserWindow:
    """One user's events, at most `cap` in each window of `window` ticks; the streams may differ in one window.

    In that window (`differs`) one stream has events and the other has none. `used` counts the events of the current
    window; `kept` says that both streams have events in it. A tick with an event has an amount up to `largest`.
    """

    window: int
    cap: int
    largest: int = 1
    tick: int = 0
    differs: int | None = None
    used: int = 0
    kept: bool = False

    def moves(self) -> Iterator[tuple[tuple[Any, Any], "OneUserWindow"]]:
        now, begins = self.tick // self.window, self.tick % self.window == 0
        used, kept = (0, False) if begins else (self.used, self.kept)
        after = replace(self, tick=self.tick + 1, used=used, kept=kept)
        yield (0, 0), after
        if used == self.cap:
            return
        for amount in range(1, self.largest + 1):
            if not kept and self.differs in (None, now):
                yield (0, amount), replace(after, differs=now, used=used + 1)
            if self.differs != now:
                yield (amount, amount), replace(after, used=used + 1, kept=True)


def _arrivals(words: str, arrivals: Arrivals, pairs: Pairs, ticks: int) -> Instance:
    premise = claimed("bits", private(THREE))
    entry: FirstBits | WholeBits = FirstBits(THREE, arrivals.window)
    if arrivals.ended and arrivals.window is not None:
        entry = WholeBits(THREE, arrivals.window)
    machine = InTwoEntries(entry) if arrivals.entries > 1 else entry
    situation = FirstArrivals("arrivals", arrivals)
    return Instance(f"bits of ln 3; {words}", (premise,), situation, machine, pairs, ticks)


def arrived() -> tuple[Instance, ...]:
    event, thrice = DifferAtMost((0, 1), DIFFERENT), DifferAtMost((0,), DIFFERENT[:1], 3)
    day, overall, window = Users(2, 2), Users(3), OneUserWindow(2, 2)
    two, twice = (
        Users(2),
        DifferAtMost((0, 1), DIFFERENT[:1], 2),
    )  # others may have the user's value
    return (
        _arrivals("one event moves an identifier's first tick", Arrivals(), event, 3),
        _arrivals(
            "one event moves an identifier's first tick in windows of two ticks",
            Arrivals(2),
            event,
            4,
        ),
        _arrivals("single ticks", Arrivals(1), event, 3),
        _arrivals("whole windows of two ticks", Arrivals(2, ended=True), event, 4),
        _arrivals(
            f"{day}, in whole windows of twice this length", Arrivals(4, day, ended=True), window, 4
        ),
        _arrivals(f"{overall}", Arrivals(None, overall), thrice, 4),
        _arrivals(f"{overall}, in each tick", Arrivals(1, overall), thrice, 4),
        _arrivals(f"{day}, so far", Arrivals(None, day), window, 4),
        _arrivals(f"{day}, in windows of the same length", Arrivals(2, day), window, 4),
        _arrivals(f"{day}, in each tick", Arrivals(1, day), window, 4),
        _arrivals(f"{two}, of one value, so far", Arrivals(None, two, values=1), twice, 4),
        _arrivals(
            f"{two}, of one value, in whole windows",
            Arrivals(2, two, ended=True, values=1),
            twice,
            4,
        ),
        _arrivals(
            f"{day}, in two entries, in whole windows of the same length",
            Arrivals(2, day, ended=True, entries=2),
            OneUserWindow(2, 2, largest=3),
            4,
        ),
    )


TotalState: TypeAlias = tuple[int, int]
MOST_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class TotalBits:
    """Takes what a user's records amount to at a tick, up to 2; answers by a noisy bit for each unit that is added.

    The units of a window of `window` ticks (None: for ever) are at most `total`. One user is enough: all others add the
    same in both streams.
    """

    odds: Fraction
    total: int
    window: int | None

    def initial(self) -> Mapping[TotalState, Fraction]:
        return {(0, 0): ONE}

    def step(self, state: TotalState, query: int) -> Law[TotalState]:
        tick, added = state
        if self.window is not None and tick % self.window == 0:
            added = 0
        more = min(self.total, added + query) - added
        bits_ = [noisy_bit(int(more > unit), self.odds) for unit in range(MOST_AT_ONCE)]
        after = (tick + 1, added + more)
        return {
            (answer, after): math.prod(
                (bit[a] for bit, a in zip(bits_, answer, strict=True)), start=ONE
            )
            for answer in product((0, 1), repeat=MOST_AT_ONCE)
        }


@dataclass(frozen=True, slots=True)
class NetBits:
    """Takes amounts of one user, of both signs; answers at the end of a window of `window` ticks by noisy bits, one for
    each value above -`total` that the user's sum, clamped to -`total` .. `total`, reaches.
    """

    odds: Fraction
    total: int
    window: int

    def initial(self) -> Mapping[TotalState, Fraction]:
        return {(0, 0): ONE}

    def step(self, state: TotalState, query: int) -> Law[TotalState]:
        tick, added = state[0] + 1, state[1] + query
        if tick % self.window:
            return {((), (tick, added)): ONE}
        bits_ = [
            noisy_bit(int(added > value), self.odds) for value in range(-self.total, self.total)
        ]
        return {
            (answer, (tick, 0)): math.prod(
                (bit[a] for bit, a in zip(bits_, answer, strict=True)), start=ONE
            )
            for answer in product((0, 1), repeat=len(bits_))
        }


def totals() -> tuple[Instance, ...]:
    """Return one user's amounts of up to 2 at any ticks against none: less, as much and more than the total.

    And of both signs, in a window of two ticks, told at its end.
    """
    amounts, premise = ((0, 1), (0, 2)), claimed("bits", private(THREE))
    day, overall, window = Users(4, 2), Users(3), OneUserWindow(2, 4, largest=MOST_AT_ONCE)
    cases: tuple[tuple[Users, int, Pairs, int], ...] = (
        (overall, 2, DifferAtMost((0,), amounts, 3), 3),
        (overall, 3, DifferAtMost((0,), amounts, 3), 3),
        (day, 3, window, 4),
    )
    signed = DifferAtMost((0,), ((0, 2), (0, -1)), 2)
    net = Instance(
        f"bits of ln 3, a total of 2 with amounts of both signs; {day}",
        (premise,),
        UserTotals("totals", day, 2),
        NetBits(THREE, 2, 2),
        signed,
        2,
    )
    return net, *(
        Instance(
            f"bits of ln 3, a total of {total}; {users}",
            (premise,),
            UserTotals("totals", users, total),
            TotalBits(THREE, total, users.window),
            pairs,
            ticks,
        )
        for users, total, pairs, ticks in cases
    )


def shared() -> tuple[Instance, ...]:
    """Return the same of amounts of one sign, of a total that a guard keeps: one part costs what it would alone."""
    _, *alone = totals()
    return tuple(
        replace(one, situation=SharedTotals(subject.subject, subject.users, subject.total))
        for one in alone
        if isinstance(subject := one.situation, UserTotals)
    )


# Group privacy: streams that differ in up to k events (Dwork, Roth 2014, Thm 2.2), possibly of one user.
LOW = 6  # a threshold that the events of one group cross


def ladder(size: int, odds: Fraction = TWO, delta: Fraction = Fraction(1, 1000)) -> Instance:
    """Return 0 events against `size`, for the least private (ln odds, delta)-DP answer."""
    return Instance(
        f"(ln 2, 0.001)-DP answer to {size} events or none",
        (claimed("ladder", private(odds, delta)),),
        Group("user", size),
        Ladder(odds, delta),
        FirstPair(((0, size),)),
        1,
    )


def one_interval(size: int, odds: Fraction = Fraction(11, 10)) -> Instance:
    """Return all events of a user in one tick, so in one interval of a sparse vector; with two thresholds."""
    return Instance(
        f"one alert of ln 1.1; {size} events of a user in one tick",
        (claimed("alert", private(odds)),),
        Group("user", size),
        AboveThreshold(1 / odds, 1 / odds),
        FirstPair(tuple((((0,), level), ((size,), level)) for level in (LOW, size))),
        1,
    )


def two_bits(measure: Measure, words: str) -> Instance:
    """Return two of the bits that RR answers one by one."""
    part = bits(THREE).claiming(measure)
    pairs = DifferAtMost((), BIT_PAIRS[1:3], times=2)
    return Instance(words, (part.leaf,), Group("user", 2), part.machine, pairs, 2)


def of_a_user(instance: Instance, users: Users) -> Instance:
    """Return the instance with all its events belonging to one user."""
    words = f"{instance.words}; {users}"
    return replace(instance, words=words, situation=OfUsers("user", users))


def users() -> tuple[Instance, ...]:
    rho = pure_to_zcdp(PureDP(logarithm(THREE)))
    return (
        of_a_user(ladder(2), Users(2)),
        of_a_user(one_interval(20), Users(20, 1)),
        of_a_user(two_bits(private(THREE), "RR(ln 3) of each bit"), Users(2, 2)),
        of_a_user(two_bits(rho, "RR(ln 3) of each bit as zCDP"), Users(2, 2)),
    )


def events() -> tuple[Instance, ...]:
    rho, mu = pure_to_zcdp(PureDP(logarithm(THREE))), gaussian_claim(THREE)
    return (
        ladder(2),
        one_interval(20),
        two_bits(rho, "RR(ln 3) of each bit as zCDP; 2 bits of a user"),
        two_bits(mu, "RR(ln 3) of each bit as GDP; 2 bits of a user"),
    )
