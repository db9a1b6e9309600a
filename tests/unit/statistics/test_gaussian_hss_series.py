"""`counter: gaussian`: an HSS, or the paper's own, with a Gaussian counter: what it costs, and what refuses it."""

import math
from fractions import Fraction
from typing import Any

import pytest
from live_acts import create_series, preview_series
from unit.live.live_series_steps import question, running
from unit.live.live_series_worlds import PIPELINE, World

from stream_dp.accounting.amounts import UNITS, budget_units, exact
from stream_dp.accounting.conversions import zcdp_budget
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import ZCDP, ApproxDP, PureDP
from stream_dp.engine.engine import Engine
from stream_dp.errors import BudgetRefused, UsageError
from stream_dp.mechanisms.hss.gaussian_hss import GaussianHSS, GaussianPaperHSS
from stream_dp.mechanisms.hss.hss import HSS
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.report import plan_json
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.statistics.parts.choose_hss import pure_part

Data = dict[str, Any]
RHO = exact(budget_units(zcdp_budget(ApproxDP(Fraction(1), Fraction(1, 10**6)))))
ZCDP_FILTER = {"epsilon": "1", "delta": "1e-6", "filter": "zcdp"}
BY = {"by": "destination", "counter": "gaussian"}
SERIES: dict[str, Data] = {
    "histogram": {"statistic": "histogram", "method": "hss", **BY},
    "maximum": {"statistic": "maximum", **BY},
    "largest": {"statistic": "largest", "rank": 2, **BY},
    "columns above": {"statistic": "columns_above", "level": 500, **BY},
}
NAMED = "the name is told too, at no further cost, and the error is that of its own count as well"
GUESSED = "error predicted for 100 events (by default, one a tick: declare expected_events"
PAPER = {"statistic": "maximum", "method": "paper_hss", **BY}
WITHIN = {"neighbors": "replace", "moves": "within_tick"}


def made(data: Data, privacy: Data, *series: Data, epsilon: str = "1") -> Built:
    """A pipeline of these series, at one epsilon each."""
    named = [{"name": f"s{n}", "epsilon": epsilon, **one} for n, one in enumerate(series)]
    whole = {"unit": "event", "neighbors": "add_remove", **privacy}
    return build(PipelineSpec.model_validate(data | {"privacy": whole, "series": named}))


def leaves(node: Derivation) -> list[Derivation]:
    """What a derivation starts from."""
    return [leaf for p in node.premises for leaf in leaves(p)] or [node]


@pytest.mark.parametrize("name", SERIES)
def test_one_series_has_all_of_a_zcdp_filter(data: Data, name: str) -> None:
    """Sparse vectors are pure, the counter zCDP; the sum is the rho of (1, 1e-6), to a unit of the ledger."""
    built = made(data, ZCDP_FILTER, SERIES[name])
    (chosen,) = built.chosen
    mechanism, found = chosen.mechanism, chosen.derivation.guarantee
    assert isinstance(mechanism, GaussianHSS)
    assert isinstance(found.measure, ZCDP)
    assert RHO - Fraction(1, UNITS) <= found.measure.rho <= RHO
    assert not found.finite
    assert built.ledger.left < 10**12  # of 10^24: a rho is charged in units of 10^-12
    assert plan_json(built)["epsilon"] == pytest.approx(1, abs=1e-6)
    vector, counter = leaves(chosen.derivation)
    assert vector.guarantee.measure == PureDP(mechanism.threshold_epsilon + mechanism.query_epsilon)
    assert counter.guarantee.measure == ZCDP(mechanism.rho)
    named = f"; {NAMED}" if name == "maximum" else ""
    shape = "; zipf / even by default: declare expected_shape" if name == "histogram" else ""
    assert chosen.choice.why == f"method: hss, counter: gaussian; {GUESSED}{shape}){named}"
    assert (
        chosen.choice.expected(99) > 0 or name == "columns above"
    )  # 100 events reach no level of 500


def test_the_papers_own_has_thirds_of_rho(data: Data) -> None:
    built = made(data, ZCDP_FILTER | WITHIN, PAPER)
    (chosen,) = built.chosen
    mechanism, measure = chosen.mechanism, chosen.derivation.guarantee.measure
    assert isinstance(mechanism, GaussianPaperHSS)
    assert isinstance(measure, ZCDP)
    assert RHO - Fraction(2, UNITS) <= measure.rho <= RHO
    third = float(mechanism.epsilon / 3)
    assert third * math.tanh(third / 2) == pytest.approx(float(RHO / 3), rel=0.01)
    assert mechanism.rho == pytest.approx(RHO / 3, rel=0.02)
    assert chosen.choice.why == f"method: paper_hss, counter: gaussian; {GUESSED}); {NAMED}"
    with pytest.raises(UsageError, match="made for ~_H"):
        made(data, ZCDP_FILTER, PAPER)


