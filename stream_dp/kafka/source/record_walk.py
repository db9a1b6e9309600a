"""The records of a batch of format 2, read one by one, whatever their content.

Rules: an unreadable record affects only itself as long as its length can be read; after a record with a wrong
length no record can be read. Headers are skipped unless they are asked for, and their names need not be UTF-8.
Nothing raises. Source: the message format of the Kafka protocol. The C parser of the client library is faster and
is used for intact batches.
"""

from collections.abc import Iterator
from typing import NamedTuple

MOST_HEADERS = 64
"""The most headers of a record that are read; a tick mark has one."""
_MOST_BITS = 63
_ONE_BYTE = 0x80


class WalkedRecord(NamedTuple):
    """A record: its key and value (None: null), and its headers if asked for (name and value)."""

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
    """Return the record that lies from `at` to `end`.

    Raises:
        IndexError: a part of the record lies beyond its end.
    """
    _, at = _varint(data, at + 1)  # after the attributes: time and offset
    _, at = _varint(data, at)
    key, at = _bytes(data, at, end)
    value, at = _bytes(data, at, end)
    if not headers:
        return WalkedRecord(key, value)
    return WalkedRecord(key, value, tuple(_headers(data, at, end)))


def _headers(data: bytes | memoryview, at: int, end: int) -> Iterator[tuple[str, bytes | None]]:
    """Yield the readable headers."""
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
    """Return the zigzag integer at `at`, and the position after it."""
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
    return (number >> 1) ^ -(number & 1), at
