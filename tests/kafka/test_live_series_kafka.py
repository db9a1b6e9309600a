"""SeriesPlanner asked of an engine on a real Kafka, across kill -9: one version of every release, every charge kept."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from faults.cases import without_progress
from faults.forked import Forked, Run
from faults.kafka_evidence import records
from free_ports import free_port

from stream_dp.broker.topics import create_topic
from stream_dp.testing.kafka import fresh_topic_name

STEP_MS = 250
PATIENCE_S = 200
MAIN = "from stream_dp.cli.start import start; start()"


def pipeline(name: str, topic: str, kafka: str) -> str:
    return f"""
version: 1
name: {name}
source: {{kind: kafka, topic: {topic}, bootstrap: "{kafka}"}}
schema:
  kind: {{type: category, domain: [red, green]}}
  size: {{type: integer}}
privacy: {{epsilon: 2}}
clock: {{kind: wall, step: {STEP_MS}ms, delay: 100ms}}
series:
  - {{name: all, statistic: count, epsilon: 1}}
"""


LIVE_SERIES = {"name": "large", "statistic": "histogram", "by": "kind", "method": "tree", "epsilon": "0.75",
            "where": [{"field": "size", "at_least": 5}]}  # fmt: skip


class Place:
    """A pipeline in a folder, and its processes."""

    def __init__(self, folder: Path, name: str, topic: str, kafka: str) -> None:
        self.folder, self.kafka, self.name = folder, kafka, name
        self.port = free_port()
        (folder / "p.yaml").write_text(pipeline(name, topic, kafka))
        key = folder / "key"
        key.write_bytes(bytes(range(32)))
        key.chmod(0o600)
        self.environment = {
            **os.environ, "STREAM_DP_KEY_FILE": str(key), "STREAM_DP_HOME": str(folder / "home"),
        }  # fmt: skip

    def engine(self) -> Run:
        return Forked(("run", "p.yaml", "--serve", "--port", str(self.port)), self.environment)

    def engine_anew(self) -> Run:
        """By exec, in a new interpreter."""
        arguments = ("run", "p.yaml", "--serve", "--port", str(self.port))
        return subprocess.Popen(
            [sys.executable, "-c", MAIN, *arguments], env=self.environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    async def _ran(self, *arguments: str) -> tuple[int, str, str]:
        run = Forked(arguments, self.environment)
        out, err = await asyncio.to_thread(run.communicate)
        return run.returncode or 0, out, without_progress(err)

    async def command(self, *arguments: str) -> tuple[int, str]:
        code, out, err = await self._ran(*arguments)
        return code, out + err

    async def query(self, what: str, *arguments: str) -> tuple[int, str]:
        return await self.command(*self._asking(what, *arguments))

    def _asking(self, what: str, *arguments: str) -> tuple[str, ...]:
        return "query", what, "p.yaml", *arguments, "--url", f"http://127.0.0.1:{self.port}"

    async def answered(self, what: str, *arguments: str) -> str:
        """The answer, once an engine is there."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                code, out, err = await self._ran(*self._asking(what, *arguments))
                if code != 5:
                    assert code == 0, out + err
                    return out  # that an engine was waited for is said on stderr
                await asyncio.sleep(0.3)

    async def releases(self) -> list[dict[str, Any]]:
        return [
            json.loads(record.value)
            for record in await records(self.kafka, f"{self.name}.releases")
        ]

    async def until(self, series: str, more_than: int) -> None:
        """Wait until a series has a release beyond a tick."""
        async with asyncio.timeout(PATIENCE_S):
            while not any(  # noqa: ASYNC110
                one["series"] == series and one["tick"] > more_than for one in await self.releases()
            ):
                await asyncio.sleep(0.25)


async def producing(kafka: str, topic: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    await producer.start()
    try:
        number = 0
        while True:
            number += 1
            body = json.dumps({"kind": ("red", "green")[number % 2], "size": number % 10}).encode()
            await producer.send_and_wait(topic, body, partition=number % 2)
            await asyncio.sleep(0.01)
    finally:
        await producer.stop()


async def test_live_series_survive_kill_9(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    topic = fresh_topic_name("asked")
    await create_topic(kafka, topic, 2, {"message.timestamp.type": "LogAppendTime"})
    place = Place(tmp_path, fresh_topic_name("asking"), topic, kafka)
    feeding = asyncio.create_task(producing(kafka, topic))
    code, said = await place.command("ledger", "p.yaml")
    assert (code, "begins with the first run" in said) == (2, True), said
    engine = place.engine_anew()
    try:
        asked = json.loads(
            await place.answered("create", "--series", json.dumps(LIVE_SERIES), "--json")
        )
        code, said = await place.query(
            "create", "--series", json.dumps({**LIVE_SERIES, "name": "more"})
        )
        assert (code, "has 0.25 left" in said) == (3, True), said
        changed = (tmp_path / "p.yaml").read_text().replace("epsilon: 2", "epsilon: 3")
        (tmp_path / "changed.yaml").write_text(changed)
        code, said = await place.command("run", "changed.yaml")
        assert (code, "privacy" in said) == (4, True), said
        assert "large" in await place.answered("list")  # the engine that runs was left alone

        await place.until("large", asked["start"])
        before = await place.releases()
        engine.send_signal(signal.SIGKILL)
        await asyncio.to_thread(engine.communicate)

        engine = place.engine()
        assert "large" in await place.answered("list")
        last = max(r["tick"] for r in before)
        await place.until("large", last)
        halted = json.loads(await place.answered("halt", "large", "--json"))
        again = json.loads(
            await place.answered(
                "create", "--series", json.dumps({**LIVE_SERIES, "name": "again"}), "--json"
            )
        )
        assert again["start"] >= halted["end"]
        engine.send_signal(signal.SIGKILL)
        await asyncio.to_thread(engine.communicate)

        engine = place.engine()
        assert "again" in await place.answered("list")  # it runs, and will take the signal
        await place.until("again", again["start"] + 1)
        engine.send_signal(signal.SIGINT)
        _, errors = await asyncio.to_thread(engine.communicate)
        assert engine.returncode == 0, errors
    finally:
        feeding.cancel()
        engine.kill()
        await asyncio.wait({feeding})

    public = await place.releases()
    assert public[: len(before)] == before
    assert [r["sequence"] for r in public] == list(range(1, len(public) + 1))
    ticks = {
        name: [r["tick"] for r in public if r["series"] == name]
        for name in ("all", "large", "again")
    }
    assert ticks["all"] == list(range(len(ticks["all"])))
    assert ticks["large"] == list(range(asked["start"], halted["end"]))
    assert ticks["again"] == list(range(again["start"], len(ticks["all"])))
    code, said = await place.command("ledger", "p.yaml", "--json")
    assert code == 0, said
    shown = json.loads(said)
    assert [(c["name"], c["start"], c["end"]) for c in shown["charges"][1:]] == [
        ("large", asked["start"], halted["end"]), ("again", again["start"], None),
    ]  # fmt: skip
    assert (shown["spent"], shown["left"], shown["peak"]) == ("1.75", "0.25", "1.75")
