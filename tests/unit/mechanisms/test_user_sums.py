"""Sums with a total for each user: the rows of every small stream of a user against the real noise; twins lose more.

Independent of the code: rows are made of raw amounts by definition (`oracles.user_totals`), and what tells streams with
and without the user apart is found from the real map from noises to answers (`oracles.tree_privacy`).
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from oracles.user_caps import Event
from oracles.user_totals import net_totals, totals
from unit.mechanisms.shifted_noise import answers
from unit.mechanisms.test_arrivals_exact import Pairs, Rows, check_relation, worst

from stream_dp.accounting.derive import derive
from stream_dp.accounting.situations import Group, UserTotals
from stream_dp.core.guarantee import PureDP
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.core.row_law import AmountLaw, HalvedLaw, RowLaw
from stream_dp.core.row_relations import HalvedRows
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.linear.counter import SumCounter
from stream_dp.mechanisms.linear.ended_windows import EndedSums
from stream_dp.mechanisms.linear.noisy_forest import best_forest
from stream_dp.mechanisms.linear.pairs import SumsAndEver, UserSums
from stream_dp.mechanisms.linear.window_forest import SumForest
from stream_dp.mechanisms.serving import changes_of, derived
from stream_dp.testing.noise import SeededNoise, ZeroNoise

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
TICKS, EPSILON, TOTAL = 4, Fraction(4, 5), 3
UNIT = EPSILON / TOTAL
USERS = Users(4, TICKS)
WIDTH = 2
COUNTER = SumCounter(WIDTH, UNIT, ADD, TICKS, 0, 1)
ENDLESS = SumCounter(WIDTH, UNIT, ADD, None, 0, 1)
ENDED = EndedSums(WIDTH, UNIT, ADD, (2, 4), 0, 1)
DAY = EndedSums(WIDTH, UNIT, ADD, (4,), 0, 1)
FOREST = SumForest(WIDTH, UNIT, ADD, (1, 3), best_forest((1, 3)), 0, 1)
BOTH = SumsAndEver(
    SumForest(WIDTH, UNIT / 2, ADD, (1, 2), best_forest((1, 2)), 0, 1),
    SumCounter(WIDTH, UNIT / 2, ADD, TICKS, 0, 1),
)
INNER: list[Any] = [COUNTER, ENDLESS, ENDED, DAY, FOREST, BOTH]
NAMES = ["so far", "endless", "two lengths", "windows that end", "forest", "windows and so far"]


def streams(make: Callable[[list[int]], Rows]) -> Pairs:
    """The rows of every stream of one user with amounts up to 4 in each tick, and without that user."""
    return {
        (make(list(amounts)), ((0,) * WIDTH,) * TICKS)
        for amounts in itertools.product((0, 1, 2, 4), repeat=TICKS)
    }


def capped(amounts: list[int]) -> Rows:
    """Units of the first key in even ticks, of the second one in odd ticks."""
    events = [Event("u", tick, "ab"[tick % 2]) for tick in range(TICKS) if amounts[tick]]
    rows = totals(events, lambda event: amounts[event.tick], TOTAL, TICKS, TICKS, "ab")
    return tuple(rows)


def forgetful(amounts: list[int]) -> Rows:
    """A twin: what a user has added is forgotten with each tick."""
    return tuple((min(TOTAL, units), 0) for units in amounts)


PAIRS = streams(capped)


@pytest.mark.parametrize("inner", INNER, ids=NAMES)
def test_a_user_loses_the_claim_and_no_more(inner: Any) -> None:
    mechanism = UserSums(inner, TOTAL, USERS)
    lost = worst(mechanism, PAIRS)
    assert lost <= 1 + 2e-3
    assert lost >= (0.89 if inner is ENDLESS else 0.998)  # its levels pay at later ticks
    check_relation(mechanism, ADD, PAIRS)
    derivation = derived(mechanism, "sum")
    assert derivation.guarantee == mechanism.guarantee
    assert mechanism.guarantee.measure == PureDP(EPSILON)
    assert mechanism.guarantee.users == USERS
    assert changes_of(mechanism, USERS.cap) == TOTAL


class OneUnitLess(UserSums):
    """Its noise is for a total of one unit less."""

    @property
    def epsilon(self) -> Fraction:
        return super().epsilon * (self.total - 1) / self.total


@pytest.mark.parametrize("inner", [COUNTER, DAY, FOREST])
def test_twins_lose_more(inner: Any) -> None:
    less = replace(inner, epsilon=inner.epsilon * TOTAL / (TOTAL - 1))
    assert worst(UserSums(less, TOTAL, USERS), PAIRS) > 1.4
    assert worst(UserSums(inner, TOTAL, USERS), streams(forgetful)) > 1.9
    with pytest.raises(NotDerivable):
        derived(OneUnitLess(inner, TOTAL, USERS), "sum")


HALF, TWO = TICKS // 2, Users(2, TICKS // 2)
SIGNED = EndedSums(WIDTH, UNIT, ADD, (HALF,), -1, 1)


def netted(amounts: Sequence[int], window: int = HALF) -> Rows:
    """Amounts of both signs, of the first key in even ticks, as their windows come to within the total."""
    events = [Event("u", tick, "ab"[tick % 2]) for tick in range(TICKS) if amounts[tick]]
    return tuple(net_totals(events, lambda event: amounts[event.tick], TOTAL, window, TICKS, "ab"))


def on_its_path(amounts: Sequence[int], window: int = HALF) -> Rows:
    """A twin: after each record what a user added is clamped, and told as it comes."""
    rows, added = [], 0
    for tick, amount in enumerate(amounts):
        added = 0 if tick % window == 0 else added
        after = max(-TOTAL, min(TOTAL, added + amount))
        rows.append((after - added, 0))
        added = after
    return tuple(rows)


def less_one_window(make: Callable[..., Rows], size: int = HALF, **how: int) -> Pairs:
    """The rows of every stream of a user, and without what is in one window of the cap."""
    pairs = set()
    for amounts in itertools.product((-5, -2, 0, 1, 3), repeat=TICKS):
        for gone in range(0, TICKS, size):
            left = [0 if gone <= tick < gone + size else a for tick, a in enumerate(amounts)]
            pairs.add((make(amounts, **how), make(left, **how)))
    return pairs


def test_a_user_loses_the_claim_by_a_total_of_both_signs() -> None:
    mechanism = UserSums(SIGNED, TOTAL, TWO)
    pairs = less_one_window(netted)
    assert worst(mechanism, pairs) == pytest.approx(1, abs=2e-3)
    check_relation(mechanism, ADD, pairs)
    assert derived(mechanism, "sum").guarantee == mechanism.guarantee
    assert mechanism.guarantee.measure == PureDP(EPSILON)
    less = replace(SIGNED, epsilon=SIGNED.epsilon * TOTAL / (TOTAL - 1))
    assert worst(UserSums(less, TOTAL, TWO), pairs) > 1.4


class Anyhow(UserSums):
    """Units of both signs wherever."""

    def __post_init__(self) -> None: ...


def test_totals_of_both_signs_elsewhere_lose_more() -> None:
    """Told as they come, on the path; in windows unlike those of the cap, where what is left may be the other end."""
    running = Anyhow(SumCounter(WIDTH, UNIT, ADD, TICKS, -1, 1), TOTAL, Users(4, TICKS))
    path = less_one_window(on_its_path, TICKS, window=TICKS)
    assert worst(running, path) > 1.9
    with pytest.raises(AssertionError):
        check_relation(running, ADD, path)
    longer = Anyhow(EndedSums(WIDTH, UNIT, ADD, (TICKS,), -1, 1), TOTAL, TWO)
    assert worst(longer, less_one_window(netted, window=TICKS)) == pytest.approx(2, abs=4e-3)
    shorter = Anyhow(EndedSums(WIDTH, UNIT, ADD, (1,), -1, 1), TOTAL, TWO)
    assert worst(shorter, less_one_window(netted, window=1)) == pytest.approx(2, abs=4e-3)
    for wrong in (running, longer, shorter):
        with pytest.raises(NotDerivable, match="over a whole window of the users' cap"):
            UserSums(wrong.inner, TOTAL, wrong.users)
    assert on_its_path((3, 3, -3, 0), TICKS) != netted((3, 3, -3, 0), TICKS)


@pytest.mark.parametrize("inner", INNER, ids=NAMES)
def test_noise_and_answers_are_those_of_the_units(inner: Any) -> None:
    mechanism = UserSums(inner, TOTAL, USERS)
    rows = [[3, 0], [1, 5], [0, 0], [7, 2]]
    for noise in (ZeroNoise, lambda: SeededNoise(5)):
        assert (answers(mechanism, noise(), rows) == answers(inner, noise(), rows)).all()
    for updates in range(1, TICKS + 1):
        public = mechanism.public(updates, None)
        assert public == inner.public(updates, None)
        assert mechanism.band(public, 0.9) == inner.band(public, 0.9)
        assert mechanism.noise(public).spread == inner.noise(public).spread


def test_its_rows_are_of_units() -> None:
    law = UserSums(COUNTER, TOTAL, USERS).rows
    assert (law.l1, law.ones, law.weight, law.changes) == (1, 1, 1, TOTAL)
    assert not isinstance(law, AmountLaw)
    after: Any = law.of_users(ADD, USERS, 0)
    for left, right in (([2, 0], [0, 0]), ([0, 0], [0, 1])):
        after = after.accept(np.array(left), np.array(right))
        assert after is not None
    assert after.accept(np.array([1, 0]), np.array([0, 0])) is None
    assert law.relation(ADD, 2).accept(np.array([TOTAL, TOTAL]), np.array([0, 0])) is not None


def test_halves_of_a_users_rows_lie_in_one_window_as_each_alone() -> None:
    sums, counts = AmountLaw(1, ADD, 1, 0, 2), RowLaw(1, ADD)
    users = Users(3, TICKS)
    after = HalvedLaw.of(sums, counts).of_users(ADD, users, 1)
    assert after == HalvedRows(sums.of_users(ADD, users, 1), counts.of_users(ADD, users, 1))
    assert after != HalvedLaw.of(sums, counts).relation(ADD, users.cap)


@pytest.mark.parametrize("inner", [
    SumCounter(1, UNIT, ADD, TICKS, 0, 2), SumCounter(1, UNIT, ADD, TICKS, -2, 1),
    SumCounter(1, UNIT, ADD, TICKS, 1, 1), SumCounter(2, UNIT, ADD, TICKS, 0, 1, 2),
])  # fmt: skip
def test_events_of_more_than_a_unit_are_refused(inner: Any) -> None:
    """A chain of units has as many steps as units, each of them one event."""
    with pytest.raises(NotDerivable, match="units"):
        UserSums(inner, TOTAL, USERS)


def test_other_parts_are_no_steps_of_one_unit() -> None:
    with pytest.raises(NotDerivable):
        UserSums(COUNTER, 0, USERS)
    replaced = SumCounter(1, UNIT, REPLACE, TICKS, 0, 1)
    counted, theirs = derived(COUNTER, "sum"), derived(UserSums(COUNTER, TOTAL, USERS), "sum")
    parts = [derived(replaced, "sum"), theirs, derive((counted,), Group("pairs", 2))]
    for part in parts:
        with pytest.raises(NotDerivable, match="each event more is one step under add_remove"):
            derive((part,), UserTotals("totals", USERS, TOTAL))
    total = derive((counted,), UserTotals("totals", USERS, TOTAL))
    assert (total.guarantee.measure, total.guarantee.users) == (PureDP(EPSILON), USERS)
    assert total.conditions[0].why == (
        "users of at most 4 events in a window of 4 ticks: a memory lets all of them add at most 3 units"
    )
