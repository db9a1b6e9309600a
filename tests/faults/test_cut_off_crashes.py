"""Users active and users cut off through crashes at every place: rows are what the definition says.

The twins are a guard that forgets what its users used of their caps, and a memory that begins anew: both are caught.
"""

from functools import partial
from random import Random
from typing import Any

import pytest
from oracles.cut_users import cut_users
from oracles.user_caps import Log
from unit.pipeline.routing.seen_worlds import SeenWorld
from unit.pipeline.routing.test_cut_off_rows import pipeline
from unit.pipeline.routing.user_worlds import CAP, FOR_EVER, HORIZON, PIPELINE, WINDOW, some_log

from faults.test_distinct_crashes import Forgetful, crashes
from stream_dp.engine.user_memory import UserMemory
from stream_dp.errors import FailClosed

USERS = tuple(f"user {number}" for number in range(6))
PER_WINDOW, OVERALL = pipeline(PIPELINE["privacy"], f"{WINDOW}s"), pipeline(FOR_EVER, None)


def logs_of(seed: int) -> dict[int, Log]:
    """Late records, and marks that skip ahead."""
    return {0: some_log(Random(seed), USERS, 60)}


def recorded(world: SeenWorld) -> list[tuple[int, ...]]:
    """The rows that the journal holds, without the count beside them."""
    return [row[1:] for row in world.recorded()]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("spec", "window"), [(PER_WINDOW, WINDOW), (OVERALL, None)])
async def test_users_are_counted_once_through_crashes_anywhere(
    seed: int, spec: Any, window: int | None
) -> None:
    random = Random(seed)
    world = SeenWorld(logs_of(seed), spec, group=random.randint(1, 4))
    assert await crashes(world, random) > 1
    assert recorded(world) == cut_users(world.logs, CAP, window, HORIZON)


async def test_a_guard_that_forgets_what_caps_are_used_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(UserMemory, "replay", lambda *_: None)
    await wrong(SeenWorld)


async def test_a_memory_that_begins_anew_is_caught() -> None:
    await wrong(partial(SeenWorld, make_seen=Forgetful))


async def wrong(made: Any) -> None:
    """Some run of six is not what the definition says."""
    found = 0
    for seed in range(6):
        world = made(logs_of(seed), OVERALL)
        try:
            await crashes(world, Random(seed))
        except FailClosed:
            found += 1
        else:
            found += recorded(world) != cut_users(world.logs, CAP, None, HORIZON)
    assert found > 0
