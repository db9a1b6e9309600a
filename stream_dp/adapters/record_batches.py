"""Record batches of format 2 as the brokers send them: where each begins and ends, and what its header says.

Rules: only headers are read here; nothing is unpacked and no record is looked at. A cut batch at the end of a fetch is
left out, for the next fetch brings it whole. What is no batch of format 2 is told as such, with its offsets. Source:
the message format of the Kafka protocol. This file knows no client, no clock and no tick.
"""

import struct
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from stream_dp.adapters.record_walk import walk
from stream_dp.runtime.dead_letters import Span

HEADER = struct.Struct(">qiibIhiqqqhii")
CODEC, APPENDED, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
_LENGTH = struct.Struct(">qi")
_FORMAT = 2
_AFTER_LENGTH = _LENGTH.size
_MAGIC_AT = 16
_CONTROL_KEY = struct.Struct(">hh")


class Kind(Enum):
    """What a batch is."""

    DATA = "records"
    COMMIT = "the end of a transaction that counts"
    ABORT = "the end of a transaction that never was"
    OTHER = "nothing that counts: another control record, or the records of a transaction that never was"
    FOREIGN = "an older format"
    DAMAGED = "no batch: to be read again"


class Unpacked(NamedTuple):
    """Values with their offsets, spans of what cannot be read, and by index of a value what its tick header holds."""

    values: list[bytes]
    offsets: Sequence[int]
    refused: list[Span]
    marks: dict[int, bytes]

    def behind(self, offset: int) -> "Unpacked":
        """What lies at `offset` or behind it."""
        before = sum(each < offset for each in self.offsets)
        refused = [one._replace(first=max(one.first, offset)) for one in self.refused]
        return Unpacked(
            self.values[before:],
            self.offsets[before:],
            [one for one in refused if one.first <= one.last],
            {at - before: mark for at, mark in self.marks.items() if at >= before},
        )


class RecordBatch(NamedTuple):
    """A batch by its header: offsets from `base` up to `next`, appended at `stamp` (ms) if `appended`.

    `producer` is the id of the producer of a transaction, None outside of transactions; `records` is how many the
    header promises; `raw` the whole batch, or what is in it where somebody else has unpacked it.
    """

    kind: Kind
    base: int
    next: int
    stamp: int
    appended: bool
    codec: int
    producer: int | None
    records: int
    raw: bytes | memoryview | Unpacked

    def kept(self) -> "RecordBatch":
        """Return this batch with bytes of its own, so that the rest of its fetch can go."""
        return self._replace(raw=bytes(self.raw)) if isinstance(self.raw, memoryview) else self


def record_batches(fetched: bytes, position: int) -> Iterator[RecordBatch]:
    """The whole batches in `fetched` that reach to `position` or beyond, in order.

    Raises:
        ValueError: the bytes are no sequence of batches; reading them again may help.
    """
    view, at = memoryview(fetched), 0
    while len(fetched) - at >= HEADER.size:
        base, length = _LENGTH.unpack_from(fetched, at)
        end = at + _AFTER_LENGTH + length
        if end > len(fetched):
            return
        if length <= _MAGIC_AT - _AFTER_LENGTH:
            raise ValueError("a batch without a header")
        found = _batch(fetched, view[at:end], at, base, position)
        if found.next > position:
            yield found
            position = found.next
        at = end


def _batch(fetched: bytes, raw: memoryview, at: int, base: int, position: int) -> RecordBatch:
    if fetched[at + _MAGIC_AT] != _FORMAT:
        # Of older formats `base` is the last offset of a compressed set, and the first one is not told.
        start = min(base, position)
        return RecordBatch(Kind.FOREIGN, start, base + 1, 0, False, 0, None, 0, raw)
    if len(raw) < HEADER.size:
        raise ValueError("a batch without a header")
    _, _, _, _, _, attributes, last, _, stamp, producer, _, _, count = HEADER.unpack_from(
        fetched, at
    )
    if last < 0:
        raise ValueError("a batch that ends before it begins")
    return RecordBatch(
        _control(raw) if attributes & CONTROL else Kind.DATA,
        base,
        base + last + 1,
        stamp,
        bool(attributes & APPENDED),
        attributes & CODEC,
        producer if attributes & (TRANSACTIONAL | CONTROL) else None,
        count,
        raw,
    )


def _control(raw: memoryview) -> Kind:
    """What a control batch says: its one record has a key of (version, type)."""
    record = next(walk(raw[HEADER.size :], 1, headers=False), None)
    if record is None or record.key is None or len(record.key) < _CONTROL_KEY.size:
        return Kind.OTHER
    _, kind = _CONTROL_KEY.unpack_from(record.key)
    return {0: Kind.ABORT, 1: Kind.COMMIT}.get(kind, Kind.OTHER)
