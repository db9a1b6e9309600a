"""Mechanisms in boxes that come and go while the stream runs, as the product's ledger admits them.

Every creation is charged to a `Ledger`, every halt is booked in it, and the adversary chooses both by all answers so
far, and at which tick which record differs. `Differing` says in which records neighbouring streams differ. A filter's
promise is then compared with the exact worst case (docs/time.md). Rules: a mechanism's row is whether its box holds the
record of the tick. The game does not ask the ledger's searches which boxes meet: it lists records.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeAlias

from stream_dp.accounting.amounts import cost_units, exact
from stream_dp.accounting.derive import derive
from stream_dp.accounting.filters.filter import NOTHING, Entry, Filter
from stream_dp.accounting.filters.linear import BasicFilter, PureFilter, RenyiFilter
from stream_dp.accounting.filters.optimal import OptimalFilter
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.optimal import joint_delta
from stream_dp.accounting.rules.groups import (
    currency_of,
    in_currencies,
    moved,
    of_users,
    shared_totals,
)
from stream_dp.accounting.situations import Filtered, Fixed, Moved, OfUsers, SharedTotals
from stream_dp.core.box import EVERYTHING, Box, Stretch, holds
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import Protected, RenyiDP
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.errors import BudgetRefused
from stream_dp.verify.exact.finite import FiniteMachine, Law
from stream_dp.verify.exact.randomized_response import (
    LateResponse,
    NoisyBits,
    NoisyLeak,
    Symbol,
    bit_moment,
    noisy_bit,
)
from stream_dp.verify.exact_checks.alive import Begin, End, Living, TickComposition, TickRow
from stream_dp.verify.exact_checks.compositions import renyi_claim
from stream_dp.verify.exact_checks.instance import Instance, claimed, logarithm, private

HALF, ONE, TWO, THREE, FOUR, NINE = (
    Fraction(1, 2), Fraction(1), Fraction(2), Fraction(3), Fraction(4), Fraction(9)
)  # fmt: skip
TENTH, NINTH = Fraction(1, 10), Fraction(1, 9)
ADD, REPLACE, MOVES = Neighbors.ADD_REMOVE, Neighbors.REPLACE, Neighbors.REPLACE_ANY_TICK
EVENT = Protected(ADD)
Record: TypeAlias = tuple[tuple[str, Any], ...]  # its fields that are not null


def in_kinds(*kinds: str) -> Box:
    return Box((("kind", frozenset(kinds)),))


A, B, A_OR_B = in_kinds("A"), in_kinds("B"), in_kinds("A", "B")
LARGE, SMALL_A = Box((("size", Stretch(low=5)),)), A.cut(Box((("size", Stretch(high=5)),)))
IN_A, IN_B, NULL = (("kind", "A"),), (("kind", "B"),), ()
SIZED = tuple((("kind", kind), ("size", size)) for kind in "AB" for size in (4, 5))


def sees(box: Box, record: Record) -> bool:
    """Say whether the box holds the record, by its definition: a test holds for no null."""
    values = dict(record)
    return all(name in values and holds(side, values[name]) for name, side in box.sides)


@dataclass(frozen=True, slots=True)
class Seeing:
    """`machine` gets the number of the first of its `cells` that holds the tick's record, from 1 on; 0 if none does."""

    machine: FiniteMachine[Any, Any]
    cells: tuple[frozenset[Record], ...]

    def initial(self) -> Mapping[Any, Fraction]:
        return self.machine.initial()

    def step(self, state: Any, query: Record | None) -> Law[Any]:
        places = (place for place, cell in enumerate(self.cells, 1) if query in cell)
        return self.machine.step(state, next(places, 0))


@dataclass(frozen=True, slots=True)
class Kind:
    """A mechanism that may be created any number of times: its premise, and the box that the ledger is told.

    `cells`: the records that it sees, where these are not the records of the box, or more than one cell. `fresh`: what
    the ledger is told, where that is not what the premise says.
    """

    machine: FiniteMachine[Any, Any]
    premise: Derivation
    box: Box = EVERYTHING
    cells: tuple[frozenset[Record], ...] = ()
    fresh: bool | None = None

    def entry(self, ledger: Ledger) -> Entry:
        """Return what the ledger charges for it."""
        entry = ledger.price(self.premise, self.box)
        return entry if self.fresh is None else replace(entry, fresh=self.fresh)

    def seeing(self, records: Sequence[Record]) -> Seeing:
        inside = frozenset(record for record in records if sees(self.box, record))
        return Seeing(self.machine, self.cells or (inside,))


