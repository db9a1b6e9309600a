"""Record batches of format 2 as the brokers send them: their boundaries, their headers, and their records one by one.

Rules: headers are read and checksums checked; nothing is unpacked. A cut batch at the end of a fetch is skipped,
because the next fetch brings it whole. A batch of an older format is reported as FOREIGN, with its offsets. `walk`
reads records whatever their content: an unreadable record affects only itself as long as its length can be read. The C
parser of the client library is faster and is used for intact batches. Source: the message format of the Kafka protocol.
"""

import importlib
import struct
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from stream_dp.journal.dead_letters import Span
from stream_dp.kafka.client.clients import library
from stream_dp.records.cells import MOST_HEADERS

_MOST_BITS = 63
_WORD = (1 << 64) - 1
_ONE_BYTE = 0x80
HEADER = struct.Struct(">qiibIhiqqqhii")
CODEC, APPENDED, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
_LENGTH = struct.Struct(">qi")
FORMAT = 2
_FORMAT_AT, _CHECKED_FROM = 16, 21
_CRC, _ATTRIBUTES, _LAST, _STAMP, _RECORDS = 4, 5, 6, 8, 12
_JOINED_BYTES = 256 * 1024
_LARGE_BYTES = 64 * 1024  # batches of this size are not joined: joining would only copy them
_JOINED_RECORDS = 2**15  # below `unpacker.LIMIT_RECORDS`, so that joining never causes a refusal
_CONTROL_KEY = struct.Struct(">hh")


class WalkedRecord(NamedTuple):
    """A record: its key and value (None: null), and its headers if asked for (names need not be UTF-8)."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def walk(data: bytes | memoryview, count: int, headers: bool) -> Iterator[WalkedRecord | None]:
    """Yield `count` records of `data`, fewer if a length cannot be read; None for an unreadable record."""
    at = 0
    for _ in range(count):
        try:
            length, start = _varint(data, at)
        except IndexError:
            return
        at = start + length
        if length < 0 or at > len(data):
            return
        try:
            yield _record(data, start, at, headers)
        except IndexError:
            yield None


class Stretch(NamedTuple):
    """Consecutive records, which lie from `begin` to `end`."""

    begin: int
    end: int
    records: int


def pieces(data: bytes | memoryview, count: int, most: int) -> Iterator[Stretch]:
    """Cut the `count` records of `data` into pieces of at most `most` bytes, or of one record.

    Only the records' lengths are read; the pieces end at a length that cannot be read.
    """
    begin = at = records = 0
    size = len(data)
    for _ in range(count):
        if at >= size:
            break
        byte = data[at]
        if byte < _ONE_BYTE:
            length, start = (byte >> 1) ^ -(byte & 1), at + 1
        else:
            try:
                length, start = _varint(data, at)
            except IndexError:
                break
        if length < 0 or start + length > size:
            break
        if records and start + length - begin > most:
            yield Stretch(begin, at, records)
            begin, records = at, 0
        at, records = start + length, records + 1
    if records:
        yield Stretch(begin, at, records)


def _record(data: bytes | memoryview, at: int, end: int, headers: bool) -> WalkedRecord:
    """Return the record that lies from `at` to `end`; IndexError if a part lies beyond its end."""
    for _ in ("attributes, which the library reads as a varint too", "time", "offset"):
        _, at = _varint(data, at)
    key, at = _bytes(data, at, end)
    value, at = _bytes(data, at, end)
    if not headers:
        return WalkedRecord(key, value)
    return WalkedRecord(key, value, tuple(_headers(data, at, end)))


def _headers(data: bytes | memoryview, at: int, end: int) -> Iterator[tuple[str, bytes | None]]:
    try:
        count, at = _varint(data, at)
        for _ in range(min(count, MOST_HEADERS)):
            name, at = _bytes(data, at, end)
            value, at = _bytes(data, at, end)
            yield (name or b"").decode(errors="replace"), value
    except IndexError:
        return


def _bytes(data: bytes | memoryview, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = _varint(data, at)
    if at + max(0, length) > end:
        raise IndexError
    if length < 0:
        return None, at
    return bytes(data[at : at + length]), at + length


def _varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    number, shift = byte & 0x7F, 0
    while byte & 0x80:
        byte = data[at]
        at += 1
        shift += 7
        if shift > _MOST_BITS:
            raise IndexError
        number |= (byte & 0x7F) << shift
    number &= _WORD
    return (number >> 1) ^ -(number & 1), at


Cell: TypeAlias = Callable[[int], range]


class Kind(Enum):
    DATA = "records"
    COMMIT = "the end of a transaction that counts"
    ABORT = "the end of a transaction that never was"
    OTHER = "nothing that counts: another control record, or the records of a transaction that never was"
    FOREIGN = "an older format"
    DAMAGED = "no batch: to be read again"


class Unpacked(NamedTuple):
    """Values with their offsets, spans of unreadable records, and the tick headers by index of a value.

    `members` are those that each record's key and headers add to its value, which the unpacker does.
    """

    values: Sequence[bytes]
    offsets: Sequence[int]
    refused: list[Span]
    marks: dict[int, bytes]
    members: Sequence[bytes] = ()

    def behind(self, offset: int) -> "Unpacked":
        before = sum(at_offset < offset for at_offset in self.offsets)
        refused = [span._replace(first=max(span.first, offset)) for span in self.refused]
        return Unpacked(
            self.values[before:] if before else self.values,
            self.offsets[before:],
            [span for span in refused if span.first <= span.last],
            {at - before: mark for at, mark in self.marks.items() if at >= before},
        )


class RecordBatch(NamedTuple):
    """A batch by its header: offsets from `base` up to `next`, with stamp `stamp` (ms) of the kind in `attributes`.

    `producer` is the id of a transaction's producer, None outside of transactions. `records` is the number of records
    by the header. `raw` is the whole batch. `content` are its records as objects of the client library if it has
    unpacked them.
    """

    kind: Kind
    base: int
    next: int
    stamp: int
    attributes: int
    producer: int | None
    records: int
    raw: memoryview
    content: Sequence[Any] | None = None

    @property
    def appended(self) -> bool:
        """Whether the stamp is the time of arrival."""
        return bool(self.attributes & APPENDED)

    @property
    def codec(self) -> int:
        return self.attributes & CODEC

    @property
    def plain(self) -> bool:
        """Whether the header has only the usual content: stamped on arrival, uncompressed, no gaps."""
        return self.attributes == APPENDED and self.records == self.next - self.base

    def kept(self) -> "RecordBatch":
        """Return this batch with a copy of its bytes, so that the rest of the fetch can be freed."""
        return self._replace(raw=memoryview(bytes(self.raw)))


class _Run:
    """Consecutive plain batches with stamps in one cell, collected into one batch."""

    def __init__(self, first: RecordBatch, cell: range) -> None:
        self.next = first.next
        self.records = first.records
        self.cell = cell
        self.size = len(first.raw)
        self._first = first
        self._parts = [first.raw]
        self._stamp = first.stamp

    def join(self, raw: memoryview, following: int, stamp: int) -> None:
        self.records += following - self.next
        self.next = following
        self.size += len(raw)
        self._parts.append(raw)
        if stamp > self._stamp:
            self._stamp = stamp

    def batch(self) -> RecordBatch:
        """Return the collected batch, with a new header if it has several parts."""
        if len(self._parts) == 1:
            return self._first
        base, stamp, records = self._first.base, self._stamp, self.records
        body = b"".join([part[HEADER.size :] for part in self._parts])
        raw = memoryview(plain_batch(body, base, records, APPENDED, stamp))
        return RecordBatch(Kind.DATA, base, self.next, stamp, APPENDED, None, records, raw)


def plain_batch(
    body: bytes | memoryview, base: int, records: int, attributes: int = 0, stamp: int = 0
) -> bytes:
    """Return an uncompressed batch of these records, without a checksum."""
    length = HEADER.size - _LENGTH.size + len(body)
    return (
        HEADER.pack(
            base, length, -1, FORMAT, 0, attributes, records - 1, stamp, stamp, -1, -1, -1, records
        )
        + body
    )


def record_batches(
    fetched: bytes, position: int, cell: Cell | None = None
) -> Iterator[RecordBatch]:
    """Yield the whole batches in `fetched` that reach to `position` or beyond, in order.

    With `cell`, consecutive plain batches are joined to larger ones (with a new header) while their stamps lie in one
    cell: the range of stamps that `cell` returns for the first one's stamp. Raises `ValueError` if the bytes are not as
    a producer sent them; reading them again may help.
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
            batch = _foreign(raw, base, position if run is None else run.next)
        else:
            header = _header(raw)
            if run is not None and len(raw) < _LARGE_BYTES and _joins(run, header):
                run.join(raw, base + header[_RECORDS], header[_STAMP])
                continue
            batch = _batch(header, raw)
        if run is not None:
            yield run.batch()
            position, run = run.next, None
        if cell is not None and base >= position and batch.plain and len(raw) < _LARGE_BYTES:
            run = _Run(batch, cell(batch.stamp))
        elif batch.next > position:
            yield batch
            position = batch.next
    if run is not None:
        yield run.batch()


