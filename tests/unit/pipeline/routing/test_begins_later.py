"""Changes at a cut and what is read again for them: once for all that wait, and nothing of a tick that is too long."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from live_acts import create_series, halt_series
from unit.journal.runtime_worlds import Crash, CrashingJournal, Fuse
from unit.live.live_series_steps import at, large, question, zero
from unit.live.live_series_worlds import HORIZON, Stopping, World, batches
from unit.live.message_worlds import text
from unit.live.monitor_worlds import FR, MonitorWorld, expected, no_noise

from stream_dp.engine import engine as engines
from stream_dp.engine.engine import Engine
from stream_dp.engine.messages.conversation import WATCHES
from stream_dp.engine.ports import NOTHING_BEHIND, Batch, Behinds, Positions
from stream_dp.engine.proposals import Derived, OnThread, derived_by
from stream_dp.engine.run_config import READ_AGAIN_MS
from stream_dp.errors import WorldError
from stream_dp.journal.commit import Created, Unwatched, Watched
from stream_dp.pipeline.router import OpenRouter

LONG: dict[str, Any] = {"read_again": READ_AGAIN_MS}


class Open(Stopping):
    """Gives the records of an open tick long before its marks, and counts what it gives and how often it seeks."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit, halves())
        self.seeks, self.given = 0, 0

    async def seek(self, positions: Positions, behind: Behinds = NOTHING_BEHIND) -> None:
        self.seeks += 1
        await super().seek(positions, behind)

    async def read(self) -> Sequence[Batch]:
        found = await super().read()
        self.given += sum(len(batch.payloads) for batch in found)
        return found


class AtOnce(OnThread):
    """Derives within a turn of the event loop, so that definitions that come together are ready together."""

    async def derive(self, definition: bytes, start: int) -> Derived:
        assert self._planner is not None
        return derived_by(self._planner, definition, start)


def halves() -> list[Batch]:
    found = list[Batch]()
    for both in zip(batches()[::2], batches()[1::2], strict=True):
        found += [replace(each, mark=None, position=each.position - 1) for each in both]
        found += [replace(each, payloads=(), labels=()) for each in both]
    return found


async def created(world: World, cut: int, *definitions: bytes, one_by_one: bool = True) -> Open:
    """Create series at the cut before tick `cut`, of which all records were read, and run to the end."""
    source = Open(cut - 1)
    engine = world.engine(source)
    engine._deriver = AtOnce(world.planner)
    run = asyncio.create_task(engine.run())
    await world.until(cut - 1)
    for _ in range(20):
        await asyncio.sleep(0)
    if one_by_one:
        for each in definitions:
            await create_series(engine, each)
    else:
        await asyncio.gather(*(create_series(engine, each) for each in definitions))
    source.go(HORIZON)
    await run
    return source


EIGHT = [question(f"s{n}", "0.1") for n in range(8)]
ALL = sum(len(batch.payloads) for batch in batches())


async def test_all_changes_that_wait_at_a_cut_are_one_re_reading() -> None:
    source = await created(World(noise=zero), 3, *EIGHT, one_by_one=False)
    assert source.seeks == 2  # at the start, and for all eight
    assert source.given <= ALL + 2 * len(halves()[12].payloads) + 2


async def test_of_a_long_tick_nothing_is_read_again() -> None:
    world = World(noise=zero, **LONG)
    source = await created(world, 3, *EIGHT)
    assert source.seeks == 2
    read_beyond = len(halves()[16].payloads) + len(
        halves()[17].payloads
    )  # of tick 4, at the cut before it
    assert source.given <= ALL + read_beyond
    assert {min(world.releases(f"s{n}")) for n in range(8)} == {4}


@pytest.mark.parametrize("cut", [1, 3, 6])
async def test_it_begins_with_the_next_tick_as_if_it_had_been_created_there(cut: int) -> None:
    later, there = World(noise=zero, **LONG), World(noise=zero)
    await created(later, cut, question())
    await created(there, cut + 1, question())
    assert later.bodies == there.bodies
    assert later.releases("large") == {t: large(t, cut + 1) for t in range(cut + 1, HORIZON)}
    (change,) = (change for commit in later.commits() for change in commit.changes)
    assert isinstance(change, Created)
    assert change.start == cut + 1
    (commit,) = (commit for commit in later.commits() if commit.changes)
    assert commit.charges
    open_tick = (each.sequence for each in later.commits() if cut in each.ticks)
    assert commit.sequence < min(open_tick)  # paid for and durable in the open tick already


async def test_what_is_halted_before_it_begins_sees_no_tick_and_leaves_nothing() -> None:
    world = World(noise=zero, **LONG)
    source = Open(2)
    engine = world.engine(source)
    run = asyncio.create_task(engine.run())
    await world.until(2)
    await create_series(engine, question("a"))
    halted = await halt_series(engine, "a")
    assert halted.end == 4
    await create_series(engine, question("b"))
    source.go(HORIZON)
    await run
    assert world.releases("a") == {}
    assert world.releases("b") == {t: large(t, 4) for t in range(4, HORIZON)}
    await world.engine(Stopping()).run()  # its journal is one


@pytest.mark.parametrize("snapshots", [1, 2, 1000])
async def test_a_crash_anywhere_gives_the_same_releases(
    snapshots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "SNAPSHOT_TICKS", snapshots)
    whole = await changed(Fuse())
    assert [min(whole.releases(name)) for name in ("a", "b", "c")] == [4, 6, 9]
    for place in range(1, 34):
        fuse = Fuse(place)
        assert (await changed(fuse)).bodies == whole.bodies
        assert fuse.left <= 0  # it crashed there


