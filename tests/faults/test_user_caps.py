"""Caps of users through crashes at every place: what counts is what an oracle says, and so is what is remembered.

The twins are guards that a crash would make wrong: each is caught.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from commit_parts import part_of
from live_acts import create_series
from oracles.user_caps import Log, judge
from unit.journal.runtime_worlds import Crash, Fuse
from unit.pipeline.routing.user_worlds import (
    CAP,
    FOR_EVER,
    HORIZON,
    KEYED,
    KEYS,
    WINDOW,
    UserWorld,
    hashed,
    some_log,
    specification,
    users_of,
)

from stream_dp.engine.memories import UserMemory
from stream_dp.engine.user_table import Used
from stream_dp.errors import EngineEnded, FailClosed, UsageError
from stream_dp.journal.commit import Commit, Created
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_guard import UserGuard
from stream_dp.pipeline.user_homes import Homes

USERS = tuple(f"user {number}" for number in range(9))


def home(user: str) -> int:
    return int(Homes((0, 1), "murmur2").of([user.encode()])[0])


def one_log(seed: int) -> dict[int, Log]:
    return {0: some_log(Random(seed), USERS)}


def two_logs(seed: int) -> dict[int, Log]:
    """Users in their partitions, and now and then in the other one."""
    logs: dict[int, Log] = {}
    for partition in (0, 1):
        mine = [user for user in USERS if home(user) == partition]
        logs[partition] = some_log(
            Random(2 * seed + partition), [*mine, *Random(seed).sample(USERS, 2)]
        )
    return logs


def check(world: UserWorld, window: int | None) -> None:
    """The journal's rows are the oracle's, and what its commits say of users is so at every cut."""
    place = home if len(world.logs) > 1 else None
    expected = judge(world.logs, CAP, window, place)
    commits = world.commits()
    assert [tick for commit in commits for tick in commit.ticks] == list(range(HORIZON))
    assert world.rows() == expected.rows
    assert sum(commit.capped for commit in commits) == expected.capped > 0
    assert sum(commit.late for commit in commits) == expected.late > 0
    assert sum(each.records for c in commits for each in c.dead_letters) == expected.dead
    for last, commit in enumerate(commits):
        if not commit.ticks:
            continue
        at = judge(world.logs, CAP, window, place, commit.marks).used
        following = commit.ticks[-1] + 1
        open_ones = {w for w, _ in at if window is None or (w + 1) * window > following}
        known = users_of(commits[: last + 1])
        for number in open_ones:
            mine = {hashed(u): n for (w, u), n in at.items() if w == number}
            assert known.get(number, Counter()) == mine
        over = {
            w
            for w in part_of(commit, "users")
            if window is not None and (w + 1) * window <= following
        }
        assert not over


async def crashes(world: UserWorld, random: Random) -> int:
    """Run to the end through crashes anywhere; how many there were."""
    number = 0
    while True:
        try:
            await world.engine(random, Fuse(random.randint(3, 20 if number < 2 else 50))).run()
        except Crash:
            number += 1
        else:
            return number


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("window", [WINDOW, None])
async def test_a_cap_holds_through_crashes_anywhere(seed: int, window: int | None) -> None:
    random = Random(seed)
    spec = specification() if window else specification(privacy=FOR_EVER)
    world = UserWorld(one_log(seed), spec, group=random.randint(1, 4))
    assert await crashes(world, random) > 1
    check(world, window)


@pytest.mark.parametrize("seed", range(4))
async def test_users_of_two_partitions_through_crashes_anywhere(seed: int) -> None:
    random = Random(seed)
    journal, releases = {"kind": "sqlite", "path": "j"}, {"path": "r"}
    spec = specification(source=KEYED, journal=journal, releases=releases)
    world = UserWorld(two_logs(seed), spec, group=random.randint(1, 4))
    assert await crashes(world, random) > 1
    check(world, WINDOW)
    assert sum(each.records for c in world.commits() for each in c.dead_letters) > 0


async def test_every_crash_after_a_cut_and_before_the_next() -> None:
    """One crash at each of the first places, and then an undisturbed run, whose batches are others."""
    for place in range(1, 20, 2):
        random = Random(place)
        world = UserWorld(one_log(0))
        with pytest.raises(Crash):
            await world.engine(random, Fuse(place)).run()
        await world.engine(random).run()
        check(world, WINDOW)


def counting(number: int) -> tuple[str, bytes]:
    """A key, and the definition of a series that counts it."""
    key = KEYS[number % 3]
    where = [{"field": "key", "equals": key}]
    shown = {"name": f"more_{number}", "statistic": "count", "epsilon": "1", "where": where}
    return key, json.dumps(shown).encode()


async def read_again(seed: int) -> int:
    """Create series while an engine runs; how many records counted in them."""
    random = Random(seed)
    world = UserWorld(one_log(seed))
    engine = world.engine(random)
    run = asyncio.create_task(engine.run())
    await engine.ready.wait()
    created: list[tuple[str, Created]] = []
    while not run.done():
        for _ in range(random.randint(0, 30)):
            await asyncio.sleep(0)
        if len(created) < 4:
            key, definition = counting(len(created))
            with suppress(EngineEnded):
                created.append((key, await create_series(engine, definition)))
    await run
    check(world, WINDOW)
    totals, some = world.rows(), 0
    for key, series in created:
        seen = {
            tick: row[series.column]
            for commit in world.commits()
            for tick, row in zip(commit.ticks, commit.rows, strict=True)
            if tick >= series.start
        }
        assert all(number <= totals[tick, key] for tick, number in seen.items())
        some += sum(seen.values())
    return some


async def test_what_is_read_again_for_a_live_series_uses_no_cap_twice() -> None:
    assert sum([await read_again(seed) for seed in range(4)]) > 0  # a run may end before any begins


async def test_a_source_of_several_partitions_is_refused_before_anything_is_charged() -> None:
    world = UserWorld(two_logs(1))
    with pytest.raises(UsageError, match="all records of a user must be in one"):
        await world.engine(Random(1)).run()
    assert world.store.commits == []


class _SavesWhatWasRead(UserMemory):
    """Its commits record all that was read, and not what their ticks took."""

    def settle(self, taken: Iterable[Used], next_tick: int) -> dict[int, bytes]:
        list(taken)
        return super().settle(list(self._pending.values()), next_tick)


class _Forgets(UserMemory):
    """Begins anew after a crash."""

    def replay(self, commit: Commit) -> None: ...


def broken(memory: type[UserMemory]) -> Any:

    def guard(spec: PipelineSpec, origin: int, key: bytes) -> UserGuard:
        made = UserGuard(spec, origin, key)
        made.memory = memory(spec.privacy.cap, spec.privacy.window_ticks(spec.clock))
        return made

    return guard


@pytest.mark.parametrize("twin", [_SavesWhatWasRead, _Forgets])
async def test_a_memory_that_crashes_or_others_change_is_caught(twin: type[UserMemory]) -> None:
    caught = 0
    for seed in range(4):
        world = UserWorld(one_log(seed), make_guard=broken(twin))
        try:
            await crashes(world, Random(seed))
            check(world, WINDOW)
        except (AssertionError, FailClosed):
            caught += 1
    assert caught > 2


async def test_a_memory_that_is_not_rewound_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UserMemory, "rewind", lambda _, cut: cut)
    caught = 0
    for seed in range(6):
        try:
            await read_again(seed)
        except (AssertionError, KeyError):
            caught += 1
    assert caught > 2
