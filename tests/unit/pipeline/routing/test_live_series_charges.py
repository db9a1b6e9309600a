"""What series cost that are created while the engine runs: charged before any noise, freed by a halt, or not at all."""

import asyncio
from typing import Any

import pytest
from live_acts import create_series, halt_series, preview_series
from msgspec.structs import replace
from unit.live.live_series_steps import large, question, running, zero
from unit.live.live_series_worlds import HORIZON, PIPELINE, Stopping, World, batches

from stream_dp.core.neighbors import Neighbors
from stream_dp.engine.admission import Admission
from stream_dp.engine.engine import Engine
from stream_dp.engine.series import Registry
from stream_dp.errors import BudgetRefused, FailClosed, UnknownMechanism, UsageError
from stream_dp.files.memory import MemoryJournal, MemorySource
from stream_dp.journal.commit import Commit, Halted
from stream_dp.live import planner as live_series
from stream_dp.pipeline.router import OpenRouter


async def test_a_halt_ends_its_releases_and_frees_what_comes_later() -> None:
    world = World(noise=zero)

    async def ask(engine: Engine, source: Stopping) -> None:
        await create_series(engine, question("first", "1"))
        with pytest.raises(BudgetRefused, match=r"asks for epsilon 0\.5; .* has 0 left"):
            await create_series(engine, question("second"))
        source.go(5)
        await world.until(5)
        halted = await halt_series(engine, "first")
        assert halted == Halted(1, 6)
        assert (await create_series(engine, question("second", "1"))).start == 6
        assert engine.admission.subledgers.main.left == 0

    await running(world, 2, ask)
    assert sorted(world.releases("first")) == [3, 4, 5]
    assert sorted(world.releases("second")) == [6, 7, 8, 9, 10, 11]
    assert world.releases("second")[11] == large(11, 6)


BAD = [
    *(question(epsilon=epsilon) for epsilon in ("0", "-1", "nan", "inf")),
    question("orders"), question(statistic="sum"), question(by="planet", statistic="histogram", method="tree"),
    b"[1]", b"\xff",
]  # fmt: skip


async def test_a_refusal_leaves_state_ledger_and_randomness_as_they_were() -> None:
    world = World()

    async def ask(engine: Engine, _source: Stopping) -> None:
        before = (len(world.drawn), len(world.store.commits), engine.admission.subledgers.main)
        for bad in BAD:
            for attempt in (create_series, preview_series):
                with pytest.raises(UsageError):
                    await attempt(engine, bad)
        with pytest.raises(BudgetRefused):
            await create_series(engine, question(epsilon="1.000000000001"))
        with pytest.raises(UsageError, match="no such analyst"):
            await create_series(engine, question(), "eve")
        for name in ("large", "orders"):
            with pytest.raises(UnknownMechanism):
                await halt_series(engine, name)
        assert before == (
            len(world.drawn),
            len(world.store.commits),
            engine.admission.subledgers.main,
        )
        _, preview = await preview_series(engine, question(epsilon="1.5"))
        assert not preview.fits
        assert preview.largest.epsilon == 10**12
        await create_series(engine, question(epsilon="1"))

    await running(world, 2, ask)
    assert len(world.releases("large")) == 9


async def test_the_charge_is_durable_before_the_mechanism_draws() -> None:
    """If the commit of the creation is not in the journal, no noise was drawn for it."""
    world, seen, streams = World(), list[int](), list[int]()

    class Watched(MemoryJournal):
        async def append(self, commit: Commit, sealed: bytes) -> None:
            if commit.changes:
                seen.append(len(streams))
                assert [c.name for c in commit.charges] == ["large"]
            await super().append(commit, sealed)

    def noise(seed: bytes, stream: int) -> Any:
        streams.append(stream)
        return zero(seed, stream)

    world.noise = noise
    source = Stopping(2)
    engine = world.engine(source, Watched(world.store))
    run = asyncio.create_task(engine.run())
    await world.until(2)
    await create_series(engine, question())
    source.go(HORIZON)
    await run
    (drawn,) = seen
    assert 1 in streams
    assert 1 not in streams[:drawn]


