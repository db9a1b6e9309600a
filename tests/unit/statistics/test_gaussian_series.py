"""`method: gaussian`: what it chooses and costs under each filter, and what refuses it, with everything as it was."""

from fractions import Fraction
from math import isqrt
from typing import Any

import pytest
from live_acts import create_series, preview_series
from unit.live.live_series_steps import question, running
from unit.live.live_series_worlds import World

from stream_dp.accounting.amounts import budget_units, exact
from stream_dp.accounting.conversions import zcdp_budget
from stream_dp.accounting.gaussian_curve import gaussian_budget, gaussian_to_approx
from stream_dp.accounting.ledger import truncated_odometer_at as bound_at
from stream_dp.core.guarantee import ZCDP, ApproxDP, GaussianDP
from stream_dp.core.neighbors import Neighbors
from stream_dp.engine.engine import Engine
from stream_dp.errors import BudgetRefused, UsageError
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.report import plan_json
from stream_dp.pipeline.spec import PipelineSpec

Data = dict[str, Any]
DELTA = Fraction(1, 10**6)
MILLIONTH = {"epsilon": "1", "delta": "1e-6"}


def made(data: Data, privacy: Data, *epsilons: str, relation: str = "add_remove") -> Built:
    """A pipeline of a count and a histogram, by the Gaussian method."""
    series = [
        {"name": "departures", "statistic": "count", "method": "gaussian"},
        {
            "name": "by_destination",
            "statistic": "histogram",
            "by": "destination",
            "method": "gaussian",
        },
    ]
    chosen = [s | {"epsilon": e} for s, e in zip(series, epsilons, strict=False)]
    whole = {"unit": "event", "neighbors": relation} | privacy
    return build(PipelineSpec.model_validate(data | {"privacy": whole, "series": chosen}))


def test_one_series_may_have_all_of_a_zcdp_filter(data: Data) -> None:
    built = made(data, MILLIONTH | {"filter": "zcdp"}, "1")
    rho = exact(budget_units(zcdp_budget(ApproxDP(Fraction(1), DELTA))))
    mechanism = built.chosen[0].mechanism
    assert isinstance(mechanism, GaussianCounter)
    assert built.chosen[0].derivation.guarantee.measure == ZCDP(rho)
    assert built.ledger.left < 10**12  # of 10^24: a rho is charged in units of 10^-12
    assert plan_json(built)["epsilon"] == pytest.approx(1, abs=1e-6)


def test_squares_add_up(data: Data) -> None:
    """Two series of 0.68 fit where one of 1 does: squares, not sums; two of 0.7 do not."""
    built = made(data, MILLIONTH | {"filter": "zcdp"}, "0.68", "0.68")
    assert plan_json(built)["epsilon"] < 1
    with pytest.raises(BudgetRefused, match="by_destination asks for rho"):
        made(data, MILLIONTH | {"filter": "zcdp"}, "0.7", "0.7")


def test_a_gdp_filter_gets_less_noise_for_the_same_epsilon(data: Data) -> None:
    by_zcdp = made(data, MILLIONTH | {"filter": "zcdp"}, "1")
    by_gdp = made(data, MILLIONTH | {"filter": "gdp"}, "1")
    mu = gaussian_budget(ApproxDP(Fraction(1), DELTA))
    assert by_gdp.chosen[0].derivation.guarantee.measure == GaussianDP(mu)
    assert by_gdp.chosen[0].derivation.guarantee.finite
    errors = [one.chosen[0].choice.expected(99) for one in (by_zcdp, by_gdp)]
    assert errors[1] < errors[0]


def test_the_plan_under_a_gdp_filter_shows_what_is_charged(data: Data) -> None:
    """One series is what it claims, 0.95 and not 1.02 by way of zCDP; two are the root of the sum of their squares."""
    by_gdp = MILLIONTH | {"filter": "gdp"}
    shown = plan_json(made(data, by_gdp, "0.95"))
    assert shown["epsilon"] == pytest.approx(0.95, abs=1e-8)
    assert shown["derivation"]["rule"] == "concurrent composition in Gaussian DP"
    built = made(data, by_gdp, "0.6", "0.7")
    charged = gaussian_to_approx(GaussianDP(exact(isqrt(built.ledger.spent))), DELTA).epsilon
    assert plan_json(built)["epsilon"] == pytest.approx(float(charged), abs=1e-8)


