"""Verification functions ([HSV] Def 3.3): which pairs of message sequences an adversary may send.

| definition | place |
|---|---|
| event, user: one event or one user's events differ | `core.row_relations`: `EventRows`, `event`, `user` |
| rows as messages: `Update | Query` | `core.row_relations.Stream` |
| identical; conjunction | `core.relation.Identical`, `core.relation.All` |
| a static data set, one message only (5.12) | `StaticDataSet`, `single_pair` |
| suitable sequences (4.5) | `Suitable` |
| 4.9, 4.11, 5.1, 5.3, 5.8, 5.13, 12.2, 13, 14 | a function for each |
| local protocols (8.5) | `verify.exact_checks.protocols.LocalMessages` |

Creation queries (Def 4.1): this file proves no claim. A mechanism's own guarantee is derived, never typed in; any
other claim is true where the relation's `Truth` says so. A parameter is None where a composition theorem does not
take the measure.

Conditions: each refuses messages that break it and lets all others pass. It is used together with `Suitable`, which
ensures that the two messages are creations, queries or halts of the same mechanism. A halt gives nothing back.
Persistent vectors and maps hold the state, because a game may go back to an earlier message. A relation states what
an adversary may send, never its price: this file knows no theorem, no budget and no engine.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, Protocol, Self, TypeAlias

from pyrsistent import PMap, PVector, pmap, pvector

from stream_dp.core.composition import Ask, ConcurrentComposition, Create, Halt
from stream_dp.core.guarantee import ApproxDP, GaussianDP, Measure, PureDP, RenyiDP
from stream_dp.core.mechanism import Query, Update
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.core.relation import All, Claim, Identical, Nothing, Relation, same
from stream_dp.core.row_law import RowLaw
from stream_dp.core.row_relations import COUNTS, Stream

Truth: TypeAlias = Callable[[Create], bool]
Parameters: TypeAlias = Callable[[Claim], Hashable | None]


def claim_of(create: Create) -> Claim | None:
    """Return the claim about the mechanism: that of the query, else its own guarantee; None where it has none."""
    mechanism = create.mechanism
    if create.claim is not None or isinstance(mechanism, ConcurrentComposition):
        return create.claim
    guarantee = getattr(mechanism, "guarantee", None)  # a creation query may hold any object
    if guarantee is None:
        return None
    law = law_of(mechanism) or RowLaw(mechanism.width, guarantee.neighbors)
    rows = law.relation(guarantee.neighbors)
    return Claim(guarantee.measure, Stream(rows))


def law_of(mechanism: object) -> RowLaw | None:
    """Return the law of the mechanism's rows; None where it states none."""
    law: RowLaw | None = getattr(mechanism, "rows", None)
    return law


def own(create: Create) -> bool:
    """Say whether the claim is the mechanism's own guarantee, which is derived and needs no further proof."""
    return create.claim is None


def own_or(claims: Collection[Claim | None]) -> Truth:
    """Return the truth that also accepts `claims`; the caller must have derived them."""
    return lambda create: own(create) or create.claim in claims


def takes(mechanism: object, message: object) -> bool:
    """Say whether the message is in the mechanism's query space ([HSV] Def 4.5 iii).

    A mechanism that refuses some rows of counts has a method `takes`: to refuse one of two neighbouring rows and
    answer the other would reveal which row it got.
    """
    if isinstance(mechanism, ConcurrentComposition):
        return isinstance(message, Create | Ask | Halt)
    narrower = getattr(mechanism, "takes", None)
    if narrower is not None:
        return bool(narrower(message))
    if isinstance(message, Update):
        wide = getattr(mechanism, "width", None)
        return COUNTS.holds(message.row) and wide in (None, message.row.size)
    return isinstance(message, Query)


def approximate(claim: Claim) -> tuple[Fraction, Fraction] | None:
    """Return (epsilon, delta) of DP; None for another measure."""
    measure = claim.measure
    return (measure.epsilon, measure.delta) if isinstance(measure, PureDP | ApproxDP) else None