@dataclass(frozen=True)
class LiveComposition:
    """Mechanisms of these kinds, created and halted at any time; the living stand in the order of their kinds."""

    composition: TickComposition

    def initial(self) -> Mapping[Living, Fraction]:
        return {(): ONE}

    def step(self, state: Living, query: Begin | End | TickRow) -> Law[Living]:
        match query:
            case Begin(kind):
                place = sum(other <= kind for other, _ in state)
                begun = self.composition.kinds[kind].initial().items()
                return {
                    (True, (*state[:place], (kind, inner), *state[place:])): p for inner, p in begun
                }
            case End(place):
                return {(True, (*state[:place], *state[place + 1 :])): ONE}
            case TickRow(row):
                return self.composition.answered(state, row)


Room: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Differing:
    """Which records neighbouring streams may still differ in: (l, r) allows l more in the left, r more in the right.

    `room` holds the alternatives that are left. `at_once`: both records of a replacement lie in one tick.
    """

    records: tuple[Record, ...]
    room: frozenset[Room]
    at_once: bool = False

    @classmethod
    def of(cls, protected: Protected, records: Sequence[Record]) -> "Differing":
        if protected.neighbors is not ADD:
            room = frozenset({(1, 1)})
            return cls(tuple(records), room, protected.neighbors is REPLACE)
        most = 1 if protected.users is None else protected.users.cap
        return cls(tuple(records), frozenset({(most, 0), (0, most)}))

    @property
    def over(self) -> bool:
        return not any(map(any, self.room))

    def moves(self) -> Iterator[tuple[tuple[Record | None, Record | None], "Differing"]]:
        """Yield the pairs of records that a tick may have, of which at least one differs from none."""
        for left in (None, *self.records):
            for right in (None, *self.records):
                more = left is not None, right is not None
                if left == right or (self.at_once and not all(more)):
                    continue
                left_over = ((a - more[0], b - more[1]) for a, b in self.room)
                after = frozenset(room for room in left_over if min(room) >= 0)
                if after:
                    yield (left, right), replace(self, room=after)


@dataclass(frozen=True, slots=True)
class Admitted:
    """Creations and halts as `ledger` admits and books them, and rows of neighbouring streams.

    Where the streams can differ no more, nothing is created or halted: what begins then has one law on both sides, and
    a halt without a later creation only loses answers. With `afterwards` creations and halts go on all the same.
    """

    ledger: Ledger
    entries: tuple[Entry, ...] = field(compare=False)
    differing: Differing
    ticks: int
    creations: int
    afterwards: bool
    tick: int = 0
    living: tuple[int, ...] = ()
    charges: dict[tuple[Ledger, int, int], Ledger | None] = field(
        default_factory=dict, compare=False, repr=False
    )

    def moves(self) -> Iterator[tuple[tuple[Any, Any], "Admitted"]]:
        if self.creations and (self.afterwards or not self.differing.over):
            yield from self._creations()
            for place, kind in enumerate(self.living):
                halted = self.ledger.halt(self.entries[kind], self.tick)
                living = (*self.living[:place], *self.living[place + 1 :])
                yield (End(place),) * 2, replace(self, ledger=_sums(halted), living=living)
        if self.tick < self.ticks:
            after = replace(self, tick=self.tick + 1)
            yield (TickRow(None),) * 2, after
            for (left, right), rest in self.differing.moves():
                yield (TickRow(left), TickRow(right)), replace(after, differing=rest)

    def _creations(self) -> Iterator[tuple[tuple[Any, Any], "Admitted"]]:
        for kind in range(len(self.entries)):
            charged = self._charged(kind)
            if charged is not None:
                living, left = tuple(sorted((*self.living, kind))), self.creations - 1
                after = replace(self, ledger=charged, living=living, creations=left)
                yield (Begin(kind),) * 2, after

    def _charged(self, kind: int) -> Ledger | None:
        """Return the ledger with one more of this kind; None where it refuses."""
        key = self.ledger, kind, self.tick
        if key not in self.charges:
            try:
                charged = self.ledger.charge(self.entries[kind], self.tick)
                self.charges[key] = _sums(charged)
            except BudgetRefused:
                self.charges[key] = None
        return self.charges[key]


def _sums(ledger: Ledger) -> Ledger:
    """Return the ledger with what decides about charges, so that histories with equal books are one."""
    return replace(ledger.summed(), peak=NOTHING)


