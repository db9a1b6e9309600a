"""Identifiers of records: hashes in their columns, and commits that hold what came early once.

The twins are an assembler that tells all that is there at every cut, as it once did, and a comparison by half a hash.
"""

import math
from collections.abc import Sequence
from hashlib import sha256
from random import Random
from typing import Any

import numpy as np
import pytest
from commit_parts import parts
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.cmac import CMAC
from oracles.user_caps import Event, Log, Mark
from unit.pipeline.routing.seen_worlds import SeenWorld, specification
from unit.pipeline.routing.user_worlds import PIPELINE, SEALER, hashed, payload

from stream_dp.engine import user_table
from stream_dp.engine.memories import OpenIdentifiers, added_behind
from stream_dp.engine.ports import Batch
from stream_dp.engine.user_table import Arrivals, Hashes
from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Commit, encode
from stream_dp.pipeline.router import OpenRouter

TICKS = 60
LATER = {"clock": PIPELINE["clock"] | {"horizon": str(TICKS)}}
EVER = {"name": "ever", "statistic": "distinct", "of": "customer", "epsilon": "2"}
ALL = {"name": "all", "statistic": "count", "epsilon": "2"}
ROOM = 16 + 20  # bytes: a hash where it came, and a hash and a number where it counts


def early(number: int) -> dict[int, Log]:
    users = [Event(f"user {each}", TICKS - 1, "a") for each in range(number)]
    log: list[Event | Mark] = [*users]
    for tick in range(TICKS):
        log += [*users[:5], Mark(tick)]
    return {0: log}


async def bytes_of_each() -> float:
    """What an early identifier takes in all commits of a run together, before they are sealed."""
    sizes = []
    for number in (5, 405):
        world = SeenWorld(early(number), specification(**LATER, series=[EVER, ALL]))
        await world.engine(Random(1)).run()
        assert [row[0] for row in world.recorded()] == [0] * (TICKS - 1) + [number]
        sizes.append(sum(len(encode(commit)) for commit in world.commits()))
    return (sizes[1] - sizes[0]) / 400


async def test_an_early_identifier_takes_the_same_room_however_many_ticks_it_waits() -> None:
    assert ROOM <= await bytes_of_each() <= ROOM + 2


async def test_an_assembler_that_tells_all_at_every_cut_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The twin: 16 bytes for each tick that one waits."""

    def fresh(self: Arrivals) -> Any:
        return self.once()

    monkeypatch.setattr(Arrivals, "fresh", fresh)
    assert await bytes_of_each() > 16 * (TICKS - 1)


def tells_what_is_fresh() -> bool:
    """Compare many small additions with plain sets; half of a hash is often that of another one."""
    random = np.random.default_rng(4)
    came, known = Arrivals({0: random.integers(0, 4, (9, 2)).astype(np.uint64)}), set[Any]()
    known |= set(map(tuple, came.once()[0].tolist()))
    right = True
    for _ in range(60):
        added = [random.integers(0, 12, (random.integers(1, 9), 2)).astype(np.uint64) for _ in "ab"]
        for part in added:
            came.add({0: part, 3: part[:0]})
        wanted = {tuple(one) for part in added for one in part.tolist()} - known
        found = [tuple(one) for one in came.fresh().get(0, np.empty((0, 2))).tolist()]
        known |= wanted
        right = right and found == sorted(wanted)
        right = right and sorted(map(tuple, came.once()[0].tolist())) == sorted(known)
    assert not came.fresh()
    return right


def test_what_is_fresh_was_not_there_and_is_told_once() -> None:
    assert tells_what_is_fresh()


def test_a_comparison_by_half_of_a_hash_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_table, "_among", lambda known, some: np.isin(some[:, 0], known[:, 0]))
    assert not tells_what_is_fresh()


def copied(cuts: int, patch: pytest.MonkeyPatch) -> float:
    """How often an identifier is copied where some new ones come before each of so many cuts, at worst."""
    random, rows, real = np.random.default_rng(5), 0, user_table.each_once

    def counted(parts: Sequence[Hashes]) -> Hashes:
        nonlocal rows
        rows += sum(map(len, parts))
        return real(parts)

    patch.setattr(user_table, "each_once", counted)
    came, told = Arrivals(), 0
    for _ in range(cuts):
        new = random.integers(0, 2**63, (random.integers(0, 9), 2)).astype(np.uint64)
        came.add({0: new, 1: new[:0]})
        told += len(came.fresh().get(0, ()))
    assert {column: len(all_) for column, all_ in came.once().items()} == {0: told}
    return rows / told


def test_what_is_known_is_not_copied_at_every_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time by half of its run at least: as often as 1.5 goes into 4 n, and twice more."""
    for cuts in (50, 2000):
        assert copied(cuts, monkeypatch) <= 2 + math.log(4 * cuts, 1.5)


