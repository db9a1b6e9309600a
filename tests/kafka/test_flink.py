"""Lanes hosted by a PyFlink job on a cluster of its own, which is killed: all counts once, and publishes equal bytes.

`make flink` makes the environment; where that is missing the tests say so and are not passed.
"""

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeAlias

import pytest
from aiokafka import AIOKafkaProducer
from faults.cases import Case, make_key
from faults.checker import Expected
from faults.kafka_evidence import over_kafka
from kafka import test_user_topics as users
from kafka.flight_topics import PARTITIONS, judged, over, ticks_of, topic_of
from kafka.kafka_worlds import marks_of
from kafka.test_lane_processes import committed, fed_up_to
from kafka.test_workers import OFTEN, OPTIONS, SERIES, TICKS, begun, bodies, topic_for
from oracles.user_caps import judge

from stream_dp.broker.jars import cache_dir, parse_jars, resolve_jars
from stream_dp.broker.topics import create_topic
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.operate.replay_feed import feed
from stream_dp.records.decoder import RecordDecoder
from stream_dp.records.schema import CategoryField
from stream_dp.testing.kafka import missing

pytestmark = [pytest.mark.flink, pytest.mark.full]
ROOT = Path(__file__).parents[2]
PYTHON = str(ROOT / ".venv-flink" / "bin" / "python")
MODULE = "stream_dp.integrations.flink"
CONFIG = {
    "parallelism.default": "N", "taskmanager.numberOfTaskSlots": "N",
    "execution.target": "local", "table.dml-sync": "true",
}  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def environment() -> None:
    if not Path(PYTHON).exists():
        missing("flink", "no .venv-flink with PyFlink; `make flink` makes it")
    if shutil.which("java") is None:
        missing("flink", "no java on the path; PyFlink needs Java 17 or 11")


# Flink's SQL client needs these, which PyFlink does not bring.
GATEWAY = """
org.apache.flink:flink-sql-gateway:2.3.0 sha256:aad296a152dc367ddd70727f5a57dd61958cff3d8dceb1f947bf8d9705c8d724
org.apache.flink:flink-sql-gateway-api:2.3.0 sha256:85658df5d4fc689cd9a5d45b6841dbdbae4a92942b9c3e561cec396fb4e910ff
"""
Job: TypeAlias = "subprocess.Popen[bytes]"


