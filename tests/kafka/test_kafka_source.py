"""A topic as a source: ticks by append stamp and by marks, positions, and sources that are refused."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import RecordsToDelete
from faults.kafka_transactions import decided
from kafka.kafka_worlds import (
    CLOCKS,
    ENDLESS,
    SETTLE,
    STEP,
    Close,
    WallClock,
    administering,
    alter,
    create,
    deleted,
    tick_marks,
    writing,
)

from stream_dp.core.time import TickGrid
from stream_dp.engine.ports import Batch
from stream_dp.errors import FailClosed, WorldError
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.tick_marks import TICK_HEADER
from stream_dp.kafka.source import source as kafka_source
from stream_dp.kafka.source.source import KafkaSource, ReplayTicks, StampTicks
from stream_dp.testing.kafka import fresh_topic_name


async def stamped_topic(kafka: str, partitions: int) -> str:
    topic = fresh_topic_name("events")
    return await create(kafka, topic, partitions, message_timestamp_type="LogAppendTime")


def live(settings: KafkaSettings, topic: str, closing: list[Close]) -> KafkaSource:
    source = KafkaSource(settings, topic, WallClock(), StampTicks(STEP, SETTLE, CLOCKS))
    closing.append(source.close)
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
    """The payloads by partition and tick."""
    found: dict[tuple[int, int | None], list[bytes]] = {}
    for one in batches:
        if one.payloads:
            found.setdefault((one.partition, one.tick), []).extend(one.payloads)
    return found


def values(batches: Sequence[Batch]) -> list[bytes]:
    """All payloads, in the order given."""
    return [value for one in batches for value in one.payloads]


async def test_live_ticks_pass_with_one_silent_partition(
    kafka: str, settings: KafkaSettings, closing: list[Close]
) -> None:
    topic = await stamped_topic(kafka, 2)
    source = live(settings, topic, closing)
    origin = WallClock().now() // STEP * STEP
    assert await source.open(origin) == (0, 1)
    await source.seek({})

    async def write() -> dict[bytes, int]:
        ticks: dict[bytes, int] = {}
        async with writing(kafka) as producer:
            for number in range(40):
                value = b"%d" % number
                sent = await producer.send_and_wait(topic, value, partition=0)
                ticks[value] = (sent.timestamp - origin) // STEP
                await asyncio.sleep(0.05)
        return ticks

    writer = asyncio.create_task(write())
    batches = await until(source, lambda seen: min(marks(seen).get(at, -1) for at in (0, 1)) >= 6)
    ticks = await writer
    batches += await until(source, lambda seen: marks(seen).get(0, -1) >= max(ticks.values()))
    found = {value: tick for (_, tick), values in rows(batches).items() for value in values}
    assert found == ticks
    assert sum(len(one.payloads) for one in batches) == 40
    behind: dict[int, int] = {}
    for one in batches:
        if one.tick is not None:
            assert one.tick > behind.get(one.partition, -1)
        if one.mark is not None:
            behind[one.partition] = one.mark


async def test_a_throttled_reader_and_a_late_one_cut_alike(
    kafka: str, settings: KafkaSettings, closing: list[Close]
) -> None:
    topic = await stamped_topic(kafka, 2)
    origin = WallClock().now() // STEP * STEP
    slow = live(settings, topic, closing)
    await slow.open(origin)
    await slow.seek({})

    async def write() -> None:
        async with writing(kafka) as producer:
            for number in range(60):
                for _ in range(20):
                    await producer.send(topic, b"%d" % number, partition=number % 2)
                await producer.flush()
                await asyncio.sleep(0.02)

    writer = asyncio.create_task(write())
    first: list[Batch] = []
    while sum(len(one.payloads) for one in first) < 1200:
        first += await slow.read()
        await asyncio.sleep(0.15)
    await writer
    last = max(tick for _, tick in rows(first) if tick is not None)
    first += await until(slow, lambda seen: min(marks(seen).get(at, -1) for at in (0, 1)) >= last)
    late = live(settings, topic, closing)
    await late.open(origin)
    await late.seek({})
    second = await until(late, lambda seen: min(marks(seen).get(at, -1) for at in (0, 1)) >= last)
    assert rows(second) == rows(first)


async def test_no_tick_passes_while_a_record_of_it_is_unread(
    kafka: str, settings: KafkaSettings, closing: list[Close], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where what the reader knows of the end is out of date."""
    topic = await stamped_topic(kafka, 2)
    source = live(settings, topic, closing)
    await source.open(WallClock().now())
    await source.seek({})
    async with writing(kafka) as producer:
        await producer.send_and_wait(topic, b"unread", partition=1)
    await asyncio.sleep((2 * STEP + SETTLE) / 1000)

    async def outdated(_: object) -> bool:
        return True

    monkeypatch.setattr(source, "_caught_up", outdated)
    await source._pass_silent(set())
    assert source._asking is not None
    await source._asking
    await source._pass_silent(set())
    assert set(marks(source._ready)) == {0}