def epsilon(claim: Claim) -> Fraction | None:
    """Return epsilon of DP, whatever its delta ([HSV] Def 5.3 ii)."""
    return claim.measure.epsilon if isinstance(claim.measure, PureDP | ApproxDP) else None


@dataclass(frozen=True, slots=True)
class Renyi:
    """Epsilon of Renyi DP at this one order; another order or measure is refused ([HSV] section 13)."""

    alpha: Fraction

    def __call__(self, claim: Claim) -> Fraction | None:
        measure = claim.measure
        mine = isinstance(measure, RenyiDP) and measure.alpha == self.alpha
        return measure.epsilon if mine else None  # type: ignore[union-attr]


def privacy_function(claim: Claim) -> GaussianDP | ApproxDP | None:
    """Return the privacy function of f-DP, for finite communication only ([HSV] section 14); f_(eps, delta) of DP."""
    match claim.measure:
        case GaussianDP() as gaussian if claim.finite:
            return gaussian
        case (PureDP() | ApproxDP()) as dp if claim.finite:
            return ApproxDP(dp.epsilon, dp.delta)
        case _:
            return None


@dataclass(frozen=True, slots=True)
class LiveMechanism:
    """A mechanism, and the verification function of its creation query after the pairs it has received."""

    mechanism: Any
    relation: Relation


@dataclass(frozen=True, slots=True)
class Suitable:
    """Conditions (i) to (v) of [HSV] Def 4.5; `created` holds None for a halted mechanism.

    (i) Identical creation queries, or two queries with one index, counted from 0 in the order of creations, (ii) of a
    mechanism that exists and has not been halted; (iii) both in its query space; (iv) its claim is true; (v) f-valid
    for its own verification function. That may be a composition's: the messages are then Ask(i, Ask(j, m)). A pair of
    equal halts ends a mechanism.
    """

    first_pair_consistent: ClassVar[bool] = False  # the first pair is a creation
    truth: Truth = own
    created: PVector[LiveMechanism | None] = pvector()  # noqa: RUF009  an immutable value

    def accept(self, left: Any, right: Any) -> "Suitable | None":
        match left, right:
            case Ask(), Ask() if same(left.index, right.index):
                return self._ask(left.index, left.message, right.message)
            case Create(), Create() if same(left, right):
                return self._create(left)
            case Halt(), Halt() if same(left, right) and self._live(left.index):
                return Suitable(self.truth, self.created.set(left.index, None))
            case _:
                return None

    def _create(self, query: Create) -> "Suitable | None":
        claim = claim_of(query)
        if claim is None or not self.truth(query):
            return None
        child = LiveMechanism(query.mechanism, claim.relation)
        return Suitable(self.truth, self.created.append(child))

    def _ask(self, index: int, left: Any, right: Any) -> "Suitable | None":
        child = self._live(index)
        if child is None or not takes(child.mechanism, left):
            return None
        if right is not left and not takes(child.mechanism, right):
            return None
        after = child.relation.accept(left, right)
        if after is None or after is child.relation:
            return None if after is None else self
        child = LiveMechanism(child.mechanism, after)
        return Suitable(self.truth, self.created.set(index, child))

    def _live(self, index: Any) -> LiveMechanism | None:
        exists = type(index) is int and 0 <= index < len(self.created)
        return self.created[index] if exists else None


Multiset: TypeAlias = PMap[Hashable, int]  # number of remaining copies of each item
_EXACT_BITS = 1024  # a product with more digits is rounded down to a multiple of 2^-1024


class PairCondition:
    """A relation on composition messages that decides about creations and queries to one mechanism."""

    __slots__ = ()
    first_pair_consistent: ClassVar[bool] = False  # the first pair is a creation

    def accept(self, left: Any, right: Any) -> "Any | None":
        match left, right:
            case Ask(), Ask():
                return self.query(left, right)
            case Create(), Create():
                return self.creation(left)
            case _:
                return self

    def creation(self, query: Create) -> "Any | None":
        """Return the condition after a creation query; unchanged by default."""
        return self

    def query(self, left: Ask, right: Ask) -> "Any | None":
        """Return the condition after a pair of queries to one mechanism; unchanged by default."""
        return self