async def test_an_analyst_spends_from_a_ledger_of_their_own() -> None:
    privacy = {
        "epsilon": "2",
        "analysts": [{"name": "ann", "epsilon": "0.6"}, {"name": "ben", "epsilon": "0.4"}],
    }
    world = World(pipeline=PIPELINE | {"privacy": privacy})

    async def ask(engine: Engine, _source: Stopping) -> None:
        assert engine.admission.subledgers.main.left == 0
        with pytest.raises(BudgetRefused):
            await create_series(engine, question("mine", "0.1"))
        await create_series(engine, question("anns", "0.5"), "ann")
        with pytest.raises(BudgetRefused):
            await create_series(engine, question("bens", "0.5"), "ben")
        await create_series(engine, question("bens", "0.4"), "ben")
        await halt_series(engine, "anns")
        await create_series(engine, question("anns2", "0.6"), "ann")

    await running(world, 2, ask)
    charges = [(c.name, c.analyst) for commit in world.commits() for c in commit.charges]
    assert charges == [
        ("analyst ann", ""), ("analyst ben", ""), ("shop: series of the first start", ""),
        ("anns", "ann"), ("bens", "ben"), ("anns2", "ann"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("tight_approximate", "tree"),
        ("zcdp", "gaussian"),
        ("renyi", "gaussian"),
        ("gdp", "gaussian"),
        ("basic", "gaussian"),
        ("optimal", "gaussian"),
    ],
)
async def test_under_every_filter_series_come_and_go(name: str, method: str) -> None:
    privacy = {"epsilon": "2", "delta": "1e-6", "filter": name}
    own = {"delta": "1e-7"} if name in ("basic", "optimal") else {}
    series = [{"name": "orders", "statistic": "count", "epsilon": "0.05"}]
    world = World(pipeline=PIPELINE | {"privacy": privacy, "series": series})

    async def ask(engine: Engine, _source: Stopping) -> None:
        left = engine.admission.subledgers.main.left
        for number in range(20):
            asked = question(f"large{number}", "0.3", method=method, **own)
            await create_series(engine, asked)
            assert engine.admission.subledgers.main.left < left
            assert engine.admission.subledgers.main.used.delta == 10**5 * len(own)
            await halt_series(engine, f"large{number}")
            assert engine.admission.subledgers.main.left == left

    await running(world, 2, ask)
    engine = world.engine(MemorySource(batches(), partitions=(0, 1)))
    await engine.run()


async def test_nothing_is_charged_for_what_cannot_be_placed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()

    def refuse(*_: Any) -> int:
        raise UsageError("no place")

    async def ask(engine: Engine, _source: Stopping) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(live_series.PlannedSeries, "place", refuse)
            with pytest.raises(UsageError, match="no place"):
                await create_series(engine, question(epsilon="1"))
        assert engine.admission.subledgers.running == {}
        assert engine.admission.subledgers.main.left == 10**12
        await create_series(engine, question(epsilon="1"))

    await running(world, 2, ask)


MOVES = {"neighbors": "replace"}
CAPPED = {"unit": "user", "user": "who", "max_events": "3", "per": "6h"}


@pytest.mark.parametrize(
    ("promised", "planned"),
    [
        (MOVES, {"moves": "within_tick"}),
        (MOVES, {"neighbors": Neighbors.ADD_REMOVE}),
        ({"neighbors": "replace", "moves": "within_tick"}, {"moves": "any_tick"}),
        ({}, {"neighbors": Neighbors.REPLACE}),
        (CAPPED, {"max_events": 1}),
        (CAPPED, {"per": 3_600_000}),
        (CAPPED, {"unit": "event"}),
    ],
)
async def test_a_plan_for_others_than_the_ledger_promises_to_is_refused(
    promised: dict[str, str], planned: dict[str, Any]
) -> None:
    """Whatever the planner takes the neighbours for: it would book 1 for what costs those of the ledger 2 or more."""
    fields = PIPELINE["schema"] | {"who": {"type": "text", "nullable": "true"}}
    analysts = [{"name": "ann", "epsilon": "0.5"}]
    privacy = PIPELINE["privacy"] | promised | {"analysts": analysts}
    world = World(PIPELINE | {"schema": fields, "privacy": privacy})

    async def ask(engine: Engine, _source: Stopping) -> None:
        spec, ledgers = world.planner.spec, engine.admission.subledgers.ledgers
        for analyst, name in (("", "ours"), ("ann", "anns")):
            other = spec.privacy.model_copy(update=planned)
            world.planner.spec = spec.model_copy(update={"privacy": other})
            before = (len(world.drawn), len(world.store.commits), dict(ledgers))
            for attempt in (create_series, preview_series):
                with pytest.raises(BudgetRefused, match=f"{name} protects .*ledger protects"):
                    await attempt(engine, question(name), analyst)
            assert (len(world.drawn), len(world.store.commits), ledgers) == before
            world.planner.spec = spec
            assert (await create_series(engine, question(name), analyst)).start == 3

    await running(world, 2, ask)


@pytest.mark.parametrize(
    "altered",
    [{"name": "other"}, {"epsilon": 400_000_000_001}, {"delta": 1}, {"rule": "basic"}],
    ids=lambda altered: next(iter(altered)),
)
async def test_a_recorded_charge_must_be_the_derived_one_in_every_part(
    altered: dict[str, Any],
) -> None:
    """The twin compares the epsilon alone. Who pays stands in the charge only, so that is taken from there."""
    privacy = {"epsilon": "2", "analysts": [{"name": "ann", "epsilon": "0.5"}]}
    world = World(pipeline=PIPELINE | {"privacy": privacy})

    async def ask(engine: Engine, _source: Stopping) -> None:
        await create_series(engine, question("anns", "0.4"), "ann")

    await running(world, 3, ask)
    (commit,) = (commit for commit in world.commits() if commit.changes)
    (charge,) = commit.charges
    assert charge.epsilon == 400_000_000_000
    assert [live.series.name for live, _ in admitting(world).replay(commit)] == ["anns"]
    with pytest.raises(FailClosed, match="the charge for anns differs from its price"):
        admitting(world).replay(replace(commit, charges=(replace(charge, **altered),)))


def admitting(world: World) -> Admission:
    plan = world.built.run_config(0)
    planner = live_series.LiveSeriesPlanner(
        world.built.spec, OpenRouter(world.built.spec, plan.origin)
    )
    return Admission(Registry(plan.series, plan.made), world.built.subledgers(), planner)