async def test_reading_goes_on_where_a_commit_stopped(
    kafka: str, settings: KafkaSettings, closing: list[Close]
) -> None:
    topic = await stamped_topic(kafka, 1)
    source = live(settings, topic, closing)
    await source.open(WallClock().now())
    await source.seek({})
    async with writing(kafka) as producer:
        for number in range(4):
            await producer.send_and_wait(topic, b"%d" % number)
        await until(source, lambda seen: sum(len(one.payloads) for one in seen) == 4)
        await source.seek({0: 2})
        again = await until(source, lambda seen: sum(len(one.payloads) for one in seen) == 2)
        assert [value for one in again for value in one.payloads] == [b"2", b"3"]
        with pytest.raises(FailClosed, match="made anew"):
            await source.seek({0: 9})
    async with administering(kafka) as admin:
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=3)})
    with pytest.raises(FailClosed, match="deleted"):
        await source.seek({0: 2})


async def test_records_deleted_under_the_reader_stop_it(
    kafka: str, settings: KafkaSettings, closing: list[Close]
) -> None:
    topic = await create(kafka, fresh_topic_name("events"))
    source = KafkaSource(settings, topic, WallClock(), ReplayTicks(tick_marks(topic)))
    closing.append(source.close)
    async with writing(kafka) as producer:
        for _ in range(5):
            await producer.send_and_wait(topic, b"x")
        await source.open(0)
        await source.seek({0: 5})
        source._reader.seek(TopicPartition(topic, 0), 0)
        async with administering(kafka) as admin:
            await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=4)})
        source._reader.seek(TopicPartition(topic, 0), 1)
        with pytest.raises(FailClosed, match="deleted") as caught:
            await until(source, lambda _: False)
    assert "4" not in str(caught.value).replace(topic, "")


async def test_records_before_the_origin_are_not_read(
    kafka: str, settings: KafkaSettings, closing: list[Close]
) -> None:
    topic = await stamped_topic(kafka, 2)
    async with writing(kafka) as producer:
        await producer.send_and_wait(topic, b"old", partition=0)
        await asyncio.sleep(0.05)
        source = live(settings, topic, closing)
        await source.open(WallClock().now())
        await source.seek({})
        await asyncio.sleep(0.05)
        await producer.send_and_wait(topic, b"new", partition=0)
        batches = await until(source, lambda seen: bool(rows(seen)))
    assert [value for values in rows(batches).values() for value in values] == [b"new"]


@asynccontextmanager
async def transacting(kafka: str) -> AsyncIterator[AIOKafkaProducer]:
    identity = fresh_topic_name("writer")
    producer = AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=identity)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def test_a_source_that_waits_holds_the_tick_of_an_open_transaction_open(
    kafka: str, settings: KafkaSettings, closing: list[Close]
) -> None:
    topic = await stamped_topic(kafka, 1)
    source = KafkaSource(settings, topic, WallClock(), StampTicks(STEP, SETTLE, CLOCKS), wait=True)
    closing.append(source.close)
    grid = TickGrid(WallClock().now(), STEP)
    await source.open(grid.origin)
    await source.seek({})
    async with transacting(kafka) as producer:
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


async def test_an_open_transaction_holds_no_tick_up(
    kafka: str, settings: KafkaSettings, closing: list[Close]
) -> None:
    """What it holds is given where it is committed, with the tick of its stamps: late behind that tick's mark."""
    topic = await stamped_topic(kafka, 1)
    source = live(settings, topic, closing)
    grid = TickGrid(WallClock().now(), STEP)
    await source.open(grid.origin)
    await source.seek({})
    async with transacting(kafka) as producer, transacting(kafka) as other, writing(kafka) as plain:
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
        await decided(kafka)
        end = await plain.send_and_wait(topic, b"end", partition=0)
        more = await until(source, lambda seen: b"end" in values(seen))
    assert rows(more) == {(0, late): [b"slow"], (0, grid.tick_of(end.timestamp)): [b"end"]}


async def test_a_transaction_too_large_to_be_held_is_fetched_again(
    kafka: str, settings: KafkaSettings, closing: list[Close], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_source, "ROOM_BYTES", 200)
    topic = await stamped_topic(kafka, 1)
    source = live(settings, topic, closing)
    await source.open(0)
    await source.seek({})
    async with transacting(kafka) as producer, transacting(kafka) as other:
        await producer.begin_transaction()
        await other.begin_transaction()
        for number in range(20):
            await (await producer.send(topic, b"value %d" % number))
            await (await other.send(topic, b"other %d" % number))
        await other.abort_transaction()
        await producer.commit_transaction()
        await producer.begin_transaction()
        await (await producer.send(topic, b"never"))
        batches = await until(source, lambda seen: len(values(seen)) >= 20)
        batches += await during(0.3, source)
        await producer.abort_transaction()
    assert values(batches) == [b"value %d" % number for number in range(20)]


