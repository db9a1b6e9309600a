"""An export from a topic of releases on a real broker: what is committed, once, also after a kill."""

import asyncio
import csv
import json
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from kafka.kafka_worlds import Parts, create, half_a_transaction, release

from stream_dp.client.frames import rows_of
from stream_dp.journal.commit import Release
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.operate.exporting import export_releases
from stream_dp.operate.published_bodies import of_topic
from stream_dp.python.released import read_releases
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
    file = folder / f"{name}.csv"
    if not file.exists():
        return []
    with file.open(newline="") as lines:
        return [int(row["sequence"]) for row in csv.DictReader(lines)]


async def test_what_is_committed_is_exported_once(parts: Parts, tmp_path: Path) -> None:
    path, to, name = tmp_path / "pipeline.yaml", tmp_path / "out", parts.name
    path.write_text(PIPELINE.format(name=name, kafka=parts.kafka))
    first = await parts.sink()
    released = [release(number, number) for number in range(12)]
    each = _rows(released[0])
    await first.publish(released[:3])
    await export_releases(path, f"csv:{to}")
    assert len(sequences(to, name)) == 3 * each
    await half_a_transaction(first._lease, f"{name}.releases")
    second = await parts.sink()
    following = asyncio.create_task(export_releases(path, f"csv:{to}", 0.1))
    for stop in (7, 12):
        await second.publish(released[:stop])
        while (sequences(to, name) or [0])[-1] != stop - 1:
            assert not following.done()
            await asyncio.sleep(0.1)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await export_releases(path, f"csv:{to}")
    exported = [one for number in range(12) for one in [number] * each]
    assert sequences(to, name) == exported
    for source in (f"kafka://{parts.kafka}/{name}", path):
        assert [row.sequence for row in read_releases(source)] == exported


async def test_what_a_kill_left_open_ends_no_export(impatient: Parts, tmp_path: Path) -> None:
    """Brokers end it some seconds later; until then what was decided before it is there to be exported."""
    path, to, name = tmp_path / "pipeline.yaml", tmp_path / "out", impatient.name
    path.write_text(PIPELINE.format(name=name, kafka=impatient.kafka))
    killed = await impatient.sink()
    released = [release(number, number) for number in range(3)]
    await killed.publish(released)
    await half_a_transaction(killed._lease, f"{name}.releases")
    await export_releases(path, f"csv:{to}")
    assert sequences(to, name) == [one for one in range(3) for _ in range(_rows(released[0]))]


def _rows(one: Release) -> int:
    return len(rows_of("any", one.body))


@pytest.mark.parametrize(("ticks", "most"), [(50, 200), (5_000, 2_000)])
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
