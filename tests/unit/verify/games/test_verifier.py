"""Verification, [HSV] 3.3-3.5: raw neighbours give accepted pairs, accepted pairs are admissible, the guard is idle."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.core.mechanism import IntArray
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.relation import Relation
from stream_dp.core.row_relations import event
from stream_dp.engine.actor import Guard
from stream_dp.errors import FailClosed, NotDerivable
from stream_dp.verify.games.game import Verifier

WIDTH, TICKS = 3, 5
ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE

# An event is (tick, column); column WIDTH is content that no column counts: the zero row.
events = st.lists(st.tuples(st.integers(0, TICKS - 1), st.integers(0, WIDTH)), max_size=12)
rows_of = st.lists(
    st.lists(st.integers(-1, 2), min_size=2, max_size=2).map(lambda r: np.array(r, dtype=np.int64)),
    min_size=6,
    max_size=6,
)


def tick_rows(stream: list[tuple[int, int]]) -> list[IntArray]:
    """The rows of an event stream."""
    table = np.zeros((TICKS, WIDTH + 1), dtype=np.int64)
    for tick, column in stream:
        table[tick, column] += 1
    return list(table[:, :WIDTH])


def accepted(neighbors: Neighbors, left: list[IntArray], right: list[IntArray]) -> bool:
    """Whether the verifier lets every prefix pass."""
    verifier = Verifier(event(neighbors))
    for a, b in zip(left, right, strict=True):
        verifier = verifier.verify((a, b))
    return not verifier.halted


@given(events, st.integers(0, TICKS - 1), st.integers(0, WIDTH))
def test_one_event_more_is_accepted(stream: list[tuple[int, int]], tick: int, column: int) -> None:
    left, right = tick_rows(stream), tick_rows([*stream, (tick, column)])
    for relation in Neighbors:
        assert accepted(relation, left, right)
        assert accepted(relation, right, left)


@given(events, st.integers(0, TICKS - 1), st.integers(0, WIDTH), st.integers(0, WIDTH))
def test_another_content_is_accepted_under_replace_only(
    stream: list[tuple[int, int]], tick: int, one: int, other: int
) -> None:
    left, right = tick_rows([*stream, (tick, one)]), tick_rows([*stream, (tick, other)])
    assert accepted(REPLACE, left, right)
    assert accepted(ADD, left, right) == (one == other or WIDTH in (one, other))


@given(events, st.integers(0, WIDTH - 1), st.integers(0, WIDTH - 1), st.data())
def test_two_ticks_that_differ_are_refused_for_ever(
    stream: list[tuple[int, int]], one: int, other: int, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, TICKS - 2))
    second = data.draw(st.integers(first + 1, TICKS - 1))
    left, right = tick_rows(stream), tick_rows([*stream, (first, one), (second, other)])
    for relation in Neighbors:
        assert not accepted(relation, left, right)


@given(rows_of, rows_of, st.sampled_from(Neighbors))
def test_accepted_pairs_are_admissible_neighbours(
    left: list[IntArray], right: list[IntArray], relation: Neighbors
) -> None:
    """The checker against a slow reading of the definition, on the whole history at each prefix."""
    check: Relation | None = event(relation)
    guard = Guard(2)
    for size, (a, b) in enumerate(zip(left, right, strict=True), start=1):
        check = check.accept(a, b) if check else None
        assert (check is not None) == by_definition(left[:size], right[:size], relation)
        if check is not None:
            assert guard.admit(a) is a
            assert guard.admit(b) is b


def by_definition(left: list[IntArray], right: list[IntArray], relation: Neighbors) -> bool:
    """At most one tick differs, by one event (or one for another, in its tick or in any); all entries are counts."""
    if any(row.min() < 0 for row in [*left, *right]):
        return False
    gaps = [tuple((a - b).tolist()) for a, b in zip(left, right, strict=True) if np.any(a != b)]
    single = {(0, 1), (1, 0), (0, -1), (-1, 0)}
    if relation is Neighbors.REPLACE_ANY_TICK:
        every = [difference for gap in gaps for difference in gap if difference]
        return sorted(every) in ([], [-1], [1], [-1, 1])
    allowed = single | ({(1, -1), (-1, 1)} if relation is REPLACE else set())
    return not gaps or (len(gaps) == 1 and gaps[0] in allowed)


def test_rows_of_different_widths_are_no_pair() -> None:
    assert event(ADD).accept(np.zeros(1, np.int64), np.zeros(2, np.int64)) is None


def test_equal_rows_that_no_events_make_are_no_pair() -> None:
    negative = np.array([-1, 0])
    assert event(REPLACE).accept(negative, negative) is None


def test_a_halted_verifier_stays_halted() -> None:
    zero, two = np.zeros(2, np.int64), np.array([2, 0])
    halted = Verifier(event(ADD)).verify((zero, two))
    assert halted.halted
    assert halted.verify((zero, zero)).halted


@given(st.lists(st.integers(0, 2**40), min_size=WIDTH, max_size=WIDTH))
def test_the_guard_is_the_identity_on_rows_of_counts(values: list[int]) -> None:
    row = np.array(values, dtype=np.int64)
    assert Guard(WIDTH).admit(row) is row
    assert row.tolist() == values


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.array([1, 2, -918273]),
        lambda: np.array([918273, 1]),
        lambda: np.array([[918273, 1, 1]]),
        lambda: np.array([1.0, 2.0, 918273.0]),
        lambda: np.array([1, 2, 3], dtype=np.int32),
    ],
)
def test_the_guard_stops_on_anything_else_without_a_word_of_it(
    make: Callable[[], IntArray],
) -> None:
    with pytest.raises(FailClosed) as caught:
        Guard(WIDTH).admit(make())
    assert "918273" not in str(caught.value)


def test_an_empty_row_is_admissible() -> None:
    assert Guard(0).admit(np.zeros(0, dtype=np.int64)).size == 0


def test_sensitivities() -> None:
    assert [ADD.l0(1), ADD.l0(5), REPLACE.l0(1), REPLACE.l0(5)] == [1, 1, 1, 2]
    assert [ADD.l0(1, 3), ADD.l0(5, 3), REPLACE.l0(7, 3), REPLACE.l0(5, 3)] == [1, 3, 6, 5]
    assert [ADD.l0(4, 4), REPLACE.l0(4, 4)] == [4, 4]
    for ones in (0, -1):
        with pytest.raises(NotDerivable, match="at least one entry"):
            ADD.l0(3, ones)
    assert ADD.monotone(5)
    assert REPLACE.monotone(1)
    assert not REPLACE.monotone(5)


def test_amounts_may_be_any_and_counts_beside_them_may_not() -> None:
    guard = Guard(3, (slice(1, 3),))
    row = np.array([4, -918273, 1 << 50])
    assert guard.admit(row) is row
    assert row.tolist() == [4, -918273, 1 << 50]
    for bad in ([-1, 0, 0], [1 << 50, 0, 0], [1, 2, 3, 4]):
        with pytest.raises(FailClosed):
            guard.admit(np.array(bad))
    with pytest.raises(FailClosed):
        Guard(3).admit(row)
