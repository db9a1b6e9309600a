"""A cap of events in each tick, beside that of a window: which records count, and what a user can change.

First every sequence of records of one user on a small grid: the largest norms of the change of the table of ticks and
keys are those of the formulas. Then the real guard, router and assembler against the oracle, and crashing engines.
"""

import itertools
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from faults.test_user_caps import crashes
from oracles.user_caps import Event, Log, judge
from unit.pipeline.routing.user_worlds import (
    CAP,
    FOR_EVER,
    HORIZON,
    KEYS,
    PIPELINE,
    SEALER,
    WINDOW,
    UserWorld,
    cut,
    less_window,
    payload,
    some_log,
    specification,
)

from stream_dp.core.mechanism import IntArray
from stream_dp.core.neighbors import Users
from stream_dp.engine.memories import TickCapMemory
from stream_dp.engine.ports import Batch
from stream_dp.engine.tick_assembler import Cut, TickAssembler
from stream_dp.engine.user_table import Hashes
from stream_dp.errors import FailClosed
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.promise import unit_json, unit_words
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.spec import PipelineSpec, diagnose
from stream_dp.pipeline.user_guard import guard_of

USERS = tuple(f"user {number}" for number in range(5))
GRID = 3


def with_caps(cap: int, per_tick: int, window: int | None = WINDOW) -> PipelineSpec:
    """The pipeline with these caps."""
    for_window = {"max_events": str(cap), "per": f"{window}s"}
    caps = {"overall": str(cap)} if window is None else for_window
    rest = {"unit": "user", "user": "customer", "epsilon": "100", "per_tick": str(per_tick)}
    return specification(privacy=rest | caps)


def fill(total: int, most: int) -> int:
    """The largest sum of squares of numbers up to `most` that add up to `total`."""
    whole, rest = divmod(total, most)
    return whole * most**2 + rest**2


def table(log: Sequence[Event], cap: int, per_tick: int, window: int | None) -> IntArray:
    """What counts, by tick and key."""
    rows = judge({0: log}, cap, window, per_tick=per_tick).rows
    return np.array([[rows[tick, key] for key in KEYS] for tick in range(HORIZON)])


@pytest.mark.parametrize("per_tick", [1, 2, 3])
@pytest.mark.parametrize("cap", range(1, 6))
def test_all_sequences_of_a_user_change_what_the_formulas_say(cap: int, per_tick: int) -> None:
    """l1 = min(k, a T), l-infinity = min(a, k), l2 squared = fill(l1, that), in a window of two ticks."""
    window, largest = 2, [0, 0, 0]
    kinds = [Event("u", tick, key) for tick in range(GRID) for key in "ab"]
    for events in itertools.product(kinds, repeat=4):
        counted = table(events, cap, per_tick, window)[:window]
        norms = [counted.sum(), counted.max(), (counted**2).sum()]
        largest = [max(pair) for pair in zip(largest, map(int, norms), strict=True)]
    total = min(cap, per_tick * window, 4)
    most = min(per_tick, cap)
    assert largest == [total, most, fill(total, most)]
    if total < 4 and per_tick < cap:
        assert with_caps(cap, per_tick, window).protection.users == Users(total, window)


def rows_of(spec: PipelineSpec, logs: dict[int, Log], random: Random) -> tuple[IntArray, int]:
    """The rows by key of the real path, without an engine, and how many records were capped; batches are by lot."""
    router = OpenRouter(spec, 0, None, SEALER.user_key())
    guard: Any = guard_of(spec, 0, SEALER.user_key())
    guard.begin(sorted(logs))
    ticks = TickAssembler(sorted(logs), router.width)
    rows, capped = list[IntArray](), 0
    for batch in cut(logs, random):
        admitted = guard.admit(router.decode(batch), ticks.passed(batch.partition))
        ticks.add(admitted, router.route(admitted))
        capped += admitted.capped
        while closed := ticks.closed(random.randint(1, 3)):
            for memory in guard.memories:
                memory.record(closed)
            rows += [one.row for one in closed]
    assert all(memory._pending == {} for memory in guard.memories)
    return np.array(rows)[:, 1:5], capped


CAPS = [(3, 1, WINDOW), (3, 2, WINDOW), (7, 1, WINDOW), (6, 2, None)]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("cap", "per_tick", "window"), CAPS)
def test_the_records_that_count_are_those_of_the_oracle(
    cap: int, per_tick: int, window: int | None, seed: int
) -> None:
    logs: dict[int, Log] = {0: some_log(Random(seed), USERS, 160)}
    verdict = judge(logs, cap, window, per_tick=per_tick)
    spec = with_caps(cap, per_tick, window)
    for lot in (1, 2):
        rows, capped = rows_of(spec, logs, Random(lot))
        by_key = {
            (t, k): n
            for t, row in enumerate(rows.tolist())
            for k, n in zip(KEYS, row, strict=True)
            if n
        }
        assert by_key == verdict.rows
        assert capped == verdict.capped > 0


