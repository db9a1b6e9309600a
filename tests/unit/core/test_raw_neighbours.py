"""Raw neighbouring event streams give accepted pairs at every prefix, and the guard is idle on them.

An event is (user, tick, category); category WIDTH is content that no column counts. A user's cap is enforced as a
guard with memory does: the first k events of each public window, from that user's own records alone.
"""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.core.mechanism import IntArray
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.relation import Relation
from stream_dp.core.row_relations import MOST_EVENTS, event, user
from stream_dp.engine.actor import Guard
from stream_dp.errors import FailClosed
from stream_dp.verify.games.game import Verifier

WIDTH, TICKS = 3, 6
ADD, REPLACE, ANY = Neighbors.ADD_REMOVE, Neighbors.REPLACE, Neighbors.REPLACE_ANY_TICK
Event = tuple[int, int, int]

events = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, TICKS - 1), st.integers(0, WIDTH)), max_size=25
)
caps = st.integers(1, 3)
windows_of = st.sampled_from([None, 1, 2, 4])


def routed(stream: list[Event]) -> list[IntArray]:
    """The rows of the ticks."""
    table = np.zeros((TICKS, WIDTH + 1), dtype=np.int64)
    for _, tick, category in stream:
        table[tick, category] += 1
    return list(table[:, :WIDTH])


def capped(stream: list[Event], k: int, window: int | None) -> list[Event]:
    """What is left when each user has at most k events in each window."""
    seen: Counter[tuple[int, int]] = Counter()
    kept = []
    for one in stream:
        key = (one[0], place(one, window))
        seen[key] += 1
        if seen[key] <= k:
            kept.append(one)
    return kept


def place(one: Event, window: int | None) -> int:
    """The window of an event."""
    return 0 if window is None else one[1] // window


def halted_after(relation: Relation, left: list[IntArray], right: list[IntArray]) -> int | None:
    """How many pairs the verifier lets pass before it halts; None where it never does."""
    verifier = Verifier(relation)
    for tick, pair in enumerate(zip(left, right, strict=True)):
        verifier = verifier.verify(pair)
        if verifier.halted:
            return tick
    return None


def idle(*streams: list[IntArray]) -> bool:
    """Whether the guard hands back the very rows."""
    return all(Guard(WIDTH).admit(row) is row for stream in streams for row in stream)


