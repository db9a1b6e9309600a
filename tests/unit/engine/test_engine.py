"""How an engine ends: by request, by failure of a part, by cancellation; one commit in flight is always finished."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from unit.journal.runtime_worlds import HORIZON, HeldJournal, Router, Waiting, World, batches

from stream_dp.engine.engine import Engine
from stream_dp.engine.ports import Batch
from stream_dp.engine.tick_assembler import Routed
from stream_dp.errors import FailClosed, WorldError
from stream_dp.files.memory import MemoryJournal, MemorySource
from stream_dp.journal.commit import DeadLetter


async def test_stop_before_the_start_charges_and_reads_nothing() -> None:
    world = World()
    engine = world.engine()
    engine.stop()
    await engine.run()
    assert (len(world.store.commits), world.bodies) == (1, [])


async def test_stop_while_the_source_is_silent() -> None:
    world = World()
    source = Waiting(world.batches[:6])
    engine = world.engine(source=source)
    task = asyncio.create_task(engine.run())
    await source.reached.wait()
    engine.stop()
    await task
    assert source.closed


async def test_the_commit_in_flight_is_finished_when_stopped() -> None:
    world = World()
    journal = HeldJournal(world.store, 2)
    engine = world.engine(journal=journal)
    task = asyncio.create_task(engine.run())
    await journal.reached.wait()
    engine.stop()
    await asyncio.sleep(0)
    assert not task.done()
    journal.go.set()
    await task
    assert len(world.store.commits) == 3
    assert len(world.bodies) == 6


@pytest.mark.parametrize("error", [WorldError("no broker"), FailClosed("set back")])
async def test_a_failure_of_the_source_comes_as_itself(error: Exception) -> None:
    world = World()
    source = Waiting(world.batches[:6])
    source.release.set_exception(error)
    with pytest.raises(type(error)) as caught:
        await world.run(source=source)
    assert caught.value is error
    assert source.closed
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_failure_elsewhere_does_not_cancel_the_commit() -> None:
    world = World()
    journal, source = HeldJournal(world.store, 1), Waiting(world.batches[:8])
    task = asyncio.create_task(world.run(journal=journal, source=source))
    await journal.reached.wait()
    source.release.set_exception(WorldError("no broker"))
    await source.reached.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done()
    journal.go.set()
    with pytest.raises(WorldError, match="no broker"):
        await task
    assert not journal.cancelled
    assert journal.closed
    assert len(world.store.commits) == 2


async def test_a_cancelled_engine_finishes_its_commit() -> None:
    world = World()
    journal = HeldJournal(world.store, 2)
    task = asyncio.create_task(world.run(journal=journal))
    await journal.reached.wait()
    task.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done()
    journal.go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not journal.cancelled
    assert len(world.store.commits) == 3
    await world.run()
    assert len(world.bodies) == 3 * HORIZON


async def test_a_failing_mechanism_ends_the_run() -> None:
    world = World()
    one, *others = world.plan.series

    def band(tick: int, state: Any) -> int:
        if tick == 3:
            raise FailClosed("no band")
        return 7

    world.plan = replace(world.plan, series=(replace(one, band=band), *others))
    with pytest.raises(FailClosed, match="no band"):
        await world.run()
    assert len(world.bodies) == 9


async def test_the_guard_stops_a_row_that_no_events_produce() -> None:
    class _Negative(Router):
        def route(self, batch: Batch) -> Routed:
            return Routed({batch.mark or 0: np.full(self.width, -1)}, [], {0: 1})

    world = World()
    engine = Engine(world.plan, _Negative(), world.ports(), world.noise)
    with pytest.raises(FailClosed, match="reached the guard"):
        await engine.run()
    assert world.bodies == []


async def test_a_port_that_fails_to_close_leaves_no_other_open() -> None:
    class _Stuck(MemorySource):
        async def close(self) -> None:
            raise WorldError("stuck")

    world = World()
    journal = HeldJournal(world.store, -1)
    with pytest.raises(WorldError, match="stuck"):
        await world.run(source=_Stuck(world.batches, partitions=(0, 1)), journal=journal)
    assert journal.closed


async def test_a_second_engine_fences_the_first() -> None:
    world = World()
    journal = HeldJournal(world.store, 2)
    task = asyncio.create_task(world.run(journal=journal))
    await journal.reached.wait()
    await world.run()
    bodies = list(world.bodies)
    journal.go.set()
    with pytest.raises(FailClosed, match="another engine"):
        await task
    assert world.bodies == bodies


async def test_an_empty_source_is_a_valid_stream() -> None:
    given = [Batch(p, (), (), 1, mark=23) for p in (0, 1)]
    world = World(batches=given)
    await world.run()
    assert len(world.bodies) == 72
    assert (await world.summary()).totals.records == 0


async def test_the_end_of_a_source_before_the_horizon_ends_the_run() -> None:
    world = World(batches=[batch for batch in batches() if (batch.mark or 0) < 10])
    await world.run()
    assert 0 < len(world.bodies) < 72


async def test_logs_stay_empty(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    world = World()
    await world.run()
    assert [record for record in caplog.records if record.name != "asyncio"] == []


async def test_dead_letters_are_durable_with_their_tick() -> None:
    world = World(batches=[Batch(0, [b"junk", b"0 0"], [10, 11], 3, mark=23),
                           Batch(1, (), (), 1, mark=23)])  # fmt: skip
    await world.run()
    assert world.commits()[1].dead_letters == (DeadLetter(0, "junk", None, 1, ((10, 10),)),)


class _Unread(MemoryJournal):
    async def verify(self, positions: Any) -> None:
        raise FailClosed("the journal was set back")


async def test_what_the_world_knows_of_the_journal_is_asked_first() -> None:
    world = World()
    with pytest.raises(FailClosed, match="set back"):
        await world.run(journal=_Unread(world.store))
    assert world.store.commits == []
