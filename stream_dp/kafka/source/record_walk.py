"""Records of a batch of format 2, read one by one, whatever they hold.

Rules: a record that cannot be read harms none but itself, as long as its length can be read; behind one whose length
is wrong nothing can. Headers are passed over unless they are asked for, and their names need not be UTF-8. Nothing
raises. Source: the message format of the Kafka protocol. The C parser of the client library is faster and is used
where nothing is amiss.
"""

from collections.abc import Iterator
from typing import NamedTuple

MOST_HEADERS = 64
"""How many headers of a record are read; who writes tick marks writes one."""
_MOST_BITS = 63
_ONE_BYTE = 0x80


class WalkedRecord(NamedTuple):
    """A record: its key and value (None: null), and the headers that were asked for (name and value)."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def walk(data: bytes | memoryview, count: int, headers: bool) -> Iterator[WalkedRecord | None]:
    """Yield `count` records of `data`, or fewer where a length cannot be read; None for one that cannot be read."""
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
    """Cut the `count` records of `data` into pieces of `most` bytes or less, or of one record.

    Only the records' lengths are read; where one cannot be, the pieces end.
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
    """The record that lies from `at` to `end`.

    Raises:
        IndexError: something of it lies beyond its end.
    """
    _, at = _varint(data, at + 1)  # behind the attributes: when, and at which offset
    _, at = _varint(data, at)
    key, at = _bytes(data, at, end)
    value, at = _bytes(data, at, end)
    if not headers:
        return WalkedRecord(key, value)
    return WalkedRecord(key, value, tuple(_headers(data, at, end)))


def _headers(data: bytes | memoryview, at: int, end: int) -> Iterator[tuple[str, bytes | None]]:
    """The headers that can be read."""
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
    """The zigzag integer at `at`, and where it ends."""
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
