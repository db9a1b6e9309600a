"""Journals in topics that were wiped, set back or sealed with another key, with and without the group's offsets: exit
4. One killed run serves all tests that leave it as it was: each puts back what it changed.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.protocol.admin import DeleteGroupsRequest
from faults.cases import Case, document, make_key, write
from faults.kafka_evidence import public_log, records
from faults.kafka_transactions import decided
from kafka.flight_topics import fed, judged, over
from kafka.kafka_worlds import administering, deleted

from stream_dp.broker.topics import create_topic
from stream_dp.kafka.client.clients import KEPT

TICKS = 40
JOURNAL, RELEASES = "private.journal", "releases"


async def killed(kafka: str, folder: Path, point: str, anew: bool = False) -> Case:
    case = await fed(kafka, folder, TICKS)
    options = ("--until-end", "--dawdle", "1", "--crash", point)
    assert (await asyncio.to_thread(case.run, *options, anew=anew)).returncode == -9
    return case


async def forgotten(kafka: str, case: Case) -> Case:
    """Delete the group with its offsets, as brokers do after a week, once those of the last commit are there."""
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
    return case


@pytest.fixture(scope="module")
def whole(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("whole")
    return asyncio.run(killed(kafka, folder, "after-publish:4", anew=True))


@pytest.fixture(scope="module")
def expired(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Case:

    async def made() -> Case:
        folder = tmp_path_factory.mktemp("expired")
        return await forgotten(kafka, await killed(kafka, folder, "after-publish:4"))

    return asyncio.run(made())


async def made_anew(kafka: str, topic: str, content: Sequence[Any]) -> None:
    async with administering(kafka) as admin:
        await deleted(admin, topic)
    await create_topic(kafka, topic, 1, KEPT)
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        for one in content:
            await producer.send_and_wait(
                topic, one.value, one.key, 0, one.timestamp, list(one.headers)
            )


@asynccontextmanager
async def only(
    kafka: str, case: Case, which: str, kept: slice, *more: slice
) -> AsyncIterator[None]:
    """Meanwhile one of the pipeline's topics holds these of its records only."""
    topic = f"{case.expected.pipeline}.{which}"
    content = await records(kafka, topic)
    assert len(content) > 5
    await made_anew(kafka, topic, [one for part in (kept, *more) for one in content[part]])
    try:
        yield
    finally:
        await made_anew(kafka, topic, content)


async def refused(kafka: str, case: Case, code: int = 4, kit: bool = True) -> str:
    """Run it: it must stop with one clear line, and release nothing."""
    topic = f"{case.expected.pipeline}.{RELEASES}"
    before = await public_log(kafka, topic)
    done = await asyncio.to_thread(case.run, "--until-end", kit=kit)
    said = [line for line in done.stderr.splitlines() if line.startswith("stream-dp: ")]
    assert (done.returncode, done.stdout, len(said)) == (code, "", 1), done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert await public_log(kafka, topic) == before
    return said[0]


async def test_a_wiped_journal_with_and_without_its_releases(kafka: str, whole: Case) -> None:
    """Where nothing is public to compare with, the offsets of the group tell it."""
    async with only(kafka, whole, JOURNAL, slice(0)):
        assert "is older than, or differs from" in await refused(kafka, whole)
        async with only(kafka, whole, RELEASES, slice(0)):
            assert "the journal was wiped" in await refused(kafka, whole)


async def test_a_journal_that_was_set_back(kafka: str, whole: Case) -> None:
    async with only(kafka, whole, JOURNAL, slice(-1)):
        said = await refused(kafka, whole)
    assert "rolled back" in said or "is older than" in said


async def test_a_journal_with_a_hole(kafka: str, whole: Case) -> None:
    async with only(kafka, whole, JOURNAL, slice(3), slice(4, None)):
        assert "is damaged" in await refused(kafka, whole)


async def test_the_product_refuses_the_test_kits_journal(kafka: str, whole: Case) -> None:
    assert "noise" in await refused(kafka, whole, kit=False)


async def test_a_wrong_key_and_then_the_right_one(kafka: str, whole: Case) -> None:
    """The last test with this run, which goes on to its end."""
    key = whole.key
    (whole.folder / "operator.key").unlink()
    make_key(whole.folder)
    assert "was written with key" in await refused(kafka, whole)
    (whole.folder / "operator.key").write_bytes(key)
    await asyncio.to_thread(whole.finish)
    assert await judged(kafka, whole.expecting(zero_noise=False)) == []


async def test_without_offsets_and_high_water_mark_it_stops(kafka: str, expired: Case) -> None:
    (mark,) = (expired.folder / "state").rglob("high-water/*.json")
    content = mark.read_bytes()
    mark.unlink()
    assert "has no offsets any more" in await refused(kafka, expired)
    mark.write_bytes(content)


async def test_without_offsets_and_anything_public_it_stops(kafka: str, expired: Case) -> None:
    async with only(kafka, expired, RELEASES, slice(0)):
        assert "has no offsets any more" in await refused(kafka, expired)


@pytest.mark.parametrize("kept", [slice(0), slice(-1)], ids=["wiped", "set back"])
async def test_absent_offsets_excuse_no_journal_that_is_not_whole(
    kafka: str, expired: Case, kept: slice
) -> None:
    async with only(kafka, expired, JOURNAL, kept):
        assert "older than" in await refused(kafka, expired)


async def test_a_journal_that_all_else_confirms_goes_on_and_says_so_for_good(
    kafka: str, expired: Case
) -> None:
    """The last test with this run, which goes on to its end."""
    done = await asyncio.to_thread(expired.run, "--until-end")
    assert done.returncode == 0, done.stderr
    assert "offsets had expired" in done.stderr
    assert await judged(kafka, expired.expecting(zero_noise=False)) == []
    lease = await records(kafka, f"{expired.expected.pipeline}.private.lease")
    notes = [one for one in lease if ("stream-dp-note", b"went-on-without-offsets") in one.headers]
    assert len(notes) == 1
    again = await asyncio.to_thread(expired.run, "--until-end")
    assert "offsets had expired" not in again.stderr


async def test_without_offsets_and_a_release_that_should_be_public_it_stops(
    kafka: str, tmp_path: Path
) -> None:
    case = await forgotten(kafka, await killed(kafka, tmp_path, "before-publish:3"))
    assert "has no offsets any more" in await refused(kafka, case)


async def test_a_topic_and_a_login_that_are_not_known_are_named(kafka: str, tmp_path: Path) -> None:
    """The local broker speaks no SASL at all."""
    case = over(kafka, tmp_path, TICKS)
    assert "does not exist" in await refused(kafka, case, code=5, kit=False)
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
