"""The verification functions of compositions against their definitions, on all short sequences; broken twins."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    Symbol,
    ask,
    compare,
    create,
    halt,
    query,
    twice,
    update,
)

from stream_dp.accounting.filters.linear import PureFilter, RenyiFilter
from stream_dp.accounting.ledger import Ledger
from stream_dp.core.composition import ConcurrentComposition, Create
from stream_dp.core.guarantee import ApproxDP, GaussianDP, Guarantee, Measure, PureDP, RenyiDP
from stream_dp.core.mechanism import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.relation import All, Claim, Identical, Relation
from stream_dp.core.row_relations import RowSpace, Stream, event, user
from stream_dp.verify import relations as f
from stream_dp.verify.exact_checks.protocols import LocalMessages, SparseDataSets
from stream_dp.verify.game import LedgerFilter
from stream_dp.verify.relations import (
    CreatedWithin,
    DeltaBudget,
    OnlyKind,
    Renyi,
    StaticDataSet,
    Suitable,
    TouchedWithin,
    epsilon,
    privacy_function,
    single_pair,
)

ADD = Neighbors.ADD_REMOVE
ONE, TWO, QUARTER = Fraction(1), Fraction(2), Fraction(1, 4)


@dataclass(frozen=True, slots=True)
class Toy:
    """Takes rows of one bit, and queries; `data` lets it take data sets 0, 1, 2 instead of rows."""

    name: str
    guarantee: Guarantee
    data: bool = False
    width: int = 1

    def takes(self, message: object) -> bool:
        if isinstance(message, Update):
            return not self.data and RowSpace(1, 0, 1).holds(message.row)
        return isinstance(message, Query) or (self.data and message in (0, 1, 2))


def near_rows(left: Any, right: Any) -> bool:
    """Data sets that are one row of one count."""
    return (
        isinstance(left, Update)
        and isinstance(right, Update)
        and abs(int(left.row[0]) - int(right.row[0])) <= 1
    )


def bits(left: Any, right: Any) -> bool:
    updates = isinstance(left, Update) and isinstance(right, Update)
    return updates and all(RowSpace(1, 0, 1).holds(m.row) for m in (left, right))


def near(left: Any, right: Any) -> bool:
    return isinstance(left, int) and isinstance(right, int) and abs(left - right) <= 1


def toy(name: str, measure: Measure, claim: Claim | None = None, *, data: bool = False) -> Create:
    mechanism: Any = Toy(name, Guarantee(measure, ADD), data)
    return Create(mechanism, claim)


def claims(name: str, measure: Measure, relation: Relation | None = None, **more: bool) -> Create:
    """A creation query with a claim of its own."""
    return toy(name, PureDP(ONE), Claim(measure, relation or Stream(event(ADD, 1)), **more))


QUERIES: dict[str, Create] = {
    "a": toy("a", PureDP(ONE)),
    "a2": toy("a2", PureDP(ONE)),
    "b": toy("b", ApproxDP(ONE, QUARTER)),
    "c": toy("c", ApproxDP(TWO, QUARTER)),
    "u": claims("u", PureDP(ONE), Stream(user(ADD, 2))),
    "lie": claims("lie", PureDP(Fraction(0))),
    "static": claims("static", ApproxDP(ONE, QUARTER), StaticDataSet(near_rows)),
    "rr": claims("rr", ApproxDP(Fraction(0), QUARTER), single_pair(bits)),
    "rr1": claims("rr1", ApproxDP(ONE, QUARTER), single_pair(bits)),
    "r2": claims("r2", RenyiDP(TWO, ONE)),
    "r2'": claims("r2'", RenyiDP(TWO, TWO)),
    "r3": claims("r3", RenyiDP(Fraction(3), ONE)),
    "r2 static": claims("r2 static", RenyiDP(TWO, ONE), StaticDataSet(near_rows)),
    "g": claims("g", GaussianDP(ONE), finite=True),
    "g inf": claims("g inf", GaussianDP(ONE)),
    "f_(1,0)": claims("f_(1,0)", PureDP(ONE), finite=True),
    "user": toy(
        "user", PureDP(ONE), Claim(PureDP(ONE), StaticDataSet(near)), data=True
    ),
    "coins": toy("coins", PureDP(Fraction(0))),
}  # fmt: skip


def c(name: str) -> Symbol:
    """The creation query with this name."""
    return create(name, QUERIES[name])


def truthful(query: Create) -> bool:
    """The truth: all but the lie."""
    return getattr(query.mechanism, "name", "") != "lie"


def is_rr(query: Create) -> bool:
    return getattr(query.mechanism, "name", "") == "rr"


def one_event(pairs: Pairs) -> bool:
    """The oracle of a stream of one column under add_remove."""
    return oracle.stream(pairs, lambda rows: oracle.user(rows, "add_remove", 1, None, 1))


def two_events(pairs: Pairs) -> bool:
    """The oracle of a stream of one column in which two events of a user differ."""
    return oracle.stream(pairs, lambda rows: oracle.user(rows, "add_remove", 2, None, 1))


def bit_messages(message: Plain) -> bool:
    """The oracle's query space of a toy."""
    return message[0] == "query" or (message[0] == "update" and message[1] in ((0,), (1,)))


