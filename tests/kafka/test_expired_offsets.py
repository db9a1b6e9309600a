"""Offsets that the brokers have forgotten, as after a week without an engine: what else must confirm the journal."""

import asyncio
from pathlib import Path

import pytest
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.protocol.admin import DeleteGroupsRequest
from faults.cases import Case
from faults.checker import findings
from faults.kafka_evidence import over_kafka, records
from faults.kafka_transactions import decided
from kafka.test_crash_refused_starts import fed, made_anew, refused


async def forgotten(kafka: str, case: Case) -> None:
    """Delete the group with its offsets, once those of the last commit are among them."""
    await decided(kafka)
    group = f"{case.expected.pipeline}.engine"
    client = AIOKafkaClient(bootstrap_servers=kafka)
    await client.bootstrap()
    try:
        coordinator = await client.coordinator_lookup(CoordinationType.GROUP, group)
        answer = await client.send(coordinator, DeleteGroupsRequest([group]))
        assert [code for _, code in answer.results] == [0]
    finally:
        await client.close()


async def killed(kafka: str, folder: Path, point: str = "after-publish:4") -> Case:
    """A run that was killed at `point`, and whose offsets expired."""
    case = await fed(kafka, folder)
    options = ("--until-end", "--dawdle", "1", "--crash", point)
    assert (await asyncio.to_thread(case.run, *options)).returncode == -9
    await forgotten(kafka, case)
    return case


@pytest.mark.parametrize("point", ["after-publish:4", "after-commit:9"], ids=["whole", "mid-block"])
async def test_a_journal_that_all_else_confirms_goes_on_and_says_so_for_good(
    kafka: str, tmp_path: Path, point: str
) -> None:
    case = await killed(kafka, tmp_path, point)
    done = await asyncio.to_thread(case.run, "--until-end")
    assert done.returncode == 0, done.stderr
    assert "offsets had expired" in done.stderr
    name = case.expected.pipeline
    left = await over_kafka(kafka, name, case.key)
    assert findings(case.expecting(zero_noise=False).expected, case.events, left) == []
    notes = [one.headers for one in await records(kafka, f"{name}.private.lease")]
    assert sum(("stream-dp-note", b"went-on-without-offsets") in headers for headers in notes) == 1
    again = await asyncio.to_thread(case.run, "--until-end")
    assert "expired" not in again.stderr


async def test_without_a_high_water_mark_it_stops(kafka: str, tmp_path: Path) -> None:
    case = await killed(kafka, tmp_path)
    (mark,) = (tmp_path / "state").rglob("high-water/*.json")
    mark.unlink()
    assert "has no offsets any more" in await refused(kafka, case)


async def test_without_anything_public_it_stops(kafka: str, tmp_path: Path) -> None:
    case = await killed(kafka, tmp_path)
    await made_anew(kafka, f"{case.expected.pipeline}.releases", ())
    assert "has no offsets any more" in await refused(kafka, case)


async def test_where_something_durable_should_be_public_and_is_not_it_stops(
    kafka: str, tmp_path: Path
) -> None:
    case = await killed(kafka, tmp_path, "before-publish:3")
    assert "has no offsets any more" in await refused(kafka, case)


@pytest.mark.parametrize("missing", [0, 1, 4])
async def test_a_journal_that_was_wiped_or_set_back_still_stops(
    kafka: str, tmp_path: Path, missing: int
) -> None:
    """The broken twin: absent offsets are no excuse for a journal that is not whole."""
    case = await killed(kafka, tmp_path)
    topic = f"{case.expected.pipeline}.private.journal"
    content = await records(kafka, topic)
    await made_anew(kafka, topic, content[:-missing] if missing else ())
    said = await refused(kafka, case)
    assert "older than" in said
