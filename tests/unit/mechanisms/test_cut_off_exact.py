"""Users active and users cut off: every small stream of one user and its neighbours, against the real noise; twins.

Independent of the code: rows are made of records by definition (`oracles.cut_users`), and what tells them apart is
found from the real map from noises to answers (`oracles.tree_privacy`).
"""

import itertools
from collections.abc import Sequence
from fractions import Fraction
from functools import cache, cached_property
from typing import Any

import numpy as np
import pytest
from oracles.cut_users import cut_users
from oracles.tree_privacy import least_shift
from oracles.user_caps import Event, Mark

from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.core.row_relations import Arrivals
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.linear.arrival_counter import ArrivalCounter, CutOffCounter
from stream_dp.mechanisms.serving import derived
from stream_dp.testing.noise import ScriptedNoise, SeededNoise, ZeroNoise

ADD = Neighbors.ADD_REMOVE
TICKS, EPSILON, BIG = 4, Fraction(4, 5), 1 << 20
Rows = tuple[tuple[int, int], ...]
EACH = [Users(2, 2), Users(20, 2), Users(1, 1), Users(1, 4), Users(2), Users(20)]


def answers(mechanism: Any, noise: Any, rows: Sequence[Sequence[int]]) -> IntArray:
    """The answers after each row, one behind the other."""
    state, found = mechanism.init(noise), []
    for row in rows:
        state, _ = mechanism.step(state, Update(np.array(row)), noise)
        _, answer = mechanism.step(state, Query(), noise)
        found.append(answer)
    return np.concatenate(found)


@cache
def law(mechanism: Any) -> tuple[Any, Any]:
    """The real map from noises to answers, and one over each noise's scale."""
    called, empty = ScriptedNoise([0] * 20_000), [(0, 0)] * TICKS
    answers(mechanism, called, empty)
    scales = [call.scale for call in called.calls for _ in range(call.size)]
    scripts = [[BIG * (at == one) for one in range(len(scales))] for at in range(len(scales))]
    matrix = np.array([answers(mechanism, ScriptedNoise(each), empty) / BIG for each in scripts]).T
    used = np.abs(matrix).max(axis=0) > 1e-4
    return matrix[:, used], np.array([float(1 / scale) for scale in scales])[used]


@cache
def neighbours(users: Users) -> set[tuple[Rows, Rows]]:
    """The rows of every stream of one user, and without all records of one of the cap's windows."""
    found, size = set(), users.window or TICKS
    most = {0, 1, users.cap, users.cap + 1, users.cap + 40}
    for numbers in itertools.product(sorted(most), repeat=TICKS):
        rows = rows_of(numbers, users)
        for gone in range(0, TICKS, size):
            left = [0 if gone <= tick < gone + size else n for tick, n in enumerate(numbers)]
            found.add((rows, rows_of(left, users)))
    return found


def rows_of(numbers: Sequence[int], users: Users) -> Rows:
    """The rows of one user with so many records in each tick."""
    log: list[Event | Mark] = []
    for tick, number in enumerate(numbers):
        log += [*[Event("u", tick, "a")] * number, Mark(tick)]
    return tuple(cut_users({0: log}, users.cap, users.window, TICKS))


def worst(mechanism: Any, pairs: set[tuple[Rows, Rows]]) -> float:
    """The largest loss of a pair of streams, in parts of the claim."""
    matrix, weights = law(mechanism)
    shifts = {
        tuple(answers(mechanism, ZeroNoise(), left) - answers(mechanism, ZeroNoise(), right))
        for left, right in pairs
    }
    found = [least_shift(matrix, np.array(s), weights, integer=False) for s in shifts if any(s)]
    return max(float(weights @ np.abs(each)) for each in found) / float(EPSILON)


@pytest.mark.parametrize("users", EACH, ids=str)
def test_every_user_loses_the_claim_at_most_whatever_the_number_of_records(users: Users) -> None:
    """And no less: a user who is active and cut off changes both."""
    mechanism = CutOffCounter(EPSILON, ADD, TICKS, users)
    pairs = neighbours(users)
    assert worst(mechanism, pairs) == pytest.approx(1, abs=2e-3)
    rows = mechanism.rows.relation(ADD)
    for left, right in pairs:
        after: Any = rows
        for one, other in zip(left, right, strict=True):
            after = after.accept(np.array(one), np.array(other))
            assert after is not None