@dataclass(frozen=True, slots=True)
class CreatedFirst(PairCondition):
    """The first messages create exactly these mechanisms, in this order; no later one does ([HSV] Def 4.9 ii).

    As printed, 4.9 says nothing about creations after the k-th message; Theorem 4.10 needs that there are none.
    """

    queries: tuple[Create, ...]
    count: int = 0

    def accept(self, left: Any, right: Any) -> "CreatedFirst | None":
        if self.count == len(self.queries):
            return None if isinstance(left, Create) or isinstance(right, Create) else self
        expected = self.queries[self.count]
        fits = same(left, expected) and same(right, expected)
        return replace(self, count=self.count + 1) if fits else None


@dataclass(frozen=True, slots=True)
class _Within(PairCondition):
    """The parameters of some mechanisms are a sub-multiset of fixed ones, of which `left` are left."""

    left: Multiset
    parameters: Parameters = approximate

    @classmethod
    def of(cls, allowed: Iterable[Hashable], parameters: Parameters = approximate) -> Self:
        return cls(pmap(Counter(allowed)), parameters)


@dataclass(frozen=True, slots=True)
class CreatedWithin(_Within):
    """The parameters of all created mechanisms are a sub-multiset of fixed ones ([HSV] Def 4.11 ii)."""

    def creation(self, query: Create) -> "CreatedWithin | None":
        left = _without(self.left, _parameters(self.parameters, query))
        return None if left is None else replace(self, left=left)


@dataclass(frozen=True, slots=True)
class TouchedWithin(_Within):
    """The parameters of the mechanisms that got a pair of different queries are a sub-multiset of fixed ones.

    [HSV] Def 5.1 (ii), and 5.3 (ii) over epsilons. `untouched` holds each mechanism's parameters until it is touched.
    """

    untouched: PVector[Hashable | None] = pvector()  # noqa: RUF009  an immutable value

    def creation(self, query: Create) -> "TouchedWithin | None":
        own = _parameters(self.parameters, query)
        return None if own is None else replace(self, untouched=self.untouched.append(own))

    def query(self, left: Ask, right: Ask) -> "TouchedWithin | None":
        if same(left.message, right.message):
            return self
        if not 0 <= left.index < len(self.untouched):
            return None
        own = self.untouched[left.index]
        if own is None:
            return self
        remaining = _without(self.left, own)
        if remaining is None:
            return None
        return replace(self, left=remaining, untouched=self.untouched.set(left.index, None))


@dataclass(frozen=True, slots=True)
class DeltaBudget(PairCondition):
    """1 - prod(1 - delta_j) over EVERY created mechanism, touched or not, is at most `budget` ([HSV] Def 5.3 iii).

    `unfailed` is the product: exact while its denominator has at most 1024 bits, then rounded down to a multiple of
    2^-1024, so that the work of a creation does not grow; the budget lost by that is < 2^-1000.
    """

    budget: Fraction
    unfailed: Fraction = Fraction(1)

    def creation(self, query: Create) -> "DeltaBudget | None":
        claim = claim_of(query)
        if claim is None or not isinstance(claim.measure, PureDP | ApproxDP):
            return None
        if not claim.measure.delta:
            return self
        unfailed = _rounded_down(self.unfailed * (1 - claim.measure.delta))
        return replace(self, unfailed=unfailed) if 1 - unfailed <= self.budget else None


@dataclass(frozen=True, slots=True)
class OnlyKind(PairCondition):
    """Every creation query is of one kind: randomized response ([HSV] Def 5.8 ii, 12.3 ii), first-pair consistent."""

    kind: Callable[[Create], bool]

    def creation(self, query: Create) -> "OnlyKind | None":
        return self if self.kind(query) else None


