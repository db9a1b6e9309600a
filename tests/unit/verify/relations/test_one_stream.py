"""One stream for all mechanisms: every small pair of runs against a count of the ticks that differ, and a twin."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from oracles.trace_pairs import pair_accepted

from stream_dp.core.composition import Ask, Create, Halt
from stream_dp.core.guarantee import PureDP
from stream_dp.core.mechanism import Query, Update
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.core.relation import Claim
from stream_dp.core.row_relations import Arrivals, Stream, user
from stream_dp.mechanisms.linear.arrival_counter import ArrivalCounter
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.ended_windows import EndedArrivals
from stream_dp.verify.relations import OneStream, engine_relation, own_or

ADD = Neighbors.ADD_REMOVE
COUNTER = Counter(1, Fraction(1), ADD, 9)
Rows = tuple[tuple[int, ...], ...]  # of each tick: one entry per mechanism


def messages(rows: Rows, later: int | None = None) -> list[Any]:
    """Two mechanisms from the start, a third from tick `later` on, the first halted before it."""
    result: list[Any] = [Create(COUNTER), Create(COUNTER)]
    for tick, row in enumerate(rows):
        live = [0, 1] if later is None or tick < later else [1, 2]
        if tick == later:
            result += [Halt(0), Create(COUNTER)]
        for index, entry in zip(live, row, strict=True):
            result += [Ask(index, Update(np.array([entry]))), Ask(index, Query())]
    return result


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("later", [None, 1, 2])
def test_as_many_ticks_differ_as_are_allowed(most: int, later: int | None) -> None:
    every = list(product(product((0, 1), repeat=2), repeat=3))
    left = every[0]
    for right in every:
        differing = sum(a != b for a, b in zip(left, right, strict=True))
        accepted = pair_accepted(OneStream(most), messages(left, later), messages(right, later))
        assert accepted is (differing <= most)


def test_the_ticks_of_a_user_lie_in_one_window() -> None:
    """Two ticks a window, and two that may differ: those of one window, whichever mechanism sees them first."""
    rows = list(product(product((0, 1), repeat=2), repeat=4))
    left = rows[0]
    for right in rows:
        differing = [tick for tick in range(4) if right[tick] != left[tick]]
        one_window = len(differing) <= 2 and len({tick // 2 for tick in differing}) <= 1
        relation = OneStream(2, window=2)
        assert pair_accepted(relation, messages(left, 1), messages(right, 1)) is one_window


@pytest.mark.parametrize("users", [Users(2, 2), Users(2)])
def test_all_events_of_a_user_that_count(users: Users) -> None:
    """In one tick, or in two of one window; one more is refused, and so is one of another window."""
    claim = Claim(PureDP(Fraction(2)), Stream(user(ADD, users.cap, users.window, width=1)))

    def accepted(*events: int) -> bool:
        relation = engine_relation(ADD, own_or([claim]), users)
        create = [Create(COUNTER, claim)]
        sent = [
            create + [Ask(0, Update(np.array([n]))) for n in side] for side in (events, (0,) * 4)
        ]
        return pair_accepted(relation, *sent)

    assert accepted(0, 2, 0, 0)
    assert accepted(1, 1, 0, 0)
    assert not accepted(0, 3, 0, 0)
    assert not accepted(1, 2, 0, 0)
    assert accepted(0, 1, 1, 0) is (users.window is None)


@pytest.mark.parametrize("relation", list(Neighbors))
def test_both_sides_of_a_pair_are_admissible(relation: Neighbors) -> None:
    for rows in product(product((0, 1), repeat=2), repeat=2):
        assert pair_accepted(engine_relation(relation), messages(rows), messages(rows))


def test_first_ticks_may_differ_where_an_identifier_comes_back() -> None:
    """Of a count of identifiers beside a count of events: one event more is in one tick, and moves a first tick."""
    distinct = ArrivalCounter(Fraction(1), ADD, 9, Arrivals())

    def sent(*rows: tuple[int, int]) -> list[Any]:
        result: list[Any] = [Create(COUNTER), Create(distinct)]
        for row in rows:
            result += [Ask(i, Update(np.array([entry]))) for i, entry in enumerate(row)]
        return result

    def accepted(*rows: tuple[int, int]) -> bool:
        without = ((0, 0), (3, 1), (4, 2))
        return pair_accepted(engine_relation(ADD), sent(*without), sent(*rows))

    assert accepted((1, 1), (3, 1), (4, 1))
    assert accepted((1, 0), (3, 1), (4, 2))
    assert not accepted((1, 1), (4, 1), (4, 1))  # events in two ticks
    assert not accepted((1, 1), (3, 0), (4, 1))  # three units


def test_units_of_a_window_that_ends_may_come_and_go_at_other_ticks() -> None:
    """One event more comes first in its window, and another of the same identifier no longer does."""
    ended = EndedArrivals(Fraction(1), ADD, Arrivals(2, ended=True))

    def sent(*rows: int) -> list[Any]:
        return [Create(ended), *(Ask(0, Update(np.array([row]))) for row in rows)]

    def accepted(*rows: int) -> bool:
        return pair_accepted(engine_relation(ADD), sent(0, 1, 5, 5), sent(*rows))

    assert accepted(1, 0, 5, 5)
    assert accepted(1, 1, 5, 5)
    assert not accepted(1, 1, 6, 5)  # the numbers of two windows
    assert not accepted(2, 1, 5, 5)


class EachForItself(OneStream):
    """Broken: counts the ticks that differ, mechanism by mechanism."""

    __slots__ = ()

    def query(self, left: Ask, right: Ask) -> "OneStream | None":
        after = OneStream.query(replace(self, differing=frozenset()), left, right)
        return (
            None
            if after is None
            else EachForItself(1, after.begun, after.next_tick, after.differing)
        )


def test_a_twin_that_forgets_is_told_apart() -> None:
    left: Rows = ((0, 0), (0, 0))
    right: Rows = ((1, 0), (0, 1))
    assert pair_accepted(EachForItself(), messages(left), messages(right))
    assert not pair_accepted(OneStream(), messages(left), messages(right))


def test_what_is_not_there_is_refused() -> None:
    row = Ask(5, Update(np.array([1])))
    assert OneStream().accept(row, row) is None
    assert not OneStream().first_pair_consistent
