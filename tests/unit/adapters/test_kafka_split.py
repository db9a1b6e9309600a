"""How records fall into ticks, without a broker."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.adapters.kafka_source import TICK_HEADER, StampTicks, split, split_marked
from stream_dp.errors import FailClosed, UsageError
from stream_dp.runtime.ports import Batch

ORIGIN, STEP = 1_000, 10


@dataclass
class Record:
    offset: int
    timestamp: int = 0
    value: bytes | None = b""
    headers: tuple[tuple[str, bytes], ...] = ()


def stamped(*stamps: int) -> list[Record]:
    return [Record(at, stamp, b"%d" % at) for at, stamp in enumerate(stamps)]


def shape(batches: list[Batch]) -> list[tuple[int | None, int | None, list[int], int]]:
    return [(one.tick, one.mark, list(one.labels), one.position) for one in batches]


def test_one_tick_is_one_batch_with_a_mark_only_for_the_ticks_before() -> None:
    batches, marked = split(3, stamped(1_000, 1_005, 1_009), ORIGIN, STEP, -1)
    assert shape(batches) == [(0, None, [0, 1, 2], 3)]
    assert batches[0].payloads == [b"0", b"1", b"2"]
    assert batches[0].partition == 3
    assert marked == -1


def test_a_later_tick_marks_all_before_it_at_its_first_record() -> None:
    batches, marked = split(0, stamped(1_009, 1_010, 1_055), ORIGIN, STEP, -1)
    assert shape(batches) == [
        (0, None, [0], 1),
        (None, 0, [], 1),
        (1, None, [1], 2),
        (None, 4, [], 2),
        (5, None, [2], 3),
    ]
    assert marked == 4


def test_a_clock_that_stepped_back_keeps_the_records_own_tick_and_marks_nothing() -> None:
    batches, marked = split(0, stamped(1_025, 1_019, 1_026), ORIGIN, STEP, 1)
    assert shape(batches) == [(2, None, [0], 1), (1, None, [1], 2), (2, None, [2], 3)]
    assert marked == 1


def test_a_step_back_within_a_group_whose_ends_agree_is_seen() -> None:
    batches, _ = split(0, stamped(1_005, 1_012, 1_006), ORIGIN, STEP, -1)
    assert [one.tick for one in batches if one.mark is None] == [0, 1, 0]


def test_records_from_before_the_origin_are_skipped() -> None:
    batches, marked = split(0, stamped(999, 1_000), ORIGIN, STEP, -1)
    assert shape(batches) == [(0, None, [1], 2)]
    assert marked == -1


@given(
    st.lists(st.integers(990, 1_080), min_size=1, max_size=30),
    st.lists(st.integers(1, 5), min_size=30, max_size=30),
)
def test_how_a_reader_groups_records_changes_nothing(stamps: list[int], sizes: list[int]) -> None:
    records = stamped(*stamps)
    whole, end = split(0, records, ORIGIN, STEP, -1)
    pieces: list[Batch] = []
    marked = -1
    for size in sizes:
        if records:
            group, records = records[:size], records[size:]
            batches, marked = split(0, group, ORIGIN, STEP, marked)
            pieces += batches
    assert marked == end
    assert [(one.mark, one.position) for one in pieces if one.mark is not None] == [
        (one.mark, one.position) for one in whole if one.mark is not None
    ]
    assert [(one.tick, at) for one in pieces for at in one.labels] == [
        (one.tick, at) for one in whole for at in one.labels
    ]


def test_replay_batches_end_at_marks_that_are_not_counted() -> None:
    mark = ((TICK_HEADER, b"7"),)
    records = [Record(0, value=b"a"), Record(2, value=None), Record(3, headers=mark), Record(4)]
    batches = split_marked(1, records)
    assert shape(batches) == [(None, 7, [0, 2], 4), (None, None, [4], 5)]
    assert batches[0].payloads == [b"a", b""]


def test_replay_without_marks_is_one_batch_and_other_headers_are_ignored() -> None:
    assert shape(split_marked(0, stamped(1, 2))) == [(None, None, [0, 1], 2)]
    traced = [Record(0, headers=(("trace", b"x"),))]
    assert shape(split_marked(0, traced)) == [(None, None, [0], 1)]


@pytest.mark.parametrize("value", [b"", b"-1", b"x", b"1.5"])
def test_a_mark_that_is_no_number_stops(value: bytes) -> None:
    with pytest.raises(FailClosed, match=TICK_HEADER):
        split_marked(0, [Record(0, headers=((TICK_HEADER, value),))])


def test_live_ticks_need_a_step() -> None:
    with pytest.raises(UsageError):
        StampTicks(0, 0)
