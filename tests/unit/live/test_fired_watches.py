"""Watches that fire once: the list says that they have ended, also after a restart, and never before it is public."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from unit.journal.runtime_worlds import CrashingJournal
from unit.live.live_series_worlds import HORIZON, Stopping
from unit.live.message_worlds import text
from unit.live.monitor_worlds import FR, MONITOR, PIPELINE_M, MonitorWorld, no_noise, wait

from stream_dp.engine.cut_changes import CutChanges
from stream_dp.engine.engine import Engine
from stream_dp.engine.series import LiveSeries
from stream_dp.journal.checkpoint import known_after
from stream_dp.journal.commit import part
from stream_dp.operate.query.series_words import FiredWatches
from stream_dp.server.models.asked import Query

ONCE = {**FR, "rearm": False}  # 2 orders from FR a tick
FIRST = {"name": "first", "where": [{"field": "country", "equals": "DE"}], "above": "6", "rearm": "false"}  # fmt: skip
SERIES = [PIPELINE_M["series"][0], MONITOR | {"watch": [*MONITOR["watch"], FIRST]}]
PIPELINE_F = PIPELINE_M | {"series": SERIES}
IN_BLOCKS = PIPELINE_F | {"clock": PIPELINE_F["clock"] | {"block": "4"}}


def ends(queries: list[Mapping[str, Any]]) -> list[tuple[str, int | None, int]]:
    """Name, end and firings of the watches that fire once, as the list has them."""
    (row,) = [each for each in queries if each["name"] == "m"]
    assert all(("fired" in one) != one["rearm"] for one in row["watches"])
    return [(one["name"], one["end"], one["fired"]) for one in row["watches"] if not one["rearm"]]


Step = tuple[int, str, str, Mapping[str, Any]]
"""After which tick what id asks for what."""


def world_of(**more: Any) -> MonitorWorld:
    return MonitorWorld(**{"noise": no_noise, "pipeline": PIPELINE_F, **more})


async def told(engine: Engine, name: str, do: str, more: Mapping[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(await engine.tell(text(name, do, **more).encode(), ""))
    return said


async def played(world: MonitorWorld, steps: Sequence[Step]) -> dict[str, dict[str, Any]]:
    """Run, and send each message when its tick is public, before the next one begins; the answers by id."""
    source, said = Stopping(-1), dict[str, dict[str, Any]]()
    engine = world.messaging(source)
    going = asyncio.create_task(engine.run())
    for tick, name, do, more in steps:
        source.go(tick)
        await wait(world, tick)
        said[name] = await told(engine, name, do, more)
    source.go(HORIZON)
    await going
    return said


async def test_the_list_says_at_which_tick_a_watch_ended_by_firing() -> None:
    """2 + 4 orders from DE reach 6 in tick 1, DE alone reaches 60 in tick 7; in tick 0 each country has less than 3."""
    few = {"name": "few", "by": "country", "below": "3", "over": "tick", "rearm": "false"}
    more = MONITOR | {"watch": [*MONITOR["watch"], FIRST, few], "touch": "5"}
    world = world_of(pipeline=PIPELINE_M | {"series": [SERIES[0], more]})
    said = await played(world, [(tick, f"l{tick}", "list", {}) for tick in (0, 1, 6, 9)])
    assert {name: ends(each["answer"]["queries"]) for name, each in said.items()} == {
        "l0": [("by", None, 0), ("first", None, 0), ("few", 1, 3)],
        "l1": [("by", None, 0), ("first", 2, 1), ("few", 1, 3)],
        "l6": [("by", None, 0), ("first", 2, 1), ("few", 1, 3)],
        "l9": [("by", None, 1), ("first", 2, 1), ("few", 1, 3)],
    }
    Query.documented(said["l9"]["answer"]["queries"][1])


M = {"series": "m"}
STEPS: list[Step] = [
    (0, "w1", "watch", M | {"watch": ONCE}),
    (2, "l1", "list", {}),
    (3, "u1", "unwatch", M | {"watch": "fr"}),
    (3, "w2", "watch", M | {"watch": ONCE | {"above": 10}}),
    (4, "a1", "ask", M | {"watch": "fr", "threshold": 1}),
    (4, "a2", "ask", M | {"watch": "by/FR", "threshold": 3}),
    (5, "l2", "list", {}),
    (6, "u2", "unwatch", M | {"watch": "fr"}),
    (6, "w3", "watch", M | {"watch": ONCE}),
    (6, "a3", "ask", M | {"watch": "by/DE", "threshold": 10**6}),
    (9, "u3", "unwatch", M | {"watch": "fr"}),
    (9, "l3", "list", {}),
    (10, "u4", "unwatch", M | {"watch": "first"}),
    (10, "l4", "list", {}),
]
"""Three lives of one name, which end in a tick, where it is asked, and in a tick again."""


async def listed_again() -> int:
    """Compare the list after a restart at each list; how many releases those that restarted were shown."""
    world, shown = world_of(), 0
    said = await played(world, STEPS)
    assert {name: ends(said[name]["answer"]["queries"]) for name in ("l1", "l2", "l3", "l4")} == {
        "l1": [("by", None, 0), ("first", 2, 1), ("fr", 3, 1)],
        "l2": [("by", None, 1), ("first", 2, 1), ("fr", 5, 1), ("fr", 3, 1)],
        "l3": [("by", None, 2), ("first", 2, 1), ("fr", 3, 1), ("fr", 5, 1), ("fr", 9, 1)],
        "l4": [("by", None, 2), ("fr", 3, 1), ("fr", 5, 1), ("fr", 9, 1), ("first", 2, 1)],
    }
    for at, commit in enumerate(world.commits()):
        for name in [each.id for each in commit.answers if each.id in ("l1", "l2", "l3", "l4")]:
            before, again = world.commits()[:at], world_of()
            again.store.commits[:] = world.store.commits[:at]
            for one in before:
                again.store.checkpoints = known_after(one, again.store.checkpoints)
            again.bodies[:] = [r.body for c in before for r in c.releases]
            again.answers[:] = [a.body for c in before for a in c.answers]
            found = await played(again, [(said[name]["tick"], "again", "list", {})])
            assert found["again"]["answer"] == said[name]["answer"]
            shown += again.shown
    return shown


@pytest.mark.parametrize("every", [1, 2, 5, 1000])
async def test_a_restart_lists_what_was_listed(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a checkpoint, too; then releases are not read that were public before it."""
    whole = await listed_again()
    monkeypatch.setattr("stream_dp.engine.engine.SNAPSHOT_TICKS", every)
    assert (await listed_again() < whole) == (every < 1000)


