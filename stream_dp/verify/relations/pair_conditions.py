"""The conditions that the definitions of [HSV] add to suitability, each a small relation on composition messages.

Rules: a condition refuses messages that break it and lets all others pass. It is used together with `Suitable`,
which ensures that the two messages are creations, queries or halts of the same mechanism. A halt gives nothing back.
Persistent vectors and maps hold the state, because a game may go back to an earlier message. A relation states what
an adversary may send, never its price: this file knows no theorem and no budget.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Protocol, Self, TypeAlias

from pyrsistent import PMap, PVector, pmap, pvector

from stream_dp.core.composition import Ask, Create, Halt
from stream_dp.core.guarantee import ApproxDP, Measure, PureDP
from stream_dp.core.relation import All, Relation, same
from stream_dp.verify.relations.creation import (
    Parameters,
    Truth,
    approximate,
    claim_of,
    epsilon,
    own,
    takes,
)


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
