"""The guard for users: the oracle's records count, others' streams change nothing, and one user is k events at most."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.user_caps import Event, Log, Mark, judge
from unit.pipeline.routing.user_worlds import (
    CAP,
    FOR_EVER,
    HORIZON,
    KEYED,
    KEYS,
    PIPELINE,
    SEALER,
    WINDOW,
    cut,
    hashed,
    some_log,
    specification,
)

from stream_dp.engine.ports import Batch
from stream_dp.engine.tick_assembler import TickAssembler
from stream_dp.engine.tick_reader import EveryRecord
from stream_dp.errors import UsageError
from stream_dp.journal.dead_letters import DeadLetters
from stream_dp.pipeline import user_guard
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.layout import Slot
from stream_dp.pipeline.router import Router
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_guard import UserGuard, UserHash, cap_uses, guard_of
from stream_dp.pipeline.user_homes import LONGEST_NAME

SPEC = specification()
WIDTH = 1 + len(KEYS)
USERS = ("ann", "bob", "eve", "ida", "joe")


def guard(spec: PipelineSpec = SPEC, partitions: Sequence[int] = (0,)) -> UserGuard:
    made = UserGuard(spec, 0, SEALER.user_key())
    made.begin(partitions)
    return made


def rows_of(batches: Sequence[Batch], spec: PipelineSpec = SPEC) -> Any:
    """The rows of all ticks, of shape (ticks, width), and the guard."""
    made, router, ticks = guard(spec), Router(spec, 0), TickAssembler((0,), WIDTH)
    for batch in batches:
        found = made.admit(batch, ticks.passed(0))
        ticks.add(found, router.route(found))
    return np.array([closed.row for closed in ticks.closed(HORIZON)])


@st.composite
def logs(draw: st.DrawFn) -> list[Event | Mark]:
    """A log of one partition: events of open and closed ticks, and marks that may skip ahead."""
    events = st.builds(
        Event, st.sampled_from(USERS), st.integers(0, HORIZON - 1), st.sampled_from(KEYS)
    )
    marks = st.builds(Mark, st.integers(0, HORIZON - 2))
    found: list[Event | Mark] = draw(st.lists(events | events | events | marks, max_size=60))
    return [*found, Mark(HORIZON - 1)]


def counted(rows: Any) -> Counter[tuple[int, str]]:
    return Counter(
        {(t, k): int(r[1 + i]) for t, r in enumerate(rows) for i, k in enumerate(KEYS) if r[1 + i]}
    )


@settings(max_examples=40, deadline=None)
@given(logs(), st.integers(0, 10**6), st.sampled_from([WINDOW, None]))
def test_what_counts_is_what_the_oracle_counts(log: Log, seed: int, window: int | None) -> None:
    check_against_the_oracle(log, seed, window)


def check_against_the_oracle(log: Log, seed: int, window: int | None = WINDOW) -> None:
    spec = SPEC if window else specification(privacy=FOR_EVER)
    expected = judge({0: log}, CAP, window)
    rows = rows_of(cut({0: log}, Random(seed)), spec)
    assert counted(rows) == expected.rows
    assert rows[:, 0].sum() == sum(expected.rows.values())


def neighbours(log: Log, user: str, seeds: tuple[int, int]) -> tuple[Any, Any]:
    """The rows with and without a user, whose other records are read in other batches."""
    without = [one for one in log if isinstance(one, Mark) or one.user != user]
    return rows_of(cut({0: log}, Random(seeds[0]))), rows_of(cut({0: without}, Random(seeds[1])))


@settings(max_examples=40, deadline=None)
@given(logs(), st.sampled_from(USERS), st.tuples(st.integers(0, 99), st.integers(100, 199)))
def test_a_user_changes_at_most_k_events_of_each_window_and_those_are_their_own(
    log: Log, user: str, seeds: tuple[int, int]
) -> None:
    check_neighbours(log, user, seeds)


def check_neighbours(log: Log, user: str, seeds: tuple[int, int]) -> None:
    """A user changes at most k events of each window, and their own."""
    left, right = neighbours(log, user, seeds)
    gap = left - right
    own = {(one.tick, one.key) for one in log if isinstance(one, Event) and one.user == user}
    assert (gap >= 0).all()
    assert {(t, KEYS[i - 1]) for t, i in np.argwhere(gap) if i} <= own
    for begin in range(0, HORIZON, WINDOW):
        assert gap[begin : begin + WINDOW, 0].sum() <= CAP
        assert gap[begin : begin + WINDOW, 1:].sum() <= CAP


@settings(max_examples=40, deadline=None)
@given(logs(), st.permutations(USERS), st.integers(0, 10**6))
def test_how_users_interleave_changes_nothing(log: Log, order: Sequence[str], seed: int) -> None:
    """Between two marks all records of one user, then of the next: each user's own order stays."""
    sorted_log: list[Event | Mark] = []
    between: list[Event] = []
    for one in log:
        if isinstance(one, Event):
            between.append(one)
            continue
        sorted_log += [*sorted(between, key=lambda each: order.index(each.user)), one]
        between = []
    first = rows_of(cut({0: log}, Random(seed)))
    assert np.array_equal(first, rows_of(cut({0: sorted_log}, Random(seed + 1))))


