"""Journal, sink and source against a real Kafka: atomicity, fencing, wiped journals, ticks."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete

from stream_dp.adapters import kafka_source
from stream_dp.adapters.kafka_client import KafkaSettings
from stream_dp.adapters.kafka_feed import KafkaFeed
from stream_dp.adapters.kafka_journal import KafkaJournal
from stream_dp.adapters.kafka_lease import KafkaLease, _abandon
from stream_dp.adapters.kafka_sink import KafkaSink
from stream_dp.adapters.kafka_source import KafkaSource, ReplayTicks, StampTicks
from stream_dp.adapters.kafka_ticks import TICK_HEADER
from stream_dp.adapters.kafka_topics import config
from stream_dp.adapters.records import Record
from stream_dp.app.run_pipeline import run_pipeline
from stream_dp.app.running import Setup
from stream_dp.broker import LocalKafka, create_topic
from stream_dp.cli.replay import replay
from stream_dp.cli.topic import topic as make_topic
from stream_dp.core.tick_grid import TickGrid
from stream_dp.errors import FailClosed, UsageError, WorldError
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.runtime.commit import Commit, DeadLetter, Release
from stream_dp.runtime.keys import Sealer
from stream_dp.runtime.ports import Batch, Journal, Ports, Sink
from stream_dp.testing.kafka import fresh_topic_name
from stream_dp.testing.port_checks import (
    check_journal,
    check_journal_order,
    check_sink,
    check_sink_versions,
    sample_release,
)

STEP = 400
SETTLE = 200
ENDLESS = 1_000.0  # seconds of patience: what waits for them does not end within the time of a test
Close = Callable[[], Awaitable[None]]


class WallClock:
    def now(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep_until(self, moment: int) -> None:
        await asyncio.sleep(max(0, moment - self.now()) / 1000)


@pytest.fixture
def settings(kafka: str) -> KafkaSettings:
    return KafkaSettings(kafka)


@pytest.fixture
def name() -> str:
    return fresh_topic_name("pipeline")


@pytest.fixture
async def closing(caplog: pytest.LogCaptureFixture) -> AsyncIterator[list[Close]]:
    """Closed twice at the end; nothing may be left that the event loop complains about."""
    calls: list[Close] = []
    yield calls
    for close in reversed(calls):
        await close()
        await close()
    calls.clear()
    gc.collect()
    assert [one.getMessage() for one in caplog.records if one.name == "asyncio"] == []


@asynccontextmanager
async def administering(kafka: str) -> AsyncIterator[Any]:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def create(kafka: str, topic: str, partitions: int = 1, **config: str) -> str:
    configs = {key.replace("_", "."): value for key, value in config.items()}
    async with administering(kafka) as admin:
        await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)])
    return topic


async def deleted(admin: Any, topic: str) -> None:
    """Delete a topic and wait until it is gone: the brokers tell nobody when they are done."""
    await admin.delete_topics([topic])
    async with asyncio.timeout(60):
        while topic in {one["topic"] for one in await admin.describe_topics()}:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def stamped_topic(kafka: str, partitions: int) -> str:
    topic = fresh_topic_name("events")
    return await create(kafka, topic, partitions, message_timestamp_type="LogAppendTime")


async def visible(kafka: str, topic: str, isolation: str = "read_committed") -> list[Any]:
    """All records of partition 0 that a reader sees."""
    at = TopicPartition(topic, 0)
    reader = AIOKafkaConsumer(
        bootstrap_servers=kafka, isolation_level=isolation, auto_offset_reset="earliest"
    )
    await reader.start()
    try:
        reader.assign([at])
        reader.seek(at, 0)
        end = (await reader.end_offsets([at]))[at]
        found: list[Any] = []
        while await reader.position(at) < end:
            found += (await reader.getmany(timeout_ms=100)).get(at, [])
        return found
    finally:
        await reader.stop()


async def offsets(kafka: str, group: str) -> dict[TopicPartition, int]:
    async with administering(kafka) as admin:
        found = await admin.list_consumer_group_offsets(group)
    return {at: offset.offset for at, offset in found.items()}


async def journal(settings: KafkaSettings, name: str, closing: list[Close]) -> KafkaJournal:
    """A journal of a new engine, open."""
    made = KafkaJournal(KafkaLease(settings, name), f"{name}.events")
    closing.append(made.close)
    await made.open()
    return made


async def sealed(journal: KafkaJournal) -> list[bytes]:
    return [one async for one in journal.read()]


def commit(sequence: int, positions: Mapping[int, int] | None = None, **more: Any) -> Commit:
    return Commit(sequence=sequence, previous=b"", positions=dict(positions or {}), **more)


def release(sequence: int, tick: int = 0) -> Release:
    end = datetime.fromtimestamp(1_000 + tick, UTC).isoformat()
    return sample_release(sequence, "by_day", tick, end=end)


async def half_a_transaction(lease: KafkaLease, topic: str, value: bytes = b"half") -> None:
    """What a kill between send and commit leaves."""
    producer = lease._producer
    await producer.begin_transaction()
    await (await producer.send(topic, value, b"k", 0))
    await _abandon(producer)


@pytest.mark.parametrize("check", [check_journal, check_journal_order])
async def test_the_journals_contract_holds(
    kafka: str,
    settings: KafkaSettings,
    name: str,
    check: Callable[[Callable[[], Journal]], Awaitable[None]],
) -> None:
    await create(kafka, f"{name}.events", 2)
    await check(lambda: KafkaJournal(KafkaLease(settings, name), f"{name}.events"))


@pytest.mark.parametrize("check", [check_sink, check_sink_versions])
async def test_the_sinks_contract_holds(
    settings: KafkaSettings,
    name: str,
    check: Callable[[Callable[[], Sink]], Awaitable[None]],
) -> None:
    await check(lambda: KafkaSink(KafkaLease(settings, name)))


# --- journal -------------------------------------------------------------------------------------


async def test_a_commit_its_positions_and_its_dead_letters_are_one(
    kafka: str, settings: KafkaSettings, name: str, closing: list[Close]
) -> None:
    await create(kafka, f"{name}.events", 2)
    one = await journal(settings, name, closing)
    assert await sealed(one) == []
    await one.verify({})
    await one.append(commit(0), b"header")
    dead = DeadLetter(1, 6, "not json", None)
    await one.append(commit(1, {0: 5, 1: 7}, dead_letters=(dead,)), b"first")
    await one.verify({0: 5, 1: 7})
    assert await sealed(one) == [b"header", b"first"]
    assert await offsets(kafka, f"{name}.engine") == {
        TopicPartition(f"{name}.events", 0): 5,
        TopicPartition(f"{name}.events", 1): 7,
    }
    (letter,) = await visible(kafka, f"{name}.private.dead-letters")
    assert msgspec.json.decode(letter.value) == {
        "topic": f"{name}.events",
        "partition": 1,
        "offset": 6,
        "reason": "not json",
        "field": None,
    }
    (warning,) = one.warnings
    assert warning.startswith(f"{name}.private.journal and {name}.private.dead-letters: one copy")
    assert warning.endswith("a power cut could lose commits")


async def test_a_large_commit_travels_in_parts(
    kafka: str, settings: KafkaSettings, name: str, closing: list[Close]
) -> None:
    one = await journal(settings, name, closing)
    large = bytes(range(250)) * 12_000
    await one.append(commit(0), b"")
    await one.append(commit(1), large)
    await one.append(commit(2), b"after")
    assert await sealed(one) == [b"", large, b"after"]
    records = await visible(kafka, f"{name}.private.journal")
    assert [dict(one.headers)["part"] for one in records[1:-1]] == [b"%d" % at for at in range(6)]
    assert max(len(one.value) for one in records) <= 500_000


async def test_a_zombie_publishes_and_commits_nothing(
    kafka: str, settings: KafkaSettings, name: str, closing: list[Close]
) -> None:
    await create(kafka, f"{name}.events")
    lease = KafkaLease(settings, name)
    zombie, sink = KafkaJournal(lease, f"{name}.events"), KafkaSink(lease)
    closing += [zombie.close, sink.close]
    await zombie.open()
    await sink.open()
    await zombie.append(commit(0, {0: 1}), b"mine")
    newest = await journal(settings, name, closing)
    with pytest.raises(FailClosed, match="taken over"):
        await zombie.append(commit(1, {0: 2}), b"zombie")
    with pytest.raises(FailClosed, match="taken over"):
        await sink.publish([release(0)])
    assert await sealed(newest) == [b"mine"]
    await newest.verify({0: 1})
    assert await visible(kafka, f"{name}.releases", "read_uncommitted") == []
    await newest.append(commit(1, {0: 2}), b"next")
    assert await sealed(newest) == [b"mine", b"next"]


async def test_a_zombie_that_only_publishes_is_stopped_too(
    kafka: str, settings: KafkaSettings, name: str, closing: list[Close]
) -> None:
    sink = KafkaSink(KafkaLease(settings, name))
    closing.append(sink.close)
    await sink.open()
    await sink.publish([release(0)])
    await journal(settings, name, closing)
    with pytest.raises(FailClosed, match="taken over"):
        await sink.publish([release(1)])
    assert len(await visible(kafka, f"{name}.releases", "read_uncommitted")) == 1


async def test_a_kill_in_the_middle_of_a_commit_leaves_nothing(
    kafka: str, settings: KafkaSettings, name: str, closing: list[Close]
) -> None:
    long = KafkaSettings(
        kafka, transaction_timeout_ms=600_000
    )  # far more than the next one's patience
    killed = await journal(long, name, closing)
    await killed.append(commit(0), b"kept")
    await half_a_transaction(killed._lease, f"{name}.private.journal")
    newest = await journal(settings, name, closing)
    assert await sealed(newest) == [b"kept"]
    await newest.append(commit(1), b"again")
    assert await sealed(newest) == [b"kept", b"again"]
    assert len(await visible(kafka, f"{name}.private.journal", "read_uncommitted")) == 3


async def test_a_wiped_journal_is_noticed(
    kafka: str, settings: KafkaSettings, name: str, closing: list[Close]
) -> None:
    await create(kafka, f"{name}.events")
    one = await journal(settings, name, closing)
    await one.append(commit(0, {0: 3}), b"x")
    await one.close()
    async with administering(kafka) as admin:
        await deleted(admin, f"{name}.private.journal")
    wiped = await journal(settings, name, closing)
    assert await sealed(wiped) == []
    with pytest.raises(FailClosed, match="wiped"):
        await wiped.verify({})


async def test_a_journal_rolled_back_or_cut_is_noticed(
    kafka: str, settings: KafkaSettings, name: str, closing: list[Close]
) -> None:
    await create(kafka, f"{name}.events")
    one = await journal(settings, name, closing)
    await one.append(commit(0, {0: 3}), b"x")
    await one.append(commit(1, {0: 4}), b"y")
    with pytest.raises(FailClosed, match="rolled back"):
        await one.verify({0: 3})
    async with administering(kafka) as admin:
        at = TopicPartition(f"{name}.private.journal", 0)
        await admin.delete_records({at: RecordsToDelete(before_offset=1)})
    with pytest.raises(FailClosed, match="damaged"):
        await sealed(one)


@pytest.mark.parametrize(
    "written",
    [
        [(0, 0, 2)],
        [(0, 1, 2)],
        [(1, 0, 1)],
        [(0, 0, 1), (2, 0, 1)],
        [(0, 0, 2), (1, 0, 1)],
    ],
)
async def test_missing_parts_and_commits_are_noticed(
    settings: KafkaSettings,
    name: str,
    closing: list[Close],
    written: list[tuple[int, int, int]],
) -> None:
    one = await journal(settings, name, closing)
    producer = AIOKafkaProducer(bootstrap_servers=settings.bootstrap)
    await producer.start()
    for numbers in written:
        names = ("stream-dp-journal", "sequence", "part", "parts")
        named = zip(names, (1, *numbers), strict=True)
        headers = [(key, b"%d" % value) for key, value in named]
        await producer.send_and_wait(f"{name}.private.journal", b"x", headers=headers)
    await producer.stop()
    with pytest.raises(FailClosed, match="damaged"):
        await sealed(one)


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ([("stream-dp-journal", b"2")], "has version 2, .* reads version 1: use the version that"),
        ([("stream-dp-journal", b"two")], "damaged"),
        ([("sequence", b"0"), ("part", b"0"), ("parts", b"1")], "damaged"),
    ],
)
async def test_a_record_of_another_form_is_refused(
    settings: KafkaSettings,
    name: str,
    closing: list[Close],
    headers: list[tuple[str, bytes]],
    message: str,
) -> None:
    one = await journal(settings, name, closing)
    producer = AIOKafkaProducer(bootstrap_servers=settings.bootstrap)
    await producer.start()
    await producer.send_and_wait(f"{name}.private.journal", b"x", headers=headers)
    await producer.stop()
    with pytest.raises(FailClosed, match=message):
        await sealed(one)


async def test_only_the_next_commit_is_taken(
    settings: KafkaSettings, name: str, closing: list[Close]
) -> None:
    one = await journal(settings, name, closing)
    with pytest.raises(FailClosed, match="not the next"):
        await one.append(commit(1), b"x")
    await one.append(commit(0), b"x")
    again = await journal(settings, name, closing)
    await again.append(commit(1), b"y")
    assert await sealed(again) == [b"x", b"y"]


async def test_a_foreign_open_transaction_stops_the_start(
    settings: KafkaSettings, name: str, closing: list[Close]
) -> None:
    await (await journal(settings, name, closing)).close()
    long = KafkaSettings(settings.bootstrap, transaction_timeout_ms=600_000)
    foreign = KafkaLease(long, fresh_topic_name("foreign"))
    await foreign.start()
    await half_a_transaction(foreign, f"{name}.private.journal")
    hasty = KafkaSettings(settings.bootstrap, patience_s=5)
    with pytest.raises(FailClosed, match="another program"):
        await journal(hasty, name, closing)


async def test_topics_that_could_lose_records_are_refused(
    kafka: str, settings: KafkaSettings, name: str, closing: list[Close]
) -> None:
    await create(kafka, f"{name}.private.journal", retention_ms="3600000")
    with pytest.raises(FailClosed, match=r"retention\.ms=-1"):
        await journal(settings, name, closing)
    other = fresh_topic_name("pipeline")
    await create(kafka, f"{other}.releases", 2)
    sink = KafkaSink(KafkaLease(settings, other))
    closing.append(sink.close)
    with pytest.raises(FailClosed, match="one partition"):
        await sink.open()


async def test_an_interrupted_commit_ends_and_nothing_follows_it(
    settings: KafkaSettings, name: str, closing: list[Close]
) -> None:
    one = await journal(settings, name, closing)
    task = asyncio.create_task(one.append(commit(0), b"x" * 2_000_000))
    await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(FailClosed, match="interrupted"):
        await one.append(commit(0), b"y")
    await one.close()
    newest = await journal(settings, name, closing)
    assert await sealed(newest) == [b"x" * 2_000_000]


# --- sink ----------------------------------------------------------------------------------------


async def test_releases_are_visible_once_with_key_and_time(
    kafka: str, settings: KafkaSettings, name: str, closing: list[Close]
) -> None:
    sink = KafkaSink(KafkaLease(settings, name))
    closing.append(sink.close)
    await sink.open()
    assert await sink.last() is None
    releases = [release(0), release(1), release(2, tick=5)]
    await sink.publish(releases[:2])
    await sink.publish(releases)
    assert await sink.last() == releases[2].body
    assert [body async for body in sink.read()] == [one.body for one in releases]
    records = await visible(kafka, f"{name}.releases")
    assert [(one.key, one.timestamp, one.headers) for one in records] == [
        (b"by_day", 1_000_000, ()),
        (b"by_day", 1_000_000, ()),
        (b"by_day", 1_005_000, ()),
    ]
    with pytest.raises(FailClosed, match="other content"):
        await sink.publish([Release(2, "by_day", 6, release(2, tick=6).body)])


async def test_the_last_release_is_found_behind_aborted_ones(
    settings: KafkaSettings, name: str, closing: list[Close]
) -> None:
    for attempt in range(4):
        sink = KafkaSink(KafkaLease(settings, name))
        closing.append(sink.close)
        await sink.open()
        await sink.publish([release(0)])
        value = b"aborted" * (10 if attempt % 2 else 100_000)
        await half_a_transaction(sink._lease, f"{name}.releases", value)
    newest = KafkaSink(KafkaLease(settings, name))
    closing.append(newest.close)
    await newest.open()
    assert await newest.last() == release(0).body
    assert [body async for body in newest.read()] == [release(0).body]


async def test_only_aborted_releases_are_no_release(
    settings: KafkaSettings, name: str, closing: list[Close]
) -> None:
    sink = KafkaSink(KafkaLease(settings, name))
    closing.append(sink.close)
    await sink.open()
    await half_a_transaction(sink._lease, f"{name}.releases")
    newest = KafkaSink(KafkaLease(settings, name))
    closing.append(newest.close)
    await newest.open()
    assert await newest.last() is None


async def test_a_release_of_two_megabytes_passes(
    settings: KafkaSettings, name: str, closing: list[Close]
) -> None:
    sink = KafkaSink(KafkaLease(settings, name))
    closing.append(sink.close)
    await sink.open()
    wide = sample_release(0, "wide", fired=("x" * 1000,) * 2000)
    await sink.publish([wide])
    assert await sink.last() == wide.body


async def test_a_release_that_the_topic_refuses_stops_and_none_of_its_tick_is_visible(
    kafka: str, settings: KafkaSettings, name: str, closing: list[Close]
) -> None:
    sink = KafkaSink(KafkaLease(settings, name))
    closing.append(sink.close)
    await sink.open()
    async with administering(kafka) as admin:
        await admin.alter_configs([_topic_resource(sink._topic, {"max.message.bytes": "900000"})])
        async with asyncio.timeout(60):
            while (await config(admin, sink._topic))["max.message.bytes"] != "900000":  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    await asyncio.sleep(0.3)  # from what a broker says to what it does
    wide = sample_release(1, "wide", 0, fired=("x" * 1000,) * 1000)
    with pytest.raises(FailClosed, match=r"max\.message\.bytes"):
        await sink.publish([release(0), wide])
    await sink.close()
    newest = KafkaSink(KafkaLease(settings, name))
    closing.append(newest.close)
    await newest.open()
    assert await newest.last() is None


# --- source --------------------------------------------------------------------------------------


@asynccontextmanager
async def writing(kafka: str) -> AsyncIterator[Any]:
    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


def live(settings: KafkaSettings, topic: str, closing: list[Close]) -> KafkaSource:
    source = KafkaSource(settings, topic, WallClock(), StampTicks(STEP, SETTLE))
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


async def test_live_ticks_pass_with_one_silent_partition(
    kafka: str, settings: KafkaSettings, closing: list[Close]
) -> None:
    topic = await stamped_topic(kafka, 2)
    source = live(settings, topic, closing)
    origin = WallClock().now() // STEP * STEP
    assert await source.open(origin) == (0, 1)

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
    second = await until(late, lambda seen: min(marks(seen).get(at, -1) for at in (0, 1)) >= last)
    assert rows(second) == rows(first)


async def test_no_tick_passes_while_a_record_of_it_is_unread(
    kafka: str, settings: KafkaSettings, closing: list[Close], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where what the reader knows of the end is out of date."""
    topic = await stamped_topic(kafka, 2)
    source = live(settings, topic, closing)
    await source.open(WallClock().now())
    async with writing(kafka) as producer:
        await producer.send_and_wait(topic, b"unread", partition=1)
    await asyncio.sleep((2 * STEP + SETTLE) / 1000)

    async def outdated(_: object) -> bool:
        return True

    monkeypatch.setattr(source, "_caught_up", outdated)
    await source._pass_silent(set())
    assert set(marks(source._ready)) == {0}


