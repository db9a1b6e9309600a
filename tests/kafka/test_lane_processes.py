"""Processes that read lanes of a real topic, killed, hanging, left alone: nothing is lost, and nothing counts twice."""

import asyncio
import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

import httpx
from faults.cases import Case
from faults.checker import unfounded
from faults.forked import Run
from faults.kafka_evidence import over_kafka
from faults.killing import lanes_of
from free_ports import free_port
from kafka.flight_topics import PARTITIONS, judged, over, ticks_of, topic_of
from kafka.kafka_worlds import marks_of
from kafka.test_user_topics import CAP, WINDOW, case_of, home, logs_of, produced, rows_of
from oracles.user_caps import judge

from stream_dp.broker.topics import create_topic
from stream_dp.journal.keys import Sealer
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.operate.replay_feed import feed

TICKS = 60
IMPATIENT = "from stream_dp.engine.lanes import processes as lanes\nlanes.SILENT_S = 1\n"
OPTIONS = ("--until-end", "--zero-noise", "--trace", "--processes")


async def reading(engine: Run, number: int, but: int = 0) -> list[int]:
    """The processes of its lanes, once there are so many, without `but`."""
    async with asyncio.timeout(60):
        while len(found := [pid for pid in lanes_of(engine.pid) if pid != but]) < number:
            assert engine.poll() is None, engine.communicate()
            await asyncio.sleep(0.05)
    return found


def gone(lanes: list[int]) -> None:
    """Wait until these processes are gone."""
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{lane}").exists() for lane in lanes):
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def fed_up_to(kafka: str, case: Case, end: int) -> None:
    """Feed the ticks before this one that the topic does not hold yet."""
    await feed(KafkaSettings(kafka), marks_of(case), ticks_of(case)[:end])


async def committed(run: Run, commits: int) -> None:
    """Wait for so many more commits, of a tick each."""

    def seen() -> None:
        done = 0
        while done < commits:
            assert run.stdout is not None
            line = run.stdout.readline()
            assert line, run.communicate()
            done += line == "after-commit\n"

    async with asyncio.timeout(60):
        await asyncio.to_thread(seen)


async def test_lanes_that_are_killed_or_hang_begin_again(kafka: str, tmp_path: Path) -> None:
    case = over(kafka, tmp_path, TICKS)
    await create_topic(kafka, topic_of(case), PARTITIONS)
    run = case.start(*OPTIONS, "2", "--dawdle", "0", patch=IMPATIENT)
    try:
        first = await reading(run, 2)
        await fed_up_to(kafka, case, 15)
        await committed(run, 10)
        os.kill(first[0], signal.SIGKILL)
        after = await reading(run, 2, but=first[0])
        await fed_up_to(kafka, case, 30)
        await committed(run, 10)
        os.kill(after[1], signal.SIGSTOP)
        await fed_up_to(kafka, case, TICKS)
        await reading(run, 2, but=after[1])
        _, errors = await asyncio.to_thread(run.communicate)
    finally:
        run.kill()
    assert run.returncode == 0, errors
    assert errors.count("its lane begins again") == 2
    assert "Traceback" not in errors
    assert await judged(kafka, case) == []


async def test_the_operators_port_says_which_lane_lags(kafka: str, tmp_path: Path) -> None:
    case = over(kafka, tmp_path, TICKS)
    await create_topic(kafka, topic_of(case), PARTITIONS)
    await fed_up_to(kafka, case, 15)
    port, token = free_port(), Sealer(case.key, case.expected.pipeline).query_token()
    asked = ("--processes", "2", "--operator-port", str(port))
    run = case.start(*asked, "--yes", kit=False)

    async def told(path: str, words: str) -> None:
        said = ""
        async with httpx.AsyncClient(headers={"authorization": f"Bearer {token}"}) as client:
            async with asyncio.timeout(60):
                while not re.search(words, said):
                    assert run.poll() is None, run.communicate()
                    await asyncio.sleep(0.02)
                    with suppress(httpx.TransportError):
                        said = (await client.get(f"http://127.0.0.1:{port}/{path}")).text

    try:
        lanes = await reading(run, 2)
        await told("metrics", r"commits_total\S* [2-9]")
        await told("lanes", "NOT PRIVATE: no lane lags\nlane 0: 0 closed ticks")
        os.kill(lanes[0], signal.SIGSTOP)
        await fed_up_to(kafka, case, 30)
        await told("lanes", "the ticks of all other lanes wait for lane [01]\n")
        os.kill(lanes[0], signal.SIGCONT)
        await told("lanes", "no lane lags")
    finally:
        run.kill()
        run.communicate()


async def test_lanes_end_with_their_engine_and_another_engine_goes_on(
    kafka: str, tmp_path: Path
) -> None:
    case = over(kafka, tmp_path, TICKS)
    await create_topic(kafka, topic_of(case), PARTITIONS)
    run = case.start(*OPTIONS, "2", "--dawdle", "0")
    try:
        lanes = await reading(run, 2)
        await fed_up_to(kafka, case, 20)
        await committed(run, 10)
    finally:
        run.kill()
        run.communicate()
    await asyncio.to_thread(gone, lanes)
    assert unfounded(await over_kafka(kafka, case.expected.pipeline, case.key, case.folder)) == []
    await fed_up_to(kafka, case, TICKS)
    await asyncio.to_thread(case.finish, "--zero-noise", "--processes", "2")
    assert await judged(kafka, case) == []


async def test_users_of_three_lanes_count_as_in_one_process(
    kafka: str, tmp_path: Path, name: str
) -> None:
    case = case_of(kafka, tmp_path, name)
    await produced(kafka, case)
    expected = judge(await logs_of(kafka, case), CAP, WINDOW, home)
    for point in ("mid-commit:3", "after-commit:1"):
        killed = await asyncio.to_thread(
            case.run, "--until-end", "--zero-noise", "--processes", "3", "--crash", point
        )
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    await asyncio.to_thread(case.finish, "--zero-noise", "--processes", "3")
    commits = (await over_kafka(kafka, case.expected.pipeline, case.key)).commits
    assert rows_of(commits) == expected.rows
    assert sum(commit["capped"] for commit in commits) == expected.capped > 50
    assert sum(each[4] for c in commits for each in c["dead_letters"]) == expected.dead > 20
