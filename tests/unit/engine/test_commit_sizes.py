"""A commit has a largest size, which what is public decides: wide rows and many keys, never what they hold."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from live_acts import create_series
from unit.journal.runtime_worlds import HORIZON, WIDTH, Router, World, plan
from unit.journal.seed_worlds import definition
from unit.live.live_series_worlds import Stopping
from unit.live.live_series_worlds import World as LiveWorld

from stream_dp.core.neighbors import Neighbors
from stream_dp.engine import run_config
from stream_dp.engine.commands import Inbox
from stream_dp.engine.phases import ENGINE, Lifecycle
from stream_dp.engine.ports import Batch
from stream_dp.engine.run_config import COMMIT_BYTES, GROUP, RunConfig
from stream_dp.engine.series import Series
from stream_dp.engine.tick_assembler import ClosedTick, Cut, Routed
from stream_dp.engine.tick_reader import Reader
from stream_dp.files.memory import MemorySource
from stream_dp.journal import dead_letters
from stream_dp.journal.commit import encode
from stream_dp.journal.release import Shape
from stream_dp.mechanisms.linear.counter import Counter

WIDE = 50_000
MANY = 2**39


class _WideRouter(Router):
    """Counts nothing, or very much, in every entry of every tick."""

    width = WIDE

    def __init__(self, count: int) -> None:
        self._row = np.full(WIDE, count)

    def route(self, batch: Batch) -> Routed:
        assert batch.mark is not None
        return Routed({batch.mark: self._row}, (), {batch.mark: 1})


class _AtOnce(MemorySource):
    """Gives all it has with the first read."""

    async def read(self) -> Sequence[Batch]:
        left, self._left = self._left, []
        return left


async def commit_sizes(monkeypatch: pytest.MonkeyPatch, count: int) -> list[tuple[int, int]]:
    """The ticks and the plain bytes of each commit of a run over wide rows, all of which are there at once."""
    monkeypatch.setattr("unit.journal.runtime_worlds.Router", lambda: _WideRouter(count))
    counter = Counter(1, Fraction(1, 1000), Neighbors.ADD_REMOVE, HORIZON)
    one = Series("total", counter, slice(0, 1), ("",), Shape.SCALAR, lambda t, s: 7, 0.95)
    world = World(replace(plan(group=GROUP), series=(one,)))
    given = [Batch(0, (b"",), (n,), n + 1, mark=n) for n in range(HORIZON)]
    await world.run(source=_AtOnce(given, partitions=(0,)))
    return [(len(each.ticks), len(encode(each))) for each in world.commits()]


async def test_wide_rows_make_commits_of_fewer_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    full, empty = [await commit_sizes(monkeypatch, count) for count in (MANY, 0)]
    assert [ticks for ticks, _ in full] == [ticks for ticks, _ in empty] == [0, 8, 8, 8]
    assert max(size for _, size in full) <= COMMIT_BYTES


class _AllThatMayBe(Stopping):
    """Gives with one read all that it may."""

    async def read(self) -> Sequence[Batch]:
        found = [*await super().read()]
        while found and self._left and (self._left[0].mark or 0) <= self.limit:
            found += await super().read()
        return found


async def after_a_series_was_created(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ticks of each commit that follows a creation, where all the rest is there at once and two may be together."""
    monkeypatch.setattr(RunConfig, "ticks_together", lambda *_: 2)
    source, world = _AllThatMayBe(-1), LiveWorld()
    engine = world.engine(source)
    run = asyncio.create_task(engine.run())
    source.go(1)
    await world.until(1, run)
    before = len(world.store.commits)
    await create_series(engine, definition("later"))
    source.go(10**6)
    await run
    created, *after = world.commits()[before:]
    assert created.changes
    return [len(each.ticks) for each in after]


async def test_the_bound_holds_after_a_series_was_created(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = await after_a_series_was_created(monkeypatch)
    assert max(sizes) == 2 < sum(sizes)


async def test_a_reader_that_begins_again_without_the_bound_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    again = Reader.again

    async def all_at_once(self: Reader, cut: Cut) -> None:
        self.group = lambda: 100
        await again(self, cut)

    monkeypatch.setattr(Reader, "again", all_at_once)
    assert max(await after_a_series_was_created(monkeypatch)) > 2


async def test_without_the_bound_a_commit_is_as_large_as_all_its_ticks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_config, "COMMIT_BYTES", 10**9)
    sizes = await commit_sizes(monkeypatch, MANY)
    assert [ticks for ticks, _ in sizes] == [0, HORIZON]
    assert max(size for _, size in sizes) > 2 * COMMIT_BYTES


def test_the_number_of_ticks_comes_from_width_and_keys() -> None:
    config = plan(group=GROUP)
    assert config.ticks_together(WIDTH, config.series) == GROUP
    assert config.ticks_together(COMMIT_BYTES // 9 // 10, ()) == 10
    assert config.ticks_together(10**9, config.series) == 1
    wide = replace(config.series[1], keys=tuple(map(str, range(100_000))))
    assert config.ticks_together(1, [wide]) == COMMIT_BYTES // wide.most_bytes == 1


def closed(tick: int) -> ClosedTick:
    return ClosedTick(tick, np.zeros(1, np.int64), {}, {}, {}, dead_letters.DeadLetters(), 0, 0)


async def test_the_inbox_joins_no_more_ticks_than_it_may() -> None:
    inbox = Inbox(Lifecycle(ENGINE))
    for first in (0, 3, 6):
        await inbox.put([closed(first + n) for n in range(3)])
    found = [await inbox.get(5), await inbox.get(7)]
    assert [[one.tick for one in each] for each in found if isinstance(each, list)] == [
        [0, 1, 2],
        [3, 4, 5, 6, 7, 8],
    ]


async def test_ticks_that_share_a_commit_come_from_one_block_of_tick_numbers() -> None:
    for most in (6, 1):  # joined as they come, or as they are taken
        inbox = Inbox(Lifecycle(ENGINE))
        for tick in range(5, 8):
            await inbox.put([closed(tick)], most)
        await inbox.put([])
        found = [await inbox.get(6) for _ in range(2)]
        assert [[one.tick for one in each] for each in found if isinstance(each, list)] == [
            [5],
            [6, 7],
        ]


async def test_the_dead_letters_of_a_commit_are_bounded_however_many_ticks_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dead_letters, "DETAIL", 7)
    junk = [
        Batch(0, [b"junk"] * 5, range(100 * n, 100 * n + 10, 2), 1 + n, mark=n)
        for n in range(HORIZON)
    ]
    world = World(plan(group=GROUP), [*junk, Batch(1, (), (), 1, mark=HORIZON - 1)])
    await world.run()
    letters = [letter for commit in world.commits() for letter in commit.dead_letters]
    assert sum(letter.records for letter in letters) == 5 * HORIZON
    assert max(len(letter.ranges) for letter in letters) == 7
    assert (await world.summary()).dead_letters == 5 * HORIZON


def test_a_cut_keeps_of_pending_rows_what_is_not_zero() -> None:
    rows = {4: np.array([0, 3, 0, 0]), 9: np.zeros(4, np.int64), 5: np.array([1, 0, 0, 2])}
    cut = Cut(4, {0: 1}, {0: 3}, rows)
    assert cut.sparse == {4: {1: 3}, 9: {}, 5: {0: 1, 3: 2}}
    again = Cut.of(4, {0: 1}, {0: 3}, cut.sparse, {}).opened(4, slice(0, 0))
    assert {tick: row.tolist() for tick, row in again.pending.items()} == {
        tick: row.tolist() for tick, row in rows.items()
    }
