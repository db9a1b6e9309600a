"""All events of one user, exact: what a file claims for users is met; what it claims for events is not enough.

The machines are the product's own, as `build` chooses them, with every noise value in turn (`Enumerated`); one unit of
epsilon is -ln(BASE). Files have public windows of two ticks and caps of two or three events.
"""

from fractions import Fraction
from typing import Any

import pytest
from oracles.turns import Accepted, lost

from stream_dp.core.guarantee import ZCDP, Guarantee, PureDP
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.core.row_relations import Arrivals, user
from stream_dp.mechanisms.linear.arrival_counter import ArrivalCounter
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.operate.run.live_series import series_claim
from stream_dp.pipeline.builder import Chosen, build
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.verify.lower_bound import OneEventAdversary, events_of

ADD = Neighbors.ADD_REMOVE
HALF, ONE = Fraction(1, 2), Fraction(1)
WINDOW = 2

COUNT = {"name": "all", "statistic": "count"}
KINDS = {"by": "kind", "expected_events": "9"}
ALERTS = {"name": "busy", "statistic": "alerts", "by": "kind", "threshold": "1"}
EVERY: list[dict[str, Any]] = [
    COUNT,
    {"name": "kinds", "statistic": "histogram", "method": "tree", **KINDS},
    {"name": "hss", "statistic": "histogram", "method": "hss", **KINDS},
    {"name": "most", "statistic": "maximum", **KINDS},
    ALERTS,
    {"name": "large", "statistic": "largest", "rank": "1", **KINDS},
    {"name": "above", "statistic": "columns_above", "level": "3", **KINDS},
    {"name": "told", "statistic": "monitor", "watch": [{"name": "many", "above": "9"}]},
]
CAPS = {
    2: {"unit": "user", "user": "who", "max_events": "2", "per": "2h"},
    3: {"unit": "user", "user": "who", "overall": "3"},
}


def chosen(series: dict[str, Any], k: int, *, users: bool = True, **privacy: str) -> Chosen:
    """What a file for users of k events runs; the series asks for k units, so that each event has one."""
    data: dict[str, Any] = {
        "version": "1",
        "name": "people",
        "source": {"kind": "file", "path": "people.csv"},
        "schema": {
            "time": {"type": "time"},
            "who": {"type": "text"},
            "kind": {"type": "category", "domain": ["a"]},
        },
        "privacy": {"epsilon": "20", **(CAPS[k] if users else {}), **privacy},
        "clock": {
            "kind": "replay", "field": "time", "start": "2026-01-01T00:00:00Z", "step": "1h", "horizon": "2",
        },
        "series": [{"epsilon": str(k), **series}],
    }  # fmt: skip
    return build(PipelineSpec.model_validate(data)).chosen[0]


def theirs(k: int, window: int | None = None, windows: int | None = 1) -> Accepted:
    """At most k events of one user, within a public window or anywhere."""
    pairs = tuple(((events,), (0,)) for events in range(k + 1))
    return Accepted(pairs, user(ADD, k, window, windows=windows, width=1))


@pytest.mark.parametrize("k", [2, 3])
def test_a_count_keeps_its_epsilon_and_no_less_would_do(k: int) -> None:
    """k units are claimed, one an event; exactly k can be lost."""
    choice = chosen(COUNT, k)
    assert choice.mechanism.guarantee == Guarantee(PureDP(ONE), ADD)
    users = Users(2, WINDOW) if k == 2 else Users(3)
    assert choice.derivation.guarantee == Guarantee(PureDP(Fraction(k)), ADD, users=users)
    pairs = theirs(k, users.window)
    assert lost(choice.mechanism, pairs, k, 4).upper < Fraction(1, 1_000)
    assert lost(choice.mechanism, pairs, k - 1, 4).lower > HALF


@pytest.mark.parametrize("k", [2, 3])
def test_a_count_that_forgets_the_group_rule_loses_k_times_its_epsilon(k: int) -> None:
    """What a file for events runs, where a user has k of them: the broken twin."""
    twin = Counter(1, ONE, ADD, 2)
    assert lost(twin, theirs(1), 1, 4).upper < Fraction(1, 1_000)
    assert lost(twin, theirs(k), 1, 4).lower > HALF
    assert lost(twin, theirs(k), k - 1, 4).lower > HALF


def test_gaussian_counters_get_the_square() -> None:
    """What a user may lose by itself is (units, delta); two events are four times the rho of one."""
    series = {**COUNT, "method": "gaussian"}
    choice = chosen(series, 2, delta="1e-6", filter="zcdp")
    alone = chosen(series, 2, users=False, delta="1e-6", filter="zcdp")
    assert isinstance(choice.mechanism, GaussianCounter)
    assert isinstance(alone.mechanism, GaussianCounter)
    assert choice.mechanism.rho * 4 == alone.mechanism.rho
    whole = ZCDP(alone.mechanism.rho)
    finite = choice.mechanism.guarantee.finite
    assert choice.derivation.guarantee == Guarantee(
        whole, ADD, 1, finite, Users(2, WINDOW), fresh=True
    )


def test_whoever_is_there_in_every_window_loses_as_much_in_each() -> None:
    """A cap for each window protects (user, window): over two windows the whole user loses twice the claim."""
    count = Counter(1, ONE, ADD, 2)
    assert lost(count, theirs(1, 1), 1, 4).upper < Fraction(1, 1_000)
    everywhere = theirs(1, 1, windows=None)
    assert lost(count, everywhere, 1, 4).lower > HALF
    assert lost(count, everywhere, 2, 4).upper < Fraction(1, 1_000)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("series", EVERY, ids=[str(each["name"]) for each in EVERY])
def test_every_statistic_is_charged(series: dict[str, Any], k: int) -> None:
    """Whatever the statistic: a k-th of the epsilon for one event, and k times that is claimed for a user."""
    choice = chosen(series, k)
    assert choice.mechanism.guarantee == Guarantee(PureDP(ONE), ADD)
    users = Users(2, WINDOW) if k == 2 else Users(3)
    assert choice.derivation.guarantee == Guarantee(PureDP(Fraction(k)), ADD, users=users)


# --- the audit plays them ------------------------------------------------------------------------


def test_the_audit_puts_all_events_of_a_user_into_one_tick() -> None:
    choice = chosen(COUNT, 3)
    claim = series_claim(choice)
    assert events_of(choice.mechanism, claim) == 3
    assert events_of(choice.mechanism, None) == 1
    ever = ArrivalCounter(ONE, ADD, 2, Arrivals())
    assert events_of(ever, None) == 2
    adversary = OneEventAdversary.against((choice.mechanism,), 2, [claim])
    (first,), (second,) = adversary.pairs
    assert [row.tolist() for row in first] == [[0], [3]]
    assert [row.tolist() for row in second] == [[0], [0]]
