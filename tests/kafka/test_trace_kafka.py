"""`stream-dp audit --trace` of a journal that lies in Kafka: of a talk in which the engine was killed, beside the one
that went on. What it finds in altered journals is tested without a broker.
"""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

from faults.kafka_evidence import records
from kafka.talking_worlds import Analyst, TalkingWorld, fed, running, until_topics

WATCH = {"name": "large", "where": [{"field": "size", "at_least": 5}], "above": 1000}
MONITOR = {"name": "m", "statistic": "monitor", "epsilon": "0.5", "watch": [WATCH]}
COUNT = {"name": "large", "statistic": "count", "epsilon": "0.5"}
Commits = list[dict[str, Any]]


async def talked(world: TalkingWorld) -> None:
    """Series are created, asked and halted; the engine is killed between."""
    async with running(world):
        await until_topics(world)
        async with Analyst(world) as ann:
            for series in (MONITOR, COUNT):
                assert "answer" in await ann.ask("create", series=series)
            assert "answer" in await ann.ask("ask", series="m", watch="large", threshold=70)
    async with running(world) as run, Analyst(world) as ann:
        assert "answer" in await ann.ask("ask", series="m", watch="large", threshold=1)
        assert "answer" in await ann.ask("halt", series="large")
        await released(world, "m")
        await beside(world)
        run.send_signal(signal.SIGTERM)  # killed, it could leave a transaction open on the journal
        _, errors = await asyncio.to_thread(run.communicate)
        assert run.returncode == 0, errors


async def released(world: TalkingWorld, series: str) -> None:
    async with asyncio.timeout(60):
        while True:
            found = await records(world.kafka, f"{world.name}.releases")
            if series in {json.loads(one.value)["series"] for one in found}:
                return
            await asyncio.sleep(0.1)


async def audited(world: TalkingWorld, file: Path) -> tuple[int, str, str]:
    return await world.command("audit", "--trace", str(file), "--json")


async def beside(world: TalkingWorld) -> None:
    """The trace of the engine that runs is the composition's, and has all that is public already."""
    public = await records(world.kafka, f"{world.name}.releases")
    code, out, errors = await audited(world, world.file)
    assert code == 0, errors
    found = json.loads(out)
    assert (found["creations"], found["halts"], found["answers"]) == (3, 1, 2)
    assert found["releases"] >= len(public) > 0
    assert found["equal"] is found["two_events_are_refused"] is True


async def test_a_journal_in_kafka_and_its_copy_are_the_composition(
    kafka: str, tmp_path: Path
) -> None:
    world = await TalkingWorld.made(tmp_path, kafka)
    async with fed(world):
        await talked(world)
    copy = tmp_path / "copy.journal"
    code, out, errors = await world.command(
        "audit", "--trace", str(world.file), "--copy", str(copy), "--json"
    )
    assert code == 0, errors
    assert await world.command("audit", str(world.file), "--trace", str(copy), "--json") == (
        0, out, "",
    )  # fmt: skip
