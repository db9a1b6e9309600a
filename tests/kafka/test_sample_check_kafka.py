"""Topics of which no record fits: `check` says why, and no new ledger begins; one that has begun goes on."""

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from faults.cases import Case, expectation, make_key
from kafka.hostile_batches import HOSTILE
from kafka.kafka_worlds import administering, create, writing
from kafka.raw_wire import Wire

from stream_dp.cli.main import code_of
from stream_dp.journal.dead_letters import UNREADABLE_BATCH
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.sample import sample_topic
from stream_dp.testing.kafka import fresh_topic_name

RECORDS = 500
LIVE = """\
version: 1
name: {name}
source: {{kind: kafka, topic: {name}.events, bootstrap: "{kafka}"}}
schema:
  page: {{type: category, domain: [home, help]}}
  size: {{type: integer}}
privacy: {{unit: event, neighbors: add_remove, epsilon: 1}}
clock: {{kind: wall, step: 200ms, delay: 200ms, horizon: 3}}
series:
  - {{name: by_page, statistic: histogram, by: page, method: tree, where: [{{field: size, at_least: 5}}], epsilon: 1}}
"""


def good(number: int) -> bytes:
    return json.dumps({"page": "home", "size": number}).encode()


def wrong_typed(number: int) -> bytes:
    return json.dumps({"page": "home", "size": f"{number}"}).encode()


@pytest.fixture
async def case(kafka: str, tmp_path: Path) -> Case:
    name = fresh_topic_name("checked")
    await create(kafka, f"{name}.events", 2, message_timestamp_type="LogAppendTime")
    (tmp_path / "pipeline.yaml").write_text(LIVE.format(name=name, kafka=kafka))
    make_key(tmp_path)
    return Case(tmp_path, expectation(name, 3), ())


async def sent(
    kafka: str, case: Case, make: Callable[[int], bytes], records: int = RECORDS
) -> None:
    async with writing(kafka) as producer:
        for number in range(records):
            await producer.send(
                f"{case.expected.pipeline}.events", make(number), partition=number % 2
            )


async def topics_of(kafka: str, case: Case) -> Sequence[str]:
    async with administering(kafka) as admin:
        named = sorted(one["topic"] for one in await admin.describe_topics())
    return [one for one in named if one.startswith(case.expected.pipeline)]


def without_names(case: Case, said: str) -> str:
    return said.replace(str(case.folder), "").replace(case.expected.pipeline, "")


async def checked(case: Case, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = await asyncio.to_thread(code_of, ["check", str(case.pipeline), "--json"])
    return code, json.loads(capsys.readouterr().out)


async def test_no_ledger_begins_on_a_topic_of_which_nothing_fits(
    kafka: str, case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    await sent(kafka, case, wrong_typed)
    hint = "size: numbers in quotes; write them without"
    ended = await asyncio.to_thread(case.run, "--until-end", kit=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "can use none of the records that were looked at (wrong_type in size)" in ended.stderr
    assert hint in ended.stderr
    assert str(RECORDS) not in without_names(case, ended.stderr)
    code, said = await checked(case, capsys)
    assert (code, said["records"], said["dead"], said["fits"]) == (2, RECORDS, RECORDS, False)
    assert [(one["says"][: len(hint)], one["records"]) for one in said["hints"]] == [
        (hint, RECORDS)
    ]
    assert await topics_of(kafka, case) == [f"{case.expected.pipeline}.events"]
    ended = await asyncio.to_thread(case.run, "--until-end", "--no-check", kit=False)
    assert ended.returncode == 0, ended.stderr
    again = await asyncio.to_thread(case.run, "--until-end", kit=False)  # a ledger that has begun
    assert again.returncode == 0, again.stderr


async def test_a_sample_has_the_newest_records(
    kafka: str, case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of each partition, here two; one good record among junk is enough to start on."""
    await sent(kafka, case, wrong_typed, 40)
    await sent(kafka, case, good, 1)
    settings, topic = KafkaSettings(kafka), f"{case.expected.pipeline}.events"
    partitions, newest = await sample_topic(settings, topic, 3, marks=False)
    _, oldest = await sample_topic(settings, topic, 3, marks=False, newest=False)
    assert sorted(partitions) == [0, 1]
    at = {
        n: [o for one in newest if one.partition == n for o in one.records.offsets] for n in (0, 1)
    }
    assert at == {0: [18, 19, 20], 1: [17, 18, 19]}
    assert {o for one in oldest for o in one.records.offsets} >= {0, 1, 2}
    assert UNREADABLE_BATCH not in {span.reason for one in newest for span in one.records.refused}
    code, said = await checked(case, capsys)
    assert (code, said["records"], said["dead"]) == (2, 41, 40)
    ended = await asyncio.to_thread(case.run, "--until-end", kit=False)
    assert ended.returncode == 0, ended.stderr


async def test_what_cannot_be_unpacked_is_a_reason_and_transactions_are_decided(
    kafka: str, case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bomb of two records, two that were aborted, one that was committed, and one of which nobody knows yet."""
    topic = f"{case.expected.pipeline}.events"
    bomb = next(one for one in HOSTILE if one.name == "a bomb of 64 MB in gzip")
    await sent(kafka, case, good, 10)

    def produced() -> int:
        with Wire(kafka) as wire:
            return wire.produce(topic, 0, bomb.encoded()).error

    assert await asyncio.to_thread(produced) == 0
    producer = AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=topic)
    await producer.start()
    try:
        for number, commit in ((2, False), (1, True)):
            await producer.begin_transaction()
            for each in range(number):
                await (await producer.send(topic, good(each), partition=1))
            await (producer.commit_transaction() if commit else producer.abort_transaction())
        await producer.begin_transaction()
        await (await producer.send(topic, good(0), partition=1))
        code, said = await checked(case, capsys)
        await producer.abort_transaction()
    finally:
        await producer.stop()
    assert (code, said["records"], said["dead"]) == (2, 13, 2)
    (reason,) = said["reasons"]
    assert (reason["reason"], reason["records"]) == ("expands_too_far", 2)
