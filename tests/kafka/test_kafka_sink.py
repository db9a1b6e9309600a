"""Releases in a topic: visible once, in order, with key and time, whatever transactions were aborted before."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from kafka.kafka_worlds import (
    Close,
    alter,
    half_a_transaction,
    release,
    visible,
)
from kafka.raw_batches import plain
from kafka.raw_producer import RawTransactions
from kafka.raw_wire import Wire

from stream_dp.engine.ports import Sink
from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Release
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.log.lease import KafkaLease
from stream_dp.kafka.log.public import KafkaSink
from stream_dp.testing.port_checks import (
    check_sink,
    check_sink_versions,
    sample_release,
)


@pytest.mark.parametrize("check", [check_sink, check_sink_versions])
async def test_the_sinks_contract_holds(
    settings: KafkaSettings,
    name: str,
    check: Callable[[Callable[[], Sink]], Awaitable[None]],
) -> None:
    await check(lambda: KafkaSink(KafkaLease(settings, name)))


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


def until_refused(kafka: str, topic: str) -> None:
    """Wait until the broker takes no large record any more, which is later than that it says so; leave none."""
    with Wire(kafka) as wire:
        producer = RawTransactions(wire, f"{topic}.large")
        while producer.send(topic, 0, plain([bytes(950_000)])).error == 0:
            producer.end(commit=False)
        producer.end(commit=False)


async def test_a_release_that_the_topic_refuses_stops_and_none_of_its_tick_is_visible(
    kafka: str, settings: KafkaSettings, name: str, closing: list[Close]
) -> None:
    sink = KafkaSink(KafkaLease(settings, name))
    closing.append(sink.close)
    await sink.open()
    await alter(kafka, sink._topic, {"max.message.bytes": "900000"})
    await asyncio.to_thread(until_refused, kafka, sink._topic)
    wide = sample_release(1, "wide", 0, fired=("x" * 1000,) * 1000)
    with pytest.raises(FailClosed, match=r"max\.message\.bytes"):
        await sink.publish([release(0), wide])
    await sink.close()
    newest = KafkaSink(KafkaLease(settings, name))
    closing.append(newest.close)
    await newest.open()
    assert await newest.last() is None
