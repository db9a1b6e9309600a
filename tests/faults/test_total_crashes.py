"""What users add to a sum, through crashes at every place: rows and memory are as defined.

The twins are memories that a crash, load or content would make wrong: each is caught.
"""

from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from commit_parts import part_of
from oracles.user_caps import Log
from unit.pipeline.routing.test_user_total_rows import (
    CAPS,
    expected,
    net_expected,
    net_payload,
    net_specification,
    specification,
)
from unit.pipeline.routing.user_worlds import (
    PIPELINE,
    WINDOW,
    UserWorld,
    hashed,
    some_log,
)

from faults.test_user_caps import crashes
from stream_dp.engine.memories import Memory, NetMemory, OpenIdentifiers, TotalMemory
from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Commit, part
from stream_dp.pipeline.router import memories_of

USERS = tuple(f"user {number}" for number in range(6))


@dataclass
class TotalWorld(UserWorld):
    """What outlives an engine that remembers what users added; `totals` is the last one's memory."""

    make_totals: Any = TotalMemory
    totals: Any = None
    net: Any = None

    def memories(self) -> list[Memory]:
        seen, own, self.net = memories_of(self.built.layout, self.built.spec)
        self.totals = self.make_totals(own._most, own._window)
        return [seen, self.totals, self.net]

    def recorded(self) -> list[tuple[int, ...]]:
        return [tuple(row) for commit in self.commits() for row in commit.rows]


def world_of(seed: int, privacy: Any, **made: Any) -> TotalWorld:
    logs: dict[int, Log] = {0: some_log(Random(seed), USERS, 90)}
    return TotalWorld(logs, specification(privacy), **made)


@pytest.mark.parametrize("seed", range(5))
async def test_a_total_of_both_signs_holds_through_crashes_anywhere(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what a memory holds is what the journal says; a memory that begins anew is caught."""
    monkeypatch.setattr("unit.pipeline.routing.user_worlds.payload", net_payload)
    logs: dict[int, Log] = {0: some_log(Random(seed), USERS, 90)}
    random = Random(seed)
    world = TotalWorld(logs, net_specification(), group=random.randint(1, 4))
    assert await crashes(world, random) > 1
    assert world.recorded() == net_expected(logs)
    parts = [part_of(commit, "net totals") for commit in world.commits()]
    assert any(parts)
    again = NetMemory(world.net._most, WINDOW)
    for commit in world.commits():
        again.replay(commit)
    here, there = (
        {at: sorted(map(tuple, sums.tolist())) for at, sums in memory._sums.once().items()}
        for memory in (again, world.net)
    )
    assert here == there
    monkeypatch.setattr(NetMemory, "replay", lambda *_: None)
    wrong = TotalWorld(logs, net_specification(), group=1)
    try:
        await crashes(wrong, Random(seed))
    except (FailClosed, ExceptionGroup):
        return
    assert wrong.recorded() != net_expected(logs)


def test_net_totals_of_another_file_are_refused() -> None:
    memory = NetMemory({(0, 1): 4}, WINDOW)
    for written in ({0: {~5: bytes(24)}}, {3: {~0: bytes(24)}}, {0: {~0: bytes(23)}}):
        commit = Commit(1, b"", parts={"net totals": part(written)})
        with pytest.raises(FailClosed):
            memory.replay(commit)


def remembered(memory: TotalMemory) -> dict[int, dict[bytes, int]]:
    """What a memory holds, by column and hash."""
    result = {}
    for column, table in memory._tables.items():
        rows = table._rows[table._rows[:, 2] & table._most > 0]
        result[column] = {
            row[:2].astype("<u8").tobytes(): int(row[2] & table._most) for row in rows
        }
    return result


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("privacy", "window"), CAPS, ids=["window", "ever"])
async def test_a_total_holds_through_crashes_anywhere(
    privacy: Any, window: int | None, seed: int
) -> None:
    random = Random(seed)
    world = world_of(seed, privacy, group=random.randint(1, 4))
    assert await crashes(world, random) > 1
    assert world.recorded() == expected(world.logs, window)
    parts = [part_of(commit, "totals") for commit in world.commits()]
    assert any(parts)
    for commit, totals in zip(world.commits(), parts, strict=True):
        for by_window in totals.values():
            (open_window,) = by_window
            following = commit.ticks[-1] + 1
            assert open_window == (following // window if window else 0)


async def test_a_memory_is_what_the_journal_says_and_forgets_a_window_that_is_over() -> None:
    world = world_of(1, PIPELINE["privacy"], group=3)
    await world.engine(Random(3)).run()
    again = TotalMemory(world.totals._most, WINDOW)
    names = {hashed(user) for user in USERS}
    for commit in world.commits():
        again.replay(commit)
        kept = remembered(again)
        assert all(set(users) <= names for users in kept.values())
        if commit.ticks and (commit.ticks[-1] + 1) % WINDOW == 0:
            assert not any(kept.values())
    assert remembered(again) == remembered(world.totals)


async def test_a_memory_for_ever_is_what_the_journal_says() -> None:
    world = world_of(1, CAPS[1][0])
    await world.engine(Random(3)).run()
    again = TotalMemory(world.totals._most, None)
    for commit in world.commits():
        again.replay(commit)
    assert remembered(again) == remembered(world.totals)
    assert {column: max(kept.values()) for column, kept in remembered(again).items()} == {
        0: 4, 1: 3, 2: 4,
    }  # fmt: skip


class Forgetful(TotalMemory):
    """Begins anew with every start."""

    def replay(self, commit: Commit) -> None:
        if commit.ticks:
            self._enter(commit.ticks[-1] + 1)


class Unending(TotalMemory):
    """Never forgets a window."""

    def _begin(self) -> None:
        if not self._tables:
            super()._begin()


async def wrong(privacy: Any, window: int | None, twin: Any) -> int:
    """How many runs of four have wrong rows, or a next start that does not know them."""
    number = 0
    for seed in range(4):
        world = world_of(seed, privacy, make_totals=twin)
        try:
            await crashes(world, Random(seed))
        except FailClosed:
            number += 1
        else:
            number += world.recorded() != expected(world.logs, window)
    return number


async def test_a_memory_that_a_crash_makes_wrong_is_caught() -> None:
    for privacy, window in CAPS:
        assert await wrong(privacy, window, Forgetful) > 0


async def test_a_memory_that_never_forgets_is_caught() -> None:
    assert await wrong(CAPS[0][0], CAPS[0][1], Unending) > 0


async def test_amounts_of_open_ticks_that_a_start_overlooks_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(OpenIdentifiers, "content", lambda _: {})
    for privacy, window in CAPS:
        assert await wrong(privacy, window, TotalMemory) > 0


@pytest.mark.parametrize("entry", [
    b"x" * 19, bytes(16) + (5).to_bytes(4, "little"), (bytes(16) + (3).to_bytes(4, "little")) * 2,
], ids=["cut", "beyond the total", "beyond it together"])  # fmt: skip
def test_a_part_that_this_memory_has_not_written_is_refused(entry: bytes) -> None:
    memory = TotalMemory({(0, 1): 4}, WINDOW)
    for column, window in ((0, 0), (0, 1), (7, 0)):
        wrote = Commit(1, b"", ticks=(0,), parts={"totals": part({column: {window: entry}})})
        with pytest.raises(FailClosed, match="totals of users"):
            memory.replay(wrote)
