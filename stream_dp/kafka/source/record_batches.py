"""Record batches of format 2 as the brokers send them: where each begins and ends, and what its header says.

Rules: only headers are read here; nothing is unpacked and no record is looked at, but checksums are. A cut batch at
the end of a fetch is left out, for the next fetch brings it whole. What is of an older format is told as such, with its
offsets. Source:
the message format of the Kafka protocol. This file knows no client, no clock and no tick.
"""

import importlib
import struct
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import cache
from typing import NamedTuple, TypeAlias

from stream_dp.journal.dead_letters import Span
from stream_dp.kafka.client.clients import library
from stream_dp.kafka.source.record_walk import walk

HEADER = struct.Struct(">qiibIhiqqqhii")
CODEC, APPENDED, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
_LENGTH = struct.Struct(">qi")
FORMAT = 2
_FORMAT_AT, _CHECKED_FROM = 16, 21
_CRC, _ATTRIBUTES, _LAST, _STAMP, _RECORDS = 4, 5, 6, 8, 12
_JOINED_BYTES = 256 * 1024
_LARGE_BYTES = 64 * 1024
"""A batch of so many bytes is large enough alone: joining would only copy it."""
_JOINED_RECORDS = 2**15
"""Joined batches have no more records, so that none is refused for those beside it (`unpacker.LIMIT_RECORDS`)."""
_CONTROL_KEY = struct.Struct(">hh")


Cell: TypeAlias = Callable[[int], range]


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
    """A batch by its header: offsets from `base` up to `next`, stamped `stamp` (ms) as its `attributes` say.

    `producer` is the id of the producer of a transaction, None outside of transactions; `records` is how many the
    header promises; `raw` the whole batch; `content` what is in it, where the client library has unpacked it.
    """

    kind: Kind
    base: int
    next: int
    stamp: int
    attributes: int
    producer: int | None
    records: int
    raw: memoryview
    content: Unpacked | None = None

    @property
    def appended(self) -> bool:
        """Whether the stamp is that of its arrival."""
        return bool(self.attributes & APPENDED)

    @property
    def codec(self) -> int:
        """How its records are compressed; 0 for not."""
        return self.attributes & CODEC

    @property
    def plain(self) -> bool:
        """Whether its header says nothing but the usual."""
        return self.attributes == APPENDED and self.records == self.next - self.base

    def kept(self) -> "RecordBatch":
        """Return this batch with bytes of its own, so that the rest of its fetch can go."""
        return self._replace(raw=memoryview(bytes(self.raw)))


class _Run:
    """Plain batches that follow each other, with stamps in one cell, as one."""

    def __init__(self, first: RecordBatch, cell: range) -> None:
        self.next = first.next
        self.records = first.records
        self.cell = cell
        self.size = len(first.raw)
        self._first = first
        self._parts = [first.raw]
        self._stamp = first.stamp

    def join(self, raw: memoryview, following: int, stamp: int) -> None:
        """Add a batch that reaches up to `following`."""
        self.records += following - self.next
        self.next = following
        self.size += len(raw)
        self._parts.append(raw)
        if stamp > self._stamp:
            self._stamp = stamp

    def batch(self) -> RecordBatch:
        """Return it as one batch, with a header of its own."""
        if len(self._parts) == 1:
            return self._first
        base, stamp, records = self._first.base, self._stamp, self.records
        body = b"".join([part[HEADER.size :] for part in self._parts])
        length = HEADER.size - _LENGTH.size + len(body)
        header = HEADER.pack(
            base, length, -1, FORMAT, 0, APPENDED, records - 1, stamp, stamp, -1, -1, -1, records
        )
        raw = memoryview(header + body)
        return RecordBatch(Kind.DATA, base, self.next, stamp, APPENDED, None, records, raw)


