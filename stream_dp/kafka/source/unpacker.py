"""The records of a batch: their values, their offsets, and spans of unreadable records.

Rules: readable records are read, and unreadable ones become refusals with their offsets; no content of a batch raises.
Unpacking is bounded: for any input at most `limit` bytes are returned, and little more than that is ever held in
memory. Bytes after the last gzip frame or the first lz4 frame are ignored, as by Kafka itself. Headers are read only if
tick marks or fields are asked for. A record's offset is its place in the batch, whatever the record states about
itself. `null` is an empty value.
"""

import struct
import zlib
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, cast

from stream_dp.journal.dead_letters import (
    TOO_LARGE,
    UNREADABLE_BATCH,
    UNREADABLE_RECORD,
    Span,
    as_spans,
)
from stream_dp.kafka.client.clients import library
from stream_dp.kafka.client.tick_marks import claimed
from stream_dp.kafka.source.record_batches import (
    HEADER,
    Kind,
    RecordBatch,
    Unpacked,
    pieces,
    plain_batch,
    walk,
)
from stream_dp.records.cells import MOST_HEADERS, Reading, joined
from stream_dp.records.leaf_values import Read
from stream_dp.records.native import values_in

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
_GZIP_FRAME = b"\x1f\x8b"
_GZIP_FRAMES = 64
_LZ4_FRAME = b"\x04\x22\x4d\x18"
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16
_SIZE = struct.Struct(">i")
_LITTLE = struct.Struct("<I")
_FIRST_GUESS, _GROWTH, _SMALLEST = 8, 4, 1 << 16
LIMIT_BYTES = 16 * 2**20
LIMIT_RECORDS = 2**17  # of a batch: many more than producers send, few enough to read at once
_PARSED_BYTES = 2**20
_PIECE_BYTES = 2**16


class TooLargeError(Exception):
    """The input would expand beyond the limit."""


class DamagedError(Exception):
    """The input cannot be unpacked."""


def inflate(codec: int, data: bytes | memoryview, limit: int) -> bytes | bytearray:
    """Return the unpacked `data`, `limit` bytes at most; raises `TooLargeError` or `DamagedError`."""
    unpack = _UNPACK.get(codec)
    if unpack is None:
        raise DamagedError
    try:
        return unpack(data, limit)
    except (TooLargeError, DamagedError):
        raise
    except Exception:  # noqa: BLE001 - codecs raise classes of their own
        raise DamagedError from None


def _gunzip(data: bytes | memoryview, limit: int) -> bytes:
    parts: list[bytes] = []
    while bytes(data[:2]) == _GZIP_FRAME:
        if len(parts) == _GZIP_FRAMES:  # each frame copies the bytes after it
            raise DamagedError
        frame = zlib.decompressobj(zlib.MAX_WBITS | 16)
        parts.append(frame.decompress(data, limit + 1))
        limit -= len(parts[-1])
        if limit < 0:
            raise TooLargeError
        if not frame.eof:
            raise DamagedError
        data = frame.unused_data
    if not parts:
        raise DamagedError
    return b"".join(parts)


def _unlz4(data: bytes | memoryview, limit: int) -> bytearray:
    return _grown(_codecs().lz4.decompress_into, data[: _lz4_end(data)], limit)


def _unzstd(data: bytes | memoryview, limit: int) -> bytearray:
    return _grown(_codecs().zstd.decompress_into, data, limit)


def _unsnappy(data: bytes | memoryview, limit: int) -> bytearray:
    unpacked = bytearray()
    for block in _snappy_blocks(data):
        size = _codecs().snappy.decompress_raw_len(block)
        if size > limit - len(unpacked):
            raise TooLargeError
        part = bytearray(size)
        _codecs().snappy.decompress_raw_into(block, part)
        unpacked += part
    return unpacked


def _snappy_blocks(data: bytes | memoryview) -> list[bytes]:
    """Return the single block, or the blocks in the framing that Java's library writes."""
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        return [bytes(data)]
    blocks, at = [], _XERIAL_HEADER
    while at < len(data):
        (size,) = _SIZE.unpack_from(data, at)
        at += _SIZE.size
        if size < 0 or at + size > len(data):
            raise DamagedError
        blocks.append(bytes(data[at : at + size]))
        at += size
    return blocks


