"""Counters of first ticks: every small raw stream and its neighbours, against the real noise; twins that forget it.

Independent of the code: rows are made of raw events by definition (`oracles.first_arrivals`), neighbours are those of
the raw events, and what tells them apart is found from the real map from noises to answers (`oracles.tree_privacy`).
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from oracles.first_arrivals import first_arrivals
from oracles.tree_privacy import least_shift

from stream_dp.accounting.derive import derive
from stream_dp.accounting.situations import FirstArrivals, Group
from stream_dp.core.guarantee import PureDP
from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.core.row_law import ArrivalLaw
from stream_dp.core.row_relations import Arrivals
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.linear.arrival_counter import ArrivalCounter
from stream_dp.mechanisms.linear.counter import Counter, HybridCounter
from stream_dp.mechanisms.serving import derived
from stream_dp.testing.noise import ScriptedNoise, SeededNoise, ZeroNoise

ADD, REPLACE, MOVES = Neighbors.ADD_REMOVE, Neighbors.REPLACE, Neighbors.REPLACE_ANY_TICK
TICKS, EPSILON, BIG = 4, Fraction(4, 5), 1 << 20
NAMES = "uv"
Ticks = tuple[tuple[str, ...], ...]
Rows = tuple[int, ...]


def answers(mechanism: Any, noise: Any, rows: Sequence[int]) -> IntArray:
    """The answers after each row, shape (ticks,)."""
    state, found = mechanism.init(noise), []
    for row in rows:
        state, _ = mechanism.step(state, Update(np.array([row])), noise)
        _, answer = mechanism.step(state, Query(), noise)
        found.append(int(answer[0]))
    return np.array(found)


@cache
def law(mechanism: Any) -> tuple[Any, Any]:
    """The real map from noises to answers, and one over each noise's scale."""
    called, empty = ScriptedNoise([0] * 20_000), [0] * TICKS
    answers(mechanism, called, empty)
    scales = [call.scale for call in called.calls for _ in range(call.size)]
    scripts = [[BIG * (at == one) for one in range(len(scales))] for at in range(len(scales))]
    matrix = np.array([answers(mechanism, ScriptedNoise(each), empty) / BIG for each in scripts]).T
    used = np.abs(matrix).max(axis=0) > 1e-4
    return matrix[:, used], np.array([float(1 / scale) for scale in scales])[used]


def streams() -> Iterator[Ticks]:
    """Every stream of two identifiers."""
    kinds = [tuple(some) for n in range(3) for some in itertools.combinations(NAMES, n)]
    yield from itertools.product(kinds, repeat=TICKS)


def with_event(ticks: Ticks, tick: int, name: str) -> Ticks:
    """The stream with one event more."""
    return (*ticks[:tick], (*ticks[tick], name), *ticks[tick + 1 :])


@cache
def by_events(relation: Neighbors, window: int | None) -> set[tuple[Rows, Rows]]:
    """The rows of every pair of neighbouring streams of events."""
    found = set()
    for ticks in streams():
        rows = first_arrivals(ticks, window)
        for tick in range(TICKS):
            more = [first_arrivals(with_event(ticks, tick, name), window) for name in NAMES]
            found |= {(rows, each) for each in more}
            if relation is REPLACE:
                found.add((more[0], more[1]))
    return found


@cache
def by_users(users: Users, window: int | None) -> set[tuple[Rows, Rows]]:
    """The rows of every stream of one user, and without all events of one of the cap's windows."""
    found, size = set(), users.window or TICKS
    for there in itertools.product((0, 1), repeat=TICKS):
        spent = [sum(there[at : at + size]) for at in range(0, TICKS, size)]
        if max(spent) > users.cap:
            continue
        rows = first_arrivals([["u"] * one for one in there], window)
        for gone in range(0, TICKS, size):
            left = [["u"] * (one and not gone <= t < gone + size) for t, one in enumerate(there)]
            found.add((rows, first_arrivals(left, window)))
    return found


def worst(mechanism: Any, pairs: set[tuple[Rows, Rows]]) -> float:
    """The largest loss of a pair of streams of rows, in parts of the claim."""
    matrix, weights = law(mechanism)
    shifts = {
        tuple(answers(mechanism, ZeroNoise(), left) - answers(mechanism, ZeroNoise(), right))
        for left, right in pairs
    }
    found = [least_shift(matrix, np.array(s), weights, integer=False) for s in shifts if any(s)]
    return max(float(weights @ np.abs(each)) for each in found) / float(EPSILON)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("window", [None, 1, 2, 3])
def test_every_pair_of_small_streams_of_events_loses_the_claim_at_most(
    relation: Neighbors, window: int | None
) -> None:
    """Not quite met: units of one window share nodes of its tree, where one that comes and one that goes cancel."""
    mechanism = ArrivalCounter(EPSILON, relation, TICKS, Arrivals(window))
    pairs = by_events(relation, window)
    found = worst(mechanism, pairs)
    assert found <= 1 + 2e-3
    assert found >= 0.99 or window == 2
    rows = mechanism.rows.relation(relation)
    for left, right in pairs:
        after: Any = rows
        for one, other in zip(left, right, strict=True):
            after = after.accept(np.array([one]), np.array([other]))
            assert after is not None


@pytest.mark.parametrize(("users", "window"), [
    (Users(20), None), (Users(2), 1), (Users(2), 2), (Users(2, 2), None), (Users(2, 2), 2), (Users(2, 2), 1),
    (Users(1, 1), 2), (Users(2, 2), 3),
])  # fmt: skip
def test_every_user_loses_the_claim_at_most(users: Users, window: int | None) -> None:
    mechanism = ArrivalCounter(EPSILON, ADD, TICKS, Arrivals(window, users))
    assert worst(mechanism, by_users(users, window)) <= 1 + 2e-3
    assert mechanism.guarantee.users == users
    assert derived(mechanism, "distinct").guarantee == mechanism.guarantee


