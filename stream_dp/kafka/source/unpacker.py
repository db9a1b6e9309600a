"""The records of a batch: their values, their offsets, and spans of unreadable records.

Rules: readable records are read, and unreadable ones become refusals with their offsets; no content of a batch
raises. Unpacking is bounded. Headers are read only if tick marks are asked for. A record's offset is its place in
the batch, if the batch is whole, whatever the record states about itself. `null` is an empty value.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, cast

from stream_dp.journal.dead_letters import TOO_LARGE, UNREADABLE_BATCH, UNREADABLE_RECORD, Span
from stream_dp.kafka.client.clients import library
from stream_dp.kafka.client.tick_marks import claimed
from stream_dp.kafka.source.inflate import DamagedError, TooLargeError, inflate
from stream_dp.kafka.source.record_batches import (
    CODEC,
    FORMAT,
    HEADER,
    Kind,
    RecordBatch,
    Unpacked,
)
from stream_dp.kafka.source.record_walk import MOST_HEADERS, pieces, walk

LIMIT_BYTES = 16 * 2**20
LIMIT_RECORDS = 2**17
"""The most records of a batch: many more than producers send, few enough to read at once."""
_PARSED_BYTES = 2**20
_PIECE_BYTES = 2**16
_ATTRIBUTES_AT = 5
_LENGTH_AT = 1
_BEFORE_LENGTH = 12
_value = attrgetter("value")


class Unpacker:
    """Unpacks batches; `marks` says whether to look for tick marks, `limit` bounds the expanded size of a batch."""

    def __init__(self, *, marks: bool, limit: int = LIMIT_BYTES) -> None:
        self._marks = marks
        self._limit = limit
        self._parse = library(".record.default_records").DefaultRecordBatch

    def unpack(self, batch: RecordBatch) -> Unpacked:
        """Return all records of the batch."""
        if batch.content is not None:
            return batch.content
        if batch.kind is Kind.FOREIGN:
            return _refused(batch, UNREADABLE_BATCH)
        packed = batch.raw[HEADER.size :]
        if not batch.codec:
            return self._records(batch, batch.raw, packed)
        try:
            data = inflate(batch.codec, packed, self._limit)
        except TooLargeError:
            return _refused(batch, TOO_LARGE)
        except DamagedError:
            return _refused(batch, UNREADABLE_BATCH)
        return self._records(batch, _plain(batch.raw, data), data)

    def _records(
        self, batch: RecordBatch, plain: bytes | memoryview, data: bytes | bytearray | memoryview
    ) -> Unpacked:
        if batch.records > LIMIT_RECORDS:
            return _refused(batch, TOO_LARGE)
        if len(data) <= _PARSED_BYTES:  # a large batch may hold millions of headers
            try:
                return Unpacked(*self._parsed(plain, batch.base))
            except Exception:  # noqa: BLE001, S110 - memory and Unicode errors too: it is read otherwise
                pass
        return self._pieces(batch, memoryview(data))

    def _pieces(self, batch: RecordBatch, data: memoryview) -> Unpacked:
        """Unpack piece by piece, so that an unreadable record makes only its piece slow."""
        found = Unpacked([], [], [], {})
        base = batch.base
        for begin, end, records in pieces(data, batch.records, _PIECE_BYTES):
            part = data[begin:end]
            _join(found, self._piece(part, base, records))
            base += records
        if base < batch.base + batch.records:
            found.refused.append(Span(UNREADABLE_RECORD, None, base, batch.next - 1))
        return found

    def _piece(self, data: memoryview, base: int, records: int) -> Unpacked:
        if len(data) <= _PIECE_BYTES:
            try:
                return Unpacked(*self._parsed(_batch_of(data, base, records), base))
            except Exception:  # noqa: BLE001, S110 - see `_records`
                pass
        return self._walked(data, base, records)

    def _parsed(
        self, plain: bytes | memoryview, base: int
    ) -> tuple[list[bytes], range, list[Span], dict[int, bytes]]:
        """Parse with the client library's parser, which accepts all records or none."""
        marks: dict[int, bytes] = {}
        if not self._marks:
            values = list(map(_value, self._parse(plain)))
        else:
            records = list(self._parse(plain))
            values, marks = list(map(_value, records)), _ticks(records)
        if None in values:
            values = [value or b"" for value in values]
        return values, range(base, base + len(values)), [], marks

    def _walked(self, data: memoryview, base: int, records: int) -> Unpacked:
        found = Unpacked([], offsets := [], [], {})
        for at, record in enumerate(walk(data, records, self._marks), base):
            if record is None:
                found.refused.append(Span(UNREADABLE_RECORD, None, at, at))
                continue
            if record.headers and (mark := claimed(record.headers, record.value)) is not None:
                found.marks[len(found.values)] = mark
            found.values.append(record.value or b"")
            offsets.append(at)
        return found


def _join(found: Unpacked, more: Unpacked) -> None:
    """Append `more` to `found`, whose offsets are a list."""
    before = len(found.values)
    found.marks.update({before + at: mark for at, mark in more.marks.items()})
    found.values.extend(more.values)
    cast("list[int]", found.offsets).extend(more.offsets)
    found.refused.extend(more.refused)


def _ticks(records: Sequence[Any]) -> dict[int, bytes]:
    """Return the tick headers of records, by index."""
    return {
        index: mark
        for index, one in enumerate(records)
        if one.headers and (mark := claimed(one.headers[:MOST_HEADERS], one.value)) is not None
    }


def _plain(raw: bytes | memoryview, data: bytes | bytearray) -> bytes:
    """Return the batch as it would be without compression."""
    header = list(HEADER.unpack_from(raw))
    header[_LENGTH_AT] = HEADER.size - _BEFORE_LENGTH + len(data)
    header[_ATTRIBUTES_AT] &= ~CODEC
    return HEADER.pack(*header) + data


def _batch_of(data: memoryview, base: int, records: int) -> bytes:
    """Return records as a batch, for the parser."""
    length = HEADER.size - _BEFORE_LENGTH + len(data)
    return (
        HEADER.pack(base, length, -1, FORMAT, 0, 0, records - 1, 0, 0, -1, -1, -1, records) + data
    )


def _refused(batch: RecordBatch, reason: str) -> Unpacked:
    return Unpacked([], range(0), [Span(reason, None, batch.base, batch.next - 1)], {})
