"""A pipeline on Kafka that takes messages, its engines, and analysts with a Kafka client and a token alone.

Rules: what an analyst needs is taken from docs/messages.md, whose code is run here: nothing of the engine signs, sends
or reads for her.
"""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from faults.cases import without_progress
from faults.evidence import Public, opened
from faults.forked import Forked, Run
from faults.kafka_evidence import journal_blobs, public_log, records
from faults.talk_checker import answers_of
from kafka.kafka_worlds import AT_ONCE, STAMPED

from stream_dp.broker.topics import create_topic
from stream_dp.journal.keys import Sealer
from stream_dp.testing.kafka import fresh_topic_name

STEP_MS = 250
KEY = bytes(range(32))
PAGE = Path(__file__).resolve().parents[2] / "docs" / "messages.md"
_PIPELINE = """
version: 1
name: {name}
source: {{kind: kafka, topic: {topic}, bootstrap: "{kafka}"}}
schema:
  kind: {{type: category, domain: [red, green]}}
  size: {{type: integer}}
privacy:
  epsilon: 5
  analysts: [{{name: ann, epsilon: 2}}, {{name: bob, epsilon: 1}}]
clock: {{kind: wall, step: {step}ms, delay: 100ms}}
series:
  - {{name: all, statistic: count, epsilon: 1}}
"""


def page() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), found)  # noqa: S102 - our own page
    return found


@dataclass(frozen=True)
class TalkingWorld:
    folder: Path
    kafka: str
    name: str
    topic: str

    @classmethod
    async def made(cls, folder: Path, kafka: str) -> "TalkingWorld":
        made = cls(folder, kafka, fresh_topic_name("talk"), fresh_topic_name("talked"))
        await create_topic(kafka, made.topic, 2, STAMPED)
        text = _PIPELINE.format(name=made.name, topic=made.topic, kafka=kafka, step=STEP_MS)
        made.file.write_text(text)
        key = folder / "key"
        key.write_bytes(KEY)
        key.chmod(0o600)
        return made

    @property
    def file(self) -> Path:
        return self.folder / "talk.yaml"

    @property
    def queries(self) -> str:
        return f"{self.name}.queries"

    @property
    def environment(self) -> Mapping[str, str]:
        own = {"STREAM_DP_KEY_FILE": str(self.folder / "key"), "PYTHONUNBUFFERED": "1"}
        return {**os.environ, **own, "STREAM_DP_HOME": str(self.folder / "home")}

    def token(self, analyst: str = "") -> str:
        return Sealer(KEY, self.name).query_token(analyst)

    def engine(self, *options: str, kit: bool = False, patch: str = "") -> Run:
        """An engine in a process of its own; `kit`: of the test kit, which can crash at chosen points."""
        arguments = ("run", str(self.file), *options)
        return Forked(arguments, self.environment, kit=kit, patch=AT_ONCE + patch)

    async def command(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        """The exit code of a command, and what it said; how far it was is no part of that."""
        run = Forked(arguments, {**self.environment, **environment})
        out, errors = await asyncio.to_thread(run.communicate)
        return run.returncode or 0, out, without_progress(errors)

    async def public(self) -> list[Public]:
        return await public_log(self.kafka, f"{self.name}.answers")

    async def commits(self) -> list[dict[str, Any]]:
        blobs = await journal_blobs(self.kafka, f"{self.name}.private.journal")
        return opened(blobs, KEY, self.name)

    async def durable(self) -> dict[int, bytes]:
        """The answers that the journal holds, by number."""
        return answers_of(await self.commits())

    async def queue(self) -> dict[int, str | None]:
        """The records of the queue by place, with the id of each that somebody has signed (None: no message)."""
        found = await records(self.kafka, self.queries)
        return {one.offset: self._id(one.value or b"") for one in found}

    def _id(self, value: bytes) -> str | None:
        try:
            envelope = json.loads(value)
            said = json.loads(envelope["message"])
            made = page()["envelope"](self.token(said.get("analyst", "")), self.name, said)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        return str(said["id"]) if json.loads(made)["signature"] == envelope["signature"] else None


@asynccontextmanager
async def fed(world: TalkingWorld) -> AsyncIterator[None]:

    async def feed() -> None:
        async with producing(world.kafka) as producer:
            number = 0
            while True:
                number += 1
                shown = {"kind": ("red", "green")[number % 2], "size": number % 10}
                await producer.send_and_wait(
                    world.topic, json.dumps(shown).encode(), partition=number % 2
                )
                await asyncio.sleep(0.01)

    feeding = asyncio.create_task(feed())
    try:
        yield
    finally:
        feeding.cancel()
        await asyncio.wait({feeding})


@asynccontextmanager
async def producing(kafka: str) -> AsyncIterator[Any]:
    made = AIOKafkaProducer(bootstrap_servers=kafka, enable_idempotence=True)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


@asynccontextmanager
async def running(world: TalkingWorld, *options: str, **how: Any) -> AsyncIterator[Run]:
    """An engine, killed at the end if it runs still."""
    run = world.engine(*options, **how)
    try:
        yield run
    finally:
        run.kill()
        with suppress(ValueError):  # what it printed was read before
            await asyncio.to_thread(run.communicate)


async def until_topics(world: TalkingWorld) -> None:
    """Wait until an engine has made the topics of messages."""
    async with producing(world.kafka) as producer:
        async with asyncio.timeout(60):
            while True:
                cluster = await producer.client.fetch_all_metadata()
                if {world.queries, f"{world.name}.answers"} <= set(cluster.topics()):
                    return
                await asyncio.sleep(0.1)


class _Noting:
    """A producer that notes where a message went."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self.place = -1

    async def send_and_wait(self, topic: str, value: bytes) -> Any:
        sent = await self._producer.send_and_wait(topic, value)
        self.place = sent.offset
        return sent


class Analyst:
    """Somebody with a Kafka client and a token, by the code of the page; `places` is where her messages lie, by id."""

    def __init__(self, world: TalkingWorld, name: str = "ann") -> None:
        self.world, self.name = world, name
        self.page = page()
        self.sent: list[dict[str, Any]] = []
        self.places: dict[str, int] = {}

    async def __aenter__(self) -> "Analyst":
        kafka = self.world.kafka
        self.producer = AIOKafkaProducer(bootstrap_servers=kafka, enable_idempotence=True)
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=kafka, isolation_level="read_committed", fetch_max_wait_ms=50
        )
        await self.producer.start()
        await self.consumer.start()
        place = TopicPartition(f"{self.world.name}.answers", 0)
        self.consumer.assign([place])
        await self.consumer.seek_to_end(place)
        await self.consumer.position(place)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.consumer.stop()
        await self.producer.stop()

    def message(self, do: str, **content: Any) -> dict[str, Any]:
        return {**self.page["message"](do, **content), "analyst": self.name}

    async def send(self, message: dict[str, Any], token: str | None = None) -> Any:
        world = self.world
        signed = self.page["envelope"](token or world.token(self.name), world.name, message)
        return await self.producer.send_and_wait(world.queries, signed)

    async def ask(self, do: str, **content: Any) -> dict[str, Any]:
        """Send a message and return its answer, whenever it comes."""
        return await self.told(self.message(do, **content))

    async def told(self, message: dict[str, Any]) -> dict[str, Any]:
        token, noting = self.world.token(self.name), _Noting(self.producer)
        self.sent.append(message)
        async with asyncio.timeout(120):
            found: dict[str, Any] = await self.page["told"](
                noting, self.consumer, token, self.world.name, message
            )
        self.places[message["id"]] = noting.place
        return found
