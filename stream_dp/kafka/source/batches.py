# ruff: noqa: SLF001 - `buffered` works on the inside of the client library
"""A consumer that returns whole record batches instead of records.

The client library makes an object of each record, and unpacks and decodes everything before a caller can refuse it. A
consumer made here keeps the library's connections, leaders, retries and positions, and returns `RecordBatch`es: the two
names in the library's fetcher by which it makes its iterator of records are replaced by classes that behave as before,
except for consumers that carry our marker in place of a deserializer. The name by which its connection opens an answer
is replaced too: a large answer of `Frames` is read where it lies, and a partition's records are its first copy.

Rules: nothing is raised inside that iterator, or good batches of the same fetch would be lost; other consumers in the
process are not affected. The library's version is pinned; if its inside is not as this file expects, `fitting` returns
False and consumers return batches made of the records that the library has unpacked.
"""

import asyncio
import inspect
import io
from collections.abc import Iterator, Sequence
from itertools import groupby
from types import SimpleNamespace
from typing import Any

from stream_dp.kafka.client.clients import KafkaSettings, library
from stream_dp.kafka.source.record_batches import (
    APPENDED,
    HEADER,
    Cell,
    Kind,
    RecordBatch,
    record_batches,
)

_ROOM = 64 * 1024  # bytes of a new buffer, and the least free space for a read
_STEP = 1024 * 1024
_KEPT = 8 * 1024 * 1024  # a larger buffer is freed after the answer that needed it
_ARGUMENTS = (
    "self", "tp", "records", "aborted_transactions", "fetch_offset",
    "key_deserializer", "value_deserializer", "check_crcs", "isolation_level",
)  # fmt: skip
_COMMITTED = 1
_APPENDED = 1
_NOTHING = memoryview(b"")


class Frames(asyncio.BufferedProtocol):
    """Receives answers into one buffer of the connection, with the part of `StreamReader` that the library uses.

    The library's own `asyncio.StreamReader` appends to a bytearray and pauses the socket each time it holds 128 KiB:
    for large records that is most of the cost of reading them. `theirs`, the former protocol, is still notified of the
    end of the connection and of full pipes. A connection is handed over before our first request, so no bytes are lost;
    one that is not as this file expects keeps its stream, which is slower and returns the same bytes.
    """

    def __init__(self, theirs: asyncio.BaseProtocol) -> None:
        self._theirs: Any = theirs
        self._buffer = memoryview(bytearray(_ROOM))
        self._begin = self._end = self._wanted = 0
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self._lost: Exception | None = None

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the free part of the buffer; it grows in steps up to the awaited size."""
        held = self._end - self._begin
        if held == 0:
            self._begin = self._end = 0
        if len(self._buffer) - self._end < min(_ROOM, max(1, self._wanted - held)):
            self._make_room(held)
        return self._buffer[self._end :]

    def _make_room(self, held: int) -> None:
        """Move the held bytes to the front, of a larger buffer if this one is too small."""
        needed = max(self._wanted, held + _ROOM)
        room = self._buffer
        if len(room) < needed:
            room = memoryview(bytearray(min(needed, max(2 * len(room), held + _STEP))))
        room[:held] = self._buffer[self._begin : self._end]
        self._buffer, self._begin, self._end = room, 0, held

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        if self._end - self._begin >= self._wanted:
            self._wake()

    def eof_received(self) -> bool | None:
        self._ended = True
        self._wake()
        kept: bool | None = self._theirs.eof_received()
        return kept

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended, self._lost = True, exc
        self._wake()
        self._theirs.connection_lost(exc)

    def pause_writing(self) -> None:
        self._theirs.pause_writing()

    def resume_writing(self) -> None:
        self._theirs.resume_writing()

    async def readexactly(self, n: int) -> bytes | memoryview:
        """Wait for `n` bytes; raises as `asyncio.StreamReader.readexactly`.

        Many bytes are a view, which is valid until the loop runs again: the library decodes an answer at once.
        """
        if n < 0:
            raise ValueError("readexactly size can not be less than zero")
        while self._end - self._begin < n:
            if self._lost is not None:
                raise self._lost
            if self._ended:
                raise asyncio.IncompleteReadError(bytes(self._buffer[self._begin : self._end]), n)
            self._wanted, self._waiter = n, asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._wanted, self._waiter = 0, None
        answer = self._buffer[self._begin : self._begin + n]
        data = answer if n >= _ROOM else bytes(answer)
        self._begin += n
        if self._begin == self._end and len(self._buffer) > _KEPT:
            self._buffer, self._begin, self._end = memoryview(bytearray(_ROOM)), 0, 0
        return data

    def at_eof(self) -> bool:
        return self._ended and self._begin == self._end

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def buffered(client: Any) -> None:
    """Make a client of the library, not yet started, read its connections through `Frames`."""
    connect = getattr(client, "_get_conn", None)
    if connect is None:
        return

    async def connected(*arguments: Any, **options: Any) -> Any:
        connection = await connect(*arguments, **options)
        if isinstance(getattr(connection, "_reader", None), asyncio.StreamReader):
            hand_over(connection)
        return connection

    client._get_conn = connected


def hand_over(connection: Any) -> None:
    """Make a connection of the library read through `Frames` if it has no pending requests."""
    try:
        theirs, transport = connection._protocol, connection._writer.transport
        reading, begin = connection._read_task, connection._create_reader_task
        waiting = bool(connection._requests or connection._reader._buffer)
    except AttributeError:
        return
    if waiting or connection._reader.at_eof() or transport.is_closing():
        return
    frames = Frames(theirs)
    reading.cancel()
    transport.set_protocol(frames)
    connection._reader = frames
    connection._read_task = begin()


class WholeBatches:
    """The marker of a consumer that wants batches, joined in cells of stamps (see `record_batches`)."""

    def __init__(self, cell: Cell | None) -> None:
        self.cell = cell

    def __call__(self, payload: bytes) -> bytes:
        return payload


def consumer(
    settings: KafkaSettings, *, wait: bool, fetch_wait_ms: int, cell: Cell | None = None
) -> Any:
    """Return a consumer, not yet started, for partitions assigned by hand.

    With `wait` it waits behind open transactions. `cell` says which batches may be joined (see `record_batches`).
    """
    options: dict[str, Any] = {**settings.client(), "enable_auto_commit": False}
    options |= {"auto_offset_reset": "none", "fetch_max_wait_ms": fetch_wait_ms}
    if not fitting():
        return library().AIOKafkaConsumer(isolation_level="read_committed", **options)
    _install()
    made = library().AIOKafkaConsumer(
        isolation_level="read_committed" if wait else "read_uncommitted",
        value_deserializer=WholeBatches(cell),
        **options,
    )
    buffered(made._client)
    return made


def fitting() -> bool:
    """Return whether the library's inside is as this file expects."""
    fetcher = library(".consumer.fetcher")
    made = getattr(fetcher, "PartitionRecords", None)
    if isinstance(made, _Chosen):
        return True
    records = getattr(fetcher, "MemoryRecords", None)
    header = getattr(library(".record.default_records"), "DefaultRecordBase", None)
    try:
        return (
            tuple(inspect.signature(made.__init__).parameters) == _ARGUMENTS  # type: ignore[misc]
            and header.HEADER_STRUCT.size == HEADER.size  # type: ignore[union-attr]
            and records is library(".record.memory_records").MemoryRecords
            and not _kept(records)(b"").has_next()
            and library(".conn").io.BytesIO in (io.BytesIO, _opened)
        )
    except (AttributeError, TypeError, ValueError):
        return False


