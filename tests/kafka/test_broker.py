"""The local Kafka itself: transactions, restarts, deaths, locks and the command.

Processes are looked up by the pids the broker gave, never by name.
"""

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from kafka.cluster import keep_ports
from kafka.kafka_worlds import STAMPED

from stream_dp.broker import LocalKafka, create_topic
from stream_dp.errors import WorldError
from stream_dp.testing.kafka import fresh_topic_name

BROKER = "import typer\nfrom stream_dp.cli.commands.broker import broker\ntyper.run(broker)\n"


async def write(bootstrap: str, topic: str, values: list[bytes], *, commit: bool = True) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"id-{topic}") as to:
        await to.begin_transaction()
        for value in values:
            await to.send_and_wait(topic, value, partition=0)
        await (to.commit_transaction() if commit else to.abort_transaction())


async def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    consumer.assign([TopicPartition(topic, 0)])
    async with consumer, asyncio.timeout(60):
        return [(await consumer.getone()).value for _ in range(count)]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # dead, but its parent has not asked yet


def child_of(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


@asynccontextmanager
async def command(folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", BROKER, "--data-dir", str(folder)),
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        assert line.startswith(b"127.0.0.1:")
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_a_transaction_is_read_when_committed(kafka: str) -> None:
    topic = fresh_topic_name()
    assert await create_topic(kafka, topic, config=STAMPED)
    assert not await create_topic(kafka, topic, partitions=5)
    await write(kafka, topic, [b"aborted"], commit=False)
    await write(kafka, topic, [b"one", b"two"])
    assert await read(kafka, topic, 2) == [b"one", b"two"]


async def test_a_topic_that_cannot_be_made_says_why(kafka: str) -> None:
    with pytest.raises(WorldError, match=r"no\.such\.setting"):
        await create_topic(kafka, fresh_topic_name(), config={"no.such.setting": "1"})
    with pytest.raises(WorldError, match=r"127\.0\.0\.1:1"):
        await create_topic("127.0.0.1:1", "topic")


async def test_data_survives_a_death_a_restart_and_another_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its id begins with a dash, as that of one in 64: the format tool would take it for an option of its own."""
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)  # Java says in the log that it took them
    identity = {"id": "-CYAMplOTBGgWCiWyNcUDQ", "nodes": 1}
    (tmp_path / "cluster.json").write_text(json.dumps(identity))
    keep_ports(tmp_path, 1)
    kafka = LocalKafka(tmp_path)
    async with kafka:
        address = kafka.bootstrap
        await create_topic(address, "kept")
        await write(address, "kept", [b"one"])
        with pytest.raises(WorldError, match=str(os.getpid())):  # of who has the lock
            await LocalKafka(tmp_path).start()
        os.kill(kafka.pids[0], signal.SIGKILL)  # the commit's marker may not be written yet
        with pytest.raises(WorldError, match=r"died.*-9.*\n  \[\d{4}-"):
            await asyncio.wait_for(kafka.watch(), 60)
    async with kafka:
        assert kafka.bootstrap == address
        await write(address, "kept", [b"two"])
        assert await read(address, "kept", 2) == [b"one", b"two"]
        assert kafka._nodes[0].fenced == set(), "its former life had ended before"
        old = kafka.pids
    assert not alive(old[0])
    with socket.socket() as sock:  # somebody else took the port
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", int(address.split(":")[1])))
        sock.listen()
        async with LocalKafka(tmp_path) as kafka:
            assert kafka.bootstrap != address
            assert await read(kafka.bootstrap, "kept", 2) == [b"one", b"two"]


async def test_a_failed_start_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = LocalKafka(tmp_path)
    monkeypatch.setattr("stream_dp.broker.process._BEHAVIOUR", {"num.partitions": "many"})
    for _ in range(2):  # the second one finds no lock
        with pytest.raises(WorldError, match=r"num\.partitions"):
            await kafka.start()
        assert kafka.pids == ()


async def test_a_killed_parent_takes_its_broker_along(tmp_path: Path) -> None:
    async with command(tmp_path) as process:
        java = child_of(process.pid)
        process.kill()
        end = time.monotonic() + 60
        while alive(java):
            assert time.monotonic() < end
            await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_the_command_stops_on_ctrl_c(tmp_path: Path) -> None:
    async with command(tmp_path) as process:
        java = child_of(process.pid)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
        assert await asyncio.wait_for(process.wait(), 100) == 0
        assert not alive(java)
