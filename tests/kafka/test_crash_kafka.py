"""kill -9 of runs and feeds over Kafka, at random moments and at fixed points, until the end."""

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from faults.cases import HOUR, START, Case, document, expectation, flights, write
from faults.checker import findings, unfounded
from faults.evidence import milliseconds
from faults.forked import Forked, Run
from faults.kafka_evidence import consumer, over_kafka, source_events
from faults.killing import POINTS, Look, killed_at, killed_at_random
from kafka.kafka_worlds import marks_of

from stream_dp.broker.topics import create_topic
from stream_dp.core.time import TickGrid
from stream_dp.files.records import FieldType, load_records, ticked
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.operate.replay_feed import feed
from stream_dp.testing.kafka import fresh_topic_name

PARTITIONS = 2
DAWDLE = ("--dawdle", "1")
FIELDS = {
    "time": FieldType.TIME,
    "airline": FieldType.CATEGORY,
    "destination": FieldType.CATEGORY,
    "delay": FieldType.INTEGER,
}


def over(kafka: str, folder: Path, ticks: int, block: int = 6) -> Case:
    """The pipeline of `flights`, with a topic as its source; the slice is for the feed."""
    made = flights(folder, ticks)
    name = fresh_topic_name("crash")
    source = {"kind": "kafka", "topic": f"{name}.events", "bootstrap": kafka}
    write(folder, document(name, ticks, block, source))
    return Case(folder, expectation(name, ticks), made.events)


def topic_of(case: Case) -> str:
    return f"{case.expected.pipeline}.events"


def ticks_of(case: Case) -> list[Any]:
    rows = load_records(case.folder / "slice.csv", FIELDS, "time")
    return list(ticked(rows, TickGrid(milliseconds(START), HOUR, case.expected.horizon)))


async def fed(kafka: str, case: Case) -> Case:
    """Create the topic and put everything in."""
    await create_topic(kafka, topic_of(case), PARTITIONS)
    await feed(KafkaSettings(kafka), marks_of(case), ticks_of(case))
    return case


def look(kafka: str, case: Case) -> Look:
    async def now() -> list[str]:
        return unfounded(await over_kafka(kafka, case.expected.pipeline, case.key))

    return now


async def judged(kafka: str, case: Case) -> list[str]:
    """The checker's findings, with the events as the topic holds them."""
    topic = topic_of(case)
    events = await source_events(kafka, topic, case.expected.origin, case.expected.step)
    assert sorted(map(repr, events)) == sorted(map(repr, case.events))
    evidence = await over_kafka(kafka, case.expected.pipeline, case.key)
    return findings(case.expected, events, evidence)


@pytest.mark.timeout(1000)
async def test_nothing_is_lost_or_counted_twice_over_twenty_random_kills(
    kafka: str, tmp_path: Path
) -> None:
    case = await fed(kafka, over(kafka, tmp_path, ticks=300))
    options = ("--zero-noise", *DAWDLE)
    chance = random.Random(20)
    assert await killed_at_random(case, chance, 20, look(kafka, case), *options) == 16
    await asyncio.to_thread(case.finish, "--zero-noise")
    assert await judged(kafka, case) == []


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("noise", [("--zero-noise",), ()])
async def test_every_release_has_one_version_over_kills_at_fixed_points(
    kafka: str, tmp_path: Path, noise: tuple[str, ...]
) -> None:
    """Those in the middle leave an open transaction, which the next start aborts: its records stay readable."""
    case = await fed(kafka, over(kafka, tmp_path, ticks=200).expecting(zero_noise=bool(noise)))
    for point in POINTS:
        await killed_at(case, look(kafka, case), point, *noise, *DAWDLE, anew=point == POINTS[0])
    await asyncio.to_thread(case.finish, *noise)
    assert await judged(kafka, case) == []
    left = await over_kafka(kafka, case.expected.pipeline, case.key)
    assert sum(not record.committed for record in left.public) > 0


def feeding(case: Case, arguments: Sequence[str], anew: bool) -> Run:
    """A slow feed, in a forked process or in a new interpreter."""
    slow = (*arguments, "--speed", "40")
    if not anew:
        return Forked(slow, case.environment())
    command = [sys.executable, "-c", "from stream_dp.cli.start import start; start()", *slow]
    return subprocess.Popen(
        command, env=case.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.timeout(1000)
async def test_a_feed_killed_in_between_sends_nothing_twice(kafka: str, tmp_path: Path) -> None:
    case = over(kafka, tmp_path, ticks=400)
    topic = topic_of(case)
    await create_topic(kafka, topic, PARTITIONS)
    arguments = [
        "replay", str(case.folder / "slice.csv"), "--topic", topic, "--pipeline", str(case.pipeline),
    ]  # fmt: skip
    chance = random.Random(5)
    every = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    async with consumer(kafka, "read_committed") as reader:
        for kill in range(4):
            before = await reader.end_offsets(every)
            run = feeding(case, arguments, anew=kill == 0)
            async with asyncio.timeout(60):
                while await reader.end_offsets(every) == before:
                    assert run.poll() is None
            await asyncio.sleep(chance.uniform(0, 0.2))
            run.kill()
            await asyncio.to_thread(run.communicate)
            assert run.returncode == -signal.SIGKILL
    run = Forked(arguments, case.environment())
    await asyncio.to_thread(run.communicate)
    assert run.returncode == 0
    await asyncio.to_thread(case.finish, "--zero-noise")
    assert await judged(kafka, case) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(3))
async def test_many_kills_over_a_snapshot(kafka: str, tmp_path: Path, seed: int) -> None:
    case = await fed(kafka, over(kafka, tmp_path, ticks=1500, block=7))
    options = ("--zero-noise", *DAWDLE)
    await killed_at_random(case, random.Random(seed), 40, look(kafka, case), *options)
    for point in POINTS:
        await killed_at(case, look(kafka, case), point, *options, anew=point == POINTS[0])
    await asyncio.to_thread(case.finish, "--zero-noise")
    assert await judged(kafka, case) == []