def test_a_moved_replacement_is_two_events() -> None:
    """Of what goes and what comes each may move a first tick: four units, and no more."""
    after: Any = ArrivalCounter(EPSILON, ADD, TICKS, Arrivals()).rows.relation(MOVES)
    one, nobody = np.array([1]), np.array([0])
    for left, right in ((one, nobody), (nobody, one)) * 2:
        after = after.accept(left, right)
        assert after is not None
    assert after.accept(one, nobody) is None


def test_a_user_for_ever_costs_one_unit_whatever_the_cap() -> None:
    """The same noise as a count of events, of which each would have had a twentieth."""
    mechanism = ArrivalCounter(EPSILON, ADD, TICKS, Arrivals(None, Users(20)))
    assert mechanism.inner == Counter(1, EPSILON, ADD, TICKS)
    assert worst(mechanism, by_users(Users(20), None)) == pytest.approx(1, abs=2e-3)


class OneUnit(ArrivalCounter):
    """Forgets that an identifier's next event counted before."""

    @property
    def rows(self) -> ArrivalLaw:
        """Too little."""
        return replace(super().rows, changes=1)


def test_twins_lose_more() -> None:
    for users, window in ((None, None), (Users(2, 2), None), (Users(2), 2), (Users(2, 2), 1)):
        twin = OneUnit(EPSILON, ADD, TICKS, Arrivals(window, users))
        pairs = by_events(ADD, window) if users is None else by_users(users, window)
        assert worst(twin, pairs) > 1.9


def test_a_memory_reset_by_events_loses_more() -> None:
    """Rows of a memory that is dropped after two events, which is private."""

    def private(ticks: Ticks) -> Rows:
        rows, seen, number = [], set[str](), 0
        for names in ticks:
            new = 0
            for name in names:
                seen = set() if number % 2 == 0 else seen
                new += name not in seen
                seen.add(name)
                number += 1
            rows.append(new)
        return tuple(rows)

    pairs = {
        (private(ticks), private(with_event(ticks, tick, name)))
        for ticks in streams()
        for tick, name in itertools.product(range(TICKS), NAMES)
    }
    assert worst(ArrivalCounter(EPSILON, ADD, TICKS, Arrivals()), pairs) > 1.4


def test_a_window_begins_with_a_count_and_noise_of_its_own() -> None:
    mechanism = ArrivalCounter(EPSILON, ADD, None, Arrivals(3))
    rows = [2, 0, 5, 1, 1, 1, 4]
    assert answers(mechanism, ZeroNoise(), rows).tolist() == [2, 2, 7, 1, 2, 3, 4]
    inner = Counter(1, EPSILON / 2, ADD, 3)
    assert mechanism.inner == inner
    noise = SeededNoise(3)
    alone = [answers(inner, noise, [0] * 3), answers(inner, noise, [0] * 3)]
    found = answers(mechanism, SeededNoise(3), [0] * 6)
    assert found.tolist() == np.concatenate(alone).tolist()
    assert [mechanism.band(mechanism.public(n, None), 0.95) for n in range(1, 7)] == [
        inner.band(n, 0.95) for n in (1, 2, 3, 1, 2, 3)
    ]


def test_it_is_derived_for_whom_it_says() -> None:
    plain = ArrivalCounter(EPSILON, REPLACE, None, Arrivals(24))
    found = derived(plain, "distinct")
    assert (found.guarantee.measure, found.guarantee.neighbors) == (PureDP(EPSILON), REPLACE)
    assert found.conditions[0].why == (
        "first ticks of identifiers in windows of 24 ticks: rows of neighbours differ by 2 in all"
    )
    (windows,) = found.premises
    assert "a unit lies in one window" in windows.conditions[-1].why or any(
        "a unit lies in one window" in c.why for c in windows.conditions
    )
    assert isinstance(ArrivalCounter(EPSILON, ADD, None, Arrivals()).inner, HybridCounter)
    with pytest.raises(NotDerivable):
        derived(ArrivalCounter(EPSILON, MOVES, None, Arrivals()), "distinct")
    with pytest.raises(NotDerivable):  # a user replaced is one removed and one added
        derived(ArrivalCounter(EPSILON, REPLACE, None, Arrivals(None, Users(2))), "distinct")
    with pytest.raises(NotDerivable):
        derived(OneUnit(EPSILON, ADD, None, Arrivals()), "distinct")


def test_a_part_that_is_for_users_or_groups_already_is_no_step_of_one_unit() -> None:
    arrivals = Arrivals(None, Users(2))
    theirs = derived(ArrivalCounter(EPSILON, ADD, TICKS, arrivals), "distinct")
    counted = derived(Counter(1, EPSILON, ADD, TICKS), "count")
    pairs = derive((counted,), Group("pairs", 2))
    assert derive((counted,), FirstArrivals("units", arrivals)).guarantee.users == Users(2)
    for part in (theirs, pairs):
        with pytest.raises(NotDerivable, match="one unit more or less at one tick is a neighbour"):
            derive((part,), FirstArrivals("units", arrivals))


@pytest.mark.parametrize(("window", "horizon"), [(3, 20), (20, 3), (3, None), (None, 3)])
def test_its_counter_is_for_no_more_ticks_than_a_window_or_the_horizon_has(
    window: int | None, horizon: int | None
) -> None:
    """More of them would have levels of which each had less of the epsilon."""
    mechanism = ArrivalCounter(EPSILON, ADD, horizon, Arrivals(window))
    assert mechanism.inner == Counter(1, EPSILON / 2, ADD, 3)
