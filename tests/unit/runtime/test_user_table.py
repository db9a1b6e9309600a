"""The table of users: a dict, at most 60 bytes a user, and the memory around it by windows."""

from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.core.messages import IntArray
from stream_dp.errors import FailClosed
from stream_dp.runtime import user_table
from stream_dp.runtime.commit import Commit
from stream_dp.runtime.user_memory import UserMemory
from stream_dp.runtime.user_table import Hashes, UserTable

BYTES_A_USER = 64


def hashes(users: list[int], spread: int = 64) -> Hashes:
    """Hashes that all begin their search in few slots."""
    numbers = np.array(users, np.uint64)
    return np.stack([numbers % np.uint64(7) * np.uint64(spread), numbers], axis=1)


def check_against_a_dict(random: Random) -> None:
    """Take events of users, give some back, and compare with a dict each time."""
    table, wanted = UserTable(), Counter[int]()
    for _ in range(12):
        users = random.sample(range(300), random.randint(0, 60))
        events = [random.randint(1, 3) for _ in users]
        taken = table.take(hashes(users), np.array(events, np.int64), 5)
        assert taken.tolist() == [min(n, 5 - wanted[u]) for u, n in zip(users, events, strict=True)]
        wanted.update(dict(zip(users, taken.tolist(), strict=True)))
        gone = random.sample(users, random.choice([0, len(users) // 2, len(users)]))
        table.give_back(hashes(gone), np.array([wanted.pop(user) for user in gone], np.int64))
    kept = {user: number for user, number in wanted.items() if number}
    found, numbers = table.items()
    assert dict(zip(found[:, 1].tolist(), numbers.tolist(), strict=True)) == kept
    assert len(table) == len(kept)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**9))
def test_it_is_a_dict_of_numbers(seed: int) -> None:
    check_against_a_dict(Random(seed))


def test_a_user_takes_at_most_sixty_four_bytes() -> None:
    table, chance, users = UserTable(), np.random.default_rng(1), 0
    while users < 200_000:
        more = chance.integers(0, 2**63, (1000, 2)).astype(np.uint64)
        table.take(more, np.ones(1000, np.int64), 20)
        users += 1000
        assert table.size <= BYTES_A_USER * users


def test_users_who_are_given_back_again_and_again_take_no_room() -> None:
    table, chance = UserTable(), np.random.default_rng(1)
    for _ in range(200):
        more = chance.integers(0, 2**63, (1000, 2)).astype(np.uint64)
        table.give_back(more, table.take(more, np.ones(1000, np.int64), 20))
    assert table.size <= 4 * BYTES_A_USER * 1000


def test_a_table_that_mixes_up_users_of_one_slot_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_half(self: UserTable, users: Hashes) -> IntArray:
        return probe(self, np.stack([users[:, 0], users[:, 0]], axis=1))

    probe = user_table.UserTable._probe
    monkeypatch.setattr(user_table.UserTable, "_probe", first_half)
    with pytest.raises(AssertionError):
        check_against_a_dict(Random(1))


def admitted(memory: UserMemory, window: int, users: list[int]) -> list[int]:
    """Admit an event of each."""
    taken, _ = memory.admit(window, hashes(users), np.ones(len(users), np.int64))
    return list(map(int, taken))


def test_a_window_is_forgotten_when_its_last_tick_has_closed() -> None:
    memory = UserMemory(1, 4)
    assert memory.windows(np.array([0, 3, 4, 11])).tolist() == [0, 0, 1, 2]
    _, used = memory.admit(0, hashes([1]), np.ones(1, np.int64))
    _, early = memory.admit(1, hashes([1]), np.ones(1, np.int64))
    assert memory.settle([used, early], 3).keys() == {0, 1}
    assert admitted(memory, 0, [1, 2]) == [0, 1]
    memory.rewind()
    assert memory.settle([], 4) == {}
    assert memory.content().keys() == {1}


def test_for_ever_is_one_window() -> None:
    memory = UserMemory(2, None)
    assert memory.windows(np.array([0, 10**9])).tolist() == [0, 0]
    _, used = memory.admit(0, hashes([5]), np.array([9]))
    assert memory.settle([used], 10**9).keys() == {0}
    assert admitted(memory, 0, [5]) == [0]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**9))
def test_what_commits_record_is_the_memory_at_the_cut(seed: int) -> None:
    random, memory = Random(seed), UserMemory(3, 4)
    waiting, commits = [], []
    for tick in range(12):
        for _ in range(random.randint(0, 4)):
            users = random.sample(range(20), random.randint(1, 10))
            events = np.array([random.randint(1, 2) for _ in users])
            _, used = memory.admit((tick + random.randint(0, 5)) // 4, hashes(users), events)
            waiting += [used] if len(used.users) else []
        random.shuffle(waiting)
        over = [used for used in waiting if used.window < (tick + 1) // 4]
        later = [used for used in waiting if used.window >= (tick + 1) // 4]
        ready = over + later[: random.randint(0, len(later))]
        waiting = [used for used in waiting if not any(used is each for each in ready)]
        commits.append(Commit(0, b"", ticks=(tick,), users=memory.settle(ready, tick + 1)))
        if random.random() < 0.2:
            memory.rewind()
            waiting = []
    memory.rewind()
    again = UserMemory(3, 4)
    for commit in commits:
        again.replay(commit)
    assert again.content() == memory.content()


@pytest.mark.parametrize(
    "entries", [b"short", bytes(16) + b"\x04\0\0\0", bytes(16) * 2 + b"\xff" * 8]
)
def test_a_memory_that_no_guard_has_written_is_refused(entries: bytes) -> None:
    with pytest.raises(FailClosed, match="commit 7 of the journal holds a memory of users"):
        UserMemory(3, 4).replay(Commit(7, b"", users={0: entries}))


def test_nothing_of_it_is_shown() -> None:
    memory = UserMemory(3, 4)
    _, used = memory.admit(0, hashes([123456]), np.array([3]))
    assert repr(used) == "<Used>"
    assert "123456" not in repr(memory)
