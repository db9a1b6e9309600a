"""Where a partition is read from so that nothing stamped at or beyond a moment lies before it.

Rules: the broker's look-up by time is believed as an upper bound alone, for it answers with what a record says of its
own offset, and such a record may lie; what lies before is decided by the stamps of whole batches. Stamps that brokers
set step back by no more than `settle` ms in a partition. In doubt the answer is too early, which costs time and nothing
else. Offsets are private.
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
        """Whether this batch, and so all before it, is older than the moment."""
        if batch.kind is Kind.DAMAGED:
            return False
        return batch.stamp < self.moment - (self.settle if batch.appended else 0)


async def start_at(reader: Any, place: Any, within: range, origin: Origin) -> int:
    """Return an offset of `within`, or its end, before which everything is older than `origin`.

    Bisects, beginning with the last offset: as many fetches of `reader`, a consumer of whole batches that nobody else
    uses meanwhile, as the length of `within` has binary digits, and one more.
    """
    low, high = within.start, within.stop
    if not within:  # the client is stuck for good where it has a partition and no place in it
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
