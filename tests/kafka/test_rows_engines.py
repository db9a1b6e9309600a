"""One pipeline, read by one process, by two, by workers and by a Faust app, some of them killed: the same bytes."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from faults.cases import Case
from kafka import test_user_topics as users
from kafka.flight_topics import PARTITIONS, judged, over, ticks_of, topic_of
from kafka.kafka_worlds import marks_of
from kafka.test_lane_processes import committed, fed_up_to
from kafka.test_workers import OFTEN, OPTIONS, SERIES, SLOWLY, bodies, working
from typer.testing import CliRunner

from stream_dp.broker.topics import create_topic
from stream_dp.cli.main import app
from stream_dp.errors import FailClosed
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.operate.replay_feed import feed

APP = f"""
import os, faust
{SLOWLY}
from stream_dp.integrations.faust import lanes
app = faust.App(
    os.environ["LANES_APP"], broker="kafka://" + os.environ["LANES_KAFKA"], store="memory://",
    datadir=os.environ["LANES_DATA"], topic_replication_factor=1, broker_session_timeout=6.0,
    broker_heartbeat_interval=1.0, web_enabled=False,
)
hosted = lanes(app, os.environ["LANES_FILE"])

@app.agent(hosted.topic)
async def count(stream):
    await hosted(stream)

app.main()
"""


@contextmanager
def hosting(kafka: str, case: Case, number: int) -> Iterator["subprocess.Popen[bytes]"]:
    """A worker of a Faust app that hosts lanes."""
    script = case.folder / "lanes_app.py"
    script.write_text(APP)
    told = {
        "LANES_APP": f"lanes-{case.expected.pipeline}", "LANES_KAFKA": kafka, "LANES_FILE": str(case.pipeline),
        "LANES_DATA": str(case.folder / f"data-{number}"),
    }  # fmt: skip
    with (case.folder / f"log-{number}").open("w") as log:
        worker = subprocess.Popen(
            [sys.executable, str(script), "worker", "-l", "info"],
            env={**os.environ, **case.environment(), **told}, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield worker
    finally:
        worker.kill()
        worker.wait()


def said_by(case: Case, number: int) -> str:
    return (case.folder / f"log-{number}").read_text()


async def through(kafka: str, how: str, case: Case, several: Sequence[str]) -> None:
    """Run to the end; of two that read lanes one is killed in the middle."""
    if how in {"one", "processes"}:
        await asyncio.to_thread(case.finish, "--zero-noise", *several)
        return
    with ExitStack() as stack:
        if how == "workers":
            readers: list[Any] = [stack.enter_context(working(case, SLOWLY)) for _ in range(2)]
        else:
            readers = [stack.enter_context(hosting(kafka, case, number)) for number in range(2)]
        run = case.start(*OPTIONS, patch=OFTEN)
        try:
            await committed(run, 5)
            readers[0].kill()
            _, errors = await asyncio.to_thread(run.communicate)
            assert run.returncode == 0, errors
        finally:
            run.kill()


@pytest.mark.slow
async def test_flights_are_the_same_whoever_reads_them(kafka: str, tmp_path: Path) -> None:
    published = dict[str, list[bytes]]()
    for how in ("one", "processes", "workers", "faust"):
        folder = tmp_path / how
        folder.mkdir()
        lanes: dict[str, Any] = (
            {"workers": {"lanes": PARTITIONS}} if how in {"workers", "faust"} else {}
        )
        case = over(kafka, folder, 40, **lanes)
        await create_topic(kafka, topic_of(case), PARTITIONS)
        await feed(KafkaSettings(kafka), marks_of(case), ticks_of(case))
        await through(kafka, how, case, ("--processes", "2") if how == "processes" else ())
        assert await judged(kafka, case) == []
        published[how] = await bodies(kafka, case)
    assert len(published["one"]) == 200
    for how, found in published.items():
        assert found == published["one"], how
    assert "this worker reads lane" in said_by(case, 0)
    assert "this worker reads lanes 0, 1 of 2" in said_by(case, 1)


@pytest.mark.slow
async def test_customers_are_the_same_whoever_reads_them(
    kafka: str, tmp_path: Path, name: str
) -> None:
    published = dict[str, list[bytes]]()
    case = users.case_of(kafka, tmp_path, name)
    text, _ = case.pipeline.read_text().split("series:")
    text = f"{text}series:{SERIES}"
    case.pipeline.write_text(text)
    await users.produced(kafka, case)
    for how in ("one", "processes", "workers", "faust"):
        lanes = "workers: {lanes: 3}, " if how in {"workers", "faust"} else ""
        read = text.replace("keyed_by", f"{lanes}keyed_by")
        case.pipeline.write_text(read.replace(f"name: {name}\n", f"name: {name}-{how}\n"))
        case = case.expecting(pipeline=f"{name}-{how}")
        await through(kafka, how, case, ("--processes", "3") if how == "processes" else ())
        published[how] = await bodies(kafka, case)
    assert len(published["one"]) == 4 * users.TICKS
    for how, found in published.items():
        assert found == published["one"], how
    assert "this worker reads lane" in said_by(case, 0)
    assert "this worker reads lanes 0, 1, 2 of 3" in said_by(case, 1)


async def test_the_rows_of_a_topic_are_checked_where_they_lie(kafka: str, tmp_path: Path) -> None:
    case = over(kafka, tmp_path, 20, workers={"lanes": PARTITIONS})
    await create_topic(kafka, topic_of(case), PARTITIONS)
    rows = f"{case.expected.pipeline}.private.rows"
    with working(case), working(case):
        run = case.start(*OPTIONS)
        await fed_up_to(kafka, case, 20)
        await asyncio.to_thread(run.communicate)
        run.kill()
    key = ["--key-file", str(case.folder / "operator.key")]
    given = ["rows", "check", rows, "--pipeline", str(case.pipeline), *key]

    def check() -> Any:
        return CliRunner().invoke(app, given, env=case.environment())

    ended = await asyncio.to_thread(check)
    assert ended.exit_code == 0, ended.output
    assert [line.partition(";")[0] for line in ended.output.splitlines()] == [
        "lane 0: ticks 0 to 19 count", "lane 1: ticks 0 to 19 count"
    ]  # fmt: skip
    await put(kafka, rows)
    ended = await asyncio.to_thread(check)
    assert isinstance(ended.exception, FailClosed)
    assert f"{rows}, partition 1, offset " in ended.output
    assert "neither an engine nor a worker has written" in ended.output


async def put(kafka: str, topic: str) -> None:
    """Let a stranger write among the rows."""
    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    await producer.start()
    try:
        await producer.send_and_wait(topic, b"{}", partition=1)
    finally:
        await producer.stop()
