"""Junk among the records of a topic, and topics without events: nothing crashes, nothing else changes."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from faults.cases import Case, document, expectation, flights, write
from faults.checker import findings
from faults.evidence import Letter
from faults.junk import Junk, thousand
from faults.kafka_evidence import over_kafka, public_log

from stream_dp.adapters.kafka_client import KafkaSettings
from stream_dp.adapters.kafka_feed import KafkaFeed
from stream_dp.adapters.records import FieldType, load_records, ticked
from stream_dp.broker.topics import create_topic
from stream_dp.core.tick_grid import TickGrid
from stream_dp.testing.kafka import fresh_topic_name

TICKS, PARTITIONS = 100, 2
FIELDS = {
    "time": FieldType.TIME,
    "airline": FieldType.CATEGORY,
    "destination": FieldType.CATEGORY,
    "delay": FieldType.INTEGER,
}
TOMBSTONE = Junk(None, "not_json")
EMPTY = Junk(b"", "not_json")


def over(kafka: str, folder: Path) -> Case:
    made = flights(folder, TICKS)
    name = fresh_topic_name("junk")
    source = {"kind": "kafka", "topic": f"{name}.events", "bootstrap": kafka}
    write(folder, document(name, TICKS, 6, source))
    return Case(folder, expectation(name, TICKS), made.events)


def ticks_of(case: Case) -> list[Any]:
    rows = load_records(case.folder / "slice.csv", FIELDS, "time")
    return list(ticked(rows, TickGrid(case.expected.origin, case.expected.step, TICKS)))


async def mixed(kafka: str, case: Case, junk: Sequence[Junk]) -> list[Letter]:
    """Feed the topic in chunks with junk between them; the dead letters this must give."""
    topic = f"{case.expected.pipeline}.events"
    await create_topic(kafka, topic, PARTITIONS)
    ticks, left, chance = ticks_of(case), list(junk), random.Random(4)
    letters: list[Letter] = []
    feed = KafkaFeed(KafkaSettings(kafka), topic)
    junkyard = AIOKafkaProducer(bootstrap_servers=kafka, linger_ms=5)
    await feed.open()
    await junkyard.start()
    try:
        for begin in range(0, TICKS, 10):
            share, left = left[: len(junk) // 10], left[len(junk) // 10 :]
            where = [chance.randrange(PARTITIONS) for _ in share]
            sent = [
                await junkyard.send(topic, one.payload, key=b"key", partition=partition)
                for one, partition in zip(share, where, strict=True)
            ]
            for one, stored in zip(share, await asyncio.gather(*sent), strict=True):
                letters.append(Letter(stored.partition, stored.offset, one.reason, one.field))
            await feed.send(begin, ticks[begin : begin + 10])
    finally:
        await feed.close()
        await junkyard.stop()
    return letters


async def bodies(kafka: str, case: Case) -> list[bytes]:
    log = await public_log(kafka, f"{case.expected.pipeline}.releases")
    return [one.body for one in log if one.committed]


async def test_a_thousand_junk_records_are_a_thousand_dead_letters(
    kafka: str, tmp_path: Path
) -> None:
    dirty, clean = over(kafka, tmp_path / "junk"), over(kafka, tmp_path / "clean")
    letters = await mixed(kafka, dirty, thousand(TOMBSTONE, EMPTY))
    assert len(letters) == 1000
    await mixed(kafka, clean, ())
    for case, expected in ((dirty, letters), (clean, [])):
        await asyncio.to_thread(case.finish, "--zero-noise")
        left = await over_kafka(kafka, case.expected.pipeline, case.key)
        wanted = case.expecting(letters=tuple(expected)).expected
        assert findings(wanted, case.events, left) == []
    assert await bodies(kafka, dirty) == await bodies(kafka, clean)


async def test_a_topic_of_marks_alone_releases_every_tick(kafka: str, tmp_path: Path) -> None:
    case = over(kafka, tmp_path)
    (tmp_path / "slice.csv").write_text("time,airline,destination,delay\n")
    await mixed(kafka, case, ())
    await asyncio.to_thread(case.finish, "--zero-noise")
    left = await over_kafka(kafka, case.expected.pipeline, case.key)
    assert findings(case.expected, (), left) == []
    assert len(left.public) == TICKS * 5
