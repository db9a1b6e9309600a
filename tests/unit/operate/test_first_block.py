"""The first block at the optimum of its composition: what plan, ledger, API, recovery and the check agree on.

Forty counts of 0.05 are (2, 0)-DP and, by [HSV] Thm 4.10, (1.2988, 10^-6)-DP. Oracle: Kairouz, Oh, Viswanath's closed
form in floats. Twins: a journal that books the block without its delta; a filter that frees a delta; a naive sum.
"""

import math
from fractions import Fraction
from typing import Any

import pytest
from live_acts import create_series, halt_series, preview_series
from unit.cli.test_ledger import summary_of
from unit.live.live_series_steps import question, running
from unit.live.live_series_worlds import PIPELINE, World

from stream_dp.accounting.rules.rule import leaf
from stream_dp.core.guarantee import ZCDP, ApproxDP, Guarantee
from stream_dp.core.neighbors import Neighbors
from stream_dp.engine.engine import Engine
from stream_dp.errors import BudgetRefused, FailClosed
from stream_dp.files.memory import MemorySource
from stream_dp.live import planner as live_series
from stream_dp.operate.audit.ledger_view import ledger_json
from stream_dp.operate.budget_view import api_budget, budget_json
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.derivations import dp_at
from stream_dp.pipeline.report import plan_json
from stream_dp.pipeline.spec import PipelineSpec

MILLIONTH = Fraction(1, 10**6)
FORTY = [{"name": f"c{n}", "statistic": "count", "epsilon": "0.05"} for n in range(40)]
PRIVACY = {"epsilon": "2", "delta": "3e-6", "filter": "basic", "first_block_delta": "1e-6"}


def pipeline(privacy: dict[str, Any], series: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return PIPELINE | {"privacy": privacy, "series": series or FORTY}


def kairouz(k: int, each: float, epsilon: float) -> float:
    """The delta of k randomized responses at epsilon (arXiv 1311.0776, Thm 3.3)."""
    terms = (
        math.comb(k, lies)
        * (math.exp((k - lies) * each) - math.exp(epsilon + lies * each))
        / (1 + math.exp(each)) ** k
        for lies in range(k + 1)
        if (k - 2 * lies) * each > epsilon
    )
    return math.fsum(terms)


def test_forty_counts_are_planned_at_their_optimum() -> None:
    built = build(PipelineSpec.model_validate(pipeline(PRIVACY)))
    measure = built.derivation.guarantee.measure
    assert isinstance(measure, ApproxDP)
    assert measure.delta == MILLIONTH
    assert float(measure.epsilon) == pytest.approx(1.299, abs=5e-4)
    assert kairouz(40, 0.05, float(measure.epsilon)) == pytest.approx(1e-6, rel=1e-6)
    assert plan_json(built)["epsilon"] == pytest.approx(1.299, abs=5e-4)
    assert [(e.epsilon, e.delta) for e in built.ledger.entries] == [
        (-(-measure.epsilon.numerator * 10**12 // measure.epsilon.denominator), 10**6)
    ]
    assert dp_at(built.promise, Fraction(0)) == ApproxDP(Fraction(2), 3 * MILLIONTH)


@pytest.mark.parametrize(
    ("privacy", "spent"),
    [
        ({"epsilon": "2"}, "2"),
        ({"epsilon": "2", "delta": "1e-6", "filter": "basic"}, "2"),
        ({"epsilon": "2", "delta": "1e-6", "filter": "zcdp"}, None),
    ],
)
def test_without_a_grant_all_is_as_it_was(privacy: dict[str, Any], spent: str | None) -> None:
    """One entry of the sum where sums are exact; else one for each series."""
    built = build(PipelineSpec.model_validate(pipeline(privacy)))
    shown = budget_json(built.spec, built.subledgers())
    assert len(built.ledger.entries) == (1 if spent else 40)
    assert shown["delta_spent"] == "0"
    if spent:
        assert shown["spent"] == spent


async def test_ledger_api_recovery_and_the_check_agree() -> None:
    world = World(pipeline=pipeline(PRIVACY))

    async def ask(engine: Engine, _source: Any) -> None:
        await create_series(engine, question("later", "0.3"))
        with pytest.raises(BudgetRefused, match="basic filter"):
            await create_series(engine, question("dear", "0.5"))
        await halt_series(engine, "later")
        await create_series(engine, question("again", "0.7"))  # the halt freed what has no delta
        shown = api_budget(world.built.spec, engine.admission.subledgers, [])
        assert shown["delta"] == {"total": "0.000003", "spent": "0.000001", "left": "0.000002"}
        assert shown["unit"] == "epsilon"

    await running(world, 2, ask)
    shown = ledger_json(world.built, await summary_of(world))
    block, *later = shown["charges"]
    assert block["delta"] == "0.000001"
    assert block["epsilon"].startswith("1.298")
    assert [charge["delta"] for charge in later] == ["0", "0"]
    assert shown["delta_spent"] == "0.000001"
    assert shown["odometer"]["delta"] == "0.000001"
    assert shown["derivation"]["guarantee"]["epsilon"] == 2
    less = build(PipelineSpec.model_validate(pipeline(PRIVACY | {"first_block_delta": "2e-6"})))
    with pytest.raises(FailClosed):
        ledger_json(less, await summary_of(world))
    await world.engine(MemorySource([], partitions=(0, 1))).run()  # recovered, checked again


GAUSSIAN = leaf("noisy", Guarantee(ZCDP(Fraction(1, 100)), Neighbors.ADD_REMOVE), "its proof")
ROUNDED = leaf(
    "rare", Guarantee(ApproxDP(Fraction(1, 100), MILLIONTH), Neighbors.ADD_REMOVE), "its proof"
)


@pytest.mark.parametrize(
    ("derivation", "said"),
    [
        (GAUSSIAN, "noisy: the pure filter has no theorem for zCDP"),
        (ROUNDED, "rare has a delta, but a pure ledger"),
    ],
)
async def test_what_the_pure_filter_cannot_take_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, derivation: Any, said: str
) -> None:
    world = World()

    async def ask(engine: Engine, _source: Any) -> None:
        before = (len(world.drawn), len(world.store.commits), engine.admission.subledgers.main)
        columns = [live.series.rows for live in engine.admission.registry.live]
        with monkeypatch.context() as patch:
            patch.setattr(live_series.PlannedSeries, "derivation", property(lambda _: derivation))
            for attempt in (create_series, preview_series):
                with pytest.raises(BudgetRefused, match=said):
                    await attempt(engine, question("large", "0.1"))
        after = (len(world.drawn), len(world.store.commits), engine.admission.subledgers.main)
        assert before == after
        assert columns == [live.series.rows for live in engine.admission.registry.live]
        assert engine.admission.subledgers.running == {}
        await create_series(engine, question("large", "0.1"))

    await running(world, 2, ask)
