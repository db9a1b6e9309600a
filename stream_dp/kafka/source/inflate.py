"""Unpacking of compressed record batches up to a size limit.

Rules: for any input, at most `limit` bytes are returned, and little more than that is ever held in memory; an input
that would expand to more is refused. Bytes after the last gzip frame or the first lz4 frame are ignored, as by
Kafka itself. This file knows no record.
"""

import struct
import zlib
from collections.abc import Callable
from typing import Any

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
_GZIP_FRAME = b"\x1f\x8b"
_GZIP_FRAMES = 64
_LZ4_FRAME = b"\x04\x22\x4d\x18"
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16
_SIZE = struct.Struct(">i")
_LITTLE = struct.Struct("<I")
_FIRST_GUESS, _GROWTH, _SMALLEST = 8, 4, 1 << 16


class TooLargeError(Exception):
    """The input would expand beyond the limit."""


class DamagedError(Exception):
    """The input cannot be unpacked."""


def inflate(codec: int, data: bytes | memoryview, limit: int) -> bytes | bytearray:
    """Return the unpacked `data`, `limit` bytes at most.

    Raises:
        TooLargeError: it would expand to more.
        DamagedError: it cannot be unpacked, or the codec is not known.
    """
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
    found: list[bytes] = []
    while bytes(data[:2]) == _GZIP_FRAME:
        if len(found) == _GZIP_FRAMES:  # each frame copies the bytes after it
            raise DamagedError
        frame = zlib.decompressobj(zlib.MAX_WBITS | 16)
        found.append(frame.decompress(data, limit + 1))
        limit -= len(found[-1])
        if limit < 0:
            raise TooLargeError
        if not frame.eof:
            raise DamagedError
        data = frame.unused_data
    if not found:
        raise DamagedError
    return b"".join(found)


def _unlz4(data: bytes | memoryview, limit: int) -> bytearray:
    return _grown(_codecs().lz4.decompress_into, data[: _lz4_end(data)], limit)


def _unzstd(data: bytes | memoryview, limit: int) -> bytearray:
    return _grown(_codecs().zstd.decompress_into, data, limit)


def _unsnappy(data: bytes | memoryview, limit: int) -> bytearray:
    found = bytearray()
    for block in _snappy_blocks(data):
        size = _codecs().snappy.decompress_raw_len(block)
        if size > limit - len(found):
            raise TooLargeError
        part = bytearray(size)
        _codecs().snappy.decompress_raw_into(block, part)
        found += part
    return found


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
    """Unpack into a buffer that grows up to the limit."""
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
    """Return the end of the first frame; later frames are ignored."""
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