@settings(deadline=None)
@given(events, caps, windows_of, st.integers(0, TICKS - 1), st.data())
def test_one_users_events_are_removed(
    stream: list[Event], k: int, window: int | None, at: int, data: st.DataObject
) -> None:
    """Any of user 0's events, in one window or in all of them."""
    left = capped(stream, k, window)
    mine = [i for i, one in enumerate(left) if one[0] == 0]
    gone = set(data.draw(st.lists(st.sampled_from(mine)))) if mine else set()
    here = {i for i in gone if window is None or left[i][1] // window == at // window}
    for removed, windows in ((gone, None), (here, 1)):
        right = [one for i, one in enumerate(left) if i not in removed]
        for relation in Neighbors if window is None else (ADD, REPLACE):
            checked = user(relation, k, window, windows=windows)
            assert halted_after(checked, routed(left), routed(right)) is None
            assert halted_after(checked, routed(right), routed(left)) is None
        assert idle(routed(left), routed(right))


@settings(deadline=None)
@given(events, caps, windows_of, st.integers(0, TICKS - 1), st.data())
def test_one_users_events_have_other_contents(
    stream: list[Event], k: int, window: int | None, at: int, data: st.DataObject
) -> None:
    left = capped(stream, k, window)
    right = []
    for one in left:
        mine = one[0] == 0 and (window is None or one[1] // window == at // window)
        right.append((*one[:2], data.draw(st.integers(0, WIDTH))) if mine else one)
    assert halted_after(user(REPLACE, k, window), routed(left), routed(right)) is None
    assert halted_after(user(ANY, k), routed(left), routed(right)) is None or window is not None
    assert idle(routed(right))


@settings(deadline=None)
@given(events, caps, st.data())
def test_one_users_events_have_other_contents_and_other_ticks(
    stream: list[Event], k: int, data: st.DataObject
) -> None:
    """Where a record's own time is content. The relations of one tick see it unless every event kept its tick."""
    left = capped(stream, k, None)
    ticks, contents = st.integers(0, TICKS - 1), st.integers(0, WIDTH)
    right = [(0, data.draw(ticks), data.draw(contents)) if e[0] == 0 else e for e in left]
    assert halted_after(user(ANY, k), routed(left), routed(right)) is None
    assert idle(routed(left), routed(right))


@settings(deadline=None)
@given(events, st.integers(0, WIDTH - 1), st.integers(0, WIDTH - 1))
def test_an_event_that_moves_to_another_tick_is_seen_by_the_relations_of_one_tick(
    stream: list[Event], category: int, other: int
) -> None:
    left, right = routed([*stream, (9, 1, category)]), routed([*stream, (9, 4, other)])
    assert [halted_after(event(n, WIDTH), left, right) for n in (ADD, REPLACE, ANY)] == [4, 4, None]


@settings(deadline=None)
@given(events, caps, st.integers(0, TICKS - 1), st.data())
def test_one_event_beyond_the_cap_is_seen(
    stream: list[Event], k: int, tick: int, data: st.DataObject
) -> None:
    """k + 1 events that columns count: accepted up to the tick of the last one, and never after it."""
    spread = data.draw(
        st.lists(
            st.tuples(st.just(9), st.integers(0, tick), st.integers(0, WIDTH - 1)),
            min_size=k,
            max_size=k,
        )
    )
    more = [*spread, (9, tick, data.draw(st.integers(0, WIDTH - 1)))]
    for relation in Neighbors:
        rows = routed([*stream, *more]), routed(stream)
        assert halted_after(user(relation, k), *rows) == tick
        assert halted_after(user(relation, k + 1), *rows) is None


@settings(deadline=None)
@given(events, st.integers(0, 2), st.integers(0, 2))
def test_a_cap_per_window_protects_one_window(
    stream: list[Event], category: int, other: int
) -> None:
    """One event in each of two windows: the relation of (user, window) refuses, that of the whole user accepts."""
    more = [(9, 1, category), (9, 4, other)]
    rows = routed([*stream, *more]), routed(stream)
    assert halted_after(user(ADD, 2, 3), *rows) == 4
    assert halted_after(user(ADD, 2, 3, windows=None), *rows) is None
    assert halted_after(user(ADD, 2), *rows) is None


@settings(deadline=None)
@given(events, st.integers(0, TICKS - 1), st.integers(0, WIDTH), st.integers(0, WIDTH))
def test_event_level_is_one_event_of_a_user(
    stream: list[Event], tick: int, one: int, other: int
) -> None:
    left = routed([*stream, (9, tick, one)])
    for right in (routed(stream), routed([*stream, (9, tick, other)])):
        for relation in Neighbors:
            found = halted_after(event(relation, WIDTH), left, right)
            assert found == halted_after(user(relation, 1), left, right)
            assert relation is ADD or found is None


rows_of_anything = st.lists(
    st.lists(st.sampled_from([-1, 0, 1, 5, MOST_EVENTS, MOST_EVENTS + 1]), min_size=2, max_size=3),
    min_size=1,
    max_size=4,
)


@settings(deadline=None)
@given(rows_of_anything, st.sampled_from((ADD, REPLACE)), caps, windows_of)
def test_the_guard_is_the_relation_on_the_diagonal_whatever_came_before(
    rows: list[list[int]], relation: Neighbors, k: int, window: int | None
) -> None:
    """Also of a relation that an admissible history of differences has used up."""
    used: Relation | None = event(relation, 2).accept(np.array([1, 0]), np.array([0, 0]))
    by_user: Relation | None = user(relation, k, window)
    for entries in rows:
        row = np.array(entries)
        admitted = True
        try:
            assert Guard(2).admit(row) is row
        except FailClosed:
            admitted = False
        assert admitted == (len(entries) == 2 and all(0 <= x <= MOST_EVENTS for x in entries))
        assert used is not None
        assert by_user is not None
        assert (used.accept(row, row.copy()) is not None) == admitted
        if not admitted:
            return
        by_user = by_user.accept(row, row.copy())


def test_the_cap_of_this_file_is_a_cap() -> None:
    """The test's own helper: per user and window, first come."""
    stream = [(0, 0, 1), (0, 1, 2), (1, 1, 0), (0, 2, 0)]
    assert capped(stream, 1, 2) == [(0, 0, 1), (1, 1, 0), (0, 2, 0)]
    assert capped(stream, 1, None) == [(0, 0, 1), (1, 1, 0)]
    with pytest.raises(FailClosed):
        idle([np.array([-1, 0, 0])])