async def test_reading_goes_on_where_a_commit_stopped(
    kafka: str, settings: KafkaSettings, closing: list[Close]
) -> None:
    topic = await stamped_topic(kafka, 1)
    source = live(settings, topic, closing)
    await source.open(WallClock().now())
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
    source = KafkaSource(settings, topic, WallClock(), ReplayTicks())
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
        await asyncio.sleep(0.05)
        await producer.send_and_wait(topic, b"new", partition=0)
        batches = await until(source, lambda seen: bool(rows(seen)))
    assert [value for values in rows(batches).values() for value in values] == [b"new"]


async def test_an_open_transaction_in_the_source_holds_its_tick_open(
    kafka: str, settings: KafkaSettings, closing: list[Close]
) -> None:
    topic = await stamped_topic(kafka, 1)
    source = live(settings, topic, closing)
    grid = TickGrid(WallClock().now(), STEP)
    await source.open(grid.origin)
    identity = fresh_topic_name("writer")
    producer = AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=identity)
    await producer.start()
    try:
        await producer.begin_transaction()
        sent = await (await producer.send(topic, b"slow"))
        early = await during((2 * STEP + SETTLE) / 1000, source)
        assert marks(early).get(0, -1) < grid.tick_of(sent.timestamp)
        assert not rows(early)
        await producer.commit_transaction()
        batches = await until(source, lambda seen: marks(seen).get(0, -1) >= 2)
    finally:
        await producer.stop()
    tick = grid.tick_of(sent.timestamp)
    assert rows(batches) == {(0, tick): [b"slow"]}


