"""An engine on a real Kafka whose page is attacked: its ticks go on, and so do the files it needs for its brokers."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
from faults.kafka_evidence import records
from free_ports import free_port
from unit.server.attackers import DEAF, SLOW, attacking

from stream_dp.broker.topics import create_topic
from stream_dp.testing.kafka import fresh_topic_name

FILES = 200
START = (
    "import resource as r; from stream_dp.cli.start import start; "
    f"r.setrlimit(r.RLIMIT_NOFILE, ({FILES}, r.getrlimit(r.RLIMIT_NOFILE)[1])); start()"
)
PIPELINE = """
version: 1
name: {name}
source: {{kind: kafka, topic: {topic}, bootstrap: "{kafka}"}}
schema: {{size: {{type: integer}}}}
privacy: {{epsilon: 1}}
clock: {{kind: wall, step: 250ms, delay: 100ms}}
series: [{{name: all, statistic: count, epsilon: 1}}]
"""


async def more_ticks(kafka: str, name: str, ticks: int) -> None:
    """Wait until there are so many releases more."""
    seen = len(await records(kafka, f"{name}.releases"))
    async with asyncio.timeout(120):
        while len(await records(kafka, f"{name}.releases")) < seen + ticks:  # noqa: ASYNC110
            await asyncio.sleep(0.2)


def started(folder: Path, text: str, port: int) -> "subprocess.Popen[str]":
    """An engine that may open few files."""
    (folder / "p.yaml").write_text(text)
    (folder / "key").write_bytes(bytes(range(32)))
    (folder / "key").chmod(0o600)
    own = {"STREAM_DP_KEY_FILE": str(folder / "key"), "STREAM_DP_HOME": str(folder / "home")}
    command = [
        sys.executable,
        "-c",
        START,
        "run",
        str(folder / "p.yaml"),
        "--serve",
        "--port",
        str(port),
    ]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=os.environ | own, stdout=pipe, stderr=pipe, text=True)


def files_of(engine: "subprocess.Popen[str]") -> int:
    """How many files it has open."""
    return len(list(Path(f"/proc/{engine.pid}/fd").iterdir()))


async def test_ticks_go_on_beside_clients_that_would_take_every_file(
    kafka: str, tmp_path: Path
) -> None:
    """Before: 196 of 200 files were taken, nobody else was answered, and an engine that needs a file ends."""
    name, topic, port = fresh_topic_name("attacked"), fresh_topic_name("calm"), free_port()
    await create_topic(kafka, topic, 1, {"message.timestamp.type": "LogAppendTime"})
    engine = started(tmp_path, PIPELINE.format(name=name, topic=topic, kafka=kafka), port)
    try:
        await more_ticks(kafka, name, 2)
        with attacking(port, (*SLOW, *DEAF), 300):
            await more_ticks(kafka, name, 8)
            assert engine.poll() is None, engine.communicate()[1]
            assert files_of(engine) < FILES - 40
            async with httpx.AsyncClient(timeout=60) as client:
                assert (await client.get(f"http://127.0.0.1:{port}/api/series")).status_code == 200
            engine.send_signal(signal.SIGINT)
            _, said = await asyncio.to_thread(engine.communicate, None, 120)
        assert engine.returncode == 0, said
        assert "Traceback" not in said
    finally:
        engine.kill()
        engine.communicate()
