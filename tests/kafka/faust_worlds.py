"""Workers of a Faust app to which a pipeline is attached, as processes that are killed, and what they have left."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiokafka import TopicPartition
from faults.kafka_evidence import consumer
from kafka.talking_worlds import TalkingWorld, producing

from stream_dp.broker.topics import create_topic
from stream_dp.testing.kafka import fresh_topic_name

APP = Path(__file__).with_name("faust_app.py")
PARTITIONS = 4


@dataclass(frozen=True)
class FaustWorld:
    """A talking world, whose source is fed by an app from the topic `raw`.

    `table`: what the releases' agent has seen lies in a Faust table; `commit_s`: how often Faust commits what it read.
    """

    talk: TalkingWorld
    raw: str
    patch: str = ""
    table: bool = False
    commit_s: float = 2.8

    @classmethod
    async def made(cls, folder: Path, kafka: str, patch: str = "") -> "FaustWorld":
        """Write the pipeline, which waits for its feeders' transactions, and create the topics.

        A broker on a busy machine stands still for more than the half of a short delay, and what it has stamped is late
        then; these tests count every event, so ticks are held for long.
        """
        talk = await TalkingWorld.made(folder, kafka)
        text = talk.file.read_text().replace("delay: 100ms", "delay: 4s")
        talk.file.write_text(text.replace("kind: kafka,", "kind: kafka, open_transactions: wait,"))
        world = cls(talk, fresh_topic_name("raw"), patch)
        await create_topic(kafka, world.raw, PARTITIONS)
        return world

    def worker(self, number: int) -> "subprocess.Popen[str]":
        folder = self.talk.folder
        told = {
            "id": f"app-{self.talk.name}", "kafka": self.talk.kafka, "file": str(self.talk.file),
            "raw": self.raw, "seen": str(self.seen), "patch": self.patch,
            "datadir": str(folder / f"worker-{number}"),
            "table": self.table, "commit_s": self.commit_s,
        }  # fmt: skip
        environment = {**self.talk.environment, "FAUST_WORLD": json.dumps(told)}
        path = os.pathsep.join([str(APP.parents[2]), os.environ.get("PYTHONPATH", "")])
        return subprocess.Popen(
            [sys.executable, str(APP), "worker", "-l", "info", "--without-web"],
            env={**environment, "PYTHONPATH": path}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder,
        )  # fmt: skip

    @property
    def seen(self) -> Path:
        """What the agent on releases has written down."""
        return self.talk.folder / "seen"

    async def put(self, numbers: Sequence[tuple[int, int]]) -> None:
        """Put these records, (partition, number), into the topic that the app reads."""
        async with producing(self.talk.kafka) as producer:
            sent = [
                await producer.send(self.raw, str(number).encode(), partition=partition)
                for partition, number in numbers
            ]
            await asyncio.gather(*sent)

    def released(self) -> list[tuple[int, int]]:
        """Sequence and value of what the agent was given of the file's series, in its order."""
        lines = self.seen.read_text().splitlines() if self.seen.exists() else []
        found = [line.split() for line in lines]
        return [(int(number), int(value)) for number, _, value in found]


@asynccontextmanager
async def source_of(world: FaustWorld) -> AsyncIterator[list[bytes]]:
    """What readers of committed records find in the engine's source; it grows while the context is open."""
    found: list[bytes] = []
    async with consumer(world.talk.kafka, "read_committed") as reader:
        topic = world.talk.topic
        reader.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])

        async def read() -> None:
            while True:
                for group in (await reader.getmany(timeout_ms=100)).values():
                    found.extend(record.value for record in group)

        reading = asyncio.create_task(read())
        try:
            yield found
        finally:
            reading.cancel()
            await asyncio.wait({reading})


@asynccontextmanager
async def working(world: FaustWorld, number: int) -> AsyncIterator["subprocess.Popen[str]"]:
    """A worker, killed at the end if it runs still; what it said is drained."""
    worker = world.worker(number)
    said = asyncio.create_task(
        asyncio.to_thread(_drained, worker, world.talk.folder / f"log-{number}")
    )
    try:
        yield worker
    finally:
        worker.kill()
        await said


def _drained(worker: "subprocess.Popen[str]", log: Path) -> None:
    assert worker.stdout is not None
    with worker.stdout as lines, log.open("w") as file:
        for line in lines:
            file.write(line)
            file.flush()
    worker.wait()


async def until(look: Callable[[], bool], seconds: float = 150) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while not look():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.1)