async def test_replay_marks_come_from_records(
    kafka: str, settings: KafkaSettings, closing: list[Close]
) -> None:
    topic = await create(kafka, fresh_topic_name("replay"), 2)
    async with writing(kafka) as producer:
        for partition in (0, 1):
            for tick in range(3):
                if partition == 0:
                    await producer.send_and_wait(topic, b"%d" % tick, partition=0)
                mark = [(TICK_HEADER, b"%d" % tick)]
                await producer.send_and_wait(topic, b"", partition=partition, headers=mark)
    source = KafkaSource(settings, topic, WallClock(), ReplayTicks())
    closing.append(source.close)
    assert await source.open(0) == (0, 1)
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
    source = KafkaSource(settings, topic, WallClock(), ReplayTicks())
    closing.append(source.close)
    await source.open(0)
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
        for ticks in (StampTicks(STEP, SETTLE), ReplayTicks()):
            source = KafkaSource(settings, topic, WallClock(), ticks)
            closing.append(source.close)
            with pytest.raises(FailClosed, match=told):
                await source.open(0)


async def test_a_source_that_is_deleted_while_it_is_read_is_named(
    kafka: str, closing: list[Close], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_source, "_SILENCE_S", 1.0)
    topic = await stamped_topic(kafka, 1)
    source = live(KafkaSettings(kafka, patience_s=5), topic, closing)
    await source.open(WallClock().now())
    async with administering(kafka) as admin:
        await deleted(admin, topic)
    with pytest.raises(WorldError, match=f"{topic}.* was deleted"):
        await until(source, lambda _: False)