async def test_replay_marks_come_from_records(
    kafka: str, settings: KafkaSettings, closing: list[Close]
) -> None:
    topic = await create(kafka, fresh_topic_name("replay"), 2)
    signed = tick_marks(topic)
    async with writing(kafka) as producer:
        for partition in (0, 1):
            for tick in range(3):
                if partition == 0:
                    await producer.send_and_wait(topic, b"%d" % tick, partition=0)
                mark = [(TICK_HEADER, signed.sign(partition, tick))]
                await producer.send_and_wait(topic, b"", partition=partition, headers=mark)
    source = KafkaSource(settings, topic, WallClock(), ReplayTicks(signed))
    closing.append(source.close)
    assert await source.open(0) == (0, 1)
    await source.seek({})
    assert source.name == topic
    batches = await until(source, lambda seen: marks(seen) == {0: 2, 1: 2})
    zero = [one for one in batches if one.partition == 0]
    assert [(list(one.payloads), one.mark, one.position, one.tick) for one in zero] == [
        ([b"0"], 0, 2, None),
        ([b"1"], 1, 4, None),
        ([b"2"], 2, 6, None),
    ]
    await source.seek({0: 4, 1: 3})
    again = await until(source, lambda seen: marks(seen) == {0: 2})
    assert [list(one.payloads) for one in again] == [[b"2"]]


async def test_reading_can_be_cancelled_at_once_and_loses_nothing(
    kafka: str, settings: KafkaSettings, closing: list[Close]
) -> None:
    topic = await create(kafka, fresh_topic_name("replay"))
    source = KafkaSource(settings, topic, WallClock(), ReplayTicks(tick_marks(topic)))
    closing.append(source.close)
    await source.open(0)
    await source.seek({})
    waiting = asyncio.create_task(source.read())
    await asyncio.sleep(0.2)
    waiting.cancel()
    for _ in range(20):  # turns of the event loop, too short for any answer of a broker
        await asyncio.sleep(0)
    assert waiting.cancelled()
    async with writing(kafka) as producer:
        await producer.send_and_wait(topic, b"x")
    assert [list(one.payloads) for one in await source.read()] == [[b"x"]]


async def test_what_is_wrong_with_a_source_is_said_in_one_line(
    kafka: str, settings: KafkaSettings, closing: list[Close]
) -> None:
    unknown = live(KafkaSettings(kafka, patience_s=ENDLESS), fresh_topic_name("no-such"), closing)
    with pytest.raises(WorldError, match="does not exist") as caught:
        await unknown.open(0)
    assert unknown.name in str(caught.value)
    assert settings.bootstrap in str(caught.value)
    created = await create(kafka, fresh_topic_name("events"))
    with pytest.raises(FailClosed, match=r"kafka-configs\.sh .*LogAppendTime"):
        await live(settings, created, closing).open(0)
    with pytest.raises(WorldError, match=r"127\.0\.0\.1:1"):
        await live(KafkaSettings("127.0.0.1:1", patience_s=ENDLESS), created, closing).open(0)


async def test_a_compacted_source_is_refused(
    kafka: str, settings: KafkaSettings, closing: list[Close]
) -> None:
    told = r"set cleanup\.policy=delete on it.*kafka-configs\.sh .*cleanup\.policy=delete"
    for policy in ("compact", "compact,delete"):
        name = fresh_topic_name("events")
        stamps = "LogAppendTime"
        topic = await create(kafka, name, cleanup_policy=policy, message_timestamp_type=stamps)
        for ticks in (StampTicks(STEP, SETTLE, CLOCKS), ReplayTicks(tick_marks(topic))):
            source = KafkaSource(settings, topic, WallClock(), ticks)
            closing.append(source.close)
            with pytest.raises(FailClosed, match=told):
                await source.open(0)


async def test_a_source_that_is_deleted_while_it_is_read_is_named(
    kafka: str, settings: KafkaSettings, closing: list[Close], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that is gone is looked for one second only; a broker that is slow has as long as ever."""
    monkeypatch.setattr(kafka_source, "_SILENCE_S", 1.0)
    topic = await stamped_topic(kafka, 1)
    source = live(settings, topic, closing)
    await source.open(WallClock().now())
    source._watch._settings = replace(settings, patience_s=1.0)
    await source.seek({})
    async with administering(kafka) as admin:
        await deleted(admin, topic)
    with pytest.raises(WorldError, match=f"{topic}.* was deleted"):
        await until(source, lambda _: False)


async def test_records_with_stamps_of_their_producers_are_refused(
    kafka: str, settings: KafkaSettings, closing: list[Close]
) -> None:
    topic = await create(kafka, fresh_topic_name("events"))
    origin = WallClock().now()
    async with writing(kafka) as producer:
        await producer.send_and_wait(topic, b"x")
    await alter(kafka, topic, {"message.timestamp.type": "LogAppendTime"})
    source = live(settings, topic, closing)
    await source.open(origin)
    await source.seek({})
    with pytest.raises(FailClosed, match="did not stamp"):
        await until(source, lambda _: False)
