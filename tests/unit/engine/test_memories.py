"""What is remembered of users and identifiers: hashes, a table like a dict (64 bytes a user), windows that end.

And a memory of a new kind, given to the engine: what it records, gets back at a start, and is told to take back.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest
from commit_parts import events_in, held, parts, seen_in
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.cmac import CMAC
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.journal.runtime_worlds import Crash, Fuse, Router, World

from stream_dp.core.mechanism import IntArray
from stream_dp.engine.engine import Engine
from stream_dp.engine.memories import Memories, SeenMemory, UserMemory
from stream_dp.engine.tick_assembler import ClosedTick, Cut
from stream_dp.engine.user_table import Counted, Hashes, Used, UserTable
from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Commit, part
from stream_dp.journal.dead_letters import DeadLetters
from stream_dp.journal.keys import Sealer
from stream_dp.pipeline.user_guard import UserHash

KEY = bytes(range(32))
TEXTS = st.binary(max_size=70) | st.sampled_from([b"", bytes(15), bytes(16), bytes(17), bytes(32)])


def cmac(text: bytes) -> bytes:
    made = CMAC(AES(KEY))
    made.update(text)
    return made.finalize()


@settings(max_examples=50, deadline=None)
@given(st.lists(TEXTS, max_size=30))
def test_each_hash_is_that_of_the_text_alone(texts: list[bytes]) -> None:
    found = UserHash(KEY).of(texts)
    assert found.shape == (len(texts), 2)
    assert [each.astype("<u8").tobytes() for each in found] == [cmac(text) for text in texts]


def test_the_test_vectors_of_rfc_4493() -> None:
    key = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
    texts = [b"", bytes.fromhex("6bc1bee22e409f96e93d7e117393172a")]
    found = [each.astype("<u8").tobytes().hex() for each in UserHash(key).of(texts)]
    assert found == ["bb1d6929e95937287fa37d129b756746", "070a16b46b4d4144f79bdd9dd04a287c"]


def test_its_key_is_the_pipelines_own() -> None:
    keys = [Sealer(key, name).user_key() for key in (KEY, bytes(32)) for name in ("a", "b")]
    assert len({*keys, KEY, bytes(32)}) == 6
    assert {len(key) for key in keys} == {32}
    assert Sealer(KEY, "a").user_key() == keys[0]


COLUMN = 0


def closed(tick: int, *identifiers: int) -> ClosedTick:
    came = np.array([[each, each] for each in identifiers], np.uint64).reshape(-1, 2)
    row = np.zeros(1, np.int64)
    return ClosedTick(tick, row, {}, {}, {}, DeadLetters(), 0, 0, arrived={COLUMN: came})


def test_a_window_is_recorded_until_its_last_tick_and_then_forgotten() -> None:
    memory, told = SeenMemory({(COLUMN, COLUMN + 1): 2}), []
    for tick, identifiers in enumerate([(1, 2), (2, 3), (2,), ()]):
        (counted,), written = memory.record([closed(tick, *identifiers)])
        kept = seen_in(memory)[COLUMN]
        arrived = msgspec.msgpack.decode(written) if written else {}
        told.append((int(counted.row[COLUMN]), list(arrived.get(COLUMN, {})), list(kept)))
    assert told == [(2, [0], [0]), (1, [], []), (1, [1], [1]), (0, [], [])]


def test_a_window_of_several_entries_is_forgotten_with_its_last_tick() -> None:
    """Where each identifier stands once for each entry, in one table."""
    memory, kept = SeenMemory({(COLUMN, COLUMN + 3): 2}), []
    for tick, identifiers in enumerate([(1, 2), (3,), (2,), (), (1,)]):
        one = closed(tick, *identifiers)
        came = dict.fromkeys(range(COLUMN, COLUMN + 3), one.arrived[COLUMN])
        wide = replace(one, row=np.zeros(3, np.int64), arrived=came)
        (counted,), _ = memory.record([wide])
        assert counted.row.tolist() == [len(identifiers)] * 3
        kept.append(len(memory._columns[COLUMN]._table))
    assert kept == [6, 0, 3, 0, 3]


BYTES_A_USER = 64
BYTES_FOR_ALL = 1 << 16
SHARING = np.uint64(7)
FULL = 1365  # rows that a new table has room for


def hashes(users: list[int]) -> Hashes:
    """Hashes that all begin their search in one slot, and share either half with others."""
    numbers = np.array(users, np.uint64)
    return np.stack([numbers % SHARING, numbers // SHARING], axis=1)


def windowed(users: list[tuple[int, int]]) -> tuple[Hashes, IntArray]:
    """The hashes of (user, window) pairs, and the windows."""
    return hashes([user for user, _ in users]), np.array([w for _, w in users], np.int64)


def counted(users: list[tuple[int, int]], events: list[int]) -> Counted:
    return Counted(*windowed(users), np.array(events, np.int64))


def as_counter(found: Counted) -> Counter[tuple[int, int]]:
    all_of: Counter[tuple[int, int]] = Counter()
    users = found.users[:, 1] * SHARING + found.users[:, 0]
    for user, window, events in zip(users, found.windows, found.events, strict=True):
        all_of[int(user), int(window)] += int(events)
    return all_of


def first_of(wanted: Counter[tuple[int, int]], user: tuple[int, int], cap: int) -> bool:
    """What a dict says of one record."""
    if wanted[user] >= cap:
        return False
    wanted[user] += 1
    return True


def check_against_a_dict(random: Random) -> None:
    """Count records of users, give some back, forget windows, and compare with a dict each time."""
    table, wanted, begin = UserTable(), Counter[tuple[int, int]](), 0
    for _ in range(12):
        users = [
            (random.randrange(150), random.randint(begin, begin + 3))
            for _ in range(random.choice([0, 1, 40, 400]))
        ]
        kept, used = table.first(*windowed(users), 5)
        assert kept.tolist() == [first_of(wanted, user, 5) for user in users]
        assert sum(as_counter(used).values()) == sum(kept)
        if random.random() < 0.3:
            table.give_back(used)
            wanted.subtract(as_counter(used))
        if random.random() < 0.3:
            begin += 1
            table.forget(begin)
            wanted = Counter({user: n for user, n in wanted.items() if user[1] >= begin})
        assert as_counter(events_in(table)) == +wanted
        assert len(table) == len(+wanted)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**9))
def test_it_is_a_dict_of_numbers(seed: int) -> None:
    check_against_a_dict(Random(seed))


def some_hashes(chance: np.random.Generator, number: int = 1000) -> Hashes:
    return chance.integers(0, 2**63, (number, 2)).astype(np.uint64)


def test_a_user_takes_at_most_sixty_four_bytes() -> None:
    table, chance, users = UserTable(), np.random.default_rng(1), 0
    while users < 200_000:
        table.first(some_hashes(chance), np.zeros(1000, np.int64), 20)
        users += 1000
        assert table._rows.nbytes <= BYTES_A_USER * users + BYTES_FOR_ALL
    assert len(table) == users


def test_many_windows_of_one_user_take_no_more() -> None:
    memory = UserMemory(3, 1)
    number = 20_000
    kept, used = memory.admit(np.ones((number, 2), np.uint64), np.arange(number))
    assert kept.all()
    assert memory._table._rows.nbytes <= BYTES_A_USER * number + BYTES_FOR_ALL
    assert used is not None
    assert len(memory.settle([used], number // 2)) == number // 2
    assert len(held(memory)) == number // 2


def test_users_of_windows_that_are_over_take_no_room() -> None:
    table, chance = UserTable(), np.random.default_rng(1)
    for window in range(50):
        table.first(some_hashes(chance, 5000), np.full(5000, window), 20)
        table.forget(window)
    assert table._rows.nbytes <= 2 * BYTES_A_USER * 5000 + BYTES_FOR_ALL
    table.forget(50)
    assert table._rows.nbytes <= BYTES_FOR_ALL


def test_windows_of_a_user_that_are_searched_for_in_one_place_are_told_apart() -> None:
    users = [(1, 0), (1, 1 << 32), (1, 0)]
    kept, used = UserTable().first(*windowed(users), 1)
    assert kept.tolist() == [True, True, False]
    assert as_counter(used) == {(1, 0): 1, (1, 1 << 32): 1}


def test_what_is_added_again_is_within_the_cap_or_not() -> None:
    table = UserTable()
    assert table.add(counted([(1, 0), (2, 0), (1, 1)], [3, 1, 2]), 3)
    assert table.add(counted([(1, 1), (2, 0)], [1, 2]), 3)
    assert as_counter(events_in(table)) == {(1, 0): 3, (2, 0): 3, (1, 1): 3}
    for user in ((1, 0), (2, 0), (1, 1)):
        assert not UserTable().add(counted([user], [4]), 3)
        assert not UserTable().add(counted([user], [1 << 16]), 3)
        assert not table.add(counted([user], [1]), 3)


def test_users_who_stand_in_a_batch_twice_are_added_and_given_back_twice() -> None:
    table, users = UserTable(), some_hashes(np.random.default_rng(1), FULL)
    users, windows = np.concatenate([users, users[:1]]), np.zeros(FULL + 1, np.int64)
    every = Counted(users, windows, np.ones(FULL + 1, np.int64))
    kept, used = table.first(users, windows, 2)
    assert kept.all()
    table.give_back(used)
    assert len(table) == 0
    assert table.add(every, 2)
    assert events_in(table).events.sum() == FULL + 1
    small = UserTable()
    small.first(users[:1], windows[:1], 1)
    assert not small.add(Counted(users[:-1], windows[:-1], every.events[:-1]), 1)


def test_users_at_the_end_of_the_table_are_kept_where_it_grows() -> None:
    last = (1 << 32) - 1 - 0x9E3779B1  # of window 0
    users = np.array([[last, low] for low in range(50)], np.uint64)
    table, windows = UserTable(), np.zeros(50, np.int64)
    assert table.first(users, windows, 1)[0].all()
    table.first(some_hashes(np.random.default_rng(1), 5000), np.zeros(5000, np.int64), 1)
    assert not table.first(users, windows, 1)[0].any()


def _first_half(self: UserTable, users: Hashes, windows: IntArray) -> IntArray:
    """A broken table: it looks at one half of each hash."""
    return honest(self, users[:, [0, 0]], windows)


def _second_half(self: UserTable, users: Hashes, windows: IntArray) -> IntArray:
    """A broken table: it looks at the other half."""
    return honest(self, users[:, [1, 1]], windows)


def _for_ever(self: UserTable, users: Hashes, windows: IntArray) -> IntArray:
    """A broken table: its windows are one."""
    return honest(self, users, np.zeros_like(windows))


honest = UserTable._slots


@pytest.mark.parametrize("twin", [_first_half, _second_half, _for_ever])
def test_a_table_that_mixes_up_users_or_windows_is_caught(
    twin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(UserTable, "_slots", twin)
    with pytest.raises(AssertionError):
        check_against_a_dict(Random(1))


def admitted(memory: UserMemory, users: list[tuple[int, int]]) -> list[bool]:
    kept, _ = memory.admit(*windowed(users))
    return list(map(bool, kept))


def test_a_window_is_forgotten_when_its_last_tick_has_closed() -> None:
    memory = UserMemory(1, 4)
    assert memory.windows(np.array([0, 3, 4, 11])).tolist() == [0, 0, 1, 2]
    _, used = memory.admit(*windowed([(1, 0)]))
    _, early = memory.admit(*windowed([(1, 1)]))
    assert used is not None
    assert early is not None
    assert memory.settle([used, early], 3).keys() == {0, 1}
    assert admitted(memory, [(1, 0), (2, 0)]) == [False, True]
    memory.rewind(Cut())
    assert memory.settle([], 4) == {}
    assert held(memory).keys() == {1}
    assert admitted(memory, [(2, 1)]) == [True]
    assert memory.settle([], 8) == {}
    memory.rewind(Cut())
    assert held(memory) == {}


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**9))
def test_what_commits_record_is_the_memory_at_the_cut(seed: int) -> None:
    random, memory = Random(seed), UserMemory(3, 4)
    waiting: list[Used] = []
    commits = []
    for tick in range(12):
        for _ in range(random.randint(0, 4)):
            users = [
                (random.randrange(20), (tick + random.randint(0, 5)) // 4)
                for _ in range(random.randint(1, 20))
            ]
            _, used = memory.admit(*windowed(users))
            waiting += [] if used is None else [used]
        random.shuffle(waiting)
        over = [each for each in waiting if each.counted.windows.min() < (tick + 1) // 4]
        later = [each for each in waiting if each.counted.windows.min() >= (tick + 1) // 4]
        ready = over + later[: random.randint(0, len(later))]
        waiting = [used for used in waiting if not any(used is each for each in ready)]
        commits.append(
            Commit(0, b"", ticks=(tick,), parts=parts(users=memory.settle(ready, tick + 1)))
        )
        if random.random() < 0.2:
            memory.rewind(Cut())
            waiting = []
    memory.rewind(Cut())
    again = UserMemory(3, 4)
    for commit in commits:
        again.replay(commit)
    assert held(again) == held(memory)


@pytest.mark.parametrize(
    "entries", [b"short", bytes(16) + b"\x04\0\0\0", bytes(16) * 2 + b"\xff" * 8]
)
def test_a_memory_that_no_guard_has_written_is_refused(entries: bytes) -> None:
    with pytest.raises(FailClosed, match="commit 7 of the journal holds a memory of users"):
        UserMemory(3, 4).replay(Commit(7, b"", parts=parts(users={0: entries})))


def test_nothing_of_it_is_shown() -> None:
    memory = UserMemory(3, 4)
    _, used = memory.admit(*windowed([(123_456_789_123_456_789, 0)]))
    assert used is not None
    assert "Used object" in repr(used)
    assert repr(used.counted) == "<Counted>"
    assert "123456789123456789" not in repr(memory)  # longer than an address


class Noting:
    """Counts the records of all ticks before the cut, and notes the cuts behind which was read."""

    kind: ClassVar[str] = "noted"

    def __init__(self) -> None:
        self.ticks = list[int]()
        self.records = 0
        self.rewound = list[int]()

    def replay(self, commit: Commit) -> None:
        self.ticks += commit.ticks
        self.records += commit.records

    def record(self, ticks: Sequence[ClosedTick]) -> tuple[Sequence[ClosedTick], bytes | None]:
        self.ticks += [closed.tick for closed in ticks]
        self.records += sum(closed.records for closed in ticks)
        return ticks, None

    def rewind(self, cut: Cut) -> Cut:
        self.rewound.append(cut.next_tick)
        return cut

    def save(self) -> bytes | None:
        return part((self.ticks, self.records))

    def load(self, commit: Commit) -> None:
        self.ticks, self.records = msgspec.msgpack.decode(commit.parts[self.kind])


@pytest.mark.parametrize("snapshots", [4, 1000])
async def test_a_new_memory_is_rebuilt_from_the_journal_wherever_an_engine_dies(
    snapshots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_dp.engine.engine.SNAPSHOT_TICKS", snapshots)
    whole, world, random, deaths = World(), World(), Random(1), 0
    await whole.run()
    records = sum(commit.records for commit in whole.commits())
    while True:
        memory = Noting()
        ports = world.ports(Fuse(random.randint(5, 20)))
        durable = [tick for commit in world.commits() for tick in commit.ticks]
        engine = Engine(world.plan, Router(), ports, world.noise, memories=[memory])
        try:
            await engine.run()
        except Crash:
            deaths += 1
            assert memory.rewound in ([], [len(durable)])
        else:
            break
    assert deaths > 2
    assert memory.rewound == [len(durable)]
    assert memory.ticks == list(range(world.plan.horizon or 0))
    assert memory.records == records > 0


async def test_memories_take_ticks_as_those_before_let_them_count() -> None:
    class Emptying(Noting):
        def record(self, ticks: Sequence[ClosedTick]) -> tuple[Sequence[ClosedTick], bytes | None]:
            ticks, _ = super().record(ticks)
            return [
                ClosedTick(c.tick, c.row * 0, c.positions, c.marks, c.pending, c.dead_letters, 0, 0)
                for c in ticks
            ], None

    world, behind = World(), Noting()
    memories = [Emptying(), behind]
    await Engine(world.plan, Router(), world.ports(), world.noise, memories=memories).run()
    assert behind.records == 0
    assert not any(any(row) for commit in world.commits() for row in commit.rows)


async def test_a_part_of_a_kind_that_no_memory_reads_is_refused() -> None:
    memories = Memories(Noting())
    memories.replay(Commit(1, b"", parts=parts(noted=1)))
    with pytest.raises(FailClosed, match=r"commit 2 .* of the kind 'later'"):
        memories.replay(Commit(2, b"", parts=parts(noted=1, later=2)))
