"""How consecutive records of one partition fall into ticks, and where the marks lie between them.

Rules: a record's tick is its append stamp's (live) or is left to its own time (replay). Live, the mark of a
tick lies before the first record stamped `settle` or more after the tick's end, so a record is late only
where the brokers' clock stepped back by more than `settle`. In replay, marks are records (`tick_marks`); one
that claims to be a mark and is none ends nothing. Pure: this file knows no client, and how a reader groups
records changes nothing.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from stream_dp.adapters.tick_marks import TickMarks, claimed
from stream_dp.core.tick_grid import TickGrid
from stream_dp.runtime.ports import Batch

_APPENDED = 1
_stamp = attrgetter("timestamp")
_kind = attrgetter("timestamp_type")
_headers = attrgetter("headers")


def stamped_on_arrival(records: Sequence[Any]) -> bool:
    """Whether the brokers stamped every one of these records."""
    return set(map(_kind, records)) == {_APPENDED}


def split(
    partition: int, records: Sequence[Any], grid: TickGrid, marked: int, settle: int = 0
) -> tuple[list[Batch], int]:
    """Consecutive stamped records as batches of one tick each, with the marks between them.

    `marked` is the last tick marked in this partition (-1 for none); the new one is returned. A record of
    a tick that was marked before (the brokers' clock stepped back) keeps its tick.
    """
    stamps = list(map(_stamp, records))
    first, last = grid.tick_of(min(stamps)), grid.tick_of(max(stamps))
    if first == last and grid.passed(max(stamps) - settle) <= marked:
        return _run(partition, records, first), marked
    batches: list[Batch] = []
    start, tick = 0, grid.tick_of(stamps[0])
    for at, stamp in enumerate(stamps):
        here, passed = grid.tick_of(stamp), grid.passed(stamp - settle)
        if here != tick or passed > marked:
            batches += _run(partition, records[start:at], tick)
            start, tick = at, here
        if passed > marked:
            marked = passed
            batches.append(Batch(partition, (), (), records[at].offset, mark=marked))
    return batches + _run(partition, records[start:], tick), marked


def split_marked(partition: int, records: Sequence[Any], marks: TickMarks) -> list[Batch]:
    """Consecutive records of a replay as batches that end at its marks."""
    if not any(map(_headers, records)):
        return [_batch(partition, records)]
    batches: list[Batch] = []
    run: list[Any] = []
    for record in records:
        mark = mark_of(partition, record, marks)
        if mark is None:
            run.append(record)  # also one that only claims to be a mark
            continue
        payloads, labels = _payloads(run), _labels(run)
        batches.append(Batch(partition, payloads, labels, record.offset + 1, mark=mark))
        run = []
    return [*batches, _batch(partition, run)] if run else batches


def mark_of(partition: int, record: Any, marks: TickMarks) -> int | None:
    """The tick that a record of a replay marks, None for one that is not a mark."""
    claim = claimed(record.headers, record.value) if record.headers else None
    return None if claim is None else marks.read(partition, claim)


def _run(partition: int, run: Sequence[Any], tick: int) -> list[Batch]:
    """The batch of a run; nothing for one that is empty or lies before the origin."""
    return [_batch(partition, run, tick)] if run and tick >= 0 else []


def _batch(partition: int, run: Sequence[Any], tick: int | None = None) -> Batch:
    return Batch(partition, _payloads(run), _labels(run), run[-1].offset + 1, tick)


def _payloads(run: Sequence[Any]) -> list[bytes]:
    return [record.value or b"" for record in run]


def _labels(run: Sequence[Any]) -> Sequence[int]:
    if run and run[-1].offset - run[0].offset == len(run) - 1:
        return range(run[0].offset, run[-1].offset + 1)
    return [record.offset for record in run]