def _header(raw: memoryview) -> tuple[int, ...]:
    """Return the fields of a batch's header after checking its checksum."""
    if len(raw) < HEADER.size:
        raise ValueError("a batch without a header")
    header = HEADER.unpack_from(raw)
    if header[_LAST] < 0 or _checksum()(raw[_CHECKED_FROM:]) != header[_CRC]:
        raise ValueError("a damaged batch")
    return header


def _joins(run: _Run, header: tuple[int, ...]) -> bool:
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
    """Return a batch of an older format; its last offset is known, but not the first one of a compressed set."""
    return RecordBatch(Kind.FOREIGN, min(last, position), last + 1, 0, 0, None, 0, raw)


@cache
def _checksum() -> Callable[[memoryview], int]:
    """Return CRC-32C by the processor's instruction if its package is built, else by the client library's table."""
    try:
        check: Callable[[bytes], int] = importlib.import_module("google_crc32c.cext").value
    except ImportError:
        slower: Callable[[memoryview], int] = library(".record.util").calc_crc32c
        return slower
    return lambda part: check(bytes(part))  # it takes only bytes; the copy is a tenth of the cost


def _control(raw: memoryview) -> Kind:
    """Return the kind of a control batch: its one record has a key of (version, type)."""
    record = next(walk(raw[HEADER.size :], 1, headers=False), None)
    if record is None or record.key is None or len(record.key) < _CONTROL_KEY.size:
        return Kind.OTHER
    _, kind = _CONTROL_KEY.unpack_from(record.key)
    return {0: Kind.ABORT, 1: Kind.COMMIT}.get(kind, Kind.OTHER)