def _table_of_two(self: UserGuard, users: Any, ticks: Any, counting: Any, records: Any) -> Any:
    """A broken guard: first come, first served, for two users in all."""
    kept, *rest = honest(self, users, ticks, counting, records)
    known = vars(self).setdefault("known", [])
    known += [t for t in dict.fromkeys(users.texts) if t not in known][: 2 - len(known)]
    return kept & np.array([text in known for text in users.texts], np.bool_), *rest


honest = UserGuard._first_ones


def caught() -> tuple[int, int]:
    """How many of twelve logs the oracle finds wrong, and how many the neighbours."""
    wrong = [0, 0]
    for seed in range(12):
        log = some_log(Random(seed), USERS)
        try:
            check_against_the_oracle(log, seed)
        except AssertionError:
            wrong[0] += 1
        try:
            check_neighbours(log, USERS[seed % 5], (seed, seed + 1))
        except AssertionError:
            wrong[1] += 1
    return wrong[0], wrong[1]


def test_honest_guards_are_not_caught() -> None:
    assert caught() == (0, 0)


def test_a_broken_guard_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UserGuard, "_first_ones", _table_of_two)
    by_oracle, by_neighbours = caught()
    assert by_oracle > 6
    assert by_neighbours > 1


def test_two_users_of_one_hash_share_a_cap_and_that_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Why hashes are wide: who displaces another's events changes up to 2k of them."""

    class Narrow(UserHash):
        def of(self, texts: Sequence[bytes]) -> Any:
            return super().of(texts) & np.uint64(1)

    monkeypatch.setattr(user_guard, "UserHash", Narrow)
    assert min(caught()) > 2


def batch(*payloads: Any, partition: int = 0, tick: int | None = None) -> Batch:
    values = [p if isinstance(p, bytes) else json.dumps(p).encode() for p in payloads]
    return Batch(partition, values, range(100, 100 + len(values)), 100 + len(values), tick)


def record(user: Any = "ann", tick: int = 0) -> dict[str, Any]:
    return {"time": 1000 * tick, "customer": user, "key": "a"}


def letters(found: Batch) -> list[tuple[str, str | None, int, int]]:
    dead = DeadLetters()
    dead.add(0, found.refused)
    return [(d.reason, d.field, *pair) for d in dead.sealed() for pair in d.ranges]


def test_who_cannot_be_told_is_a_dead_letter() -> None:
    lacking = {"time": 0, "key": "a"}
    found = guard().admit(batch(record(), lacking, record(None), record(7), b"{", record()), -1)
    assert list(found.labels) == [100, 105]
    assert len(found.payloads) == 2
    assert letters(found) == [
        ("missing_field", "customer", 101, 101),
        ("not_json", None, 104, 104),
        ("wrong_type", "customer", 102, 103),
    ]


def test_late_records_and_those_of_no_tick_use_nothing() -> None:
    made = guard()
    outside = record(tick=HORIZON)
    found = made.admit(batch(*[record(tick=1)] * 5, *[outside] * 5, *[record(tick=2)] * 2), 1)
    assert (len(found.payloads), found.capped) == (12, 0)
    assert [used.counted.events.tolist() for used in found.used] == [[2]]


def test_records_of_many_windows_are_no_more_work_than_those_of_one() -> None:
    clock = SPEC.clock.model_dump(mode="json") | {
        "horizon": "4000",
        "start": "1970-01-01T00:00:00Z",
    }
    per = {"unit": "user", "user": "customer", "max_events": "1", "per": "1s", "epsilon": "9"}
    made, calls = guard(specification(clock=clock, privacy=per)), Counter[str]()
    records = [record(tick=tick) for tick in range(4000)]
    sys.setprofile(lambda _frame, event, _called: calls.update((event,)))
    try:
        found = made.admit(batch(*records, *records), -1)
    finally:
        sys.setprofile(None)
    assert (len(found.payloads), found.capped) == (4000, 4000)
    assert calls["c_call"] < 8 * 8000


def test_a_tick_that_the_source_gives_is_that_of_all() -> None:
    spec = specification(
        clock={"kind": "wall", "step": "1s"},
        source={"kind": "kafka", "topic": "t", "bootstrap": "a:1"},
    )
    made = guard(spec)
    found = made.admit(batch(*[record(tick=99)] * 5, tick=5), 4)
    assert (len(found.payloads), found.capped) == (CAP, 2)
    assert made.admit(batch(record(), tick=7), 6).capped == 1
    assert made.admit(batch(record(), tick=8), 7).capped == 0