async def test_ends_that_a_checkpoint_leaves_out_are_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stream_dp.engine.engine.SNAPSHOT_TICKS", 1)
    monkeypatch.setattr(FiredWatches, "save", lambda fired: part((fired._taken, [])))
    with pytest.raises(AssertionError):
        await listed_again()


async def test_what_waits_for_the_rest_of_its_block_is_not_told() -> None:
    world = world_of(pipeline=IN_BLOCKS)
    source = Stopping(2)
    engine = world.messaging(source)
    going = asyncio.create_task(engine.run())

    async def listed(name: str) -> list[tuple[str, int | None, int]]:
        return ends((await told(engine, name, "list", {}))["answer"]["queries"])

    while max((t for c in world.commits() for t in c.ticks), default=-1) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert world.bodies == []
    assert await listed("l1") == [("by", None, 0), ("first", None, 0)]
    source.go(HORIZON - 2)
    await wait(world, 7)
    assert await listed("l2") == [("by", None, 1), ("first", 2, 1)]
    source.go(HORIZON)
    await going


@pytest.mark.parametrize("hasty", [False, True])
async def test_that_an_ask_fired_is_not_told_before_it_is_durable(
    hasty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash it would be asked again, with other noise; a twin tells what the mechanism has just answered."""
    ask, append = CutChanges.ask, CrashingJournal.append
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def asked(self: CutChanges, live: LiveSeries, *rest: Any) -> Any:
        told = await ask(self, live, *rest)
        if hasty and live.series.asking is not None:
            known = live.series.asking.answered(told, self.chain.next_tick)
            self.admission.registry.change(live.number, replace(live.series, asking=known))
        return told

    async def waiting(self: CrashingJournal, commit: Any, sealed: bytes) -> None:
        if commit.answers:
            arrived.set()
            await go_on.wait()
        await append(self, commit, sealed)

    monkeypatch.setattr(CutChanges, "ask", asked)
    monkeypatch.setattr(CrashingJournal, "append", waiting)
    world = world_of()
    engine = world.messaging(Stopping(0))
    running = asyncio.create_task(engine.run())

    def listed() -> int | None:
        queries = list(world.words.listed(engine.admission, None))
        return {name: end for name, end, _ in ends(queries)}["first"]

    await wait(world, 0)
    asking = asyncio.create_task(told(engine, "a1", "ask", M | {"watch": "first", "threshold": 1}))
    await arrived.wait()
    assert listed() == (1 if hasty else None)
    go_on.set()
    await asking
    engine.stop()
    await running
    assert listed() == 1
