"""How many connections a server holds, and for how long: an HTTP/1.1 protocol of uvicorn with deadlines.

Rules: a connection uses a file descriptor of the process, and the engine needs descriptors too; so there are never
more than `Limits.connections`. A request must be complete in time, head and body together, and a client that does
not read its answer is dropped. At most one write waits for a client. An answer that cannot be finished is reset, so
that no client takes it for complete. This file knows no route but health's and logs nothing.
"""

import asyncio
import resource
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from stream_dp.server.broadcast import HEALTH_SHARE, Overtaken, Turns

MOST = 512
ENGINES = 64  # descriptors left to the engine, and as many for opening and closing connections
FEWEST = 8
NEWEST = 32  # twice the number accepted at once
HEALTH = "/healthz"
_EVENTS = b"text/event-stream"
_AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: the other side sees the close as an error


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds for a complete request and for a client that reads nothing; connections in all and per peer.

    A peer is an address other than loopback, behind which one proxy may serve all clients.
    """

    request_seconds: float = 10.0
    stall_seconds: float = 20.0
    connections: int = MOST
    of_a_peer: int = MOST // 4

    @classmethod
    def of_process(cls) -> "Limits":
        """Return limits with at most half of the process's files, which leave the rest to the engine."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        room = MOST if soft == resource.RLIM_INFINITY else soft // 2 - ENGINES
        most = max(FEWEST, min(MOST, room))
        return cls(connections=most, of_a_peer=max(FEWEST // 2, most // 4))


class Connections:
    """The open connections of one server, the oldest first."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.turns, self.health = Turns(), Turns(HEALTH_SHARE)
        self._open: dict[BoundedProtocol, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, new: "BoundedProtocol") -> None:
        """Accept a connection; if there is no room, drop the oldest that still sends its request, else the oldest.

        A stream's client connects again and resumes. The newest `NEWEST` are spared: their requests were not read yet.
        """
        same = [other for other in self._open if other.peer == new.peer]
        if new.peer is not None and len(same) >= self.limits.of_a_peer:
            self._drop(same)
        if len(self._open) >= self.limits.connections:
            self._drop(list(self._open))
        self._open[new] = None

    def leave(self, gone: "BoundedProtocol") -> None:
        self._open.pop(gone, None)

    def _drop(self, candidates: "list[BoundedProtocol]") -> None:
        spared = min(NEWEST, len(candidates) // 4)
        older = candidates[: len(candidates) - spared]
        victim = next((other for other in older if other.asking), candidates[0])
        self.leave(victim)
        victim.transport.abort()


class BoundedProtocol(H11Protocol):
    """A connection with deadlines, counted in its server's `room`; `peer` is None for a loopback address."""

    room: ClassVar[Connections]
    peer: str | None = None
    _request: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None
    _gone = False

    @property
    def asking(self) -> bool:
        """Whether the next request is incomplete, or has not begun."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._left = asyncio.Event()
        self._answer, self.app = self.app, self._in_turn
        transport.set_write_buffer_limits(high=0)  # so that any unread byte pauses writing
        self.peer = _foreign(self.client)
        self.room.admit(self)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = True
        self.room.leave(self)
        self._request, self._stall = _cancelled(self._request), _cancelled(self._stall)
        super().connection_lost(exc)
        self._left.set()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.asking:
            self._request = _cancelled(self._request)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.asking and not self.transport.is_closing():
            self._expect()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stall = _cancelled(self._stall)

    async def _in_turn(self, scope: Any, receive: Any, send: Any) -> None:
        lane = self.room.health if scope["path"] == HEALTH else self.room.turns
        turn = await lane.take(lambda: not self._gone)
        if turn is None:
            return

        live = False

        async def sending(message: Any) -> None:
            nonlocal live
            turn.end()
            live = live or _is_live(message)
            if message.get("more_body") and not live:
                await self._part_in_turn(message, send)
            else:
                await send(message)

        try:
            await self._answer(scope, receive, sending)
        except Overtaken:
            await self._reset()
        finally:
            turn.end()

    async def _part_in_turn(self, message: Any, send: Any) -> None:
        """Send a part of a history at its turn, after the client has read the part before."""
        await self.flow.drain()
        turn = await self.room.turns.take(lambda: not self._gone)
        try:
            await send(message)
        finally:
            if turn is not None:
                turn.end()

    async def _reset(self) -> None:
        """Drop the connection so that no client takes this for the end of an answer, even of one without chunks."""
        connection = self.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.transport.abort()
        await self._left.wait()

    def _expect(self) -> None:
        if self._request is None:
            self._request = self.loop.call_later(self.room.limits.request_seconds, self._late)

    def _late(self) -> None:
        self._request = None
        if self.asking:
            self.transport.abort()

    def _watch(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._stall = self.loop.call_later(self.room.limits.stall_seconds, self._stalled, left)

    def _stalled(self, before: int) -> None:
        if self.transport.get_write_buffer_size() < before:
            self._watch()
        else:
            self._stall = None
            self.transport.abort()


def bounded(room: Connections) -> type[BoundedProtocol]:
    """Return a protocol class whose connections are counted in `room`."""
    return type("RoomProtocol", (BoundedProtocol,), {"room": room})


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    if timer is not None:
        timer.cancel()
    return None


def _is_live(message: Any) -> bool:
    """Return whether this message begins an event stream, whose parts need no turn."""
    return any(value.startswith(_EVENTS) for _, value in message.get("headers", ()))


def _foreign(client: tuple[str, int] | None) -> str | None:
    """Return the client's address unless it is this machine's own."""
    if client is None:
        return None
    with suppress(ValueError):
        if ip_address(client[0].partition("%")[0]).is_loopback:
            return None
    return client[0]
