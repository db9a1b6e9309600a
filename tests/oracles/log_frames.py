"""Kafka's record batches of format 2, read from raw bytes: what a broker stores and sends, nothing interpreted.

Rules: written from the protocol's description alone; no Kafka client and nothing of the engine is imported, only zlib
and cramjam. Checksums are the broker's affair. Unpacking is bounded. Headers of records are never looked at: a record
ends where its length says.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import cramjam

HEADER = struct.Struct(">qiibIhiqqqhii")  # base offset ... number of records: 61 bytes
LENGTH_AT = 12  # the length counts what follows it
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
LIMIT = 16 * 2**20
ABORT, COMMIT = 0, 1
_XERIAL = b"\x82SNAPPY\x00"
_LZ4_MAGIC = 0x184D2204


class FrameError(Exception):
    """Something is not what the format says."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One stored batch: the fields of its header, and its records as they lie there (packed)."""

    base: int
    attributes: int
    last_delta: int
    stamp: int
    producer: int
    epoch: int
    count: int
    packed: bytes = field(repr=False)

    @property
    def last(self) -> int:
        """The last offset that the batch takes."""
        return self.base + self.last_delta

    @property
    def codec(self) -> int:
        return self.attributes & 0x07

    @property
    def transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return bool(self.attributes & 0x10)

    @property
    def control(self) -> bool:
        """Whether it is the marker that ends a transaction."""
        return bool(self.attributes & 0x20)


def frames(data: bytes) -> Iterator[Frame]:
    """The batches of a log; a cut one at its end (fetches and crashes leave such) is left out.

    Raises:
        FrameError: another format than 2.
    """
    at = 0
    while at + HEADER.size <= len(data):
        base, length, _, magic, _, *said = HEADER.unpack_from(data, at)
        attributes, last_delta, _, stamp, producer, epoch, _, count = said
        end = at + LENGTH_AT + length
        if magic != 2:
            raise FrameError(f"offset {base}: format {magic}")
        if end > len(data):
            return
        packed = data[at + HEADER.size : end]
        yield Frame(base, attributes, last_delta, stamp, producer, epoch, count, packed)
        at = end


def values(frame: Frame, limit: int = LIMIT) -> list[bytes | None]:
    """The values of a batch's records, in their order; None for null and for what cannot be read.

    Raises:
        FrameError: the batch cannot be unpacked, or expands beyond `limit` bytes.
    """
    plain = unpacked(frame, limit)
    found: list[bytes | None] = []
    at = 0
    try:
        for _ in range(frame.count):
            length, at = varint(plain, at)
            if length < 0 or at + length > len(plain):
                break
            found.append(_read(plain[at : at + length]))
            at += length
    except FrameError:  # nobody knows where the next one begins
        pass
    return found + [None] * (frame.count - len(found))


def _read(record: bytes) -> bytes | None:
    try:
        return _value(record)
    except FrameError:
        return None


def marker(frame: Frame) -> int:
    """What a control batch says: `COMMIT`, `ABORT`, or another number."""
    length, at = varint(frame.packed, 0)
    record = frame.packed[at : at + length]
    key, _ = _bytes(record, _times(record))
    _, kind = struct.unpack_from(">hh", key or b"")
    return int(kind)


def _times(record: bytes) -> int:
    """Where a record's key begins: behind its attributes and its two deltas.

    The format has one byte of attributes, 0 for all producers. The client library reads a number there, as its deltas
    are: so do we, that no record means something else by who reads it.
    """
    at = 0
    for _ in range(3):
        _, at = varint(record, at)
    return at


def _value(record: bytes) -> bytes | None:
    _, at = _bytes(record, _times(record))
    value, _ = _bytes(record, at)
    return value


