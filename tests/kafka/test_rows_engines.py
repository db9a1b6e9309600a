"""One pipeline, read by one process, by two, by workers and by a Faust app, some of them killed: the same bytes."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from faults.cases import Case
from kafka import test_user_topics as users
from kafka.flight_topics import PARTITIONS, judged, over, ticks_of, topic_of
from kafka.kafka_worlds import marks_of
from kafka.test_lane_processes import committed, fed_up_to
from kafka.test_workers import OFTEN, OPTIONS, SERIES, SLOWLY, bodies, with_changes, working
from typer.testing import CliRunner

from stream_dp.broker.topics import create_topic
from stream_dp.cli.main import app
from stream_dp.engine.lanes.rows import Sealed
from stream_dp.errors import FailClosed
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.operate.replay_feed import feed
from stream_dp.operate.run.hosted import LaneHost

SLOWER = SLOWLY.replace("0.02", "0.3")
APP = f"""
import os, faust
{SLOWER}
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
            [sys.executable, str(script), "worker", "-l", "info", "--without-web"],
            env={**os.environ, **case.environment(), **told}, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield worker
    finally:
        worker.kill()
        worker.wait()


def said_by(case: Case, number: int) -> str:
    return (case.folder / f"log-{number}").read_text()


async def both_read(case: Case) -> None:
    async with asyncio.timeout(60):
        while not all("this worker reads lane" in said_by(case, number) for number in range(2)):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def through(kafka: str, how: str, case: Case, several: Sequence[str]) -> None:
    """Run to the end; of two that read lanes one is killed in the middle."""
    if how in {"one", "processes"}:
        await asyncio.to_thread(case.finish, "--zero-noise", *several)
        return
    with ExitStack() as stack:
        if how == "workers":
            readers: list[Any] = [stack.enter_context(working(case, SLOWER)) for _ in range(2)]
        else:
            readers = [stack.enter_context(hosting(kafka, case, number)) for number in range(2)]
        run = case.start(*OPTIONS, patch=OFTEN)
        try:
            await committed(run, 5)
            if how == "faust":
                await both_read(case)
            assert run.poll() is None
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
    assert "this worker reads lanes 0, 1, 2 of 3" in said_by(case, 1)


@pytest.mark.slow
async def test_series_that_come_and_go_count_in_a_faust_app_as_in_one_process(
    kafka: str, tmp_path: Path
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "faust").mkdir()
    one = await with_changes(kafka, over(kafka, tmp_path / "one", 24), None)
    case, numbers = over(kafka, tmp_path / "faust", 24, workers={"lanes": PARTITIONS}), count()

    def host() -> AbstractContextManager[Any]:
        return hosting(kafka, case, next(numbers))

    assert await with_changes(kafka, case, host, hurt=False) == one
    assert any("this worker reads lane" in said_by(case, number) for number in range(3))


async def test_a_hosted_lane_writes_the_rows_of_workers_and_a_check_finds_what_is_wrong(
    kafka: str, tmp_path: Path
) -> None:
    case = over(kafka, tmp_path, 20, workers={"lanes": PARTITIONS}, open_transactions="wait")
    await create_topic(kafka, topic_of(case), PARTITIONS)
    pipeline, key = case.expected.pipeline, case.folder / "operator.key"
    rows, layouts = f"{pipeline}.private.rows", f"{pipeline}.private.layout"
    with working(case), working(case):
        run = case.start(*OPTIONS)
        await fed_up_to(kafka, case, 20)
        await asyncio.to_thread(run.communicate)
        run.kill()
    laid = [(record.headers, record.value) for record in await records_of(kafka, layouts)]
    host = LaneHost.of(case.pipeline, key, laid)
    assert host is not None
    events, written = await records_of(kafka, topic_of(case)), await records_of(kafka, rows)
    for number in range(PARTITIONS):
        lane = host.lane(number)
        lane.begin({number: 0})
        mine = [record for record in events if record.partition == number]
        for at in range(0, len(mine), 7):
            lane.feed(number, mine[at : at + 7])
        made = [host.sealer.row(number, Sealed(tuple(h), value)) for h, value in lane.rows()]
        there = dict[int, bytes]()
        for record in written:
            if record.partition == number:
                row, plain = host.sealer.row(number, Sealed(record.headers, record.value))
                there.setdefault(row.tick, plain)
        assert {row.tick: plain for row, plain in made} == there
        assert len(there) == 20
    given = ["rows", "check", rows, "--pipeline", str(case.pipeline), "--key-file", str(key)]

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


async def records_of(kafka: str, topic: str) -> list[Any]:
    """The committed records of a topic, as a client reads them."""
    found = list[Any]()
    reader = AIOKafkaConsumer(
        topic,
        bootstrap_servers=kafka,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    await reader.start()
    try:
        ends = await reader.end_offsets(reader.assignment())
        while any([await reader.position(place) < end for place, end in ends.items()]):
            for many in (await reader.getmany(timeout_ms=200)).values():
                found += many
    finally:
        await reader.stop()
    return found


async def put(kafka: str, topic: str) -> None:
    """Let a stranger write among the rows."""
    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    await producer.start()
    try:
        await producer.send_and_wait(topic, b"{}", partition=1)
    finally:
        await producer.stop()
