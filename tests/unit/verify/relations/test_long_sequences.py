"""Random long sequences to compositions of many mechanisms, past the first level of the shared trees."""

from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import relations as oracle
from oracles.relations import Pairs, Plain
from unit.verify.relations.symbols import Pair, ask, halt, query, update
from unit.verify.relations.toys import NONE, ONE, QUARTER, TABLE, c, told

from stream_dp.core.composition import Create
from stream_dp.core.relation import Relation
from stream_dp.verify.relations.pair_conditions import (
    Suitable,
    k_sparse,
    k_sparse_with_delta_budget,
)

MADE = 34
ALLOWED = [(ONE, NONE), (ONE, NONE), (ONE, QUARTER)]
BUDGET = Fraction(99, 100)

indices = st.one_of(st.sampled_from([0, 1, 31, 32, 33]), st.integers(0, MADE + 1))
bits = st.integers(0, 1).map(update)
creations = st.sampled_from(["a", "u", "b"]).map(c).map(lambda one: (one, one))
asked: st.SearchStrategy[Pair] = st.tuples(indices, bits, bits).map(
    lambda drawn: (ask(drawn[0], drawn[1]), ask(drawn[0], drawn[2]))
)
queried: st.SearchStrategy[Pair] = indices.map(lambda i: (ask(i, query()), ask(i, query())))
ended: st.SearchStrategy[Pair] = indices.map(lambda i: (halt(i), halt(i)))
start = st.lists(creations, min_size=MADE, max_size=MADE)
messages = st.lists(st.one_of(asked, asked, queried, creations, ended), max_size=30)


def disagreement(
    relation: Relation, predicate: Any, pairs: list[Pair]
) -> list[tuple[Plain, Plain]] | None:
    """Go on behind what is refused; the first sequence that one of the two accepts alone."""
    history: list[tuple[Plain, Plain]] = []
    now = relation
    for left, right in pairs:
        longer = [*history, (left[1], right[1])]
        after = now.accept(left[0], right[0])
        if (after is not None) != predicate(longer):
            return longer
        if after is not None:
            now, history = after, longer
    return None


def sparse(pairs: Pairs) -> bool:
    """Def 5.1."""
    return oracle.k_sparse(pairs, TABLE, ALLOWED, oracle.approximate)


def budgeted(pairs: Pairs) -> bool:
    """Def 5.3."""
    return oracle.k_sparse_with_delta_budget(pairs, TABLE, [ONE, ONE], BUDGET)


@settings(max_examples=40, deadline=None)
@given(start, messages)
def test_long_sequences_are_judged_by_the_definitions(first: list[Pair], then: list[Pair]) -> None:
    pairs = [*first, *then]
    assert disagreement(k_sparse(ALLOWED, truth=told), sparse, pairs) is None
    relation = k_sparse_with_delta_budget([ONE, ONE], BUDGET, told)
    assert disagreement(relation, budgeted, pairs) is None


class Misplaced(Suitable):
    """Looks a mechanism up in the first 32 places."""

    __slots__ = ()

    def _live(self, index: Any) -> Any:
        return Suitable._live(self, index % 32 if type(index) is int else index)

    def _create(self, query: Create) -> Any:
        after = Suitable._create(self, query)
        return None if after is None else Misplaced(after.truth, after.created)

    def _ask(self, index: int, left: Any, right: Any) -> Any:
        after = Suitable._ask(self, index, left, right)
        return None if after is None else Misplaced(after.truth, after.created)


def test_a_lookup_in_the_wrong_place_is_caught() -> None:
    """The first of 34 mechanisms gets a pair that differs; the twin then takes the 33rd for it."""
    differing = [(ask(i, update(0)), ask(i, update(1))) for i in (0, 32)]
    pairs = [*[(c("a"), c("a"))] * MADE, *differing]

    def suitable(plain: Pairs) -> bool:
        return oracle.suitable(plain, TABLE)

    assert disagreement(Suitable(told), suitable, pairs) is None
    assert disagreement(Misplaced(told), suitable, pairs)
