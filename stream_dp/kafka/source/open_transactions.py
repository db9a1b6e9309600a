"""Open transactions of a partition, with their batches until they end.

Rules: a transaction is identified by its producer's id alone (a transaction that timed out ends under another
epoch). Batches are held as they were sent. If all partitions together hold more than the shared room allows, only
the offsets of a transaction are kept, and its batches are fetched again when they count.
"""

from dataclasses import dataclass, field

from stream_dp.kafka.source.record_batches import RecordBatch

ROOM_BYTES = 64 * 2**20


@dataclass(slots=True)
class Room:
    """How many more bytes may be held, over all partitions."""

    left: int = ROOM_BYTES


@dataclass(slots=True, repr=False)
class Transaction:
    """A transaction with batches from `first` up to `end`; `batches` is None if there was no room for them."""

    first: int
    end: int
    batches: list[RecordBatch] | None = field(default_factory=list)
    size: int = 0


class OpenTransactions:
    """The open transactions of one partition, by producer id."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._open: dict[int, Transaction] = {}

    @property
    def first(self) -> int | None:
        """The first offset of all open transactions; None if none is open."""
        return min((one.first for one in self._open.values()), default=None)

    def hold(self, producer: int, batch: RecordBatch) -> None:
        """Add a batch to its producer's transaction; the first batch begins the transaction."""
        one = self._open.get(producer)
        if one is None:
            one = self._open[producer] = Transaction(batch.base, batch.base)
        one.end = batch.next
        if one.batches is None:
            return
        size = len(batch.raw)
        if size > self._room.left:
            self._give_back(one)
            one.batches = None
        else:
            self._room.left -= size
            one.size += size
            one.batches.append(batch.kept())

    def get(self, producer: int) -> Transaction | None:
        """Return the open transaction of this producer, or None."""
        return self._open.get(producer)

    def drop(self, producer: int) -> None:
        """Forget the open transaction of this producer, if any."""
        one = self._open.pop(producer, None)
        if one is not None:
            self._give_back(one)

    def _give_back(self, one: Transaction) -> None:
        self._room.left += one.size
        one.size = 0