@contextmanager
def job(
    case: Case,
    number: int = 2,
    *,
    how: Literal["python", "run", "sql"] = "python",
    restart: str = "none",
) -> Iterator[Job]:
    """A job that hosts the lanes of a case, on a cluster with so many slots; all its processes are one session. `run`
    is Flink's own command, and `sql` its client with what `stream-dp flink` prints.
    """
    folder, file = case.folder / "flink", str(case.pipeline)
    folder.mkdir(exist_ok=True)
    [home] = (ROOT / ".venv-flink").glob("lib/*/site-packages/pyflink")
    shutil.copytree(home / "conf", folder, dirs_exist_ok=True)
    with (folder / "config.yaml").open("a") as settings:
        for key, value in {**CONFIG, "restart-strategy.type": restart}.items():
            settings.write(f"{key}: {number if value == 'N' else value}\n")
    there = {"FLINK_CONF_DIR": str(folder), "FLINK_LOG_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    environment = case.environment() | there | {"_python_worker_execution_mode": "process"}
    command = ["-m", MODULE, file]
    if how == "run":
        command = ["flink", "run", "-pyclientexec", PYTHON, "-pyexec", PYTHON, "-pym", MODULE, file]
    if how == "sql":
        script = folder / "job.sql"
        with script.open("wb") as out:
            said = [PYTHON, "-m", "stream_dp", "flink", file]
            subprocess.run(said, env=environment, check=True, stdout=out)
        jars = resolve_jars(folder=cache_dir() / "flink-2.3.0", jars=parse_jars(GATEWAY))
        # what Flink's scripts add to the path
        environment["HADOOP_CLASSPATH"] = ":".join(map(str, jars))
        command = ["sql-client.sh", "-pyclientexec", PYTHON, "-pyexec", PYTHON, "-f", str(script)]
    first = [PYTHON] if how == "python" else ["bash"]
    command[0] = command[0] if how == "python" else str(home / "bin" / command[0])
    with (folder / "log").open("ab") as log:
        run = subprocess.Popen(
            first + command, env=environment, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        yield run
    finally:
        kill_all(run)


def processes(run: Job) -> dict[int, bytes]:
    """The command lines of what is left of a job, by process."""
    left = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(each.read_text().rpartition(")")[2].split()[3]) == run.pid:
                left[int(each.parent.name)] = (each.parent / "cmdline").read_bytes()
    return {pid: line for pid, line in left.items() if line}


def hosts(run: Job) -> list[int]:
    """The processes in which Flink runs Python."""
    return [pid for pid, line in processes(run).items() if b"beam_boot" in line]


async def hosting(run: Job) -> None:
    """Wait until the cluster has started Python."""
    async with asyncio.timeout(120):
        while not hosts(run):
            assert run.poll() is None
            await asyncio.sleep(0.5)


def kill_all(run: Job) -> None:
    while left := processes(run):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        run.poll()
        time.sleep(0.05)
    run.wait()


def kill_client(run: Job) -> None:
    """The cluster and its hosts are not told, and go on for a while."""
    run.kill()


def kill_hosts(run: Job) -> None:
    hosts = [
        pid for pid, line in processes(run).items() if b"beam_boot" in line or b"_sdk_" in line
    ]
    assert len(hosts) >= 2, processes(run)
    for pid in hosts:
        os.kill(pid, signal.SIGKILL)
    assert run.wait(60) != 0


async def gone(run: Job) -> None:
    async with asyncio.timeout(90):
        while processes(run):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.5)


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
    kills = [kill_all, kill_client, kill_hosts]
    random.shuffle(kills)
    started = list[Job]()
    run = case.start(*OPTIONS, patch=OFTEN)
    with ExitStack() as jobs:
        jobs.callback(run.kill)
        for at, kill in enumerate(kills):
            started.append(jobs.enter_context(job(case)))
            await hosting(started[-1])
            await fed_up_to(kafka, case, 15 * (at + 1))
            await committed(run, 15 if at else 10)  # more than the job before can have made
            await asyncio.sleep(random.uniform(0, 1))
            await asyncio.to_thread(kill, started[-1])
        with job(case, how="run", restart="exponential-delay") as last:
            await hosting(last)
            await fed_up_to(kafka, case, 50)
            await committed(run, 5)
            for pid in hosts(last):  # Flink starts them again
                os.kill(pid, signal.SIGKILL)
            await fed_up_to(kafka, case, TICKS)
            _, errors = await asyncio.to_thread(run.communicate)
        assert run.returncode == 0, errors
        for each in started:
            await gone(each)
    assert await judged(kafka, case) == []
    assert await bodies(kafka, case) == await bodies(kafka, one)


async def test_generated_sql_that_is_killed_publishes_what_one_process_does(
    kafka: str, tmp_path: Path
) -> None:
    (tmp_path / "one").mkdir()
    one = over(kafka, tmp_path / "one", 30)
    await create_topic(kafka, topic_of(one), PARTITIONS)
    await feed(KafkaSettings(kafka), marks_of(one), ticks_of(one))
    await asyncio.to_thread(one.finish, "--zero-noise")
    (tmp_path / "hosted").mkdir()
    case = await topic_for(kafka, tmp_path / "hosted", 30)
    run = case.start(*OPTIONS, patch=OFTEN)
    try:
        with job(case, how="sql") as killed:
            await hosting(killed)
            await fed_up_to(kafka, case, 15)
            await committed(run, 10)
            await asyncio.to_thread(kill_all, killed)
        with job(case, how="sql") as last:
            await hosting(last)
            await fed_up_to(kafka, case, 30)
            _, errors = await asyncio.to_thread(run.communicate)
    finally:
        run.kill()
    assert run.returncode == 0, errors
    assert await bodies(kafka, case) == await bodies(kafka, one)


async def test_users_of_a_job_that_is_killed_count_as_in_one_process(
    kafka: str, tmp_path: Path, name: str
) -> None:
    plain = users.case_of(kafka, tmp_path, name)
    text = f"{plain.pipeline.read_text().partition('series:')[0]}series:{SERIES}"
    of_lanes = text.replace("keyed_by", "workers: {lanes: 3}, keyed_by")
    plain.pipeline.write_text(of_lanes.replace(f"name: {name}\n", f"name: {name}-f\n"))
    case = plain.expecting(pipeline=f"{name}-f")
    await create_topic(kafka, f"{name}.events", users.PARTITIONS)
    run = case.start(*OPTIONS, patch=OFTEN)
    with ExitStack() as jobs:
        jobs.callback(run.kill)
        started = list[Job]()

        async def another(begin: int) -> None:
            """At the first tick a job begins; in the middle it is killed, and another one goes on."""
            if begin in (0, 20):
                if started:
                    await committed(run, 15)  # of the 20 that can be over
                    await asyncio.to_thread(kill_all, started[-1])
                started.append(jobs.enter_context(job(case)))
                await hosting(started[-1])

        await users.produced(kafka, plain, another)
        _, errors = await asyncio.to_thread(run.communicate)
    assert run.returncode == 0, errors
    logs = await users.logs_of(kafka, plain)
    expected = judge(logs, users.CAP, users.WINDOW, users.home)
    commits = (await over_kafka(kafka, case.expected.pipeline, case.key)).commits
    assert sum(commit["capped"] for commit in commits) == expected.capped > 50
    plain.pipeline.write_text(text)
    await asyncio.to_thread(plain.finish, "--zero-noise")
    published = await bodies(kafka, plain)
    assert len(published) == 4 * users.TICKS
    assert await bodies(kafka, case) == published


READ = """
from pyflink.table import DataTypes, EnvironmentSettings, TableEnvironment
import json, sys
table = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
values = table.from_elements([(value,) for value in json.loads(sys.argv[1])], ["v"])
table.create_temporary_view("events", values)
sql = "SELECT v, v IS JSON OBJECT AND JSON_QUERY(v, '$.key' WITH WRAPPER) = '[\\"a\\"]' FROM events"
print(json.dumps([*map(list, table.execute_sql(sql).collect())]))
print(json.dumps(table.list_functions()))
"""


def test_sql_can_neither_read_records_as_the_engine_does_nor_seal() -> None:
    """What docs/flink.md says of it."""
    values = ['{"key": "a"}', '{"key": 7}', '{"key": "a"} and more', '{"key": "a", "x": "\\ud800"}']
    ended = subprocess.run(
        [PYTHON, "-c", READ, json.dumps(values)], check=True, capture_output=True, text=True
    )
    rows, functions = map(json.loads, ended.stdout.splitlines()[-2:])
    decoder = RecordDecoder({"key": CategoryField(domain=("a",))})
    ours = {value: not decoder.decode([value.encode()]).refused for value in values}
    theirs = {value: bool(counts) for value, counts in rows}
    assert [value for value in values if ours[value] != theirs[value]] == values[2:], (ours, theirs)
    assert not [name for name in functions if "aes" in name or "hmac" in name]
    assert "sha256" in functions


LIVE = """
version: 1
name: {name}
source: {{kind: kafka, topic: {topic}, bootstrap: "{kafka}"{workers}}}
schema: {{key: {{type: category, domain: [a, b]}}}}
privacy: {{unit: event, epsilon: 8}}
clock: {{kind: wall, step: 1s, delay: 2s, start: "{start}"}}
series:
  - {{name: by_key, statistic: histogram, by: key, epsilon: 8}}
"""
VALUES = (b'{"key": "a"}', b'{"key": "b"}', b'{"key": 7}', b"no JSON", b'{"key": "a"} "and more"')


async def test_live_ticks_of_a_job_count_as_in_one_process(
    kafka: str, tmp_path: Path, name: str
) -> None:
    topic, start = f"{name}.events", datetime.now(UTC).isoformat(timespec="seconds")
    await create_topic(kafka, topic, 3, {"message.timestamp.type": "LogAppendTime"})
    cases = []
    for own, workers in ((name, ""), (f"{name}-f", ", workers: {lanes: 2}")):
        (tmp_path / own).mkdir()
        text = LIVE.format(name=own, kafka=kafka, topic=topic, workers=workers, start=start)
        (tmp_path / own / "pipeline.yaml").write_text(text)
        make_key(tmp_path / own)
        cases.append(
            Case(tmp_path / own, Expected(own, 0, 1000, 1, {}, (), (), zero_noise=True), ())
        )
    one, case = cases
    plain = AIOKafkaProducer(bootstrap_servers=kafka)
    by_transaction = AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=name)

    async def send(seconds: float) -> None:
        """Records of every kind in two partitions; the third one stays silent."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            async with by_transaction.transaction():
                for value in VALUES:
                    await by_transaction.send_and_wait(topic, value, partition=0)
                    await plain.send_and_wait(topic, value, partition=random.randrange(2))
                await asyncio.sleep(random.uniform(0, 0.4))

    runs = [each.start("--zero-noise", patch=OFTEN) for each in cases]
    try:
        await plain.start()
        await by_transaction.start()
        with job(case) as killed:
            await hosting(killed)
            await begun(kafka, case)
            await send(4)
            await asyncio.to_thread(kill_all, killed)
            await send(2)
        with job(case) as last:
            await hosting(last)
            await send(3)
            expected = await told(kafka, one, 30)
            published = await told(kafka, case, len(expected))
    finally:
        await plain.stop()
        await by_transaction.stop()
        for run in runs:
            run.kill()
            run.communicate()
    assert published[: len(expected)] == expected
    assert any(b"0, 0" not in body for body in expected)


async def told(kafka: str, case: Case, number: int) -> list[bytes]:
    """What is public of it, once it is so many releases."""
    async with asyncio.timeout(90):
        while len(released := await bodies(kafka, case)) < number:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
    return released
