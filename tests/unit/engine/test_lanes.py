"""Lanes: what several processes read is what one reads, whichever of them die or hang, and whenever."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from faults import test_distinct_crashes as distinct
from faults import test_user_caps as caps
from lane_crews import LoopRows, by_workers, in_lanes
from unit.engine.recovery import test_checkpoints as worlds
from unit.journal.runtime_worlds import Fuse, Router, World
from unit.live import test_changed_file as changed
from unit.live import test_live_series_crashes as live
from unit.live.live_series_steps import zero
from unit.live.live_series_worlds import World as LiveWorld
from unit.pipeline.routing import test_begins_later as later
from unit.pipeline.routing.user_worlds import KEYED, UserWorld, specification

from stream_dp.engine.lanes import processes as lanes
from stream_dp.engine.lanes.processes import Came, Lane, LaneReader
from stream_dp.engine.lanes.rows import (
    Cells,
    LaneChain,
    LaneRow,
    Layout,
    Verdict,
    layout_in,
)
from stream_dp.engine.memories import UserMemory
from stream_dp.engine.ports import Batch
from stream_dp.engine.tick_assembler import Cut, Routed
from stream_dp.engine.user_table import Counted
from stream_dp.errors import FailClosed, Outage, StreamDPError, WorldError
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.user_guard import UserGuard
from stream_dp.pipeline.user_homes import Homes

SQLITE = {"journal": {"kind": "sqlite", "path": "j"}, "releases": {"path": "r"}}


async def users_of_two_partitions() -> None:
    for seed in range(3):
        await caps.test_users_of_two_partitions_through_crashes_anywhere(seed)


async def identifiers_in_two_partitions() -> None:
    for seed in range(3):
        await distinct.test_identifiers_are_counted_once_through_crashes_anywhere(seed, 2)


async def read_again() -> None:
    await caps.test_what_is_read_again_for_a_live_series_uses_no_cap_twice()


async def changed_files() -> None:
    await changed.test_a_crash_anywhere_leaves_one_file_one_ledger_and_one_version(1)
    await changed.test_series_that_share_columns_count_after_a_crash_what_they_count_without(1)
    await changed.test_a_running_engine_applies_a_file_in_one_commit_and_goes_on()
    await changed.test_words_need_no_commit_and_a_field_that_comes_is_read()


async def other_series() -> None:
    for place in range(1, 12, 3):
        await live.restarted(LiveWorld(), place)


SEVERAL = [
    worlds.a_plain_one, users_of_two_partitions, identifiers_in_two_partitions, worlds.live_series, worlds.analysts,
    worlds.watched_sums, changed_files, later.check_watches,
]  # fmt: skip
ONE = [
    worlds.users, worlds.users_by_key, worlds.totals_of_users, worlds.totals_that_series_share,
    worlds.totals_of_both_signs, worlds.keys_of_users, read_again,
]  # fmt: skip


@pytest.mark.parametrize("scenario", SEVERAL)
async def test_several_lanes_read_what_one_process_reads(
    scenario: Callable[[], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    crews = in_lanes(monkeypatch)
    await scenario()
    assert all(len(crew.channels) <= crew.most for crew in crews)
    assert max(crew.most for crew in crews) > 1


@pytest.mark.parametrize("scenario", [*SEVERAL, *ONE])
async def test_lanes_that_die_anywhere_lose_nothing_and_count_nothing_twice(
    scenario: Callable[[], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    crews = in_lanes(monkeypatch, dies=0.05)
    await scenario()
    assert any(len(crew.channels) > crew.most for crew in crews)


@pytest.mark.parametrize("scenario", SEVERAL)
async def test_workers_read_what_one_process_reads(
    scenario: Callable[[], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    every = by_workers(monkeypatch)
    await scenario()
    assert max(rows.lanes for rows in every) > 1


@pytest.mark.parametrize("scenario", [*SEVERAL, *ONE])
async def test_workers_that_die_or_lag_lose_nothing_and_count_nothing_in_two_versions(
    scenario: Callable[[], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    every = by_workers(monkeypatch, dies=0.05, lags=0.5)
    await scenario()
    assert any(rows.died for rows in every)


async def test_lanes_that_hang_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    crews = in_lanes(monkeypatch, hangs=0.02)
    await users_of_two_partitions()
    assert any(len(crew.channels) > crew.most for crew in crews)


async def test_lanes_that_end_again_and_again_end_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_lanes(monkeypatch, dies=1)
    monkeypatch.setattr(lanes, "DEATHS", 4)
    with pytest.raises(WorldError, match="ended 5 times before any tick was complete"):
        await World().run()


async def test_a_lane_that_fails_ends_the_engine_with_its_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_lanes(monkeypatch)

    def broken(router: Router, batch: Batch) -> Routed:
        raise Outage("no broker answers")

    monkeypatch.setattr(Router, "route", broken)
    with pytest.raises(Outage, match="no broker answers"):
        await World().run()


async def test_a_user_in_two_lanes_ends_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caps are checked once more where lanes meet, whatever let a user's records into two partitions."""
    in_lanes(monkeypatch)
    everywhere = {partition: caps.one_log(1)[0] for partition in (0, 1)}
    world = UserWorld(everywhere, specification(source=KEYED, **SQLITE))
    monkeypatch.setattr(UserGuard, "admit", at_home(UserGuard.admit))
    with pytest.raises(FailClosed, match="two lanes together"):
        await world.engine(Random(1)).run()


