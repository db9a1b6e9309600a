"""Series created and halted while the engine runs: what they count, and what a preview tells."""

import asyncio
import json
import threading
from typing import Any

import pytest
from live_acts import create_series, halt_series, preview_series
from unit.live.live_series_steps import large, question, running, zero
from unit.live.live_series_worlds import HORIZON, PIPELINE, Stopping, World, batches

from stream_dp.engine.engine import ENDED_KEPT, Engine
from stream_dp.errors import UnknownMechanism, UsageError
from stream_dp.files.memory import MemoryJournal, MemorySink, MemorySource
from stream_dp.journal.commit import Commit, Release
from stream_dp.live import planner as live_series
from stream_dp.pipeline import builder
from stream_dp.pipeline.router import OpenRouter


async def at_a_cut(engine: Engine) -> None:
    with pytest.raises(UnknownMechanism):
        await halt_series(engine, "nothing")


@pytest.mark.parametrize("tick", [2, 3, 5])  # before, at and after an early record of a later tick
async def test_it_counts_from_its_first_tick_and_the_others_do_not_notice(tick: int) -> None:
    world, alone = World(noise=zero), World(noise=zero)
    await alone.engine(MemorySource(batches(), partitions=(0, 1))).run()

    async def ask(engine: Engine, _source: Stopping) -> None:
        created = await create_series(engine, question())
        assert (created.start, created.number) == (tick + 1, 1)

    await running(world, tick, ask)
    assert world.releases("large") == {t: large(t, tick + 1) for t in range(tick + 1, HORIZON)}
    assert world.releases("orders") == alone.releases("orders")


@pytest.mark.parametrize("ahead", [0, 1, 4, HORIZON])
async def test_how_far_the_reader_was_ahead_changes_nothing(ahead: int) -> None:
    world = World(noise=zero)

    async def ask(engine: Engine, source: Stopping) -> None:
        asked = asyncio.create_task(create_series(engine, question()))
        source.go(2 + ahead)
        created = await asked
        assert world.releases("large").keys() <= set(range(created.start, HORIZON))

    await running(world, 2, ask)
    start = min(world.releases("large"))
    assert world.releases("large") == {t: large(t, start) for t in range(start, HORIZON)}


async def test_last_releases_of_series_that_ended_are_forgotten() -> None:
    """Else memory grows with every series that was ever created; those that run are asked."""
    engine = World(noise=zero).engine(MemorySource(batches(), partitions=(0, 1)))
    await engine.run()
    for number in range(1000):
        engine._show(Release(HORIZON + number, f"ended{number}", HORIZON - 1, b"{}"))
    assert "orders" in engine._latest
    assert "ended999" in engine._latest
    assert len(engine._latest) <= 2 + ENDED_KEPT + 1


async def test_nothing_is_read_while_a_creation_becomes_durable() -> None:
    """The rows are wider already, and what was read is not: records that come meanwhile are left to the source."""
    world, source, left = World(noise=zero), Stopping(2), list[tuple[int, int]]()

    class Slow(MemoryJournal):
        async def append(self, commit: Commit, sealed: bytes) -> None:
            if commit.changes:
                before = len(source._left)
                source.go(HORIZON)
                for _ in range(100):
                    await asyncio.sleep(0)
                left.append((before, len(source._left)))
            await super().append(commit, sealed)

    engine = world.engine(source, Slow(world.store))
    run = asyncio.create_task(engine.run())
    await world.until(2)
    await create_series(engine, question())
    await run
    ((before, behind),) = left
    assert behind == before > 0
    assert world.releases("large") == {t: large(t, 3) for t in range(3, HORIZON)}


