"""The offset from which to read a partition so that no record stamped at or after a moment is missed.

Rules: the broker's look-up by time is used only as an upper bound, because it relies on the offset that a record
states about itself, and a record may lie. The stamps of whole batches decide about the part before that bound.
Stamps that brokers set step back by no more than `settle` ms in a partition. In doubt the returned offset is too
early, which only costs time. Offsets are private.
"""

from typing import Any, NamedTuple

from stream_dp.kafka.source.batches import batches
from stream_dp.kafka.source.record_batches import Kind, RecordBatch

_WAIT_MS = 3000


class Origin(NamedTuple):
    """The moment from which records count (ms), and how far stamps may step back (ms)."""

    moment: int
    settle: int

    def follows(self, batch: RecordBatch) -> bool:
        """Return whether this batch, and so every batch before it, is older than the moment."""
        if batch.kind is Kind.DAMAGED:
            return False
        return batch.stamp < self.moment - (self.settle if batch.appended else 0)


async def start_at(reader: Any, place: Any, within: range, origin: Origin) -> int:
    """Return an offset in `within`, or its end, before which every record is older than `origin`.

    Bisects, starting with the last offset. The number of fetches is the number of binary digits of the length of
    `within`, plus one. `reader` is a consumer of whole batches that nothing else uses meanwhile.
    """
    low, high = within.start, within.stop
    if not within:  # with a partition but no position the client would hang for ever
        return low
    at = high - 1
    reader.assign([place])
    while low < high:
        reader.seek(place, at)
        fetched = await reader.getmany(place, timeout_ms=_WAIT_MS, max_records=1)
        found = batches(fetched.get(place, ()))
        if found and origin.follows(found[0]):
            low = at + 1
        else:
            high = at
        at = (low + high) // 2
    reader.unsubscribe()
    return low
