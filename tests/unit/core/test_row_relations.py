"""Row relations and static data sets against the definitions; broken twins."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from oracles import relations as oracle
from oracles.relations import Pairs
from unit.verify.relations.symbols import JUNK, Pair, Symbol, compare, query, row, twice, update

from stream_dp.core.neighbors import Neighbors
from stream_dp.core.relation import All, Identical, Relation, same
from stream_dp.core.row_relations import MOST_EVENTS, Stream, WholeWindows, event, user
from stream_dp.errors import UsageError
from stream_dp.verify.relations import StaticDataSet, single_pair

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE


@dataclass(frozen=True)
class Case:
    relation: Relation
    predicate: Callable[[Pairs], bool]
    alphabet: list[Pair]
    depth: int = 5


def flat(message: Any) -> Symbol:
    """A value that is its own plain form."""
    return message, message


SAME = twice(row(0, 0), row(2, 1))
ROWS: list[Pair] = [
    *SAME,
    (row(1, 0), row(0, 0)),
    (row(0, 1), row(1, 0)),
    (row(1, 1), row(0, 0)),
    (row(3, 0), row(1, 1)),
    (row(3, 1), row(0, 0)),
    (row(-1, 0), row(-1, 0)),
    (row(0), row(0, 0)),
    ((None, None), (None, None)),
    (row(0, 0), (np.array([0.0, 0.0]), None)),
]
MESSAGES: list[Pair] = [
    *twice(query(), query(3), update(0, 1), update(2, 0), JUNK),
    (query(3), query(4)),
    (update(0, 1), query()),
    (update(0, 1), update(1, 1)),
    (update(0, 0), update(1, 1)),
]
VALUES: list[Pair] = [
    *twice(flat(3), flat(Fraction(1, 2)), (1.5, "no number"), ("a", "a")),
    (flat(0), flat(1)),
    (flat(Fraction(1, 3)), flat(Fraction(4, 3))),
    (flat(0), flat(2)),
    (flat(Fraction(1, 3)), flat(2)),
]


def near(left: Any, right: Any) -> bool:
    return isinstance(left, int) and isinstance(right, int) and abs(left - right) <= 1


@dataclass(frozen=True)
class AtMost:
    """A property of queries: no more than so many."""

    left: int
    first_pair_consistent: bool = False

    def accept(self, left: Any, right: Any) -> "AtMost | None":
        return AtMost(self.left - 1) if self.left else None


def users(relation: Neighbors, k: int, window: int | None = None, windows: int | None = 1) -> Case:
    return Case(
        user(relation, k, window, windows=windows),
        lambda pairs: meant(pairs, relation, k, window, windows),
        ROWS,
    )


def meant(
    pairs: Pairs, relation: Neighbors, k: int, window: int | None, windows: int | None
) -> bool:
    if relation is Neighbors.REPLACE_ANY_TICK:
        return oracle.moved(pairs, k)
    return oracle.user(pairs, relation.value, k, window, windows)


def whole_windows(most: int, size: int) -> Case:
    def meant(pairs: Pairs) -> bool:
        return of_whole_windows(pairs, most, size)

    return Case(WholeWindows(most, size), meant, COUNTED)


def of_whole_windows(pairs: Pairs, most: int, size: int) -> bool:
    """By definition: up to each row, what windows differ by adds up to at most so many."""
    gaps = [left[0] - right[0] for left, right in pairs]
    return all(
        sum(abs(sum(gaps[at : min(n, at + size)])) for at in range(0, n, size)) <= most
        for n in range(1, len(gaps) + 1)
    )


def test_entries_of_whole_windows_differ_each_for_itself() -> None:
    """What comes in one entry and goes in another one is two units; within an entry it is none."""
    for most, accepted in ((1, False), (2, True)):
        moved = WholeWindows(most, 2).accept(np.array([1, 0]), np.array([0, 1]))
        assert (moved is not None) is accepted
    back = WholeWindows(1, 2).accept(np.array([1, 0]), np.array([0, 0]))
    assert back is not None
    assert back.accept(np.array([0, 0]), np.array([1, 0])) is not None


COUNTED: list[Pair] = [(row(a), row(b)) for a, b in ((0, 0), (1, 0), (0, 1), (2, 0))]
CASES: dict[str, Case] = {
    **{
        f"{most} of whole windows of {size}": whole_windows(most, size)
        for most, size in ((1, 2), (2, 2), (1, 1), (2, 3))
    },
    "identical": Case(Identical(), oracle.identical, [*ROWS[:5], *MESSAGES], 3),
    **{f"event {n}": replace(users(n, 1), relation=event(n)) for n in Neighbors},
    **{f"user 2 {n}": users(n, 2) for n in Neighbors},
    **{f"user 3 {n}": users(n, 3) for n in Neighbors},
    **{f"user 2 in windows of 2 {n}": users(n, 2, 2) for n in (ADD, REPLACE)},
    "user 2 in every window of 2": users(ADD, 2, 2, None),
    "user 1 in two windows of 1": users(REPLACE, 1, 1, 2),
    "stream": Case(
        Stream(event(ADD, 2)),
        lambda p: oracle.stream(p, lambda rows: oracle.user(rows, "add_remove", 1, None, 1)),
        MESSAGES,
    ),
    "static": Case(
        StaticDataSet(near),
        lambda p: oracle.static(p, near),
        [*VALUES, *twice(query())],
        4,
    ),
    "static with a property": Case(
        StaticDataSet(near, AtMost(2)),
        lambda p: oracle.static(p, near, lambda queries: len(queries) <= 2),
        [*VALUES, *twice(query())],
        4,
    ),
    "one pair": Case(
        single_pair(near),
        lambda p: len(p) <= 1 and oracle.static(p, near),
        [*VALUES, (flat(1), flat(2)), (flat(1), flat(0))],
        3,
    ),
    "conjunction": Case(
        All((event(REPLACE), event(ADD), Identical())),
        lambda p: oracle.identical(p) and oracle.user(p, "replace", 1, None, 1),
        ROWS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_relation_is_its_definition_at_every_prefix(name: str) -> None:
    """All sequences; and both sides of every accepted pair are admissible."""
    case = CASES[name]
    result = compare(case.relation, case.predicate, case.alphabet, case.depth)
    assert result.disagreement is None
    assert result.inadmissible == []
    assert min(result.accepted, result.refused) > 3


TWINS: dict[str, tuple[str, Relation]] = {
    "no windows": ("user 2 in windows of 2 add_remove", user(ADD, 2)),
    "no property": ("static with a property", StaticDataSet(near)),
    "more than one pair": ("one pair", StaticDataSet(near)),
    "disjunction": ("conjunction", event(REPLACE)),
}  # fmt: skip


@pytest.mark.parametrize("name", TWINS)
def test_broken_twins_are_caught(name: str) -> None:
    of, twin = TWINS[name]
    case = CASES[of]
    assert compare(twin, case.predicate, case.alphabet, case.depth, sides=False).disagreement


@pytest.mark.parametrize("window", [0, 1, 24])
def test_a_replacement_that_moves_anywhere_has_no_window(window: int) -> None:
    with pytest.raises(UsageError, match="may leave its window"):
        user(Neighbors.REPLACE_ANY_TICK, 1, window)


@pytest.mark.parametrize(("k", "window", "windows"), [(0, None, 1), (1, 0, 1), (1, 2, 0)])
def test_a_cap_of_nothing_is_refused(k: int, window: int | None, windows: int) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        user(ADD, k, window, windows=windows)


def test_rows_outside_the_query_space_are_no_pair() -> None:
    many = np.array([MOST_EVENTS + 1])
    for bad in (many, many.astype(np.float64), np.zeros((1, 1), np.int64), [0], np.array([True])):
        assert event(ADD).accept(bad, bad) is None
    narrow = np.zeros(1, np.int64)
    for relation in (event(ADD, 2), user(ADD, 3, width=2)):
        assert relation.accept(narrow, narrow) is None


def test_first_pair_consistency_is_what_its_definition_says() -> None:
    """Def 5.12 by trying: after an identical first pair, is any different pair accepted?"""
    stated, consistent = set(), set()
    for name, case in CASES.items():
        starts = [case.relation.accept(a[0], a[0]) for a, _ in case.alphabet]
        differing = [(a[0], b[0]) for a, b in case.alphabet if not same(a[0], b[0])]
        if not any(s.accept(a, b) for s in starts if s for a, b in differing):
            consistent.add(name)
        if case.relation.first_pair_consistent:
            stated.add(name)
    assert stated <= consistent
    assert {"identical", "static", "static with a property", "one pair", "conjunction"} == stated
    assert len(consistent) < len(CASES) / 2
