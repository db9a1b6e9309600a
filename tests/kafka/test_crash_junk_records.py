"""Junk among the records of a topic, and topics without events: nothing crashes, nothing else changes."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from faults.cases import Case, document, expectation, flights, write
from faults.checker import findings
from faults.evidence import Letter
from faults.junk import KINDS, Junk, thousand
from faults.kafka_evidence import over_kafka, public_log
from kafka.kafka_worlds import marks_of

from stream_dp.broker.topics import create_topic
from stream_dp.core.time import TickGrid
from stream_dp.files.records import FieldType, load_records, ticked
from stream_dp.journal.dead_letters import DETAIL
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.feed import KafkaFeed
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
    feed = KafkaFeed(KafkaSettings(kafka), marks_of(case))
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


async def fed(kafka: str, case: Case) -> Counter[tuple[int, str, str | None]]:
    """Flood the topic once a feed has begun, then feed all ticks, marks included; return what was sent as junk."""
    ticks, feed = ticks_of(case), KafkaFeed(KafkaSettings(kafka), marks_of(case))
    await feed.open()
    try:
        sent = await flood(kafka, marks_of(case).topic)
        for begin in range(0, TICKS, 10):
            await feed.send(begin, ticks[begin : begin + 10])
    finally:
        await feed.close()
    return sent


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


MANY = 1_000_000
FLOOD = [one for one in (*KINDS, TOMBSTONE) if len(one.payload or b"") < 200]


async def flood(kafka: str, topic: str) -> Counter[tuple[int, str, str | None]]:
    """Junk in every partition before the first mark, one kind after the other: no two neighbours are alike."""
    producer = AIOKafkaProducer(bootstrap_servers=kafka, max_batch_size=200_000)
    await producer.start()
    sent: Counter[tuple[int, str, str | None]] = Counter()
    kinds = cycle(FLOOD)
    try:
        while sum(sent.values()) < MANY:
            for partition in range(PARTITIONS):
                batch = producer.create_batch()
                one = next(kinds)
                while batch.append(key=None, value=one.payload, timestamp=None):
                    sent[partition, one.reason, one.field] += 1
                    one = next(kinds)
                await producer.send_batch(batch, topic, partition=partition)
        await producer.flush()
    finally:
        await producer.stop()
    return sent


async def test_any_number_of_junk_records_in_one_commit_delays_nothing_and_is_counted(
    kafka: str, tmp_path: Path
) -> None:
    """As Kafka records of their own they went beyond the transaction's time, at every start again."""
    case = over(kafka, tmp_path)
    topic = f"{case.expected.pipeline}.events"
    await create_topic(kafka, topic, PARTITIONS)
    sent = await fed(kafka, case)
    await asyncio.to_thread(case.finish, "--zero-noise")
    left = await over_kafka(kafka, case.expected.pipeline, case.key)
    letters = [letter[1:] for commit in left.commits for letter in commit["dead_letters"]]
    counted: Counter[tuple[int, str, str | None]] = Counter()
    for partition, reason, field, records, _ in letters:
        counted[partition, reason, field] += records
    assert counted == sent
    assert sum(len(ranges) for *_, ranges in letters) == DETAIL
    flooded = [commit for commit in left.commits if commit["dead_letters"]]
    assert [commit["ticks"][0] for commit in flooded] == [0]
    for commit in left.commits:
        commit["dead_letters"] = []
    assert findings(case.expected, case.events, left) == []
