"""Identifiers of ticks still open, over the chain: what a start finds is what the log says, after every commit.

Whoever goes on behind any commit, with snapshots or without, writes the commits of the run that was never interrupted.
The twins are memories that take the last commit for all, keep what is over, or lose all where a series is created.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, TypeAlias

import pytest
from commit_parts import part_of
from live_acts import create_series
from oracles.user_caps import Event, Log
from unit.journal.seed_worlds import definition
from unit.live.live_series_worlds import Stopping
from unit.pipeline.routing.seen_worlds import KEPT, SeenWorld, expected, specification
from unit.pipeline.routing.user_worlds import HORIZON, cut, hashed

from faults.test_distinct_crashes import TWO, logs_of
from stream_dp.engine import engine
from stream_dp.engine.memories import OpenIdentifiers
from stream_dp.engine.ports import Batch
from stream_dp.engine.tick_assembler import Cut
from stream_dp.engine.user_table import ByColumn
from stream_dp.files.memory import MemoryStore
from stream_dp.journal.commit import Commit

Open: TypeAlias = dict[int, dict[int, set[bytes]]]
Logs: TypeAlias = Mapping[int, Log]


def still_open(logs: Logs, commit: Commit, next_tick: int) -> Open:
    """What has come in ticks behind a commit, by definition: of the records before its places, those not late."""
    found: Open = {}
    for partition, log in logs.items():
        passed = -1
        for item in log[: commit.positions.get(partition, 0)]:
            if not isinstance(item, Event):
                passed = max(passed, item.tick)
            elif item.tick > passed and item.tick >= next_tick:
                for column, kept in enumerate(KEPT):
                    if kept is None or item.key in kept:
                        columns = found.setdefault(item.tick, {})
                        columns.setdefault(column, set()).add(hashed(item.user))
    return found


def by_definition(logs: Logs, commits: Sequence[Commit]) -> Iterator[Open]:
    next_tick = 0
    for commit in commits:
        next_tick = commit.ticks[-1] + 1 if commit.ticks else next_tick
        yield still_open(logs, commit, next_tick)


def as_sets(content: Mapping[int, ByColumn]) -> Open:
    """The same as sets of bytes; each stands there once."""
    found: Open = {}
    for tick, columns in content.items():
        for column, hashes in columns.items():
            some = [one.astype("<u8").tobytes() for one in hashes]
            assert len(set(some)) == len(some)
            found.setdefault(tick, {})[column] = set(some)
    return found


def told(commits: Sequence[Commit]) -> list[Any]:
    """What commits say of identifiers and rows, and where they stand; who starts anew writes other checkpoints."""
    parts = [{k: part for k, part in c.parts.items() if k != "checkpoint"} for c in commits]
    return [(c.ticks, c.rows, p, c.positions) for c, p in zip(commits, parts, strict=True)]


def world_of(seed: int) -> SeenWorld:
    return SeenWorld(logs_of(seed, 2), specification(**TWO))


def goes_on(whole: SeenWorld, commits: Sequence[Commit], number: int) -> SeenWorld:
    """What another engine finds that takes over behind the first `number` commits."""
    world = SeenWorld(whole.logs, whole.spec)
    world.store = MemoryStore(whole.store.commits[:number])
    world.bodies = [release.body for commit in commits[:number] for release in commit.releases]
    return world


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Open]:
    rewound, every = OpenIdentifiers.rewind, list[Open]()

    def noted(self: OpenIdentifiers, cut: Cut) -> Cut:
        cut = rewound(self, cut)
        every.append(as_sets(cut.arriving))
        return cut

    monkeypatch.setattr(OpenIdentifiers, "rewind", noted)
    return every


@pytest.mark.parametrize("snapshots", [4, 1000])
async def test_who_goes_on_behind_any_commit_has_the_memory_of_an_uninterrupted_run(
    snapshots: int, found: list[Open], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "SNAPSHOT_TICKS", snapshots)
    whole = world_of(2)
    await whole.engine(Random(0)).run()
    commits = whole.commits()
    assert whole.recorded() == expected(whole.logs)
    assert any(c.snapshot is not None for c in commits) == (snapshots == 4)
    wanted = list(by_definition(whole.logs, commits))
    assert sum(map(bool, wanted)) > 10
    found.clear()
    for number in range(1, len(commits) + 1):
        world = goes_on(whole, commits, number)
        await world.engine(Random(number)).run()
        assert found.pop() == wanted[number - 1]
        assert told(world.commits()) == told(commits)


def agree(whole: SeenWorld, memory: OpenIdentifiers) -> bool:
    """Whether a memory that reads the journal has, after each commit, what the log says."""
    commits = whole.commits()
    right = True
    for commit, wanted in zip(commits, by_definition(whole.logs, commits), strict=True):
        memory.replay(commit)
        right = right and as_sets(memory.content()) == wanted
    return right


@pytest.mark.parametrize(("seed", "group"), [(0, 1), (1, 3), (2, 3)])
async def test_a_chain_adds_up_to_what_is_open_and_repeats_nothing(seed: int, group: int) -> None:
    whole = world_of(seed)
    whole.group = group
    await whole.engine(Random(seed)).run()
    assert agree(whole, OpenIdentifiers())
    every = [
        (tick, column, data[at : at + 16])
        for commit in whole.commits()
        for tick, columns in part_of(commit, "arriving").items()
        for column, data in columns.items()
        for at in range(0, len(data), 16)
    ]
    assert len(set(every)) == len(every) > 0


class LastOnly(OpenIdentifiers):
    def replay(self, commit: Commit) -> None:
        self._parts.clear()
        super().replay(commit)


class Hoarding(OpenIdentifiers):
    """Keeps what belongs to ticks that are over."""

    def replay(self, commit: Commit) -> None:
        before = dict(self._parts)
        super().replay(commit)
        self._parts = before | self._parts


@pytest.mark.parametrize("twin", [LastOnly, Hoarding])
async def test_a_memory_that_does_not_add_up_is_caught(twin: Any) -> None:
    whole = world_of(2)
    await whole.engine(Random(0)).run()
    assert not agree(whole, twin())


async def created_between(seed: int) -> SeenWorld:
    """Create a series where identifiers of later ticks are there: all behind that cut is read again."""
    world = world_of(seed)
    source = Stopping(8, in_turn(cut(world.logs, Random(seed))))
    running = world.engine(Random(seed), source=source)
    run = asyncio.create_task(running.run())
    for _ in range(10**6):
        if run.done() or (world.bodies and json.loads(world.bodies[-1])["tick"] >= 3):
            break
        await asyncio.sleep(0)
    await create_series(running, definition("later"))
    source.go(10**6)
    await run
    return world


def in_turn(batches: Sequence[Batch]) -> list[Batch]:
    """These batches, each partition's in its order and no partition ahead of the marks of the others."""
    ends: dict[int, int] = {}
    keyed: list[tuple[int, Batch]] = []
    for batch in reversed(batches):
        ends[batch.partition] = (
            ends.get(batch.partition, HORIZON) if batch.mark is None else batch.mark
        )
        keyed.append((ends[batch.partition], batch))
    keyed.reverse()
    return [batch for _, batch in sorted(keyed, key=lambda one: one[0])]


async def test_a_series_created_in_between_loses_no_identifier(found: list[Open]) -> None:
    before = 0
    for seed in range(3):
        world = await created_between(seed)
        assert [row[:4] for row in world.recorded()] == expected(world.logs)
        commits = world.commits()
        (at,) = (n for n, commit in enumerate(commits) if commit.changes)
        assert "arriving" not in commits[at].parts
        assert found.pop() == list(by_definition(world.logs, commits))[at]
        before += sum("arriving" in commit.parts for commit in commits[:at])
        assert agree(world, OpenIdentifiers())
    assert before > 3


async def test_a_chain_that_forgets_them_where_a_series_is_created_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(OpenIdentifiers, "content", lambda _: {})
    worlds = [await created_between(seed) for seed in range(3)]
    assert any([row[:4] for row in one.recorded()] != expected(one.logs) for one in worlds)
