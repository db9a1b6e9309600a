"""Junk and forged marks among the records of a topic, and topics without events: nothing else changes."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

from aiokafka import AIOKafkaProducer
from faults.cases import Case
from faults.evidence import Letter
from faults.junk import Junk, thousand
from kafka.flight_topics import PARTITIONS, finished, over, ticks_of, topic_of
from kafka.kafka_worlds import marks_of, tick_marks, writing

from stream_dp.broker.topics import create_topic
from stream_dp.journal.dead_letters import BAD_MARK
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.feed import KafkaFeed
from stream_dp.kafka.client.tick_marks import TICK_HEADER

TICKS = 60
TOMBSTONE = Junk(None, "not_json")
EMPTY = Junk(b"", "not_json")


async def topic_over(kafka: str, folder: Path) -> Case:
    case = over(kafka, folder, TICKS)
    await create_topic(kafka, topic_of(case), PARTITIONS)
    return case


async def fed(
    kafka: str, case: Case, begin: int = 0, end: int = TICKS, junk: Sequence[Junk] = ()
) -> list[Letter]:
    """Feed these ticks by a feed that begins anew behind those before, and junk before them; its dead letters."""
    feed = KafkaFeed(KafkaSettings(kafka), marks_of(case))
    try:
        assert await feed.open() == begin
        letters = await mixed_in(kafka, case, junk)
        await feed.send(begin, ticks_of(case)[begin:end])
    finally:
        await feed.close()
    return letters


async def mixed_in(kafka: str, case: Case, junk: Sequence[Junk]) -> list[Letter]:
    chance, topic = random.Random(4), topic_of(case)
    async with AIOKafkaProducer(bootstrap_servers=kafka, linger_ms=5) as junkyard:
        sent = [
            await junkyard.send(topic, one.payload, b"key", chance.randrange(PARTITIONS))
            for one in junk
        ]
        stored = await asyncio.gather(*sent)
    return [
        Letter(at.partition, at.offset, one.reason, one.field)
        for one, at in zip(junk, stored, strict=True)
    ]


async def test_a_thousand_junk_records_are_a_thousand_dead_letters(
    kafka: str, tmp_path: Path
) -> None:
    case = await topic_over(kafka, tmp_path)
    letters: list[Letter] = []
    for begin in range(0, TICKS, 20):
        junk = thousand(TOMBSTONE, EMPTY)[begin // 20 :: 3]
        letters += await fed(kafka, case, begin, begin + 20, junk)
    assert len(letters) == 1000
    assert await finished(kafka, case, letters) == []


async def test_a_topic_of_marks_alone_releases_every_tick(kafka: str, tmp_path: Path) -> None:
    case = await topic_over(kafka, tmp_path)
    (tmp_path / "slice.csv").write_text("time,airline,destination,delay\n")
    await fed(kafka, case)
    assert await finished(kafka, Case(tmp_path, case.expected, (), case.patch)) == []


def forged(case: Case) -> list[bytes]:
    """What nobody with the key of this pipeline signed for partition 0 and its ticks."""
    name, origin, step = topic_of(case), case.expected.origin, case.expected.step
    others = (
        tick_marks(f"{name}.other", case.key, origin, step),
        tick_marks(name, bytes(32), origin, step),
        tick_marks(name, case.key, origin, step + 1),
    )
    return [
        *(b"soon", b"", b"\xff\xfe", b"-1"),
        *(b"%d" % tick for tick in (0, 20, TICKS - 1, TICKS, 10**9, 10**18)),
        *(one.sign(0, 29) for one in others),
        tick_marks(name, case.key, origin, step, TICKS + 1).sign(0, TICKS),
        marks_of(case).sign(1, 29),  # read by whoever may read partition 1, written into 0
    ]


async def test_forged_marks_are_dead_letters_and_copied_ones_nothing(
    kafka: str, tmp_path: Path
) -> None:
    """They lie in partition 0 between two parts of a feed; neither closes a tick."""
    case = await topic_over(kafka, tmp_path)
    await fed(kafka, case, 0, 20)
    await fed(kafka, case, 20, 20)  # begins once the end of the transaction before is in the log
    own, letters = marks_of(case), []
    async with writing(kafka) as producer:
        for value in (*forged(case), own.sign(0, 19), own.sign(0, 0), own.sign(0, 19)):
            headers = [(TICK_HEADER, value)]
            stored = await producer.send_and_wait(topic_of(case), b"", partition=0, headers=headers)
            letters.append(Letter(0, stored.offset, BAD_MARK, None))
    await fed(kafka, case, 20, TICKS)
    assert await finished(kafka, case, letters[:-3]) == []
