"""Records whose offset deltas lie, where a broker is asked for the first offset of a moment: it says what they say.

A batch with the deltas 100, 1, 2 at offset 0 is found at offset 100, one with -5 not at all, one with 2**30 makes the
broker say that nothing is there. Nothing of what others have sent may be lost by that.
"""

import asyncio
import time

import pytest
from kafka.hostile_records import GOOD
from kafka.kafka_worlds import CLOCKS, Close, grow
from kafka.raw_batches import RawBatch, plain, record
from kafka.raw_wire import Wire

from stream_dp.broker.topics import create_topic
from stream_dp.files.system_clock import SystemClock
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.source.source import KafkaSource, StampTicks
from stream_dp.testing.kafka import fresh_topic_name

STEP, SETTLE, OTHERS = 1_000, 300, 50


async def stamped(kafka: str) -> str:
    """A new topic of one partition, stamped by its broker."""
    topic = fresh_topic_name("fooled")
    await create_topic(kafka, topic, 1, {"message.timestamp.type": "LogAppendTime"})
    return topic


def live(kafka: str, topic: str) -> KafkaSource:
    """A source of live ticks."""
    return KafkaSource(KafkaSettings(kafka), topic, SystemClock(), StampTicks(STEP, SETTLE, CLOCKS))


def write(kafka: str, topic: str, partition: int, deltas: tuple[int, ...], others: int) -> None:
    """Send a batch whose records have these deltas, and one of `others` records."""
    batches = [RawBatch([record(GOOD, delta) for delta in deltas])]
    if others:
        batches.append(plain([GOOD] * others))
    with Wire(kafka) as wire:
        for one in batches:
            assert wire.produce(topic, partition, one.encoded()).error == 0


async def counted(kafka: str, topic: str, origin: int) -> int:
    """How many records a source gives up to the end of the tick that holds now."""
    source = live(kafka, topic)
    last, found = (int(time.time() * 1000) - origin) // STEP, 0
    await source.open(origin)
    await source.seek({})
    try:
        async with asyncio.timeout(60):
            while True:
                for batch in await source.read():
                    found += len(batch.payloads)
                    if batch.mark is not None and batch.mark >= last:
                        return found
    finally:
        await source.close()


@pytest.mark.parametrize("deltas", [(0, 1, 2), (100, 1, 2), (2, 1, 0), (-5, -5, -5), (2**30, 1, 2)])
async def test_a_batch_whose_deltas_lie_hides_nothing(kafka: str, deltas: tuple[int, ...]) -> None:
    topic = await stamped(kafka)
    origin = int(time.time() * 1000)
    await asyncio.to_thread(write, kafka, topic, 0, deltas, OTHERS)
    assert await counted(kafka, topic, origin) == len(deltas) + OTHERS


async def test_what_came_before_the_origin_hides_nothing_either(kafka: str) -> None:
    """The source looks for its start among batches that all lie before or behind the origin."""
    topic = await stamped(kafka)
    for _ in range(5):
        await asyncio.to_thread(write, kafka, topic, 0, (100, 1, 2), OTHERS)
    await asyncio.sleep(2 * SETTLE / 1000)
    origin = int(time.time() * 1000)
    for _ in range(5):
        await asyncio.to_thread(write, kafka, topic, 0, (100, 1, 2), OTHERS)
    assert await counted(kafka, topic, origin) == 5 * (3 + OTHERS)


async def test_a_partition_that_was_added_is_read_whole(kafka: str, closing: list[Close]) -> None:
    topic = await stamped(kafka)
    source = live(kafka, topic)
    closing.append(source.close)
    await source.open(int(time.time() * 1000))
    await source.seek({})
    await grow(kafka, topic, 2)
    await asyncio.to_thread(write, kafka, topic, 1, (100, 1, 2), OTHERS)
    found = 0
    async with asyncio.timeout(60):
        while found < 3 + OTHERS:
            found += sum(len(one.payloads) for one in await source.read() if one.partition == 1)
    assert found == 3 + OTHERS


async def test_no_tick_passes_while_a_record_of_it_is_unread(
    kafka: str, closing: list[Close], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of later says that it begins where the unread ones do, and what the reader knows is out of date."""
    topic = await stamped(kafka)
    source = live(kafka, topic)
    closing.append(source.close)
    origin = int(time.time() * 1000)
    await source.open(origin)
    await source.seek({})
    await asyncio.to_thread(write, kafka, topic, 0, (0,), OTHERS - 1)
    unread = (int(time.time() * 1000) - origin) // STEP  # the tick they lie in, or a later one
    await asyncio.sleep((STEP + 2 * SETTLE) / 1000)
    await asyncio.to_thread(write, kafka, topic, 0, (-OTHERS, 1, 2), 0)

    async def outdated(_: object) -> bool:
        return True

    monkeypatch.setattr(source, "_caught_up", outdated)
    monkeypatch.setattr(source, "_ask_when_due", lambda _: None)
    monkeypatch.setattr(source, "_settled", unread)
    await source._pass_silent(set())
    assert [one.mark for one in source._ready] == []
