"""The journal and the releases in topics, and their lease: commits are whole or not there, the newest engine fences
the others, wiping is noticed, and releases are visible once, in order, whatever was aborted before.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.cluster import ClusterMetadata
from kafka.kafka_worlds import (
    Parts,
    administering,
    alter,
    create,
    deleted,
    half_a_transaction,
    release,
    visible,
    writing,
)
from kafka.raw_batches import plain
from kafka.raw_producer import RawTransactions
from kafka.raw_wire import Wire

from stream_dp.engine.ports import Journal, Sink
from stream_dp.errors import FailClosed, Outage
from stream_dp.journal.commit import Commit, Release
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.topics import TopicEyes
from stream_dp.kafka.log.journal import KafkaJournal, _committed
from stream_dp.kafka.log.lease import Holder, KafkaLease, Outgoing, Presence
from stream_dp.kafka.log.public import KafkaSink
from stream_dp.testing.kafka import fresh_topic_name
from stream_dp.testing.port_checks import (
    check_journal,
    check_journal_checkpoints,
    check_journal_order,
    check_sink,
    check_sink_versions,
    sample_release,
)

JOURNAL, RELEASES = "private.journal", "releases"


async def offsets(kafka: str, group: str) -> dict[TopicPartition, int]:
    async with administering(kafka) as admin:
        found = await admin.list_consumer_group_offsets(group)
    return {at: offset.offset for at, offset in found.items()}


async def sealed(journal: KafkaJournal) -> list[bytes]:
    return [one async for one in journal.read()]


def commit(sequence: int, positions: Mapping[int, int] | None = None) -> Commit:
    return Commit(sequence=sequence, previous=b"", positions=dict(positions or {}))


@pytest.mark.parametrize("check", [check_journal, check_journal_checkpoints, check_journal_order])
async def test_the_journals_contract_holds(
    parts: Parts, check: Callable[[Callable[[], Journal]], Awaitable[None]]
) -> None:
    await create(parts.kafka, parts.topic("events"), 2)
    await check(lambda: KafkaJournal(KafkaLease(parts.settings, parts.name), parts.topic("events")))


@pytest.mark.parametrize("check", [check_sink, check_sink_versions])
async def test_the_sinks_contract_holds(
    parts: Parts, check: Callable[[Callable[[], Sink]], Awaitable[None]]
) -> None:
    await check(lambda: KafkaSink(KafkaLease(parts.settings, parts.name)))


async def test_a_commit_and_its_positions_are_one(
    parts: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    await create(parts.kafka, parts.topic("events"), 2)
    one = await parts.journal()
    assert await sealed(one) == []
    await one.verify({})
    await one.append(commit(0), b"header")
    await one.append(commit(1, {0: 5, 1: 7}), b"first")
    await one.verify({0: 5, 1: 7})
    again = await parts.journal()
    assert await sealed(again) == [b"header", b"first"]
    assert await offsets(parts.kafka, f"{parts.name}.engine") == {
        TopicPartition(parts.topic("events"), 0): 5,
        TopicPartition(parts.topic("events"), 1): 7,
    }
    assert again.warnings[0].startswith(f"{parts.topic(JOURNAL)}: kept once, by the one broker")
    said = [record.getMessage() for record in caplog.records if "kept once" in record.getMessage()]
    assert said == list(again.warnings)  # once in a process


async def test_places_of_checkpoints_that_hold_something_else_are_not_used(parts: Parts) -> None:
    """As in a copy of the topic, whose records have other offsets."""
    one = await parts.journal()
    for sequence in range(4):
        await one.append(commit(sequence), b"%d" % sequence)
    for places in (
        {2: 2, 1: 4},
        {2: 3},
        {2: 10_000},
        {10_000: 2},
    ):  # a marker lies behind each commit
        one._places = dict(places)
        await one.append(commit(one._next or 0), b"")
        one = await parts.journal()
        assert list(one.checkpoints()) == []
    one._places = {2: 4, 1: 2}
    await one.append(commit(one._next or 0), b"")
    again = await parts.journal()
    assert list(again.checkpoints()) == [2, 1]
    assert [one async for one in again.read(2)][:2] == [b"2", b"3"]


async def test_a_large_commit_travels_in_parts(parts: Parts) -> None:
    one = await parts.journal()
    large = bytes(range(250)) * 12_000
    await one.append(commit(0), b"")
    await one.append(commit(1), large)
    await one.append(commit(2), b"after")
    assert await sealed(one) == [b"", large, b"after"]
    records = await visible(parts.kafka, parts.topic(JOURNAL))
    assert [dict(one.headers)["part"] for one in records[1:-1]] == [b"%d" % at for at in range(6)]
    assert max(len(one.value) for one in records) <= 500_000


async def test_a_zombie_publishes_and_commits_nothing(parts: Parts) -> None:
    await create(parts.kafka, parts.topic("events"))
    zombie = await parts.journal()
    sink = await parts.sink(zombie._lease)
    await zombie.append(commit(0, {0: 1}), b"mine")
    await sink.publish([release(0)])
    newest = await parts.journal()
    with pytest.raises(FailClosed, match="taken over"):
        await sink.publish([release(1)])
    with pytest.raises(FailClosed, match="taken over"):
        await zombie.append(commit(1, {0: 2}), b"zombie")
    assert await sealed(newest) == [b"mine"]
    await newest.verify({0: 1})
    assert len(await visible(parts.kafka, parts.topic(RELEASES), "read_uncommitted")) == 1
    await newest.append(commit(1, {0: 2}), b"next")
    assert await sealed(newest) == [b"mine", b"next"]


async def test_a_kill_in_the_middle_of_a_commit_leaves_nothing(parts: Parts) -> None:
    """However long its transaction may last: far longer than the next one's patience."""
    killed = await parts.journal(KafkaSettings(parts.kafka, transaction_timeout_ms=600_000))
    await killed.append(commit(0), b"kept")
    await half_a_transaction(killed._lease, parts.topic(JOURNAL))
    newest = await parts.journal()
    assert await sealed(newest) == [b"kept"]
    await newest.append(commit(1), b"again")
    assert await sealed(newest) == [b"kept", b"again"]
    assert len(await visible(parts.kafka, parts.topic(JOURNAL), "read_uncommitted")) == 3