def _bytes(record: bytes, at: int) -> tuple[bytes | None, int]:
    """A string of bytes with its length before it; any length below 0 is null."""
    length, at = varint(record, at)
    if length < 0:
        return None, at
    if at + length > len(record):
        raise FrameError("a field ends outside of its record")
    return record[at : at + length], at + length


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A zig-zag number of up to ten bytes, and where it ends.

    Raises:
        FrameError: the bytes end inside of it.
    """
    shown = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise FrameError("a number does not end")
        shown |= (data[at] & 0x7F) << shift
        at += 1
        if not data[at - 1] & 0x80:
            return (shown >> 1) ^ -(shown & 1), at
        shift += 7


def unpacked(frame: Frame, limit: int = LIMIT) -> bytes:
    """The records of a batch, one behind the other.

    Raises:
        FrameError: an unknown codec, damaged, or more than `limit` bytes.
    """
    ways = {NONE: _plain, GZIP: _gunzip, SNAPPY: _unsnap, LZ4: _unlz4, ZSTD: _unzstd}
    way = ways.get(frame.codec)
    if way is None:
        raise FrameError(f"codec {frame.codec}")
    plain = way(frame.packed, limit)
    if len(plain) > limit:
        raise FrameError("expands beyond the limit")
    return plain


def _plain(packed: bytes, limit: int) -> bytes:
    return packed[: limit + 1]


def _gunzip(packed: bytes, limit: int) -> bytes:
    """All members; what follows the last one and is none is left alone, as brokers do."""
    plain = bytearray()
    while len(plain) <= limit and (not plain or packed[:2] == b"\x1f\x8b"):
        member = zlib.decompressobj(31)
        try:
            plain += member.decompress(packed, limit + 1 - len(plain))
        except zlib.error as error:
            raise FrameError("gzip is damaged") from error
        if not member.eof and len(plain) <= limit:
            raise FrameError("gzip ends in the middle")
        packed = member.unused_data
    return bytes(plain)


def _unsnap(packed: bytes, limit: int) -> bytes:
    """Blocks with their lengths behind snappy-java's header, or one raw block."""
    blocks, at = [packed], 16
    if packed.startswith(_XERIAL):
        blocks = []
        while at + 4 <= len(packed):
            (length,) = struct.unpack_from(">i", packed, at)
            blocks.append(packed[at + 4 : at + 4 + length])
            at += 4 + length
    try:
        if sum(map(cramjam.snappy.decompress_raw_len, blocks)) > limit:
            raise FrameError("expands beyond the limit")
        return b"".join(bytes(cramjam.snappy.decompress_raw(block)) for block in blocks)
    except cramjam.DecompressionError as error:
        raise FrameError("snappy is damaged") from error


def _unlz4(packed: bytes, limit: int) -> bytes:
    """The first frame: a broker reads no other."""
    return _into(cramjam.lz4, packed[: lz4_end(packed)], limit)


def lz4_end(packed: bytes) -> int:
    """Where the first lz4 frame ends.

    Raises:
        FrameError: it does not, or no frame begins here.
    """
    try:
        magic, flags = struct.unpack_from("<IB", packed)
        if magic != _LZ4_MAGIC:
            raise FrameError("no lz4 frame")
        at = 7 + 8 * bool(flags & 0x08) + 4 * bool(flags & 0x01)
        while True:
            (size,) = struct.unpack_from("<I", packed, at)
            at += 4
            if size == 0:
                return at + 4 * bool(flags & 0x04)
            at += (size & 0x7FFFFFFF) + 4 * bool(flags & 0x10)
    except struct.error as error:
        raise FrameError("lz4 ends in the middle") from error


def _unzstd(packed: bytes, limit: int) -> bytes:
    return _into(cramjam.zstd, packed, limit)


def _into(codec: object, packed: bytes, limit: int) -> bytes:
    """Unpack into a room that grows up to one byte more than `limit`."""
    room = min(max(4 * len(packed), 2**16), limit + 1)
    while True:
        output = bytearray(room)
        try:
            size = codec.decompress_into(packed, output)  # type: ignore[attr-defined]
        except cramjam.DecompressionError as error:
            if room > limit:
                raise FrameError("damaged, or expands beyond the limit") from error
            room = min(4 * room, limit + 1)
        else:
            return bytes(output[:size])
