"""A topic as a source: what it reads and when a tick passes, and topics that are refused."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import RecordsToDelete
from faults.kafka_transactions import decided
from kafka.hostile_records import GOOD
from kafka.kafka_worlds import (
    CLOCKS,
    ENDLESS,
    SETTLE,
    STEP,
    Parts,
    WallClock,
    administering,
    alter,
    create,
    deleted,
    tick_marks,
    writing,
)
from kafka.raw_batches import RawBatch, plain, record
from kafka.raw_wire import Wire

from stream_dp.core.time import TickGrid
from stream_dp.engine.ports import Batch
from stream_dp.errors import FailClosed, WorldError
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.source import source as kafka_source
from stream_dp.kafka.source.source import KafkaSource, ReplayTicks, StampTicks
from stream_dp.testing.kafka import fresh_topic_name


async def stamped_topic(kafka: str, partitions: int) -> str:
    topic = fresh_topic_name("events")
    return await create(kafka, topic, partitions, message_timestamp_type="LogAppendTime")


def live(parts: Parts, topic: str) -> KafkaSource:
    return source_of(parts, topic, StampTicks(STEP, SETTLE, CLOCKS))


def source_of(
    parts: Parts, topic: str, ticks: StampTicks | ReplayTicks, *, wait: bool = False
) -> KafkaSource:
    source = KafkaSource(parts.settings, topic, WallClock(), ticks, wait=wait)
    parts.closing.append(source.close)
    return source


async def until(source: KafkaSource, ended: Callable[[Sequence[Batch]], bool]) -> list[Batch]:
    batches: list[Batch] = []
    async with asyncio.timeout(60):
        while not ended(batches):
            batches += await source.read()
    return batches


async def during(seconds: float, source: KafkaSource) -> list[Batch]:
    batches: list[Batch] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                batches += await source.read()
    return batches


def marks(batches: Sequence[Batch]) -> dict[int, int]:
    found: dict[int, int] = {}
    for one in batches:
        if one.mark is not None:
            found[one.partition] = max(one.mark, found.get(one.partition, -1))
    return found


def rows(batches: Sequence[Batch]) -> dict[tuple[int, int | None], list[bytes]]:
    found: dict[tuple[int, int | None], list[bytes]] = {}
    for one in batches:
        if one.payloads:
            found.setdefault((one.partition, one.tick), []).extend(one.payloads)
    return found


def values(batches: Sequence[Batch]) -> list[bytes]:
    return [value for one in batches for value in one.payloads]


async def test_no_tick_passes_while_a_record_of_it_is_unread(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where what the reader knows of the end is out of date, and a later batch says that it begins at the unread
    one.
    """
    topic = await stamped_topic(parts.kafka, 2)
    source = live(parts, topic)
    await source.open(WallClock().now())
    await source.seek({})
    await asyncio.to_thread(write, parts.kafka, topic, 1, (0,), 9)
    await asyncio.sleep((2 * STEP + SETTLE) / 1000)
    await asyncio.to_thread(write, parts.kafka, topic, 1, (-10, 1, 2), 0)

    async def outdated(_: object) -> bool:
        return True

    monkeypatch.setattr(source, "_caught_up", outdated)
    await source._pass_silent(set())
    assert source._asking is not None
    await source._asking
    await source._pass_silent(set())
    assert set(marks(source._ready)) == {0}


async def test_reading_goes_on_where_a_commit_stopped(parts: Parts) -> None:
    topic = await stamped_topic(parts.kafka, 1)
    source = live(parts, topic)
    await source.open(WallClock().now())
    await source.seek({})
    async with writing(parts.kafka) as producer:
        for number in range(4):
            await producer.send_and_wait(topic, b"%d" % number)
        await until(source, lambda seen: sum(len(one.payloads) for one in seen) == 4)
        assert source.known_ends() == {0: 4}
        await source.seek({0: 2})
        again = await until(source, lambda seen: sum(len(one.payloads) for one in seen) == 2)
        assert [value for one in again for value in one.payloads] == [b"2", b"3"]
        with pytest.raises(FailClosed, match="made anew"):
            await source.seek({0: 9})
    async with administering(parts.kafka) as admin:
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=3)})
    with pytest.raises(FailClosed, match="deleted"):
        await source.seek({0: 2})


