"""How many connections a server holds, and for how long: an HTTP/1.1 protocol of uvicorn with deadlines.

Rules: a connection takes a file from the process, and the engine beside the server needs files too; so there are never
more than `Limits.connections`. A new one is always let in: where there is no room, another goes, the oldest that is
still sending its request, else the oldest of all (a stream's client connects again and resumes where it was); the
newest `NEWEST` are spared, for nobody has looked yet whether their requests are there. Health has turns of its own, so
that no reader keeps it waiting. A request must be whole in time, head and body together, and a client that takes
nothing of what is sent to it is dropped. What waits to be sent to a client is what one write held. An answer that
cannot be sent to its end is reset, so that nobody takes it for whole. This file knows no route but health's and logs
nothing.
"""

import asyncio
import resource
import socket
import struct
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from stream_dp.server.parts import Overtaken
from stream_dp.server.turns import HEALTH_SHARE, Turns

MOST = 512
ENGINES = (
    64  # files that are left to the engine, and as many for connections on their way in or out
)
FEWEST = 8
NEWEST = 32  # twice as many as are accepted at once
HEALTH = "/healthz"
_EVENTS = b"text/event-stream"
_AT_ONCE = struct.pack(
    "ii", 1, 0
)  # to linger for no second: an end that the other side is told as an error


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds for a whole request and for a client that takes nothing; how many connections, in all and of one peer.

    A peer is an address other than this machine's own, behind which all may be one (a proxy).
    """

    request_seconds: float = 10.0
    stall_seconds: float = 20.0
    connections: int = MOST
    of_a_peer: int = MOST // 4

    @classmethod
    def of_process(cls) -> "Limits":
        """Return limits that leave the engine its files: at most half of what the process may open."""
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
        """How many there are."""
        return len(self._open)

    def admit(self, new: "BoundedProtocol") -> None:
        """Let it in; where there is no room, another connection goes."""
        if new.peer is not None:
            same = [one for one in self._open if one.peer == new.peer]
            if len(same) >= self.limits.of_a_peer:
                self._drop(same)
        if len(self._open) >= self.limits.connections:
            self._drop(list(self._open))
        self._open[new] = None

    def leave(self, gone: "BoundedProtocol") -> None:
        """Forget it; once more does nothing."""
        self._open.pop(gone, None)

    def _drop(self, candidates: "list[BoundedProtocol]") -> None:
        spared = min(NEWEST, len(candidates) // 4)
        unfinished = (one for one in candidates[: len(candidates) - spared] if one.asking)
        victim = next(unfinished, candidates[0])
        self.leave(victim)
        victim.transport.abort()


class BoundedProtocol(H11Protocol):
    """A connection with deadlines, one of `room`; a server makes a subclass that says which.

    `peer` is the client's address, None where it is this machine's own.
    """

    room: ClassVar[Connections]
    peer: str | None = None
    _request: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None
    _gone = False

    @property
    def asking(self) -> bool:
        """Whether its next request is not whole yet: nothing of it, part of its head, or part of its body is there."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def connection_made(self, transport: Any) -> None:
        """Take a place, and begin to wait for the first request."""
        super().connection_made(transport)
        self._left = asyncio.Event()
        self._answer, self.app = self.app, self._in_turn
        transport.set_write_buffer_limits(high=0)  # so that every byte that is not taken is seen
        self.peer = _foreign(self.client)
        self.room.admit(self)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self._gone = True
        self.room.leave(self)
        self._request, self._stall = _cancelled(self._request), _cancelled(self._stall)
        super().connection_lost(exc)
        self._left.set()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request; the deadline does not move until it is whole."""
        super().data_received(data)
        if not self.asking:
            self._request = _cancelled(self._request)

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        if self.asking and not self.transport.is_closing():
            self._expect()

    def pause_writing(self) -> None:
        """Begin to watch whether the client takes what was sent."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """Everything was taken."""
        super().resume_writing()
        self._stall = _cancelled(self._stall)

    async def _in_turn(self, scope: Any, receive: Any, send: Any) -> None:
        """Have a request answered when its turn comes."""
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
        """Send a part of a history when the client has taken the one before and its turn comes."""
        await self.flow.drain()
        turn = await self.room.turns.take(lambda: not self._gone)
        try:
            await send(message)
        finally:
            if turn is not None:
                turn.end()

    async def _reset(self) -> None:
        """Drop the connection in a way that no client takes for the end of an answer, also of one without chunks."""
        self.transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE
        )
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
    """Return the protocol whose connections have their place in `room`."""
    return type("RoomProtocol", (BoundedProtocol,), {"room": room})


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Cancel it, and return what stands in its place: no timer."""
    if timer is not None:
        timer.cancel()
    return None


def _is_live(message: Any) -> bool:
    """Say whether this begins a stream of events, which is as old as what it waits for."""
    return any(value.startswith(_EVENTS) for _, value in message.get("headers", ()))


def _foreign(client: tuple[str, int] | None) -> str | None:
    """Return the client's address where it is not one of this machine's own."""
    if client is None:
        return None
    try:
        return None if ip_address(client[0].partition("%")[0]).is_loopback else client[0]
    except ValueError:
        return client[0]