async def test_a_wiped_journal_is_noticed(parts: Parts) -> None:
    await create(parts.kafka, parts.topic("events"))
    one = await parts.journal()
    await one.append(commit(0, {0: 3}), b"x")
    await one.close()
    async with administering(parts.kafka) as admin:
        await deleted(admin, parts.topic(JOURNAL))
    wiped = await parts.journal()
    assert await sealed(wiped) == []
    with pytest.raises(FailClosed, match="wiped"):
        await wiped.verify({})


async def test_a_journal_rolled_back_or_cut_is_noticed(parts: Parts) -> None:
    await create(parts.kafka, parts.topic("events"))
    one = await parts.journal()
    await one.append(commit(0, {0: 3}), b"x")
    await one.append(commit(1, {0: 4}), b"y")
    with pytest.raises(FailClosed, match="rolled back"):
        await one.verify({0: 3})
    async with administering(parts.kafka) as admin:
        at = TopicPartition(parts.topic(JOURNAL), 0)
        await admin.delete_records({at: RecordsToDelete(before_offset=1)})
    assert (await parts.journal()).begin == 1  # which an engine refuses, for no commit says so


def part(sequence: int, number: int, parts: int) -> list[tuple[str, bytes]]:
    named = {"stream-dp-journal": 1, "sequence": sequence, "part": number, "parts": parts}
    return [(name, b"%d" % value) for name, value in named.items()]


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([part(0, 0, 2)], "damaged"),
        ([part(0, 0, 1), part(2, 0, 1)], "damaged"),
        ([part(0, 0, 2), part(1, 0, 1)], "damaged"),
        ([[("stream-dp-journal", b"2")]], "has version 2, .* reads version 1: use the version"),
        ([part(0, 0, 1)[1:]], "damaged"),
    ],
    ids=["a part", "a commit", "a part in between", "another version", "no version"],
)
async def test_missing_parts_and_other_forms_are_refused(
    parts: Parts, records: list[list[tuple[str, bytes]]], message: str
) -> None:
    one = await parts.journal()
    async with writing(parts.kafka) as producer:
        for headers in records:
            await producer.send_and_wait(parts.topic(JOURNAL), b"x", headers=headers)
    with pytest.raises(FailClosed, match=message):
        await sealed(one)


