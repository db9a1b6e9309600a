"""Ticks of whole batches against an oracle of the rules: random logs with transactions, cut and restarted anywhere.

The oracle reads the finished log record by record and knows no place, fetch or room. Each rule has a broken twin.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.kafka.source.log_reader import PLACE, LogReader, at_once
from unit.kafka.source.record_worlds import ABORT, COMMIT, Log, batch, marker, record

from stream_dp.core.time import TickGrid
from stream_dp.engine.ports import Batch, Behind
from stream_dp.engine.tick_assembler import ClosedTick, Cut, Routed, TickAssembler
from stream_dp.kafka.client.tick_marks import TICK_HEADER, TickMarks
from stream_dp.kafka.source import ticks as kafka_ticks
from stream_dp.kafka.source.record_batches import Kind, RecordBatch
from stream_dp.kafka.source.source import Recall
from stream_dp.kafka.source.ticks import (
    MarkedTicks,
    PartitionTicks,
    Place,
    Room,
    StampedTicks,
    Transaction,
    cell_of,
)
from stream_dp.kafka.source.unpacker import Unpacker

ORIGIN, STEP, SETTLE, LAST = 1_000, 10, 6, 30
GRID = TickGrid(ORIGIN, STEP, LAST + 1)
MARKS = TickMarks(bytes(32), "replay", GRID)
PRODUCERS = (7, 8, 9)
LARGE, SMALL = 10**6, 150
RECALLED_BYTES = 300
SEEDS = 150


@dataclass(frozen=True)
class Entry:
    """A batch as the oracle sees it: records are (number, tick, mark), of which the mark may be None."""

    stamp: int
    producer: int | None
    end: int | None
    records: Sequence[tuple[int, int, int | None]] = ()


@dataclass
class World:
    entries: list[Entry] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    numbers: int = 0
    offset: int = 0

    @property
    def log(self) -> Log:
        return Log(self.raw)

    def add(self, chance: random.Random, stamp: int, producer: int | None) -> None:
        """A batch of one to four records, of ticks of their own, now and then a mark among them."""
        entries, raw = [], []
        for delta in range(chance.randint(1, 4)):
            tick, mark = chance.randrange(LAST), None
            value: bytes | None = b"%d %d" % (self.numbers, tick)
            headers: list[tuple[bytes, bytes | None]] = []
            if chance.random() < 0.15:
                mark, value = min(LAST, (stamp - ORIGIN) // STEP + chance.randint(-3, 1)), b""
                mark = max(0, mark)
                headers = [(TICK_HEADER.encode(), MARKS.sign(0, mark))]
            raw.append(record(value, delta, headers=headers))
            entries.append((self.numbers, tick, mark))
            self.numbers += 1
        self._put(Entry(stamp, producer, None, entries), batch(raw, self.offset, stamp, producer))

    def end(self, stamp: int, producer: int, what: int) -> None:
        self._put(Entry(stamp, producer, what), marker(self.offset, stamp, producer, what))

    def _put(self, entry: Entry, raw: bytes) -> None:
        self.entries.append(entry)
        self.raw.append(raw)
        self.offset += len(entry.records) or 1


def world(chance: random.Random, steps: int = 25) -> World:
    """A random log: data of nobody and of three producers, ends of transactions, and stamps that step back at times."""
    found, stamp = World(), ORIGIN - STEP
    for _ in range(steps):
        stamp += chance.choice((0, 1, 3, 5, 12, 8, -4, -8))
        stamp = max(0, stamp)
        what = chance.random()
        if what < 0.45:
            found.add(chance, stamp, None)
        elif what < 0.75:
            found.add(chance, stamp, chance.choice(PRODUCERS))
        else:
            end = COMMIT if chance.random() < 0.65 else ABORT
            found.end(stamp, chance.choice(PRODUCERS), end)
    return found


Told = tuple[dict[int, list[int]], int]
"""The numbers of the records of each tick that has any, and how many are late."""


def counted(world: World, settle: int | None) -> Told:
    """The oracle; `settle` None: a replay."""
    rows: dict[int, list[int]] = {}
    waiting: dict[int, list[Entry]] = {}
    passed, late = -1, 0
    for entry in world.entries:
        if settle is not None:
            passed = max(passed, (entry.stamp - settle - ORIGIN) // STEP - 1)
        counts: list[Entry] = []
        if entry.end is not None and entry.producer is not None:
            ended = waiting.pop(entry.producer, [])
            counts = ended if entry.end == COMMIT else []
        elif entry.producer is None:
            counts = [entry]
        else:
            waiting.setdefault(entry.producer, []).append(entry)
        for one in counts:
            for number, own, mark in one.records:
                if mark is not None:
                    passed = max(passed, mark) if settle is None else passed
                    continue
                tick = own if settle is None else (one.stamp - ORIGIN) // STEP
                if 0 <= tick <= passed:
                    late += 1
                elif tick >= 0:
                    rows.setdefault(tick, []).append(number)
    return rows, late


class Broker:
    """Hands out a log in fetches and drives `ticks` as the source does."""

    def __init__(self, world: World, make: Callable[..., PartitionTicks], room: int) -> None:
        self._log, self._make, self._room = world.log, make, room
        self._joined = room != SMALL

    def read(self, place: Place, most: Callable[[], int]) -> list[Batch]:
        out: list[Batch] = []
        room = Room(self._room)
        ticks = self._make(place, Unpacker(marks=True), room, out)
        position = place.begin
        cell = cell_of(GRID, SETTLE) if isinstance(ticks, StampedTicks) and self._joined else None
        while found := self._log.parsed(position, most(), cell):
            for one in found:
                position = one.next
                if (transaction := ticks.take(one)) is not None:
                    self._recall(ticks, transaction, one)
                assert 0 <= room.left <= self._room
            ticks.flush()
        for producer in PRODUCERS:
            ticks._open.drop(producer)
        assert room.left == self._room
        return out

    def _recall(self, ticks: PartitionTicks, what: Transaction, commit: RecordBatch) -> None:
        reader = LogReader(self._log, RECALLED_BYTES)
        recall = Recall(ticks, what, commit, PLACE)
        recall.begin(reader)
        while at_once(recall.more(reader)):
            pass
        assert not reader.assigned


def routed(one: Batch, width: int) -> Routed:
    """One column a record: a row says which records it holds."""
    rows: dict[int, Any] = {}
    records: Counter[int] = Counter()
    for payload in one.payloads:
        number, own = map(int, payload.split() or (-1, -1))
        tick = own if one.tick is None else one.tick
        if number >= 0:
            rows.setdefault(tick, np.zeros(width, dtype=np.int64))[number] += 1
            records[tick] += 1
    return Routed(rows, one.refused, records)


def closed(
    batches: Sequence[Batch], width: int, end: int, cut: Cut | None = None
) -> list[ClosedTick]:
    ticks = TickAssembler([0], width, cut)
    for one in (*batches, Batch(0, (), (), end, mark=LAST)):
        ticks.add(one, routed(one, width))
    return ticks.closed(LAST + 1)


def told(ticks: Sequence[ClosedTick]) -> Told:
    """The same as the oracle tells; a record twice in a tick is twice in the list."""
    rows = {
        one.tick: list(chain.from_iterable([number] * int(n) for number, n in enumerate(one.row)))
        for one in ticks
    }
    return {tick: row for tick, row in rows.items() if row}, sum(one.late for one in ticks)


def shown(ticks: Sequence[ClosedTick]) -> list[Any]:
    return [
        (
            one.tick, one.row.tolist(), one.late, one.records, one.dead_letters.sealed(),
            {tick: row.tolist() for tick, row in one.pending.items()},
        )
        for one in ticks
    ]  # fmt: skip


def given_records(batches: Sequence[Batch]) -> list[tuple[int, bytes, int | None]]:
    return [
        (label, bytes(payload), one.tick)
        for one in batches
        for payload, label in zip(one.payloads, one.labels, strict=True)
    ]


Made = Callable[..., PartitionTicks]
MADE: Mapping[str, tuple[Made, int | None]] = {
    "stamps": (partial(StampedTicks, grid=GRID, settle=SETTLE), SETTLE),
    "replay": (partial(MarkedTicks, marks=MARKS), None),
}


def check_reading(world: World, made: str, room: int, sizes: random.Random) -> None:
    """However fetches are cut, and whatever has room, the log gives what the oracle tells."""
    make, settle = MADE[made]
    expected = counted(world, settle)
    rows = {tick: sorted(row) for tick, row in expected[0].items()}
    whole = Broker(world, make, room).read(Place(0, 0), lambda: LARGE)
    first = closed(whole, world.numbers, world.offset)
    assert told(first) == (rows, expected[1])
    for most in (lambda: 1, lambda: sizes.randrange(400)):
        pieces = Broker(world, make, room).read(Place(0, 0), most)
        assert given_records(pieces) == given_records(whole)
        assert shown(closed(pieces, world.numbers, world.offset)) == shown(first)


def as_it_is(behind: Behind | None) -> Behind | None:
    return behind


def check_restarts(
    world: World, made: str, room: int, sizes: random.Random, kept: Callable[..., Any] = as_it_is
) -> int:
    """From every place that was handed out the rest follows: nothing lost, nothing twice, in the same ticks.

    Return at how many ends of ticks it began again.
    """
    make, _ = MADE[made]
    broker = Broker(world, make, room)
    batches = broker.read(Place(0, 0), lambda: sizes.randrange(600))
    records = given_records(batches)
    all_ticks = closed(batches, world.numbers, world.offset)
    given, cuts, ticks = 0, 0, TickAssembler([0], world.numbers)
    for one in batches:
        given += len(one.payloads)
        place = Place(0, one.position, kept(one.behind))
        rest = broker.read(place, lambda: sizes.randrange(600))
        assert given_records(rest) == records[given:]
        ticks.add(one, routed(one, world.numbers))
        for each in ticks.closed(LAST):
            if each.positions == {0: one.position} and each.marks[0] == one.mark:
                cuts += 1
                again = closed(rest, world.numbers, world.offset, each.cut)
                assert shown(again) == shown(all_ticks[each.tick + 1 :])
    return cuts


@pytest.fixture(autouse=True)
def _batches_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_ticks, "MOST", 3)


chances = st.integers(0, 2**32).map(random.Random)


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("room", [LARGE, SMALL, 0])
@given(chance=chances)
@settings(max_examples=60, deadline=None)
def test_a_log_gives_what_the_oracle_tells_however_it_is_cut(
    made: str, room: int, chance: random.Random
) -> None:
    check_reading(world(chance), made, room, chance)


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("room", [LARGE, SMALL, 0])
@given(chance=chances)
@settings(max_examples=30, deadline=None)
def test_every_place_that_is_handed_out_gives_exactly_the_rest(
    made: str, room: int, chance: random.Random
) -> None:
    check_restarts(world(chance, 22), made, room, chance)


@pytest.mark.parametrize("made", MADE)
def test_some_of_these_places_are_ends_of_ticks(made: str) -> None:
    chance = random.Random(1)
    assert check_restarts(world(chance, 60), made, LARGE, chance) > 3


def seen(check: Callable[..., object], made: str, **how: Any) -> bool:
    """Whether a check finds anything wrong in some random logs."""
    return any(_fails(check, made, seed, how) for seed in range(SEEDS))


def _fails(check: Callable[..., object], made: str, seed: int, how: Mapping[str, Any]) -> bool:
    chance = random.Random(seed)
    try:
        check(world(chance, 22), made, LARGE, chance, **how)
    except AssertionError:
        return True
    return False


def _aborted_too(ticks: PartitionTicks, batch: RecordBatch, take: Callable[..., Any]) -> Any:
    """Broken: what was aborted counts."""
    return take(ticks, batch._replace(kind=Kind.COMMIT) if batch.kind is Kind.ABORT else batch)


def _no_step_back(ticks: PartitionTicks, batch: RecordBatch, take: Callable[..., Any]) -> Any:
    """Broken: a batch with an earlier stamp is taken for one of the tick before it."""
    latest = max(batch.stamp, getattr(ticks, "latest", 0))
    ticks.latest = latest  # type: ignore[attr-defined]
    return take(ticks, batch._replace(stamp=latest))


@pytest.mark.parametrize("twin", [_aborted_too, _no_step_back])
def test_a_broken_reading_is_seen(
    twin: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = PartitionTicks.take
    monkeypatch.setattr(PartitionTicks, "take", lambda self, batch: twin(self, batch, whole))
    assert seen(check_reading, "stamps")


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize(
    "kept",
    [
        lambda _: None,
        lambda behind: behind and Behind(behind.start),
        lambda behind: behind and Behind(behind.start + 4, behind.done),
        lambda behind: behind and Behind(behind.start, behind.done + 1),
    ],
    ids=["all forgotten", "what was given forgotten", "the start too late", "one left out"],
)
def test_a_place_that_is_not_kept_whole_is_seen(made: str, kept: Callable[..., Any]) -> None:
    assert seen(check_restarts, made, kept=kept)
