"""Lifecycles move by their tables only: every illegal move raises and changes nothing, and the engine keeps to it."""

import asyncio
import runpy
from enum import Enum
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from live_acts import create_series, halt_series
from unit.journal.runtime_worlds import Waiting, World

from stream_dp.engine.engine import Engine
from stream_dp.engine.phases import ENGINE, LEASE, EnginePhase, LeasePhase, Lifecycle, Table
from stream_dp.errors import IllegalMove, UnknownMechanism, UsageError, WorldError
from stream_dp.files.memory import MemoryJournal, MemorySource

DOCS = Path(__file__).resolve().parents[3] / "docs"
TABLES: list[Table[Any]] = [ENGINE, LEASE]
KINDS: list[type[Enum]] = [EnginePhase, LeasePhase]


def standing(table: Table[Any], phase: Enum) -> Lifecycle[Any]:
    """A lifecycle in `phase`, brought there by a shortest way."""
    ways: list[list[Enum]] = [[next(iter(table))]]
    for way in ways:
        if way[-1] is phase:
            found = Lifecycle(table)
            for step in way[1:]:
                found.move(step)
            return found
        ways += [[*way, then] for then in table[way[-1]] if then not in way]
    raise AssertionError("there is no way")


@pytest.mark.parametrize(("table", "kind"), list(zip(TABLES, KINDS, strict=True)), ids=lambda x: "")
def test_a_move_is_in_the_table_or_changes_nothing(table: Table[Any], kind: type[Enum]) -> None:
    assert set(table) == set(kind)
    assert any(not after for after in table.values())
    for phase, then in product(table, table):
        lifecycle = standing(table, phase)
        assert lifecycle.phase is phase
        reached = {each for each in table if lifecycle.reached(each).is_set()}
        if then in table[phase]:
            lifecycle.move(then)
            assert lifecycle.phase is then
            assert lifecycle.reached(then).is_set()
            continue
        with pytest.raises(IllegalMove, match=f"{then.name} does not follow {phase.name}"):
            lifecycle.move(then)
        assert lifecycle.phase is phase
        assert {each for each in table if lifecycle.reached(each).is_set()} == reached
        assert lifecycle.over == (not table[phase])
        assert phase.name in repr(lifecycle)


def test_the_page_is_the_tables() -> None:
    made = runpy.run_path(str(DOCS / "phases.py"))["text"]
    page = (DOCS / "phases.md").read_text()
    assert page.count("stateDiagram-v2") == len(TABLES)
    assert made(page) == page, "run: python docs/phases.py"
    assert made(page.replace("NEW --> RECOVERING", "NEW --> RUNNING")) == page


def phase_of(engine: Engine) -> EnginePhase:
    """Return its phase as of now, whatever it was a line before."""
    return engine.phase


class Seen(MemorySource):
    """Notes the phase in which it is opened, read and closed."""

    engine: Engine

    def __init__(self, world: World) -> None:
        super().__init__(world.batches)
        self.phases: list[EnginePhase] = []

    async def open(self, origin: int) -> tuple[int, ...]:
        self.phases.append(self.engine.phase)
        return await super().open(origin)

    async def read(self) -> Any:
        if len(self.phases) == 1:
            self.phases.append(self.engine.phase)
        return await super().read()

    async def close(self) -> None:
        self.phases.append(self.engine.phase)


async def test_an_engine_goes_through_its_phases_once() -> None:
    world = World()
    source = Seen(world)
    source.engine = engine = world.engine(source=source)
    assert phase_of(engine) is EnginePhase.NEW
    await engine.run()
    assert source.phases == [EnginePhase.RECOVERING, EnginePhase.RUNNING, EnginePhase.ENDED]
    before = (list(world.store.commits), list(world.bodies))
    with pytest.raises(IllegalMove):
        await engine.run()
    assert (world.store.commits, world.bodies) == before
    assert source.phases[3:] == []
    assert phase_of(engine) is EnginePhase.ENDED
    for asked in (halt_series(engine, "total"), create_series(engine, b"{}")):
        with pytest.raises(
            UsageError, match="the engine has ended, so nothing is previewed, created, halted"
        ):
            await asked


class Deaf(MemoryJournal):
    async def open(self) -> None:
        raise WorldError("no broker")


async def test_an_engine_that_fails_refuses_orders_and_is_not_ready() -> None:
    world = World()
    engine = world.engine(journal=Deaf(world.store))
    waiting = asyncio.create_task(halt_series(engine, "total"))
    await asyncio.sleep(0)
    with pytest.raises(WorldError, match="no broker"):
        await engine.run()
    assert phase_of(engine) is EnginePhase.FAILED
    assert not engine.ready.is_set()
    for asked in (waiting, halt_series(engine, "total")):
        with pytest.raises(UsageError, match="the engine has ended"):
            await asked


async def test_a_cancelled_engine_has_failed() -> None:
    world = World()
    source = Waiting(world.batches[:6])
    engine = world.engine(source=source)
    run = asyncio.create_task(engine.run())
    await source.reached.wait()
    assert phase_of(engine) is EnginePhase.RUNNING
    with pytest.raises(UnknownMechanism):
        await halt_series(engine, "nobody")
    assert phase_of(engine) is EnginePhase.RUNNING
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert phase_of(engine) is EnginePhase.FAILED
