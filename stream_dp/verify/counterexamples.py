"""Tempting but wrong ways to account, each with an adversary that exceeds the booked loss, and our rules' answer.

The largest delta ([HSV] Thm 5.2): in the 1-sparse parallel composition of (0, delta)-DP continual mechanisms an
adversary learns the secret bit with probability 1 - (1 - delta)^l after l creations, though only one mechanism ever
gets a pair of different messages.

A loss bounded by (epsilon, delta)-DP ([WRRW] App. F): a mechanism rarely answers 1, and more often where the bit is
1. It may be (epsilon, delta)-DP while its loss exceeds epsilon with a probability far above delta. An odometer
([WRRW] Thm 3) that takes it for (epsilon, delta)-pDP fails after one step where delta' is far below delta: exact
.0231 where .0100 is allowed (`RARE`). [WRRW] conjecture that such a break exists.

Untrue entries: a ledger adds up and frees by what an entry says (the box, whether the mechanism is fresh, for which
neighbours its price is derived). The books here are the product's own ledger, told one of these wrongly, in the game of
`exact_checks.live` against all adaptive adversaries; `_past_ticks` alone has the books of `exact_checks.alive`. Our
answer is what the ledger says to the true entries.

Rules: "exactly" means exact arithmetic, over all adaptive adversaries where stated; the code computes our refusals.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from stream_dp.accounting.amounts import Interval
from stream_dp.accounting.derive import derive
from stream_dp.accounting.filters.filter import Filter
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.optimal import least_epsilon
from stream_dp.accounting.rules.groups import first_arrivals
from stream_dp.accounting.rules.parallel import first_pair_renyi, sparse_delta
from stream_dp.accounting.rules.rule import Rule, epsilon_of
from stream_dp.accounting.situations import FirstArrivals, Parallel, Touched
from stream_dp.core.box import EVERYTHING, Box, Stretch
from stream_dp.core.composition import Ask, Create
from stream_dp.core.guarantee import ApproxDP, Guarantee, ProbabilisticDP, Protected, RenyiDP
from stream_dp.core.mechanism import Mechanism, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.core.relation import All
from stream_dp.core.row_relations import Arrivals
from stream_dp.errors import BudgetRefused, NotDerivable
from stream_dp.verify.exact.enumeration import Verified
from stream_dp.verify.exact.exact_delta import exact_delta, exact_moment, worst_ratio
from stream_dp.verify.exact.finite import Sampled
from stream_dp.verify.exact.randomized_response import (
    LeakyBit,
    NoisyBits,
    NoisyLeak,
    RareAnswer,
    Symbol,
    bit_moment,
)
from stream_dp.verify.exact_checks.alive import FirstBits, OneTick, TickComposition, one_interval
from stream_dp.verify.exact_checks.compositions import at_most, leaky, measure_of
from stream_dp.verify.exact_checks.instance import (
    Instance,
    OneBitDiffers,
    Part,
    claimed,
    compare,
    composed,
    known,
    logarithm,
    private,
    ratio,
    sent,
)
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
from stream_dp.verify.game import HALT, View
from stream_dp.verify.odometers import FilterBoundary, Odometer
from stream_dp.verify.relations import k_sparse


@dataclass(frozen=True, slots=True)
class WaitingAdversary(ABC):
    """The deterministic adversary of [HSV] Thm 5.2 and Thm 13.5: it waits for a failure in at most `most` creations.

    It creates mechanisms and sends (0, 0) to each, until one fails (`Symbol.TOP`); only then it sends (0, 1), to that
    mechanism. So only one mechanism gets a pair of different messages, but its own answer chose it.
    """

    most: int = field(kw_only=True)

    @property
    @abstractmethod
    def mechanism(self) -> Mechanism[Any]:
        """The mechanism to create; it takes bits, answers TOP when it fails, and then TOP + 1 + bit."""

    def init(self, noise: Noise) -> tuple[int, int]:
        """Return the index of the mechanism, and the number of messages about it so far."""
        return 0, 0

    def step(self, state: tuple[int, int], message: Any, noise: Noise) -> tuple[Any, Any]:
        index, sent = state
        if sent == 3 and int(message[0]) != Symbol.TOP:
            index, sent = index + 1, 0
        if index == self.most or sent == 5:
            return state, HALT
        zero, one = (Ask(index, Update(np.array([bit], dtype=np.int64))) for bit in (0, 1))
        create, ask = Create(self.mechanism), Ask(index, Query())
        pairs = (create, create), (zero, zero), (ask, ask), (zero, one), (ask, ask)
        return (index, sent + 1), pairs[sent]

    def guess(self, view: View) -> int | None:
        """Return the bit that the view shows; None where no mechanism failed."""
        known = isinstance(view.last, np.ndarray) and int(view.last[0]) > Symbol.TOP
        return int(view.last[0]) - Symbol.TOP - 1 if known else None


@dataclass(frozen=True, slots=True)
class RenyiAdversary(WaitingAdversary):
    """A of [HSV] Thm 13.5, with at most `most` creations of `NoisyLeak(chance, odds)`.

    In the 1-sparse parallel composition of (alpha, eps)-RDP mechanisms the divergence between the adversary's views
    exceeds any eps' after enough creations. Whole orders only: moments e^((alpha-1) D) are then rational.

    Errata of the printed proof: (1) its last display averages (P/Q)^alpha over P = V^0; Def 13.1 averages over Q = V^1.
    So its q is too small for large eps': at alpha = 2, eps' = 8 the divergence (base 2) is 6.4. (2) Powers of 2 stand
    beside log(1 + x) <= x: bases 2 and e are mixed. (3) eps = 0 is false: (alpha, 0)-RDP mechanisms have equal laws,
    and so has their composition; the proof's p is then 0 and its adversary waits for ever. (4) The display's first line
    must have ((1-q)/q)^alpha in its second term.

    Example: each mechanism has moment 16/7 at order 2; the composition comes arbitrarily near to 43/7.
        >>> adversary = RenyiAdversary(2, Fraction(1, 4), Fraction(7), most=20)
        >>> adversary.mechanism_moment, round(float(adversary.moment), 2)
        (Fraction(16, 7), 6.13)
    """

    order: int
    chance: Fraction
    odds: Fraction

    @property
    def claim(self) -> RenyiDP:
        """The Renyi DP of each mechanism; ln(1 + x) <= x bounds its exact moment."""
        excess = (self.mechanism_moment - 1) / (self.order - 1)
        return RenyiDP(Fraction(self.order), excess)

    @property
    def mechanism(self) -> Sampled:
        """The mechanism, with its (0, delta) guarantee; delta is the mean leak."""
        delta = self.chance * (self.odds - 1) / (self.odds + 1)
        guarantee = Guarantee(ApproxDP(Fraction(0), delta), Neighbors.ADD_REMOVE)
        return Sampled(NoisyLeak(self.chance, self.odds), guarantee)

    @property
    def mechanism_moment(self) -> Fraction:
        """The exact moment of one mechanism: the charge of a book that counts touched mechanisms only."""
        return 1 + self.chance * (bit_moment(self.odds, self.order) - 1)

    @property
    def moment(self) -> Fraction:
        """The exact moment of the composition: 1 + (1 - (1 - chance)^most) (m - 1)."""
        return 1 + self.listening_probability * (bit_moment(self.odds, self.order) - 1)

    @property
    def listening_probability(self) -> Fraction:
        """1 - (1 - chance)^most: the probability that the adversary gets a noisy bit at all."""
        return 1 - (1 - self.chance) ** self.most


ODDS, DELTA, CHANCE = Fraction(11, 10), Fraction(99, 10_000), Fraction(231, 10_000)
RARE = RareAnswer((CHANCE - DELTA) / ODDS, CHANCE)
"""Exactly (ln ODDS, DELTA)-DP: an answer 1 has the chance CHANCE for the bit 1."""
CREATED, MORE = 3, 20
_END = re.compile(r"(?<!App|Cor|Def|Thm)\. (?=[A-Z])")


@dataclass(frozen=True, slots=True)
class NaiveBook:
    """`promised` and `exact` are values of `quantity`; `ours` is our rule's refusal (first sentence) or price."""

    title: str
    source: str
    quantity: str
    promised: Fraction
    exact: Fraction
    adversary: str
    ours: str


