"""What a real broker takes of batches sent in bad faith, and what the reader of raw batches finds of them."""

import asyncio
import time
from collections import Counter

from kafka.hostile_batches import HOSTILE
from kafka.hostile_records import GOOD, Hostile, category
from kafka.raw_batches import plain
from kafka.raw_producer import RawTransactions
from kafka.raw_wire import Stored, Wire
from oracles.log_frames import ABORT, COMMIT, Frame, FrameError, frames, marker, values

from stream_dp.broker.topics import create_topic
from stream_dp.testing.kafka import fresh_topic_name

STAMPED = {"message.timestamp.type": "LogAppendTime"}


async def stamped(kafka: str, partitions: int = 1) -> str:
    topic = fresh_topic_name("hostile")
    await create_topic(kafka, topic, partitions, STAMPED)
    return topic


def read(wire: Wire, topic: str, offset: int = 0) -> list[Frame]:
    """The batches from an offset on, as many as one answer holds."""
    return list(frames(wire.fetch(topic, 0, offset)[0]))


def grown(wire: Wire, topic: str, batches: int) -> list[Frame]:
    """The log once it holds so many batches: a broker writes a marker after it has answered."""
    while len(log := read(wire, topic)) < batches:
        time.sleep(0.01)
    return log


def added(frame: Frame) -> tuple[int, int]:
    """How many records of a batch are good, and how many dead."""
    try:
        found = [category(value) is not None for value in values(frame)]
    except FrameError:
        return 0, frame.last_delta + 1
    return sum(found), len(found) - sum(found)


def surprise(wire: Wire, topic: str, one: Hostile) -> str | None:
    stored: Stored = wire.produce(topic, 0, one.encoded())
    if (stored.error == 0) != one.accepted:
        return f"{one.name}: error {stored.error} {stored.message}"
    if not one.accepted:
        return None
    frame = read(wire, topic, stored.base)[0]
    if (frame.base, frame.stamp) != (stored.base, stored.stamp):
        return f"{one.name}: stored elsewhere than said"
    return None if added(frame) == (one.good, one.dead) else f"{one.name}: {added(frame)}"


async def test_what_a_broker_takes_and_how_it_is_counted(kafka: str) -> None:
    topic = await stamped(kafka)

    def surprises() -> list[str]:
        with Wire(kafka) as wire:
            found = [surprise(wire, topic, one) for one in HOSTILE]
        return [one for one in found if one is not None]

    assert await asyncio.to_thread(surprises) == []
    assert Counter(one.accepted for one in HOSTILE)[True] > 54
    assert len({one.name for one in HOSTILE}) == len(HOSTILE)


async def test_interleaved_transactions_lie_in_the_log_as_they_were_driven(kafka: str) -> None:
    topic = await stamped(kafka)

    def driven() -> list[tuple[int, int | None]]:
        with Wire(kafka) as wire:
            first, second, third = (
                RawTransactions(wire, fresh_topic_name("hostile")) for _ in range(3)
            )
            for one in (first, second, first, third):
                assert one.send(topic, 0, plain([GOOD] * 3)).error == 0
            second.end(commit=True)
            grown(wire, topic, 5)
            assert second.send(topic, 0, plain([GOOD])).error == 0
            first.end(commit=False)
            grown(wire, topic, 7)
            second.end(commit=True)
            log = grown(wire, topic, 8)
        names = {log[place].producer: number for number, place in ((1, 0), (2, 1), (3, 3))}
        return [(names[one.producer], marker(one) if one.control else None) for one in log]

    assert await asyncio.to_thread(driven) == [
        (1, None), (2, None), (1, None), (3, None), (2, COMMIT), (2, None), (1, ABORT), (2, COMMIT),
    ]  # fmt: skip
