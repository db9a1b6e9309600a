"""An engine that sleeps while another takes over: when it wakes it publishes nothing and stops, exit 4."""

import asyncio
import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from faults.cases import Case, broken_command, document, expectation, flights, seen, write
from faults.checker import findings
from faults.evidence import EvidenceError, content
from faults.kafka_evidence import journal_blobs, over_kafka, public_log
from kafka.kafka_worlds import marks_of

from stream_dp.broker.topics import create_topic
from stream_dp.core.time import TickGrid
from stream_dp.files.records import FieldType, load_records, ticked
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.operate.replay_feed import feed
from stream_dp.testing.kafka import fresh_topic_name

TICKS = 120
FIELDS = {
    "time": FieldType.TIME,
    "airline": FieldType.CATEGORY,
    "destination": FieldType.CATEGORY,
    "delay": FieldType.INTEGER,
}


@pytest.fixture
async def case(kafka: str, tmp_path: Path) -> Case:
    made = flights(tmp_path, TICKS)
    name = fresh_topic_name("zombie")
    source = {"kind": "kafka", "topic": f"{name}.events", "bootstrap": kafka}
    write(tmp_path, document(name, TICKS, 6, source))
    await create_topic(kafka, f"{name}.events", 2)
    expected = expectation(name, TICKS)
    rows = load_records(tmp_path / "slice.csv", FIELDS, "time")
    ticks = ticked(rows, TickGrid(expected.origin, expected.step, TICKS))
    case = Case(tmp_path, expected, made.events).expecting(zero_noise=False)
    await feed(KafkaSettings(kafka), marks_of(case), ticks)
    return case


UNFENCED = """
import aiokafka
class Unfenced(aiokafka.AIOKafkaProducer):
    def __init__(self, **options):
        super().__init__(**{**options, "transactional_id": options["transactional_id"] + ".other"})
aiokafka.AIOKafkaProducer = Unfenced
"""


def wait_until_stopped(number: int) -> None:
    """Return once the process has been stopped by a signal, fail if it has ended; it is not reaped."""
    found = os.waitid(os.P_PID, number, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert found is not None
    assert found.si_code == os.CLD_STOPPED, "the run ended before it could be stopped"


@pytest.mark.parametrize("point", ["before-commit:20", "after-commit:20", "before-publish:5"])
async def test_a_sleeper_publishes_nothing_when_it_wakes(
    kafka: str, case: Case, point: str
) -> None:
    name = case.expected.pipeline
    sleeper = case.start("--until-end", "--dawdle", "1", "--trace", "--pause", point, anew=True)
    async with asyncio.timeout(100):
        await asyncio.to_thread(wait_until_stopped, sleeper.pid)
    await asyncio.to_thread(case.finish)
    public = await public_log(kafka, f"{name}.releases")
    journal = await journal_blobs(kafka, f"{name}.private.journal")

    sleeper.send_signal(signal.SIGCONT)
    _, errors = await asyncio.to_thread(sleeper.communicate)

    assert sleeper.returncode == 4
    said = [line for line in errors.splitlines() if line.startswith("stream-dp: ")]
    assert len(said) == 1
    assert f"another engine has taken over pipeline '{name}'" in said[0]
    assert await public_log(kafka, f"{name}.releases") == public
    assert await journal_blobs(kafka, f"{name}.private.journal") == journal
    assert findings(case.expected, case.events, await over_kafka(kafka, name, case.key)) == []


async def test_a_sleeper_without_the_fence_is_caught(kafka: str, case: Case) -> None:
    """The control: with a transactional id of its own it would go on with other noise, and that is found."""
    name = case.expected.pipeline
    command = broken_command(
        case, UNFENCED, "--until-end", "--dawdle", "1", "--pause", "before-commit:20"
    )
    sleeper = await asyncio.create_subprocess_exec(
        *command, env=case.environment(), stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(100):
        await asyncio.to_thread(wait_until_stopped, sleeper.pid)
    await asyncio.to_thread(case.finish)
    sleeper.send_signal(signal.SIGCONT)
    await sleeper.communicate()
    with pytest.raises(EvidenceError):
        await over_kafka(kafka, name, case.key)
    public = await public_log(kafka, f"{name}.releases")
    sequences = Counter(content(record.body)["sequence"] for record in public)
    versions = {record.body for record in public}
    assert len(versions) > len(sequences)


NO_ANSWER = """
import os, signal
from stream_dp.kafka.log.lease import KafkaLease
from stream_dp.errors import Outage
transact, count = KafkaLease.transact, 0
async def silent(lease, records, offsets=None, group=""):
    global count
    count += 1
    if count == 20:
        os.kill(os.getpid(), signal.SIGSTOP)
        raise Outage("a transaction got no answer in time")
    await transact(lease, records, offsets, group)
KafkaLease.transact = silent
{more}
"""
WORKING = ("--until-end", "--trace", "--dawdle")


async def woken_beside(
    case: Case, patch: str, dawdle_ms: int
) -> tuple[int | None, str, int | None, str]:
    """A sleeper that wakes while another works, and first notices that an answer never came; how both end."""
    command = broken_command(case, patch, *WORKING, "20")
    sleeper = subprocess.Popen(  # noqa: ASYNC220 - it returns at once
        command,
        env=case.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    async with asyncio.timeout(100):
        await asyncio.to_thread(wait_until_stopped, sleeper.pid)
    other = case.start(*WORKING, str(dawdle_ms))
    assert await asyncio.to_thread(seen, other, 10) == 10
    sleeper.send_signal(signal.SIGCONT)
    _, errors = await asyncio.to_thread(sleeper.communicate)
    _, others = await asyncio.to_thread(other.communicate)
    return sleeper.returncode, errors, other.returncode, others


async def test_a_sleeper_that_notices_no_more_than_silence_leaves_the_other_alone(
    kafka: str, case: Case
) -> None:
    """It would try again by itself after an outage, and so fence the engine that has taken over."""
    code, errors, others_code, others = await woken_beside(case, NO_ANSWER.format(more=""), 20)
    assert (code, others_code) == (4, 0), (errors, others)
    assert "another engine has taken over" in errors
    name = case.expected.pipeline
    assert findings(case.expected, case.events, await over_kafka(kafka, name, case.key)) == []


async def test_a_sleeper_that_does_not_look_who_holds_the_lease_is_caught(case: Case) -> None:
    """The control: it fences the healthy engine."""
    blind = "async def nobody(lease): return False\nKafkaLease._other_holder = nobody"
    patch = NO_ANSWER.format(more=blind)
    _, _, others_code, others = await woken_beside(case, patch, 500)  # it is still at work then
    assert others_code == 4, others