def record_batches(
    fetched: bytes, position: int, cell: Cell | None = None
) -> Iterator[RecordBatch]:
    """The whole batches in `fetched` that reach to `position` or beyond, in order.

    With `cell`, plain batches that follow each other are joined to larger ones (of a fresh header), as long as their
    stamps lie in one cell: the range of stamps that `cell` gives for the first one's.

    Raises:
        ValueError: the bytes are not what a producer sent; reading them again may help.
    """
    view, at, size = memoryview(fetched), 0, len(fetched)
    run: _Run | None = None
    while size - at > _FORMAT_AT:
        base, length = _LENGTH.unpack_from(fetched, at)
        begin, at = at, at + _LENGTH.size + length
        if at > size:
            break
        if length <= _FORMAT_AT - _LENGTH.size:
            raise ValueError("a batch without a header")
        raw = view[begin:at]
        if raw[_FORMAT_AT] != FORMAT:
            found = _foreign(raw, base, position if run is None else run.next)
        else:
            header = _header(raw)
            if run is not None and len(raw) < _LARGE_BYTES and _joins(run, header):
                run.join(raw, base + header[_RECORDS], header[_STAMP])
                continue
            found = _batch(header, raw)
        if run is not None:
            yield run.batch()
            position, run = run.next, None
        if cell is not None and base >= position and found.plain and len(raw) < _LARGE_BYTES:
            run = _Run(found, cell(found.stamp))
        elif found.next > position:
            yield found
            position = found.next
    if run is not None:
        yield run.batch()


def _header(raw: memoryview) -> tuple[int, ...]:
    """The fields of the header of a batch that is as it was sent."""
    if len(raw) < HEADER.size:
        raise ValueError("a batch without a header")
    header = HEADER.unpack_from(raw)
    if header[_LAST] < 0 or _checksum()(raw[_CHECKED_FROM:]) != header[_CRC]:
        raise ValueError("a damaged batch")
    return header


def _joins(run: _Run, header: tuple[int, ...]) -> bool:
    """Whether this batch goes on with the run."""
    return (
        header[_ATTRIBUTES] == APPENDED
        and header[0] == run.next
        and header[_STAMP] in run.cell
        and header[_RECORDS] == header[_LAST] + 1
        and run.size < _JOINED_BYTES
        and run.records + header[_RECORDS] <= _JOINED_RECORDS
    )


def _batch(header: tuple[int, ...], raw: memoryview) -> RecordBatch:
    base, _, _, _, _, attributes, last, _, stamp, producer, _, _, records = header
    kind = _control(raw) if attributes & CONTROL else Kind.DATA
    of_transaction = producer if attributes & (TRANSACTIONAL | CONTROL) else None
    return RecordBatch(kind, base, base + last + 1, stamp, attributes, of_transaction, records, raw)


def _foreign(raw: memoryview, last: int, position: int) -> RecordBatch:
    """A batch of an older format, of which the last offset is known; the first one of a compressed set is not."""
    return RecordBatch(Kind.FOREIGN, min(last, position), last + 1, 0, 0, None, 0, raw)


@cache
def _checksum() -> Callable[[memoryview], int]:
    """CRC-32C by the processor's instruction where its package is built; else by the client library's table."""
    try:
        check: Callable[[bytes], int] = importlib.import_module("google_crc32c.cext").value
    except ImportError:
        slower: Callable[[memoryview], int] = library(".record.util").calc_crc32c
        return slower
    return lambda part: check(bytes(part))  # it takes nothing but bytes; the copy is a tenth of it


def _control(raw: memoryview) -> Kind:
    """What a control batch says: its one record has a key of (version, type)."""
    record = next(walk(raw[HEADER.size :], 1, headers=False), None)
    if record is None or record.key is None or len(record.key) < _CONTROL_KEY.size:
        return Kind.OTHER
    _, kind = _CONTROL_KEY.unpack_from(record.key)
    return {0: Kind.ABORT, 1: Kind.COMMIT}.get(kind, Kind.OTHER)
