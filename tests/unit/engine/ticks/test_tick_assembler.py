"""Closed ticks against a slow oracle, whatever the interleaving, the reads and the restart; broken twins are caught."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from stream_dp.engine.ports import Batch
from stream_dp.engine.tick_assembler import ClosedTick, Cut, Routed, TickAssembler
from stream_dp.journal.dead_letters import as_spans

WIDTH = 2
JUNK = -1


@dataclass(frozen=True)
class Event:
    """A record of tick `tick` that counts in `column`; JUNK is a dead letter."""

    tick: int
    column: int = 0


@dataclass(frozen=True)
class Mark:
    tick: int


Items: TypeAlias = Sequence[Event | Mark]
Flat: TypeAlias = tuple[Any, ...]
Make: TypeAlias = Callable[..., TickAssembler]

EVENTS = st.builds(Event, st.integers(0, 7) | st.just(JUNK), st.integers(0, WIDTH - 1))
MARKS = st.builds(Mark, st.integers(0, 7))
PARTITIONS = st.lists(st.lists(EVENTS | MARKS, max_size=25), min_size=1, max_size=3)


@dataclass(frozen=True)
class Reading:
    """Which partition is read next, how many items at most, and how many ticks are then taken."""

    partition: int
    size: int
    limit: int


READINGS = st.lists(
    st.builds(Reading, st.integers(0, 2), st.integers(1, 9), st.integers(0, 3)), max_size=40
)


def batches(partition: int, items: Items, begin: int, size: int) -> list[Batch]:
    """The next `size` items from position `begin`, cut behind each mark."""
    part = items[begin : begin + size]
    ends = [i + 1 for i, item in enumerate(part) if isinstance(item, Mark)]
    found = []
    for first, end in pairwise(sorted({0, *ends, len(part)})):
        run = part[first:end]
        last = run[-1]
        records = [item for item in run if isinstance(item, Event)]
        payloads = [b"%d %d" % (item.tick, item.column) for item in records]
        labels = [begin + first + i for i in range(len(records))]
        mark = last.tick if isinstance(last, Mark) else None
        found.append(Batch(partition, payloads, labels, begin + end, mark=mark))
    return found


def route(batch: Batch) -> Routed:
    routed = Routed({}, (), {})
    refused = []
    for payload, label in zip(batch.payloads, batch.labels, strict=True):
        tick, column = map(int, payload.split())
        if tick == JUNK:
            refused.append((label, "junk", None))
            continue
        routed.rows.setdefault(tick, np.zeros(WIDTH, np.int64))[column] += 1
        routed.records[tick] = routed.records.get(tick, 0) + 1
    routed.dead = as_spans(refused)
    return routed


def flat(closed: ClosedTick) -> Flat:
    pending = {tick: row.tolist() for tick, row in closed.pending.items()}
    letters = closed.dead_letters.sealed()
    dead = sorted((d.partition, n) for d in letters for a, b in d.ranges for n in range(a, b + 1))
    assert sum(letter.records for letter in letters) == len(dead)
    return (closed.tick, closed.row.tolist(), closed.positions, closed.marks, pending, dead,
            closed.late, closed.records)  # fmt: skip


def read(
    assembler: TickAssembler,
    partitions: Sequence[Items],
    readings: Sequence[Reading],
    positions: Mapping[int, int],
) -> list[ClosedTick]:
    """Read in this way from `positions`, then the rest, and return what closes."""
    at = {p: positions.get(p, 0) for p in range(len(partitions))}
    closed = assembler.closed(1)
    rest = [Reading(p, 100, 100) for p in at]
    for reading in [*readings, *rest]:
        p = reading.partition % len(partitions)
        for batch in batches(p, partitions[p], at[p], reading.size):
            assembler.add(batch, route(batch))
            at[p] = batch.position
        closed += assembler.closed(reading.limit)
    return closed + assembler.closed(100)


def run(
    make: Make, partitions: Sequence[Items], readings: Sequence[Reading], after: int = 0
) -> list[Flat]:
    """Everything that closes, with a restart behind the `after`-th closed tick (0: none)."""
    numbers = range(len(partitions))
    closed = read(make(numbers, WIDTH), partitions, readings, {})
    if 0 < after <= len(closed):
        cut = closed[after - 1]
        again = make(numbers, WIDTH, Cut(cut.tick + 1, cut.positions, cut.marks, cut.pending))
        closed[after:] = read(again, partitions, readings[::-1], cut.positions)
    return [flat(each) for each in closed]


def cut_of(items: Items, tick: int) -> int | None:
    """The position behind the first mark that closes this tick."""
    for i, item in enumerate(items):
        if isinstance(item, Mark) and item.tick >= tick:
            return i + 1
    return None


def passed(items: Items, position: int) -> int:
    """The highest mark before this position."""
    return max((i.tick for i in items[:position] if isinstance(i, Mark)), default=-1)


def live(items: Items, stop: int) -> list[Event]:
    """The events before `stop` whose tick had not been marked when they came."""
    return [e for i, e in enumerate(items[:stop])
            if isinstance(e, Event) and e.tick != JUNK and e.tick > passed(items, i)]  # fmt: skip


def oracle(partitions: Sequence[Items]) -> list[Flat]:
    """The closed ticks, from their definition."""
    found: list[Flat] = []
    before = dict.fromkeys(range(len(partitions)), 0)
    for tick in range(8):
        cuts = {p: cut_of(items, tick) for p, items in enumerate(partitions)}
        if None in cuts.values():
            return found
        ends = {p: max(cut or 0, before[p]) for p, cut in cuts.items()}
        rows: dict[int, list[int]] = {}
        for p, items in enumerate(partitions):
            for event in live(items, ends[p]):
                rows.setdefault(event.tick, [0] * WIDTH)[event.column] += 1
        pending = {t: row for t, row in rows.items() if t > tick}
        fresh = [(p, i, e) for p, items in enumerate(partitions)
                 for i, e in enumerate(items[: ends[p]])
                 if i >= before[p] and isinstance(e, Event)]  # fmt: skip
        dead = len([e for _, _, e in fresh if e.tick == JUNK])
        late = len([e for p, i, e in fresh
                    if e.tick != JUNK and e.tick <= passed(partitions[p], i)])  # fmt: skip
        marks = {p: passed(items, ends[p]) for p, items in enumerate(partitions)}
        found.append((tick, rows.get(tick, [0] * WIDTH), ends, marks, pending, dead, late,
                      len(fresh) - dead))  # fmt: skip
        before = ends
    return found


def holds(make: Make, partitions: Sequence[Items], readings: list[Reading], after: int) -> bool:
    """Whether the closed ticks are those of the definition and every record counts once."""
    closed = run(make, partitions, readings, after)
    counted = [(*each[:5], len(each[5]), *each[6:]) for each in closed]
    rows, late, records = (sum(np.sum(each[k]) for each in closed) for k in (1, 6, 7))
    pending = sum(map(sum, closed[-1][4].values())) if closed else 0
    return counted == oracle(partitions) and records == rows + late + pending


@settings(max_examples=300, deadline=None)
@given(PARTITIONS, READINGS, st.integers(0, 8))
def test_ticks_depend_on_the_records_alone(
    partitions: list[Items], readings: list[Reading], after: int
) -> None:
    assert holds(TickAssembler, partitions, readings, after)
    assert run(TickAssembler, partitions, readings, after) == run(TickAssembler, partitions, [])


class _ReadingMoment(TickAssembler):
    """Broken: a record goes into the tick that is open when it is read."""

    def add(self, batch: Batch, routed: Routed, *_: Any, **__: Any) -> None:
        rows = sum(routed.rows.values(), np.zeros(WIDTH, np.int64))
        number = sum(routed.records.values())
        moved = Routed({self._next: rows}, routed.dead, {self._next: number}) if number else routed
        super().add(batch, moved)


class _Forgetful(TickAssembler):
    """Broken: a restart forgets that a mark had skipped ahead, so what was late counts."""

    def __init__(self, partitions: Sequence[int], width: int, cut: Cut | None = None) -> None:
        super().__init__(partitions, width, cut and replace(cut, marks={}))


@pytest.mark.parametrize("twin", [_ReadingMoment, _Forgetful])
def test_a_broken_twin_is_caught(twin: Make) -> None:
    case = find(
        st.tuples(PARTITIONS, READINGS, st.integers(0, 8)),
        lambda drawn: not holds(twin, *drawn),
        settings=settings(max_examples=5000, deadline=None),
    )
    assert holds(TickAssembler, *case)


def test_a_late_record_and_a_mark_that_skips() -> None:
    partitions: list[Items] = [[Event(0), Mark(3), Event(2), Event(4), Mark(4)], [Mark(0), Mark(4)]]
    closed = run(TickAssembler, partitions, [])
    assert [each[0] for each in closed] == [0, 1, 2, 3, 4]
    assert [each[1] for each in closed] == [[1, 0], [0, 0], [0, 0], [0, 0], [1, 0]]
    assert [each[6] for each in closed] == [0, 0, 0, 0, 1]
    assert closed[0][3] == {0: 3, 1: 0}
    assert run(TickAssembler, partitions, [], after=1) == closed


def test_rows_handed_out_are_not_the_assemblers_own() -> None:
    assembler = TickAssembler((0,), WIDTH)
    row = np.array([1, 0])
    assembler.add(Batch(0, (b"x",), (0,), 1), Routed({1: row}, [], {1: 1}))
    row[0] = 9
    assembler.add(Batch(0, (), (), 2, mark=0), Routed({}, [], {}))
    with pytest.raises(ValueError, match="read-only"):
        assembler.closed(1)[0].pending[1][0] = 9
    assembler.add(Batch(0, (), (), 3, mark=1), Routed({}, [], {}))
    assert assembler.closed(1)[0].row.tolist() == [1, 0]


def test_ticks_share_the_rows_of_later_ones_and_keep_them_as_they_were() -> None:
    assembler = TickAssembler((0,), WIDTH)
    far = {tick: np.array([tick, 0]) for tick in range(10, 500)}
    assembler.add(Batch(0, (b"x",), (0,), 1, mark=3), Routed(far, [], {}))
    assembler.add(Batch(0, (b"x",), (1,), 2, mark=9), Routed({20: np.array([0, 1])}, [], {}))
    closed = assembler.closed(10)
    assert [tick.pending[20].tolist() for tick in closed] == [[20, 0]] * 4 + [[20, 1]] * 6
    assert len({id(row) for tick in closed for row in tick.pending.values()}) == 490 + 1
    assert [tick.pending.keys() == far.keys() for tick in closed] == [True] * 10
