"""A standby takes over when the active engine is gone, and not before; a sleeper that was replaced stands by again."""

import asyncio
import json
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults.cases import Case, make_key, seen
from faults.forked import Forked, Run
from kafka.flight_topics import fed, judged, look
from kafka.kafka_worlds import STAMPED, create, writing
from kafka.test_worker_faults import COMMITTED, over_with, until_killed
from kafka.test_workers import created

from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.log.reader import reading
from stream_dp.testing.kafka import fresh_topic_name

OPTIONS = ("--until-end", "--zero-noise", "--trace", "--dawdle", "8", "--standby")


def standby(case: Case) -> Forked:
    return Forked(("run", str(case.pipeline), *OPTIONS), case.environment(), kit=True)


async def at_work(run: Run, lines: int = 10) -> None:
    assert await asyncio.to_thread(seen, run, lines) == lines


async def standing_by(run: Forked, times: int = 1) -> None:
    """Wait until a run has said so often that it stands by."""
    while run.errors.count("Standing by") < times:
        assert run.poll() is None, run.errors
        await asyncio.sleep(0.05)


async def ended(run: Run, code: int = 0) -> None:
    _, errors = await asyncio.to_thread(run.communicate)
    assert run.returncode == code, errors


async def test_standbys_take_over_from_engines_that_ended_slept_or_were_killed(
    kafka: str, tmp_path: Path
) -> None:
    case = await fed(kafka, tmp_path, ticks=900)
    first = standby(case)
    await at_work(first)
    second, idle = standby(case), standby(case)
    for waiting in (second, idle):
        await standing_by(waiting)
    await at_work(first, 60)
    assert (second.poll(), idle.poll()) == (None, None)  # a living engine is left alone
    idle.send_signal(signal.SIGTERM)
    await ended(idle)

    first.send_signal(signal.SIGTERM)  # it gives its place back at once
    await ended(first)
    await at_work(second)
    third = standby(case)
    await standing_by(third)
    second.send_signal(signal.SIGSTOP)
    await at_work(third)
    second.send_signal(signal.SIGCONT)
    await standing_by(second, 2)
    third.kill()
    await ended(third, -signal.SIGKILL)
    await at_work(second)
    assert await look(kafka, case)() == []
    await ended(second)
    assert await judged(kafka, case) == []


WALL = """\
version: 1
name: {topic}
source: {{kind: kafka, topic: {topic}, bootstrap: "{kafka}"}}
schema: {{n: {{type: integer}}}}
privacy: {{epsilon: 10}}
clock: {{kind: wall, step: 1s, delay: 500ms}}
series:
  - {{name: all, statistic: count, epsilon: 1}}
  - {{name: some, statistic: count, epsilon: {epsilon}, where: [{{field: n, at_least: {least}}}]}}
"""


@dataclass
class Changing:
    """A pipeline on a wall clock whose file changes; its engines run without noise."""

    kafka: str
    case: Case
    topic: str = field(default_factory=lambda: fresh_topic_name("changing"))
    runs: list[Forked] = field(default_factory=list)

    def file(self, name: str, least: int, epsilon: int) -> str:
        path, kafka = self.case.folder / name, self.kafka
        path.write_text(WALL.format(topic=self.topic, kafka=kafka, least=least, epsilon=epsilon))
        return str(path)

    def began(self, *words: str, patch: str = "") -> Forked:
        kit = words[0] == "run"
        line = (*words, *(["--zero-noise"] * kit))
        self.runs.append(Forked(line, self.case.environment(), kit=kit, patch=patch))
        return self.runs[-1]

    async def done(self, *words: str, code: int = 0) -> str:
        return await self.over(self.began(*words), code)

    async def over(self, run: Forked, code: int = 0) -> str:
        out, errors = await asyncio.to_thread(run.communicate)
        assert run.returncode == code, errors
        return out + errors

    async def sent(self) -> None:
        async with writing(self.kafka) as producer:
            for n in range(10):
                await producer.send(self.topic, json.dumps({"n": n}).encode())

    async def public(self) -> list[dict[str, Any]]:
        async with reading(KafkaSettings(self.kafka), f"{self.topic}.releases") as log:
            batches = log.records(*await log.bounds())
            return [json.loads(one.value) async for many in batches for one in many]

    async def until(self, version: int, value: int) -> None:
        """Wait for this number of a version of the series that changes."""
        wanted, seen = ("some", version, value), set[tuple[str, int, int]]()
        async with asyncio.timeout(90):
            while wanted not in seen:
                await asyncio.sleep(0.2)
                bodies = await self.public()
                seen = {(b["series"], b.get("version", 1), b["value"]) for b in bodies}


async def through(world: Changing, first: str, second: str) -> Any:
    """The ledger, after the engine died on the commit of a change and a standby took over behind the next one."""
    again = "~ series some: version 2 starts at zero"
    engine = world.began("run", first, patch=COMMITTED)
    await created(world.kafka, f"{world.topic}.releases")
    await world.until(1, 0)
    await world.sent()
    await world.until(1, 7)
    assert again in await world.done("plan", second, "--against", "running", code=6)
    apply = world.began("apply", second, "--via", "kafka")
    await until_killed(engine)
    refused = await world.done("run", first, code=4)
    assert "goes on with another pipeline file" in refused
    engine = world.began("run", second)
    assert again in await world.over(apply)
    await world.until(2, 0)
    await world.sent()
    await world.until(2, 2)
    await world.done("apply", first, "--via", "kafka")
    waiting = world.began("run", first, "--standby")
    await standing_by(waiting)
    await world.until(3, 0)
    await world.sent()
    await world.until(3, 7)
    over_with(engine)
    await world.sent()
    await world.until(3, 14)
    assert "nothing to apply" in await world.done("plan", first, "--against", "running")
    await world.done("run", second, code=4)
    ledger = json.loads(await world.done("ledger", first, "--json"))
    waiting.send_signal(signal.SIGINT)
    await world.over(waiting)
    return ledger


async def test_an_engine_dies_on_a_changed_series_and_a_standby_goes_on_after_the_next(
    kafka: str, tmp_path: Path
) -> None:
    """A change, and another one back to the definition of before: every tick has one release of each name."""
    make_key(tmp_path)
    world = Changing(kafka, Case(tmp_path, None, ()))  # type: ignore[arg-type]  # for its places alone
    await create(kafka, world.topic, 2, **STAMPED)
    try:
        ledger = await through(world, world.file("1.yaml", 3, 1), world.file("2.yaml", 8, 2))
    finally:
        for run in world.runs:
            over_with(run)
    bodies = await world.public()
    assert [body["sequence"] for body in bodies] == [*range(1, len(bodies) + 1)]
    ticks = range(len(bodies) // 2)
    first, *later = ledger["charges"]
    begins = [charge["start"] for charge in later]
    versions = {
        name: [(b["tick"], b.get("version", 1)) for b in bodies if b["series"] == name]
        for name in ("all", "some")
    }
    assert versions == {
        "all": [(tick, 1) for tick in ticks],
        "some": [(tick, 1 + sum(begin <= tick for begin in begins)) for tick in ticks],
    }
    assert first["epsilon"] == "2"
    assert [(row["name"], row["version"], row["epsilon"], row["end"]) for row in later] == [
        ("some", 2, "2", begins[1]), ("some", 3, "1", None),
    ]  # fmt: skip
    assert ledger["spent"] == "3"