@pytest.mark.parametrize(("cap", "per_tick", "window"), CAPS)
def test_a_user_changes_what_the_noise_is_for(cap: int, per_tick: int, window: int | None) -> None:
    """All of a user's records in one window of the cap, or all there are; nobody else's count otherwise."""
    spec, worst, size = with_caps(cap, per_tick, window), 0, window or HORIZON
    for lot in range(60):
        random = Random(lot)
        log = some_log(random, ("u", "v"), 120)
        without = less_window(log, "u", size, random.randrange(HORIZON // size))
        (one, _), (other, _) = (rows_of(spec, {0: each}, Random(lot)) for each in (log, without))
        assert (one >= other).all()
        assert (one - other).sum(axis=1).max() <= per_tick
        worst = max(worst, int((one - other).sum()))
    assert spec.protection.users is not None
    assert worst == spec.protection.users.cap


def test_noise_is_for_what_all_caps_let_count() -> None:
    assert with_caps(7, 1).protection.users == Users(4, WINDOW)
    assert with_caps(3, 1).protection.users == Users(3, WINDOW)
    assert with_caps(60, 1, None).protection.users == Users(60)
    seven, four = (
        build(with_caps(7, 1)),
        build(specification(privacy=PIPELINE["privacy"] | {"max_events": "4"})),
    )
    assert [c.mechanism for c in seven.chosen] == [c.mechanism for c in four.chosen]
    assert "of which at most 4 count, and 1 of a tick" in unit_words(seven.spec)
    assert unit_json(seven.spec)["users"]["per_tick"] == 1
    assert "per_tick" not in unit_json(four.spec)["users"]


def test_a_pipeline_without_it_is_the_same_as_before() -> None:
    """Its fingerprint, who is protected, and its parts of commits."""
    spec = specification()
    privacy = spec.privacy.model_dump(mode="json", exclude={"per_tick"})
    assert fingerprint(spec) == fingerprint(specification(privacy=PIPELINE["privacy"]))
    assert fingerprint(spec) != fingerprint(with_caps(CAP, 1))
    assert privacy["max_events"] == CAP
    assert spec.protection.users == Users(CAP, WINDOW)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("cap", "per_tick", "window"), CAPS)
async def test_a_cap_of_ticks_holds_through_crashes_anywhere(
    cap: int, per_tick: int, window: int | None, seed: int
) -> None:
    random = Random(seed)
    world = world_of(seed, cap, per_tick, window)
    assert await crashes(world, random) > 1
    verdict = judge(world.logs, cap, window, per_tick=per_tick)
    assert world.rows() == verdict.rows
    for commit in world.commits():
        if commit.ticks and "users by tick" in commit.parts:
            again = TickCapMemory(per_tick, 1)
            again.replay(commit)  # of open ticks alone
            assert len(again._table) > 0


def world_of(seed: int, cap: int, per_tick: int, window: int | None, **made: Any) -> UserWorld:
    logs = {0: some_log(Random(seed), USERS, 160)}
    return UserWorld(logs, with_caps(cap, per_tick, window), group=1 + seed % 4, **made)


def test_what_was_read_behind_the_cut_is_given_back_to_all_caps() -> None:
    """The same records count when they are read again."""
    guard: Any = guard_of(with_caps(3, 1), 0, SEALER.user_key())
    guard.begin((0,))
    log = [Event("u", tick, "a") for tick in (0, 0, 1, 1, 2, 3, 3)]
    batch = Batch(0, [payload(event) for event in log], range(len(log)), len(log))
    for _ in range(3):
        admitted = guard.admit(batch, -1)
        assert list(admitted.labels) == [0, 2, 4]
        assert admitted.capped == 4
        assert [used.kind for used in admitted.used] == ["users by tick", "users"]
        for memory in guard.memories:
            memory.rewind(Cut())


def every_record(memory: TickCapMemory, users: Hashes, windows: IntArray) -> tuple[Any, None]:
    return np.ones(len(users), np.bool_), None


TWINS: list[tuple[str, Any]] = [
    ("replay", lambda *_: None),
    ("admit", every_record),
]


@pytest.mark.parametrize(("method", "twin"), TWINS, ids=["forgotten", "no cap"])
async def test_a_memory_of_ticks_that_is_wrong_is_caught(
    method: str, twin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TickCapMemory, method, twin)
    wrong = 0
    for seed in range(6):
        world = world_of(seed, 6, 2, None)
        try:
            await crashes(world, Random(seed))
        except FailClosed:
            wrong += 1
        else:
            wrong += world.rows() != judge(world.logs, 6, None, per_tick=2).rows
    assert wrong > 0


@pytest.mark.parametrize(("privacy", "why"), [
    (PIPELINE["privacy"] | {"per_tick": "3"}, "is never reached: 3 count in all: leave it out, or give less"),
    (FOR_EVER | {"per_tick": "5"}, "is never reached: 3 count in all: leave it out, or give less"),
    ({"epsilon": "100", "per_tick": "1"}, "belongs to unit user: say unit: user, or leave it out"),
])  # fmt: skip
def test_a_cap_of_ticks_that_says_nothing_is_refused(privacy: Any, why: str) -> None:
    problems: Any = diagnose(PIPELINE | {"privacy": privacy})
    assert [(each["loc"], each["msg"]) for each in problems] == [(("privacy", "per_tick"), why)]
