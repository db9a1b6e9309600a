"""How records fall into ticks, without a broker."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError
from unit.kafka.source.record_worlds import Given as Record
from unit.kafka.source.record_worlds import Log, batch, old, record

from stream_dp.core.time import TickGrid
from stream_dp.engine.ports import Batch
from stream_dp.engine.tick_assembler import Routed, TickAssembler
from stream_dp.journal.dead_letters import BAD_MARK, UNREADABLE_BATCH, Span
from stream_dp.kafka.client.tick_marks import TICK_HEADER, TickMarks
from stream_dp.kafka.source.batches import batches as as_batches
from stream_dp.kafka.source.record_batches import RecordBatch
from stream_dp.kafka.source.ticks import MarkedTicks, PartitionTicks, Place, Room, StampedTicks
from stream_dp.kafka.source.unpacker import Unpacker
from stream_dp.records.endpoints import WallClock

ORIGIN, STEP, SETTLE = 1_000, 10, 4
GRID = TickGrid(ORIGIN, STEP)
MARKS = TickMarks(bytes(32), "replay", GRID)


def taken(ticks: PartitionTicks, out: list[Batch], batches: Iterable[RecordBatch]) -> list[Batch]:
    """What comes out of these batches, of which none is to be read again."""
    for one in batches:
        assert ticks.take(one) is None
    ticks.flush()
    return out


def by_stamp(place: Place, settle: int) -> tuple[StampedTicks, list[Batch]]:
    out: list[Batch] = []
    return StampedTicks(place, Unpacker(marks=False), Room(), out, GRID, settle), out


def by_mark(place: Place) -> tuple[MarkedTicks, list[Batch]]:
    out: list[Batch] = []
    return MarkedTicks(place, Unpacker(marks=True), Room(), out, MARKS), out


def split(
    partition: int, records: Sequence[Record], marked: int = -1, settle: int = 0
) -> tuple[list[Batch], int]:
    """What one fetch of these records gives, by append stamp, and the last tick marked behind it."""
    ticks, out = by_stamp(Place(partition, records[0].offset), settle)
    ticks.marked = marked
    return taken(ticks, out, as_batches(records)), ticks.marked


def split_marked(partition: int, records: Sequence[Record]) -> list[Batch]:
    """What one fetch of these records of a replay gives."""
    return taken(*by_mark(Place(partition, records[0].offset)), as_batches(records))


def stamped(*stamps: int) -> list[Record]:
    return [Record(at, stamp, b"%d" % at) for at, stamp in enumerate(stamps)]


def shape(batches: list[Batch]) -> list[tuple[int | None, int | None, list[int], int]]:
    return [(one.tick, one.mark, list(one.labels), one.position) for one in batches]


@pytest.mark.parametrize(
    ("stamps", "before", "settle", "wanted", "after"),
    [
        ((1_009, 1_010, 1_055), -1, 0, [(0, 0, [0], 1), (1, 4, [1], 2), (5, None, [2], 3)], 4),
        ((1_025, 1_019, 1_026), 1, 0, [(2, None, [0], 1), (1, None, [1], 2), (2, None, [2], 3)], 1),
        ((999, 1_000), -1, 0, [(0, None, [1], 2)], -1),
        ((1_009, 1_010, 1_013, 1_014, 1_019), -1, SETTLE,
         [(0, None, [0], 1), (1, 0, [1, 2], 3), (1, None, [3, 4], 5)], 0),
        ((1_000, 1_030, 1_034, 1_035), -1, 25,
         [(0, None, [0], 1), (3, 0, [1, 2], 3), (3, None, [3], 4)], 0),
    ],
    ids=["a later tick marks all before it", "a step back keeps its own tick and marks nothing",
         "what is from before the origin is skipped", "a mark lies at the first record past its settling",
         "a settling of many ticks"],
)  # fmt: skip
def test_records_fall_into_ticks_by_their_stamps(
    stamps: tuple[int, ...], before: int, settle: int, wanted: list[Any], after: int
) -> None:
    batches, marked = split(0, stamped(*stamps), before, settle)
    assert (shape(batches), marked) == (wanted, after)


def outcome(records: Sequence[Record], settle: int) -> tuple[dict[int, int], int]:
    """How many records each tick holds once all have closed, and how many are late."""
    batches, marked = split(0, records, -1, settle)
    ticks = TickAssembler([0], 1)
    for one in [*batches, Batch(0, (), (), 99, mark=max(20, marked))]:
        count = len(one.payloads)
        rows = {} if one.tick is None else {one.tick: np.array([count])}
        ticks.add(one, Routed(rows, [], dict.fromkeys(rows, count)))
    closed = ticks.closed(50)
    return {t.tick: int(t.row[0]) for t in closed if t.row[0]}, sum(t.late for t in closed)


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=25).map(sorted),
    st.lists(st.integers(0, SETTLE), min_size=25, max_size=25),
    st.integers(0, 24),
)
def test_a_clock_that_steps_back_within_the_settling_changes_no_tick(
    times: list[int], errors: list[int], at: int
) -> None:
    records = stamped(*(ORIGIN + t - e for t, e in zip(times, errors, strict=False)))
    records = [one for one in records if one.timestamp >= ORIGIN]
    exact = Counter((one.timestamp - ORIGIN) // STEP for one in records)
    assume(len(records) > 1)
    assert outcome(records, SETTLE) == (dict(exact), 0)
    dropped = records[at % len(records)]
    exact[(dropped.timestamp - ORIGIN) // STEP] -= 1
    rest = [one for one in records if one is not dropped]
    assert outcome(rest, SETTLE) == ({k: n for k, n in exact.items() if n}, 0)


def test_one_record_makes_no_other_late_where_the_clock_steps_back() -> None:
    before, the_one, after = stamped(1_005, 1_013, 1_009)
    assert outcome([before, the_one, after], SETTLE) == ({0: 2, 1: 1}, 0)
    assert outcome([before, after], SETTLE) == ({0: 2}, 0)
    assert outcome([before, the_one, after], 0) == ({0: 1, 1: 1}, 1)  # without a settling it did


def test_batches_of_an_older_format_are_told_wherever_they_lie() -> None:
    first, second = batch([record(b"a")], 1, 1_005), batch([record(b"b")], 3, 1_006)
    raw = [old(0, b"x"), first, old(2, b"x"), second]
    out = taken(*by_stamp(Place(0, 0), SETTLE), Log(raw).parsed(0, 10_000))
    refused = [span for one in out for span in one.refused]
    assert refused == [Span(UNREADABLE_BATCH, None, at, at) for at in (0, 2)]
    counted = [(bytes(value), one.tick) for one in out for value in one.payloads]
    assert counted == [(b"a", 0), (b"b", 0)]


def test_one_record_among_many_that_its_producer_stamped_is_noticed() -> None:
    records = stamped(1_000, 1_001, 1_002)
    assert all(one.appended for one in as_batches(records))
    records[1].timestamp_type = 0
    assert [one.appended for one in as_batches(records)] == [True, False, True]


def test_replay_batches_end_at_marks_that_are_not_counted() -> None:
    mark = ((TICK_HEADER, MARKS.sign(1, 7)),)
    records = [Record(0, value=b"a"), Record(2, value=None), Record(3, headers=mark), Record(4)]
    batches = split_marked(1, records)
    assert shape(batches) == [(None, 7, [0, 2], 4), (None, None, [4], 5)]
    assert batches[0].payloads == [b"a", b""]


@pytest.mark.parametrize("value", [b"", b"-1", b"7", b"1.5", b"9" * 5_000, MARKS.sign(1, 7)])
def test_what_only_claims_to_be_a_mark_ends_nothing(value: bytes) -> None:
    records = [Record(0), Record(1, headers=((TICK_HEADER, value),)), Record(2)]
    (found,) = split_marked(0, records)
    assert shape([found]) == [(None, None, [0, 2], 3)]
    assert found.refused == [Span(BAD_MARK, None, 1, 1)]


def test_what_cannot_be_read_beside_a_mark_is_told_on_its_side_of_it() -> None:
    bad = record(None, tail=b"\x10x")
    sign = record(b"", headers=[(TICK_HEADER.encode(), MARKS.sign(0, 7))])
    raw = [batch([record(b"a"), bad, sign, bad, record(b"c")]), batch([bad], 5)]
    out = taken(*by_mark(Place(0, 0)), Log(raw).parsed(0, 10_000))
    assert shape(out) == [(None, 7, [0], 3), (None, None, [4], 6)]
    told = [[(span.first, span.last) for span in one.refused] for one in out]
    assert told == [[(1, 1)], [(3, 3), (5, 5)]]


def test_a_delay_leaves_time_for_the_clocks_and_for_the_commit() -> None:
    assert WallClock.model_validate({"step": "1s", "delay": "100ms"}).delay == 100
    with pytest.raises(ValidationError, match=r"100ms or more: half .* clocks .* half .* commit"):
        WallClock.model_validate({"step": "1s", "delay": "99ms"})