def books() -> tuple[NaiveBook, ...]:
    return largest_delta(), touched_renyi(), approximate_loss(), events_as_responses()


def largest_delta() -> NaiveBook:
    """Return [HSV] Thm 5.2: one mechanism is touched, and the naive book charges its delta once."""
    part = leaky(TENTH)
    waiting = MaxDeltaAdversary(TENTH, most=MORE)
    return NaiveBook(
        "parallel composition, the largest delta booked",
        "[HSV] Thm 5.2",
        "delta at epsilon 0",
        TENTH,
        exact_delta(composed(), _one_touched(part), Fraction(1), 2 * CREATED + 1),
        f"{CREATED} created, all adversaries; one that waits through {MORE} knows the event with "
        f"{float(waiting.winning_probability):.3f}",
        _refused(part, sparse_delta),
    )


def touched_renyi() -> NaiveBook:
    """Return [HSV] Thm 13.5: one mechanism is touched, and the naive book charges its Renyi epsilon once."""
    waiting = RenyiAdversary(2, Fraction(1, 5), Fraction(7), most=MORE)
    machine = NoisyLeak(waiting.chance, waiting.odds)
    part = Part("noisy leak", machine, waiting.claim, OneBitDiffers())
    moment = exact_moment(composed(), _one_touched(part), waiting.order, 2 * CREATED + 1)
    limit = Interval.of(waiting.moment).ln().lower
    return NaiveBook(
        "parallel composition in Renyi DP, the touched one booked",
        "[HSV] Thm 13.5",
        "epsilon at order 2",
        Interval.of(waiting.mechanism_moment).ln().upper,
        Interval.of(Fraction(moment)).ln().lower,
        f"{CREATED} created, all adversaries; one that waits through {MORE} has {float(limit):.3f}",
        _refused(part, first_pair_renyi),
    )


