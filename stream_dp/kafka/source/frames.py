# ruff: noqa: SLF001 - the inside of the client library is what this file is about
"""Brokers' answers are read into one buffer per connection, instead of a stream that grows with each answer.

The client library reads its connections through `asyncio.StreamReader`, which appends received bytes to a bytearray
and pauses the socket each time it holds 128 KiB: for large records that is most of the cost of reading them.
`buffered` makes one client of the library read through `Frames` instead.

Rules: a connection is handed over before our first request, so no bytes are lost between the two readers; other
clients in the process are not affected. A connection that is not as this file expects keeps its stream, which is
slower and returns the same bytes.
"""

import asyncio
from typing import Any

_ROOM = 64 * 1024
"""Bytes of a new buffer, and the least free space for a read."""
_STEP = 1024 * 1024
_KEPT = 8 * 1024 * 1024
"""A larger buffer is freed after the answer that needed it."""


class Frames(asyncio.BufferedProtocol):
    """A protocol that receives into its buffer, with the part of `StreamReader`'s interface that the library uses.

    `theirs`, the former protocol, is still notified of the end of the connection and of full pipes.
    """

    def __init__(self, theirs: asyncio.BaseProtocol) -> None:
        self._theirs: Any = theirs
        self._buffer = memoryview(bytearray(_ROOM))
        self._begin = self._end = 0
        self._wanted = 0
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
        """Wake the reader when enough bytes are there."""
        self._end += nbytes
        if self._end - self._begin >= self._wanted:
            self._wake()

    def eof_received(self) -> bool | None:
        """Tell the reader that nothing more comes."""
        self._ended = True
        self._wake()
        kept: bool | None = self._theirs.eof_received()
        return kept

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the reader the cause, and the former protocol that the connection ended."""
        self._ended, self._lost = True, exc
        self._wake()
        self._theirs.connection_lost(exc)

    def pause_writing(self) -> None:
        """Tell the former protocol."""
        self._theirs.pause_writing()

    def resume_writing(self) -> None:
        """Tell the former protocol."""
        self._theirs.resume_writing()

    async def readexactly(self, n: int) -> bytes:
        """Wait for `n` bytes and return them.

        Raises:
            ValueError: `n` is negative.
            OSError: the connection broke.
            IncompleteReadError: the connection ended before.
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
        found = bytes(self._buffer[self._begin : self._begin + n])
        self._begin += n
        if self._begin == self._end and len(self._buffer) > _KEPT:
            self._buffer, self._begin, self._end = memoryview(bytearray(_ROOM)), 0, 0
        return found

    def at_eof(self) -> bool:
        """Return whether nothing more comes and nothing is left."""
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