async def test_records_deleted_under_the_reader_stop_it(parts: Parts) -> None:
    topic = await create(parts.kafka, fresh_topic_name("events"))
    source = source_of(parts, topic, ReplayTicks(tick_marks(topic)))
    async with writing(parts.kafka) as producer:
        for _ in range(5):
            await producer.send_and_wait(topic, b"x")
        await source.open(0)
        await source.seek({0: 5})
        source._reader.seek(TopicPartition(topic, 0), 0)
        async with administering(parts.kafka) as admin:
            await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=4)})
        source._reader.seek(TopicPartition(topic, 0), 1)
        with pytest.raises(FailClosed, match="deleted") as caught:
            await until(source, lambda _: False)
    assert "4" not in str(caught.value).replace(topic, "")


def write(kafka: str, topic: str, partition: int, deltas: Sequence[int], others: int) -> None:
    """Send a batch whose records have these offset deltas, and one of `others` records."""
    batches = [RawBatch([record(GOOD, delta) for delta in deltas])]
    if others:
        batches.append(plain([GOOD] * others))
    with Wire(kafka) as wire:
        for one in batches:
            assert wire.produce(topic, partition, one.encoded()).error == 0


async def counted(source: KafkaSource, origin: int) -> int:
    """How many records a source gives up to the end of the tick that holds now."""
    await source.open(origin)
    await source.seek({})
    last = (WallClock().now() - origin) // STEP
    batches = await until(source, lambda seen: min(marks(seen).values(), default=-1) >= last)
    return len(values(batches))


@pytest.mark.parametrize("deltas", [(100, 1, 2), (-5, -5, -5), (2**30, 1, 2)])
async def test_a_batch_whose_deltas_lie_hides_nothing(
    parts: Parts, deltas: tuple[int, ...]
) -> None:
    """A broker that is asked for the first offset of a moment says what they say."""
    topic = await stamped_topic(parts.kafka, 1)
    origin = WallClock().now()
    await asyncio.to_thread(write, parts.kafka, topic, 0, deltas, 50)
    assert await counted(live(parts, topic), origin) == 53


async def test_lying_batches_before_the_origin_hide_nothing(parts: Parts) -> None:
    topic = await stamped_topic(parts.kafka, 1)
    for _ in range(5):
        await asyncio.to_thread(write, parts.kafka, topic, 0, (100, 1, 2), 50)
    await asyncio.sleep(2 * SETTLE / 1000)
    origin = WallClock().now()
    for _ in range(5):
        await asyncio.to_thread(write, parts.kafka, topic, 0, (100, 1, 2), 50)
    assert await counted(live(parts, topic), origin) == 5 * 53


@asynccontextmanager
async def transacting(kafka: str) -> AsyncIterator[AIOKafkaProducer]:
    identity = fresh_topic_name("writer")
    producer = AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=identity)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def test_a_source_that_waits_holds_the_tick_of_an_open_transaction_open(parts: Parts) -> None:
    topic = await stamped_topic(parts.kafka, 1)
    source = source_of(parts, topic, StampTicks(STEP, SETTLE, CLOCKS), wait=True)
    grid = TickGrid(WallClock().now(), STEP)
    await source.open(grid.origin)
    await source.seek({})
    async with transacting(parts.kafka) as producer:
        await producer.begin_transaction()
        await (await producer.send(topic, b"never"))
        await producer.abort_transaction()
        await producer.begin_transaction()
        sent = await (await producer.send(topic, b"slow"))
        early = await during((2 * STEP + SETTLE) / 1000, source)
        assert marks(early).get(0, -1) < grid.tick_of(sent.timestamp)
        assert not rows(early)
        await producer.commit_transaction()
        tick = grid.tick_of(sent.timestamp)
        batches = await until(source, lambda seen: marks(seen).get(0, -1) >= tick)
    assert rows(early + batches) == {(0, tick): [b"slow"]}