def approximate_loss() -> NaiveBook:
    """Return [WRRW] App. F: (epsilon, delta)-DP is mistaken for a bound on the privacy loss."""
    slack, epsilon = Fraction(1, 10_000), Fraction(1, 10)  # RARE is (ln 1.1, DELTA)-DP
    odometer = Odometer.of(FilterBoundary.tuned(Fraction(45, 100), slack), DELTA)
    bound = odometer.observe(ProbabilisticDP(epsilon, DELTA)).bound()
    if bound is None:
        raise RuntimeError("this odometer states no bound that could be broken")
    return NaiveBook(
        "an odometer fed with (epsilon, delta)-DP in place of pDP",
        "[WRRW] App. F",
        "chance of a loss above its bound",
        slack + DELTA,
        RARE.exceeds(Interval.of(bound).exp().upper),
        "one step of one mechanism",
        first_sentence(lambda: odometer.observe(ApproxDP(epsilon, DELTA))),
    )


def events_as_responses() -> NaiveBook:
    """Return k events of one user in one interval, booked as k randomized responses (Kairouz, Oh, Viswanath)."""
    size, delta, instance = 20, Fraction(1, 400), one_interval(20)
    (part,) = instance.premises
    booked = least_epsilon([epsilon_of(part.guarantee.measure)] * size, delta)
    ours = derive(instance.premises, instance.situation).guarantee.measure
    return NaiveBook(
        f"{size} events in one interval, booked as {size} randomized responses",
        "Kairouz, Oh, Viswanath",
        f"delta at epsilon {float(booked):.3g}",
        delta,
        exact_delta(instance.machine, instance.pairs, ratio(booked), instance.rounds),
        "one alert, all events in one tick",
        f"not refused, but booked as epsilon {float(epsilon_of(ours)):.4g}, delta 0: the group rule",
    )


def first_sentence(call: Callable[[], Any]) -> str:
    """Return the first sentence of the refusal that `call` raises; RuntimeError where it raises none."""
    try:
        call()
    except (NotDerivable, BudgetRefused) as refusal:
        return _END.split(str(refusal))[0]
    raise RuntimeError("this mechanism should have been refused")


def _one_touched(part: Part) -> Verified:
    """Return the naive verifier: at most one part may be touched, and at most `CREATED` are created."""
    relation = All((k_sparse([part.measure], measure_of, truth=known), at_most(part, CREATED)))
    return sent(relation, (part,), CREATED)


