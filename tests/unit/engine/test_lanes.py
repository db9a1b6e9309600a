"""Lanes: what several processes read is what one reads, whichever of them die or hang, and whenever."""

import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, cast

import numpy as np
import pytest
from faults import test_distinct_crashes as distinct
from faults import test_user_caps as caps
from lane_crews import in_lanes
from unit.engine.recovery import test_checkpoints as worlds
from unit.journal.runtime_worlds import Router, World
from unit.live import test_changed_file as changed
from unit.live import test_live_series_crashes as live
from unit.live.live_series_worlds import World as LiveWorld
from unit.pipeline.routing import test_begins_later as later
from unit.pipeline.routing.user_worlds import KEYED, UserWorld, specification

from stream_dp.engine.lanes import processes as lanes
from stream_dp.engine.lanes.processes import Came, Lane, LaneReader
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
    with pytest.raises(FailClosed, match="in two lanes"):
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
