"""Runs that stop anywhere and go on: one version of every release, every event once, no noise used twice."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from unit.journal.runtime_worlds import (
    HORIZON,
    WIDTH,
    Crash,
    CrashingSink,
    Fuse,
    HeldJournal,
    Router,
    World,
    batches,
    plan,
)

from stream_dp.engine import engine as module
from stream_dp.engine import run_config
from stream_dp.engine.engine import Engine
from stream_dp.engine.ports import Batch, Positions
from stream_dp.engine.run_config import GROUP
from stream_dp.engine.tick_assembler import TickAssembler
from stream_dp.errors import Unconfirmed, WorldError
from stream_dp.files.memory import MemoryJournal, MemorySink
from stream_dp.journal.commit import Release, digest
from stream_dp.journal.release import release_of

SERIES = 3


def exact(given: list[Batch]) -> tuple[list[list[int]], int, int, int]:
    """The rows, the number of records, of dead letters and of late records of an undisturbed reading."""
    ticks = TickAssembler((0, 1), WIDTH)
    for batch in given:
        ticks.add(batch, Router().route(batch))
    closed = ticks.closed(HORIZON)
    return ([each.row.tolist() for each in closed], sum(each.records for each in closed),
            sum(each.dead_letters.records for each in closed), sum(each.late for each in closed))  # fmt: skip


async def check_whole(world: World) -> None:
    """The run has come to its end, and nothing was lost, counted twice, changed or left unlinked."""
    commits = world.commits()
    released = [release for commit in commits for release in commit.releases]
    assert [release.body for release in released] == world.bodies
    assert [release.sequence for release in released] == list(range(1, SERIES * HORIZON + 1))
    assert [json.loads(body)["sequence"] for body in world.bodies] == [r.sequence for r in released]
    assert [tick for commit in commits for tick in commit.ticks] == list(range(HORIZON))
    for (before, sealed), (after, _) in pairwise(zip(commits, world.store.commits, strict=True)):
        assert (after.sequence, after.previous) == (before.sequence + 1, digest(sealed))
    rows, records, dead, late = exact(world.batches)
    assert [list(row) for commit in commits for row in commit.rows] == rows
    summary = await world.summary()
    assert (summary.totals.ticks, summary.totals.releases) == (HORIZON, len(world.bodies))
    assert (summary.totals.records, summary.dead_letters, summary.totals.late) == (
        records,
        dead,
        late,
    )
    assert summary.rows is not None
    assert summary.rows.tolist() == np.sum(rows, axis=0).tolist()
    seeds = [seed for commit in commits for seed in commit.seeds]
    assert len(set(seeds)) == len(seeds) == HORIZON + 1


async def test_an_undisturbed_run() -> None:
    world = World(plan(group=GROUP))
    await world.run()
    await check_whole(world)
    assert len(set(world.drawn)) == len(world.drawn) == SERIES * (HORIZON + 1)
    assert world.told == [release_of(body) for body in world.bodies]
    first = world.commits()[0]
    assert first.charges == world.plan.charges
    assert first.header is not None
    assert (first.ticks, first.header.partitions) == ((), (0, 1))


async def test_a_run_that_is_over_changes_nothing() -> None:
    world = World(plan(group=GROUP))
    await world.run()
    bodies, commits = list(world.bodies), list(world.store.commits)
    await world.run()
    assert (world.bodies, world.store.commits) == (bodies, commits)
    assert world.told == [release_of(body) for body in bodies]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("snapshots", [1000, 5])
async def test_crashes_anywhere(seed: int, snapshots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    group = random.randint(1, 4)
    monkeypatch.setattr(module, "SNAPSHOT_TICKS", snapshots)
    monkeypatch.setattr(run_config, "GROUP", 10)
    config = plan(block=random.choice([1, 5]), group=group)
    world = World(replace(config, hold=random.choice([None, 500])), batches(seed))
    visible: list[bytes] = []
    crashes = 0
    while True:
        try:
            await world.run(Fuse(random.randint(1, 30)))
        except Crash:
            crashes += 1
        else:
            break
        assert world.bodies[: len(visible)] == visible
        visible = list(world.bodies)
        durable = [release.body for commit in world.commits() for release in commit.releases]
        assert durable[: len(visible)] == visible
    await check_whole(world)
    assert crashes > 1
    assert any(commit.snapshot for commit in world.commits()) == (snapshots == 5)


class _WholeBlocks(CrashingSink):
    """Passes a place before and behind each block, which becomes visible as a whole; notes its ticks."""

    def __init__(self, bodies: list[bytes], fuse: Fuse) -> None:
        super().__init__(bodies, fuse)
        self.blocks: list[list[int]] = []

    async def publish(self, releases: Sequence[Release]) -> None:
        self._fuse.burn()
        await MemorySink.publish(self, releases)
        self.blocks.append(sorted({release.tick for release in releases}))
        self._fuse.burn()


@pytest.mark.parametrize("seed", range(8))
async def test_blocks_after_a_crash_depend_on_what_is_public_alone(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ticks are overdue; ten of them fill a block, after what was public when the attempt began."""
    random = Random(seed)
    monkeypatch.setattr(run_config, "GROUP", 10)
    world, over, crashes = World(batches=batches(seed)), False, 0
    while not over:
        world.plan = replace(plan(group=random.randint(1, 30)), hold=500)
        fuse = Fuse(random.randint(2, 12))
        sink, first = _WholeBlocks(world.bodies, fuse), len(world.bodies) // SERIES
        wanted = [[t for t in range(HORIZON) if t // 10 == n and t >= first] for n in range(3)]
        try:
            await world.run(fuse, sink=sink)
            over = True
        except Crash:
            crashes += 1
        assert sink.blocks == [block for block in wanted if block][: len(sink.blocks)]
        assert len(world.bodies) in [SERIES * tick for tick in (0, 10, 20, HORIZON)]
    await check_whole(world)
    assert crashes


class _Expired(MemoryJournal):
    """Nothing but what is public confirms any more that it is the newest journal."""

    async def verify(self, positions: Positions) -> None:
        raise Unconfirmed("expired")


async def test_an_unconfirmed_journal_may_be_ahead_within_a_block_of_overdue_ticks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_config, "GROUP", 10)
    world = World(replace(plan(), hold=500))
    fuse = Fuse(2 * (1 + 10 + 1 + 4))  # the first commit, ten ticks, their block, four ticks
    with pytest.raises(Crash):
        await world.run(fuse, sink=_WholeBlocks(world.bodies, fuse))
    assert (len(world.bodies), world.commits()[-1].ticks[-1]) == (SERIES * 10, 13)
    overdue, world.plan = world.plan, plan()
    with pytest.raises(Unconfirmed):
        await world.run(journal=_Expired(world.store))
    world.plan = overdue
    await world.run(journal=_Expired(world.store))
    await check_whole(world)


def stop_after(engine: Engine, told: list[Release], number: int) -> None:
    """Let the engine stop when so many releases have been seen."""

    def published(release: Release) -> None:
        told.append(release)
        if len(told) >= number:
            engine.stop()

    engine._audience = replace(engine._audience, published=published)


@pytest.mark.parametrize("seed", range(3))
async def test_stops_anywhere(seed: int) -> None:
    random = Random(seed)
    world = World(batches=batches(seed))
    for _ in range(HORIZON):
        engine = world.engine()
        stop_after(engine, world.told, len(world.bodies) + random.randint(0, 15))
        await engine.run()
        assert world.told == [release_of(body) for body in world.bodies]
    await world.run()
    await check_whole(world)


async def test_snapshots_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = []
    for snapshots in (10_000, 4, 1):
        monkeypatch.setattr(module, "SNAPSHOT_TICKS", snapshots)
        random = Random(5)
        world = World(seeds=lambda random=random: random.randbytes(32))  # type: ignore[misc]
        engine = world.engine()
        stop_after(engine, world.told, 30)
        await engine.run()
        assert 30 <= len(world.bodies) < SERIES * HORIZON
        await world.run()
        await check_whole(world)
        bodies.append(world.bodies)
    assert bodies[0] == bodies[1] == bodies[2]


async def test_an_attempt_that_was_not_committed_leaves_no_trace() -> None:
    world = World(plan(group=3))
    journal = HeldJournal(world.store, 3, fails=True)
    journal.go.set()
    with pytest.raises(WorldError, match="the disk failed"):
        await world.run(journal=journal)
    (attempt,) = journal.attempts
    before = list(world.bodies)
    assert attempt.sequence == len(world.store.commits)
    assert not {release.body for release in attempt.releases} & set(before)
    await world.run()
    await check_whole(world)
    assert world.bodies[: len(before)] == before
    again = world.commits()[attempt.sequence]
    assert again.rows[:1] == attempt.rows[:1]
    used = {seed for commit in world.commits() for seed in commit.seeds}
    assert not used & set(attempt.seeds)
    drawn_again = {r.body for r in attempt.releases if r.series == "alerts"} - set(world.bodies)
    assert len(drawn_again) == len(attempt.ticks) > 0


async def test_a_mark_that_skipped_ahead_before_the_stop() -> None:
    given = [Batch(0, [b"0 0"], [0], 2, mark=5), Batch(1, (), (), 1, mark=HORIZON - 1),
             Batch(0, [b"3 0", b"7 1"], [2, 3], 5, mark=HORIZON - 1)]  # fmt: skip
    world = World(batches=given)
    with pytest.raises(Crash):
        await world.run(Fuse(5 + 3))
    assert world.commits()[-1].ticks in ((0,), (1,))
    assert world.commits()[-1].marks[0] == 5
    await world.run()
    await check_whole(world)
    assert (await world.summary()).totals.late == 1