async def test_choosing_a_mechanism_happens_once_and_does_not_hold_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A choice that only ends once the loop has done something else: on the loop it would wait for itself."""
    world, choose = World(), builder.chosen_for
    begun, looped, calls = threading.Event(), threading.Event(), []

    def slowly(*args: Any, **named: Any) -> Any:
        calls.append(args)
        begun.set()
        assert looped.wait(30)
        return choose(*args, **named)

    async def ask(engine: Engine, _source: Stopping) -> None:
        monkeypatch.setattr(live_series, "chosen_for", slowly)
        for asking in (preview_series(engine, question()), create_series(engine, question())):
            task = asyncio.create_task(asking)
            assert await asyncio.to_thread(begun.wait, 30)
            looped.set()
            await task
            begun.clear()
            looped.clear()

    await running(world, 2, ask)
    assert len(calls) == 2
    assert sorted(world.releases("large")) == list(range(3, HORIZON))


async def test_a_preview_tells_nothing_of_a_tick_that_is_stepped_and_not_published(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """How far the engine is depends on how much there was to read; what is published does not."""
    world, publish = World(), MemorySink.publish
    holding, released = asyncio.Event(), asyncio.Event()

    async def hold(self: MemorySink, releases: Any) -> None:
        holding.set()
        await released.wait()
        await publish(self, releases)

    async def ask(engine: Engine, source: Stopping) -> None:
        await at_a_cut(engine)
        before, _ = await preview_series(engine, question(epsilon="1"))
        with monkeypatch.context() as patch:
            patch.setattr(MemorySink, "publish", hold)
            source.go(4)
            await holding.wait()
            during, _ = await preview_series(engine, question(epsilon="1"))
            released.set()
        await at_a_cut(engine)
        after, _ = await preview_series(engine, question(epsilon="1"))
        assert before.derivation == during.derivation != after.derivation

    await running(world, 2, ask)


async def test_an_order_taken_when_the_engine_fails_is_refused() -> None:
    """Whoever asked would else wait for ever: it is no longer in the inbox, and not executed yet."""
    engine = World().engine(Stopping(0))
    asking = asyncio.create_task(create_series(engine, question()))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(engine._next())
    for _ in range(10):
        if not engine._inbox._commands:
            break
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()
    with pytest.raises(UsageError, match="has ended"):
        await asyncio.wait_for(asking, 30)


@pytest.mark.parametrize("value", ["\x7f", "a \x85 b", "\u2028", "\ufeff", "\ufffe", "\U0001f600"])
async def test_a_definition_is_read_again_as_it_was_asked(value: str) -> None:
    """What the journal keeps is read once more, live and at every start: it must be the same series."""
    note = {"note": {"type": "text"}}
    world = World(pipeline=PIPELINE | {"schema": PIPELINE["schema"] | note})
    raw = "".join(
        c if c > "\uffff" else f"\\u{ord(c):04x}" for c in value
    )  # YAML takes no surrogate pairs
    asked = (
        b'{"name":"odd","statistic":"count","epsilon":"1","where":[{"field":"note","equals":"%s"}]}'
    )

    async def ask(engine: Engine, _source: Stopping) -> None:
        created = await create_series(engine, asked % raw.encode())
        assert json.loads(created.definition)["where"][0]["equals"] == value
        assert engine.admission.subledgers.main.left == 0
        series = engine.admission.planner.running[created.number]  # type: ignore[union-attr]
        assert series.series.where[0].equals == value

    await running(world, 2, ask)
    engine = world.engine(MemorySource(batches(), partitions=(0, 1)))
    await engine.run()
    assert engine.admission.subledgers.main.left == 0


@pytest.mark.parametrize("noise", [zero, None])
async def test_releases_of_what_is_created_say_that_test_noise_is_not_private(noise: Any) -> None:
    world = World() if noise is None else World(noise=noise)

    async def ask(engine: Engine, _source: Stopping) -> None:
        await create_series(engine, question())

    await running(world, 2, ask)
    bodies = [json.loads(body) for body in world.bodies]
    assert {b["series"] for b in bodies} == {"orders", "large"}
    assert all(("not_private" in b) == (noise is not None) for b in bodies)


@pytest.mark.parametrize(
    "statistic",
    [
        "count, windows: [{}h]",
        "quantiles, of: amount, clamp: [0, 9], buckets: 9, at: [0.5], windows: [{}h]",
        "quantiles, of: amount, clamp: [0, 9], buckets: 9, at: [0.5], every: {}h",
    ],
)
def test_a_window_is_held_against_what_is_left_of_the_horizon(statistic: str) -> None:
    """From tick 8 on there are four: a window of more would never be whole, and was taken."""
    spec = World().built.spec
    planner = live_series.LiveSeriesPlanner(spec, OpenRouter(spec, 0))

    def propose(hours: int) -> live_series.PlannedSeries:
        text = f"{{name: late, statistic: {statistic.format(hours)}, epsilon: 0.1}}"
        return planner.propose(text.encode(), HORIZON - 4)

    assert propose(4).series.views[-1] == "4h"
    with pytest.raises(UsageError, match="longer than the horizon: 4 ticks of 1h"):
        propose(5)
