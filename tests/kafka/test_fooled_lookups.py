"""Records whose offset deltas lie, where a broker is asked for the first offset of a moment: it says what they say.

A batch with the deltas 100, 1, 2 at offset 0 is found at offset 100, one with -5 not at all, one with 2**30 makes the
broker say that nothing is there. Nothing of what others have sent may be lost by that.
"""

import asyncio
import time

import pytest
from kafka.hostile_records import GOOD
from kafka.raw_batches import RawBatch, plain, record
from kafka.raw_wire import Wire

from stream_dp.adapters.kafka_client import KafkaSettings
from stream_dp.adapters.kafka_source import KafkaSource, StampTicks
from stream_dp.adapters.system_clock import SystemClock
from stream_dp.broker.topics import create_topic
from stream_dp.testing.kafka import fresh_topic_name

STEP, SETTLE, OTHERS = 1_000, 300, 50
FOUND_WRONGLY = (
    "the source begins where the broker's look-up by time says, which such a batch decides"
)


async def counted(kafka: str, topic: str, origin: int) -> int:
    """How many records a source gives up to the end of the tick that holds now."""
    source = KafkaSource(KafkaSettings(kafka), topic, SystemClock(), StampTicks(STEP, SETTLE))
    last, found = (int(time.time() * 1000) - origin) // STEP, 0
    await source.open(origin)
    try:
        async with asyncio.timeout(60):
            while True:
                for batch in await source.read():
                    found += len(batch.payloads)
                    if batch.mark is not None and batch.mark >= last:
                        return found
    finally:
        await source.close()


@pytest.mark.parametrize(
    "deltas",
    [
        (0, 1, 2),
        *(
            pytest.param(one, marks=pytest.mark.xfail(reason=FOUND_WRONGLY, strict=True))
            for one in ((100, 1, 2), (2, 1, 0), (-5, -5, -5), (2**30, 1, 2))
        ),
    ],
)
async def test_a_batch_whose_deltas_lie_hides_nothing(kafka: str, deltas: tuple[int, ...]) -> None:
    topic = fresh_topic_name("fooled")
    await create_topic(kafka, topic, 1, {"message.timestamp.type": "LogAppendTime"})
    origin = int(time.time() * 1000)

    def write() -> None:
        with Wire(kafka) as wire:
            lying = RawBatch([record(GOOD, delta) for delta in deltas])
            assert wire.produce(topic, 0, lying.encoded()).error == 0
            assert wire.produce(topic, 0, plain([GOOD] * OTHERS).encoded()).error == 0

    await asyncio.to_thread(write)
    assert await counted(kafka, topic, origin) == len(deltas) + OTHERS