HOMES = specification(source=KEYED, journal={"kind": "sqlite", "path": "j"}, releases={"path": "r"})


def test_what_lies_in_anothers_partition_is_dead() -> None:
    made = guard(HOMES, (0, 1))
    for partition in (0, 1, 2):
        found = made.admit(batch(*map(record, USERS), partition=partition), -1)
        home = [u for u in USERS if made._homes and made._homes.of([u.encode()])[0] == partition]
        assert [json.loads(p)["customer"] for p in found.payloads] == home
        assert {reason for reason, *_ in letters(found)} == {"wrong_partition"}


@pytest.mark.parametrize("partitions", [(0,), (0, 1)])
def test_a_name_that_is_too_long_is_a_dead_letter_wherever_it_lies(
    partitions: tuple[int, ...],
) -> None:
    longest, longer = "é" * (LONGEST_NAME // 2), "é" * (LONGEST_NAME // 2) + "x"
    made, stay = guard(HOMES, partitions), []
    for partition in partitions:
        found = made.admit(batch(b"{", record(longest), record(longer), partition=partition), -1)
        stay += [json.loads(each)["customer"] for each in found.payloads]
        assert ("name_too_long", "customer", 102, 102) in letters(found)
        assert ("wrong_partition", "customer", 102, 102) not in letters(found)
    assert stay == [longest]


def test_several_partitions_need_a_declared_key_and_a_guard_its_beginning() -> None:
    with pytest.raises(UsageError, match=r"source\.keyed_by: customer"):
        guard(SPEC, (0, 1))
    with pytest.raises(TypeError):
        UserGuard(SPEC, 0, bytes(32)).admit(batch(record()), -1)


def test_a_share_of_users_counts_by_their_hash() -> None:
    privacy = {**FOR_EVER, "share": "1/4"}
    made = guard(specification(privacy=privacy))
    users = [f"user {number}" for number in range(400)]
    found = made.admit(batch(*map(record, users)), -1)
    kept = [json.loads(each)["customer"] for each in found.payloads]
    assert kept == [u for u in users if int.from_bytes(hashed(u)[:8], "little") < 2**62]
    assert 50 < len(kept) == 400 - found.capped < 150


def test_single_events_have_no_guard() -> None:
    spec = specification(privacy={"epsilon": "100"})
    assert isinstance(guard_of(spec, 0, bytes(32)), EveryRecord)
    assert isinstance(guard_of(SPEC, 0, bytes(32)), UserGuard)


def test_where_users_lie_and_their_share_belong_to_the_fingerprint() -> None:
    ports = {"journal": {"kind": "sqlite", "path": "j"}, "releases": {"path": "r"}}
    plain = {name: value for name, value in KEYED.items() if name != "keyed_by"}
    sources = [plain, KEYED, KEYED | {"partitioner": "crc32"}]
    said = [specification(source=source, **ports) for source in sources]
    said += [specification(privacy=PIPELINE["privacy"] | {"share": "1/2"})]
    assert len({fingerprint(one) for one in said}) == 4


def test_partitions_that_are_added_are_warned_of_with_both_numbers_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever lies in them: silent ones too, and no more is said of one that is known."""
    made = guard(specification(source=KEYED), (0, 1, 2))
    for partition in (0, 2, 3, 3, 4, 0, 4):
        made.admit(Batch(partition, (), (), 0), -1)
    said = [record.getMessage() for record in caplog.records]
    assert [text.partition(" at the first start")[0] for text in said] == [
        "the source has 4 partitions, and had 3",
        "the source has 5 partitions, and had 3",
    ]


USES = [
    # high, low, tick, whether it would count, and whether it does
    (1, 1, 4, True, True), (1, 2, 4, True, False), (1, 1, 4, True, True), (2, 1, 4, True, True),
    (3, 3, 4, False, False), (1, 2, 5, True, False), (1, 2, 5, True, False), (1, 1, 5, False, False),
]  # fmt: skip


def test_each_user_is_told_once_by_tick_and_column() -> None:
    high, low, ticks, counting, kept = (np.array(column) for column in zip(*USES, strict=True))
    users = np.stack([high, low], axis=1).astype(np.uint64)
    found = cap_uses(
        [(Slot(3, ("active", "cut")), None)], users, ticks, counting, {None: counting & ~kept}
    )
    assert {
        tick: {column: hashes.tolist() for column, hashes in columns.items()}
        for tick, columns in found.items()
    } == {4: {3: [[1, 1], [1, 2], [2, 1]], 4: [[1, 2]]}, 5: {3: [[1, 2]], 4: [[1, 2]]}}