def batches(fetched: Sequence[Any]) -> Sequence[RecordBatch]:
    """Return the fetched records of one partition, from a consumer made here, as batches."""
    if not fetched or isinstance(fetched[0], RecordBatch):
        return fetched
    runs = groupby(fetched, key=lambda record: (record.timestamp, record.timestamp_type))
    return [_of_records(list(run)) for _, run in runs]


def _of_records(run: list[Any]) -> RecordBatch:
    """Return a batch of records that the library has unpacked; they have the same stamp."""
    first, last = run[0], run[-1]
    return RecordBatch(
        Kind.DATA, first.offset, last.offset + 1, first.timestamp,
        APPENDED if first.timestamp_type == _APPENDED else 0, None, len(run), _NOTHING, run,
    )  # fmt: skip


def _install() -> None:
    fetcher = library(".consumer.fetcher")
    if not isinstance(fetcher.PartitionRecords, _Chosen):
        fetcher.PartitionRecords = _Chosen(fetcher.PartitionRecords)
        fetcher.MemoryRecords = _kept(fetcher.MemoryRecords)
        library(".conn").io = SimpleNamespace(BytesIO=_opened)


def _kept(memory_records: Any) -> Any:
    class KeptRecords(memory_records):  # type: ignore[misc]
        def __init__(self, fetched: bytes) -> None:
            super().__init__(fetched)
            self.fetched = fetched

    return KeptRecords


class _Answer:
    """The part of `io.BytesIO` that the library uses, on bytes that it does not own."""

    def __init__(self, answer: memoryview) -> None:
        self._answer, self._at = answer, 0

    def read(self, n: int) -> bytes:
        begin, self._at = self._at, self._at + n
        return bytes(self._answer[begin : self._at])


def _opened(answer: bytes | memoryview) -> _Answer | io.BytesIO:
    return _Answer(answer) if isinstance(answer, memoryview) else io.BytesIO(answer)


class _Chosen:
    """Makes the library's iterator, or ours for a consumer with our marker."""

    def __init__(self, theirs: Any) -> None:
        self._theirs = theirs

    def __call__(self, *arguments: Any) -> Any:
        _, records, aborted, offset, _, value, _, level = arguments
        if not isinstance(value, WholeBatches):
            return self._theirs(*arguments)
        read = _read(records.fetched, offset, value.cell)
        return _Batches(offset, read if level != _COMMITTED else _decided(read, aborted))


class _Batches:
    """An iterator of batches, and the offset at which the next fetch begins."""

    def __init__(self, offset: int, read: Iterator[RecordBatch]) -> None:
        self.next_fetch_offset, self._read = offset, read

    def __iter__(self) -> "_Batches":
        return self

    def __next__(self) -> RecordBatch:
        batch = next(self._read)
        self.next_fetch_offset = batch.next
        return batch


def _read(fetched: bytes, offset: int, cell: Cell | None) -> Iterator[RecordBatch]:
    """Yield the batches; if the bytes are damaged, the last one is DAMAGED."""
    try:
        for batch in record_batches(fetched, offset, cell):
            yield batch
            offset = batch.next
    except ValueError:
        yield RecordBatch(Kind.DAMAGED, offset, offset, 0, 0, None, 0, _NOTHING)


def _decided(
    read: Iterator[RecordBatch], aborted: Sequence[tuple[int, int]] | None
) -> Iterator[RecordBatch]:
    """Yield the batches of a fetch of committed records; `aborted` lists the aborted transactions in it."""
    waiting = sorted(aborted or (), key=lambda transaction: transaction[1])
    never: set[int | None] = set()
    for batch in read:
        while waiting and waiting[0][1] <= batch.base:
            never.add(waiting.pop(0)[0])
        if batch.kind is Kind.ABORT:
            never.discard(batch.producer)
        yield batch._replace(
            kind=Kind.OTHER if batch.kind is Kind.DATA and batch.producer in never else batch.kind,
            producer=None,
        )
