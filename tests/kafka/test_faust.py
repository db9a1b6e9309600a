"""A pipeline in a Faust app, on the real broker: each event counts once and each message has one answer, also through
`kill -9` of a worker, and the app ends with the engine's error.
"""

import json
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from subprocess import Popen

import pytest
from kafka.faust_worlds import PARTITIONS, FaustWorld, source_of, until, working

from stream_dp.errors import UsageError
from stream_dp.integrations.faust.asking import FaustQueries
from stream_dp.kafka.client.clients import KafkaSettings

COUNT = 8000
LAST = [COUNT + 1 + n for n in range(PARTITIONS)]
DEAD = [n for n in range(COUNT) if n % 100 == 99]
COUNTED = [n for n in range(COUNT) if n % 10 and n % 100 != 99]
FAUST_ALONE = """
from stream_dp.integrations.faust.origin_writer import OriginHead
OriginHead.take = lambda self, offset: (True, OriginHead(self.origin, offset + 1))
"""


def number_of(payload: bytes) -> int | None:
    """Which event was fed; None for one that could not be read."""
    return int(json.loads(payload)["size"]) if payload else None


async def finished(world: FaustWorld, worker: Popen[str], found: list[bytes], patch: str) -> None:
    """Look at what was fed and counted, and at the worker's end."""
    fed = Counter(map(number_of, found))
    if patch:
        assert max(fed[n] for n in COUNTED) > 1
        return
    assert fed.pop(None) == len(DEAD)
    assert fed == Counter([*COUNTED, *LAST])
    whole = len(COUNTED) + PARTITIONS
    await until(lambda: world.released()[-1:] != [] and world.released()[-1][1] >= whole)
    worker.send_signal(signal.SIGTERM)
    await until(lambda: worker.poll() is not None)
    assert worker.returncode == 0
    assert "Unclosed" not in (world.talk.folder / "log-2").read_text()
    numbers = [number for number, _ in world.released()]
    assert {*numbers} == {*range(1, max(numbers) + 1)}
    assert world.released()[-1][1] == whole


@pytest.mark.parametrize("patch", ["", FAUST_ALONE], ids=["ours", "Faust alone"])
async def test_events_are_fed_once_through_a_kill(kafka: str, tmp_path: Path, patch: str) -> None:
    """Faust commits every few seconds and repeats what came after: without heads that counts twice.

    The engine counts from its first tick on, so nothing is put before that.
    """
    world = await FaustWorld.made(tmp_path, kafka, patch)
    if patch:  # else all may be committed by chance when the worker is killed
        world = replace(world, commit_s=10_000.0)
    begin = 3 * COUNT // 4 if patch else 0  # a twin needs less to be found
    middle = (begin + COUNT) // 2
    async with source_of(world) as found:
        async with working(world, 1) as first:
            await until(lambda: world.released() != [])
            await world.put([(n % PARTITIONS, n) for n in range(begin, middle)])
            await until(lambda: len(found) > (middle - begin) // 2)
            first.kill()
        await world.put([(n % PARTITIONS, n) for n in range(middle, COUNT)])
        await world.put([*enumerate(LAST)])  # behind all others: a partition keeps its order
        async with working(world, 2) as second:
            await until(lambda: {*LAST} <= {number_of(one) for one in found})
            await finished(world, second, found, patch)


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
            with pytest.raises(UsageError, match="none of this name"):
                await queries.ask("nothing")
            assert (await queries.preview({**series, "name": "more"})).content.fits
            assert created.number < asked.number < lower.number < shown.number < halted.number
    finally:
        await queries.close()


async def test_an_engine_that_cannot_run_ends_the_app_with_its_code(
    kafka: str, tmp_path: Path
) -> None:
    """It fails closed with 4, and so does the worker, whose log says why."""
    world = await FaustWorld.made(tmp_path, kafka)
    patch = """
from stream_dp.kafka.source.source import KafkaSource
from stream_dp.errors import FailClosed
async def refused(self, origin): raise FailClosed("the source lost its records")
KafkaSource.open = refused
"""
    broken = FaustWorld(world.talk, world.raw, patch)
    async with working(broken, 1) as worker:
        await until(lambda: worker.poll() is not None)
    assert worker.returncode == 4
    assert "the source lost its records" in (tmp_path / "log-1").read_text()