@pytest.mark.parametrize(
    ("privacy", "met"),
    [
        ({"filter": "zcdp"}, True),
        ({"filter": "renyi", "order": "24"}, True),
        ({"filter": "gdp"}, False),
        ({"filter": "tight_approximate", "first_block_delta": "1e-7"}, False),
        ({"filter": "basic", "first_block_delta": "1e-6"}, True),
    ],
)
def test_the_plan_is_never_above_what_is_charged(data: Data, privacy: Data, met: bool) -> None:
    """Two Gaussian series beside a pure one: the file's own guarantee against the odometer, which knows the charges.

    A filter's own theorem may promise less than what is known of parts that are fixed beforehand: then it is below.
    """
    whole = {"unit": "event", "neighbors": "add_remove", "epsilon": "5", "delta": "1e-6"} | privacy
    gaussian = {"statistic": "count", "method": "gaussian"}
    series = [
        gaussian | {"name": "a", "epsilon": "0.5"},
        gaussian | {"name": "b", "epsilon": "0.4"},
        {"name": "c", "statistic": "count", "epsilon": "0.3"},
    ]
    built = build(PipelineSpec.model_validate(data | {"privacy": whole, "series": series}))
    charged = bound_at(built.ledger.filter, built.ledger.used, DELTA).epsilon
    shown = plan_json(built)["epsilon"]
    assert shown <= charged + Fraction(1, 10**9)
    assert (shown == pytest.approx(float(charged), abs=1e-8)) == met


def test_without_a_horizon_there_is_no_finite_communication_for_a_gdp_filter(data: Data) -> None:
    data["clock"] = {"kind": "wall", "step": "1h"}
    with pytest.raises(BudgetRefused, match="needs finite communication"):
        made(data, MILLIONTH | {"filter": "gdp"}, "1")
    assert made(data, MILLIONTH | {"filter": "zcdp"}, "1").chosen[0].mechanism


@pytest.mark.parametrize("filter_", ["zcdp", "gdp"])
def test_a_replacement_in_any_tick_costs_two_steps(data: Data, filter_: str) -> None:
    """Two steps of one event: mu doubles, rho is four times; so the mechanism gets half of mu, not half of epsilon."""
    built = made(data, MILLIONTH | {"filter": filter_}, "1", relation="replace")
    one = made(data, MILLIONTH | {"filter": filter_}, "1")
    assert built.spec.relation is Neighbors.REPLACE_ANY_TICK
    mine, theirs = built.chosen[0].mechanism, one.chosen[0].mechanism
    assert isinstance(mine, GaussianCounter)
    assert isinstance(theirs, GaussianCounter)
    assert mine.rho == theirs.rho / 4
    assert built.ledger.spent == one.ledger.spent
    assert built.ledger.left < 10**12


def test_under_a_renyi_filter_it_costs_rho_times_the_order(data: Data) -> None:
    built = made(data, MILLIONTH | {"filter": "renyi", "order": "24"}, "0.9")
    rho = exact(budget_units(zcdp_budget(ApproxDP(Fraction(9, 10), DELTA))))
    assert built.chosen[0].derivation.guarantee.measure == ZCDP(rho)
    assert exact(built.ledger.spent) == pytest.approx(24 * rho, rel=1e-9)


def test_a_basic_filter_admits_it_at_the_delta_of_the_first_block(data: Data) -> None:
    privacy = MILLIONTH | {"filter": "basic", "first_block_delta": "1e-6"}
    assert plan_json(made(data, privacy, "1"))["epsilon"] <= 1


def test_a_count_without_a_method_is_what_auto_makes_it(data: Data) -> None:
    plain = fingerprint(PipelineSpec.model_validate(data))
    data["series"][0]["method"] = "auto"
    assert fingerprint(PipelineSpec.model_validate(data)) == plain


async def test_a_live_series_under_a_pure_filter_is_refused_and_nothing_changes() -> None:
    world = World()

    async def ask(engine: Engine, _source: object) -> None:
        before = (len(world.drawn), len(world.store.commits), engine.admission.subledgers.main)
        for call in (create_series, preview_series):
            with pytest.raises(UsageError, match="filter pure grants none"):
                await call(engine, question(method="gaussian"))
        assert before == (
            len(world.drawn),
            len(world.store.commits),
            engine.admission.subledgers.main,
        )

    await running(world, 2, ask)
