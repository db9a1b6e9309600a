"""Workers that read lanes of a real topic: killed, paused, of another version: nothing counts twice."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from faults.cases import Case
from faults.forked import Forked
from kafka.flight_topics import PARTITIONS, judged, over, ticks_of, topic_of
from kafka.kafka_worlds import marks_of

from stream_dp.broker.topics import create_topic
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.operate.replay_feed import feed

TICKS = 40


@contextmanager
def worker(case: Case, patch: str = "") -> Iterator[Forked]:
    run = Forked(("worker", str(case.pipeline)), case.environment(), patch=patch)
    try:
        yield run
    finally:
        run.kill()
        run.communicate()


async def with_topic(kafka: str, folder: Path) -> Case:
    case = over(kafka, folder, TICKS, workers={"lanes": PARTITIONS})
    await create_topic(kafka, topic_of(case), PARTITIONS)
    return case


async def fed_up_to(kafka: str, case: Case, end: int) -> None:
    await feed(KafkaSettings(kafka), marks_of(case), ticks_of(case)[:end])


async def test_one_worker_counts_what_one_process_does(kafka: str, tmp_path: Path) -> None:
    case = await with_topic(kafka, tmp_path)
    await fed_up_to(kafka, case, TICKS)
    with worker(case):
        await asyncio.to_thread(case.finish, "--zero-noise")
    assert await judged(kafka, case) == []
