"""A standby takes over when the active engine is gone, and not before; a sleeper that was replaced stands by again."""

import asyncio
import json
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from faults.cases import Case, make_key, seen
from faults.forked import Forked, Run
from kafka.flight_topics import fed, judged, look
from kafka.kafka_worlds import STAMPED, create, writing
from kafka.test_worker_faults import COMMITTED, over_with, until_killed

from stream_dp.errors import Outage
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
privacy: {{epsilon: 300}}
clock: {{kind: wall, step: 1s, delay: 500ms}}
series:
  - {{name: all, statistic: count, epsilon: 60}}
  - {{name: some, statistic: count, epsilon: {epsilon}, where: [{{field: n, at_least: {least}}}]}}
"""


async def test_an_engine_dies_on_a_changed_series_and_a_standby_goes_on_after_the_next(
    kafka: str, tmp_path: Path
) -> None:
    """The product's commands; at these epsilons there is no noise. Every tick has one release of each name."""
    topic, key = fresh_topic_name("changing"), tmp_path / "operator.key"
    make_key(tmp_path)
    await create(kafka, topic, 2, **STAMPED)
    case = Case(tmp_path, None, ())  # type: ignore[arg-type]  # its places alone
    runs = list[Forked]()

    def began(*words: str, patch: str = "") -> Forked:
        runs.append(Forked((*words, "--key-file", str(key)), case.environment(), patch=patch))
        return runs[-1]

    def file(name: str, least: int, epsilon: int) -> str:
        text = WALL.format(topic=topic, kafka=kafka, least=least, epsilon=epsilon)
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    async def public() -> list[dict[str, Any]]:
        with suppress(Outage):  # there is none before the first tick
            async with reading(KafkaSettings(kafka), f"{topic}.releases") as log:
                batches = log.records(*await log.bounds())
                return [json.loads(one.value) async for many in batches for one in many]
        return []

    async def until(version: int, value: int) -> None:
        def there(body: dict[str, Any]) -> bool:
            return (body["series"], body.get("version", 1), body["value"]) == ("some", version, value)

        async with asyncio.timeout(60):
            while not any(map(there, await public())):
                assert runs[-1].poll() in (None, 0), runs[-1].errors
                await asyncio.sleep(0.2)

    async def sent() -> None:
        async with writing(kafka) as producer:
            for n in range(10):
                await producer.send(topic, json.dumps({"n": n}).encode())

    async def done(run: Forked, code: int) -> str:
        out, errors = await asyncio.to_thread(run.communicate)
        assert run.returncode == code, errors
        return out + errors

    first, second = file("first.yaml", 3, 60), file("second.yaml", 8, 61)
    try:
        engine = began("run", first, "--yes", patch=COMMITTED)
        await until(1, 0)
        await sent()
        await until(1, 7)
        said = await done(began("plan", second, "--against", "running"), 6)
        assert "~ series some: version 2 counts anew" in said
        apply = began("apply", second, "--via", "kafka")
        await until_killed(engine)
        assert "goes on with another pipeline file" in await done(began("run", first), 4)
        engine = began("run", second)
        assert "~ series some: version 2 counts anew" in await done(apply, 0)
        await until(2, 0)
        await sent()
        await until(2, 2)
        await done(began("apply", first, "--via", "kafka"), 0)  # back to the definition of before
        waiting = began("run", first, "--standby")
        await standing_by(waiting)
        await until(3, 0)
        await sent()
        await until(3, 7)
        over_with(engine)
        await until(3, 7)
        before = (await public())[-1]["tick"]
        await sent()
        await until(3, 14)
        assert "nothing to apply" in await done(began("plan", first, "--against", "running"), 0)
        ledger = json.loads(await done(began("ledger", first, "--json"), 0))
        waiting.send_signal(signal.SIGINT)
        await done(waiting, 0)
    finally:
        for run in runs:
            over_with(run)
    bodies = await public()
    assert [body["sequence"] for body in bodies] == [*range(1, len(bodies) + 1)]
    lines = {name: [b for b in bodies if b["series"] == name] for name in ("all", "some")}
    ends = [row["end"] for row in ledger["charges"][1:]]
    begins = [row["start"] for row in ledger["charges"][1:]]
    assert lines["all"][-1]["tick"] > before
    for line in lines.values():
        assert [body["tick"] for body in line] == [*range(len(lines["all"]))]
    assert [body.get("version", 1) for body in lines["some"]] == [
        1 + sum(begin <= tick for begin in begins) for tick in range(len(lines["all"]))
    ]
    assert (ends, ledger["spent"]) == ([begins[1], None], "180")
    assert [row.get("version") for row in ledger["charges"]] == [None, 2, 3]
