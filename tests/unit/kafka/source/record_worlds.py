"""Record batches written out byte by byte, and a partition of them that is fetched in pieces, as from a broker.

Rules: nothing of this is made by the code under test or by the client library but the checksum, so that both can be
compared with it. What is wrong about a batch is said by its arguments.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kafka.raw_batches import CONTROL as CONTROL
from kafka.raw_batches import TRANSACTIONAL, RawBatch
from kafka.raw_batches import record as record
from kafka.raw_batches import sized as sized
from kafka.raw_batches import varint as varint

from stream_dp.kafka.source.record_batches import Cell, RecordBatch, record_batches

APPENDED = 0x08
ABORT, COMMIT = 0, 1


def batch(
    records: Sequence[bytes],
    base: int = 0,
    stamp: int = 1_000,
    producer: int | None = None,
    attributes: int = APPENDED,
    body: bytes | None = None,
    count: int | None = None,
    last: int | None = None,
) -> bytes:
    """A batch with a right checksum; `body` is its records as they are packed, `last` its last offset's delta."""
    attributes |= 0 if producer is None else TRANSACTIONAL
    number = -1 if producer is None else producer
    return RawBatch(
        records, 0, attributes, body, count, last, base, first_time=stamp, last_time=stamp, producer=number,
    ).encoded()  # fmt: skip


def marker(base: int, stamp: int, producer: int, what: int = COMMIT) -> bytes:
    """What ends a transaction."""
    said = record(struct.pack(">hi", 0, 0), key=struct.pack(">hh", 0, what))
    return batch([said], base, stamp, producer, APPENDED | CONTROL)


def old(base: int, value: bytes, magic: int = 1) -> bytes:
    content = struct.pack(">bb", magic, 0) + (struct.pack(">q", 1_000) if magic else b"")
    content += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", base, 4 + len(content), 0) + content


@dataclass(frozen=True)
class Log:
    """Batches of one partition, contiguous from offset 0 on."""

    batches: Sequence[bytes]

    @property
    def end(self) -> int:
        """The offset behind the last record."""
        *_, last = self.parsed(0, self.size)
        return last.next

    @property
    def size(self) -> int:
        return sum(map(len, self.batches))

    def fetched(self, position: int, most: int) -> bytes:
        """What a fetch brings: from the batch that holds `position` on, one whole at least, cut after `most` bytes."""
        whole = [one for one in self.batches if _next(one) > position]
        return b"" if not whole else b"".join(whole)[: max(most, len(whole[0]))]

    def parsed(self, position: int, most: int, cell: Cell | None = None) -> list[RecordBatch]:
        """What is read of such a fetch; with `cell` batches are joined."""
        return list(record_batches(self.fetched(position, most), position, cell))


def _next(raw: bytes) -> int:
    base, *_ = struct.unpack_from(">q", raw)
    if raw[16] != 2:
        return int(base) + 1
    (last,) = struct.unpack_from(">i", raw, 23)
    return int(base + last + 1)


def parsed(raw: bytes, position: int = 0) -> RecordBatch:
    (found,) = record_batches(raw, position)
    return found


@dataclass
class Given:
    """A record as the client library gives it, for a consumer that unpacks records itself."""

    offset: int
    timestamp: int = 0
    value: bytes | None = b""
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_type: int = 1
    key: Any = None
