"""An export from a topic of releases on a real broker: what is committed, once, also after a kill."""

import asyncio
import csv
import json
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from kafka.kafka_worlds import Close, create, half_a_transaction, release

from stream_dp.journal.commit import Release
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.log.lease import KafkaLease
from stream_dp.kafka.log.public import KafkaSink
from stream_dp.operate.export.exporting import export_releases
from stream_dp.operate.export.rows import rows_of
from stream_dp.operate.published_bodies import of_topic
from stream_dp.testing.kafka import fresh_topic_name

PIPELINE = """\
version: 1
name: {name}
source: {{kind: kafka, topic: {name}.events, bootstrap: "{kafka}"}}
schema: {{day: {{type: category, domain: [a, b]}}}}
privacy: {{epsilon: 1}}
clock: {{kind: wall, step: 1m}}
series: [{{name: by_day, statistic: count, epsilon: 0.5}}]
"""


def sequences(folder: Path, name: str) -> list[int]:
    """The sequences of the rows, as they stand there."""
    file = folder / f"{name}.csv"
    if not file.exists():
        return []
    with file.open(newline="") as lines:
        return [int(row["sequence"]) for row in csv.DictReader(lines)]


async def opened(settings: KafkaSettings, name: str, closing: list[Close]) -> KafkaSink:
    """The sink of a new engine."""
    sink = KafkaSink(KafkaLease(settings, name))
    closing.append(sink.close)
    await sink.open()
    return sink


async def test_what_is_committed_is_exported_once(
    kafka: str, settings: KafkaSettings, name: str, closing: list[Close], tmp_path: Path
) -> None:
    path, to = tmp_path / "pipeline.yaml", tmp_path / "out"
    path.write_text(PIPELINE.format(name=name, kafka=kafka))
    first = await opened(settings, name, closing)
    released = [release(number, number) for number in range(12)]
    await first.publish(released[:3])
    await export_releases(path, f"csv:{to}")
    assert len(sequences(to, name)) == 3 * _rows(released[0])
    await half_a_transaction(first._lease, f"{name}.releases")
    second = await opened(settings, name, closing)
    following = asyncio.create_task(export_releases(path, f"csv:{to}", 0.1))
    for stop in (5, 9, 12):
        await second.publish(released[:stop])
        while (sequences(to, name) or [0])[-1] != stop - 1:
            assert not following.done()
            await asyncio.sleep(0.1)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await export_releases(path, f"csv:{to}")
    each = _rows(released[0])
    assert sequences(to, name) == [one for number in range(12) for one in [number] * each]


async def test_what_a_kill_left_open_ends_no_export(
    kafka: str, impatient: KafkaSettings, name: str, closing: list[Close], tmp_path: Path
) -> None:
    """Brokers end it some seconds later; until then what was decided before it is there to be exported."""
    path, to = tmp_path / "pipeline.yaml", tmp_path / "out"
    path.write_text(PIPELINE.format(name=name, kafka=kafka))
    killed = await opened(impatient, name, closing)
    released = [release(number, number) for number in range(3)]
    await killed.publish(released)
    await half_a_transaction(killed._lease, f"{name}.releases")
    await export_releases(path, f"csv:{to}")
    assert sequences(to, name) == [one for one in range(3) for _ in range(_rows(released[0]))]


def _rows(one: Release) -> int:
    """How many numbers a release of these tests tells."""
    return len(rows_of("any", one.body))


@pytest.mark.parametrize(("ticks", "most"), [(50, 200), (5_000, 2_000), (1, 50)])
async def test_of_a_topic_the_newest_ticks_are_read(kafka: str, ticks: int, most: int) -> None:
    topic = await create(kafka, fresh_topic_name("newest"))
    when = {"v": 1, "series": "s", "end": "2024-01-01T01:00:00Z"}
    said = {**when, "value": 1, "band": 2, "confidence": 0.95}
    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    await producer.start()
    for at in range(2_000):
        await producer.send(topic, json.dumps({**said, "sequence": at, "tick": at}).encode())
    await producer.stop()
    read = of_topic(KafkaSettings(kafka), topic, -1, None, ticks)
    found = [json.loads(body)["tick"] async for bodies in read for body in bodies]
    assert found == list(range(found[0], 2_000))
    assert min(ticks, 2_000) <= len(found) <= most