# --- feed and command line -----------------------------------------------------------------------


async def test_a_feed_goes_on_after_its_last_mark_and_names_a_missing_topic(
    kafka: str, settings: KafkaSettings, closing: list[Close]
) -> None:
    feed = KafkaFeed(KafkaSettings(kafka, patience_s=ENDLESS), fresh_topic_name("no-such"))
    closing.append(feed.close)
    with pytest.raises(WorldError, match=r"no-such.* does not exist at .*create it.*--create N"):
        await feed.open()
    topic = await create(kafka, fresh_topic_name("fed"), 2)
    for first in (0, 2):
        feed = KafkaFeed(settings, topic)
        closing.append(feed.close)
        assert await feed.open() == first
        await feed.send(first, [[Record(0, None, b"a")], []])
    async with writing(kafka) as producer:
        headers = [(TICK_HEADER, b"soon")]
        await producer.send_and_wait(topic, b"", partition=0, headers=headers)
    feed = KafkaFeed(settings, topic)
    closing.append(feed.close)
    with pytest.raises(FailClosed, match="not a number"):
        await feed.open()


def test_a_topic_is_made_once(kafka: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = fresh_topic_name("made")
    make_topic(name, bootstrap=kafka, partitions=2)
    make_topic(name, bootstrap=kafka, partitions=1, stamped=False)
    assert capsys.readouterr().out.splitlines() == [
        f"{name}: created, 2 partitions, records are stamped on arrival",
        f"{name}: exists already and was left as it is",
    ]
    source = KafkaSource(KafkaSettings(kafka), name, WallClock(), StampTicks(STEP, SETTLE))

    async def partitions() -> tuple[int, ...]:
        try:
            return await source.open(WallClock().now())
        finally:
            await source.close()

    assert asyncio.run(partitions()) == (0, 1)
    with pytest.raises(UsageError, match="NAME"):
        make_topic("a b", bootstrap=kafka)
    with pytest.raises(WorldError, match=r"127\.0\.0\.1:1"):
        make_topic("a", bootstrap="127.0.0.1:1")


PIPELINE = """\
version: 1
name: {name}
source: {{kind: kafka, topic: {topic}, bootstrap: "{kafka}"}}
schema: {{time: {{type: time}}}}
privacy: {{epsilon: 1}}
clock: {clock}
series:
  - {{name: all, statistic: count, epsilon: 1}}
"""
REPLAYED = "{kind: replay, field: time, start: 2020-01-01T00:00:00Z, step: 1s, horizon: 3}"


def test_a_replay_into_another_topic_is_told_and_a_missing_one_is_named_at_once(
    kafka: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patient = KafkaSettings(kafka, patience_s=ENDLESS)
    monkeypatch.setattr("stream_dp.app.replay_feed.settings_for", lambda _: patient)
    pipeline, events = tmp_path / "p.yaml", tmp_path / "events.csv"
    text = PIPELINE.format(name="p", topic="expected", kafka=kafka, clock=REPLAYED)
    pipeline.write_text(text)
    events.write_text("time\n2020-01-01T00:00:01Z\n")
    name = fresh_topic_name("fed")
    with pytest.raises(WorldError, match=f"{name} does not exist"):
        replay(events, topic=name, pipeline=pipeline)
    warning = f"Warning: p reads topic expected, not {name}"
    assert warning in capsys.readouterr().err.replace("\n", " ")
    replay(events, topic=name, pipeline=pipeline, create=1)
    assert len(asyncio.run(visible(kafka, name))) == 4


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # half-open sockets
@pytest.mark.parametrize("clock", ["{kind: wall, step: 200ms}", REPLAYED], ids=["wall", "replay"])
async def test_a_broker_that_stops_during_a_run_is_one_line(
    tmp_path: Path, clock: str, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline, key = tmp_path / "p.yaml", tmp_path / "key"
    key.touch(0o600)
    key.write_bytes(bytes(32))

    def hasty(spec: PipelineSpec, sealer: Sealer, accepted: str) -> Ports:
        settings = KafkaSettings(broker.bootstrap, patience_s=5, transaction_timeout_ms=5_000)
        lease = KafkaLease(settings, spec.name)
        ticks = StampTicks(200, 250) if "wall" in clock else ReplayTicks()
        source = Noted(settings, "events", WallClock(), ticks)
        journal = KafkaJournal(lease, "events")
        return Ports(source, journal, KafkaSink(lease), WallClock(), sealer)

    class Noted(KafkaSource):
        async def read(self) -> Sequence[Batch]:
            reading.set()
            return await super().read()

    reading = asyncio.Event()
    broker = LocalKafka(tmp_path / "broker")
    async with asyncio.timeout(250):
        await broker.start()
        try:
            await create_topic(
                broker.bootstrap, "events", 2, {"message.timestamp.type": "LogAppendTime"}
            )
            text = PIPELINE.format(name="p", topic="events", kafka=broker.bootstrap, clock=clock)
            pipeline.write_text(text)
            running = asyncio.create_task(
                run_pipeline(pipeline, False, None, key, Setup(adapters=hasty))
            )
            at_work = asyncio.create_task(reading.wait())
            await asyncio.wait({running, at_work}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(1)
            assert not running.done()
        finally:
            await broker.stop()
        with pytest.raises(WorldError) as caught:
            await running
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 5
    assert "check that" in str(caught.value)
    del running, caught, at_work
    gc.collect()
    assert [one.getMessage() for one in caplog.records if "Unclosed" in one.getMessage()] == []


async def test_records_with_stamps_of_their_producers_are_refused(
    kafka: str, settings: KafkaSettings, closing: list[Close]
) -> None:
    topic = await create(kafka, fresh_topic_name("events"))
    origin = WallClock().now()
    async with writing(kafka) as producer:
        await producer.send_and_wait(topic, b"x")
    async with administering(kafka) as admin:
        resource = _topic_resource(topic, {"message.timestamp.type": "LogAppendTime"})
        await admin.alter_configs([resource])
    source = live(settings, topic, closing)
    await source.open(origin)
    with pytest.raises(FailClosed, match="did not stamp"):
        await until(source, lambda _: False)


def _topic_resource(topic: str, configs: dict[str, str]) -> Any:
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

    return ConfigResource(ConfigResourceType.TOPIC, topic, configs)
