"""What a released version wrote into topics is read by this one from a real broker; a newer form is refused.

See tests/faults/test_old_journals.py. The stored records go into topics of their old names: commits are bound to the
pipeline's name. Only the marks among the events are signed here: those of version 0.1.0 were not.
"""

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from faults.cases import Case
from faults.evidence import opened, releases_of
from faults.kafka_evidence import journal_blobs, public_log
from fixtures.old_journals import FOLDERS, Stored, ledger, ready, stored

from stream_dp.broker.topics import create_topic
from stream_dp.kafka.client.clients import KEPT


async def restored(kafka: str, version: Path, folder: Path) -> Case:
    """The records back in their topics, and the group's offsets where they were."""
    case, content = ready(version, "kafka", folder), stored(version)
    shown = json.loads(case.pipeline.read_text())
    name = shown["name"]
    shown["source"]["bootstrap"] = kafka
    case.pipeline.write_text(json.dumps(shown))
    await create_topic(kafka, f"{name}.events", 2)
    for topic in ("private.journal", "releases"):
        await create_topic(kafka, f"{name}.{topic}", 1, KEPT)
    await written(kafka, name, content)
    blobs = [one.value for one in content if one.topic == "private.journal"]
    last = opened(blobs, case.key, name)[-1]
    group = AIOKafkaConsumer(
        bootstrap_servers=kafka, group_id=f"{name}.engine", enable_auto_commit=False
    )
    await group.start()
    try:
        places = {
            TopicPartition(f"{name}.events", one): at for one, at in last["positions"].items()
        }
        group.assign(list(places))
        await group.commit(places)
    finally:
        await group.stop()
    return case


async def written(kafka: str, name: str, content: list[Stored]) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    await producer.start()
    try:
        for topic, partition, key, value, timestamp, headers in content:
            where = f"{name}.{topic}"
            await producer.send(where, value, key, partition, timestamp, headers)
        await producer.flush()
    finally:
        await producer.stop()


@pytest.mark.parametrize("version", FOLDERS, ids=lambda folder: str(folder.name))
async def test_it_is_read_and_goes_on_and_a_newer_record_is_refused(
    kafka: str, version: Path, tmp_path: Path
) -> None:
    case = await restored(kafka, version, tmp_path)
    name = case.expected.pipeline
    public = await public_log(kafka, f"{name}.releases")
    sealed = await journal_blobs(kafka, f"{name}.private.journal")
    recorded = [release[3] for release in releases_of(opened(sealed, case.key, name))]
    assert 0 < len(public) < len(recorded)  # some were durable and not yet published
    told = await asyncio.to_thread(ledger, case)

    done = await asyncio.to_thread(case.run, "--until-end", kit=False)

    assert done.returncode == 0, done.stderr
    now = await public_log(kafka, f"{name}.releases")
    assert now[: len(public)] == public
    assert [one.body for one in now[: len(recorded)]] == recorded
    assert all(one.committed for one in now)
    ticks = Counter(json.loads(one.body)["tick"] for one in now)
    assert sorted(ticks) == list(range(case.expected.horizon))
    after_blobs = await journal_blobs(kafka, f"{name}.private.journal")
    assert after_blobs[: len(sealed)] == sealed
    after = await asyncio.to_thread(ledger, case)
    assert after["journal"] == "whole"
    assert after["ticks"] == case.expected.horizon > told["ticks"]
    assert [one | {"halt": None} for one in after["charges"]] == [
        one | {"halt": None} for one in told["charges"]
    ]  # what a halt gives back depends on the next tick

    newer = [("stream-dp-journal", b"99"), ("sealed", b"elsewhere")]
    await written(kafka, name, [Stored("private.journal", 0, None, b"?", 0, newer)])
    done = await asyncio.to_thread(case.run, "--until-end", kit=False)
    said = [line for line in done.stderr.splitlines() if line.startswith("stream-dp: ")]
    assert (done.returncode, done.stdout, len(said)) == (4, "", 1), done.stderr
    assert "has version 99, and this version" in said[0]
    assert "use the version that wrote it" in said[0]
    assert await public_log(kafka, f"{name}.releases") == now
