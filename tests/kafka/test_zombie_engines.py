"""An engine that sleeps while another takes over: when it wakes it publishes nothing and stops, exit 4."""

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from faults.cases import Case, broken_command
from faults.evidence import EvidenceError, content
from faults.kafka_evidence import journal_blobs, over_kafka, public_log
from kafka.flight_topics import fed, judged

TICKS = 60


@pytest.fixture
async def case(kafka: str, tmp_path: Path) -> Case:
    return (await fed(kafka, tmp_path, TICKS)).expecting(zero_noise=False)


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


@pytest.mark.parametrize("point", ["before-commit:20", "before-publish:5"])
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
    assert await judged(kafka, case) == []


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
