"""From the record batches of one partition to the port's batches: the ticks of records, the places of marks.

Rules: the result is a function of the log, however the records are split into fetches. Live, a record's tick is that of
its append stamp, and the mark of a tick lies before the first batch stamped `settle` or more after the tick's end. In
replay, marks are records with a header, and a record's own time gives its tick. The records of a transaction count
where its commit lies, so an open transaction delays nothing: its records for ticks marked before are late. Unreadable
records are refused with their offsets. Sans I/O: it asks for a transaction again that was too large to be held.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from stream_dp.core.time import TickGrid
from stream_dp.engine.ports import Batch, Behind
from stream_dp.journal.dead_letters import BAD_MARK, Span
from stream_dp.kafka.client.tick_marks import TickMarks
from stream_dp.kafka.source.record_batches import Cell, Kind, RecordBatch, Unpacked
from stream_dp.kafka.source.unpacker import Unpacker
from stream_dp.records.native import together

ROOM_BYTES = 64 * 2**20
_ENDS = (Kind.COMMIT, Kind.ABORT)
MOST = 8192  # about the number of records in one batch of the port


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
    """The open transactions of one partition, by producer id alone (one that timed out ends under another epoch).

    Batches are held as they were sent. If all partitions together hold more than the shared room allows, only the
    offsets of a transaction are kept, and its batches are fetched again when they count.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._open: dict[int, Transaction] = {}

    @property
    def first(self) -> int | None:
        """The first offset of all open transactions; None if none is open."""
        return min((transaction.first for transaction in self._open.values()), default=None)

    def hold(self, producer: int, batch: RecordBatch) -> None:
        transaction = self._open.setdefault(producer, Transaction(batch.base, batch.base))
        transaction.end = batch.next
        if transaction.batches is None:
            return
        size = len(batch.raw)
        if size > self._room.left:
            self._room.left += transaction.size
            transaction.batches, transaction.size = None, 0
        else:
            self._room.left -= size
            transaction.size += size
            transaction.batches.append(batch.kept())

    def get(self, producer: int) -> Transaction | None:
        return self._open.get(producer)

    def drop(self, producer: int) -> None:
        if transaction := self._open.pop(producer, None):
            self._room.left += transaction.size


@dataclass(frozen=True, slots=True)
class Place:
    """Where to read a partition from: `position`, and earlier records that must be read again."""

    partition: int
    position: int
    behind: Behind | None = None

    @property
    def begin(self) -> int:
        return self.position if self.behind is None else self.behind.start


class PartitionTicks:
    """One partition from a place on: takes record batches, and puts batches of the port into `out`."""

    def __init__(self, place: Place, unpacker: Unpacker, room: Room, out: list[Batch]) -> None:
        self.partition, self.position = place.partition, place.position
        self.marked = -1
        self._start, self._skip = place.position, 0 if place.behind is None else place.behind.done
        self._done = 0
        self._commit: RecordBatch | None = None
        self._unpacker, self._open, self._out = unpacker, OpenTransactions(room), out
        self._tick: int | None = None
        self._values: Sequence[bytes] = []
        self._offsets: Sequence[int] = ()
        self._refused: list[Span] = []

    def take(self, batch: RecordBatch) -> Transaction | None:
        """Take the next batch.

        Return a transaction that the batch commits and that must be read again: pass its batches to `again`, then call
        `ended`.
        """
        if batch.base < self._start:
            self._take_behind(batch)
            return None
        self._meet(batch)
        if batch.kind is Kind.COMMIT and batch.producer is not None:
            transaction = self._open.get(batch.producer)
            if transaction is not None and transaction.batches is None:
                return transaction
            for held in [] if transaction is None else transaction.batches or []:
                self.again(held, batch)
        elif batch.kind in (Kind.DATA, Kind.FOREIGN):
            if batch.producer is None:
                self._count(batch, 0)
            else:
                self._open.hold(batch.producer, batch)
        self.ended(batch)
        return None

    def again(self, batch: RecordBatch, commit: RecordBatch) -> None:
        skip = self._skip if commit.base == self._start else 0
        if batch.next > skip:
            self._commit = commit
            self._count(batch, skip)

    def ended(self, batch: RecordBatch) -> None:
        if batch.kind in _ENDS and batch.producer is not None:
            self._open.drop(batch.producer)
        self._commit = None
        self._at(batch.next)

    def mark(self, tick: int) -> None:
        self.marked = tick
        self._give(tick)

    def flush(self) -> None:
        if self._values or self._refused:
            self._give(None)

    def _give(self, mark: int | None) -> None:
        values, offsets, refused = self._values, self._offsets, self._refused
        self._values, self._offsets, self._refused = [], (), []
        first = self._open.first
        self._out.append(
            Batch(
                self.partition, values, offsets, self.position, self._tick if values else None, mark,
                None if first is None else Behind(first, self._done), refused,
            )
        )  # fmt: skip

    def _meet(self, batch: RecordBatch) -> None:
        """Mark the ticks that have passed before this batch."""

    def _count(self, batch: RecordBatch, skip: int) -> None:
        """Add the records of a batch from offset `skip` on."""
        raise NotImplementedError

    def _take_behind(self, batch: RecordBatch) -> None:
        """Take a batch before the position: only transactions open at the position count, and only later."""
        if batch.kind in _ENDS:
            if batch.producer is not None:
                self._open.drop(batch.producer)
        elif batch.kind is not Kind.DATA:
            return
        elif batch.producer is not None:
            self._open.hold(batch.producer, batch)
        elif batch.next > self._start:
            self._count(batch, self._start)
            self.ended(batch)

    def _unpacked(self, batch: RecordBatch, skip: int) -> Unpacked:
        unpacked = self._unpacker.unpack(batch)
        return unpacked.behind(skip) if skip > batch.base else unpacked

    def _gather(self, values: Sequence[bytes], offsets: Sequence[int], refused: list[Span]) -> None:
        if self._values:
            self._offsets = _joined(self._offsets, offsets)
            self._values = together(self._values, values)
        else:
            self._values, self._offsets = values, offsets
        self._refused += refused

    def _at(self, offset: int) -> None:
        """Continue at `offset`, of the log or of the transaction being counted."""
        if self._commit is None:
            self.position, self._done = offset, 0
        else:
            self.position, self._done = self._commit.base, offset
        if len(self._values) >= MOST:
            self.flush()


