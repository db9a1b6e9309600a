"""Different identifiers, and users cut off, through crashes at every place: rows and memory are as defined.

The twins are memories that a crash, load or content would make wrong: each is caught.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any

import pytest
from commit_parts import part_of, seen_in
from oracles.cut_users import cut_users
from oracles.first_arrivals import first_arrivals
from oracles.user_caps import Event, Log, Mark
from unit.pipeline.routing.seen_worlds import (
    WINDOW,
    WINDOWS,
    SeenWorld,
    counted,
    expected,
    remembered,
    specification,
)
from unit.pipeline.routing.test_cut_off_rows import pipeline
from unit.pipeline.routing.user_worlds import (
    CAP,
    FOR_EVER,
    HORIZON,
    KEYS,
    PIPELINE,
    hashed,
    some_log,
)
from unit.pipeline.routing.user_worlds import WINDOW as USER_WINDOW

from faults.test_user_caps import crashes
from stream_dp.engine.memories import SeenMemory, UserMemory
from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Commit

USERS = tuple(f"user {number}" for number in range(9))
TWO = {
    "source": {"kind": "kafka", "topic": "t", "bootstrap": "a:1"},
    "journal": {"kind": "sqlite", "path": "j"},
    "releases": {"path": "r"},
}


COLUMNS = {(0, 1): None, (1, 2): WINDOW, (2, 3): 1}


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


KEYED = {
    "privacy": {
        "unit": "user", "user": "customer", "max_events": str(CAP), "per": f"{USER_WINDOW}s", "key": "key", "keys": "2",
        "epsilon": "100",
    },
    "series": [
        {
            "name": "daily", "statistic": "distinct", "of": "customer", "by": "key", "every": f"{USER_WINDOW}s",
            "epsilon": "2",
        },
        {"name": "ever", "statistic": "distinct", "of": "customer", "by": "key", "epsilon": "2"},
    ],
}  # fmt: skip


def by_key(logs: Mapping[int, Log]) -> list[tuple[int, ...]]:
    """The rows of users by key, in windows and for ever, of the records that count, by definition."""
    kept, had = list[Event](), dict[Any, list[str]]()
    for event in (event for tick in counted_in_order(logs) for event in tick):
        keys = had.setdefault((event.user, event.tick // USER_WINDOW), [])
        if len(keys) < CAP and (event.key in keys or len({*keys}) < 2):
            keys.append(event.key)
            kept.append(event)
    parts = [
        first_arrivals(
            [[e.user for e in kept if (e.tick, e.key) == (tick, key)] for tick in range(HORIZON)],
            window,
        )
        for window in (USER_WINDOW, None)
        for key in KEYS
    ]
    return list(zip(*parts, strict=True))


def counted_in_order(logs: Mapping[int, Log]) -> list[list[Event]]:
    """The records that are on time, in the order of the log: a window's before those of the next one."""
    windows: list[list[Event]] = [[] for _ in range(HORIZON // USER_WINDOW)]
    (log,), passed = logs.values(), -1
    for item in log:
        if isinstance(item, Mark):
            passed = max(passed, item.tick)
        elif item.tick > passed:
            windows[item.tick // USER_WINDOW].append(item)
    return windows


class WithoutKey(SeenMemory):
    """A twin: a user is the same in all entries."""

    def __init__(self, windows: Any) -> None:
        super().__init__(windows)
        for memory in self._columns.values():
            memory.admit = partial(same_in_all, memory)  # type: ignore[method-assign]


def same_in_all(memory: UserMemory, users: Any, windows: Any) -> Any:
    return UserMemory.admit(memory, users, windows // memory._entries * memory._entries)


@pytest.mark.parametrize("seed", range(4))
async def test_users_are_counted_once_by_key_through_crashes_anywhere(seed: int) -> None:
    random = Random(seed)
    world = SeenWorld(logs_of(seed), specification(**KEYED), group=random.randint(1, 4))
    assert await crashes(world, random) > 1
    assert world.recorded() == by_key(world.logs)
    twin = SeenWorld(logs_of(seed), specification(**KEYED), make_seen=WithoutKey)
    await twin.engine(random).run()
    assert twin.recorded() != by_key(world.logs)


async def test_a_memory_is_what_the_journal_says_and_forgets_windows_that_are_over() -> None:
    world = SeenWorld(logs_of(3), specification())
    await world.engine(Random(3)).run()
    seen, again = world.seen, SeenMemory(COLUMNS)
    assert seen is not None
    for commit in world.commits():
        again.replay(commit)
    kept = seen_in(seen)
    assert seen_in(again) == kept
    assert list(kept[0]) == [0]
    assert kept[1] == kept[2] == {}


class Forgetful(SeenMemory):
    """Begins anew with every start."""

    def replay(self, commit: Commit) -> None: ...


class Overlooking(SeenMemory):
    """Takes the identifiers of ticks still open at the cut for lost."""

    def replay(self, commit: Commit) -> None:
        commit.parts.pop("arriving", None)
        super().replay(commit)


@pytest.mark.parametrize("twin", [Forgetful, Overlooking])
async def test_a_memory_that_a_crash_or_load_makes_wrong_is_caught(twin: Any) -> None:
    def made(seed: int) -> SeenWorld:
        return SeenWorld(logs_of(seed, 2), specification(**TWO), make_seen=twin)

    assert await wrong(made, lambda world: world.recorded() == expected(world.logs)) > 0


async def wrong(made: Callable[[int], SeenWorld], right: Callable[[SeenWorld], bool]) -> int:
    """How many runs of six have wrong rows, or a next start that is told of an identifier twice."""
    found = 0
    for seed in range(6):
        world = made(seed)
        try:
            await crashes(world, Random(seed))
        except FailClosed:
            found += 1
        else:
            found += not right(world)
    return found


FEW = USERS[:6]
PER_WINDOW, OVERALL = pipeline(PIPELINE["privacy"], f"{USER_WINDOW}s"), pipeline(FOR_EVER, None)


def cut_off(seed: int, spec: Any, **made: Any) -> SeenWorld:
    """A pipeline that counts active users and cuts them off at their caps."""
    return SeenWorld({0: some_log(Random(seed), FEW, 60)}, spec, **made)


def counted_users(world: SeenWorld, window: int | None) -> bool:
    """Whether the rows, without the count beside them, are those of the definition."""
    found = [row[1:] for row in world.recorded()]
    return found == cut_users(world.logs, CAP, window, HORIZON)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("spec", "window"), [(PER_WINDOW, USER_WINDOW), (OVERALL, None)])
async def test_users_that_are_cut_off_are_counted_once_through_crashes(
    seed: int, spec: Any, window: int | None
) -> None:
    random = Random(seed)
    world = cut_off(seed, spec, group=random.randint(1, 4))
    assert await crashes(world, random) > 1
    assert counted_users(world, window)


@pytest.mark.parametrize("twin", ["a guard that forgets caps", "a memory that begins anew"])
async def test_what_is_forgotten_of_cut_off_users_is_caught(
    twin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: type[SeenMemory] = Forgetful
    if twin == "a guard that forgets caps":
        monkeypatch.setattr(UserMemory, "replay", lambda *_: None)
        seen = SeenMemory
    made = partial(cut_off, spec=OVERALL, make_seen=seen)
    assert await wrong(made, lambda world: counted_users(world, None)) > 0
