"""kill -9 of runs and feeds over Kafka, at random moments and at fixed points, until the end."""

import asyncio
import json
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from faults.cases import Case
from faults.forked import Forked, Run
from faults.kafka_evidence import consumer, over_kafka, records, source_events
from faults.killing import POINTS, checkpoints_every, killed_at, killed_at_random, pruning
from kafka.flight_topics import PARTITIONS, fed, finished, judged, look, over, topic_of
from kafka.kafka_worlds import STAMPED, create, writing
from kafka.log_worlds import LivePipeline, differences, says
from oracles.kafka_log import Grid

from stream_dp.broker.topics import create_topic
from stream_dp.files.system_clock import system_ms

DAWDLE = ("--dawdle", "1")


async def test_nothing_is_lost_or_counted_twice_over_random_kills(
    kafka: str, tmp_path: Path
) -> None:
    case = await fed(kafka, tmp_path, ticks=200)
    options, seen = ("--zero-noise", *DAWDLE), look(kafka, case)
    assert await killed_at_random(case, random.Random(20), 10, seen, *options, every=3) == 8
    assert await finished(kafka, case) == []


async def test_every_release_has_one_version_over_kills_at_fixed_points(
    kafka: str, tmp_path: Path
) -> None:
    """Those in the middle leave an open transaction, which the next start aborts: its records stay readable."""
    case = (await fed(kafka, tmp_path, ticks=120)).expecting(zero_noise=False)
    case = Case(case.folder, case.expected, case.events, checkpoints_every(10))
    for point in POINTS:
        await killed_at(case, look(kafka, case), point, *DAWDLE, anew=point == POINTS[0])
    await asyncio.to_thread(case.finish)
    assert await judged(kafka, case) == []
    left = await over_kafka(kafka, case.expected.pipeline, case.key)
    assert sum(not record.committed for record in left.public) > 0
    journal = await records(kafka, f"{case.expected.pipeline}.private.journal")
    known = {dict(record.headers).get("checkpoints", b"") for record in journal}
    assert len(known) >= 2  # none at first


async def test_kills_around_deletions_lose_nothing_and_count_nothing_twice(
    kafka: str, tmp_path: Path
) -> None:
    case = await fed(kafka, tmp_path, ticks=120)
    shown = json.loads(case.pipeline.read_text())
    case.pipeline.write_text(json.dumps(shown | {"journal": {"kind": "kafka", "keep": "12h"}}))
    pruned = checkpoints_every(4) + pruning()
    case = Case(case.folder, case.expected, case.events, case.patch + pruned)
    for point in ("before-prune:1", "after-prune:1", "after-commit:6", "before-prune:2"):
        await killed_at(case, look(kafka, case), point, "--zero-noise", *DAWDLE)
    await asyncio.to_thread(case.finish, "--zero-noise", *DAWDLE)
    assert await judged(kafka, case) == []
    journal = await records(kafka, f"{case.expected.pipeline}.private.journal")
    assert int(dict(journal[0].headers)["sequence"]) > 0


def feeding(case: Case, arguments: Sequence[str], anew: bool) -> Run:
    """A slow feed, in a forked process or in a new interpreter."""
    slow = (*arguments, "--speed", "40")
    if not anew:
        return Forked(slow, case.environment())
    command = [sys.executable, "-c", "from stream_dp.__main__ import start; start()", *slow]
    return subprocess.Popen(
        command, env=case.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


async def test_a_feed_killed_in_between_sends_nothing_twice(kafka: str, tmp_path: Path) -> None:
    case = over(kafka, tmp_path, ticks=200)
    topic, expected = topic_of(case), case.expected
    await create_topic(kafka, topic, PARTITIONS)
    table = str(case.folder / "slice.csv")
    arguments = ["replay", table, "--topic", topic, "--pipeline", str(case.pipeline)]
    every = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    async with consumer(kafka, "read_committed") as reader:
        for kill in range(3):
            before = await reader.end_offsets(every)
            run = feeding(case, arguments, anew=kill == 0)
            async with asyncio.timeout(60):
                while await reader.end_offsets(every) == before:
                    assert run.poll() is None
            await asyncio.sleep(0.05 * kill)
            run.kill()
            await asyncio.to_thread(run.communicate)
            assert run.returncode == -signal.SIGKILL
    run = Forked(arguments, case.environment())
    await asyncio.to_thread(run.communicate)
    assert run.returncode == 0
    events = await source_events(kafka, topic, expected.origin, expected.step)
    assert sorted(map(repr, events)) == sorted(map(repr, case.events))


async def test_overdue_ticks_become_public_in_whole_blocks_over_kills(
    kafka: str, tmp_path: Path, name: str
) -> None:
    """A wall clock went on for 250 ticks without an engine. A kill leaves half of a block in an open transaction."""
    topic = await create(kafka, f"{name}.events", 1, **STAMPED)
    grid = Grid(system_ms() - 24_000, 100, 200, 250)
    async with writing(kafka) as producer:
        for kind in ("red", "green", "mauve") * 20:
            await producer.send_and_wait(topic, json.dumps({"kind": kind}).encode())
    pipeline = LivePipeline(name, topic, kafka, tmp_path, grid).written()
    await asyncio.sleep((grid.origin + 251 * grid.step + grid.delay - system_ms()) / 1000)
    for crash in ("mid-publish:2", "before-publish:1", None):
        options = () if crash is None else ("--crash", crash)
        run = pipeline.start("--until-end", *options)
        _, errors = await asyncio.to_thread(run.communicate)
        assert run.returncode == (0 if crash is None else -signal.SIGKILL), errors
    public = await records(kafka, f"{name}.releases")
    written = await records(kafka, f"{name}.releases", "read_uncommitted")
    assert [json.loads(one.value)["sequence"] for one in public] == list(range(1, 501))
    assert len(written) > len(public)
    blocks: list[set[int]] = [set()]
    for before, one in pairwise([None, *public]):
        if before is not None and one.offset > before.offset + 1:  # a marker lies between
            blocks.append(set())
        blocks[-1].add(json.loads(one.value)["tick"])
    assert blocks == [set(range(100)), set(range(100, 200)), set(range(200, 250))]
    assert list(differences(says(kafka, topic, grid), await pipeline.journal(), grid)) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(3))
async def test_many_kills_over_a_snapshot(kafka: str, tmp_path: Path, seed: int) -> None:
    case = await fed(kafka, tmp_path, ticks=1500)
    options = ("--zero-noise", *DAWDLE)
    await killed_at_random(case, random.Random(seed), 40, look(kafka, case), *options)
    for point in POINTS:
        await killed_at(case, look(kafka, case), point, *options, anew=point == POINTS[0])
    assert await finished(kafka, case) == []
