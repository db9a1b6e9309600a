"""What the records of a batch hold: their values, where each lies, and what cannot be read.

Rules: what can be read is read, and what cannot is a refusal with its offsets; nothing that a batch holds raises.
Unpacking is bounded. Headers are looked at where tick marks are asked for, and for them only. A record's offset is its
place in the batch where the batch is whole, whatever the record says of itself. `null` is an empty value.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from stream_dp.adapters.inflate import DamagedError, TooLargeError, inflate
from stream_dp.adapters.kafka_client import library
from stream_dp.adapters.record_batches import (
    CODEC,
    HEADER,
    Kind,
    RecordBatch,
    Unpacked,
)
from stream_dp.adapters.record_walk import walk
from stream_dp.adapters.tick_marks import claimed
from stream_dp.runtime.dead_letters import TOO_LARGE, UNREADABLE_BATCH, UNREADABLE_RECORD, Span

LIMIT_BYTES = 16 * 2**20
_PARSED_BYTES = 2**20
_ATTRIBUTES_AT = 5
_LENGTH_AT = 1
_BEFORE_LENGTH = 12
_value = attrgetter("value")


class Unpacker:
    """Unpacks batches; `marks` says whether tick marks are looked for, `limit` bounds what a batch may expand to."""

    def __init__(self, *, marks: bool, limit: int = LIMIT_BYTES) -> None:
        self._marks = marks
        self._limit = limit
        self._parse = library(".record.default_records").DefaultRecordBatch

    def unpack(self, batch: RecordBatch) -> Unpacked:
        """Everything in the batch."""
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
        if len(data) <= _PARSED_BYTES:  # a large one may hold millions of headers
            try:
                return self._parsed(batch, plain)
            except Exception:  # noqa: BLE001, S110 - memory and Unicode errors too: it is read otherwise
                pass
        return self._walked(batch, memoryview(data))

    def _parsed(self, batch: RecordBatch, plain: bytes | memoryview) -> Unpacked:
        """By the client library's parser, which takes all or nothing."""
        if not self._marks:
            values, marks = list(map(_value, self._parse(plain))), {}
        else:
            records = list(self._parse(plain))
            values, marks = list(map(_value, records)), _ticks(records)
        if None in values:
            values = [value or b"" for value in values]
        return Unpacked(values, _offsets(batch, len(values)), [], marks)

    def _walked(self, batch: RecordBatch, data: memoryview) -> Unpacked:
        values: list[bytes] = []
        offsets: list[int] = []
        refused: list[Span] = []
        marks: dict[int, bytes] = {}
        places = _offsets(batch, batch.records)
        seen = 0
        for at, record in zip(places, walk(data, batch.records, self._marks), strict=False):
            seen += 1
            if record is None:
                refused.append(Span(UNREADABLE_RECORD, None, at, at))
                continue
            if record.headers and (mark := claimed(record.headers, record.value)) is not None:
                marks[len(values)] = mark
            values.append(record.value or b"")
            offsets.append(at)
        if seen < len(places):
            refused.append(Span(UNREADABLE_RECORD, None, places[seen], batch.next - 1))
        return Unpacked(values, offsets, refused, marks)


def _offsets(batch: RecordBatch, count: int) -> range:
    """The offsets of its records, from its first on: brokers take no batch whose count is another."""
    return range(batch.base, batch.base + count)


def _ticks(records: Sequence[Any]) -> dict[int, bytes]:
    """What they claim to mark, by record."""
    return {
        index: mark
        for index, one in enumerate(records)
        if one.headers and (mark := claimed(one.headers, one.value)) is not None
    }


def _plain(raw: bytes | memoryview, data: bytes | bytearray) -> bytes:
    """The batch as it would be without compression."""
    header = list(HEADER.unpack_from(raw))
    header[_LENGTH_AT] = HEADER.size - _BEFORE_LENGTH + len(data)
    header[_ATTRIBUTES_AT] &= ~CODEC
    return HEADER.pack(*header) + data


def _refused(batch: RecordBatch, reason: str) -> Unpacked:
    return Unpacked([], range(0), [Span(reason, None, batch.base, batch.next - 1)], {})
