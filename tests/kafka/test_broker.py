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

from stream_dp.broker import LocalKafka, create_topic
from stream_dp.errors import WorldError
from stream_dp.testing.kafka import fresh_topic_name

BROKER = """
import typer
from stream_dp.cli.commands.broker import broker
typer.run(broker)
"""


async def write(bootstrap: str, topic: str, values: list[bytes], *, commit: bool = True) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"id-{topic}")
    await producer.start()
    try:
        await producer.begin_transaction()
        for value in values:
            await producer.send_and_wait(topic, value, partition=0)
        await (producer.commit_transaction() if commit else producer.abort_transaction())
    finally:
        await producer.stop()


async def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    consumer.assign([TopicPartition(topic, 0)])
    await consumer.start()
    try:
        async with asyncio.timeout(60):
            return [(await consumer.getone()).value for _ in range(count)]
    finally:
        await consumer.stop()


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # dead, but its parent has not asked yet


async def gone(pid: int, seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not alive(pid):
            return True
        await asyncio.sleep(0.05)
    return False


@asynccontextmanager
async def command(*arguments: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """`stream-dp broker ARGUMENTS`, started and ready, with the address it printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", BROKER, *arguments),
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        yield process, line.decode().strip()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_a_transaction_is_read_when_committed(kafka: str) -> None:
    topic = fresh_topic_name()
    assert await create_topic(kafka, topic, config={"message.timestamp.type": "LogAppendTime"})
    assert not await create_topic(kafka, topic, partitions=5)
    await write(kafka, topic, [b"aborted"], commit=False)
    await write(kafka, topic, [b"one", b"two"])
    assert await read(kafka, topic, 2) == [b"one", b"two"]


async def test_a_refused_topic_says_why(kafka: str) -> None:
    with pytest.raises(WorldError, match=r"no\.such\.setting"):
        await create_topic(kafka, fresh_topic_name(), config={"no.such.setting": "1"})


async def test_no_kafka_is_a_world_error() -> None:
    with pytest.raises(WorldError, match=r"127\.0\.0\.1:1"):
        await create_topic("127.0.0.1:1", "topic")


async def test_a_cluster_id_may_begin_with_a_dash(tmp_path: Path) -> None:
    """As one in 64 does: the format tool would take it for an option of its own."""
    identity = {"id": "-CYAMplOTBGgWCiWyNcUDQ", "nodes": 1}
    (tmp_path / "cluster.json").write_text(json.dumps(identity))
    async with LocalKafka(tmp_path) as kafka:
        assert await create_topic(kafka.bootstrap, "events")


async def test_a_restart_keeps_the_data(tmp_path: Path) -> None:
    async with LocalKafka(tmp_path) as kafka:
        await create_topic(kafka.bootstrap, "kept")
        await write(kafka.bootstrap, "kept", [b"one"])
        old = kafka.pids
        with pytest.raises(WorldError, match=str(os.getpid())):
            await LocalKafka(tmp_path).start()
    assert not alive(old[0])
    async with LocalKafka(tmp_path) as kafka:
        await write(kafka.bootstrap, "kept", [b"two"])
        assert await read(kafka.bootstrap, "kept", 2) == [b"one", b"two"]


async def test_a_death_is_noticed_and_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(
        "JAVA_TOOL_OPTIONS", raising=False
    )  # Java says that it took them, in the log
    keep_ports(tmp_path, 1)
    kafka = LocalKafka(tmp_path)
    async with kafka:
        await create_topic(kafka.bootstrap, "kept")
        address = kafka.bootstrap
        await write(address, "kept", [b"one"])
        os.kill(kafka.pids[0], signal.SIGKILL)  # the commit's marker may not be written yet
        with pytest.raises(WorldError, match=r"died.*-9.*\n  \[\d{4}-"):
            await asyncio.wait_for(kafka.watch(), 60)
    async with kafka:
        assert kafka.bootstrap == address
        assert await read(address, "kept", 1) == [b"one"]
        assert kafka._nodes[0].fenced == set(), "its former life had ended before"


async def test_a_restart_on_another_port(tmp_path: Path) -> None:
    keep_ports(tmp_path, 1)
    async with LocalKafka(tmp_path) as kafka:
        await create_topic(kafka.bootstrap, "kept")
        await write(kafka.bootstrap, "kept", [b"one"])
        old = kafka.bootstrap
    with socket.socket() as sock:  # somebody else took it
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", int(old.split(":")[1])))
        sock.listen()
        async with LocalKafka(tmp_path) as kafka:
            assert kafka.bootstrap != old
            assert await read(kafka.bootstrap, "kept", 1) == [b"one"]


async def test_a_failed_start_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = LocalKafka(tmp_path)
    monkeypatch.setattr("stream_dp.broker.process._behaviour", lambda: {"num.partitions": "many"})
    with pytest.raises(WorldError, match=r"num\.partitions"):
        await kafka.start()
    assert kafka.pids == ()
    monkeypatch.undo()
    async with kafka:
        assert len(kafka.pids) == 1


async def test_a_killed_parent_takes_its_broker_along(tmp_path: Path) -> None:
    async with command("--data-dir", str(tmp_path)) as (process, address):
        assert address.startswith("127.0.0.1:")
        java = child_of(process.pid)
        process.kill()
        assert await gone(java)
    async with LocalKafka(tmp_path) as kafka:
        assert kafka.pids != (java,)


def child_of(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


@pytest.mark.slow
async def test_the_command_stops_on_ctrl_c(tmp_path: Path) -> None:
    async with command("--data-dir", str(tmp_path)) as (process, _):
        java = child_of(process.pid)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
        assert await asyncio.wait_for(process.wait(), 100) == 0
        assert not alive(java)


@pytest.mark.slow
async def test_three_nodes_survive_one_death(tmp_path: Path) -> None:
    async with LocalKafka(tmp_path, nodes=3) as kafka:
        await create_topic(kafka.bootstrap, "replicated")
        await write(kafka.bootstrap, "replicated", [b"one"])
        os.kill(kafka.pids[1], signal.SIGKILL)
        await write(kafka.bootstrap, "replicated", [b"two"])
        assert await read(kafka.bootstrap, "replicated", 2) == [b"one", b"two"]
        assert len(kafka.pids) == 2
    async with LocalKafka(tmp_path, nodes=3) as kafka:
        assert await read(kafka.bootstrap, "replicated", 2) == [b"one", b"two"]