class StampedTicks(PartitionTicks):
    """Ticks of `grid` by append stamp; a tick passes `settle` ms after its end."""

    def __init__(
        self, place: Place, unpacker: Unpacker, room: Room, out: list[Batch], grid: TickGrid, settle: int
    ) -> None:  # fmt: skip
        super().__init__(place, unpacker, room, out)
        self._grid, self._settle = grid, settle
        self._due, self._within = 0, range(0)

    def mark(self, tick: int) -> None:
        super().mark(tick)
        self._due = self._grid.end(tick + 1) + self._settle

    def _meet(self, batch: RecordBatch) -> None:
        if batch.stamp >= self._due and batch.kind is not Kind.FOREIGN:
            passed = self._grid.passed(batch.stamp - self._settle)
            if passed > self.marked:
                self.mark(passed)

    def _count(self, batch: RecordBatch, skip: int) -> None:
        if batch.stamp not in self._within and batch.kind is not Kind.FOREIGN:
            self.flush()
            tick = self._tick = self._grid.tick_of(batch.stamp)
            self._within = range(self._grid.start(tick), self._grid.end(tick))
        if self._tick is None or self._tick >= 0:
            unpacked = self._unpacked(batch, skip)
            self._gather(unpacked.values, unpacked.offsets, unpacked.refused)
        self._at(batch.next)


class MarkedTicks(PartitionTicks):
    """Ticks that close on the records that `marks` accepts as marks."""

    def __init__(
        self, place: Place, unpacker: Unpacker, room: Room, out: list[Batch], marks: TickMarks
    ) -> None:
        super().__init__(place, unpacker, room, out)
        self._marks = marks

    def _count(self, batch: RecordBatch, skip: int) -> None:
        unpacked = self._unpacked(batch, skip)
        begin, refused = 0, unpacked.refused
        for index, header in unpacked.marks.items():
            offset = unpacked.offsets[index]
            tick = self._marks.read(self.partition, header)
            before = [span for span in refused if span.last < offset]
            refused = [span for span in refused if span.last > offset]
            if tick is None:
                before.append(Span(BAD_MARK, None, offset, offset))
            self._gather(unpacked.values[begin:index], unpacked.offsets[begin:index], before)
            begin = index + 1
            self._at(offset + 1)
            if tick is not None and tick > self.marked:
                self.mark(tick)
        self._gather(unpacked.values[begin:], unpacked.offsets[begin:], refused)
        self._at(batch.next)


def cell_of(grid: TickGrid, settle: int) -> Cell:
    """Return the cell of a stamp: the stamps around it with the same tick and the same passed tick."""

    def cell(stamp: int) -> range:
        tick, passed = grid.tick_of(stamp), grid.passed(stamp - settle)
        return range(
            max(grid.start(tick), grid.end(passed) + settle),
            min(grid.end(tick), grid.end(passed + 1) + settle),
        )

    return cell


def _joined(first: Sequence[int], second: Sequence[int]) -> Sequence[int]:
    if isinstance(first, range) and isinstance(second, range) and first.stop == second.start:
        return range(first.start, second.stop)
    return [*first, *second]
