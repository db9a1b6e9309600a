"""Journals in topics that were wiped, set back or sealed with another key, and brokers that refuse: exit 4 and 5."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from faults.cases import Case, document, expectation, flights, make_key, write
from faults.checker import findings
from faults.kafka_evidence import over_kafka, public_log, records
from kafka.kafka_worlds import administering, deleted, marks_of

from stream_dp.broker.topics import create_topic
from stream_dp.core.time import TickGrid
from stream_dp.files.records import FieldType, load_records, ticked
from stream_dp.kafka.client.clients import KEPT, KafkaSettings
from stream_dp.operate.replay_feed import feed
from stream_dp.testing.kafka import fresh_topic_name

TICKS = 60
FIELDS = {
    "time": FieldType.TIME,
    "airline": FieldType.CATEGORY,
    "destination": FieldType.CATEGORY,
    "delay": FieldType.INTEGER,
}


def over(kafka: str, folder: Path) -> Case:
    made = flights(folder, TICKS)
    name = fresh_topic_name("refused")
    source = {"kind": "kafka", "topic": f"{name}.events", "bootstrap": kafka}
    write(folder, document(name, TICKS, 6, source))
    return Case(folder, expectation(name, TICKS), made.events)


async def fed(kafka: str, folder: Path) -> Case:
    """The pipeline, with all its events in the topic."""
    made = over(kafka, folder)
    topic, expected = f"{made.expected.pipeline}.events", made.expected
    await create_topic(kafka, topic, 2)
    rows = load_records(folder / "slice.csv", FIELDS, "time")
    ticks = ticked(rows, TickGrid(expected.origin, expected.step, TICKS))
    await feed(KafkaSettings(kafka), marks_of(made), ticks)
    return made


@pytest.fixture
async def case(kafka: str, tmp_path: Path, request: pytest.FixtureRequest) -> Case:
    """A run that was killed after some ticks; a parameter says whether it was started by exec."""
    made = await fed(kafka, tmp_path)
    options = ("--until-end", "--dawdle", "1", "--crash", "after-publish:4")
    assert (
        await asyncio.to_thread(made.run, *options, anew=getattr(request, "param", False))
    ).returncode == -9
    return made


async def made_anew(kafka: str, topic: str, content: Sequence[Any]) -> None:
    """Delete the topic and create it again with these records."""
    async with administering(kafka) as admin:
        await deleted(admin, topic)
    await create_topic(kafka, topic, 1, KEPT)
    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    await producer.start()
    try:
        for one in content:
            await producer.send_and_wait(topic, one.value, partition=0, headers=list(one.headers))
    finally:
        await producer.stop()


async def refused(kafka: str, case: Case, code: int = 4, kit: bool = True) -> str:
    """Run it: it must stop with one clear line, and release nothing."""
    topic = f"{case.expected.pipeline}.releases"
    before = await public_log(kafka, topic)
    done = await asyncio.to_thread(case.run, "--until-end", kit=kit)
    said = [line for line in done.stderr.splitlines() if line.startswith("stream-dp: ")]
    assert (done.returncode, done.stdout, len(said)) == (code, "", 1), done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert await public_log(kafka, topic) == before
    return said[0]


@pytest.mark.parametrize("case", [True], ids=["anew"], indirect=True)
async def test_a_wiped_journal(kafka: str, case: Case) -> None:
    await made_anew(kafka, f"{case.expected.pipeline}.private.journal", ())
    assert "is older than, or differs from" in await refused(kafka, case)


async def test_a_wiped_journal_and_wiped_releases(kafka: str, case: Case) -> None:
    """Nothing is public to compare with: the offsets of the group tell it."""
    await made_anew(kafka, f"{case.expected.pipeline}.private.journal", ())
    await made_anew(kafka, f"{case.expected.pipeline}.releases", ())
    assert "the journal was wiped" in await refused(kafka, case)


@pytest.mark.parametrize("missing", [1, 4])
async def test_a_journal_that_was_set_back(kafka: str, case: Case, missing: int) -> None:
    topic = f"{case.expected.pipeline}.private.journal"
    content = await records(kafka, topic)
    assert len(content) > missing + 1
    await made_anew(kafka, topic, content[:-missing])
    said = await refused(kafka, case)
    assert "rolled back" in said or "is older than" in said


async def test_a_journal_with_a_hole(kafka: str, case: Case) -> None:
    topic = f"{case.expected.pipeline}.private.journal"
    content = await records(kafka, topic)
    await made_anew(kafka, topic, [*content[:3], *content[4:]])
    assert "is damaged" in await refused(kafka, case)


async def test_a_wrong_key_and_then_the_right_one(kafka: str, case: Case) -> None:
    key = case.key
    (case.folder / "operator.key").unlink()
    make_key(case.folder)
    assert "was written with key" in await refused(kafka, case)
    (case.folder / "operator.key").write_bytes(key)
    await asyncio.to_thread(case.finish)
    left = await over_kafka(kafka, case.expected.pipeline, case.key)
    assert findings(case.expecting(zero_noise=False).expected, case.events, left) == []


async def test_the_product_refuses_the_test_kits_journal(kafka: str, case: Case) -> None:
    assert "noise" in await refused(kafka, case, kit=False)


async def test_an_unknown_topic(kafka: str, tmp_path: Path) -> None:
    case = over(kafka, tmp_path)
    assert "does not exist" in await refused(kafka, case, code=5, kit=False)


async def test_credentials_that_the_broker_does_not_take(kafka: str, tmp_path: Path) -> None:
    """The local broker speaks no SASL at all."""
    case = over(kafka, tmp_path)
    password = tmp_path / "password"
    password.write_text("wrong")
    password.chmod(0o600)
    login = {
        "protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": "me",
        "password_file": "password",
    }  # fmt: skip
    name = case.expected.pipeline
    source = {"kind": "kafka", "topic": f"{name}.events", "bootstrap": kafka, "security": login}
    write(tmp_path, document(name, TICKS, 6, source))
    said = await refused(kafka, case, code=5, kit=False)
    assert kafka in said
    assert "wrong" not in said.replace("went wrong", "")