def _first_pair_consistent(query: Create) -> bool:
    claim = claim_of(query)
    return claim is not None and claim.relation.first_pair_consistent


class ParameterFilter(Protocol):
    """A filter ([HSV] Def 12.1) as an immutable value that has seen some parameters."""

    def charge(self, measure: Measure) -> "ParameterFilter | None":
        """Return the filter after one more mechanism, or None where it returns bottom; nothing is ever given back."""
        ...


@dataclass(frozen=True, slots=True)
class CreatedThroughFilter(PairCondition):
    """The filter admits the sequence of parameters of all created mechanisms ([HSV] Def 12.2 ii)."""

    filter: ParameterFilter
    parameters: Parameters = approximate

    def creation(self, query: Create) -> "CreatedThroughFilter | None":
        claim = claim_of(query)
        if claim is None or self.parameters(claim) is None:
            return None
        after = self.filter.charge(claim.measure)
        return None if after is None else replace(self, filter=after)


def _parameters(parameters: Parameters, query: Create) -> Hashable | None:
    claim = claim_of(query)
    return None if claim is None else parameters(claim)


def _without(left: Multiset, item: Hashable) -> Multiset | None:
    """Return the multiset without one copy of `item`; None where it has no copy."""
    number = left.get(item, 0)
    return left.set(item, number - 1) if number else None


