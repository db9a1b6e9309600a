"""Clocks that are off, step or drift: what counts is exact, or the engine stops and says which clock is off.

The logs are on paper, for no real broker's clock can be set by hand; an engine on a real broker comes last. After a
stop the clocks are mended and the engine runs again: then no record is lost either.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from faults.evidence import opened
from faults.kafka_evidence import records
from kafka.kafka_worlds import create, writing
from kafka.log_worlds import (
    KEY,
    KINDS,
    Journalled,
    LivePipeline,
    _judge,
    differences,
    engine_in_memory,
)
from kafka.paper_broker import Clocks, Outcome, run
from kafka.paper_log import PaperLog, PaperPartition
from kafka.raw_batches import RawBatch, record
from oracles.kafka_log import Grid, Said, said

from stream_dp.core.time import TickGrid
from stream_dp.engine.engine import Engine
from stream_dp.errors import FailClosed
from stream_dp.files.memory import MemorySink, MemoryStore
from stream_dp.files.system_clock import SystemClock, system_ms
from stream_dp.kafka.log.append_clock import Stamp
from stream_dp.kafka.source import source as kafka_source
from stream_dp.kafka.source.source import KafkaSource
from stream_dp.testing.kafka import fresh_topic_name

GRID = Grid(1_700_000_000_000, 1_000, 1_000, 12)
EVERY_MS, LAST_MS = 37, 6_500
STEPS_AT = 4_250
PARTITIONS = 3
Off = Callable[[int], int]


def always(milliseconds: int) -> Off:
    return lambda _: milliseconds


def stepping(milliseconds: int) -> Off:
    return lambda true: milliseconds if true >= GRID.origin + STEPS_AT else 0


def drifting(per_second: int) -> Off:
    """Right at the origin, and off by some more milliseconds each second."""
    return lambda true: max(0, true - GRID.origin) * per_second // 1000


def written(clocks: Clocks, slow: tuple[int, int] | None = None) -> PaperLog:
    """Records of three partitions, each silent in every third tick; partition n is led by broker n.

    A `slow` batch of partition 0 is one that its broker stamps at the first of these moments and shows at the second.
    """
    log = {number: PaperPartition() for number in range(PARTITIONS)}
    for number, at in enumerate(range(0, LAST_MS, EVERY_MS)):
        true, partition = GRID.origin + at, number % PARTITIONS
        if (at // GRID.step + partition) % 3 == 0:
            continue
        off = clocks.brokers[partition % len(clocks.brokers)]
        log[partition].append(_batch(number), true + off(true), true)
        if slow and partition == 0 and at < slow[0] <= at + 3 * EVERY_MS:
            log[0].append(_batch(number, 20), GRID.origin + slow[0], GRID.origin + slow[1])
    return log


def _batch(number: int, records: int = 1) -> bytes:
    value = json.dumps({"kind": KINDS[number % len(KINDS)]}).encode()
    return RawBatch([record(value, delta) for delta in range(records)], 0).encoded()


def says(log: PaperLog, clocks: Clocks) -> Said:
    """What the second reader says of the log, which knows no engine's clock."""
    visible = {
        number: [clocks.least(kept.arrived) for kept in one.kept] for number, one in log.items()
    }
    return said({n: one.frames() for n, one in log.items()}, GRID, _judge, visible=visible)


def lost(outcome: Outcome, log: PaperLog) -> int:
    """How many records with stamps of the ticks are in no place: not counted, not late and not dead."""
    end = GRID.origin + GRID.horizon * GRID.step
    kept = (one for partition in log.values() for one in partition.kept)
    records = sum(one.next - one.base for one in kept if GRID.origin <= one.stamp < end)
    counted = sum(row[0] for row in outcome.journal.rows.values())
    return records - counted - outcome.journal.late - sum(outcome.journal.dead.values())


EXACT = {
    "right": Clocks(),
    "engine .3 s ahead": Clocks(always(300)),
    "engine steps back .3 s": Clocks(stepping(-300)),
    "engine drifts slowly": Clocks(drifting(20)),
    "one broker .3 s behind": Clocks(brokers=(always(0), always(-300), always(0))),
    "one broker steps .3 s": Clocks(brokers=(always(0), stepping(300), always(0))),
    "brokers .9 s apart": Clocks(brokers=(always(450), always(0), always(-450))),
    "answers take 3 s, engine .3 s ahead": Clocks(always(300), answer_ms=3_000),
}
STOPS = {
    **{f"engine {by} ms off": Clocks(always(by)) for by in (1_000, 30_000, -1_000, -5_000)},
    **{f"engine steps {by} ms": Clocks(stepping(by)) for by in (1_000, 30_000, -1_000, -5_000)},
    "engine drifts": Clocks(drifting(100)),
    "engine drifts back": Clocks(drifting(-100)),
}
BROKERS = {
    **{f"{by} ms off": always(by) for by in (1_000, 30_000, -1_000)},
    **{f"steps {by} ms": stepping(by) for by in (1_000, -1_000, -30_000)},
}


@pytest.mark.parametrize("case", EXACT)
def test_where_clocks_agree_to_within_half_of_the_delay_each_record_counts_in_its_tick(
    case: str,
) -> None:
    clocks = EXACT[case]
    log = written(clocks)
    outcome = run(log, GRID, 5, clocks=clocks)
    assert outcome.stops == []
    assert list(differences(says(log, clocks), outcome.journal, GRID)) == []
    assert lost(outcome, log) == 0
    assert outcome.journal.late == 0