def test_that_all_is_copied_at_every_cut_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: one run, as it once was."""

    def one(runs: list[Hashes], some: Hashes) -> None:
        runs[:] = [user_table.each_once([*runs, some])]

    monkeypatch.setattr(user_table, "_append", one)
    assert copied(2000, monkeypatch) > 500


def test_a_commit_of_several_ticks_adds_what_is_open_behind_the_last() -> None:
    one, two = (np.array([[n, 7]], np.uint64) for n in (1, 2))
    added = added_behind(5, [{5: {0: one}, 6: {0: two}}, {6: {0: one, 3: one}, 9: {3: two}}])
    assert {tick: {at: x.tolist() for at, x in found.items()} for tick, found in added.items()} == {
        6: {0: [[1, 7], [2, 7]], 3: [[1, 7]]},
        9: {3: [[2, 7]]},
    }


def test_a_start_adds_up_what_commits_added_until_the_tick_is_over() -> None:
    memory, one, two = OpenIdentifiers(), bytes(16), bytes(range(16))
    memory.replay(
        Commit(1, b"", ticks=(3,), parts=parts(arriving={4: {0: one}, 5: {0: one, 2: two}}))
    )
    memory.replay(Commit(2, b"", parts=parts(arriving={5: {0: two}})))
    memory.replay(Commit(3, b"", ticks=(4,)))
    assert {
        tick: {column: hashes.tobytes() for column, hashes in found.items()}
        for tick, found in memory.content().items()
    } == {5: {0: one + two, 2: two}}


@pytest.mark.parametrize(
    ("ticks", "arriving", "message"),
    [
        ((4, 5), {5: {0: bytes(16)}}, "commit 3 .* of a tick that had already closed"),
        ((), {3: {0: bytes(16)}}, "commit 3 .* of a tick that had already closed"),
        ((4,), {6: {0: bytes(17)}}, "identifiers that this engine did not write"),
    ],
)
def test_what_no_engine_has_written_is_refused(ticks: Any, arriving: Any, message: str) -> None:
    memory = OpenIdentifiers()
    memory.replay(Commit(2, b"", ticks=(3,), parts=parts(arriving={4: {0: bytes(16)}})))
    with pytest.raises(FailClosed, match=message):
        memory.replay(Commit(3, b"", ticks=ticks, parts=parts(arriving=arriving)))


def found(events: list[Event]) -> dict[int, dict[int, set[bytes]]]:
    """The hashes that a batch of these events brings, by tick and column."""
    router = OpenRouter(specification(), 0, None, SEALER.user_key())
    payloads = [payload(each) for each in events]
    arrived = router.route(Batch(0, payloads, range(len(payloads)), len(payloads))).arrived
    return {
        tick: {at: {row.astype("<u8").tobytes() for row in hashes} for at, hashes in some.items()}
        for tick, some in arrived.items()
    }


def test_a_long_identifier_is_hashed_by_its_digest_and_is_no_other_one() -> None:
    """Else the hash takes a step for every sixteen bytes of a text that nobody has bounded."""
    made = CMAC(AES(SEALER.user_key()))
    made.update(b"\xff" + sha256(b"x" * 1025).digest())
    told = found([Event("x" * 1025, 0, "c"), Event("x" * 1024, 0, "c"), Event("x" * 1026, 0, "c")])
    assert len(told[0][0]) == 3
    assert told[0][0] >= {made.finalize(), hashed("x" * 1024)}


def test_identifiers_of_many_ticks_and_columns_keep_their_places() -> None:
    random = Random(7)
    events = [
        Event(f"u{random.randrange(9)}", random.randrange(24), random.choice("abc"))
        for _ in range(300)
    ]
    expected: dict[int, dict[int, set[bytes]]] = {}
    for each in events:
        for column in (0, 1) if each.key == "c" else (0, 1, 2):
            expected.setdefault(each.tick, {}).setdefault(column, set()).add(hashed(each.user))
    assert found(events) == expected


def test_parts_of_one_tick_are_not_looked_through_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of one record is a step, whatever came before."""
    looked = 0

    def length(one: Any) -> int:
        nonlocal looked
        looked += 1
        return len(one)

    monkeypatch.setattr(user_table, "len", length, raising=False)
    came, every = Arrivals(), np.arange(10_000, dtype=np.uint64).reshape(-1, 2)
    for at in range(len(every)):
        came.add({0: every[at : at + 1]})
    assert np.array_equal(came.once()[0], every)
    assert looked < 3 * len(every)