@dataclass(frozen=True, slots=True)
class Stream:
    """Neighbouring streams, how long a game is, and whether it goes on as before after the last difference."""

    protected: Protected = EVENT
    records: tuple[Record, ...] = (IN_A, IN_B, NULL)
    ticks: int = 2
    creations: int = 3
    afterwards: bool = False


def played(
    words: str, filter_: Filter, kinds: Sequence[Kind], fits: Sequence[int], stream: Stream,
    declared: Protected | None = None,
) -> Instance:  # fmt: skip
    """Return a game in which a ledger under this filter decides what is created.

    `fits`: the numbers of the kinds of which the ledger admits as much at once as it does; the rule checks it.
    `declared`: whom the ledger protects, where these are not the neighbours of the stream.
    """
    shares = any(currency_of(kind.premise) or in_currencies(kind.premise) for kind in kinds)
    ledger = Ledger.under(filter_, protected=declared or stream.protected, shares=shares)
    entries = tuple(kind.entry(ledger) for kind in kinds)
    machine = LiveComposition(TickComposition(tuple(kind.seeing(stream.records) for kind in kinds)))
    differing = Differing.of(stream.protected, stream.records)
    limits = stream.ticks, stream.creations, stream.afterwards
    pairs = Admitted(ledger, entries, differing, *limits)
    premises = tuple(kinds[number].premise for number in fits)
    boxes = tuple(entries[number].box for number in fits)
    situation = Filtered("live", filter_, boxes=boxes)
    rounds = stream.ticks + 2 * stream.creations
    return Instance(words, premises, situation, machine, pairs, rounds)


# --- mechanisms -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FailingBits:
    """Answers every bit by RR_(ln odds, delta), with no memory: a failure comes with the bit, so it is fresh."""

    odds: Fraction
    delta: Fraction

    def initial(self) -> Mapping[None, Fraction]:
        return {None: ONE}

    def step(self, state: None, query: int) -> Law[None]:
        law: dict[tuple[Any, None], Fraction] = {((Symbol.TOP, query), None): self.delta}
        for bit, chance in noisy_bit(query, self.odds).items():
            law[(Symbol.BOTTOM, bit), None] = (1 - self.delta) * chance
        return law


@dataclass(frozen=True, slots=True)
class NoisyCells:
    """Answers whether the record lies in cell 1, 2, ... of `cells`, by a randomized response for every cell.

    Privacy claim: ln(odds) for a record more or less, 2 ln(odds) for one that changes its cell.
    """

    odds: Fraction
    cells: int

    def initial(self) -> Mapping[None, Fraction]:
        return {None: ONE}

    def step(self, state: None, query: int) -> Law[None]:
        law: dict[tuple[int, ...], Fraction] = {(): ONE}
        for cell in range(1, self.cells + 1):
            bits = noisy_bit(int(query == cell), self.odds).items()
            law = {(*before, bit): p * q for before, p in law.items() for bit, q in bits}
        return {(answer, None): p for answer, p in law.items()}


@dataclass(frozen=True, slots=True)
class Announced:
    """Answers its first bit by a fair coin, whatever the bit; after heads it answers every bit by RR, else none.

    Privacy claim: (ln odds)-DP for one changed bit. Whoever creates some learns first which will be of use.
    """

    odds: Fraction

    def initial(self) -> Mapping[str, Fraction]:
        return {"new": ONE}

    def step(self, state: str, query: int) -> Law[str]:
        if state == "new":
            return {(coin, coin): HALF for coin in ("heads", "tails")}
        bits = noisy_bit(query, self.odds) if state == "heads" else {0: ONE}
        return {(bit, state): chance for bit, chance in bits.items()}


def response(odds: Fraction, box: Box = EVERYTHING, relation: Neighbors = ADD) -> Kind:
    """Return RR at every tick, of whether the box holds the record."""
    return Kind(NoisyBits(odds), claimed(f"RR in {box}", private(odds), relation), box)


def announced(box: Box = EVERYTHING) -> Kind:
    """Return a pure mechanism of ln 3 that says first whether it will answer."""
    return Kind(Announced(THREE), claimed("announced", private(THREE)), box)


def failing(box: Box = EVERYTHING) -> Kind:
    """Return a fresh mechanism of (ln 3, 0.1)."""
    premise = claimed("failing", private(THREE, TENTH), fresh=True)
    return Kind(FailingBits(THREE, TENTH), premise, box)


