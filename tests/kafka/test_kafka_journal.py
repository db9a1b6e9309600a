"""The journal in topics: commits are whole or not there, the newest engine fences the others, wiping is noticed."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import RecordsToDelete
from kafka.kafka_worlds import (
    Close,
    administering,
    create,
    deleted,
    half_a_transaction,
    journal,
    release,
    visible,
)

from stream_dp.engine.ports import Journal
from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Commit
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.log.journal import KafkaJournal
from stream_dp.kafka.log.lease import KafkaLease
from stream_dp.kafka.log.public import KafkaSink
from stream_dp.testing.kafka import fresh_topic_name
from stream_dp.testing.port_checks import (
    check_journal,
    check_journal_order,
)


async def offsets(kafka: str, group: str) -> dict[TopicPartition, int]:
    async with administering(kafka) as admin:
        found = await admin.list_consumer_group_offsets(group)
    return {at: offset.offset for at, offset in found.items()}


async def sealed(journal: KafkaJournal) -> list[bytes]:
    return [one async for one in journal.read()]


def commit(sequence: int, positions: Mapping[int, int] | None = None, **more: Any) -> Commit:
    return Commit(sequence=sequence, previous=b"", positions=dict(positions or {}), **more)


@pytest.mark.parametrize("check", [check_journal, check_journal_order])
async def test_the_journals_contract_holds(
    kafka: str,
    settings: KafkaSettings,
    name: str,
    check: Callable[[Callable[[], Journal]], Awaitable[None]],
) -> None:
    await create(kafka, f"{name}.events", 2)
    await check(lambda: KafkaJournal(KafkaLease(settings, name), f"{name}.events"))


async def test_a_commit_and_its_positions_are_one(
    kafka: str, settings: KafkaSettings, name: str, closing: list[Close]
) -> None:
    await create(kafka, f"{name}.events", 2)
    one = await journal(settings, name, closing)
    assert await sealed(one) == []
    await one.verify({})
    await one.append(commit(0), b"header")
    await one.append(commit(1, {0: 5, 1: 7}), b"first")
    await one.verify({0: 5, 1: 7})
    assert await sealed(one) == [b"header", b"first"]
    assert await offsets(kafka, f"{name}.engine") == {
        TopicPartition(f"{name}.events", 0): 5,
        TopicPartition(f"{name}.events", 1): 7,
    }
    said = f"{name}.private.journal: kept once, by the one broker on this machine: enough to try things out"
    assert one.warnings == (f"{said}; real data want three brokers",)


async def test_that_one_broker_keeps_it_is_said_once_in_a_process(
    settings: KafkaSettings, name: str, closing: list[Close], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        one = await journal(settings, name, closing)
        await one.close()
    said = [record.getMessage() for record in caplog.records if "kept once" in record.getMessage()]
    assert said == list(one.warnings)


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
    impatient: KafkaSettings, name: str, closing: list[Close]
) -> None:
    await (await journal(impatient, name, closing)).close()
    long = KafkaSettings(impatient.bootstrap, transaction_timeout_ms=600_000)
    foreign = KafkaLease(long, fresh_topic_name("foreign"))
    await foreign.start()
    await half_a_transaction(foreign, f"{name}.private.journal")
    with pytest.raises(FailClosed, match="another program"):
        await journal(impatient, name, closing)


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
    producer, sent, go = one._lease._producer, asyncio.Event(), asyncio.Event()
    end = producer.commit_transaction

    async def held() -> None:
        sent.set()
        await go.wait()
        await end()

    producer.commit_transaction = held
    task = asyncio.create_task(one.append(commit(0), b"x" * 2_000_000))
    await sent.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(FailClosed, match="interrupted"):
        await one.append(commit(0), b"y")
    go.set()
    await one.close()
    newest = await journal(settings, name, closing)
    assert await sealed(newest) == [b"x" * 2_000_000]
