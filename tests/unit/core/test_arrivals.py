"""What an event or a user changes in rows of first ticks: every small stream and all its neighbours, by definition."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from oracles.first_arrivals import apart, first_arrivals

from stream_dp.core.neighbors import Users
from stream_dp.core.row_relations import Arrivals
from stream_dp.errors import InvalidCost

TICKS, NAMES = 4, "uv"
Ticks = tuple[tuple[str, ...], ...]


def streams() -> Iterator[Ticks]:
    """Every stream of four ticks of two identifiers; one that comes twice in a tick counts as once."""
    kinds = [tuple(some) for n in range(3) for some in itertools.combinations(NAMES, n)]
    yield from itertools.product(kinds, repeat=TICKS)


def with_event(ticks: Ticks, tick: int, name: str) -> Ticks:
    return (*ticks[:tick], (*ticks[tick], name), *ticks[tick + 1 :])


@pytest.mark.parametrize("window", [None, 1, 2, 3, 4])
def test_one_event_changes_two_units_at_most_added_or_replaced(window: int | None) -> None:
    added, replaced, moved = 0, 0, 0
    for ticks in streams():
        rows = first_arrivals(ticks, window)
        more = {
            (tick, name): first_arrivals(with_event(ticks, tick, name), window)
            for tick, name in itertools.product(range(TICKS), NAMES)
        }
        added = max(added, *(apart(rows, each) for each in more.values()))
        for tick in range(TICKS):
            replaced = max(replaced, apart(more[tick, "u"], more[tick, "v"]))
        moved = max(moved, *(apart(a, b) for a, b in itertools.product(more.values(), repeat=2)))
    assert added == replaced == Arrivals(window).changes or (window == 1 and replaced == 0)
    assert moved == 2 * Arrivals(window).changes


def whole(rows: Sequence[int], window: int) -> list[int]:
    return [sum(rows[at : at + window]) for at in range(0, len(rows), window)]


@pytest.mark.parametrize("window", [1, 2, 3, 4])
def test_one_event_changes_one_unit_of_whole_windows(window: int) -> None:
    added, replaced = 0, 0
    for ticks in streams():
        rows = whole(first_arrivals(ticks, window), window)
        for tick in range(TICKS):
            one, other = (
                whole(first_arrivals(with_event(ticks, tick, name), window), window)
                for name in NAMES
            )
            added, replaced = max(added, apart(rows, one)), max(replaced, apart(one, other))
    assert added == replaced == 1 == Arrivals(window, ended=True).changes


def capped(there: tuple[int, ...], cap: int, window: int | None) -> bool:
    """Whether a user's events, one in each of these ticks, are within the cap of each window."""
    windows = [0 if window is None else tick // window for tick in there]
    return all(windows.count(each) <= cap for each in windows)


def worst(counted: int | None, users: Users, ticks: int, *, ended: bool = False) -> int:
    """The most units that all events of one user in one window (or all of them) change, over all streams of `ticks`.

    `ended`: units of the numbers of whole windows.
    """

    def rows(there: Sequence[Sequence[str]]) -> Sequence[int]:
        each = first_arrivals(there, counted)
        return whole(each, counted) if ended and counted else each

    result = 0
    for number in range(ticks + 1):
        for there in itertools.combinations(range(ticks), number):
            if not capped(there, users.cap, users.window):
                continue
            with_all = rows([["u"] * (t in there) for t in range(ticks)])
            size = users.window or ticks
            for window in {tick // size for tick in there}:
                left = [["u"] * (t in there and t // size != window) for t in range(ticks)]
                result = max(result, apart(with_all, rows(left)))
    return result


WINDOWS = [None, 1, 2, 3, 4]


def divides(theirs: int | None, counted: int | None) -> bool:
    """Whether one window divides the other."""
    return not theirs or not counted or theirs % counted == 0 or counted % theirs == 0


@pytest.mark.parametrize("cap", [1, 2])
def test_a_user_changes_what_is_said_and_no_more(cap: int) -> None:
    """Met where one window divides the other, or one event counts in each; else the number is a bound."""
    for theirs, counted in itertools.product(WINDOWS, WINDOWS):
        users = Users(cap, theirs)
        changes, result = Arrivals(counted, users).changes, worst(counted, users, 8)
        assert result <= changes
        assert result == changes or not (divides(theirs, counted) or cap == 1)


@pytest.mark.parametrize("cap", [1, 2])
def test_a_user_changes_no_more_of_whole_windows(cap: int) -> None:
    """Met where one window divides the other; windows that lie across count by a bound."""
    for theirs, counted in itertools.product(WINDOWS, WINDOWS[1:]):
        users = Users(cap, theirs)
        changes = Arrivals(counted, users, ended=True).changes
        result = worst(counted, users, 12, ended=True)
        assert result <= changes <= Arrivals(counted, users).changes
        assert result == changes or not divides(theirs, counted)


@pytest.mark.parametrize(("counted", "users", "forgotten"), [
    (None, Users(20, 2), 1),  # the user's next window is forgotten
    (2, Users(2), 1),  # so are the other windows in which a user is there
    (3, Users(2, 2), 2),  # and windows that lie across
])  # fmt: skip
def test_a_number_that_forgets_something_is_exceeded(
    counted: int | None, users: Users, forgotten: int
) -> None:
    assert worst(counted, users, 8) > forgotten


VALUES = "xy"
CELLS = list(itertools.product(range(TICKS), VALUES))


def stream_of(mask: int) -> Ticks:
    there = [cell for at, cell in enumerate(CELLS) if mask >> at & 1]
    return tuple(tuple(v for tick, v in there if tick == at) for at in range(TICKS))


def of_a_user(mask: int, users: Users, values: int) -> bool:
    """Whether caps let a user have these values at these ticks: events, and different values, in each window."""
    size, there = users.window or TICKS, [cell for at, cell in enumerate(CELLS) if mask >> at & 1]
    for begin in range(0, TICKS, size):
        here = [value for tick, value in there if begin <= tick < begin + size]
        if len(here) > users.cap or len({*here}) > values:
            return False
    return True


def largest_change(counted: int | None, users: Users, values: int, *, ended: bool) -> int:
    """The most units that all events of a user in one window of the cap change, beside any values of others."""
    size, every = users.window or TICKS, 1 << len(CELLS)
    rows = []
    for mask in range(every):
        each = first_arrivals(stream_of(mask), counted)
        rows.append(whole(each, counted) if ended and counted else each)
    table, others, result = np.array(rows), np.arange(every), 0
    for mask in range(every):
        if not of_a_user(mask, users, values):
            continue
        for begin in range(0, TICKS, size):
            gone = sum(
                1 << at for at, (tick, _) in enumerate(CELLS) if begin <= tick < begin + size
            )
            change = table[others | mask] - table[others | (mask & ~gone)]
            result = max(result, int(np.abs(change).sum(axis=1).max()))
    return result


@pytest.mark.parametrize(("cap", "values"), [(1, 1), (1, 2), (2, 1), (2, 2), (3, 2), (4, 1)])
def test_a_user_changes_no_more_values_than_said(cap: int, values: int) -> None:
    """Met wherever one window divides the other and four ticks have room for all that may change."""
    for theirs, counted, ended in itertools.product(WINDOWS[:4], WINDOWS, (False, True)):
        if ended and not counted:
            continue
        users = Users(cap, theirs)
        changes = Arrivals(counted, users, ended, values).changes
        result = largest_change(counted, users, values, ended=ended)
        assert result <= changes <= cap * Arrivals(counted, ended=ended).changes
        lengths = {theirs or TICKS, counted or TICKS}
        longer = theirs is None and counted is not None  # streams have more windows than these
        if lengths <= {2, 4} and (cap <= 2 or values == 2) and not longer:
            assert result == changes


@pytest.mark.parametrize(("counted", "users", "values", "forgotten"), [
    (None, Users(20), 2, 2),  # that others may have the values
    (2, Users(2, 2), 1, 1),  # also in the window of the cap
    (2, Users(2), 1, 2),  # and that one value may come in several windows
])  # fmt: skip
def test_a_number_of_values_that_forgets_something_is_exceeded(
    counted: int | None, users: Users, values: int, forgotten: int
) -> None:
    assert largest_change(counted, users, values, ended=False) > forgotten


KEYS = "ab"


def by_key(
    ticks: Sequence[Sequence[tuple[str, str]]], counted: int | None, *, ended: bool
) -> list[int]:
    """The rows of identifiers by the key of their events, key by key; of `ended` windows the numbers."""
    rows: list[int] = []
    for key in KEYS:
        own = first_arrivals([[name for name, of in tick if of == key] for tick in ticks], counted)
        rows += whole(own, counted) if ended and counted else own
    return rows


@pytest.mark.parametrize("counted", [None, 1, 2, 3])
def test_one_event_changes_one_entry_and_a_replaced_one_two(counted: int | None) -> None:
    """Every stream of two identifiers with two keys, and one event more, or one in place of another in its tick."""
    pairs, ticks = list(itertools.product(NAMES, KEYS)), 3
    cells = list(itertools.product(range(ticks), pairs))
    for ended in (False, True) if counted else (False,):
        added = replaced = 0
        for mask in range(1 << len(cells)):
            there = [cell for at, cell in enumerate(cells) if mask >> at & 1]
            stream = [[pair for at, pair in there if at == tick] for tick in range(ticks)]
            rows = by_key(stream, counted, ended=ended)
            tick = mask % ticks
            more = [
                by_key(
                    [t + [pair] * (at == tick) for at, t in enumerate(stream)], counted, ended=ended
                )
                for pair in pairs
            ]
            added = max(added, *(apart(rows, one) for one in more))
            replaced = max(replaced, *(apart(*two) for two in itertools.combinations(more, 2)))
        assert added == Arrivals(counted, ended=ended).changes
        assert replaced == Arrivals(counted, ended=ended, entries=2).changes


def largest_by_key(counted: int | None, users: Users, keys: int, *, ended: bool) -> int:
    """The most units that a user's events of one window of the cap change, where caps let them have so many keys."""
    size, result = users.window or TICKS, 0
    for mask in range(1 << len(CELLS)):
        if not of_a_user(mask, users, keys):
            continue
        there = [(tick, KEYS[VALUES.index(value)]) for tick, value in _cells(mask)]
        for begin in range(0, TICKS, size):
            left = [cell for cell in there if not begin <= cell[0] < begin + size]
            one, other = (
                by_key(
                    [[("u", key) for at, key in part if at == tick] for tick in range(TICKS)],
                    counted,
                    ended=ended,
                )
                for part in (there, left)
            )
            result = max(result, apart(one, other))
    return result


def _cells(mask: int) -> list[tuple[int, str]]:
    return [cell for at, cell in enumerate(CELLS) if mask >> at & 1]


@pytest.mark.parametrize("theirs", [None, 1, 2, 3, 4])
@pytest.mark.parametrize("counted", [None, 1, 2, 3, 4])
@pytest.mark.parametrize(("cap", "keys"), [(1, 1), (2, 1), (2, 2), (3, 2), (4, 1), (8, 2)])
def test_a_user_changes_as_many_entries_as_said(
    theirs: int | None, counted: int | None, cap: int, keys: int
) -> None:
    """Met where one window divides the other and four ticks hold all that may change."""
    users = Users(cap, theirs)
    for ended in (False, True) if counted else (False,):
        changes = Arrivals(counted, users, ended, entries=min(cap, keys)).changes
        result = largest_by_key(counted, users, keys, ended=ended)
        assert result <= changes
        lengths = {theirs or TICKS, counted or TICKS}
        room = cap <= TICKS // counted * keys if theirs is None and counted else True
        room = room and (theirs, counted) != (TICKS, None)  # there is no next window of the cap
        if lengths <= {2, 4} and room:
            assert result == changes


def test_numbers_of_users_by_key_are_those_that_the_theory_says() -> None:
    """m in windows of the cap and for ever under `overall`; twice as many where the next window has the user again."""
    for m in (1, 2, 3):
        day, ever = Users(20, 24), Users(20)
        assert Arrivals(24, day, entries=m).changes == m
        assert Arrivals(None, ever, entries=m).changes == m
        assert (
            Arrivals(None, day, entries=m).changes == Arrivals(48, day, entries=m).changes == 2 * m
        )
        assert Arrivals(48, day, ended=True, entries=m).changes == m
        assert Arrivals(6, day, entries=m).changes == 4 * m
        assert Arrivals(24, ever, ended=True, entries=m).changes == 20


@pytest.mark.parametrize(("counted", "users", "keys", "forgotten"), [
    (2, Users(4, 2), 2, 1),  # that a user may be in several entries
    (None, Users(4, 2), 2, 2),  # that the next window of the cap has the user again
    (1, Users(4, 2), 2, 2),  # and that windows may be shorter than the cap's
])  # fmt: skip
def test_a_number_of_entries_that_forgets_something_is_exceeded(
    counted: int | None, users: Users, keys: int, forgotten: int
) -> None:
    assert largest_by_key(counted, users, keys, ended=False) > forgotten


def test_a_memory_that_is_reset_by_events_has_no_bound() -> None:
    """A twin: the memory is dropped once two events have come, which is private; one event moves every reset."""

    def private_resets(events: list[str]) -> list[int]:
        rows, seen = [], set[str]()
        for number, name in enumerate(events):
            if number % 2 == 0:
                seen = set()
            rows.append(int(name not in seen))
            seen.add(name)
        return rows

    for length in (12, 24, 48):
        events = list("uuvv" * length)
        with_event = private_resets(["u", *events])
        assert apart([0, *private_resets(events)], with_event) > length


def test_it_says_what_it_is_and_refuses_what_is_none() -> None:
    assert str(Arrivals(24)) == "first ticks of identifiers in windows of 24 ticks"
    assert str(Arrivals(1, Users(2))) == "first ticks of users in windows of 1 tick"
    assert str(Arrivals()) == "first ticks of identifiers"
    assert str(Arrivals(24, ended=True)) == "numbers of identifiers in whole windows of 24 ticks"
    day = Users(20, 24)
    assert "first ticks of identifiers, at most 3 of a user" in str(Arrivals(24, day, values=3))
    for users, values in ((None, 3), (day, 0), (day, 1.5)):
        with pytest.raises(InvalidCost, match="values of a user's events"):
            Arrivals(24, users, values=values)  # type: ignore[arg-type]
    with pytest.raises(InvalidCost, match="never ends"):
        Arrivals(ended=True)
    for window in (0, -1, 1.5, True):
        with pytest.raises(InvalidCost, match="whole number"):
            Arrivals(window)  # type: ignore[arg-type]
