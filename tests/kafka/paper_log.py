"""A topic's log on paper: batches as a broker stores them, each with the stamp that it is told to have.

Rules: what a broker does to a batch that it takes under LogAppendTime is done here and no more: its offset, the stamp
and its attribute bit, the checksum. Whether it would take a batch is known elsewhere (`hostile_batches`). Where no
clock steps back, stamps never fall. So two logs can be alike but for one event, which no real broker can be made to do.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from aiokafka.record.util import calc_crc32c
from kafka.raw_batches import CONTROL, TRANSACTIONAL, RawBatch, record
from oracles.log_frames import Frame, frames

_LENGTH_AT, _AFTER_LENGTH = 8, 12
_LEADER_AT, _CRC_AT, _CHECKED_AT, _STAMP_AT = 12, 17, 21, 35
_PRODUCER_AT = 43
_APPENDED = 0x08


class Kept(NamedTuple):
    """A batch in the log, visible from the moment `arrived` on: offsets from `base` up to `next`."""

    arrived: int
    stamp: int
    base: int
    next: int
    data: bytes


@dataclass(slots=True)
class PaperPartition:
    born: int = 0
    kept: list[Kept] = field(default_factory=list)

    def append(self, batch: bytes, stamp: int, arrived: int | None = None) -> None:
        """Store a batch; what follows it is left out. It is visible at once, or when what lies before it is."""
        base, own = self.kept[-1].next if self.kept else 0, bytearray(batch)
        del own[_AFTER_LENGTH + struct.unpack_from(">i", own, _LENGTH_AT)[0] :]
        attributes, last = struct.unpack_from(">Hi", own, _CHECKED_AT)
        struct.pack_into(">q", own, 0, base)
        struct.pack_into(">i", own, _LEADER_AT, 0)
        struct.pack_into(">H", own, _CHECKED_AT, attributes | _APPENDED)
        struct.pack_into(">q", own, _STAMP_AT, stamp)
        struct.pack_into(">I", own, _CRC_AT, calc_crc32c(bytes(own[_CHECKED_AT:])))
        seen = max(stamp if arrived is None else arrived, self.kept[-1].arrived if self.kept else 0)
        self.kept.append(Kept(seen, stamp, base, base + last + 1, bytes(own)))

    def end(self, now: int) -> int:
        """The offset behind what has arrived by `now`."""
        arrived = self._arrived(now)
        return self.kept[arrived - 1].next if arrived else 0

    def at(self, moment: int, now: int) -> int:
        """The first offset stamped at or beyond `moment` of what has arrived by `now`, or the end."""
        first = bisect_left(self.kept, moment, key=lambda one: one.stamp)
        return self.kept[first].base if first < self._arrived(now) else self.end(now)

    def since(self, offset: int, now: int) -> list[Kept]:
        """The batches that reach beyond an offset and have arrived."""
        first = bisect_right(self.kept, offset, key=lambda one: one.next)
        return self.kept[first : self._arrived(now)]

    def stable(self, now: int) -> int:
        """The offset up to which no transaction is open."""
        opened: dict[int, int] = {}
        for frame in self.frames(now):
            if frame.control:
                opened.pop(frame.producer, None)
            elif frame.transactional:
                opened.setdefault(frame.producer, frame.base)
        return min(opened.values(), default=self.end(now))

    def frames(self, now: int | None = None) -> list[Frame]:
        shown = self.kept if now is None else self.kept[: self._arrived(now)]
        return list(frames(b"".join(one.data for one in shown)))

    def _arrived(self, now: int) -> int:
        return bisect_right(self.kept, now, key=lambda one: one.arrived)


PaperLog = Mapping[int, PaperPartition]


def next_stamp(log: PaperLog, now: int) -> int | None:
    return min(_later(log.values(), now), default=None)


def _later(partitions: Iterable[PaperPartition], now: int) -> Iterable[int]:
    for one in partitions:
        arrived = bisect_right(one.kept, now, key=lambda kept: kept.arrived)
        if arrived < len(one.kept):
            yield one.kept[arrived].arrived


def transactional(batch: RawBatch, producer: int) -> bytes:
    """The batch as a part of the transaction of this producer."""
    own = bytearray(batch.encoded())
    (attributes,) = struct.unpack_from(">H", own, _CHECKED_AT)
    struct.pack_into(">H", own, _CHECKED_AT, attributes | TRANSACTIONAL)
    struct.pack_into(">qhi", own, _PRODUCER_AT, producer, 0, 0)
    return bytes(own)


def marker(producer: int, *, commit: bool) -> bytes:
    """What a broker writes where a transaction ends."""
    said = record(struct.pack(">hi", 0, 0), key=struct.pack(">hh", 0, commit))
    attributes = TRANSACTIONAL | CONTROL
    return RawBatch([said], attributes=attributes, producer=producer, epoch=0).encoded()
