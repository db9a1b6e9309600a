"""One event more changes one tick row by one, however slowly the records are read; a broken reader is caught."""

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from faults.cases import AIRLINES, DESTINATIONS, EPSILON
from faults.evidence import opened
from stream_dp.core.time import TickGrid
from stream_dp.engine.engine import Engine
from stream_dp.engine.ports import Batch, Ports
from stream_dp.files.memory import MemoryJournal, MemorySink, MemorySource, MemoryStore
from stream_dp.journal.keys import Sealer
from stream_dp.kafka.source.batches import batches as as_batches
from stream_dp.kafka.source.ticks import Place, Room, StampedTicks
from stream_dp.kafka.source.unpacker import Unpacker
from stream_dp.noise import NoiseStream
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.router import Router
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.testing.faults import Dawdling

KEY = bytes(32)
STEP, TICKS = 1000, 40
Reader = Callable[[Sequence["Stamped"], random.Random], list[Batch]]


@dataclass(frozen=True, slots=True)
class Stamped:
    """A record as the broker hands it out."""

    offset: int
    timestamp: int
    value: bytes
    headers: tuple[Any, ...] = ()
    timestamp_type: int = 1


class Clock:
    """A wall clock for which it is always late enough."""

    def now(self) -> int:
        return 10**9

    async def sleep_until(self, moment: int) -> None:
        await asyncio.sleep(0)


def specification() -> PipelineSpec:
    return PipelineSpec.model_validate(
        {
            "version": 1,
            "name": "live",
            "source": {"kind": "kafka", "topic": "memory", "bootstrap": "127.0.0.1:1"},
            "schema": {
                "airline": {"type": "category", "domain": list(AIRLINES)},
                "destination": {"type": "category", "domain": list(DESTINATIONS)},
            },
            "privacy": {"epsilon": str(3 * EPSILON)},
            "clock": {"kind": "wall", "step": "1s", "horizon": str(TICKS), "start": "1970-01-01T00:00:00Z"},
            "journal": {"kind": "kafka"},
            "series": [
                {"name": "departures", "statistic": "count", "epsilon": "1"},
                {
                    "name": "by_airline", "statistic": "histogram", "by": "airline",
                    "method": "tree", "epsilon": "1",
                },
                {
                    "name": "by_destination", "statistic": "histogram", "by": "destination",
                    "method": "tree", "epsilon": "1",
                },
            ],
        }
    )  # fmt: skip


def stream() -> list[Stamped]:
    """Some 3,000 events; some ticks have none."""
    chance = random.Random(1)
    quiet = {3, 4, 17, TICKS - 1}
    stamps = sorted(
        stamp for stamp in (chance.randrange(TICKS * STEP) for _ in range(3000))
        if stamp // STEP not in quiet
    )  # fmt: skip
    return [
        Stamped(
            offset,
            stamp,
            json.dumps(
                {
                    "airline": chance.choice(AIRLINES),
                    "destination": chance.choice((*DESTINATIONS, "nowhere")),
                }
            ).encode(),
        )
        for offset, stamp in enumerate(stamps)
    ]


def without(records: Sequence[Stamped], at: int) -> list[Stamped]:
    """The neighbouring stream: everything else keeps its stamp, and what follows gets another offset."""
    left = [*records[:at], *records[at + 1 :]]
    return [Stamped(i, one.timestamp, one.value) for i, one in enumerate(left)]


def by_stamp(records: Sequence[Stamped], chance: random.Random) -> list[Batch]:
    """The product's splitting, of reads of any size."""
    cuts = sorted({0, len(records), *(chance.randrange(len(records)) for _ in range(30))})
    batches: list[Batch] = []
    ticks = StampedTicks(
        Place(0, 0), Unpacker(marks=False), Room(), batches, TickGrid(0, STEP), settle=0
    )
    for begin, end in pairwise(cuts):
        for one in as_batches(records[begin:end]):
            assert ticks.take(one) is None
        ticks.flush()
    return [*batches, Batch(0, (), (), len(records), mark=TICKS - 1)]


def by_reading(records: Sequence[Stamped], chance: random.Random) -> list[Batch]:
    """A broken reader, kept busy: what it reads during a tick's time belongs to that tick."""
    at_a_time = len(records) // TICKS + 1
    reads = [records[i : i + at_a_time] for i in range(0, len(records), at_a_time)]
    batches = [
        Batch(0, [r.value for r in read], [r.offset for r in read], read[-1].offset + 1, tick, tick)
        for tick, read in enumerate(reads)
    ]
    return [*batches, Batch(0, (), (), len(records), mark=TICKS - 1)]


async def rows_of(records: Sequence[Stamped], reader: Reader, pause_ms: int, seed: int) -> Any:
    """The rows in the journal after a run of the engine."""
    spec = specification()
    store = MemoryStore()
    source = Dawdling(MemorySource(reader(records, random.Random(seed))), pause_ms)
    sealer = Sealer(KEY, spec.name)
    ports = Ports(source, MemoryJournal(store), MemorySink(), Clock(), sealer)
    plan = build(spec).run_config(0)
    await Engine(plan, Router(spec, plan.origin), ports, NoiseStream).run()
    commits = opened(store.commits, KEY, spec.name)
    return np.array([row for commit in commits for row in commit["rows"]])


def changed(one: Any, other: Any) -> dict[int, list[int]]:
    """The ticks whose rows differ, with the differences that are not zero."""
    assert one.shape == other.shape == (TICKS, 1 + len(AIRLINES) + 1 + len(DESTINATIONS) + 1)
    return {
        tick: [int(d) for d in difference if d]
        for tick, difference in enumerate(one - other)
        if difference.any()
    }


@pytest.mark.parametrize("at", [0, 700, 1500, -1])
async def test_one_event_changes_one_row_by_one(at: int) -> None:
    records = stream()
    at %= len(records)
    fewer = without(records, at)
    quick = await rows_of(records, by_stamp, 0, seed=1)
    slow = await rows_of(fewer, by_stamp, 2, seed=2)
    tick = records[at].timestamp // STEP
    assert changed(quick, slow) == {tick: [1, 1, 1]}  # its count, its airline, its destination
    assert quick[:, 0].sum() == len(records)


async def test_ticks_beyond_the_horizon_are_not_taken() -> None:
    """A silent live topic, or one fed for longer, closes several ticks at once, the last ones too late."""

    def beyond(records: Sequence[Stamped], chance: random.Random) -> list[Batch]:
        return [Batch(0, (), (), 0, mark=TICKS - 3), Batch(0, (), (), 0, mark=TICKS + 3)]

    assert (await rows_of((), beyond, 0, seed=1)).tolist() == (
        await rows_of((), beyond, 2, 1)
    ).tolist()
    assert len(await rows_of((), beyond, 0, seed=1)) == TICKS


async def test_a_reader_that_places_events_by_when_it_reads_them_is_caught() -> None:
    records = stream()
    one = await rows_of(records, by_reading, 0, seed=1)
    other = await rows_of(without(records, 700), by_reading, 0, seed=1)
    assert len(changed(one, other)) > TICKS // 2