def _grown(
    into: Callable[[Any, bytearray], int], data: bytes | memoryview, limit: int
) -> bytearray:
    size = min(limit, max(_SMALLEST, _FIRST_GUESS * len(data)))
    while True:
        room = bytearray(size)
        try:
            del room[into(data, room) :]
        except _codecs().DecompressionError as error:
            if "whole buffer" not in str(error):
                raise DamagedError from None
        else:
            return room
        if size >= limit:
            raise TooLargeError
        size = min(limit, _GROWTH * size)


def _lz4_end(data: bytes | memoryview) -> int:
    if bytes(data[:4]) != _LZ4_FRAME:
        raise DamagedError
    flags = data[4]
    at = 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    while size := _LITTLE.unpack_from(data, at)[0] & 0x7FFFFFFF:
        at += 4 + size + (4 if flags & 0x10 else 0)
    return at + 4 + (4 if flags & 0x04 else 0)


def _codecs() -> Any:
    import cramjam  # comes with the client library, which is optional

    return cramjam


_UNPACK: dict[int, Callable[[bytes | memoryview, int], bytes | bytearray]] = {
    GZIP: _gunzip,
    SNAPPY: _unsnappy,
    LZ4: _unlz4,
    ZSTD: _unzstd,
}

_value = attrgetter("value")


class Unpacker:
    """Unpacks batches; `marks` says whether to look for tick marks, `limit` bounds the expanded size of a batch.

    `read` makes JSON of a record that is none, or says why it cannot; there are no tick marks among values that are no
    JSON.
    """

    def __init__(
        self, *, marks: bool, limit: int = LIMIT_BYTES, read: Reading | None = None
    ) -> None:
        self._marks = marks
        self._limit = limit
        self._read = read
        self._beside = None if read is None else read.beside
        self._parse = library(".record.default_records").DefaultRecordBatch

    def unpack(self, batch: RecordBatch) -> Unpacked:
        unpacked = self._content(batch)
        return unpacked if self._read is None else _read_each(self._read, unpacked)

    def _content(self, batch: RecordBatch) -> Unpacked:
        if batch.content is not None:
            offsets = [record.offset for record in batch.content]
            return self._of_library(batch.content, offsets)
        if batch.kind is Kind.FOREIGN:
            return _refused(batch, UNREADABLE_BATCH)
        packed = batch.raw[HEADER.size :]
        if not batch.codec:
            return self._records(batch, packed, batch.raw)
        try:
            data = inflate(batch.codec, packed, self._limit)
        except TooLargeError:
            return _refused(batch, TOO_LARGE)
        except DamagedError:
            return _refused(batch, UNREADABLE_BATCH)
        return self._records(batch, memoryview(data))

    def _records(
        self, batch: RecordBatch, data: memoryview, whole: memoryview | None = None
    ) -> Unpacked:
        """Return the records in `data`; `whole` is the batch if it came uncompressed."""
        if batch.records > LIMIT_RECORDS:
            return _refused(batch, TOO_LARGE)
        alone = not self._marks and self._beside is None
        if alone and (values := values_in(data, batch.records)) is not None:
            return Unpacked(values, range(batch.base, batch.base + len(values)), [], {})
        if len(data) <= _PARSED_BYTES:  # a large batch may hold millions of headers
            try:
                plain = whole or plain_batch(data, batch.base, batch.records)
                return self._parsed(plain, batch.base)
            except Exception:  # noqa: BLE001, S110 - memory and Unicode errors too: it is read otherwise
                pass
        return self._pieces(batch, data)

    def _pieces(self, batch: RecordBatch, data: memoryview) -> Unpacked:
        """Unpack piece by piece, so that an unreadable record makes only its piece slow."""
        unpacked = Unpacked([], [], [], {}, [])
        base = batch.base
        for begin, end, records in pieces(data, batch.records, _PIECE_BYTES):
            part = data[begin:end]
            _join(unpacked, self._piece(part, base, records))
            base += records
        if base < batch.base + batch.records:
            unpacked.refused.append(Span(UNREADABLE_RECORD, None, base, batch.next - 1))
        return unpacked

    def _piece(self, data: memoryview, base: int, records: int) -> Unpacked:
        if len(data) <= _PIECE_BYTES:
            try:
                return self._parsed(plain_batch(data, base, records), base)
            except Exception:  # noqa: BLE001, S110 - see `_records`
                pass
        return self._walked(data, base, records)

    def _parsed(self, plain: bytes | memoryview, base: int) -> Unpacked:
        """Parse with the client library's parser, which accepts all records or none."""
        records = self._parse(plain)
        if self._marks or self._beside is not None:
            records = list(records)
        unpacked = self._of_library(records, ())
        return unpacked._replace(offsets=range(base, base + len(unpacked.values)))

    def _of_library(self, records: Any, offsets: Sequence[int]) -> Unpacked:
        """Return records of the client library; they are gone through more than once where headers are read."""
        values = list(map(_value, records))
        if not all(values):
            values = [value or b"" for value in values]
        marks = tick_claims(records) if self._marks else {}
        if self._beside is None:
            return Unpacked(values, offsets, [], marks)
        members = [self._beside.members(each.key, each.headers) for each in records]
        return Unpacked(values, offsets, [], marks, members)

    def _walked(self, data: memoryview, base: int, records: int) -> Unpacked:
        beside = self._beside
        unpacked = Unpacked(values := [], offsets := [], [], {}, members := [])
        for at, record in enumerate(walk(data, records, self._marks or beside is not None), base):
            if record is None:
                unpacked.refused.append(Span(UNREADABLE_RECORD, None, at, at))
                continue
            if self._marks and (mark := claimed(record.headers, record.value)) is not None:
                unpacked.marks[len(unpacked.values)] = mark
            values.append(record.value or b"")
            offsets.append(at)
            if beside is not None:
                members.append(beside.members(record.key, record.headers))
        return unpacked


