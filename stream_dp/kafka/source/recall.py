"""A committed transaction that was too large to be held, fetched again batch by batch.

Rules: one fetch at a time is held. A cancelled call may be repeated.
"""

from typing import Any

from stream_dp.kafka.client.clients import damaged
from stream_dp.kafka.source.batches import batches
from stream_dp.kafka.source.open_transactions import Transaction
from stream_dp.kafka.source.record_batches import Kind, RecordBatch
from stream_dp.kafka.source.ticks import PartitionTicks

_WAIT_MS = 1000


class Recall:
    """Counts the batches of `transaction`, which `commit` ends, in `ticks`; `place` is their partition."""

    def __init__(
        self, ticks: PartitionTicks, transaction: Transaction, commit: RecordBatch, place: Any
    ) -> None:
        self._ticks = ticks
        self._commit = commit
        self._place = place
        self._next = transaction.first
        self._end = transaction.end

    def begin(self, reader: Any) -> None:
        """Move `reader` to the transaction."""
        reader.assign([self._place])
        reader.seek(self._place, self._next)

    async def more(self, reader: Any) -> bool:
        """Count the batches of one fetch of `reader`; return whether the transaction continues.

        Raises:
            Outage: the fetched data are damaged.
        """
        fetched = await reader.getmany(self._place, timeout_ms=_WAIT_MS)
        for batch in batches(fetched.get(self._place, ())):
            if batch.kind is Kind.DAMAGED:
                raise damaged(*self._place)
            if batch.base >= self._end:
                break
            if batch.kind is Kind.DATA and batch.producer == self._commit.producer:
                self._ticks.again(batch, self._commit)
            self._next = batch.next
        if self._next < self._end:
            return True
        self._ticks.ended(self._commit)
        reader.unsubscribe()
        return False