def test_squares_add_up_and_the_filter_says_no(data: Data) -> None:
    both = SERIES["histogram"], SERIES["maximum"]
    assert plan_json(made(data, ZCDP_FILTER, *both, epsilon="0.68"))["epsilon"] < 1
    with pytest.raises(BudgetRefused, match="s1 asks for rho"):
        made(data, ZCDP_FILTER, *both, epsilon="0.7")


def test_a_replacement_in_any_tick_costs_two_steps(data: Data) -> None:
    """Two steps of one event are four times the rho: the mechanism gets a quarter of it."""
    moved = made(data, ZCDP_FILTER | {"neighbors": "replace"}, SERIES["histogram"])
    (chosen,) = moved.chosen
    assert isinstance(chosen.mechanism, GaussianHSS)
    own = chosen.mechanism.guarantee.measure
    assert isinstance(own, ZCDP)
    assert own.rho == pytest.approx(RHO / 4, rel=1e-9)
    assert moved.ledger.left < 4 * 10**12


@pytest.mark.parametrize(
    "privacy",
    [
        {"filter": "renyi", "order": "24", "epsilon": "1.1"},
        {"filter": "basic", "first_block_delta": "1e-6", "epsilon": "1"},
        {"filter": "tight_approximate", "first_block_delta": "1e-7", "epsilon": "7"},
    ],
)
def test_other_filters_admit_it_as_they_do_a_gaussian_series(data: Data, privacy: Data) -> None:
    built = made(data, {"delta": "1e-6", **privacy}, SERIES["histogram"])
    assert isinstance(built.chosen[0].mechanism, GaussianHSS)
    assert built.ledger.used.amount > 0


def test_what_a_rho_buys_of_a_pure_epsilon_is_paid_for() -> None:
    for rho in (Fraction(1, 10**6), RHO, Fraction(3)):
        epsilon, paid = pure_part(rho)
        assert float(epsilon) * math.tanh(epsilon / 2) <= paid <= rho


def test_a_series_without_a_counter_is_what_it_always_was(data: Data) -> None:
    plain = [{"name": "n", "statistic": "maximum", "by": "destination", "epsilon": "0.1"}]
    named = [one | {"counter": "tree"} for one in plain]
    one, other = (PipelineSpec.model_validate(data | {"series": s}) for s in (plain, named))
    assert fingerprint(one) == fingerprint(other)
    assert type(build(one).chosen[0].mechanism) is HSS


async def test_a_live_series_under_a_pure_filter_is_refused_and_nothing_changes() -> None:
    world = World()
    asked = question(statistic="histogram", method="hss", counter="gaussian", by="destination")

    async def ask(engine: Engine, _source: object) -> None:
        before = (len(world.drawn), len(world.store.commits), engine.admission.subledgers.main)
        for call in (create_series, preview_series):
            with pytest.raises(UsageError, match="counter gaussian needs a delta"):
                await call(engine, asked)
        after = (len(world.drawn), len(world.store.commits), engine.admission.subledgers.main)
        assert before == after

    await running(world, 2, ask)


HSS_QUESTION = {"statistic": "histogram", "method": "hss", "counter": "gaussian", "by": "country"}
COUNTED = [{"name": "orders", "statistic": "count", "epsilon": "1", "method": "gaussian"}]


async def test_a_live_one_under_a_zcdp_filter_is_charged_its_rho_and_goes_on_after_a_stop() -> None:
    privacy = {"epsilon": "2", "delta": "1e-6", "filter": "zcdp"}
    world = World(PIPELINE | {"privacy": privacy, "series": COUNTED})

    async def ask(engine: Engine, _source: object) -> None:
        before = engine.admission.subledgers.main
        await create_series(engine, question(epsilon="1", **HSS_QUESTION))
        spent = engine.admission.subledgers.main.used.amount - before.used.amount
        assert spent / 10**24 == pytest.approx(float(RHO), rel=1e-9)

    await running(world, 2, ask)
    seen = world.releases("large")
    assert sorted(seen) == list(range(min(seen), 12))
    bodies = list(world.bodies)

    async def nothing(_engine: Engine, _source: object) -> None: ...

    await running(world, 2, nothing)
    assert world.bodies == bodies


@pytest.mark.parametrize(
    ("privacy", "said"),
    [
        ({"epsilon": "2", "delta": "1e-6", "filter": "gdp"}, "no finite communication"),
        (
            {"epsilon": "2", "delta": "1e-6", "filter": "basic", "first_block_delta": "1e-7"},
            "no theorem for zCDP",
        ),
    ],
)
async def test_a_live_one_under_another_filter_is_refused_and_nothing_changes(
    privacy: Data, said: str
) -> None:
    world = World(PIPELINE | {"privacy": privacy, "series": COUNTED})

    async def ask(engine: Engine, _source: object) -> None:
        before = (len(world.drawn), len(world.store.commits), engine.admission.subledgers.main)
        for call in (create_series, preview_series):
            with pytest.raises((UsageError, BudgetRefused), match=said):
                await call(engine, question(epsilon="0.1", **HSS_QUESTION))
        after = (len(world.drawn), len(world.store.commits), engine.admission.subledgers.main)
        assert before == after

    await running(world, 2, ask)