async def test_an_open_transaction_holds_no_tick_up(parts: Parts) -> None:
    """What it holds is given where it is committed, with the tick of its stamps: late behind that tick's mark."""
    topic = await stamped_topic(parts.kafka, 1)
    source = live(parts, topic)
    grid = TickGrid(WallClock().now(), STEP)
    await source.open(grid.origin)
    await source.seek({})
    async with (
        transacting(parts.kafka) as producer,
        transacting(parts.kafka) as other,
        writing(parts.kafka) as plain,
    ):
        await producer.begin_transaction()
        slow = await (await producer.send(topic, b"slow"))
        await other.begin_transaction()
        await (await other.send(topic, b"never"))
        free = await plain.send_and_wait(topic, b"free", partition=0)
        late, then = grid.tick_of(slow.timestamp), grid.tick_of(free.timestamp)
        batches = await until(source, lambda seen: marks(seen).get(0, -1) > then)
        assert rows(batches) == {(0, then): [b"free"]}
        await producer.commit_transaction()
        await other.abort_transaction()
        await decided(parts.kafka)
        end = await plain.send_and_wait(topic, b"end", partition=0)
        more = await until(source, lambda seen: b"end" in values(seen))
    assert rows(more) == {(0, late): [b"slow"], (0, grid.tick_of(end.timestamp)): [b"end"]}


async def test_reading_can_be_cancelled_at_once_and_loses_nothing(parts: Parts) -> None:
    topic = await create(parts.kafka, fresh_topic_name("replay"))
    source = source_of(parts, topic, ReplayTicks(tick_marks(topic)))
    await source.open(0)
    await source.seek({})
    waiting = asyncio.create_task(source.read())
    await asyncio.sleep(0.2)
    waiting.cancel()
    for _ in range(20):  # turns of the event loop, too short for any answer of a broker
        await asyncio.sleep(0)
    assert waiting.cancelled()
    async with writing(parts.kafka) as producer:
        await producer.send_and_wait(topic, b"x")
    assert [list(one.payloads) for one in await source.read()] == [[b"x"]]


async def test_what_is_wrong_with_a_source_is_said_in_one_line(parts: Parts) -> None:
    def endless(bootstrap: str) -> Parts:
        return replace(parts, settings=KafkaSettings(bootstrap, patience_s=ENDLESS))

    unknown = live(endless(parts.kafka), fresh_topic_name("no-such"))
    with pytest.raises(WorldError, match="does not exist") as caught:
        await unknown.open(0)
    assert unknown.name in str(caught.value)
    assert parts.kafka in str(caught.value)
    created = await create(parts.kafka, fresh_topic_name("events"))
    with pytest.raises(FailClosed, match=r"kafka-configs\.sh .*LogAppendTime"):
        await live(parts, created).open(0)
    with pytest.raises(WorldError, match=r"127\.0\.0\.1:1"):
        await live(endless("127.0.0.1:1"), created).open(0)


async def test_a_compacted_source_is_refused(parts: Parts) -> None:
    told = r"set cleanup\.policy=delete on it.*kafka-configs\.sh .*cleanup\.policy=delete"
    topic = await create(parts.kafka, fresh_topic_name("events"), cleanup_policy="compact,delete")
    for ticks in (StampTicks(STEP, SETTLE, CLOCKS), ReplayTicks(tick_marks(topic))):
        source = source_of(parts, topic, ticks)
        with pytest.raises(FailClosed, match=told):
            await source.open(0)


async def test_a_source_that_is_deleted_while_it_is_read_is_named(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that is gone is looked for one second only; a broker that is slow has as long as ever."""
    monkeypatch.setattr(kafka_source, "_SILENCE_S", 1.0)
    topic = await stamped_topic(parts.kafka, 1)
    source = live(parts, topic)
    await source.open(WallClock().now())
    source._watch._settings = replace(parts.settings, patience_s=1.0)
    await source.seek({})
    async with administering(parts.kafka) as admin:
        await deleted(admin, topic)
    with pytest.raises(WorldError, match=f"{topic}.* was deleted"):
        await until(source, lambda _: False)


async def test_records_with_stamps_of_their_producers_are_refused(parts: Parts) -> None:
    topic = await create(parts.kafka, fresh_topic_name("events"))
    origin = WallClock().now()
    async with writing(parts.kafka) as producer:
        await producer.send_and_wait(topic, b"x")
    await alter(parts.kafka, topic, {"message.timestamp.type": "LogAppendTime"})
    source = live(parts, topic)
    await source.open(origin)
    await source.seek({})
    with pytest.raises(FailClosed, match="did not stamp"):
        await until(source, lambda _: False)
