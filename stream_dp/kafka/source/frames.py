# ruff: noqa: SLF001 - the inside of the client library is what this file is about
"""Answers of brokers read into one buffer per connection, in place of a stream that grows with every answer.

The client library reads its connections through `asyncio.StreamReader`, which appends what comes to a bytearray and
pauses the socket each time it holds 128 KiB: for large records that is most of what reading them costs. `buffered`
makes one client of the library read through `Frames` instead. Rules: a connection is handed over before its first
request of ours, so nothing lies between the two; other clients in the process are left as they are; where a connection
is not as this file expects, it stays with its stream, which is slower and gives the same.
"""

import asyncio
from typing import Any

_ROOM = 64 * 1024
"""Bytes of a new buffer, and the least that is free in it at a reading."""
_STEP = 1024 * 1024
_KEPT = 8 * 1024 * 1024
"""A buffer that has grown larger goes with the answer it was for."""


class Frames(asyncio.BufferedProtocol):
    """A protocol that receives into its buffer, and the part of `StreamReader` that the library uses.

    `theirs`, the protocol before this one, still learns of the end of the connection and of full pipes.
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
        """Return where to write what comes next; enough for what is waited for, a step at a time."""
        held = self._end - self._begin
        if held == 0:
            self._begin = self._end = 0
        if len(self._buffer) - self._end < min(_ROOM, max(1, self._wanted - held)):
            self._make_room(held)
        return self._buffer[self._end :]

    def _make_room(self, held: int) -> None:
        """Move what is held to the front, of a larger buffer where this one is too small."""
        needed = max(self._wanted, held + _ROOM)
        room = self._buffer
        if len(room) < needed:
            room = memoryview(bytearray(min(needed, max(2 * len(room), held + _STEP))))
        room[:held] = self._buffer[self._begin : self._end]
        self._buffer, self._begin, self._end = room, 0, held

    def buffer_updated(self, nbytes: int) -> None:
        """Wake the reader when there is enough for it."""
        self._end += nbytes
        if self._end - self._begin >= self._wanted:
            self._wake()

    def eof_received(self) -> bool | None:
        """Let the reader know that nothing more comes."""
        self._ended = True
        self._wake()
        kept: bool | None = self._theirs.eof_received()
        return kept

    def connection_lost(self, exc: Exception | None) -> None:
        """Let the reader know why, and whoever waits for the end of the connection."""
        self._ended, self._lost = True, exc
        self._wake()
        self._theirs.connection_lost(exc)

    def pause_writing(self) -> None:
        """Tell who writes."""
        self._theirs.pause_writing()

    def resume_writing(self) -> None:
        """Tell who writes."""
        self._theirs.resume_writing()

    async def readexactly(self, n: int) -> bytes:
        """Wait for `n` bytes and return them.

        Raises:
            ValueError: `n` is negative.
            OSError: the connection broke.
            IncompleteReadError: it ended before.
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
        """Whether nothing more comes and nothing is left."""
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
    """Read a connection of the library, of which nothing is awaited, through `Frames`; or leave it as it is."""
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
