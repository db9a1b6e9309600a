"""Tick marks of a replay topic: their signature and their content.

Rules: a mark is the header `stream-dp-tick` of a record without a value. It counts only with the signature of the
operator's key for this topic, partition and grid, so a program that may only write to the topic cannot close a tick. A
false mark is refused alone, like any other bad record; a copy of a mark within its partition repeats what was known.
Marks contain nothing about the records. The form is public (docs/replay.md): other feeders may make marks.
"""

import hmac
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from stream_dp.core.time import TickGrid

TICK_HEADER: Final = "stream-dp-tick"
UNNAMED: Final = "0" * 32
_FORM = re.compile(rb"1\.(0|[1-9][0-9]{0,17})\.([0-9a-f]{32})\.([0-9a-f]{64})")


class Mark(NamedTuple):
    """The tick that is over, and the feed that marked it, as 32 hexadecimal digits."""

    tick: int
    feed: str


class TickMarks:
    """Makes and reads the marks of one topic; a mark may skip ahead: it closes every tick up to its own.

    `key` is that of marks (`Sealer.mark_key`); `feed`, 32 hexadecimal digits, is what new marks name.
    """

    def __init__(self, key: bytes, topic: str, grid: TickGrid, feed: str = UNNAMED) -> None:
        self._key, self.topic, self._grid, self.feed = key, topic, grid, feed

    def sign(self, partition: int, tick: int) -> bytes:
        """Return the header's value: tick `tick`, one of the grid, is over in this partition."""
        if tick not in self._grid:
            raise ValueError("a tick mark must name a tick of the clock")
        return b"1.%d.%s.%s" % (tick, self.feed.encode(), self._tag(partition, tick, self.feed))

    def read(self, partition: int, value: bytes) -> int | None:
        """Return the tick that a header's value marks in this partition, or None as `read_whole`."""
        mark = self.read_whole(partition, value)
        return None if mark is None else mark.tick

    def read_whole(self, partition: int, value: bytes) -> Mark | None:
        """Return the mark in a header's value; None if malformed, beyond the grid, or not signed for this partition."""
        form = _FORM.fullmatch(value)
        if form is None or (tick := int(form[1])) not in self._grid:
            return None
        feed = form[2].decode()
        expected = self._tag(partition, tick, feed)
        return Mark(tick, feed) if hmac.compare_digest(expected, form[3]) else None

    def _tag(self, partition: int, tick: int, feed: str) -> bytes:
        grid = f"{self._grid.origin}\n{self._grid.step}"
        content = f"stream-dp tick mark 1\n{self.topic}\n{partition}\n{grid}\n{tick}\n{feed}"
        return hmac.digest(self._key, content.encode(), "sha256").hex().encode()


def claimed(headers: Sequence[tuple[str, bytes | None]], value: bytes | None) -> bytes | None:
    """Return the value of a record's tick header; None without such a header.

    It is empty, which is never a valid mark, if the record has the header twice or has a value of its own.
    """
    claims = [claim for name, claim in headers if name == TICK_HEADER]
    if not claims:
        return None
    return b"" if value or len(claims) > 1 else claims[0] or b""