def data_set(pairs: Pairs) -> bool:
    return oracle.static(
        pairs, lambda x, y: x[0] == y[0] == "update" and abs(x[1][0] - y[1][0]) <= 1
    )


def single(pairs: Pairs) -> bool:
    """The oracle of randomized response: a single message, a pair of bits."""
    return len(pairs) <= 1 and all(m[0] == "update" for pair in pairs for m in pair)


def facts(
    epsilon: Fraction, delta: Fraction, valid: Callable[[Pairs], bool] = one_event, **more: Any
) -> Facts:
    """With the query space of a toy."""
    return Facts(epsilon, delta, valid, bit_messages, **more)


NONE = Fraction(0)
TABLE: dict[str, Facts] = {
    "a": facts(ONE, NONE),
    "a2": facts(ONE, NONE),
    "b": facts(ONE, QUARTER),
    "c": facts(TWO, QUARTER),
    "u": facts(ONE, NONE, two_events),
    "lie": facts(NONE, NONE, true=False),
    "static": facts(ONE, QUARTER, data_set, first_pair_consistent=True),
    "rr": facts(NONE, QUARTER, single, first_pair_consistent=True, randomized_response=True),
    "rr1": facts(ONE, QUARTER, single, first_pair_consistent=True, randomized_response=True),
    "r2": facts(ONE, NONE, alpha=TWO),
    "r2'": facts(TWO, NONE, alpha=TWO),
    "r3": facts(ONE, NONE, alpha=Fraction(3)),
    "r2 static": facts(ONE, NONE, data_set, alpha=TWO, first_pair_consistent=True),
    "g": facts(ONE, NONE, finite=True),
    "g inf": facts(ONE, NONE),
    "f_(1,0)": facts(
        TWO, NONE, finite=True
    ),  # any parameter but that of g: another privacy function
    "user": Facts(
        ONE,
        NONE,
        lambda pairs: oracle.static(
            pairs, lambda x, y: isinstance(x, int) and isinstance(y, int) and abs(x - y) <= 1
        ),
        lambda message: message in (0, 1, 2, ("query", None)),
    ),
    "coins": facts(NONE, NONE),
}


def same(index: int, message: Symbol) -> tuple[Symbol, Symbol]:
    return ask(index, message), ask(index, message)


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


class SetOf(set[Any]):
    """A sub-multiset checked as a subset."""

    def get(self, item: Any, _otherwise: int) -> int:
        return int(item in self)

    def set(self, _item: Any, _number: int) -> "SetOf":
        return self


def set_of(items: list[Any]) -> Any:
    return SetOf(items)


YES = Suitable(lambda _: True)
BUDGET = Fraction(7, 16)
USERS = (QUERIES["user"],) * 2
COINS = (QUERIES["coins"],)


TWINS: dict[str, tuple[str, Relation]] = {
    "4.9 in any order": ("fixed mechanisms (4.9)", f.fixed_parameters([PURE, APPROX])),
    "subset": (
        "fixed parameters (4.11)",
        All((TOLD, CreatedWithin(set_of([PURE, APPROX])))),
    ),
    "touched instead of created": ("fixed parameters (4.11)", f.k_sparse([PURE, APPROX])),
    "created instead of touched": ("k-sparse (5.1)", f.fixed_parameters([PURE], truth=truthful)),
    "k-sparse subset": ("k-sparse (5.1)", All((TOLD, TouchedWithin(set_of([PURE]))))),
    "k alone": ("2-sparse (5.1)", All((TOLD, TouchedWithin.of([ONE, ONE], epsilon)))),
    "no budget": ("delta budget (5.3)", f.k_sparse([ONE], epsilon)),
    "any mechanism": ("RR only (5.8)", All((TOLD, DeltaBudget(BUDGET)))),
    "RR without budget": ("RR only (5.8)", All((TOLD, OnlyKind(is_rr)))),
    "any epsilon": (
        "RR only (5.8)",
        f.randomized_response_only(lambda q: is_rr(q) or q is QUERIES["rr1"], BUDGET, truthful),
    ),
    "not first-pair consistent": ("first pair (5.13)", f.k_sparse([APPROX], truth=truthful)),
    "no filter": ("filter (12.2)", TOLD),
    "each user alone": ("local protocol (8.5)", LocalMessages(USERS, SparseDataSets(2, near), COINS, TOLD)),
    "data sets unjudged": (
        "local protocol (8.5)",
        LocalMessages(USERS, SparseDataSets(9, lambda *_: True), COINS, TOLD),
    ),
    "no order": ("local protocol (8.5)", YES),
    "no sparsity": ("nested", YES),
}  # fmt: skip


@pytest.mark.parametrize("name", TWINS)
def test_broken_twins_are_caught(name: str) -> None:
    of, twin = TWINS[name]
    case = CASES[of]
    assert compare(twin, case.predicate, case.alphabet, case.depth, sides=False).disagreement


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