def late(box: Box = EVERYTHING) -> Kind:
    """Return a mechanism of (ln 3, 0.1) that is not fresh: it says first whether it will reveal the next bit."""
    return Kind(LateResponse(THREE, TENTH), claimed("late", private(THREE, TENTH)), box)


CORE = RenyiDP(TWO, logarithm(1 + TENTH * (bit_moment(NINE, 2) - 1)))


def core(box: Box = EVERYTHING) -> Kind:
    """Return M of [HSV] Thm 13.5 with its Renyi DP of order 2 alone, which is not fresh."""
    return Kind(NoisyLeak(TENTH, NINE), claimed("core", CORE), box)


def at_order_two(odds: Fraction, box: Box = EVERYTHING) -> Kind:
    """Return RR with its Renyi DP of order 2, fresh as every pure mechanism."""
    premise = claimed("RR", renyi_claim(odds), fresh=True)
    return Kind(NoisyBits(odds), premise, box)


def for_moves(kind: Kind) -> Kind:
    """Return the kind priced for a replacement that may move: halved."""
    return replace(kind, premise=moved((kind.premise,), Moved(kind.premise.subject)))


def for_users(kind: Kind, users: Users) -> Kind:
    return replace(kind, premise=of_users((kind.premise,), OfUsers(kind.premise.subject, users)))


# --- budgets --------------------------------------------------------------------------------------


def granted(*epsilons: Fraction) -> Fraction:
    """Return the sum of what a ledger charges for these epsilons."""
    return sum((exact(cost_units(epsilon)) for epsilon in epsilons), Fraction(0))


def pure(*odds: Fraction) -> PureFilter:
    return PureFilter.of(granted(*map(logarithm, odds)))


def basic(odds: Fraction, delta: Fraction) -> BasicFilter:
    return BasicFilter.of(granted(logarithm(odds)), delta)


def renyi(*costs: RenyiDP) -> RenyiFilter:
    return RenyiFilter.of(RenyiDP(TWO, granted(*(cost.epsilon for cost in costs))))


def optimal(odds: Fraction, delta: Fraction, steps: int = 1) -> OptimalFilter:
    """Return the filter of (ln odds, delta), some 10^-12 wider: costs are rounded up."""
    wide = Fraction(9, 10**12)
    return OptimalFilter.of(logarithm(odds) + wide, delta + wide, steps)


# --- instances ------------------------------------------------------------------------------------


def boxes() -> tuple[Instance, ...]:
    """Return boxes under every relation: an event more, a replacement in any tick or in one, the events of a user."""
    within, moves, users = Protected(REPLACE), Protected(MOVES), Protected(ADD, Users(2))
    counts = [response(TWO, box) for box in (A, B, A_OR_B, EVERYTHING)]
    inside = [response(TWO, box, REPLACE) for box in (A, B, A_OR_B)]
    cells = tuple(frozenset({record}) for record in (IN_A, IN_B))
    table = Kind(NoisyCells(TWO, 2), claimed("table", private(FOUR), REPLACE), A_OR_B, cells)
    sized = [response(TWO, box) for box in (A, LARGE, SMALL_A)]
    return (
        played(
            "boxes A, B, A or B, all: RR(ln 2); ln 3 that announces itself; ln 6 at a record",
            pure(THREE, TWO), [*counts, announced(A)], (0, 4), Stream(),
        ),
        played(
            "boxes kind A, size at least 5, A and size at most 5, that meet in A and 5; ln 4 at a record",
            pure(TWO, TWO), sized, (0, 1), Stream(records=SIZED),
        ),
        played(
            "boxes A, B, all: RR(ln 2), priced ln 4; an event moves; ln 4 at a record",
            pure(FOUR), [for_moves(counts[n]) for n in (0, 1, 3)], (0, 1), Stream(moves, ticks=3),
        ),
        played(
            "boxes A, B, A or B: RR(ln 2); a replacement in its tick; ln 4 at two records",
            pure(TWO, TWO), inside, (0, 1), Stream(within),
        ),
        played(
            "boxes A, B, A or B: RR(ln 2), and a table of A and B of ln 4; a replacement in its tick; ln 8 at "
            "two records",
            pure(FOUR, TWO), [*inside, table], (0, 3), Stream(within),
        ),
        played(
            f"boxes A, B, A or B: RR(ln 2), priced ln 4; {Users(2)}; ln 4 at a record",
            pure(FOUR), [for_users(kind, Users(2)) for kind in counts[:3]], (0, 1), Stream(users, ticks=3),
        ),
    )  # fmt: skip


