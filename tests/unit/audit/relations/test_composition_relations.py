"""The verification functions of compositions against their definitions, on all short sequences; broken twins."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import pytest
from oracles import relations as oracle
from oracles.relations import Facts, Pairs, Plain
from unit.audit.relations.symbols import (
    JUNK,
    Pair,
    ask,
    compare,
    create,
    halt,
    query,
    twice,
    update,
)
from unit.audit.relations.toys import (
    NONE,
    ONE,
    QUARTER,
    QUERIES,
    TABLE,
    TWO,
    c,
    is_rr,
    near,
    same,
    told,
)

from stream_dp.accounting.filters.pure import PureFilter
from stream_dp.accounting.filters.renyi import RenyiFilter
from stream_dp.accounting.ledger import Ledger
from stream_dp.audit.ledger_filter import LedgerFilter
from stream_dp.audit.relations import compositions as f
from stream_dp.audit.relations.creation import Renyi, claim_of, epsilon, privacy_function
from stream_dp.audit.relations.local_messages import LocalMessages, SparseDataSets
from stream_dp.audit.relations.pair_conditions import (
    CreatedFirst,
    CreatedThroughFilter,
    CreatedWithin,
    DeltaBudget,
    OnlyKind,
    PairCondition,
    TouchedWithin,
)
from stream_dp.audit.relations.suitable import LiveMechanism, Suitable
from stream_dp.core.composition import Ask, ConcurrentComposition, Create, Halt
from stream_dp.core.guarantee import ApproxDP, GaussianDP, Measure, PureDP, RenyiDP
from stream_dp.core.relation import All, Claim, Identical, Relation

U0, U1, U2 = update(0), update(1), update(2)
DIFFER0: Pair = (ask(0, U0), ask(0, U1))
DIFFER1: Pair = (ask(1, U1), ask(1, U0))
PURE, APPROX = (ONE, NONE), (ONE, QUARTER)
TOLD = Suitable(told)


@dataclass(frozen=True)
class Case:
    """A relation, its predicate, the pairs to try and how many in a row."""

    relation: Relation
    predicate: Callable[[Pairs], bool]
    alphabet: list[Pair]
    depth: int = 4


@dataclass(frozen=True)
class AtMost:
    """A filter: epsilons up to `epsilon`, deltas up to `delta`."""

    epsilon: Fraction
    delta: Fraction

    def charge(self, measure: Measure) -> "AtMost | None":
        """Subtract."""
        assert isinstance(measure, PureDP | ApproxDP)
        left = AtMost(self.epsilon - measure.epsilon, self.delta - measure.delta)
        return left if min(left.epsilon, left.delta) >= 0 else None


@dataclass(frozen=True)
class Few:
    """A filter that counts."""

    left: int

    def charge(self, measure: Measure) -> "Few | None":
        """One less."""
        return Few(self.left - 1) if self.left else None


def admits(parameters: Sequence[tuple[Fraction, Fraction]]) -> bool:
    """The same filter, on the whole sequence."""
    return sum(e for e, _ in parameters) <= 3 and sum(d for _, d in parameters) <= QUARTER


def eps(facts: Facts) -> Fraction:
    """One parameter."""
    return facts.epsilon


def of_order(inner: Callable[..., bool], *args: Any) -> Callable[[Pairs], bool]:
    """The RDP version of a definition, at order 2."""
    return lambda p: (
        inner(p, TABLE, *args) and oracle.of_order(p, TABLE, TWO)
    )  # fmt: skip


def finite(inner: Callable[..., bool], *args: Any) -> Callable[[Pairs], bool]:
    """The f-DP version of a definition."""
    return lambda p: inner(p, TABLE, *args) and oracle.finite(p, TABLE)


def related(x: tuple[Plain, ...], y: tuple[Plain, ...]) -> bool:
    """At most one user's data sets differ, by at most 1."""
    gaps = [abs(a - b) for a, b in zip(x, y, strict=True)]
    return max(gaps) <= 1 and sum(map(bool, gaps)) <= 1