def _rounded_down(product: Fraction) -> Fraction:
    if product.denominator.bit_length() <= _EXACT_BITS:
        return product
    return Fraction((product.numerator << _EXACT_BITS) // product.denominator, 1 << _EXACT_BITS)


# Each function below is one definition. `parameters` chooses its version: `approximate` for (epsilon, delta),
# `Renyi(alpha)` for [HSV] section 13, `privacy_function` for f-DP (section 14).


def fixed_mechanisms(queries: Iterable[Create], truth: Truth = own) -> All:
    """f^(alpha_1..alpha_k) ([HSV] Def 4.9): these creation queries first, then only queries to these mechanisms."""
    return All((CreatedFirst(tuple(queries)), Suitable(truth)))


def fixed_parameters(
    allowed: Iterable[Hashable], parameters: Parameters = approximate, truth: Truth = own
) -> All:
    """f^(eps_1, delta_1..) ([HSV] Def 4.11): the parameters of all created mechanisms are a sub-multiset."""
    return All((Suitable(truth), CreatedWithin.of(allowed, parameters)))


def k_sparse(
    allowed: Iterable[Hashable], parameters: Parameters = approximate, truth: Truth = own
) -> All:
    """f_infinity ([HSV] Def 5.1): any number of mechanisms, the touched ones' parameters are a sub-multiset.

    It has no theorem for a delta (Thm 5.2, 13.5).
    """
    return All((Suitable(truth), TouchedWithin.of(allowed, parameters)))


def k_sparse_with_delta_budget(
    epsilons: Iterable[Fraction], budget: Fraction, truth: Truth = own
) -> All:
    """f_(infinity, delta') ([HSV] Def 5.3): the touched ones' epsilons, and a budget for the deltas of all created."""
    return All((Suitable(truth), TouchedWithin.of(epsilons, epsilon), DeltaBudget(budget)))


def k_sparse_first_pair(
    allowed: Iterable[Hashable], parameters: Parameters = approximate, truth: Truth = own
) -> All:
    """f_(infinity, FPC) ([HSV] Def 5.13): k-sparse over first-pair consistent mechanisms, such as static data sets."""
    return All(
        (Suitable(truth), OnlyKind(_first_pair_consistent), TouchedWithin.of(allowed, parameters))
    )


def randomized_response_only(
    kind: Callable[[Create], bool], budget: Fraction, truth: Truth = own
) -> All:
    """f_RR ([HSV] Def 5.8): each creation is RR_(0, delta_j) by `kind`; a budget for the deltas of all created."""
    return All((Suitable(truth), OnlyKind(kind), DeltaBudget(budget)))


def filtered(
    filter_: ParameterFilter, parameters: Parameters = approximate, truth: Truth = own
) -> All:
    """f^Filt ([HSV] Def 12.2): the filter admits the parameters of all created mechanisms, in their order."""
    return All((Suitable(truth), CreatedThroughFilter(filter_, parameters)))


DataNeighbors: TypeAlias = Callable[[Any, Any], bool]


@dataclass(frozen=True, slots=True)
class StaticDataSet:
    """First two data sets that `relates` relates, then identical queries that `queries` accepts ([HSV] Def 5.12).

    f_~ of [HSV] 5.3 for an interactive mechanism, and f_(~_i, prop_i) of Def 8.5 with `queries` = prop_i. `relates`
    must be reflexive, because each side of an accepted pair must be admissible.
    """

    first_pair_consistent: ClassVar[bool] = True
    relates: DataNeighbors
    queries: Relation = field(default_factory=Identical)
    begun: bool = False

    def accept(self, left: Any, right: Any) -> "StaticDataSet | None":
        if not self.begun:
            related = self.relates(left, right)
            return StaticDataSet(self.relates, self.queries, begun=True) if related else None
        after = self.queries.accept(left, right) if same(left, right) else None
        if after is None or after is self.queries:
            return None if after is None else self
        return StaticDataSet(self.relates, after, begun=True)


def single_pair(relates: DataNeighbors) -> StaticDataSet:
    """Return the relation for non-interactive mechanisms: one pair of related messages, and no message after it."""
    return StaticDataSet(relates, Nothing())


@dataclass(frozen=True, slots=True)
class OneStream(PairCondition):
    """Updates differ in at most `most` ticks, the same for all mechanisms, in one public window of `window` ticks.

    All series of an engine receive the same ticks: every mechanism gets one update per tick from its creation on, so
    one event changes the rows of one tick in all of them. `Suitable` judges each mechanism's own pairs beside this.
    `wandering`: mechanisms whose rows count identifiers at their first tick. Their rows may differ at other ticks
    too, where an identifier comes back; their own relation decides where. `next_tick[i]` is the tick of mechanism i's
    next update, `begun` the number of ticks that at least one mechanism has received.
    """

    most: int = 1
    begun: int = 0
    next_tick: PVector[int] = pvector()  # noqa: RUF009  an immutable value
    differing: frozenset[int] = frozenset()
    window: int | None = None
    wandering: frozenset[int] = frozenset()

    def creation(self, query: Create) -> "OneStream | None":
        law, wandering = law_of(query.mechanism), self.wandering
        if law is not None and law.wanders:
            wandering |= {len(self.next_tick)}
        return replace(self, next_tick=self.next_tick.append(self.begun), wandering=wandering)

    def query(self, left: Ask, right: Ask) -> "OneStream | None":
        """Record an update of one mechanism, and its tick where the two rows differ."""
        if not isinstance(left.message, Update):
            return self
        if not 0 <= left.index < len(self.next_tick):
            return None
        tick = self.next_tick[left.index]
        heard = self.next_tick.set(left.index, tick + 1)
        begun, differing = max(self.begun, tick + 1), self.differing
        if left.index not in self.wandering and not same(left.message, right.message):
            differing |= {tick}
            windows = {0 if self.window is None else tick // self.window for tick in differing}
            if len(differing) > self.most or len(windows) > 1:
                return None
        return OneStream(self.most, begun, heard, differing, self.window, self.wandering)


def engine_relation(neighbors: Neighbors, truth: Truth = own, users: Users | None = None) -> All:
    """Return the relation of an engine's guarantee: streams that differ in one event, for all mechanisms.

    A replacement that may move lies in two ticks. With `users` the streams differ in all events of one user, in up to
    `users.cap` ticks of one window. Creations are equal in both streams; the ledger decides which are possible.
    """
    ticks = 2 if neighbors is Neighbors.REPLACE_ANY_TICK else 1
    one = OneStream(ticks) if users is None else OneStream(users.cap, window=users.window)
    parts: tuple[Any, ...] = (Suitable(truth), one)
    return All(parts)