async def test_only_the_next_commit_is_taken(parts: Parts) -> None:
    one = await parts.journal()
    with pytest.raises(FailClosed, match="not the next"):
        await one.append(commit(1), b"x")
    await one.append(commit(0), b"x")
    again = await parts.journal()
    await again.append(commit(1), b"y")
    assert await sealed(again) == [b"x", b"y"]


async def test_a_foreign_open_transaction_stops_the_start(impatient: Parts) -> None:
    await (await impatient.journal()).close()
    long = KafkaSettings(impatient.kafka, transaction_timeout_ms=600_000)
    foreign = KafkaLease(long, fresh_topic_name("foreign"))
    await foreign.start()
    await half_a_transaction(foreign, impatient.topic(JOURNAL))
    with pytest.raises(FailClosed, match="another program"):
        await impatient.journal()


async def test_topics_that_could_lose_records_are_refused(parts: Parts) -> None:
    await create(parts.kafka, parts.topic(JOURNAL), retention_ms="3600000")
    with pytest.raises(FailClosed, match=r"retention\.ms=-1"):
        await parts.journal()
    await create(parts.kafka, parts.topic(RELEASES), 2)
    with pytest.raises(FailClosed, match="one partition"):
        await parts.sink()


async def test_an_interrupted_commit_ends_and_nothing_follows_it(parts: Parts) -> None:
    one = await parts.journal()
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
    assert await sealed(await parts.journal()) == [b"x" * 2_000_000]


async def test_releases_are_visible_once_with_key_and_time(parts: Parts) -> None:
    sink = await parts.sink()
    assert await sink.last() is None
    releases = [release(0), release(1), release(2, tick=5)]
    await sink.publish(releases[:2])
    await sink.publish(releases)
    assert await sink.last() == releases[2].body
    assert [body async for body in sink.read()] == [one.body for one in releases]
    records = await visible(parts.kafka, parts.topic(RELEASES))
    assert [(one.key, one.timestamp, one.headers) for one in records] == [
        (b"by_day", 1_000_000, ()),
        (b"by_day", 1_000_000, ()),
        (b"by_day", 1_005_000, ()),
    ]
    with pytest.raises(FailClosed, match="other content"):
        await sink.publish([Release(2, "by_day", 6, release(2, tick=6).body)])


@pytest.mark.parametrize("published", [[], [release(0)]], ids=["none", "one"])
async def test_the_last_release_is_the_one_before_aborted_ones(
    parts: Parts, published: list[Release]
) -> None:
    for size in (100_000, 10, 100_000):
        sink = await parts.sink()
        await sink.publish(published)
        await half_a_transaction(sink._lease, parts.topic(RELEASES), b"aborted" * size)
    newest = await parts.sink()
    assert await newest.last() == (published[0].body if published else None)
    assert [body async for body in newest.read()] == [one.body for one in published]


def until_refused(kafka: str, topic: str) -> None:
    """Wait until the broker takes no large record any more, which is later than that it says so; leave none."""
    with Wire(kafka) as wire:
        producer = RawTransactions(wire, f"{topic}.large")
        while producer.send(topic, 0, plain([bytes(950_000)])).error == 0:
            producer.end(commit=False)
        producer.end(commit=False)


