"""A pipeline in a Faust app, on the real broker: each event counts once, each release is dealt with once and each
message has one answer, also through `kill -9` of a worker; the app ends with the engine's error. An origin that was
deleted and made anew is refused: its records would be taken for those fed before.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from faults.kafka_evidence import consumer, records
from kafka.kafka_worlds import STAMPED, Parts, administering, create, deleted, visible
from kafka.talking_worlds import TalkingWorld, producing

from stream_dp.broker.topics import create_topic
from stream_dp.errors import FailClosed, UsageError
from stream_dp.integrations.faust.asking import FaustQueries
from stream_dp.integrations.faust.attached import Made, OriginWriter, Target
from stream_dp.journal.keys import Sealer
from stream_dp.kafka.client.clients import KafkaSettings
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


COUNT = 4000
LAST = [COUNT + 1 + n for n in range(PARTITIONS)]
DEAD = [n for n in range(COUNT) if n % 100 == 99]
COUNTED = [n for n in range(COUNT) if n % 10 and n % 100 != 99]
NEVER = 10_000.0
FAUST_ALONE = """
from stream_dp.integrations.faust.attached import OriginHead
OriginHead.take = lambda self, offset: (True, OriginHead(self.origin, offset + 1))
"""


def number_of(payload: bytes) -> int | None:
    """Which event was fed; None for one that could not be read."""
    return int(json.loads(payload)["size"]) if payload else None


async def kept_in_table(kafka: str, world: FaustWorld) -> int:
    """The last release that the changelog of the table holds, once it holds one: a worker writes it behind itself."""
    async with asyncio.timeout(100):
        while not (found := await records(kafka, f"app-{world.talk.name}-seen-changelog")):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return int(json.loads(found[-1].value)[0])


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "Faust alone"])
async def test_events_and_releases_come_once_through_a_kill(
    kafka: str, tmp_path: Path, ours: bool
) -> None:
    """Faust commits nothing, so all comes again: heads keep events from counting twice, a table keeps what was seen.
    The twin has neither. The engine counts from its first tick on, so nothing is put before that.
    """
    made = await FaustWorld.made(tmp_path, kafka, "" if ours else FAUST_ALONE)
    world = replace(made, table=ours, commit_s=NEVER)
    middle = COUNT // 2
    async with source_of(world) as found:
        async with working(world, 1) as first:
            await until(lambda: world.released() != [])
            kept = await kept_in_table(kafka, world) if ours else 0
            await world.put([(n % PARTITIONS, n) for n in range(middle)])
            await until(lambda: len(found) > middle // 2)
            first.kill()
        before = [number for number, _ in world.released()]
        await world.put([(n % PARTITIONS, n) for n in range(middle, COUNT)])
        await world.put([*enumerate(LAST)])  # behind all others: a partition keeps its order
        whole = len(COUNTED) + PARTITIONS
        async with working(world, 2) as second:
            await until(lambda: {*LAST} <= {number_of(one) for one in found})
            await until(lambda: world.released()[-1][1] >= whole)
            second.send_signal(signal.SIGTERM)
            await until(lambda: second.poll() is not None)
    fed, released = Counter(map(number_of, found)), world.released()
    after = [number for number, _ in released][len(before) :]
    assert before == [*range(1, len(before) + 1)]
    if not ours:
        assert max(fed[n] for n in COUNTED) > 1
        assert after[0] == 1
        return
    assert fed.pop(None) == len(DEAD)
    assert fed == Counter([*COUNTED, *LAST])
    assert kept < after[0] <= len(before) + 1
    assert after == [*range(after[0], after[-1] + 1)]  # once each, in order, without a gap
    assert released[-1][1] == whole
    assert second.returncode == 0
    assert "Unclosed" not in (tmp_path / "log-2").read_text()


async def test_messages_are_answered_once_through_a_kill(kafka: str, tmp_path: Path) -> None:
    """A monitor is asked thresholds; the second worker stands by, and what the first has answered stays as it was."""
    world = await FaustWorld.made(tmp_path, kafka)
    queries = FaustQueries(KafkaSettings(kafka), world.talk.name, world.talk.token())
    watch = {"name": "large", "where": [{"field": "size", "at_least": 5}], "above": 1000}
    series = {"name": "m", "statistic": "monitor", "epsilon": "0.1", "watch": [watch]}
    try:
        async with working(world, 1) as first, working(world, 2):
            created = await queries.create(series, message_id="c1", seconds=150)
            assert (created.content.name, created.content.epsilon) == ("m", "0.1")
            asked = await queries.ask("m", watch="large", threshold=70, message_id="a1")
            assert asked.content["fired"] in (True, False)
            first.kill()
            again = await queries.ask("m", watch="large", threshold=70, message_id="a1")
            assert again.body == asked.body
            assert (await queries.create(series, message_id="c1")).body == created.body
            lower = await queries.ask("m", watch="large", threshold=1)
            assert lower.content["fired"] in (True, False)
            shown = await queries.list()
            assert [each.name for each in shown.content.queries] == ["all", "m"]
            halted = await queries.halt("m", message_id="h1")
            assert halted.content.name == "m"
            assert (await queries.halt("m", message_id="h1")).body == halted.body
            with pytest.raises(UsageError, match="no series of this name runs"):
                await queries.ask("nothing")
            assert (await queries.preview({**series, "name": "more"})).content.fits
            assert created.number < asked.number < lower.number < shown.number < halted.number
    finally:
        await queries.close()


REFUSED = """
from stream_dp.kafka.source.source import KafkaSource
from stream_dp.errors import FailClosed
async def refused(self, origin): raise FailClosed("the source lost its records")
KafkaSource.open = refused
"""


async def test_an_engine_that_cannot_run_ends_the_app_with_its_code(
    kafka: str, tmp_path: Path
) -> None:
    """It fails closed with 4, and so does the worker, whose log says why."""
    world = await FaustWorld.made(tmp_path, kafka, REFUSED)
    async with working(world, 1) as worker:
        await until(lambda: worker.poll() is not None)
    assert worker.returncode == 4
    assert "the source lost its records" in (tmp_path / "log-1").read_text()


class Fed:
    """A pipeline's source, and writers of what is made of an origin."""

    def __init__(self, parts: Parts) -> None:
        self.target = Target(parts.settings, parts.name, fresh_topic_name("source"))
        self.origin = fresh_topic_name("origin")
        self._closing = parts.closing

    async def made(self) -> "Fed":
        for topic in (self.target.topic, self.origin):
            await create(self.target.settings.bootstrap, topic, 1)
        return self

    async def made_anew(self) -> None:
        bootstrap = self.target.settings.bootstrap
        async with administering(bootstrap) as admin:
            await deleted(admin, self.origin)
        await create(bootstrap, self.origin, 1)

    async def feed(self, *made: Made) -> list[bytes]:
        """Feed these by a writer of its own, as another worker does; what the source then holds."""
        writer = OriginWriter(self.target, self.origin, 0, lambda: True)
        self._closing.append(writer.close)
        assert await writer.feed(made)
        found = await visible(self.target.settings.bootstrap, self.target.topic)
        return [one.value for one in found]


