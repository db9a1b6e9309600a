"""Lanes hosted by a PyFlink job on a cluster of its own, which is killed: all counts once, and publishes equal bytes.

`make test-flink` makes the environment; where that is missing the tests say so and are not passed.
"""

import asyncio
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from faults.cases import Case
from kafka.flight_topics import PARTITIONS, judged, over, ticks_of, topic_of
from kafka.kafka_worlds import marks_of
from kafka.test_lane_processes import committed, fed_up_to
from kafka.test_workers import OFTEN, OPTIONS, TICKS, bodies, topic_for

from stream_dp.broker.topics import create_topic
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.operate.replay_feed import feed
from stream_dp.testing.kafka import missing

pytestmark = [pytest.mark.flink, pytest.mark.full]
ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-flink" / "bin" / "python"
CONFIG = {"parallelism.default": "N", "restart-strategy.type": "none"}


@pytest.fixture(scope="session", autouse=True)
def environment() -> None:
    if not PYTHON.exists():
        missing("flink", "no .venv-flink with PyFlink; `make test-flink` makes it")
    if shutil.which("java") is None:
        missing("flink", "no java on the path; PyFlink needs Java 17 or 11")


@contextmanager
def job(case: Case, number: int = 2) -> Iterator["subprocess.Popen[bytes]"]:
    """A job that hosts the lanes of a case, on a cluster with so many slots; all its processes are one group."""
    folder = case.folder / "flink"
    folder.mkdir(exist_ok=True)
    [default] = (ROOT / ".venv-flink").glob("lib/*/site-packages/pyflink/conf/config.yaml")
    lines = [x for x in default.read_text().splitlines() if not x.startswith(tuple(CONFIG))]
    own = {key: number if value == "N" else value for key, value in CONFIG.items()}
    lines += [f"{key}: {value}" for key, value in own.items()]
    (folder / "config.yaml").write_text("\n".join(lines))
    there = {"FLINK_CONF_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    with (folder / "log").open("ab") as log:
        run = subprocess.Popen(
            [PYTHON, "-m", "stream_dp.integrations.flink", str(case.pipeline)],
            env=case.environment() | there | {"_python_worker_execution_mode": "process"},
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        yield run
    finally:
        kill(run)


def kill(run: "subprocess.Popen[bytes]") -> None:
    if run.poll() is None:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()


async def test_a_job_that_is_killed_at_random_publishes_what_one_process_does(
    kafka: str, tmp_path: Path
) -> None:
    (tmp_path / "one").mkdir()
    one = over(kafka, tmp_path / "one", TICKS)
    await create_topic(kafka, topic_of(one), PARTITIONS)
    await feed(KafkaSettings(kafka), marks_of(one), ticks_of(one))
    await asyncio.to_thread(one.finish, "--zero-noise")
    (tmp_path / "hosted").mkdir()
    case = await topic_for(kafka, tmp_path / "hosted")
    run = case.start(*OPTIONS, patch=OFTEN)
    try:
        for end in (15, 30, 45):
            with job(case):
                await fed_up_to(kafka, case, end)
                await committed(run, 10)
                await asyncio.sleep(random.uniform(0, 1))
        with job(case):
            await fed_up_to(kafka, case, TICKS)
            _, errors = await asyncio.to_thread(run.communicate)
    finally:
        run.kill()
    assert run.returncode == 0, errors
    assert await judged(kafka, case) == []
    assert await bodies(kafka, case) == await bodies(kafka, one)
