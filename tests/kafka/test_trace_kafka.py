"""`stream-dp audit --trace` of a journal that lies in Kafka: of a talk in which the engine was killed, beside the one
that went on; and of copies in which one thing was altered and sealed again, as only the operator could.
"""

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faults.evidence import sealed_again
from faults.kafka_evidence import records
from kafka.kafka_worlds import Close
from kafka.talking_worlds import KEY, Analyst, TalkingWorld, fed, running, until_topics

from stream_dp.journal.commit import decode
from stream_dp.journal.keys import Sealer
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.log.journal import KafkaJournal
from stream_dp.kafka.log.lease import KafkaLease
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.yaml import load
from stream_dp.testing.kafka import fresh_topic_name

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
    """Wait until a series has released something."""
    async with asyncio.timeout(60):
        while True:
            found = await records(world.kafka, f"{world.name}.releases")
            if series in {json.loads(one.value)["series"] for one in found}:
                return
            await asyncio.sleep(0.1)


async def audited(world: TalkingWorld, file: Path) -> tuple[int, str, str]:
    """What the command says of the journal of a pipeline file."""
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


class Copies:
    """Copies of a world's journal in topics of their own, sealed for pipelines of other names."""

    def __init__(self, world: TalkingWorld, closing: list[Close]) -> None:
        self.world = world
        self._closing = closing

    async def said(self, alter: Callable[[Commits], None]) -> tuple[int, str, str]:
        """What the command says of a copy in which this was altered."""
        name = fresh_topic_name("copied")
        file = self.world.folder / f"{name}.yaml"
        file.write_text(self.world.file.read_text().replace(self.world.name, name))
        commits = await self.world.commits()
        built = build(load(file))
        commits[0]["header"] |= {
            "pipeline": name, "fingerprint": built.fingerprint, "parts": built.parts,
        }  # fmt: skip
        alter(commits)
        await self._write(name, sealed_again(commits, KEY, name))
        return await audited(self.world, file)

    async def _write(self, name: str, blobs: list[bytes]) -> None:
        settings, sealer = KafkaSettings(self.world.kafka), Sealer(KEY, name)
        journal = KafkaJournal(KafkaLease(settings, name), self.world.topic)
        self._closing.append(journal.close)
        await journal.open()
        for number, blob in enumerate(blobs):
            await journal.append(decode(sealer.open(number, blob)), blob)


def body(record: list[Any]) -> tuple[int, bytes]:
    """What is public of a recorded release or answer, and its place there."""
    ((place, found),) = (
        (place, one)
        for place, one in enumerate(record)
        if isinstance(one, bytes) and one.startswith(b"{")
    )
    return place, found


def louder(commits: Commits) -> None:
    """Another band in the last release of all."""
    last = next(one for one in reversed(commits) if one["releases"])["releases"][-1]
    place, found = body(last)
    assert b'"band":' in found
    last[place] = found.replace(b'"band":', b'"band":1')


def turned(commits: Commits) -> None:
    """Another answer of the monitor."""
    told = [each for one in commits for each in one["answers"]]
    told = [each for each in told if b'"fired":' in body(each)[1]]
    place, found = body(told[-1])
    yes, no = b'"fired":true', b'"fired":false'
    told[-1][place] = found.replace(yes, no) if yes in found else found.replace(no, yes)
    assert told[-1][place] != found


def redrawn(commits: Commits) -> None:
    """The seed of a tick is that of the tick before."""
    one, other = [each for each in commits if each["ticks"]][-2:]
    other["seeds"] = [*one["seeds"][-1:], *other["seeds"][1:]]


async def test_a_journal_in_kafka_is_the_composition_and_an_altered_one_is_not(
    kafka: str, tmp_path: Path, closing: list[Close]
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
    copies = Copies(world, closing)
    code, out, errors = await copies.said(lambda commits: None)
    assert (code, errors, json.loads(out)["answers"]) == (0, "", 2)
    for alter, named in (
        (louder, "gives other bytes than the recorded release"),
        (turned, "series m: the composition gives other bytes than the recorded answer"),
        (redrawn, "holds a seed that was drawn from before"),
    ):
        code, out, errors = await copies.said(alter)
        assert (code, out) == (4, ""), alter.__doc__
        assert named in errors