async def recovered(engine: Engine, run: "asyncio.Task[None]") -> None:
    ready = asyncio.create_task(engine.ready.wait())
    await asyncio.wait({ready, run}, return_when=asyncio.FIRST_COMPLETED)
    ready.cancel()


async def changed(fuse: Fuse) -> World:
    """Create and halt at the cuts behind certain ticks, and run again after a crash."""
    world = World(noise=zero, **LONG)

    async def change(engine: Engine, source: Stopping, run: "asyncio.Task[None]") -> None:
        for tick in range(HORIZON):
            source.go(tick)
            await world.until(tick, run)
            await recovered(engine, run)
            if run.done():
                return
            await at(engine, tick)

    for _ in range(2):
        source = Stopping(-1)
        engine = world.engine(source, CrashingJournal(world.store, fuse))
        run = asyncio.create_task(engine.run())
        with suppress(WorldError, Crash):
            await change(engine, source, run)
        with suppress(Crash):
            await run
    return world


SAID: list[tuple[int, str, str, Any]] = [
    (1, "w1", "watch", FR),
    (3, "u1", "unwatch", "fr"),
    (3, "w2", "watch", {**FR, "name": "again"}),  # in the same place
    (5, "u2", "unwatch", "large"),  # of the file
    (7, "w3", "watch", {**FR, "name": "short"}),
    (7, "u3", "unwatch", "short"),
    (8, "w4", "watch", {**FR, "name": "last", "above": 1}),
]


async def watched(fuse: Fuse | None = None, noise: Any = no_noise) -> MonitorWorld:
    """Say all this at the cuts behind its ticks, and run again after each crash."""
    world = MonitorWorld(noise=noise, **LONG)
    for _ in range(3):
        source = Stopping(-1)
        engine = world.messaging(source, fuse)
        run = asyncio.create_task(engine.run())
        with suppress(WorldError):
            await said(world, engine, source, run)
        with suppress(Crash):
            await run
            break
    return world


async def said(
    world: MonitorWorld, engine: Engine, source: Stopping, run: "asyncio.Task[None]"
) -> None:
    for tick in range(HORIZON):
        source.go(tick)
        await recovered(engine, run)
        while world.public_tick() < tick and not run.done():  # noqa: ASYNC110 - steps of the loop
            await asyncio.sleep(0)
        for _, name, do, watch in (each for each in SAID if each[0] == tick):
            if run.done():
                return
            await engine.tell(text(name, do, series="m", watch=watch).encode(), "")


def fired(world: MonitorWorld, name: str) -> list[int]:
    return [tick for tick, names in world.releases("m").items() if name in names]


async def check_watches() -> None:
    """Watches begin and end with the tick behind the open one, wherever the engine dies."""
    whole = await watched()
    changes = [change for commit in whole.commits() for change in commit.changes]
    assert [each.at for each in changes if isinstance(each, Watched | Unwatched)] == [
        said + 2 for said, *_ in SAID
    ]
    country = {"equals": "FR"}
    assert fired(whole, "fr") == expected(3, 5, country, 4)
    assert fired(whole, "again") == expected(5, HORIZON, country, 4)
    assert fired(whole, "last") == expected(10, HORIZON, country, 1)
    assert fired(whole, "short") == []
    rows = {t: row for c in whole.commits() for t, row in zip(c.ticks, c.rows, strict=True)}
    assert [tick for tick, row in rows.items() if row[1]] == list(range(7))
    for place in range(1, 60, 2):
        world = await watched(Fuse(place))
        assert world.bodies == whole.bodies
        assert world.answers == whole.answers


async def test_a_crash_anywhere_gives_the_same_watches() -> None:
    await check_watches()


TWINS: list[tuple[Any, str, Any]] = [
    (OpenRouter, "hold", lambda self: None),
    (engines, "served_until", lambda coming: {}),
]


@pytest.mark.parametrize("twin", TWINS, ids=["counts at once", "named at once"])
async def test_the_check_catches_what_begins_otherwise(
    twin: tuple[Any, str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*twin)
    with pytest.raises((AssertionError, ValueError)):
        async with asyncio.timeout(20):
            await check_watches()


async def test_what_has_not_begun_is_not_asked() -> None:
    world = MonitorWorld(noise=no_noise, **LONG)
    found = list[dict[str, Any]]()

    async def ask(engine: Engine) -> None:
        for name, do, more in (
            ("w1", "watch", {"watch": FR}),
            ("a1", "ask", {"watch": "fr", "threshold": 1}),
            ("a2", "ask", {"watch": "by/FR", "threshold": 10**6}),
        ):
            body = await engine.tell(text(name, do, series="m", **more).encode(), "")
            found.append(json.loads(body))

    await world.told(ask, tick=2)
    assert found[0]["answer"] == {"series": "m", "watch": "fr", "start": 4}
    assert found[1]["refused"]["detail"] == "watch: begins with tick 4; ask from that tick on"
    assert found[2]["answer"]["fired"] is False


async def test_between_two_ticks_an_analyst_changes_so_many_watches_where_they_are_read_again() -> (
    None
):
    """Watches cost nothing, and reading again does; what begins later is not read again, and has no such bound."""

    async def refused(**more: Any) -> list[bool]:
        world, found = MonitorWorld(noise=no_noise, **more), list[bool]()

        async def flood(engine: Engine) -> None:
            for number in range(WATCHES // 2 + 1):
                for do, watch in (("watch", FR), ("unwatch", "fr")):
                    message = text(f"{do}{number}", do, series="m", watch=watch).encode()
                    found.append("refused" in json.loads(await engine.tell(message, "")))

        await world.told(flood)
        await world.messaging(Stopping()).run()
        return found

    assert await refused() == [False] * WATCHES + [True, True]
    assert await refused(**LONG) == [False] * (WATCHES + 2)