async def test_a_large_release_passes_or_none_of_its_tick_is_visible(parts: Parts) -> None:
    sink = await parts.sink()
    large = sample_release(0, "wide", fired=("x" * 1000,) * 2000)
    await sink.publish([large])
    assert await sink.last() == large.body
    await alter(parts.kafka, sink._topic, {"max.message.bytes": "900000"})
    await asyncio.to_thread(until_refused, parts.kafka, sink._topic)
    wide = sample_release(2, "wide", 1, fired=("x" * 1000,) * 1000)
    with pytest.raises(FailClosed, match=r"max\.message\.bytes"):
        await sink.publish([release(1, 1), wide])
    assert await (await parts.sink()).last() == large.body


async def test_the_mark_tells_a_slow_transaction_from_another_engine(parts: Parts) -> None:
    """The brokers fence in both cases; where the lease is still this run's, it recovers and goes on."""
    topic = await create(parts.kafka, parts.topic("records"))
    holder = Holder()
    first, again, other = (
        KafkaLease(parts.settings, parts.name, who) for who in (holder, holder, Holder())
    )
    parts.closing += [first.close, again.close, other.close]
    await first.start()
    await first.transact([Outgoing(topic, b"first")])
    await again.start()
    with pytest.raises(Outage, match="the brokers ended a transaction"):
        await first.transact([Outgoing(topic, b"too late")])
    await again.transact([Outgoing(topic, b"again")])
    await other.start()
    with pytest.raises(FailClosed, match="another engine has taken over"):
        await again.transact([Outgoing(topic, b"fenced")])
    assert [one.value for one in await visible(parts.kafka, topic)] == [b"first", b"again"]


async def test_a_replaced_engine_that_noticed_nothing_takes_nothing_back(parts: Parts) -> None:
    topic = await create(parts.kafka, parts.topic("records"))
    holder = Holder()
    asleep, newer, woken = (
        KafkaLease(parts.settings, parts.name, who) for who in (holder, Holder(), holder)
    )
    parts.closing += [asleep.close, newer.close, woken.close]
    await asleep.start()
    await newer.start()
    await asleep.close()
    with pytest.raises(FailClosed, match="another engine has taken over"):
        await woken.start()
    await newer.transact([Outgoing(topic, b"untouched")])
    assert [one.value for one in await visible(parts.kafka, topic)] == [b"untouched"]


async def test_presence_begins_and_ends_at_once(parts: Parts) -> None:
    one, two = (Presence(parts.settings, parts.name) for _ in range(2))
    assert await two.members() == 0
    await one.join()
    await two.join()
    assert await one.members() == 2
    await one.leave()
    await one.leave()
    assert await two.members() == 1
    await two.leave()
    await one.alone()
    assert await two.members() == 1
    await one.leave()


async def test_brokers_that_name_no_broker_for_a_moment_are_asked_again(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was shut out or has just begun: the client would know none for five minutes."""
    update = ClusterMetadata.update_metadata

    def nobody(self: ClusterMetadata, metadata: Any) -> None:
        monkeypatch.setattr(ClusterMetadata, "update_metadata", update)
        metadata.brokers = []
        update(self, metadata)

    settings = KafkaSettings(parts.kafka, patience_s=20, retry_s=20)
    topic = await create(parts.kafka, fresh_topic_name("seen"), 2)
    eyes = TopicEyes(settings, topic)
    parts.closing.append(eyes.stop)
    monkeypatch.setattr(ClusterMetadata, "update_metadata", nobody)
    await eyes.start()
    found = await eyes.look()
    assert found is not None
    assert found.partitions == (0, 1)
    monkeypatch.setattr(ClusterMetadata, "update_metadata", nobody)
    assert await _committed(settings, fresh_topic_name("group")) == {}
