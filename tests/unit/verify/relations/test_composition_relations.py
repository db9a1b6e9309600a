"""The verification functions of compositions against their definitions, on all short sequences; broken twins."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import relations as oracle
from oracles.relations import Facts, Pairs, Plain
from unit.verify.relations.symbols import (
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
from unit.verify.relations.toys import (
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
    toy,
    truthful,
)

from stream_dp.accounting.filters.linear import PureFilter, RenyiFilter
from stream_dp.accounting.ledger import Ledger
from stream_dp.core.composition import Ask, ConcurrentComposition, Create
from stream_dp.core.guarantee import ApproxDP, GaussianDP, Measure, PureDP, RenyiDP
from stream_dp.core.relation import All, Claim, Identical, Relation
from stream_dp.verify.exact_checks.protocols import LocalMessages, SparseDataSets
from stream_dp.verify.game import LedgerFilter
from stream_dp.verify.relations import pair_conditions as f
from stream_dp.verify.relations.creation import Renyi, claim_of, epsilon, privacy_function
from stream_dp.verify.relations.pair_conditions import (
    CreatedWithin,
    DeltaBudget,
    LiveMechanism,
    OnlyKind,
    PairCondition,
    Suitable,
    TouchedWithin,
)

U0, U1, U2 = update(0), update(1), update(2)
DIFFER0: Pair = (ask(0, U0), ask(0, U1))
DIFFER1: Pair = (ask(1, U1), ask(1, U0))
PURE, APPROX = (ONE, NONE), (ONE, QUARTER)
TOLD = Suitable(truthful)


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
        assert isinstance(measure, PureDP | ApproxDP)
        left = AtMost(self.epsilon - measure.epsilon, self.delta - measure.delta)
        return left if min(left.epsilon, left.delta) >= 0 else None


def admits(parameters: Sequence[tuple[Fraction, Fraction]]) -> bool:
    """The same filter, on the whole sequence."""
    return sum(e for e, _ in parameters) <= 3 and sum(d for _, d in parameters) <= QUARTER


def eps(facts: Facts) -> Fraction:
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
    (ask(0, U1), ask(0, U2)),  # one event apart, and one side takes no 2
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


NESTED_TABLE = dict(TABLE)


def _box(valid: Callable[[Pairs], bool]) -> Facts:
    return Facts(ONE, NONE, valid, lambda m: m[0] in ("create", "ask", "halt"))


NESTED_TABLE["box"] = _box(lambda p: oracle.k_sparse(p, TABLE, [PURE], oracle.approximate))


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
        f.k_sparse([PURE], truth=truthful),
        lambda p: oracle.k_sparse(p, TABLE, [PURE], APPROXIMATE),
        TOUCHING,
    ),
    "2-sparse (5.1)": Case(
        f.k_sparse([APPROX, PURE], truth=truthful),
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
        f.randomized_response_only(is_rr, Fraction(7, 16), truthful),
        lambda p: oracle.randomized_response_only(p, TABLE, Fraction(7, 16)),
        RR,
    ),
    "first pair (5.13)": Case(
        f.k_sparse_first_pair([APPROX], truth=truthful),
        lambda p: oracle.k_sparse_first_pair(p, TABLE, [APPROX], APPROXIMATE),
        STATIC,
        5,
    ),
    "filter (12.2)": Case(
        f.filtered(AtMost(Fraction(3), QUARTER), truth=truthful),
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
    "k-sparse, RDP (13)": Case(
        f.k_sparse([ONE], Renyi(TWO), truthful), of_order(oracle.k_sparse, [ONE], eps), RENYI
    ),
    "filter, RDP (13)": Case(
        f.filtered(
            LedgerFilter(Ledger.under(RenyiFilter.of(RenyiDP(TWO, TWO)))), Renyi(TWO), truthful
        ),
        of_order(oracle.filtered, lambda s: sum(s) <= 2, eps),
        RENYI,
    ),
    "k-sparse, f-DP (14)": Case(
        f.k_sparse([GaussianDP(ONE)], privacy_function, truthful),
        finite(oracle.k_sparse, [ONE], eps),
        FDP,
    ),
    "local protocol (8.5)": Case(
        LocalMessages((QUERIES["user"],) * 2, SparseDataSets(1, near), (QUERIES["coins"],), Suitable(lambda _: True)),
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
    result = compare(case.relation, case.predicate, case.alphabet, case.depth)
    assert result.disagreement is None
    assert result.inadmissible == []
    assert min(result.accepted, result.refused) > 10


UNJUDGED = Create(ConcurrentComposition(), Claim(PureDP(ONE), Identical()))


def test_a_composition_inside_is_judged_by_its_own_claim() -> None:
    """The twin: a box whose verification function is that of identical messages refuses what INNER accepts."""
    case = CASES["nested"]
    twin = [(create("box", UNJUDGED),) * 2, *case.alphabet[1:]]
    assert compare(case.relation, case.predicate, twin, 3, sides=False).disagreement


# --- broken twins --------------------------------------------------------------------------------


class AnyIndex(Suitable):
    """Without (i): the left index decides."""

    __slots__ = ()

    def accept(self, left: Any, right: Any) -> Any:
        if isinstance(left, Ask) and isinstance(right, Ask):
            right = Ask(left.index, right.message)
        return Suitable.accept(self, left, right)


class NotYet(Suitable):
    """Without (ii): a message to no mechanism passes."""

    __slots__ = ()

    def _ask(self, index: int, left: Any, right: Any) -> Any:
        return self if index >= len(self.created) else Suitable._ask(self, index, left, right)


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


def keeping(kind: type[Suitable]) -> Suitable:
    """The twin with the truth; every step of it makes plain `Suitable`s, so it is wrapped to stay what it is."""

    @dataclass(frozen=True)
    class Kept:
        inner: Any

        first_pair_consistent = False

        def accept(self, left: Any, right: Any) -> Any:
            after = self.inner.accept(left, right)
            return None if after is None else Kept(kind(after.truth, after.created))

    return Kept(kind(truthful))  # type: ignore[return-value]


class SetOf(set[Any]):
    """A sub-multiset checked as a subset."""

    def get(self, item: Any, _otherwise: int) -> int:
        return int(item in self)

    def set(self, _item: Any, _number: int) -> "SetOf":
        return self


def set_of(items: list[Any]) -> Any:
    return SetOf(items)


class Messages(TouchedWithin):
    """Counts the messages that differ, not the mechanisms that get them."""

    __slots__ = ()

    def query(self, left: Ask, right: Ask) -> Any:
        after = TouchedWithin.query(self, left, right)
        return None if after is None else replace(after, untouched=self.untouched)


@dataclass(frozen=True)
class TouchedDeltas(PairCondition):
    """The delta budget over the touched mechanisms only."""

    budget: Fraction
    deltas: tuple[Fraction, ...] = ()

    def creation(self, query: Create) -> Any:
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
        return None if DeltaBudget.creation(DeltaBudget(self.budget), query) is None else self


def any_order(claim: Claim) -> Any:
    """Epsilon of RDP at whatever order."""
    return getattr(claim.measure, "epsilon", None)


def also_infinite(claim: Claim) -> Any:
    """A privacy function, finite communication or not."""
    return privacy_function(replace(claim, finite=True))


def anything(pairs_of: Suitable = TOLD) -> All:
    return All((pairs_of,))


YES = Suitable(lambda _: True)
BUDGET = Fraction(7, 16)
SPARSE = TouchedWithin.of([ONE], epsilon)
USERS = (QUERIES["user"],) * 2
COINS = (QUERIES["coins"],)


TWINS: dict[str, tuple[str, Relation]] = {
    "without (i), indices": ("suitable (4.5)", keeping(AnyIndex)),
    "without (ii)": ("suitable (4.5)", keeping(NotYet)),
    "without (iii)": ("suitable (4.5)", keeping(AnyQuery)),
    "without (iv)": ("suitable (4.5)", keeping(Credulous)),
    "without (v)": ("suitable (4.5)", keeping(Forgetful)),
    "4.9 in any order": ("fixed mechanisms (4.9)", f.fixed_parameters([PURE, APPROX])),
    "subset": (
        "fixed parameters (4.11)",
        All((TOLD, CreatedWithin(set_of([PURE, APPROX])))),
    ),
    "touched instead of created": ("fixed parameters (4.11)", f.k_sparse([PURE, APPROX])),
    "created instead of touched": ("k-sparse (5.1)", f.fixed_parameters([PURE], truth=truthful)),
    "messages": ("k-sparse (5.1)", All((TOLD, Messages.of([PURE])))),
    "k-sparse subset": ("k-sparse (5.1)", All((TOLD, TouchedWithin(set_of([PURE]))))),
    "k alone": ("2-sparse (5.1)", All((TOLD, TouchedWithin.of([ONE, ONE], epsilon)))),
    "no budget": ("delta budget (5.3)", f.k_sparse([ONE], epsilon)),
    "touched deltas": ("delta budget (5.3)", All((TOLD, SPARSE, TouchedDeltas(BUDGET)))),
    "largest delta": ("delta budget (5.3)", All((TOLD, SPARSE, LargestDelta(BUDGET)))),
    "any mechanism": ("RR only (5.8)", All((TOLD, DeltaBudget(BUDGET)))),
    "RR without budget": ("RR only (5.8)", All((TOLD, OnlyKind(is_rr)))),
    "any epsilon": (
        "RR only (5.8)",
        f.randomized_response_only(lambda q: is_rr(q) or q is QUERIES["rr1"], BUDGET, truthful),
    ),
    "not first-pair consistent": ("first pair (5.13)", f.k_sparse([APPROX], truth=truthful)),
    "no filter": ("filter (12.2)", anything()),
    "any order": ("k-sparse, RDP (13)", f.k_sparse([ONE], any_order, truthful)),
    "infinite communication": (
        "k-sparse, f-DP (14)",
        f.k_sparse([GaussianDP(ONE)], also_infinite, truthful),
    ),
    "each user alone": ("local protocol (8.5)", LocalMessages(USERS, SparseDataSets(2, near), COINS, TOLD)),
    "data sets unjudged": (
        "local protocol (8.5)",
        LocalMessages(USERS, SparseDataSets(9, lambda *_: True), COINS, TOLD),
    ),
    "no order": ("local protocol (8.5)", anything(YES)),
    "no sparsity": ("nested", All((YES,))),
}  # fmt: skip


@pytest.mark.parametrize("name", TWINS)
def test_broken_twins_are_caught(name: str) -> None:
    of, twin = TWINS[name]
    case = CASES[of]
    assert compare(twin, case.predicate, case.alphabet, case.depth, sides=False).disagreement


def test_twins_of_suitability_differ_by_their_fault_alone() -> None:
    case = CASES["suitable (4.5)"]
    result = compare(keeping(Suitable), case.predicate, case.alphabet, case.depth, sides=False)
    assert result.disagreement is None


# --- what keeps their cost constant ---------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), max_size=8), st.lists(st.integers(0, 4), max_size=8))
def test_a_multiset_gives_each_item_as_often_as_it_has_it(of: list[int], items: list[int]) -> None:
    left: CreatedWithin | None = CreatedWithin.of(map(Fraction, of), epsilon)
    for item in items:
        left = left.creation(toy("m", PureDP(Fraction(item)))) if left else None
    assert (left is not None) == all(items.count(i) <= of.count(i) for i in items)


def test_the_product_of_deltas_stays_short_and_never_admits_more() -> None:
    """Against the exact product, over 1,500 creations: whatever is admitted is within the budget, and the rest is
    refused where exact arithmetic does, for the budgets lie 2^-900 beside the exact values."""
    delta = Fraction(1, 10**6 + 3)
    create = toy("m", ApproxDP(Fraction(1), delta))
    exact = 1 - (1 - delta) ** 1_500
    hair = Fraction(1, 2**900)
    for budget, admitted in ((exact + hair, True), (exact - hair, False)):
        budgeted: DeltaBudget | None = DeltaBudget(budget)
        for _ in range(1_500):
            assert budgeted is not None
            assert budgeted.unfailed.denominator.bit_length() <= 1025
            budgeted = budgeted.creation(create)
        assert (budgeted is not None) == admitted
    assert DeltaBudget(Fraction(0), Fraction(1)).creation(
        toy("p", ApproxDP(Fraction(1), Fraction(0)))
    )
