"""The pipeline over the flights with a topic as its source, that topic with its events, and what a run has left."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from faults.cases import Case, document, expectation, flights, write
from faults.checker import findings, unfounded
from faults.evidence import Letter
from faults.kafka_evidence import over_kafka
from faults.killing import Look
from kafka.kafka_worlds import AT_ONCE, marks_of

from stream_dp.broker.topics import create_topic
from stream_dp.core.time import TickGrid
from stream_dp.files.records import load_records, ticked
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.operate.replay_feed import feed
from stream_dp.records.schema import CategoryField, Fields, IntegerField, TimeField
from stream_dp.testing.kafka import fresh_topic_name

PARTITIONS = 2
FIELDS: Fields = {
    "time": TimeField(),
    "airline": CategoryField(domain=("a",)),
    "destination": CategoryField(domain=("a",)),
    "delay": IntegerField(),
}


def over(kafka: str, folder: Path, ticks: int, **source: Any) -> Case:
    """The pipeline of `flights` on a topic that is not there yet; the slice is for the feed."""
    made = flights(folder, ticks)
    name = fresh_topic_name("flights")
    from_topic = {"kind": "kafka", "topic": f"{name}.events", "bootstrap": kafka, **source}
    write(folder, document(name, ticks, 6, from_topic))
    return Case(folder, expectation(name, ticks), made.events, AT_ONCE)


def topic_of(case: Case) -> str:
    return f"{case.expected.pipeline}.events"


def ticks_of(case: Case) -> list[Any]:
    rows = load_records(case.folder / "slice.csv", FIELDS, "time")
    expected = case.expected
    return list(ticked(rows, TickGrid(expected.origin, expected.step, expected.horizon)))


async def fed(kafka: str, folder: Path, ticks: int, **source: Any) -> Case:
    """The pipeline, with all its events in the topic."""
    case = over(kafka, folder, ticks, **source)
    await create_topic(kafka, topic_of(case), PARTITIONS)
    await feed(KafkaSettings(kafka), marks_of(case), ticks_of(case))
    return case


def look(kafka: str, case: Case) -> Look:
    async def now() -> list[str]:
        return unfounded(await over_kafka(kafka, case.expected.pipeline, case.key, case.folder))

    return now


async def judged(kafka: str, case: Case, letters: Sequence[Letter] = ()) -> list[str]:
    """The checker's findings on a run that came to its end."""
    evidence = await over_kafka(kafka, case.expected.pipeline, case.key, case.folder)
    wanted = case.expecting(letters=tuple(letters)).expected
    return findings(wanted, case.events, evidence)


async def finished(kafka: str, case: Case, letters: Sequence[Letter] = ()) -> list[str]:
    """Run to the end without noise; the checker's findings."""
    await asyncio.to_thread(case.finish, "--zero-noise")
    return await judged(kafka, case, letters)