async def test_an_origin_that_was_made_anew_is_refused_and_nothing_is_fed(parts: Parts) -> None:
    fed = await Fed(parts).made()
    old = [Made(0, b"old 0"), Made(1, b"old 1")]
    assert await fed.feed(*old) == [b"old 0", b"old 1"]
    assert await fed.feed(*old, Made(2, b"old 2")) == [b"old 0", b"old 1", b"old 2"]
    await fed.made_anew()
    new = Made(0, b"new 0")
    with pytest.raises(
        FailClosed, match=rf"{fed.origin}.*created again.*Give the new topic another name"
    ):
        await fed.feed(new)
    found = await visible(parts.kafka, fed.target.topic)
    assert [one.value for one in found] == [b"old 0", b"old 1", b"old 2"]


async def test_a_writer_that_does_not_look_loses_what_is_new(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin, which knows a topic by its name alone: what the refusal is for."""

    async def by_name(_: OriginWriter) -> str:
        return ""

    monkeypatch.setattr(OriginWriter, "_identity", by_name)
    fed = await Fed(parts).made()
    await fed.feed(Made(0, b"old 0"))
    await fed.made_anew()
    assert await fed.feed(Made(0, b"new 0")) == [b"old 0"]


EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "03_faust"


async def example(
    kafka: str, tmp_path: Path, file: str, named: str, partitions: int
) -> tuple[str, str, dict[str, str]]:
    """Make the example's topics and its file under fresh names; return pipeline, topic of doors and environment."""
    name, visits, doors = (fresh_topic_name(each) for each in ("visits", "visited", "doors"))
    text = (EXAMPLE / file).read_text().replace(f"name: {named}\nsource", f"name: {name}\nsource")
    text = text.replace("topic: visits ", f"topic: {visits} ").replace("127.0.0.1:9092", kafka)
    (tmp_path / "pipeline.yaml").write_text(text)
    (tmp_path / "key").write_bytes(bytes(32))
    (tmp_path / "key").chmod(0o600)
    await create_topic(kafka, visits, partitions, STAMPED)
    await create_topic(kafka, doors, 2)
    return name, doors, {
        **os.environ, "STREAM_DP_KEY_FILE": str(tmp_path / "key"), "STREAM_DP_HOME": str(tmp_path / "home"),
        "STREAM_DP_KAFKA_BOOTSTRAP": kafka, "VISITS_PIPELINE": str(tmp_path / "pipeline.yaml"),
        "VISITS_APP": name, "VISITS_DATA": str(tmp_path / "data"), "VISITS_TOPIC": doors,
        "PYTHONPATH": str(EXAMPLE.parents[1]),
    }  # fmt: skip


async def test_the_example_counts_and_reacts(kafka: str, tmp_path: Path) -> None:
    name, doors, environment = await example(kafka, tmp_path, "pipeline.yaml", "visits", 1)
    command = [sys.executable, str(EXAMPLE / "app.py"), "worker", "-l", "warn", "--without-web"]
    queries = FaustQueries(KafkaSettings(kafka), name, Sealer(bytes(32), name).query_token())
    log = tmp_path / "log"
    with log.open("w") as said:
        worker = subprocess.Popen(  # noqa: ASYNC220 - it returns at once
            command, env=environment, stdout=said, stderr=said, cwd=tmp_path
        )
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


async def test_the_example_with_two_workers_counts_by_lanes(kafka: str, tmp_path: Path) -> None:
    name, doors, environment = await example(kafka, tmp_path, "lanes.yaml", "visits-by-lanes", 2)
    queries = FaustQueries(KafkaSettings(kafka), name, Sealer(bytes(32), name).query_token())
    log = tmp_path / "log"
    with log.open("w") as said:
        workers = subprocess.Popen(  # noqa: ASYNC220 - it returns at once
            [sys.executable, str(EXAMPLE / "app.py"), "--workers", "2"],
            env=environment, stdout=said, stderr=said, cwd=tmp_path,
        )  # fmt: skip
    try:
        shown = await queries.list(seconds=120)
        assert [each.name for each in shown.content.queries] == ["visits", "busy", "long"]
        async with producing(kafka) as producer:
            for number in range(600):
                door = json.dumps({"shop": "a", "minutes": 12}).encode()
                await producer.send(doors, door, partition=number % 2)
        await until(lambda: "north is busy" in log.read_text())
    finally:
        await queries.close()
        workers.terminate()
        await asyncio.to_thread(workers.wait)
    assert workers.returncode == 0, log.read_text()
