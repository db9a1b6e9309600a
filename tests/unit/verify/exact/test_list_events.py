"""Events that set several entries: how few explain a difference, what they cost exactly, and what forgets them.

The oracle of the relations is a breadth-first search over all sets of entries. What such events cost real mechanisms
is exact from raw records (`test_from_theory_rows.py`: lists).
"""

import itertools
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_relations import EventRows, MovedRows, event
from stream_dp.mechanisms.hss.hss import HSS
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.serving import ServingMechanism
from stream_dp.mechanisms.watches.kinds import Alerts
from stream_dp.testing.noise import SeededNoise
from stream_dp.verify.exact.exact_delta import worst_ratio
from stream_dp.verify.exact.exact_sparse_vector import Row, SmallHSS
from stream_dp.verify.exact.finite import DifferAtMost
from stream_dp.verify.lower_bound import (
    Finding,
    audit_mechanism,
    labels,
    statistics,
    worst_pair,
)

ADD, REPLACE, ANY = Neighbors.ADD_REMOVE, Neighbors.REPLACE, Neighbors.REPLACE_ANY_TICK
ONE, HALF = Fraction(1), Fraction(1, 2)
SPAN = range(-2, 3)


def contents(width: int, ones: int) -> list[Row]:
    """All rows that one event may be, the zero row too."""
    return [row for row in itertools.product((0, 1), repeat=width) if sum(row) <= ones]


@cache
def fewest_events(relation: Neighbors, width: int, ones: int) -> dict[Row, int]:
    """The least number of events for each difference within a box: breadth-first, one event after another."""
    rows = contents(width, ones)
    zero = rows[0]
    pairs = itertools.product(rows, rows) if relation is REPLACE else [(zero, row) for row in rows]
    moves = {tuple(np.subtract(a, b).tolist()) for a, b in pairs}
    moves |= {tuple(-x for x in move) for move in moves}
    result, edge, events = {zero: 0}, [zero], 0
    while edge:
        events += 1
        reached = {tuple(np.add(at, move).tolist()) for at in edge for move in moves}
        edge = [at for at in reached if at not in result and max(map(abs, at)) <= 4]
        result |= dict.fromkeys(edge, events)
    return result


@pytest.mark.parametrize("ones", [1, 2, 3])
@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_as_few_events_as_there_can_be(relation: Neighbors, ones: int) -> None:
    fewest = fewest_events(relation, 3, ones)
    for gap in itertools.product(SPAN, repeat=3):
        left, right = (np.maximum(sign * np.array(gap), 0) for sign in (1, -1))
        after = EventRows(relation, most=99, ones=ones).accept(left, right)
        assert after is not None
        assert after.spent == fewest[gap]
        single = event(relation, 3, ones).accept(left, right)
        assert (single is not None) == (fewest[gap] <= 1)


def test_a_replacement_that_moves_is_at_most_one_event_gone_and_one_come() -> None:
    first, second, zero = np.array([1, 1, 0]), np.array([0, 1, 1]), np.zeros(3, np.int64)
    moved = event(ANY, 3, 2).accept(first, zero)
    assert isinstance(moved, MovedRows)
    assert moved.accept(zero, second) is not None
    assert moved.accept(second, zero) is None
    assert event(ANY, 3, 1).accept(first, zero) is None
    assert event(ANY, 3, 2).accept(np.array([2, 0, 0]), zero) is None


def test_whole_rows_for_whole_rows_are_the_papers_relation() -> None:
    """replace with ones = width: every pair of rows of {0,1}^d, and no other ([HSV] ~_H)."""
    rows = [np.array(row) for row in itertools.product((0, 1), repeat=3)]
    assert all(event(REPLACE, 3, 3).accept(a, b) is not None for a in rows for b in rows)
    assert event(REPLACE, 3, 3).accept(rows[0], np.array([2, 0, 0])) is None
    assert REPLACE.l0(3, 3) == 3


def test_hss_costs_its_watcher_once_and_its_counter_per_entry() -> None:
    """One sparse vector on the largest growth moves by one, both columns are released: e1 + e2 + 2 e_c."""
    machine = SmallHSS(3, HALF, HALF, HALF, gamma=0, low=0, high=6)
    zero, both = (0, 0, 0), (1, 1, 0)
    pairs = DifferAtMost((zero, (0, 0, 2)), ((zero, both), (both, zero)))
    forgotten, paid = 2 * 2 * 2, 2 * 2 * 2**2
    assert forgotten < worst_ratio(machine, pairs, 3) <= paid


# --- the audit -----------------------------------------------------------------------------------


class ForgottenOnes(Counter):
    """Broken: every column at the full epsilon, though one event sets several."""

    @property
    def unit_epsilon(self) -> Fraction:
        return self.epsilon


def played(mechanism: ServingMechanism[Any], runs: int, failure: float) -> Finding:
    """Games of one tick on seeded noise, the same every time."""
    seeds = iter(range(1, 1_000_000))
    return audit_mechanism(
        mechanism, lambda: SeededNoise(next(seeds)), runs=runs, ticks=1, failure=failure
    )


@pytest.mark.parametrize(("relation", "width"), [(ADD, 6), (REPLACE, 6), (REPLACE, 4)])
def test_the_audit_plays_whole_lists_and_refutes_a_forgotten_l0(
    relation: Neighbors, width: int
) -> None:
    """Three and more units are lost where one is claimed, missed with probability below 1e-3."""
    result = played(ForgottenOnes(width, ONE, relation, 1, ones=3), 1600, 0.01)
    assert result.violated
    right = played(Counter(width, ONE, relation, 1, ones=3), 400, 1e-6)
    assert not right.violated


CASES: list[ServingMechanism[Any]] = [
    Counter(5, ONE, ADD, 3, ones=3),
    Counter(5, ONE, REPLACE, 3, ones=2),
    Counter(5, ONE, REPLACE, 3, ones=4),
    Alerts(3, ONE, ADD, threshold=9, ones=2),
    Alerts(4, ONE, REPLACE, threshold=9, ones=4),
    HSS(4, None, HALF, HALF, ONE, ADD, 9, ones=3),
]


@pytest.mark.parametrize("mechanism", CASES, ids=lambda each: type(each).__name__)
def test_the_adversarys_event_sets_all_that_it_may(mechanism: Any) -> None:
    left, right = worst_pair(mechanism)
    relation, width, ones = mechanism.guarantee.neighbors, mechanism.width, mechanism.ones
    assert event(relation, width, ones).accept(left, right) is not None
    assert np.abs(left - right).sum() == relation.l0(width, ones)


def test_the_opening_is_put_into_every_entry_that_the_event_may_set() -> None:
    left, right = worst_pair(Alerts(5, ONE, REPLACE, threshold=9, ones=2))
    assert left.tolist() == [8, 8, 9, 9, 0]
    assert right.tolist() == [9, 9, 8, 8, 0]
    assert worst_pair(Alerts(3, ONE, ADD, threshold=9, ones=2))[1].tolist() == [9, 9, 8]


def test_the_signed_sum_of_what_one_event_sets_is_a_statistic() -> None:
    answers = np.array([[[1, 2, 3, 4, 5, 9]]])
    assert statistics(answers, 5, 3).tolist() == [[1, 2, 3, 4, -3]]
    assert labels(5, 3)[-2:] == ["entry 3", "signed sum of what one event sets"]
    assert statistics(answers, 2, 2, changes=True).tolist() == [[3, 3]]
    assert labels(2, 2, changes=True) == ["sum of entries 0 to 1", "change"]
    assert labels(3) == ["entry 0", "entry 1", "difference"]
    assert labels(1) == ["entry 0"]