def halts() -> tuple[Instance, ...]:
    """Return halts of what is fresh, which free all of it, and of what is not."""
    return (
        played(
            "RR(ln 2), ln 3 that announces itself, refilled also after the event; ln 3 at a tick",
            pure(THREE), [response(TWO), announced()], (1,),
            Stream(records=(IN_A,), ticks=3, creations=4, afterwards=True),
        ),
        played(
            "fresh (ln 3, 0.1) in A, in B, refilled; basic filter of delta 0.1",
            basic(THREE, TENTH), [failing(A), failing(B)], (0, 1), Stream(ticks=3),
        ),
        played(
            "(ln 3, 0.1), not fresh, in A, in B; basic filter of delta 0.2: two in all",
            basic(THREE, 2 * TENTH), [late(A), late(B)], (0,), Stream(ticks=4),
        ),
        played(
            "Renyi at order 2: a core that is not fresh, once; RR(ln 2) in B, in A or B, refilled",
            renyi(CORE, renyi_claim(TWO)), [core(A), at_order_two(TWO, B), at_order_two(TWO, A_OR_B)], (0, 2),
            Stream(ticks=3),
        ),
        played(
            "Renyi at order 2: RR(ln 9), fresh, in A, in B, in both, refilled",
            renyi(renyi_claim(NINE)), [at_order_two(NINE, box) for box in (A, B, A_OR_B)], (0, 1), Stream(ticks=3),
        ),
    )  # fmt: skip


def composed_at_best() -> tuple[Instance, ...]:
    """Return the filter of the optimal composition, with creations chosen from answers and refilled after halts."""
    counts, single = [response(TWO, box) for box in (A, B, A_OR_B)], (IN_A,)
    moves = [for_moves(response(TWO))]
    quarter = Fraction(1, 4)  # the delta of RR(ln 2), RR(ln 3) at e^epsilon = 3
    return (
        played(
            "optimal filter of (ln 3, 1/9): RR(ln 2) in A, B, A or B", optimal(THREE, NINTH),
            counts, (0, 2), Stream(),
        ),
        played(
            "optimal filter of (ln 3, 1/9), refilled: two run at once, 4 created",
            optimal(THREE, NINTH), counts[:1], (0, 0), Stream(records=single, ticks=3, creations=4),
        ),
        played(
            "optimal filter of (ln 3, 1/4): RR(ln 2), ln 3 that announces itself",
            optimal(THREE, quarter), [response(TWO), announced()], (0, 1),
            Stream(records=single, ticks=3, creations=4),
        ),
        played(
            "optimal filter of (ln 3, 0.325): RR(ln 2); (ln 3, 0.1), not fresh, once",
            optimal(THREE, joint_delta((quarter, TENTH))), [response(TWO), late()], (0, 1),
            Stream(records=single, ticks=3),
        ),
        played(
            "optimal filter of (ln 4, 2/3): RR(ln 2), priced ln 4; an event moves, two steps",
            optimal(FOUR, Fraction(2, 3), 2), moves, (0, 0), Stream(Protected(MOVES), single, 3, 4),
        ),
        played(
            "optimal filter of (ln 4, 1/4), two steps: one runs at a time", optimal(FOUR, quarter, 2), moves, (0,),
            Stream(Protected(MOVES), single, 3, 4),
        ),
    )  # fmt: skip


MOST, AMOUNTS = 2, (1, 2)
SUMMED = tuple((("kind", kind), ("amount", amount)) for kind in "AB" for amount in AMOUNTS)
LEFT = tuple(
    (("kind", kind), ("amount", units), ("fits", fits))
    for kind in "AB"
    for units in (0, *AMOUNTS)
    for fits in (False, True)
)


@dataclass(frozen=True, slots=True)
class Sharing:
    """`behind` gets each record of a user with what a guard has left of its amount, `MOST` in all of every record, and
    whether that is all of it.
    """

    behind: FiniteMachine[Any, Any]

    def initial(self) -> Mapping[Any, Fraction]:
        return {(0, state): p for state, p in self.behind.initial().items()}

    def step(self, state: tuple[int, Any], query: Begin | End | TickRow) -> Law[Any]:
        added, inner = state
        if isinstance(query, TickRow) and query.row is not None:
            record: Any = dict(query.row)  # type: ignore[call-overload]  # a record
            after = min(MOST, added + record["amount"])
            units, added = after - added, after
            fits = units == record["amount"]
            query = TickRow((("kind", record["kind"]), ("amount", units), ("fits", fits)))
        behind = self.behind.step(inner, query).items()
        return {(answer, (added, rest)): p for (answer, rest), p in behind}


