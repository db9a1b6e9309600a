"""Runs of one pipeline whose inputs differ in some events, with series that come and go at the same ticks."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import msgspec
from live_acts import create_series, halt_series
from unit.live.live_series_worlds import HORIZON, PIPELINE, SEALER, Stopping, World, batches, record

from stream_dp.engine import engine
from stream_dp.engine.ports import Batch
from stream_dp.files.memory import MemorySource
from stream_dp.journal.commit import Commit, digest, encode
from stream_dp.operate.audit.journal_trace import JournalTrace, TraceStep
from stream_dp.operate.audit.trace_check import TraceReport, compared

APART = [{"name": name, "statistic": "count", "epsilon": "1/2", "where": [{"field": "country", "equals": country}]}
         for name, country in (("german", "DE"), ("french", "FR"))]  # fmt: skip
RICH: dict[str, Any] = {
    **PIPELINE,
    "privacy": {"epsilon": "8"},
    "series": [
        {"name": "orders", "statistic": "count", "epsilon": "1"},
        {"name": "by_country", "statistic": "histogram", "by": "country", "method": "hss", "epsilon": "1"},
        {"name": "busy", "statistic": "alerts", "by": "country", "threshold": 5, "epsilon": "1"},
    ],
}  # fmt: skip
LIVE = {
    "name": "german",
    "statistic": "count",
    "epsilon": "1/4",
    "where": [{"field": "country", "equals": "DE"}],
}
NEXT = {"name": "largest", "statistic": "maximum", "by": "country", "epsilon": "1"}


def seeded(pipeline: dict[str, Any], salt: int = 0) -> World:
    numbers = count(1000 * salt)
    return World(pipeline, seeds=lambda: hashlib.sha256(b"%d" % next(numbers)).digest())


def with_events(*added: tuple[int, str]) -> list[Batch]:
    found = batches()
    for tick, country in added:
        place = next(n for n, b in enumerate(found) if (b.partition, b.mark) == (0, tick))
        payloads = [*found[place].payloads, record(tick, country, 1)]
        found[place] = replace(found[place], payloads=payloads, labels=range(len(payloads)))
    return found


def feed(given: Sequence[Batch], limit: int) -> Stopping:
    """A source of these batches that stops after this tick."""
    source = Stopping(limit)
    MemorySource.__init__(source, given, partitions=(0, 1))
    return source


async def lived(
    world: World, *added: tuple[int, str], snapshots: int = 5, live: bool = True
) -> World:
    """Run to the horizon, with a restart; where `live`, with creations and a halt before and after it."""
    before, engine.SNAPSHOT_TICKS = engine.SNAPSHOT_TICKS, snapshots
    try:
        given = with_events(*added)
        for first, last in ((2, 6), (8, HORIZON)):
            source = feed(given, first)
            running = world.engine(source)
            task = asyncio.create_task(running.run())
            await world.until(first, task)
            if live and first == 2:
                await create_series(running, json.dumps(LIVE).encode())
            elif live:
                await halt_series(running, "german")
                await create_series(running, json.dumps(NEXT).encode())
            source.go(last)
            await world.until(min(last, HORIZON - 1), task)
            running.stop()
            await task
    finally:
        engine.SNAPSHOT_TICKS = before
    return world


def steps(world: World) -> list[TraceStep]:
    trace = JournalTrace(world.built)
    every = [step for commit in world.commits() for step in trace.steps(commit)]
    return [step for step in every if isinstance(step, TraceStep)]


async def blobs(world: World) -> AsyncIterator[bytes]:
    for sealed in world.store.commits:
        yield sealed


async def checked(world: World) -> TraceReport:
    return await compared(world.built, SEALER, blobs(world))


def resealed(world: World, change: Callable[[list[Commit]], None]) -> None:
    """Change the journal's commits and seal them with the right key, in an unbroken chain."""
    commits, previous = world.commits(), b""
    change(commits)
    world.store.commits.clear()
    for commit in commits:
        linked = msgspec.structs.replace(commit, previous=previous)
        world.store.commits.append(SEALER.seal(commit.sequence, encode(linked)))
        previous = digest(world.store.commits[-1])


__all__ = ["APART", "RICH", "SEALER", "blobs", "checked", "lived", "resealed", "seeded", "steps"]
