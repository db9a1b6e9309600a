"""Methods are chosen from the specification alone: the smaller predicted error, and the reason in words."""

import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.core.guarantee import differential_privacy
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.counter import Counter
from stream_dp.mechanisms.hss import HSS
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.choice import Setting
from stream_dp.pipeline.choose_hss import (
    COUNTER_SHARES,
    KAPPAS,
    Demand,
    best_hss,
    predicted_hss_error,
    predicted_intervals,
)
from stream_dp.pipeline.spec import PipelineSpec

Data = dict[str, Any]
DEMAND = Demand(Setting(20, Neighbors.ADD_REMOVE, 1000, 0.95), None, Fraction(1), 5000)


def chosen(data: Data, method: str, **changes: Any) -> Any:
    """The histogram of the small pipeline with this method."""
    histogram = data["series"][1] | {"method": method, "expected_events": "2000"} | changes
    return build(PipelineSpec.model_validate(data | {"series": [histogram]})).chosen[0]


@pytest.mark.parametrize(
    ("horizon", "events"), [("100", "2000"), ("100000", "3"), ("5", "5"), ("50000", "10000000")]
)
def test_auto_takes_the_smaller_predicted_error_and_says_why(
    data: Data, horizon: str, events: str
) -> None:
    data["clock"]["horizon"] = horizon
    auto = chosen(data, "auto", expected_events=events)
    found = re.fullmatch(
        r"method: auto, predicted error at the end: tree (\d+), hss (\d+)", auto.choice.why
    )
    assert found
    tree, hss = map(int, found.groups())
    assert isinstance(auto.mechanism, Counter if tree <= hss else HSS)
    wanted = chosen(data, "tree" if tree <= hss else "hss", expected_events=events)
    assert auto.mechanism == wanted.mechanism


def test_both_methods_are_chosen_somewhere(data: Data) -> None:
    kinds = set()
    for horizon, events in (("5", "1000000"), ("1000000", "1")):
        data["clock"]["horizon"] = horizon
        kinds.add(type(chosen(data, "auto", expected_events=events).mechanism))
    assert kinds == {Counter, HSS}


def test_a_method_that_is_asked_for_is_taken(data: Data) -> None:
    tree, hss = chosen(data, "tree"), chosen(data, "hss")
    assert isinstance(tree.mechanism, Counter)
    assert isinstance(hss.mechanism, HSS)
    assert (tree.choice.why, hss.choice.why) == ("method: tree", "method: hss")


def test_the_best_hss_is_the_best_of_the_grid() -> None:
    best = best_hss(DEMAND)
    error = predicted_hss_error(best, DEMAND, 999)
    shares = {best.counter_epsilon / DEMAND.epsilon}
    assert shares <= set(COUNTER_SHARES)
    assert best.kappa in KAPPAS
    for kappa in KAPPAS:
        assert predicted_hss_error(replace(best, kappa=kappa), DEMAND, 999) >= error


@settings(max_examples=15, deadline=None)
@given(
    st.fractions(Fraction(1, 100), 10, max_denominator=1000),
    st.sampled_from((Neighbors.ADD_REMOVE, Neighbors.REPLACE)),
    st.integers(1, 30),
)
def test_the_shares_are_exactly_what_was_asked_for(
    epsilon: Fraction, neighbors: Neighbors, width: int
) -> None:
    demand = replace(DEMAND, epsilon=epsilon, setting=Setting(width, neighbors, 1000, 0.95))
    best = best_hss(demand)
    assert differential_privacy(best.guarantee.measure).epsilon == epsilon
    rest = best.threshold_epsilon + best.query_epsilon
    monotone = neighbors is Neighbors.ADD_REMOVE or width == 1
    assert best.threshold_epsilon == rest * (Fraction(1, 2) if monotone else Fraction(5, 13))


def test_predicted_intervals_by_hand() -> None:
    hss = best_hss(DEMAND)
    assert predicted_intervals(hss, replace(DEMAND, expected_events=0), 999) == 0
    gamma = hss.gamma(1000, 0)
    assert predicted_intervals(hss, replace(DEMAND, expected_events=gamma - 1), 999) == 0
    many = 1_000_000
    after = predicted_intervals(hss, replace(DEMAND, expected_events=many), 999)
    assert after == min(1000, many // hss.gamma(1000, after))
    assert predicted_intervals(hss, replace(DEMAND, expected_events=10**12), 9) == 10


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**7), st.integers(0, 999))
def test_intervals_are_at_most_one_a_tick(events: int, tick: int) -> None:
    found = predicted_intervals(best_hss(DEMAND), replace(DEMAND, expected_events=events), tick)
    assert 0 <= found <= tick + 1