@pytest.mark.parametrize("case", STOPS)
def test_an_engine_whose_clock_is_off_stops_and_loses_nothing(case: str) -> None:
    clocks = STOPS[case]
    log = written(clocks)
    outcome = run(log, GRID, 5, clocks=clocks)
    assert len(outcome.stops) == 1
    assert "this machine's clock is" in outcome.stops[0] or "ran backwards" in outcome.stops[0]
    assert list(differences(says(log, clocks), outcome.journal, GRID)) == []
    assert lost(outcome, log) == 0
    assert outcome.journal.late == 0


@pytest.mark.parametrize("case", BROKERS)
def test_one_broker_of_three_whose_clock_is_off_stops_the_engine(case: str) -> None:
    clocks = Clocks(brokers=(always(0), BROKERS[case], always(0)))
    log = written(clocks)
    outcome = run(log, GRID, 5, clocks=clocks)
    assert "that of broker 2" in outcome.stops[0]
    assert lost(outcome, log) == 0


def test_records_that_a_broker_shows_seconds_after_their_stamp_are_late_and_counted() -> None:
    clocks = Clocks()
    log = written(clocks, slow=(5_900, 8_900))
    outcome = run(log, GRID, 5)
    assert outcome.stops == []
    assert outcome.journal.late >= 20
    assert list(differences(says(log, clocks), outcome.journal, GRID)) == []
    assert lost(outcome, log) == 0


async def _by_the_engine(self: KafkaSource, grid: TickGrid) -> None:
    """Broken, as it was: the engine's clock says which tick has settled."""
    self._stamp = self._clock.now()
    self._settled = max(self._settled, grid.passed(self._stamp - self._settle_ms))


def _latest(stamps: list[Stamp], _: int) -> int:
    """Broken: the broker that is furthest ahead decides."""
    return max(one.stamp for one in stamps)


TWO_AHEAD = Clocks(always(5_000), (always(5_000), always(0), always(0)))
TWINS = {
    "by the engine's clock": (KafkaSource, "_ask_brokers", _by_the_engine, Clocks(always(5_000))),
    "by a step": (KafkaSource, "_ask_brokers", _by_the_engine, Clocks(stepping(5_000))),
    "by the latest broker": (kafka_source, "earliest", _latest, TWO_AHEAD),
}


@pytest.mark.parametrize("twin", TWINS)
def test_a_broken_twin_is_caught(twin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, broken, clocks = TWINS[twin]
    monkeypatch.setattr(where, name, broken)
    log = written(clocks)
    outcome = run(log, GRID, 5, clocks=clocks)
    assert list(differences(says(log, clocks), outcome.journal, GRID))


class OffTheBrokers:
    """This machine's clock as `SystemClock` reads it, off by so many milliseconds from the moment `since` on."""

    def __init__(self, milliseconds: int, since: int = 0) -> None:
        self._off, self._since = milliseconds, since

    def __call__(self) -> int:
        true = system_ms()
        return true + (self._off if true >= self._since else 0)


REAL = Grid(0, 400, 1_200, 8)
SILENT_FROM = 5 * REAL.step


async def _on_a_broker(kafka: str, by: int, *, step: bool) -> tuple[Journalled, Counter[int]]:
    """What an engine's journal holds, and the records of the log by tick; the engine's clock is off from the start, or
    steps.
    """
    topic = fresh_topic_name("skewed")
    await create(kafka, topic, 2, message_timestamp_type="LogAppendTime")
    origin = (system_ms() // REAL.step + 4) * REAL.step
    grid = replace(REAL, origin=origin)
    clock, store = (
        SystemClock(OffTheBrokers(by, origin + 3 * grid.step if step else 0)),
        MemoryStore(),
    )
    pipeline = LivePipeline(topic, topic, kafka, Path(), grid)
    engine = engine_in_memory(pipeline, store, MemorySink(), clock, f"{topic}.private.clock")

    async def write() -> None:
        async with writing(kafka) as producer:
            while (now := system_ms()) < origin + SILENT_FROM:
                await producer.send_and_wait(topic, b'{"kind":"red"}', partition=now % 2)
                await asyncio.sleep(0.02)

    async with asyncio.timeout(60), asyncio.TaskGroup() as both:
        both.create_task(write())
        both.create_task(_stopping(engine, abs(by) > grid.delay // 2))
    stamps = [one.timestamp for one in await records(kafka, topic)]
    found = Counter(grid.tick(stamp) for stamp in stamps if stamp >= origin)
    return Journalled.of(opened(store.commits, KEY, topic)), found


async def _stopping(engine: Engine, stops: bool) -> None:
    if not stops:
        await engine.run()
        return
    with pytest.raises(FailClosed, match=r"this machine's clock is .* s (ahead of|behind)"):
        await engine.run()


@pytest.mark.parametrize(("by", "step"), [(-300, False), (3_000, True)])
async def test_an_engine_on_a_real_broker_counts_exactly_or_stops(
    kafka: str, by: int, step: bool
) -> None:
    journal, log = await _on_a_broker(kafka, by, step=step)
    assert {tick: row[0] for tick, row in journal.rows.items()} == {
        tick: log[tick] for tick in journal.rows
    }
    assert journal.late == 0
    assert len(journal.rows) == REAL.horizon or abs(by) > REAL.delay // 2
