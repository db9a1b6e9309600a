"""Rows of workers: which of a log count, against a model that knows every row's whole history; and what a hand-over
keeps. Broken twins of each rule must be found.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from pydantic import ValidationError

from stream_dp.engine.lanes import rows as form
from stream_dp.engine.lanes import workers
from stream_dp.engine.lanes.processes import QUEUED, held_by
from stream_dp.engine.lanes.rows import (
    COUNTING,
    ROW,
    Cells,
    LaneChain,
    LaneRow,
    Layout,
    RowSealer,
    Stamp,
    Verdict,
    digest,
    encoded,
    layout_in,
    row_in,
)
from stream_dp.engine.lanes.workers import LaneWork, Overtaken
from stream_dp.engine.memories import Memories, UserMemory
from stream_dp.engine.ports import Batch, Beginning, Behind
from stream_dp.engine.series import LiveSeries
from stream_dp.engine.tick_assembler import (
    ClosedTick,
    Cut,
    Routed,
    ThinRow,
    dense,
    thin,
)
from stream_dp.engine.tick_reader import EveryRecord
from stream_dp.engine.user_table import Counted, Used
from stream_dp.errors import FailClosed, UsageError
from stream_dp.journal.commit import Created
from stream_dp.journal.dead_letters import NOT_JSON, DeadLetters, Span
from stream_dp.journal.keys import Sealer
from stream_dp.kafka.source.source import Share
from stream_dp.live.planner import LiveSeriesPlanner, counted
from stream_dp.operate.run.hosted import LaneHost
from stream_dp.pipeline.fingerprints import fingerprint, going_on, text_of
from stream_dp.pipeline.layout import RowLayout, feature_of
from stream_dp.pipeline.router import Counting, OpenRouter, Told
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import canonical_series

KEY = bytes(range(32))
EPOCH, LANE = 3, 1


def layout(**changes: Any) -> Layout:
    said = Layout(
        fingerprint="file", counting=COUNTING, lanes=2, epoch=EPOCH, tick=0, origin=0, first=(0, 1), source="s",
        topic="t", width=2, places={0: 0, 1: 0}, positions={0: 0, 1: 0},
    )  # fmt: skip
    return msgspec.structs.replace(said, **changes)


@dataclass(frozen=True)
class Written:
    """A row of the model: the offsets that it counts, after all rows that its writer knew of."""

    offsets: tuple[int, int]
    history: tuple[tuple[int, int], ...]
    mark: str = ""
    """What is wrong with it: nothing, the epoch, the version, or a gap before it."""

    def row(self) -> LaneRow:
        """The row that says this, made from the history alone."""
        return self.made(*standing(self.history))

    def made(self, previous: bytes, begin: int) -> LaneRow:
        first, end = self.offsets
        counts = np.array([end - first, first % 5], np.int64)
        epoch = EPOCH - 1 if self.mark == "epoch" else EPOCH
        counting = COUNTING + 1 if self.mark == "version" else COUNTING
        begins = {1: first if self.mark == "gap" else begin}
        return LaneRow(
            "file", counting, LANE, len(self.history), epoch, previous, begins, {1: end}, {}, {},
            Cells.of(counts, 2), {}, (), end - first, 0, 0,
        )  # fmt: skip


@cache
def standing(history: tuple[tuple[int, int], ...]) -> tuple[bytes, int]:
    """The digest of the last row of this history, and where it ends."""
    if not history:
        return digest(encoded(layout())), 0
    last = Written(history[-1], history[:-1])
    return digest(encoded(last.row())), history[-1][1]


def counted_in(log: Sequence[Written]) -> list[Written]:
    """The rows that count: the first whose whole history is what counted so far."""
    counted = list[Written]()
    for entry in log:
        if not entry.mark and entry.history == tuple(each.offsets for each in counted):
            counted.append(entry)
    return counted


def log_of(random: Random) -> list[Written]:
    """What writers append that die, are paused, see a wrong clock, or belong elsewhere."""
    log = list[Written]()
    writers: list[tuple[tuple[int, int], ...]] = [()]
    for _ in range(40):
        at = random.randrange(len(writers))
        match random.random():
            case lot if lot < 0.15:  # another one takes over, or goes on where one stood long ago
                writers.append(tuple(each.offsets for each in counted_in(log)))
            case lot if lot < 0.2:
                writers.append(writers[at])
            case _:
                history: Any = writers[at]
                begin = history[-1][1] if history else 0
                length = 10 if random.random() < 0.9 else random.randint(5, 15)  # its clock
                offsets = begin, begin + length
                mark = random.choice(["", "", "", "", "epoch", "version", "gap"])
                if mark == "gap":
                    offsets = begin + 3, begin + 10
                log.append(Written(offsets, history, mark))
                if not mark:
                    writers[at] = (*history, offsets)
    return log


def judged(
    log: Sequence[Written], chain: Callable[[Layout, int], LaneChain] = LaneChain
) -> list[int]:
    lane = chain(layout(), LANE)
    plains = [encoded(entry.row()) for entry in log]
    verdicts = [lane.take(row_in(plain), plain) for plain in plains]
    return [at for at, verdict in enumerate(verdicts) if verdict is Verdict.COUNTS]


def differing(chain: Callable[[Layout, int], LaneChain]) -> int:
    """In how many worlds it lets other rows count than the model does."""
    wrong = 0
    for seed in range(40):
        log = log_of(Random(seed))
        wrong += [log[at] for at in judged(log, chain)] != counted_in(log)
    return wrong


def test_the_first_row_that_follows_counts() -> None:
    assert differing(LaneChain) == 0
    log = [entry for seed in range(40) for entry in log_of(Random(seed))]
    assert {entry.mark for entry in log} == {"", "epoch", "version", "gap"}


class Unchained(LaneChain):
    def _judged(self, row: LaneRow, found: bytes) -> Verdict:
        return super()._judged(msgspec.structs.replace(row, previous=self.previous), found)


class AnyEpoch(LaneChain):
    def _judged(self, row: LaneRow, found: bytes) -> Verdict:
        return super()._judged(msgspec.structs.replace(row, epoch=EPOCH), found)


class AnyBegin(LaneChain):
    def _judged(self, row: LaneRow, found: bytes) -> Verdict:
        begins = dict(self.cut.positions)
        return super()._judged(msgspec.structs.replace(row, begins=begins), found)


class AnyVersion(LaneChain):
    def _judged(self, row: LaneRow, found: bytes) -> Verdict:
        return super()._judged(msgspec.structs.replace(row, counting=COUNTING), found)


class AnyTick(LaneChain):
    def _judged(self, row: LaneRow, found: bytes) -> Verdict:
        verdict = super()._judged(row, found)
        again = verdict is Verdict.REPEATED and row.epoch == EPOCH
        return Verdict.COUNTS if again else verdict


@pytest.mark.parametrize("twin", [Unchained, AnyEpoch, AnyBegin, AnyVersion, AnyTick])
def test_a_rule_left_out_is_found(twin: type[LaneChain]) -> None:
    assert differing(twin) > 0


def test_repeats_are_told_from_contested_rows_and_what_does_not_follow_is_noted() -> None:
    chain = LaneChain(layout(), LANE)

    def heard(written: Written) -> Verdict:
        plain = encoded(written.row())
        return chain.take(row_in(plain), plain)

    first = Written((0, 10), ())
    assert heard(first) is Verdict.COUNTS
    assert heard(first) is Verdict.REPEATED
    assert heard(Written((0, 9), ())) is Verdict.CONTESTED
    assert not chain.unfollowed
    assert heard(Written((9, 20), ((0, 9),))) is Verdict.CONTESTED
    assert chain.unfollowed
    assert heard(Written((10, 20), ((0, 10),))) is Verdict.COUNTS
    assert not chain.unfollowed
    assert heard(Written((30, 40), ((0, 10), (10, 20), (20, 30)))) is Verdict.AHEAD


def test_a_layout_goes_on_with_a_row_or_not_at_all() -> None:
    history = ((0, 10), (10, 20))
    last = Written((20, 30), history).row()
    on = layout(tick=3, rows={LANE: digest(encoded(last))}, positions={})
    chain = LaneChain(layout_in(encoded(on)), LANE)
    with pytest.raises(FailClosed, match="wiped, cut"):
        chain.require_begun()
    assert chain.take(last, encoded(last)) is Verdict.REPEATED
    chain.require_begun()
    following = Written((30, 40), (*history, (20, 30))).row()
    assert chain.take(following, encoded(following)) is Verdict.COUNTS
    other = msgspec.structs.replace(last, late=1)
    for row in (following, other):
        with pytest.raises(FailClosed, match="wiped, cut"):
            LaneChain(on, LANE).take(row, encoded(row))


def test_rows_of_another_file_version_or_width_never_count() -> None:
    row = Written((0, 10), ()).row()
    cells = Cells.of(np.array([1, 2, 3]), 3)
    for change in ({"fingerprint": "other"}, {"counting": COUNTING + 1}, {"cells": cells}):
        other = msgspec.structs.replace(row, **change)
        assert LaneChain(layout(), LANE).take(other, encoded(other)) is Verdict.SKEWED


def test_a_seal_binds_the_place_of_a_row() -> None:
    sealer, plain = RowSealer(KEY, "p"), encoded(Written((0, 10), ()).row())
    stamp = Stamp(ROW, LANE, 0, EPOCH)
    sealed = sealer.seal(stamp, plain)
    assert sealer.open(stamp, sealed) == plain
    assert sealer.seal(stamp, plain) != sealed
    others = [
        Stamp(ROW, 0, 0, EPOCH),
        Stamp(ROW, LANE, 1, EPOCH),
        Stamp(ROW, LANE, 0, 2),
        Stamp("layout", LANE, 0, EPOCH),
    ]
    for other in others:
        assert not opens(sealer, other, sealed)
    assert not opens(RowSealer(KEY, "q"), stamp, sealed)
    assert not opens(RowSealer(KEY[::-1], "p"), stamp, sealed)
    for at in range(0, len(sealed), 7):
        assert not opens(sealer, stamp, sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :])
    assert not opens(sealer, stamp, b"")

    class Laneless(RowSealer):
        def _bound(self, stamp: Stamp) -> bytes:
            return super()._bound(msgspec.structs.replace(stamp, lane=0))

    twin = Laneless(KEY, "p")
    assert opens(twin, others[0], twin.seal(stamp, plain))


def opens(sealer: RowSealer, stamp: Stamp, sealed: bytes) -> bool:
    try:
        sealer.open(stamp, sealed)
    except FailClosed:
        return False
    return True


def test_padded_rows_have_few_lengths() -> None:
    sealer, stamp = RowSealer(KEY, "p", pad=True), Stamp(ROW, LANE, 0, EPOCH)
    lengths = set()
    for size in range(300):
        sealed = sealer.seal(stamp, bytes(size))
        assert sealer.open(stamp, sealed) == bytes(size)
        lengths.add(len(sealed))
    assert len(lengths) <= 9
    longest = [len(sealer.seal(stamp, bytes(size))) for size in (60, 61)]
    assert longest[1] - longest[0] == 64


def lengths_of_rows() -> set[tuple[int, int]]:
    """How long padded rows of one lane are, whose ticks had no record, some, or a flood."""
    sealer, random = RowSealer(KEY, "p", pad=True), Random(3)
    lengths = set[tuple[int, int]]()
    base = Written((0, 1), ()).row()
    for width in (200, 15):
        for most in (0, 1, 3, 200, 40_000, 2**31 - 1):
            for _ in range(20):
                some = random.choice([0.02, 0.5, 1])
                counts = [random.randint(0, most) * (random.random() < some) for _ in range(width)]
                offset = random.choice([0, 100, 70_000, 2**33])
                places = {at: offset + random.randrange(200) for at in range(4)}
                row = msgspec.structs.replace(
                    base, begins=places, positions=places, cells=Cells.of(np.array(counts), width),
                    records=sum(counts), late=random.randint(0, most), capped=random.randint(0, most),
                )  # fmt: skip
                sealed = sealer.record(Stamp(ROW, LANE, 0, EPOCH), encoded(row))
                assert sealer.row(LANE, sealed)[0] == row
                lengths.add((width, len(sealed.value)))
    return lengths


def test_the_length_of_a_padded_row_says_nothing_of_its_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert len(lengths_of_rows()) == 2
    monkeypatch.setattr(form, "_longest", lambda row: row)  # padded as it is
    assert len(lengths_of_rows()) > 4


def test_a_chain_remembers_so_many_rows_and_takes_an_older_one_for_a_repeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(form, "RECENT", 2)
    chain = LaneChain(layout(), LANE)
    history: tuple[tuple[int, int], ...] = ()
    for tick in range(4):
        written = Written((tick, tick + 1), history)
        assert chain.take(written.row(), encoded(written.row())) is Verdict.COUNTS
        history = (*history, written.offsets)
    assert [chain.digest_of(tick) is None for tick in range(4)] == [True, True, False, False]
    first = Written((0, 1), ()).row()
    assert chain.take(first, encoded(first)) is Verdict.REPEATED


def test_a_row_keeps_the_uses_of_each_memory_apart_and_merges_those_of_one() -> None:
    def used(user: int, kind: str) -> Used:
        return Used(0, Counted.together([counted_in_window(user)]), kind)

    def counted_in_window(user: int) -> Any:
        memory = UserMemory(1, 4)
        _, uses = memory.admit(hashes([user]), memory.windows(np.array([0])))
        assert uses is not None
        return uses.counted

    closed = ClosedTick(
        0, np.zeros(2, np.int64), {1: 5}, {1: 0}, {}, DeadLetters(), 0, 0, {},
        [used(1, "b"), used(2, "a"), used(3, "b")],
    )  # fmt: skip
    row = form.row_of(closed, layout(), LANE, (bytes(32), {1: 0}), {}, marked=False)
    assert list(row.used) == ["a", "b"]
    assert [sum(map(len, row.used[kind].values())) for kind in "ab"] == [20, 40]


@pytest.mark.parametrize("most", [1, 127, 128, 40_000, 2**40])
def test_cells_keep_every_entry_in_the_shorter_form(most: int) -> None:
    random = np.random.default_rng(most)
    for width in (1, 7, 3000):
        for share in (0.0, 0.01, 1.0):
            row = random.integers(-most, most + 1, width) * (random.random(width) < share)
            cells = Cells.of(row, width)
            assert (dense(cells.row(), width) == row).all()
            assert Cells.of(thin(row), width) == cells
            assert len(cells.places) + len(cells.counts) <= 8 * width
    with pytest.raises(FailClosed):
        Cells(3, b"", b"12345").row()
    with pytest.raises(FailClosed):
        Cells(3, b"1234", b"12345").row()


def test_a_partition_stays_in_its_lane_when_others_are_added() -> None:
    def lanes(number: int, modulus: int) -> dict[int, int]:
        shares = [Share(frozenset({lane}), modulus) for lane in range(modulus)]
        return {at: lane for lane, share in enumerate(shares) for at in share.of(range(number))}

    assert lanes(3, 2).items() <= lanes(8, 2).items()
    twin = lanes(4, 4 // 2), lanes(8, 8 // 2)  # by the present number of partitions
    assert not twin[0].items() <= twin[1].items()
    said = layout(positions={at: at for at in range(8)}, pending={1: Cells.of(np.array([1, 0]), 2)})
    assert said.cut(1).positions == {1: 1, 3: 3, 5: 5, 7: 7}
    assert [len(said.cut(lane).pending) for lane in (0, 1)] == [1, 0]


class Ticked:
    """A router whose payloads say their tick and entry."""

    width = 2
    told: Sequence[Any] = ()

    def counting(self) -> Counting:
        return Counting((), (slice(1, 2),), 2, self.told)

    def decode(self, batch: Batch) -> Batch:
        return batch

    def route(self, batch: Batch) -> Routed:
        rows, records, dead = dict[int, Any](), dict[int, int](), list[Span]()
        for payload, label in zip(batch.payloads, batch.labels, strict=True):
            if payload == b"junk":
                dead.append(Span(NOT_JSON, None, label, label))
                continue
            tick, entry = payload
            rows.setdefault(tick, np.zeros(2, np.int64))[entry] += 1
            records[tick] = records.get(tick, 0) + 1
        return Routed(rows, dead, records)


def partition_log(random: Random, number: int, ticks: int) -> list[Batch]:
    """Batches of one partition: records of the open tick and of later ones, late ones, junk; then a mark, maybe."""
    batches, offset, tick = list[Batch](), 0, 0
    while tick < ticks:
        payloads = [
            b"junk"
            if random.random() < 0.1
            else bytes([max(0, tick + random.randint(-1, 2)), random.randrange(2)])
            for _ in range(random.randrange(4))
        ]
        labels = range(offset, offset + len(payloads))
        offset += len(payloads)
        mark = tick if random.random() < 0.6 else None
        tick += mark is not None
        behind = Behind(max(0, offset - 2), offset) if random.random() < 0.3 else None
        batches.append(Batch(number, payloads, list(labels), offset, mark=mark, behind=behind))
    return batches


def hashes(numbers: Sequence[int]) -> Any:
    return np.array([(number, 7) for number in numbers], np.uint64).reshape(-1, 2)


class Identifying(Ticked):
    """Beside the entries, it says which of them occur, as identifiers."""

    def route(self, batch: Batch) -> Routed:
        routed = super().route(batch)
        routed.arrived = {
            tick: {0: hashes([int(at) for at in np.flatnonzero(row)])}
            for tick, row in routed.rows.items()
        }
        return routed


class Capped:
    """At most one record of each entry counts, as if it were a user, in each window of 4 ticks; nobody is late."""

    def __init__(self) -> None:
        self.memories = (UserMemory(1, 4),)

    def begin(self, partitions: Sequence[int]) -> None: ...
    def admit(self, batch: Batch, passed: int) -> Batch:
        mine = [
            at for at, each in enumerate(batch.payloads) if each != b"junk" and each[0] > passed
        ]
        ticks = np.array([batch.payloads[at][0] for at in mine], np.int64)
        users = hashes([batch.payloads[at][1] + 2 * batch.partition for at in mine])
        kept, used = self.memories[0].admit(users, self.memories[0].windows(ticks))
        gone = {at for at, keeps in zip(mine, kept, strict=True) if not keeps}
        left = [at for at in range(len(batch.payloads)) if at not in gone]
        return replace(
            batch, payloads=[batch.payloads[at] for at in left], labels=[batch.labels[at] for at in left],
            capped=len(gone), used=() if used is None else (used,),
        )  # fmt: skip


class Lane1:
    """A lane of the partitions 1 and 3, and its log."""

    def __init__(self, random: Random, guards: Any = EveryRecord, router: Any = Ticked) -> None:
        self.random, self.guards, self.router = random, guards, router()
        self.batches = {number: partition_log(random, number, 12) for number in (1, 3)}
        self.layout = layout(positions={1: 0, 3: 0})
        self.log = list[bytes]()

    def work(self) -> tuple[LaneWork, Iterator[Batch]]:
        """A worker behind the rows that count, and what the source gives it."""
        self.guard = self.guards()
        work = LaneWork(self.layout, LANE, self.guard, self.router, marked=False)
        for plain in self.log:
            work.heard(row_in(plain), plain)
        work.begin((1, 3))
        return work, self.given(work.chain.cut)

    def given(self, cut: Cut) -> Iterator[Batch]:
        left = {
            number: [batch for batch in batches if self.beyond(batch, cut)]
            for number, batches in self.batches.items()
        }
        while any(left.values()):
            number = self.random.choice([at for at, batches in left.items() if batches])
            yield left[number].pop(0)

    def beyond(self, batch: Batch, cut: Cut) -> bool:
        where = cut.positions[batch.partition]
        after = batch.position > where or (batch.position == where and not batch.payloads)
        return after and (batch.mark is None or batch.mark >= cut.next_tick)

    def run(self, dies: float) -> list[bytes]:
        """Work to the end, by workers that die by lot; return the log."""
        while True:
            work, batches = self.work()
            for batch in batches:
                work.take(batch)
                self.log += [plain for _, plain in work.rows()]
                if self.random.random() < dies:
                    break
            else:
                return self.log


def test_workers_that_take_over_write_the_rows_of_one_that_lives() -> None:
    for seed in range(40):
        whole, taken = Lane1(Random(seed)).run(0), Lane1(Random(seed)).run(0.2)
        assert len(whole) == 12
        assert whole == taken


def of_users(seed: int, dies: float) -> list[bytes]:
    return Lane1(Random(seed), Capped, Identifying).run(dies)


def test_users_and_identifiers_are_handed_over_too() -> None:
    rows = [row_in(plain) for seed in range(40) for plain in of_users(seed, 0)]
    assert all(tick > row.tick for row in rows for tick in row.known)
    assert all(
        map(
            any,
            zip(*[(r.capped, r.used, r.arrived, r.arriving, r.known) for r in rows], strict=True),
        )
    )
    for seed in range(40):
        assert of_users(seed, 0) == of_users(seed, 0.2)


def test_a_layout_holds_what_a_worker_remembers() -> None:
    whole = Lane1(Random(5), Capped, Identifying)
    log = whole.run(0)
    for at in range(1, 12):
        whole.log = log[:at]
        whole.work()
        held = held_by(whole.guard)
        on = msgspec.structs.replace(
            whole.layout, tick=at, positions={}, rows={LANE: digest(log[at - 1])}, held=held
        )
        later = Lane1(Random(5), Capped, Identifying)
        later.layout, later.log = layout_in(encoded(on)), [log[at - 1]]
        assert later.run(0)[1:] == log[at:]


@pytest.mark.parametrize("twin", ["memory", "known"])
def test_users_that_a_hand_over_forgets_are_found(
    twin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if twin == "memory":
        monkeypatch.setattr(workers, "remember", lambda guard, row: None)
    else:
        cut = form._cut
        monkeypatch.setattr(form, "_cut", lambda *said: replace(cut(*said), arriving={}))
    assert any(of_users(seed, 0) != of_users(seed, 0.2) for seed in range(40))


@pytest.mark.parametrize("lost", ["pending", "behind"])
def test_what_a_hand_over_drops_is_found(lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = form._cut

    def dropping(next_tick: int, said: Any) -> Cut:
        whole = cut(next_tick, said)
        return replace(whole, pending={}) if lost == "pending" else replace(whole, behind={})

    worlds = [Lane1(Random(seed)) for seed in range(40)]
    whole = [row_in(plain) for plain in worlds[0].run(0)]
    monkeypatch.setattr(form, "_cut", dropping)
    if lost == "behind":
        kept = next(row for row in whole if row.behind)
        assert not kept.cut.behind
        return
    taken = [Lane1(Random(seed)).run(0.2) for seed in range(40)]
    assert [world.run(0) for world in worlds[1:]] != taken[1:]


def test_a_row_gives_back_the_tick_that_it_was_made_of() -> None:
    row = row_in(Lane1(Random(4)).run(0)[5])
    closed = row.closed()
    assert closed.tick == row.tick == 5
    assert closed.records == row.records
    assert closed.dead_letters.sealed() == row.dead
    assert closed.marks == {1: 5, 3: 5}
    letters = DeadLetters()
    letters.add(
        4, [Span(NOT_JSON, None, 3, 5), Span(NOT_JSON, "a", 7, 7), Span(NOT_JSON, None, 9, 9)]
    )
    assert DeadLetters.of(letters.sealed()).sealed() == letters.sealed()


def rows_behind(work: LaneWork, batches: Iterable[Batch]) -> list[Any]:
    """What a worker makes of these batches."""
    made = []
    for batch in batches:
        work.take(batch)
        made += list(work.rows())
    return made


def test_a_worker_whose_row_is_not_the_one_that_counts_begins_again() -> None:
    lane = Lane1(Random(1))
    work, batches = lane.work()
    mine = list[bytes]()
    for batch in batches:
        work.take(batch)
        mine += [plain for _, plain in work.rows()]
    first = row_in(mine[0])
    work.heard(first, mine[0])  # its own
    other = msgspec.structs.replace(row_in(mine[1]), late=7)
    with pytest.raises(Overtaken):
        work.heard(other, encoded(other))
    ahead = Lane1(Random(1))
    work, batches = ahead.work()
    zeroth = msgspec.structs.replace(first, late=7)
    work.heard(zeroth, encoded(zeroth))  # another worker is faster
    with pytest.raises(Overtaken):
        rows_behind(work, batches)


def test_a_worker_that_others_left_behind_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Lane1(Random(1)).run(0)
    late = Lane1(Random(1))
    work, _ = late.work()
    monkeypatch.setattr(workers, "RECENT", 4)
    for plain in log[:2]:
        work.heard(row_in(plain), plain)
    with pytest.raises(Overtaken):
        work.heard(row_in(log[2]), log[2])


def test_rows_are_thin_where_few_entries_are_not_zero() -> None:
    wide = np.zeros(5000, np.int64)
    wide[[3, 4000]] = 7
    assert isinstance(Cells.of(wide, 5000).row(), ThinRow)
    assert len(encoded_cells(wide)) < 40


def encoded_cells(row: Any) -> bytes:
    return msgspec.msgpack.encode(Cells.of(row, len(row)))


def said(**source: Any) -> dict[str, Any]:
    return {
        "version": 1, "name": "p", "schema": {"key": {"type": "category", "domain": ["a"]}},
        "source": {"kind": "kafka", "topic": "t", "bootstrap": "k:9092", **source},
        "privacy": {"unit": "event", "epsilon": 1}, "clock": {"kind": "wall", "step": "1s"},
        "series": [{"name": "n", "statistic": "count", "epsilon": 1}],
    }  # fmt: skip


def test_workers_change_nothing_that_a_journal_fixes_and_refuse_what_they_cannot_do() -> None:
    spec = PipelineSpec.model_validate(said(workers={"lanes": 4}))
    assert fingerprint(spec) == fingerprint(PipelineSpec.model_validate(said()))
    with pytest.raises(UsageError, match="the source of p is read by workers"):
        spec.read_by(2)
    with pytest.raises(ValidationError, match="leave one of the two out"):
        PipelineSpec.model_validate(said(workers={"lanes": 4}, processes=2))
    with pytest.raises(ValidationError, match="need a kafka journal"):
        PipelineSpec.model_validate(
            said(workers={"lanes": 4}) | {"journal": {"kind": "sqlite", "path": "j"}}
        )


class Topics:
    """A source that others read, in two lanes, and their rows."""

    lanes, grows, fingerprint, identity, name, file = 2, True, "file", "s", "events", b"says"

    def __init__(self) -> None:
        self.laid, self.dropped, self.followed = list[Layout](), list[Any](), list[Any]()

    async def open(self) -> str:
        return "t"

    async def layout(self) -> Layout | None:
        return self.laid[-1] if self.laid else None

    async def lay(self, said: Layout) -> None:
        self.laid.append(said)

    async def ends(self) -> dict[int, int]:
        return {0: 5, 1: 6}

    async def follow(self, places: Any) -> None:
        self.followed.append(places)

    async def drop(self, places: Any) -> None:
        self.dropped.append(places)


def engine_of(topics: Any, guard: Any = None) -> workers.RowsReader:
    """What adds rows up, of which its lanes have heard nothing."""
    unused: Any = None
    guard = guard or EveryRecord()
    memories = Memories(*guard.memories)
    reader = workers.RowsReader(
        guard, Ticked(), (0, 1), unused, memories, lambda: 1,
        rows=topics, source=topics, beginning=Beginning(0, (0, 1), 60_000),
    )  # fmt: skip
    reader._chains = {lane: LaneChain(layout(), lane) for lane in (0, 1)}
    reader._came = {0: deque(), 1: deque()}
    return reader


def hears(reader: workers.RowsReader, row: LaneRow, begin: int = 0) -> None:
    reader._hear(7, row, encoded(row), Cut(positions={0: 0, 1: begin}))


def test_an_engine_asks_once_for_workers_when_no_rows_come(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    source: Any = Topics()
    reader = engine_of(source)
    reader._heard = now[0]

    def asks_after(seconds: float) -> int:
        caplog.clear()
        now[0] += seconds
        reader._look_for_lags()
        return sum("does a worker run?" in record.getMessage() for record in caplog.records)

    assert asks_after(workers.LAGS_S + 60) == 0
    assert asks_after(1) == 1
    assert asks_after(1_000) == 0
    hears(reader, Written((0, 10), ()).row())
    assert asks_after(1_000) == 0  # a row waits for others
    reader._came[LANE].clear()
    assert asks_after(1) == 1
    source.grows = False  # who feeds a replay may pause
    hears(reader, Written((10, 20), ((0, 10),)).row())
    reader._came[LANE].clear()
    assert asks_after(10_000) == 0


def test_an_engine_stops_where_rows_do_not_go_on_from_its_journal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(FailClosed, match="wiped, cut"):
        hears(engine_of(Topics()), Written((0, 10), ()).row(), begin=3)
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    reader = engine_of(Topics())
    ahead = Written((10, 20), ((0, 10),)).row()
    hears(reader, ahead)
    now[0] += workers.STUCK_S
    hears(reader, ahead)
    hears(reader, Written((0, 10), ()).row())
    hears(reader, msgspec.structs.replace(ahead, late=1, previous=bytes(32)))
    now[0] += workers.STUCK_S
    hears(reader, ahead)
    hears(reader, Written((30, 40), ((0, 10), (10, 20), (20, 30))).row())
    now[0] += workers.STUCK_S + 1
    with pytest.raises(FailClosed, match="wiped, cut"):
        hears(reader, Written((30, 40), ((0, 10), (10, 20), (20, 30))).row())


async def test_an_engine_lays_where_workers_go_on_and_deletes_only_what_nobody_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "EVERY", 2)
    topics, guard = Topics(), Capped()
    guard.memories = (memory := UserMemory(1, 100),)
    reader = engine_of(topics, guard)
    async with asyncio.TaskGroup() as tasks:
        reader.tasks = tasks
        pending, known = {5: np.array([1, 0])}, {5: {0: hashes([1])}}
        await reader.seek(Cut(4, {0: 8, 1: 9}, {0: 3, 1: 3}, pending, arriving=known))
        (first,) = topics.laid
        assert first.pending
        assert first.known
        assert (first.epoch, first.tick, first.places) == (0, 4, {0: 5, 1: 6})
        assert first.positions == {0: 8, 1: 9}
        assert (first.file, first.added, first.muted) == (b"says", (), ((1, 2),))
        places = []
        for tick in (4, 5, 6, 7):
            closed: Any = None
            parts = {
                lane: workers._Came(closed, 10 * tick + lane, bytes([tick, lane]))
                for lane in (0, 1)
            }
            places.append({lane: part.place for lane, part in parts.items()})
            reader._stands.append((tick, parts))
        for tick in (4, 5, 6, 7):
            _, used = memory.admit(hashes([tick]), memory.windows(np.array([tick])))
            memory.take([used] if used else [], tick + 1)
            reader.settled(tick + 1)
            await asyncio.sleep(0.01)
    assert [(said.epoch, said.tick) for said in topics.laid] == [(0, 4), (0, 6), (0, 8)]
    assert [said.places for said in topics.laid[1:]] == [places[1], places[3]]
    assert topics.dropped == [first.places, places[1]]
    last = topics.laid[-1]
    assert last.rows == {0: b"\x07\x00", 1: b"\x07\x01"}
    assert (last.positions, last.pending, last.known) == ({}, {}, {})
    assert last.held == held_by(guard) != first.held
    await reader.seek(Cut(8, {0: 8, 1: 9}, {0: 7, 1: 7}))
    assert len(topics.laid) == 3
    await reader.seek(Cut(7, {0: 8, 1: 9}, {0: 6, 1: 6}))  # its journal is behind
    assert (topics.laid[-1].epoch, topics.laid[-1].tick) == (1, 7)
    await reader.seek(Cut(11, {0: 8, 1: 9}, {0: 10, 1: 10}))
    assert len(topics.laid) == 4
    await reader.seek(Cut(12, {0: 8, 1: 9}, {0: 11, 1: 11}))  # no worker has read for long
    assert (topics.laid[-1].epoch, topics.laid[-1].tick) == (2, 12)
    router: Any = reader.router
    for epoch, start in ((3, 5), (4, 12)):  # the same in the same columns, halted and created again
        router.told = [(2, Told(start, "", b"{}"))]
        await reader.seek(Cut(12, {0: 8, 1: 9}, {0: 11, 1: 11}))
        assert (topics.laid[-1].epoch, topics.laid[-1].tick) == (epoch, 12)
        assert layout_in(encoded(topics.laid[-1])).added == ((2, (start, "", b"{}")),)
    topics.fingerprint = "other"
    await reader.seek(Cut(12, {0: 8, 1: 9}, {0: 11, 1: 11}))
    assert topics.laid[-1].epoch == 5
    topics.laid.append(msgspec.structs.replace(topics.laid[-1], topic="made again"))
    reader = engine_of(topics)
    with pytest.raises(FailClosed, match="wiped, cut"):
        await reader.seek(Cut(12, {0: 8, 1: 9}, {0: 11, 1: 11}))


async def test_more_lanes_than_partitions_are_refused_before_their_topic_is_made() -> None:
    topics: Any = Topics()
    topics.lanes, topics.open = 3, None
    with pytest.raises(UsageError, match="Give at most as many"):
        await engine_of(topics).seek(Cut())


async def test_a_lane_that_is_far_ahead_is_not_read_on() -> None:
    asked = list[Sequence[int]]()

    class Asked(Topics):
        async def read(self, lanes: Sequence[int]) -> list[Any]:
            asked.append(lanes)
            raise EOFError

    reader: Any = engine_of(Asked())
    reader._came[0] = deque(range(QUEUED))
    with pytest.raises(EOFError):
        await reader._read(Cut(), 1)
    assert asked == [[1]]


def test_a_worker_counts_by_a_layout_what_its_engine_counts() -> None:
    more = {"series": [{"name": "m", "statistic": "monitor", "epsilon": 1, "touch": 3, "watch": [
        {"name": "a", "where": [{"field": "key", "equals": "a"}], "above": 3}]}]}  # fmt: skip
    spec = PipelineSpec.model_validate(said(workers={"lanes": 4}) | more)
    router = OpenRouter(spec, 0)
    planner = LiveSeriesPlanner(spec, router)
    definitions = [
        b"{name: n, statistic: histogram, by: key, epsilon: 1/10}",
        b"{name: l, statistic: monitor, epsilon: 1/10, touch: 2, watch: [{name: x, above: 2}]}",
    ]
    for number, definition in enumerate(definitions):
        planned = planner.propose(definition, 3 + number)
        created = Created(number, definition, 3 + number, planned.place("", ()))
        series = planned.open(created)
    live = LiveSeries(1, series, 4, created=True)
    watch = planner.watch(live, b"{name: y, by: key, above: 2}", 7, "")
    watch.take()
    router.mute(slice(0, 1), 0)
    now = router.counting()
    assert [told.start for _, told in now.told] == [3, 4, 7]
    muted = [(m.start, m.stop) for m in now.muted]
    again = counted(
        spec, msgspec.msgpack.decode(msgspec.msgpack.encode(now.told)), muted, now.width
    )
    assert sorted(again.added, key=lambda each: each[1]) == sorted(
        now.added, key=lambda each: each[1]
    )
    assert (again.muted, again.width) == (now.muted, now.width)
    for wrong in (Told(3, "", b"{name: n, statistic: newer}"), Told(3, "gone", b"{name: y}")):
        with pytest.raises(UsageError):
            counted(spec, [(5, wrong)], (), 9)


def test_a_worker_counts_by_the_file_that_its_journal_goes_on_with() -> None:
    """Whether it was given the first file, or one that was applied since; but no file of another meaning."""
    first = PipelineSpec.model_validate(said(workers={"lanes": 2}))
    fields = first.model_dump(mode="json", include={"fields"}, by_alias=True, exclude_none=True)
    more = {"schema": {**fields["schema"], "size": {"type": "integer"}}, "series": [
        {"name": "m", "statistic": "count", "epsilon": 1, "where": [{"field": "size", "at_least": 3}]}]}  # fmt: skip
    now = PipelineSpec.model_validate(said(workers={"lanes": 2}) | more)
    goes_on = going_on(first, now)
    added = ((1, (4, "", canonical_series(now.series[0]))),)
    mine = layout(fingerprint=fingerprint(goes_on), file=text_of(goes_on), added=added)
    keys = Sealer(KEY, "p").worker_keys()
    for given in (first, now):
        spec = LaneHost(given, keys, layout_in(encoded(mine))).spec
        assert RowLayout.of(spec) == RowLayout.of(first)
        assert spec.fields.keys() == {"key", "size"}
        assert counted(spec, added, (), 2).added == [(feature_of(now, now.series[0]), 1)]
    for other in ({"confidence": "0.9"}, {"clock": {"kind": "wall", "step": "2s"}}):
        spec = PipelineSpec.model_validate(said(workers={"lanes": 2}) | more | other)
        with pytest.raises(FailClosed, match="another pipeline file"):
            LaneHost(spec, keys, mine)
    newer = ((1, (4, "", b"{name: m, statistic: newer}")),)
    with pytest.raises(FailClosed, match="that this version cannot read"):
        LaneHost(now, keys, msgspec.structs.replace(mine, added=newer))
