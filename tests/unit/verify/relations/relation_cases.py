"""Relations of compositions, the definitions they stand for, and the short sequences to try them on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from oracles import relations as oracle
from oracles.relations import Facts, Pairs, Plain
from unit.verify.relations.symbols import JUNK, Pair, ask, create, halt, query, twice, update
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
    truthful,
)

from stream_dp.accounting.filters.linear import PureFilter, RenyiFilter
from stream_dp.accounting.ledger import Ledger
from stream_dp.core.composition import ConcurrentComposition, Create
from stream_dp.core.guarantee import ApproxDP, GaussianDP, Measure, PureDP, RenyiDP
from stream_dp.core.relation import All, Claim, Relation
from stream_dp.verify.exact_checks.protocols import LocalMessages, SparseDataSets
from stream_dp.verify.games.game import LedgerFilter
from stream_dp.verify.relations import pair_conditions as f
from stream_dp.verify.relations.creation import Renyi, privacy_function
from stream_dp.verify.relations.pair_conditions import Suitable

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