def _refused(part: Part, rule: Rule[Any]) -> str:
    """Return this rule's refusal of such parts, one of them touched, created without bound."""
    touched = Touched(1, Neighbors.ADD_REMOVE, "one gets the event")
    situation = Parallel(part.name, touched)
    first_sentence(lambda: derive((part.leaf,), situation))
    return first_sentence(lambda: rule((part.leaf,), situation))


def leaky_mechanism(delta: Fraction) -> Sampled:
    """Return M_delta of the proof as a core mechanism, with its guarantee: (0, delta)-DP for one changed bit."""
    measure = ApproxDP(Fraction(0), delta)
    return Sampled(LeakyBit(delta), Guarantee(measure, Neighbors.ADD_REMOVE))


@dataclass(frozen=True, slots=True)
class MaxDeltaAdversary(WaitingAdversary):
    """A_delta of [HSV] Thm 5.2, with at most `most` creations.

    Example:
        >>> MaxDeltaAdversary(Fraction(1, 4), most=5).winning_probability
        Fraction(781, 1024)
    """

    delta: Fraction

    @property
    def mechanism(self) -> Sampled:
        return leaky_mechanism(self.delta)

    @property
    def winning_probability(self) -> Fraction:
        """1 - (1 - delta)^most: the probability that it knows the bit for certain."""
        return 1 - (1 - self.delta) ** self.most


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
            "a null booked in no box, but seen in two", "in A or null, in B or null",
            {A: (IN_A, NULL), B: (IN_B, NULL)}, (EVERYTHING, EVERYTHING),
        ),
        _smaller(
            "two values of a list as disjoint boxes", "a record has both",
            {first: (x, both), second: (y, both)}, (EVERYTHING, EVERYTHING), (x, y, both),
        ),
        _smaller(
            "the box of a watch in place of its monitor's", "the monitor of A, a count of small ones in A",
            {many: (small, large), few: (small,)}, (A, few), SIZED,
        ),
        _smaller(
            "an end that both ranges hold, booked in one", "in A up to 5, in A from 5 on",
            {few: (small, large), many: (large,)}, (SMALL_A, many), SIZED,
        ),
    )  # fmt: skip


def replacements() -> tuple[NaiveBook, ...]:
    """Return replacements booked as an event more: in two boxes that do not meet, and at two ticks."""
    kinds, within = [response(TWO, A), response(TWO, B)], Protected(REPLACE)
    return (
        _exceeded(
            "a replacement booked at its new record alone", BOXES, "a count of A sees the old one, one of B the new",
            played("", pure(TWO), kinds, (), Stream(within), EVENT),
            _refusal(pure(TWO), within, [response(TWO, box, REPLACE) for box in (A, B)]),
        ),
        _exceeded(
            "an event that moves booked as one that does not", TIME, "one count of A sees it at two ticks",
            played("", pure(TWO), kinds[:1], (), Stream(MOVING, (IN_A,)), EVENT),
            _refusal(pure(TWO), MOVING, map(for_moves, kinds)),
        ),
    )  # fmt: skip


def halts() -> tuple[NaiveBook, ...]:
    """Return halts that free what may have failed before the event came, or ticks that are over."""
    third, order_two = basic(THREE, TENTH), renyi(CORE)
    refilled, waits = Stream(records=(IN_A,), ticks=4), "3 created, one alive at a time"
    return (
        _exceeded(
            "a halt frees the delta of what is not fresh", "[HSV] Thm 5.2", waits,
            played("", third, [_fresh(late())], (), refilled), _refusal(third, EVENT, [late()] * 2, halted=True),
        ),
        _exceeded(
            "in two boxes the larger delta of what is not fresh", "[HSV] Thm 5.4", "one in A, one in B",
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
            "two events of a user at the price of one, optimal filter", TIME, "two alive at each of two ticks",
            played("", optimal(TWO, ninths), [counts], (), Stream(pair, (IN_A,)), EVENT),
            _refusal(optimal(TWO, ninths, 2), pair, [for_users(counts, two)]),
        ),
        _exceeded(
            "who was there, of users, by boxes", TIME, "a user with an event in A and one in B",
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
    bits = claimed("who was there", private(TWO**users.cap))
    arrivals = FirstArrivals("who was there", Arrivals(None, users))
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