@dataclass(frozen=True, slots=True)
class NoisyUnits:
    """Answers how many units there are, up to `MOST`, by a randomized response for each."""

    odds: Fraction

    def initial(self) -> Mapping[None, Fraction]:
        return {None: ONE}

    def step(self, state: None, query: int) -> Law[None]:
        law: dict[tuple[int, ...], Fraction] = {(): ONE}
        for unit in range(MOST):
            bits = noisy_bit(int(query > unit), self.odds).items()
            law = {(*before, bit): p * q for before, p in law.items() for bit, q in bits}
        return {(answer, None): p for answer, p in law.items()}


def for_all(odds: Fraction, box: Box, users: Users) -> Kind:
    """Return a sum within a shared total, which answers each unit by RR(ln odds)."""
    premise = shared_totals(
        (claimed(f"units in {box}", private(odds)),), SharedTotals("units", users, MOST)
    )
    cells = tuple(
        frozenset(row for row in LEFT if sees(box, row) and ("amount", units) in row)
        for units in AMOUNTS
    )
    return Kind(NoisyUnits(odds), premise, box, cells)


@dataclass(frozen=True, slots=True)
class NoisyMean:
    """Answers how many units a record has, and by one more response whether there is one."""

    odds: Fraction

    def initial(self) -> Mapping[None, Fraction]:
        return {None: ONE}

    def step(self, state: None, query: int) -> Law[None]:
        units, bits = NoisyUnits(self.odds).step(None, query), noisy_bit(int(query > 0), self.odds)
        return {
            ((answer, bit), None): p * q
            for (answer, _), p in units.items()
            for bit, q in bits.items()
        }


def of_what_fits(odds: Fraction, box: Box, users: Users) -> Kind:
    """Return a mean of records that fit into what is left of the total: a unit, and a record, costs ln odds."""
    unit = claimed(f"units, and records, in {box}", private(odds))
    both = (
        shared_totals((unit,), SharedTotals("units", users, MOST)),
        of_users((unit,), OfUsers("records", users)),
    )
    cells = tuple(
        frozenset(
            row for row in LEFT if sees(box, row) and {("amount", units), ("fits", True)} <= {*row}
        )
        for units in AMOUNTS
    )
    return Kind(NoisyMean(odds), derive(both, Fixed("mean")), box, cells)


def of_records(odds: Fraction, box: Box, users: Users) -> Kind:
    """Return a count of records, whatever their amounts."""
    inside = frozenset(row for row in LEFT if sees(box, row))
    return replace(for_users(response(odds, box), users), cells=(inside,))


def sharing() -> tuple[Instance, ...]:
    """Return sums within a total that a guard keeps for all of them, which come and go; also beside counts, which cost
    by events, so that both add up in a window; and means of what fits into it, which cost by both.
    """
    two = Users(2, 2)
    sums = [for_all(TWO, box, two) for box in (A, B, A_OR_B)]
    counts = [of_records(TWO, box, two) for box in (A, B, A_OR_B)]
    stream = Stream(Protected(ADD, two), SUMMED, 2, 3)
    games = (
        played(
            f"sums in A, B, A or B within a total of 2; {two}; ln 4 at a unit", pure(FOUR), sums, (0, 1), stream,
        ),
        played(
            f"the sum in A, counts in A, B; {two}; ln 4 in a window", pure(FOUR), [sums[0], *counts[:2]], (1, 2),
            stream,
        ),
        played(
            f"the sum in A, a count in A or B; {two}; ln 4 of each currency in a window", pure(FOUR, FOUR),
            [sums[0], counts[2]], (0, 1), replace(stream, creations=2),
        ),
        played(
            f"means in A, B; {two}; ln 4 of each currency in a window", pure(FOUR, FOUR),
            [of_what_fits(TWO, box, two) for box in (A, B)], (0, 1), replace(stream, creations=2),
        ),
    )  # fmt: skip
    return tuple(replace(game, machine=Sharing(game.machine)) for game in games)


def instances() -> tuple[Instance, ...]:
    return *boxes(), *halts(), *composed_at_best(), *sharing()
