"""kill -9 while an analyst talks by a Kafka client alone: one answer for every message, the same bytes afterwards."""

import asyncio
import json
import random
import signal
from pathlib import Path

import pytest
from faults.cases import seen
from faults.talk_checker import Talk, talk_findings, unfounded_answers
from kafka.talking_worlds import Analyst, TalkingWorld, fed, running, until_topics

KILLS = 20
PATIENCE_S = 200
POINTS = (
    "mid-answer:1", "before-answer:2", "after-answer:2", "mid-commit:2", "after-commit:3", "mid-answer:3",
)  # fmt: skip


ANSWERS_FIRST = """
from stream_dp.engine.gate import Gate

async def commit(self, commit, sealed):
    await self.tell(commit.answers)
    await self.ports.journal.append(commit, sealed)
    self.durable += 1
    await self.publish(commit.releases)

Gate.commit = commit
"""


async def adaptive_talk(analyst: Analyst, number: int) -> None:
    """Create a series, ask what the answers before suggest, end it."""
    name = f"a{number}"
    series = {"name": name, "statistic": "alerts", "by": "kind", "threshold": 5, "epsilon": "0.05"}
    created = await analyst.ask("create", series=series, accept_noise=True)
    assert "answer" in created, created
    keys = ["red", "green"]
    for _ in range(4):
        answer = await analyst.ask("ask", series=name, keys=keys)
        if "refused" in answer:  # it has released nothing yet
            assert answer["refused"]["kind"] == "usage", answer
            await asyncio.sleep(0.1)
        else:
            keys = answer["answer"]["fired"] or ["red", "green"]
    halted = await analyst.ask("halt", series=name)
    assert "answer" in halted, halted


async def thresholds_talk(analyst: Analyst, number: int) -> None:
    """Create a monitor, ask it thresholds that depend on the answers before, end it."""
    name, threshold = f"m{number}", 10
    watches = [
        {"name": "large", "where": [{"field": "size", "at_least": 5}], "above": 1000},
        {"name": "kinds", "by": "kind", "above": 1000, "rearm": False},
    ]
    series = {"name": name, "statistic": "monitor", "epsilon": "0.1", "watch": watches}
    created = await analyst.ask("create", series=series)
    assert "answer" in created, created
    for turn in range(5):
        watch = ("large", "kinds/red")[turn % 2]
        answer = await analyst.ask("ask", series=name, watch=watch, threshold=threshold)
        if "refused" in answer:  # it has ended
            assert answer["refused"]["kind"] == "usage", answer
        else:
            threshold = max(1, threshold + (9 if answer["answer"]["fired"] else -4))
    halted = await analyst.ask("halt", series=name)
    assert "answer" in halted, halted


TALKS = (adaptive_talk, thresholds_talk)


async def talking(analyst: Analyst, chance: random.Random, done: asyncio.Event) -> int:
    """Talk until told to end; now and then send twice, or what is no message. Return how many talks there were."""
    number = 0
    while not done.is_set():
        await TALKS[number % len(TALKS)](analyst, number)
        if chance.random() < 0.5:
            await analyst.send(analyst.sent[-1])  # as who waits in vain does
        if chance.random() < 0.3:
            await analyst.send(analyst.message("list"), analyst.world.token("bob"))
        number += 1
    return number


class Watcher:
    """What of the answers was public when; a body once seen stays as it was."""

    def __init__(self, world: TalkingWorld) -> None:
        self.world = world
        self.seen: dict[int, bytes] = {}

    async def look(self) -> list[str]:
        """What is wrong with what can be read now, compared with the journal and with every look before."""
        public, durable = await self.world.public(), await self.world.durable()
        found = unfounded_answers(public, durable)
        for record in public:
            number = json.loads(record.body)["number"]
            if self.seen.setdefault(number, record.body) != record.body:
                found.append(f"versions: answer {number} has changed")
        return found


async def killed(
    world: TalkingWorld, chance: random.Random, number: int, point: str | None
) -> None:
    """Kill one engine: at a fixed point, or at a moment that is counted in what it has reached."""
    options = ("--trace",) if point is None else ("--crash", point)
    async with running(world, *options, kit=True) as run:
        if point is not None:
            out, errors = await asyncio.wait_for(asyncio.to_thread(run.communicate), PATIENCE_S)
        else:
            if number % 5 == 4:  # in its start or its recovery
                await asyncio.sleep(chance.uniform(0, 1.0))
            else:
                await asyncio.to_thread(seen, run, chance.randint(1, 40))
                await asyncio.sleep(chance.uniform(0, 0.02))
            run.kill()
            out, errors = await asyncio.to_thread(run.communicate)
        assert run.returncode == -signal.SIGKILL, (point, out, errors)
        assert "Traceback" not in errors, errors


async def talked(kafka: str, folder: Path, seed: int) -> tuple[list[str], int]:
    """The findings on a talk through kills, and how many answers it had."""
    world, chance = await TalkingWorld.made(folder, kafka), random.Random(seed)
    watcher, done = Watcher(world), asyncio.Event()
    async with fed(world):
        async with running(world, kit=True):
            await until_topics(world)
        async with Analyst(world) as analyst:
            talk = asyncio.create_task(talking(analyst, chance, done))
            for number in range(KILLS):
                point = chance.choice(POINTS) if number % 4 == 1 else None
                await killed(world, chance, number, point)
                assert not talk.done() or talk.result()
                if number % 5 == 0:
                    assert await watcher.look() == [], f"after kill {number}"
            async with running(world, kit=True) as run:
                while len(analyst.sent) <= KILLS + 1:  # the next one is sent after an answer
                    assert not talk.done() or talk.result()
                    await asyncio.sleep(0.05)
                done.set()
                await asyncio.wait_for(talk, PATIENCE_S)
                last = await analyst.ask("list")  # what came before it is answered before it
                run.send_signal(signal.SIGINT)
                _, errors = await asyncio.to_thread(run.communicate)
                assert run.returncode == 0, errors
    assert "answer" in last
    found = await watcher.look()
    assert any(b'"threshold"' in body for body in watcher.seen.values())
    queue, public = await world.queue(), await world.public()
    found += talk_findings(Talk(queue, public, await world.durable()))
    assert {message["id"] for message in analyst.sent} == set(queue.values()) - {None}
    return found, sum(record.committed for record in public)


async def test_every_message_has_one_answer_over_twenty_kills(kafka: str, tmp_path: Path) -> None:
    findings, answers = await talked(kafka, tmp_path, 11)
    assert findings == []
    assert answers > KILLS


@pytest.mark.parametrize("patch", ["", ANSWERS_FIRST], ids=["ours", "the twin"])
async def test_an_engine_that_answers_before_its_commit_is_found(
    kafka: str, tmp_path: Path, patch: str
) -> None:
    """Killed between the two, the twin has answered what no journal knows."""
    world = await TalkingWorld.made(tmp_path, kafka)
    async with fed(world):
        async with running(world, kit=True):
            await until_topics(world)
        async with Analyst(world) as analyst:
            await analyst.send(analyst.message("list"))
            async with running(world, "--crash", "after-answer:1", kit=True, patch=patch) as run:
                await asyncio.wait_for(asyncio.to_thread(run.communicate), PATIENCE_S)
                assert run.returncode == -signal.SIGKILL
    found = await Watcher(world).look()
    assert len(await world.public()) == 1
    assert bool(found) == bool(patch), found
