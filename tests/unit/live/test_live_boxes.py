"""Series that begin and end while the engine runs, each in its box: what is charged, freed, and derived again."""

import json
from collections.abc import AsyncIterator
from fractions import Fraction
from typing import Any

import pytest
from live_acts import create_series, halt_series
from unit.live.live_series_steps import question, running
from unit.live.live_series_worlds import PIPELINE, SEALER, Stopping, World

from stream_dp.accounting.amounts import exact
from stream_dp.core.guarantee import PureDP
from stream_dp.engine.admission import Admission
from stream_dp.engine.engine import Engine
from stream_dp.engine.history import JournalSummary, read_summary
from stream_dp.engine.series import Registry
from stream_dp.errors import BudgetRefused
from stream_dp.files.memory import MemorySource
from stream_dp.journal.commit import Commit
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.operate.audit.ledger_check import derived_again
from stream_dp.operate.audit.ledger_view import ledger_json
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.spec import PipelineSpec


def of(country: str) -> dict[str, Any]:
    return {"where": [{"field": "country", "equals": country}]}


FILE = [
    {"name": name, "statistic": "count", "epsilon": "0.6", **of(name.upper())}
    for name in ("de", "fr")
]
BOXED = PIPELINE | {"privacy": {"epsilon": "1"}, "series": FILE}
USERS = {"unit": "user", "user": "who", "max_events": "2", "per": "1h"}
MOVING = {"neighbors": "replace"}
LARGE = {"where": [{"field": "amount", "at_least": "5"}]}


async def summary_of(world: World) -> JournalSummary:
    async def blobs() -> AsyncIterator[bytes]:
        for blob in world.store.commits:
            yield blob

    return await read_summary(blobs(), SEALER, "shop")


async def refused(engine: Engine, name: str, epsilon: str, **more: Any) -> None:
    with pytest.raises(BudgetRefused):
        await create_series(engine, question(name, epsilon, **more))


async def test_boxes_share_a_budget_and_a_restart_books_the_same() -> None:
    """The file's two countries cost 0.6 together; then each country has 0.4, and what meets both has less."""
    world, engines = World(BOXED), list[Engine]()

    async def ask(engine: Engine, source: Stopping) -> None:
        engines.append(engine)
        await create_series(engine, question("more-de", "0.4", **of("DE")))
        await refused(engine, "again-de", "0.1", **of("DE"))
        await create_series(engine, question("more-fr", "0.3", **of("FR")))
        await refused(engine, "large", "0.1", **LARGE)
        await refused(engine, "every", "0.1", where=[])
        await create_series(
            engine, question("large-fr", "0.1", where=[*of("FR")["where"], *LARGE["where"]])
        )
        source.go(5)
        await world.until(5)
        await halt_series(engine, "more-de")
        await refused(engine, "every", "0.1", where=[])
        await halt_series(engine, "large-fr")
        await create_series(engine, question("every", "0.1", where=[]))
        await refused(engine, "again-fr", "0.1", **of("FR"))
        await create_series(engine, question("again-de", "0.3", **of("DE")))

    await running(world, 2, ask)
    again = world.engine(MemorySource([], partitions=(0, 1)))
    await again.run()
    summary = await summary_of(world)
    admission, total, _ = derived_again(world.built, summary)
    mains = [it.subledgers.main for it in (engines[0].admission, again.admission, admission)]
    assert mains[0] == mains[1] == mains[2]
    assert exact(mains[0].spent) == exact(mains[0].peak.amount) == 1
    shown = ledger_json(world.built, summary)
    assert total.guarantee.measure == PureDP(Fraction(1))
    assert Fraction(shown["loss"]["bound"]) <= 1


def recreated(times: int, privacy: dict[str, str]) -> None:
    """Fill two boxes, halt both, and so on; the ledger derived from the journal is the running one."""
    clock = PIPELINE["clock"] | {"horizon": str(times)}
    schema = PIPELINE["schema"] | {"who": {"type": "text"}}
    changed = {"privacy": {"epsilon": "1", **privacy}, "clock": clock, "schema": schema}
    built = build(PipelineSpec.model_validate(BOXED | changed))
    config = built.run_config(0)
    planner = LiveSeriesPlanner(built.spec, OpenRouter(built.spec, config.origin, built.layout))
    admission = Admission(Registry(config.series, config.made), built.subledgers(), planner)
    summary = JournalSummary()
    summary.add(Commit(0, b"", charges=config.charges))
    alive: list[str] = []
    for turn in range(times):
        changes: list[Any] = [admission.halt(name, turn) for name in alive]
        charges, alive = [], []
        for country in ("DE", "FR"):
            name = f"{country.lower()}{turn}"
            text = json.dumps(
                {"name": name, "statistic": "count", "epsilon": "0.4", **of(country)}
            ).encode()
            proposal = admission.propose(text, turn)
            created, charge, _ = admission.create(proposal, "", turn)
            changes.append(created)
            charges.append(charge)
            alive.append(name)
        summary.add(Commit(turn + 1, b"", charges=tuple(charges), changes=tuple(changes)))
    main = admission.subledgers.main
    again, total, parts = derived_again(built, summary)
    assert again.subledgers.main == main
    assert main.left == 0
    assert total.guarantee.measure == PureDP(exact(main.peak.amount)) == PureDP(Fraction(1))
    assert len(parts) == 2 * times + 2


@pytest.mark.parametrize("privacy", [{}, USERS, MOVING], ids=["events", "users", "any tick"])
def test_boxes_are_filled_and_emptied_within_one_budget(privacy: dict[str, str]) -> None:
    recreated(20, privacy)


def test_a_thousand_series_within_one_budget() -> None:
    recreated(500, {})
