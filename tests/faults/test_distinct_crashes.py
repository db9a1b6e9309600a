"""Different identifiers through crashes at every place: rows are what the definition says, and so is the memory.

The twins are memories that a crash, load or content would make wrong: each is caught.
"""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from commit_parts import part_of
from oracles.user_caps import Log
from unit.journal.runtime_worlds import Crash, Fuse
from unit.pipeline.routing.seen_worlds import (
    WINDOW,
    WINDOWS,
    SeenWorld,
    counted,
    expected,
    remembered,
    specification,
)
from unit.pipeline.routing.user_worlds import HORIZON, hashed, some_log

from stream_dp.engine.tick_assembler import ClosedTick
from stream_dp.engine.user_memory import SeenMemory
from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Commit

USERS = tuple(f"user {number}" for number in range(9))
TWO = {
    "source": {"kind": "kafka", "topic": "t", "bootstrap": "a:1"},
    "journal": {"kind": "sqlite", "path": "j"},
    "releases": {"path": "r"},
}


def logs_of(seed: int, partitions: int = 1) -> dict[int, Log]:
    """Everybody in every partition, with late records and marks that skip ahead."""
    return {each: some_log(Random(seed + 100 * each), USERS, 60) for each in range(partitions)}


def check(world: SeenWorld) -> None:
    """The journal's rows are those of the definition; its commits say who was there, keyed, while a window lasts."""
    assert world.recorded() == expected(world.logs)
    ticks = counted(world.logs)
    for last, commit in enumerate(commits := world.commits()):
        if not commit.ticks:
            continue
        following = commit.ticks[-1] + 1
        for column in (0, 1):
            size = WINDOWS[column] or HORIZON + 1
            known, now = remembered(commits[: last + 1], column), following // size
            there = {e.user for t in range(now * size, min(following, HORIZON)) for e in ticks[t]}
            assert known.get(now, Counter()) == Counter(map(hashed, there))
            assert all(
                (w + 1) * size > following for w in part_of(commit, "arrived").get(column, {})
            )


async def crashes(world: SeenWorld, random: Random) -> int:
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
@pytest.mark.parametrize("partitions", [1, 2])
async def test_identifiers_are_counted_once_through_crashes_anywhere(
    seed: int, partitions: int
) -> None:
    random = Random(seed)
    spec = specification(**TWO) if partitions == 2 else specification()
    world = SeenWorld(logs_of(seed, partitions), spec, group=random.randint(1, 4))
    assert await crashes(world, random) > 1
    check(world)


async def test_nothing_of_a_run_but_the_log_decides_what_a_journal_says() -> None:
    told = []
    for seed in (1, 2):
        world = SeenWorld(logs_of(5, 2), specification(**TWO))
        await crashes(world, Random(seed))
        told.append([(c.ticks, c.rows, c.parts) for c in world.commits()][1:])
    assert told[0] == told[1]
    assert any("arriving" in each[2] for each in told[0])


async def test_a_memory_is_what_the_journal_says_and_forgets_windows_that_are_over() -> None:
    world = SeenWorld(logs_of(3), specification())
    await world.engine(Random(3)).run()
    seen, again = world.seen, SeenMemory({0: None, 1: WINDOW, 2: 1})
    assert seen is not None
    for commit in world.commits():
        again.replay(commit)
    assert again.content() == seen.content()
    assert list(seen.content()[0]) == [0]
    assert seen.content()[1] == seen.content()[2] == {}


class Forgetful(SeenMemory):
    """Begins anew with every start."""

    def replay(self, commit: Commit) -> None:
        """Take nothing."""


class Evicting(SeenMemory):
    """Drops what it knows once that is more than a few: by content."""

    def record(self, ticks: Sequence[ClosedTick]) -> tuple[Sequence[ClosedTick], bytes | None]:
        """Forget for want of room."""
        if sum(len(data) for found in self.content().values() for data in found.values()) > 200:
            self.__init__({0: None, 1: WINDOW, 2: 1})  # type: ignore[misc]
        return super().record(ticks)


class Overlooking(SeenMemory):
    """Takes the identifiers of ticks still open at the cut for lost."""

    def replay(self, commit: Commit) -> None:
        """Take what is settled alone."""
        commit.parts.pop("arriving", None)
        super().replay(commit)


@pytest.mark.parametrize("twin", [Forgetful, Evicting, Overlooking])
async def test_a_memory_that_a_crash_or_load_makes_wrong_is_caught(twin: Any) -> None:
    """By its rows; or by the next start, which is told of an identifier twice."""
    wrong = 0
    for seed in range(6):
        world = SeenWorld(logs_of(seed, 2), specification(**TWO), make_seen=twin)
        try:
            await crashes(world, Random(seed))
        except FailClosed:
            wrong += 1
        else:
            wrong += world.recorded() != expected(world.logs)
    assert wrong > 0