def test_no_cap_plays_a_part_in_the_noise() -> None:
    small, large = (CutOffCounter(EPSILON, ADD, TICKS, Users(cap, 2)) for cap in (1, 10_000))
    noise = [answers(each, SeededNoise(4), [(0, 0)] * TICKS) for each in (small, large)]
    assert (noise[0] == noise[1]).all()


class WholeEpsilonEach(CutOffCounter):
    """Forgets that one user is in both entries."""

    @cached_property
    def inner(self) -> ArrivalCounter:
        """Half the noise that is due."""
        theirs = Arrivals(self.users.window, self.users)
        return ArrivalCounter(self.epsilon, self.neighbors, self.horizon, theirs)


@pytest.mark.parametrize("users", [Users(2, 2), Users(2)], ids=str)
def test_noise_for_one_entry_loses_twice_the_claim(users: Users) -> None:
    twin = WholeEpsilonEach(EPSILON, ADD, TICKS, users)
    assert worst(twin, neighbours(users)) > 1.9
    with pytest.raises(NotDerivable):
        derived(twin, "capped")


@pytest.mark.parametrize("users", [Users(2, 2), Users(2)], ids=str)
def test_rows_that_count_records_lose_more(users: Users) -> None:
    """The second entry counts each record beyond the cap: one user changes it by any number."""

    def records(numbers: Sequence[int]) -> Rows:
        used, found = 0, []
        for tick, number in enumerate(numbers):
            used = 0 if users.window and tick % users.window == 0 else used
            beyond = max(0, used + number - users.cap) - max(0, used - users.cap)
            found.append((int(number > 0 and used == 0), beyond))
            used += number
        return tuple(found)

    pairs = {(records((many, 0, 0, 0)), records((0, 0, 0, 0))) for many in (1, 3, 9)}
    assert worst(CutOffCounter(EPSILON, ADD, TICKS, users), pairs) > 2.9


def test_a_window_that_begins_when_somebody_is_cut_off_loses_more() -> None:
    """A twin: all are forgotten once somebody was cut off, which is private; another's unit then comes once more."""

    def private(numbers: Sequence[int]) -> Rows:
        rows: list[tuple[int, int]] = []
        used = dict.fromkeys("uv", 0)
        seen: set[str] = set()
        for number in numbers:
            there = [*"u" * number, "v"]
            rows.append((len(set(there) - seen), 0))
            seen |= set(there)
            for name in there:
                used[name] += 1
            if used["u"] > 2:
                seen, used = set(), dict.fromkeys("uv", 0)
        return tuple(rows)

    pairs = {
        (private(numbers), private((0,) * TICKS))
        for numbers in itertools.product((0, 3), repeat=TICKS)
    }
    assert worst(CutOffCounter(EPSILON, ADD, TICKS, Users(2)), pairs) > 1.4


def test_the_window_before_is_told_until_the_next_one_is_over() -> None:
    mechanism = CutOffCounter(EPSILON, ADD, None, Users(20, 2))
    rows = [(3, 1), (2, 0), (5, 2), (1, 1), (0, 0)]
    told = answers(mechanism, ZeroNoise(), rows).reshape(-1, 4).tolist()
    assert told == [[3, 1, 0, 0], [5, 1, 0, 0], [5, 2, 5, 1], [6, 3, 5, 1], [0, 0, 6, 3]]
    noisy = answers(mechanism, SeededNoise(2), rows).reshape(-1, 4)
    assert (noisy[2, 2:] == noisy[1, :2]).all()
    assert (noisy[4, 2:] == noisy[3, :2]).all()
    inner = mechanism.inner
    for place, updates, band in ((0, 1, 1), (0, 2, 2), (0, 3, 1), (1, 3, 2), (1, 4, 2)):
        public = mechanism.view_public(place, updates, None)
        assert mechanism.view_band(place, public, 0.95) == inner.band(band, 0.95)