def at_home(
    admit: Callable[[UserGuard, Batch, int], Batch],
) -> Callable[[UserGuard, Batch, int], Batch]:
    """A guard to which every partition is the home of every user."""

    def admitted(guard: UserGuard, batch: Batch, passed: int) -> Batch:
        guard._homes = cast("Homes", Everywhere(batch.partition))
        return admit(guard, batch, passed)

    return admitted


class Everywhere:
    def __init__(self, partition: int) -> None:
        self._partition = partition

    def of(self, users: Sequence[bytes]) -> np.ndarray[Any, Any]:
        return np.full(len(users), self._partition)


Twin = Callable[[pytest.MonkeyPatch], None]


def forgetful(patch: pytest.MonkeyPatch) -> None:
    """A lane that begins again knows nothing of its users."""
    patch.setattr(UserMemory, "become", lambda memory, held, next_tick: None)


def twice_open(patch: pytest.MonkeyPatch) -> None:
    """Every lane goes on with the rows of open ticks."""
    patch.setattr(
        lanes,
        "replace",
        lambda cut, **changes: cut if "pending" in changes else replace(cut, **changes),
    )


def unsettled(patch: pytest.MonkeyPatch) -> None:
    """What a lane's committed records used is given back when it reads again."""
    patch.setattr(Lane, "_settle", lambda lane, next_tick: None)


def not_given_back(patch: pytest.MonkeyPatch) -> None:
    """What is read again uses caps again."""
    rewind = UserMemory.rewind

    def kept(memory: UserMemory, cut: Cut) -> Cut:
        caller = sys._getframe(1).f_code.co_qualname
        return cut if caller == "Lane._begin" else rewind(memory, cut)

    patch.setattr(UserMemory, "rewind", kept)


def uncounted(patch: pytest.MonkeyPatch) -> None:
    """The engine's own memory, which commits and checkpoints are made of, learns nothing."""
    patch.setattr(lanes, "_counted", lambda used, guard: replace(used, counted=Counted.nothing()))
    patch.setattr(
        UserMemory, "take", lambda memory, taken, next_tick: [used.counted for used in taken]
    )


def any_epoch(patch: pytest.MonkeyPatch) -> None:
    """Ticks that a lane read before it was told to begin again are taken."""
    took = LaneReader._take

    async def taken(reader: Any, seat: Any, came: Came) -> None:
        await took(reader, seat, replace(came, epoch=reader._epoch))

    patch.setattr(LaneReader, "_take", taken)


def first_counting(patch: pytest.MonkeyPatch) -> None:
    """A lane counts what it counted first, whatever series begin and end."""
    count, known = OpenRouter.count, set[int]()

    def once(router: OpenRouter, counting: Any) -> None:
        if id(router) not in known:
            known.add(id(router))
            count(router, counting)

    patch.setattr(OpenRouter, "count", once)


def counted_at_once(patch: pytest.MonkeyPatch) -> None:
    """Lanes count in the open tick what begins behind it."""
    patch.setattr(OpenRouter, "counting", lambda router: router._counted().counting)


TWINS: list[tuple[Twin, Callable[[], Awaitable[None]]]] = [
    (forgetful, users_of_two_partitions), (twice_open, worlds.a_plain_one), (unsettled, read_again),
    (not_given_back, read_again), (uncounted, users_of_two_partitions), (any_epoch, read_again),
    (first_counting, other_series), (counted_at_once, later.check_watches),
]  # fmt: skip


