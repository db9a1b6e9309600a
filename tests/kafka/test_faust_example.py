"""examples/03_faust runs as its README says: events are enriched and counted, and an alert becomes one series."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from kafka.faust_worlds import until
from kafka.talking_worlds import producing

from stream_dp.broker.topics import create_topic
from stream_dp.integrations.faust import FaustQueries
from stream_dp.journal.keys import Sealer
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.testing.kafka import fresh_topic_name

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "03_faust"


def started(
    command: list[str], environment: Mapping[str, str], log: Path
) -> "subprocess.Popen[bytes]":
    """A process that says everything into a file."""
    with log.open("w") as said:
        return subprocess.Popen(command, env=environment, stdout=said, stderr=said, cwd=log.parent)


async def test_the_example_counts_and_reacts(kafka: str, tmp_path: Path) -> None:
    name, visits, doors = (fresh_topic_name(each) for each in ("visits", "visited", "doors"))
    text = (EXAMPLE / "pipeline.yaml").read_text()
    text = text.replace("name: visits\nsource", f"name: {name}\nsource")
    text = text.replace("topic: visits ", f"topic: {visits} ").replace("127.0.0.1:9092", kafka)
    (tmp_path / "pipeline.yaml").write_text(text)
    (tmp_path / "key").write_bytes(bytes(32))
    (tmp_path / "key").chmod(0o600)
    await create_topic(kafka, visits, 1, {"message.timestamp.type": "LogAppendTime"})
    await create_topic(kafka, doors, 2)
    environment = {
        **os.environ, "STREAM_DP_KEY_FILE": str(tmp_path / "key"), "STREAM_DP_HOME": str(tmp_path / "home"),
        "STREAM_DP_KAFKA_BOOTSTRAP": kafka, "VISITS_PIPELINE": str(tmp_path / "pipeline.yaml"),
        "VISITS_APP": name, "VISITS_DATA": str(tmp_path / "data"), "VISITS_TOPIC": doors,
        "PYTHONPATH": str(EXAMPLE.parents[1]),
    }  # fmt: skip
    command = [sys.executable, str(EXAMPLE / "app.py"), "worker", "-l", "warn", "--without-web"]
    queries = FaustQueries(KafkaSettings(kafka), name, Sealer(bytes(32), name).query_token())
    log = tmp_path / "log"
    worker = started(command, environment, log)
    try:
        shown = await queries.list(seconds=90)  # the engine runs, so what comes now is counted
        assert [each.name for each in shown.content.queries] == ["visits", "busy"]
        async with producing(kafka) as producer:
            shops = ["a"] * 600 + ["nobody's"] * 300
            for number, shop in enumerate(shops):
                door = json.dumps({"shop": shop, "minutes": 12}).encode()
                await producer.send(doors, door, partition=number % 2)
        await until(lambda: "north is busy; long_north costs 0.25" in log.read_text())
        names = [each.name for each in (await queries.list()).content.queries]
        assert "long_north" in names
    finally:
        await queries.close()
        worker.terminate()
        await asyncio.to_thread(worker.wait)
    assert worker.returncode == 0, log.read_text()