def _join(into: Unpacked, more: Unpacked) -> None:
    before = len(into.values)
    into.marks.update({before + at: mark for at, mark in more.marks.items()})
    cast("list[bytes]", into.values).extend(more.values)
    cast("list[int]", into.offsets).extend(more.offsets)
    cast("list[bytes]", into.members).extend(more.members)
    into.refused.extend(more.refused)


def _read_each(read: Reading, unpacked: Unpacked) -> Unpacked:
    """Return the records as JSON, each read on its own, with what key and headers add to it."""
    if read.value is not None:
        unpacked = _values_of(read.value, unpacked)
    if not unpacked.members:
        return unpacked
    return unpacked._replace(
        values=list(map(joined, unpacked.values, unpacked.members)), members=()
    )


def _values_of(read: Read, unpacked: Unpacked) -> Unpacked:
    values: list[bytes] = []
    members = list[bytes]()
    offsets: list[int] = []
    dead: list[tuple[int, str, None]] = []
    beside = unpacked.members or [b""] * len(unpacked.values)
    for at, value, more in zip(unpacked.offsets, unpacked.values, beside, strict=True):
        plain = read(value)
        if isinstance(plain, str):
            dead.append((at, plain, None))
        else:
            values.append(plain)
            offsets.append(at)
            members.append(more)
    if not dead:
        return unpacked._replace(values=values)
    refused = sorted([*unpacked.refused, *as_spans(dead)], key=attrgetter("first"))
    return Unpacked(values, offsets, refused, {}, members)


def tick_claims(records: Sequence[Any]) -> dict[int, bytes]:
    """Return the tick headers of the library's records, by index."""
    return {
        index: mark
        for index, record in enumerate(records)
        if record.headers
        and (mark := claimed(record.headers[:MOST_HEADERS], record.value)) is not None
    }


def _refused(batch: RecordBatch, reason: str) -> Unpacked:
    return Unpacked([], range(0), [Span(reason, None, batch.base, batch.next - 1)], {})