@pytest.mark.parametrize(("twin", "scenario"), TWINS)
async def test_broken_lanes_are_caught(
    twin: Twin, scenario: Callable[[], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_lanes(monkeypatch, dies=0.05)
    twin(monkeypatch)
    with pytest.raises((AssertionError, StreamDPError, KeyError, ValueError)):
        await scenario()


class OtherLane(LoopRows):
    """The last lane counts by each layout what the former one said: a change comes a layout late there."""

    def counting(self, layout: Layout, lane: int) -> Any:
        layouts = [layout_in(each) for each in self.log.layouts]
        former = next((each for each in reversed(layouts) if each.epoch < layout.epoch), layout)
        said = former if lane == self.lanes - 1 else layout
        return super().counting(msgspec.structs.replace(said, width=layout.width), lane)


class Unheard(LoopRows):
    """A worker never hears of what comes or goes; it takes the newest layout for the first."""

    def counting(self, layout: Layout, lane: int) -> Any:
        nothing = msgspec.structs.replace(layout, added=(), muted=())
        return super().counting(nothing, lane)


def any_layout(patch: pytest.MonkeyPatch) -> None:
    """Rows of a former layout count under the present one."""
    judged = LaneChain._judged

    def any_(chain: Any, row: LaneRow, found: bytes) -> Verdict:
        layout = chain._layout
        if row.epoch >= layout.epoch:
            return judged(chain, row, found)
        cells = Cells.of(row.cells.row(), layout.width)
        now = msgspec.structs.replace(
            row, epoch=layout.epoch, previous=chain.previous, begins=dict(chain.cut.positions), cells=cells
        )  # fmt: skip
        return judged(chain, now, found)

    patch.setattr(LaneChain, "_judged", any_)


def no_layout(patch: pytest.MonkeyPatch) -> None:
    """The engine writes no layout for what comes or goes."""

    def continues(layout: Layout, other: Layout, *more: str) -> bool:
        return same(layout, other)

    same = Layout.continues
    patch.setattr(Layout, "continues", continues)


def nothing_held(patch: pytest.MonkeyPatch) -> None:
    """What begins with the next tick counts in the open one already."""
    patch.setattr(OpenRouter, "counting", lambda router: router._counted().counting)


LAID: list[tuple[Twin | None, type[LoopRows]]] = [
    (any_layout, LoopRows), (no_layout, LoopRows), (None, OtherLane), (None, Unheard),
]  # fmt: skip


@pytest.mark.parametrize(("twin", "rows"), LAID)
@pytest.mark.parametrize("world", [later.changed, later.watched])
async def test_broken_layouts_are_caught(
    twin: Twin | None, rows: type[LoopRows], world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = (await world(Fuse())).bodies
    by_workers(monkeypatch, lags=0.5, rows=rows)
    if twin is not None:
        twin(monkeypatch)
    with pytest.raises((AssertionError, StreamDPError, KeyError, ValueError, TimeoutError)):
        async with asyncio.timeout(20):
            assert (await world(Fuse())).bodies == one


async def test_what_counts_too_early_in_a_layout_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    by_workers(monkeypatch)
    nothing_held(monkeypatch)
    with pytest.raises((AssertionError, StreamDPError)):
        await later.check_watches()


@pytest.mark.parametrize("seed", range(4))
async def test_what_workers_count_is_what_one_process_counts_bit_for_bit(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same changes at the same ticks, without noise, with workers that die and that do not hear of a layout."""
    one = [(await later.changed(Fuse())).bodies, (await later.watched()).bodies]
    every = by_workers(monkeypatch, seed, dies=0.1, lags=0.7)
    assert [(await later.changed(Fuse())).bodies, (await later.watched()).bodies] == one
    assert all(one)
    assert any(rows.died for rows in every)
    assert any(rows.lagged for rows in every)
    epochs = [[layout_in(each).epoch for each in rows.log.layouts] for rows in every]
    assert epochs == [list(range(len(each))) for each in epochs]
    began = {tick for tick, *_ in later.SAID} - {
        7
    }  # there one begins and ends at once, and never counts
    begun = [layout_in(each).tick for each in every[-1].log.layouts]
    assert begun == [0, *(tick + 2 for tick in sorted(began))]


async def test_all_changes_that_wait_at_a_cut_are_one_layout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    every = by_workers(monkeypatch)
    await later.created(LiveWorld(noise=zero), 3, *later.EIGHT, one_by_one=False)
    (rows,) = every
    assert [layout_in(each).tick for each in rows.log.layouts] == [0, 3]
    assert len(rows.log.layout.added) == 1  # the eight are equal, and share their columns
