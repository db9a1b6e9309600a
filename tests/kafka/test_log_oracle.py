"""Engines on a real broker against the oracle of the log: hostile batches, transactions, all sizes, tick by tick."""

import asyncio
import subprocess
import time
from pathlib import Path

import pytest
from kafka.hostile_mix import WORLDS, Mix, accepted
from kafka.log_worlds import LivePipeline, differences, says
from oracles.kafka_log import Grid

from stream_dp.broker.topics import create_topic
from stream_dp.testing.kafka import fresh_topic_name

STEP, DELAY, TICKS = 400, 1_000, 24
QUIET_TICKS = 5  # at the end: nothing is sent in them, so that nothing lies behind the last tick
WARM_SECONDS = 5.0  # before the origin: an engine starts, and some records come too early to count
PARTITIONS, SEED = 3, 9
PATIENCE = 120.0  # seconds from the last record on: an engine that is held up by one never ends


def grid() -> Grid:
    origin = int((time.time() + WARM_SECONDS) * 1000) // STEP * STEP
    return Grid(origin, STEP, DELAY, TICKS)


async def ended(run: "subprocess.Popen[str]") -> None:
    """Wait for an engine's end, which must be a good one."""
    try:
        _, errors = await asyncio.to_thread(run.communicate, timeout=PATIENCE)
    finally:
        run.kill()
    assert run.returncode == 0, errors


@pytest.mark.parametrize("world", WORLDS)
async def test_rows_late_ones_and_dead_letters_are_those_of_the_log(
    kafka: str, tmp_path: Path, world: str
) -> None:
    """One engine runs while the log is written, another one reads it when all is over."""
    topic = fresh_topic_name("mixed")
    await create_topic(kafka, topic, PARTITIONS, {"message.timestamp.type": "LogAppendTime"})
    await asyncio.to_thread(accepted, dear=True)
    mix = await asyncio.to_thread(Mix, kafka, topic, PARTITIONS, SEED, world)
    ticks = grid()  # from here on time runs
    pipelines = [
        LivePipeline(fresh_topic_name("mixed"), topic, kafka, tmp_path / name, ticks).written()
        for name in ("live", "after")
    ]
    end = (ticks.origin + (TICKS - QUIET_TICKS) * STEP) / 1000
    with pipelines[0].start("--until-end") as live:
        await asyncio.to_thread(mix.until, end)
        await ended(live)
    with pipelines[1].start("--until-end") as after:
        await ended(after)
    log = await asyncio.to_thread(says, kafka, topic, ticks)
    assert log.late
    assert bool(log.dead) == (world == "all")
    assert sum(bool(log.tick(number)) for number in range(TICKS)) > TICKS // 3
    for pipeline in pipelines:
        assert list(differences(log, await pipeline.journal(), ticks)) == []