SUITABLE = [
    *twice(c("a"), c("lie"), halt(0), JUNK),
    (c("a"), c("a2")),
    (c("a"), ask(0, U1)),
    same(0, query()),
    same(0, U2),
    same(1, U1),
    same(-1, U1),
    DIFFER0,
    DIFFER1,
    (ask(0, U1), ask(1, U1)),
    (ask(0, U1), ask(0, query())),
    (halt(0), halt(1)),
]
CREATIONS = [*twice(c("a"), c("a2"), c("b"), c("c"), halt(0)), DIFFER0, DIFFER1, same(0, U1)]
TOUCHING = [*twice(c("a"), c("u"), c("b"), halt(0)), DIFFER0, DIFFER1, same(0, U1)]
DELTAS = [*twice(c("a"), c("b"), c("c"), halt(0)), DIFFER0, DIFFER1]
RR = [*twice(c("rr"), c("rr1"), c("a"), halt(0)), DIFFER0, DIFFER1, same(0, U0)]
STATIC = [*twice(c("static"), c("b")), DIFFER0, DIFFER1, same(0, U0), same(0, query())]
RENYI = [*twice(c("r2"), c("r2'"), c("r3"), c("a"), c("r2 static")), DIFFER0, DIFFER1, same(1, U1)]
FDP = [*twice(c("g"), c("g inf"), c("f_(1,0)"), c("a")), DIFFER0, DIFFER1]
DATA = [(ask(i, (x, x)), ask(i, (y, y))) for i in (0, 1) for x, y in ((0, 0), (1, 2), (0, 2))]
LOCAL = [
    *twice(c("user"), c("coins"), halt(0)),
    *DATA,
    same(0, query()),
    same(2, query()),
    (ask(2, U0), ask(2, U1)),
    same(3, query()),
]

INNER = f.k_sparse([PURE])
BOX = Create(ConcurrentComposition(), Claim(PureDP(ONE), INNER))
OUTER = Create(
    ConcurrentComposition(), Claim(PureDP(ONE), f.k_sparse([PURE], truth=lambda _: True))
)
NESTED_TABLE = dict(TABLE)


def _box(valid: Callable[[Pairs], bool]) -> Facts:
    return Facts(ONE, NONE, valid, lambda m: m[0] in ("create", "ask", "halt"))


NESTED_TABLE["box"] = _box(lambda p: oracle.k_sparse(p, TABLE, [PURE], oracle.approximate))
NESTED_TABLE["boxes"] = _box(lambda p: oracle.k_sparse(p, NESTED_TABLE, [PURE], oracle.approximate))
NESTED = [
    *twice(create("box", BOX), c("a")),
    same(0, c("a")),
    same(0, ask(0, U1)),
    (ask(0, DIFFER0[0]), ask(0, DIFFER0[1])),
    (ask(0, DIFFER1[0]), ask(0, DIFFER1[1])),
    same(0, halt(0)),
    DIFFER0,
    DIFFER1,
]
DEEPER = [
    *twice(create("boxes", OUTER)),
    same(0, create("box", BOX)),
    same(0, c("a")),
    same(0, ask(0, c("a"))),
    (ask(0, ask(0, DIFFER0[0])), ask(0, ask(0, DIFFER0[1]))),
    (ask(0, ask(0, DIFFER1[0])), ask(0, ask(0, DIFFER1[1]))),
    (ask(0, DIFFER1[0]), ask(0, DIFFER1[1])),
]
APPROXIMATE = oracle.approximate

CASES: dict[str, Case] = {
    "suitable (4.5)": Case(TOLD, lambda p: oracle.suitable(p, TABLE), SUITABLE),
    "fixed mechanisms (4.9)": Case(
        f.fixed_mechanisms([QUERIES["a"], QUERIES["b"]]),
        lambda p: oracle.fixed_mechanisms(p, TABLE, ["a", "b"]),
        CREATIONS,
        5,
    ),
    "fixed parameters (4.11)": Case(
        f.fixed_parameters([PURE, APPROX]),
        lambda p: oracle.fixed_parameters(p, TABLE, [PURE, APPROX], APPROXIMATE),
        CREATIONS,
    ),
    "k-sparse (5.1)": Case(
        f.k_sparse([PURE], truth=told),
        lambda p: oracle.k_sparse(p, TABLE, [PURE], APPROXIMATE),
        TOUCHING,
    ),
    "2-sparse (5.1)": Case(
        f.k_sparse([APPROX, PURE], truth=told),
        lambda p: oracle.k_sparse(p, TABLE, [PURE, APPROX], APPROXIMATE),
        TOUCHING,
    ),
    "delta budget (5.3)": Case(
        f.k_sparse_with_delta_budget([ONE], Fraction(7, 16)),
        lambda p: oracle.k_sparse_with_delta_budget(p, TABLE, [ONE], Fraction(7, 16)),
        DELTAS,
        5,
    ),
    "RR only (5.8)": Case(
        f.randomized_response_only(is_rr, Fraction(7, 16), told),
        lambda p: oracle.randomized_response_only(p, TABLE, Fraction(7, 16)),
        RR,
    ),
    "first pair (5.13)": Case(
        f.k_sparse_first_pair([APPROX], truth=told),
        lambda p: oracle.k_sparse_first_pair(p, TABLE, [APPROX], APPROXIMATE),
        STATIC,
        5,
    ),
    "filter (12.2)": Case(
        f.filtered(AtMost(Fraction(3), QUARTER), truth=told),
        lambda p: oracle.filtered(p, TABLE, admits, APPROXIMATE),
        CREATIONS,
    ),
    "a ledger as the filter (12.2)": Case(
        f.filtered(LedgerFilter(Ledger.under(PureFilter.of(TWO)))),
        lambda p: oracle.filtered(
            p, TABLE, lambda s: sum(e for e, _ in s) <= 2 and not any(d for _, d in s), APPROXIMATE
        ),
        CREATIONS,
    ),
    "fixed parameters, RDP (13)": Case(
        f.fixed_parameters([ONE, TWO], Renyi(TWO), told),
        of_order(oracle.fixed_parameters, [ONE, TWO], eps),
        RENYI,
    ),
    "k-sparse, RDP (13)": Case(
        f.k_sparse([ONE], Renyi(TWO), told), of_order(oracle.k_sparse, [ONE], eps), RENYI
    ),
    "first pair, RDP (13)": Case(
        f.k_sparse_first_pair([ONE], Renyi(TWO), told),
        of_order(oracle.k_sparse_first_pair, [ONE], eps),
        RENYI,
    ),
    "filter, RDP (13)": Case(
        f.filtered(
            LedgerFilter(Ledger.under(RenyiFilter.of(RenyiDP(TWO, TWO)))), Renyi(TWO), told
        ),
        of_order(oracle.filtered, lambda s: sum(s) <= 2, eps),
        RENYI,
    ),
    "filter, f-DP (14)": Case(
        f.filtered(Few(2), privacy_function, told),
        finite(oracle.filtered, lambda s: len(s) <= 2, eps),
        FDP,
    ),
    "fixed parameters, f-DP (14)": Case(
        f.fixed_parameters([GaussianDP(ONE), ApproxDP(ONE, NONE)], privacy_function, told),
        finite(oracle.fixed_parameters, [ONE, TWO], eps),
        FDP,
    ),
    "k-sparse, f-DP (14)": Case(
        f.k_sparse([GaussianDP(ONE)], privacy_function, told),
        finite(oracle.k_sparse, [ONE], eps),
        FDP,
    ),
    "local protocol (8.5)": Case(
        LocalMessages.of((QUERIES["user"],) * 2, SparseDataSets(1, near), (QUERIES["coins"],), lambda _: True),
        lambda p: oracle.local_protocol(p, TABLE, ["user"] * 2, related, (0, 1, 2), ["coins"]),
        LOCAL,
        7,
    ),
    "nested": Case(
        f.k_sparse([PURE], truth=lambda _: True),
        lambda p: oracle.k_sparse(p, NESTED_TABLE, [PURE], APPROXIMATE),
        NESTED,
        5,
    ),
    "nested twice": Case(
        f.k_sparse([PURE], truth=lambda _: True),
        lambda p: oracle.k_sparse(p, NESTED_TABLE, [PURE], APPROXIMATE),
        DEEPER,
        7,
    ),
    "conjunction": Case(
        All((f.k_sparse([PURE, PURE]), f.fixed_parameters([PURE, APPROX]))),
        lambda p: (
            oracle.k_sparse(p, TABLE, [PURE, PURE], APPROXIMATE)
            and oracle.fixed_parameters(p, TABLE, [PURE, APPROX], APPROXIMATE)
        ),
        CREATIONS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_relation_is_its_definition_at_every_prefix(name: str) -> None:
    """All sequences; and both sides of every accepted pair are admissible."""
    case = CASES[name]
    found = compare(case.relation, case.predicate, case.alphabet, case.depth)
    assert found.disagreement is None
    assert found.inadmissible == []
    assert min(found.accepted, found.refused) > 10


class AnyIndex(Suitable):
    """Without (i): the left index decides."""

    __slots__ = ()

    def accept(self, left: Any, right: Any) -> Any:
        """Forget the right index."""
        if isinstance(left, Ask) and isinstance(right, Ask):
            right = Ask(left.index, right.message)
        return Suitable.accept(self, left, right)


class LeftCreates(Suitable):
    """Without (i): the left creation query decides."""

    __slots__ = ()

    def accept(self, left: Any, right: Any) -> Any:
        """Forget the right one."""
        both = isinstance(left, Create) and isinstance(right, Create)
        return Suitable.accept(self, left, left if both else right)


class NotYet(Suitable):
    """Without (ii): a message to no mechanism passes."""

    __slots__ = ()

    def _ask(self, index: int, left: Any, right: Any) -> Any:
        return self if index >= len(self.created) else Suitable._ask(self, index, left, right)


class FromTheEnd(Suitable):
    """Without (ii): Python's negative indices."""

    __slots__ = ()

    def _live(self, index: Any) -> Any:
        return self.created[index % len(self.created)] if len(self.created) else None


class AnyQuery(Suitable):
    """Without (iii)."""

    __slots__ = ()

    def _ask(self, index: int, left: Any, right: Any) -> Any:
        child = self._live(index)
        after = child.relation.accept(left, right) if child else None
        if child is None or after is None:
            return None
        return AnyQuery(self.truth, self.created.set(index, LiveMechanism(child.mechanism, after)))


class Credulous(Suitable):
    """Without (iv)."""

    __slots__ = ()

    def _create(self, query: Create) -> Any:
        claim = claim_of(query)
        assert claim is not None
        child = LiveMechanism(query.mechanism, claim.relation)
        return Credulous(self.truth, self.created.append(child))


class Forgetful(Suitable):
    """Without (v): each pair is judged as the mechanism's first."""

    __slots__ = ()

    def _ask(self, index: int, left: Any, right: Any) -> Any:
        return None if Suitable._ask(self, index, left, right) is None else self


class Undead(Suitable):
    """A halted mechanism still answers."""

    __slots__ = ()

    def accept(self, left: Any, right: Any) -> Any:
        """A halt changes nothing."""
        after = Suitable.accept(self, left, right)
        return self if after is not None and isinstance(left, Halt) else after


def keeping(kind: type[Suitable]) -> Suitable:
    """The twin with the truth; every step of it makes plain `Suitable`s, so it is wrapped to stay what it is."""

    @dataclass(frozen=True)
    class Kept:
        inner: Any

        first_pair_consistent = False

        def accept(self, left: Any, right: Any) -> Any:
            after = self.inner.accept(left, right)
            return None if after is None else Kept(kind(after.truth, after.created))

    return Kept(kind(told))  # type: ignore[return-value]


class SetOf(set[Any]):
    """A sub-multiset checked as a subset."""

    def get(self, item: Any, _otherwise: int) -> int:
        """One, for ever."""
        return int(item in self)

    def set(self, _item: Any, _number: int) -> "SetOf":
        """Nothing is used up."""
        return self


def set_of(items: list[Any]) -> Any:
    """In place of a multiset."""
    return SetOf(items)


class Messages(TouchedWithin):
    """Counts the messages that differ, not the mechanisms that get them."""

    __slots__ = ()

    def query(self, left: Ask, right: Ask) -> Any:
        """Never mark a mechanism as touched."""
        after = TouchedWithin.query(self, left, right)
        return None if after is None else replace(after, untouched=self.untouched)


class Everything(TouchedWithin):
    """Counts every mechanism that is asked, also for identical queries."""

    __slots__ = ()

    def query(self, left: Ask, right: Ask) -> Any:
        """As if the queries differed."""
        return TouchedWithin.query(self, left, Ask(left.index, object()))  # type: ignore[arg-type]


class Shallow(TouchedWithin):
    """Different messages to a mechanism inside a composition do not touch the composition."""

    __slots__ = ()

    def query(self, left: Ask, right: Ask) -> Any:
        """Messages that are themselves addressed say nothing."""
        return self if isinstance(left.message, Ask) else TouchedWithin.query(self, left, right)


@dataclass(frozen=True)
class TouchedDeltas(PairCondition):
    """The delta budget over the touched mechanisms only."""

    budget: Fraction
    deltas: tuple[Fraction, ...] = ()

    def creation(self, query: Create) -> Any:
        """Remember it."""
        claim: Any = claim_of(query)
        return replace(self, deltas=(*self.deltas, claim.measure.delta))

    def query(self, left: Ask, right: Ask) -> Any:
        """Of a single touched mechanism at a time."""
        same = left.message is right.message
        return self if same or self.deltas[left.index] <= self.budget else None


class LargestDelta(DeltaBudget):
    """The largest delta instead of all of them."""

    __slots__ = ()

    def creation(self, query: Create) -> Any:
        """Always the first."""
        return None if DeltaBudget.creation(DeltaBudget(self.budget), query) is None else self


class SumOfDeltas(DeltaBudget):
    """Deltas added up."""

    __slots__ = ()

    def creation(self, query: Create) -> Any:
        """Subtract."""
        claim: Any = claim_of(query)
        after = replace(self, budget=self.budget - claim.measure.delta)
        return after if after.budget >= 0 else None


class Refunding(DeltaBudget):
    """A halt gives back."""

    __slots__ = ()

    def accept(self, left: Any, right: Any) -> Any:
        """Start over at a halt."""
        if isinstance(left, Halt):
            return Refunding(self.budget)
        after = DeltaBudget.accept(self, left, right)
        return None if after is None else Refunding(after.budget, after.unfailed)


class AsPrinted(CreatedFirst):
    """Def 4.9 to the letter: says nothing of creations after the k-th message."""

    __slots__ = ()

    def accept(self, left: Any, right: Any) -> Any:
        """Anything, once they are created."""
        done = self.count == len(self.queries)
        return self if done else CreatedFirst.accept(self, left, right)


class RefundingFilter(CreatedThroughFilter):
    """A halt gives everything back."""

    __slots__ = ()

    def accept(self, left: Any, right: Any) -> Any:
        """A new filter at a halt."""
        if isinstance(left, Halt):
            return RefundingFilter(AtMost(Fraction(3), QUARTER))
        after = CreatedThroughFilter.accept(self, left, right)
        return None if after is None else RefundingFilter(after.filter)


def any_order(claim: Claim) -> Any:
    """Epsilon of RDP at whatever order."""
    return getattr(claim.measure, "epsilon", None)


def also_infinite(claim: Claim) -> Any:
    """A privacy function, finite communication or not."""
    return privacy_function(replace(claim, finite=True))


def anything(pairs_of: Suitable = TOLD) -> All:
    """Suitable and nothing else."""
    return All((pairs_of,))


YES = Suitable(lambda _: True)
BUDGET = Fraction(7, 16)
SPARSE = TouchedWithin.of([ONE], epsilon)
USERS = (QUERIES["user"],) * 2
COINS = (QUERIES["coins"],)
UNJUDGED = Create(ConcurrentComposition(), Claim(PureDP(ONE), Identical()))

TWINS: dict[str, tuple[str, Relation]] = {
    "without (i), indices": ("suitable (4.5)", keeping(AnyIndex)),
    "without (i), creations": ("suitable (4.5)", keeping(LeftCreates)),
    "without (ii)": ("suitable (4.5)", keeping(NotYet)),
    "without (ii), from the end": ("suitable (4.5)", keeping(FromTheEnd)),
    "without (iii)": ("suitable (4.5)", keeping(AnyQuery)),
    "without (iv)": ("suitable (4.5)", keeping(Credulous)),
    "without (v)": ("suitable (4.5)", keeping(Forgetful)),
    "undead": ("suitable (4.5)", keeping(Undead)),
    "4.9 as printed": (
        "fixed mechanisms (4.9)",
        All((AsPrinted((QUERIES["a"], QUERIES["b"])), Suitable())),
    ),
    "4.9 in any order": ("fixed mechanisms (4.9)", f.fixed_parameters([PURE, APPROX])),
    "subset": (
        "fixed parameters (4.11)",
        All((TOLD, CreatedWithin(set_of([PURE, APPROX])))),
    ),
    "epsilons only": (
        "fixed parameters (4.11)",
        All((TOLD, CreatedWithin.of([ONE, ONE], epsilon))),
    ),
    "touched instead of created": ("fixed parameters (4.11)", f.k_sparse([PURE, APPROX])),
    "created instead of touched": ("k-sparse (5.1)", f.fixed_parameters([PURE], truth=told)),
    "messages": ("k-sparse (5.1)", All((TOLD, Messages.of([PURE])))),
    "all that are asked": ("k-sparse (5.1)", All((TOLD, Everything.of([PURE])))),
    "k-sparse subset": ("k-sparse (5.1)", All((TOLD, TouchedWithin(set_of([PURE]))))),
    "k alone": ("2-sparse (5.1)", All((TOLD, TouchedWithin.of([ONE, ONE], epsilon)))),
    "no budget": ("delta budget (5.3)", f.k_sparse([ONE], epsilon)),
    "touched deltas": ("delta budget (5.3)", All((TOLD, SPARSE, TouchedDeltas(BUDGET)))),
    "largest delta": ("delta budget (5.3)", All((TOLD, SPARSE, LargestDelta(BUDGET)))),
    "sum of deltas": ("delta budget (5.3)", All((TOLD, SPARSE, SumOfDeltas(BUDGET)))),
    "refund": ("delta budget (5.3)", All((TOLD, SPARSE, Refunding(BUDGET)))),
    "any mechanism": ("RR only (5.8)", All((TOLD, DeltaBudget(BUDGET)))),
    "RR without budget": ("RR only (5.8)", All((TOLD, OnlyKind(is_rr)))),
    "any epsilon": (
        "RR only (5.8)",
        f.randomized_response_only(lambda q: is_rr(q) or q is QUERIES["rr1"], BUDGET, told),
    ),
    "not first-pair consistent": ("first pair (5.13)", f.k_sparse([APPROX], truth=told)),
    "refunding filter": (
        "filter (12.2)",
        All((TOLD, RefundingFilter(AtMost(Fraction(3), QUARTER)))),
    ),
    "no filter": ("filter (12.2)", anything()),
    "any order": ("k-sparse, RDP (13)", f.k_sparse([ONE], any_order, told)),
    "any order, fixed": ("fixed parameters, RDP (13)", f.fixed_parameters([ONE, TWO], any_order, told)),
    "infinite communication": (
        "k-sparse, f-DP (14)",
        f.k_sparse([GaussianDP(ONE)], also_infinite, told),
    ),
    "each user alone": ("local protocol (8.5)", LocalMessages.of(USERS, SparseDataSets(2, near), COINS, told)),
    "data sets unjudged": (
        "local protocol (8.5)",
        LocalMessages.of(USERS, SparseDataSets(9, lambda *_: True), COINS, told),
    ),
    "no order": ("local protocol (8.5)", anything(YES)),
    "no sparsity": ("nested", All((YES,))),
    "a touch inside is none": ("nested", All((YES, Shallow.of([PURE])))),
}  # fmt: skip


@pytest.mark.parametrize("name", TWINS)
def test_broken_twins_are_caught(name: str) -> None:
    of, twin = TWINS[name]
    case = CASES[of]
    assert compare(twin, case.predicate, case.alphabet, case.depth, sides=False).disagreement


def test_a_composition_inside_is_judged_by_its_own_claim() -> None:
    """The twin: a box whose verification function is that of identical messages refuses what INNER accepts."""
    case = CASES["nested"]
    twin = [(create("box", UNJUDGED),) * 2, *case.alphabet[1:]]
    assert compare(case.relation, case.predicate, twin, 3, sides=False).disagreement


def test_twins_of_suitability_differ_by_their_fault_alone() -> None:
    case = CASES["suitable (4.5)"]
    found = compare(keeping(Suitable), case.predicate, case.alphabet, case.depth, sides=False)
    assert found.disagreement is None
