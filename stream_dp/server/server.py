"""The page's HTTP server inside the caller's event loop.

Rules: the port is bound before anything else and the socket is passed on, so no other process can take it in
between; if a port is taken, the next one is tried. Signals stay the caller's. `stop` is quick, also with open
streams and with clients that do not read. Clients use no more files than `connections` allows, however many
connect. There is no access log, and no log line about clients' errors. FastAPI, uvicorn and prometheus_client are
imported when a server is built; if they are missing, a usage error names the extra.
"""

import asyncio
import errno
import hmac
import importlib
import resource
import socket
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from stream_dp.engine.ports import Spans, untold
from stream_dp.errors import UsageError, WorldError
from stream_dp.server.broadcast import HEALTH_SHARE, Broadcast, Overtaken, Turns
from stream_dp.server.view import PublicView

if TYPE_CHECKING:
    import uvicorn
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

# ---
# How many connections a server holds, and for how long: an HTTP/1.1 protocol of uvicorn with deadlines.
#
# Rules: a connection uses a file descriptor of the process, and the engine needs descriptors too; so there are never
# more than `Limits.connections`. A new connection is always accepted. If there is no room, another one is dropped:
# the oldest that is still sending its request, else the oldest of all (a stream's client connects again and resumes).
# The newest `NEWEST` are spared, because the server has not read yet whether their requests are complete. Health has
# a lane of its own, so that no reader delays it. A request must be complete in time, head and body together, and a
# client that does not read its answer is dropped. At most one write waits for a client. An answer that cannot be
# finished is reset, so that no client takes it for complete. This file knows no route but health's and logs nothing.

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

    A peer is an address other than this machine's own addresses, behind which all clients may be one proxy.
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
        """Return the number of open connections."""
        return len(self._open)

    def admit(self, new: "BoundedProtocol") -> None:
        """Accept a connection; if there is no room, drop another one."""
        if new.peer is not None:
            same = [one for one in self._open if one.peer == new.peer]
            if len(same) >= self.limits.of_a_peer:
                self._drop(same)
        if len(self._open) >= self.limits.connections:
            self._drop(list(self._open))
        self._open[new] = None

    def leave(self, gone: "BoundedProtocol") -> None:
        """Forget a connection; a second call does nothing."""
        self._open.pop(gone, None)

    def _drop(self, candidates: "list[BoundedProtocol]") -> None:
        spared = min(NEWEST, len(candidates) // 4)
        unfinished = (one for one in candidates[: len(candidates) - spared] if one.asking)
        victim = next(unfinished, candidates[0])
        self.leave(victim)
        victim.transport.abort()


class BoundedProtocol(H11Protocol):
    """A connection with deadlines, counted in `room`; a server makes a subclass with its `room`.

    `peer` is the client's address, None if it is this machine's own.
    """

    room: ClassVar[Connections]
    peer: str | None = None
    _request: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None
    _gone = False

    @property
    def asking(self) -> bool:
        """Whether the next request is incomplete: not begun, or with only part of its head or body."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def connection_made(self, transport: Any) -> None:
        """Take a place, and start the deadline of the first request."""
        super().connection_made(transport)
        self._left = asyncio.Event()
        self._answer, self.app = self.app, self._in_turn
        transport.set_write_buffer_limits(high=0)  # so that any unread byte pauses writing
        self.peer = _foreign(self.client)
        self.room.admit(self)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the place."""
        self._gone = True
        self.room.leave(self)
        self._request, self._stall = _cancelled(self._request), _cancelled(self._stall)
        super().connection_lost(exc)
        self._left.set()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request; the deadline stays the same until the request is complete."""
        super().data_received(data)
        if not self.asking:
            self._request = _cancelled(self._request)

    def on_response_complete(self) -> None:
        """Start the deadline of the next request."""
        super().on_response_complete()
        if self.asking and not self.transport.is_closing():
            self._expect()

    def pause_writing(self) -> None:
        """Start to watch whether the client reads."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """Stop watching: the client has read everything."""
        super().resume_writing()
        self._stall = _cancelled(self._stall)

    async def _in_turn(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request when its turn comes."""
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
        """Send a part of a history once the client has read the part before and the turn comes."""
        await self.flow.drain()
        turn = await self.room.turns.take(lambda: not self._gone)
        try:
            await send(message)
        finally:
            if turn is not None:
                turn.end()

    async def _reset(self) -> None:
        """Drop the connection so that no client takes it for the end of an answer, even of one without chunks."""
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
    """Return a protocol class whose connections are counted in `room`."""
    return type("RoomProtocol", (BoundedProtocol,), {"room": room})


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Cancel the timer and return None."""
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
    try:
        return None if ip_address(client[0].partition("%")[0]).is_loopback else client[0]
    except ValueError:
        return client[0]


_Handler: TypeAlias = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]

LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""Host names that clients on this machine use."""
_PORTS_TO_TRY = 100
_GRACE_SECONDS = 0.6
_BACKLOG = 128
_ACCEPTED_AT_ONCE = 16  # each uses a file before `admit` counts it
_LARGEST_HEAD = 16384
_NO_FILES = "socket.accept() out of system resource"  # asyncio's message, every second


class PageServer:
    """Serves one `PublicView`.

    `allowed_hosts` are further host names (without a port) for this server. `limits` bounds the clients' use; by
    default the process keeps files for the engine. `spans` traces requests.
    """

    def __init__(
        self,
        view: PublicView,
        allowed_hosts: frozenset[str] = frozenset(),
        limits: "Limits | None" = None,
        spans: Spans = untold,
    ) -> None:
        """Build the server; it listens after `start`."""
        require_extra()
        self._view = view
        self._limits = limits
        self._extra_hosts, self._spans = allowed_hosts, spans
        self._running: Serving | None = None

    @property
    def url(self) -> str:
        """The address of the page."""
        if self._running is None:
            raise UsageError("the page server was not started")
        return self._running.url

    async def start(self, host: str = "127.0.0.1", port: int = 8765) -> None:
        """Listen on `port` or the next free one (0: any), and answer from now on."""
        if self._running is not None:
            raise UsageError("the page server was started before")
        from stream_dp.server.api import Traced, create_app

        listener = await _listen(host, port)
        hosts = LOOPBACK | {_bracketed(host)} | self._extra_hosts
        self._broadcast = Broadcast(self._view)
        app = Traced(create_app(self._view, hosts, self._broadcast), self._spans)
        self._running = Serving(app, listener, host, self._limits)

    async def stop(self) -> None:
        """End all streams and connections and free the port; a second call does nothing."""
        if self._running is not None:
            running, self._running = self._running, None
            self._broadcast.close()
            await running.stop()


class Serving:
    """Serves an ASGI application on a listening socket until `stop`; `host` is used for the URL."""

    def __init__(
        self, app: "ASGIApp", listener: socket.socket, host: str, limits: "Limits | None" = None
    ) -> None:
        """Start to answer."""

        self.url = f"http://{_reachable(host)}:{listener.getsockname()[1]}/"
        room = Connections(limits or Limits.of_process())
        self._server = _uvicorn(app, room)
        self._handler = _without_accept_errors(asyncio.get_running_loop())
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]), name="page server")

    async def stop(self) -> None:
        """End all connections and free the port."""
        self._server.should_exit = True
        done, _ = await asyncio.wait({self._task}, timeout=_GRACE_SECONDS)
        if not done:  # clients that stopped reading hold the rest open
            for connection in list(self._server.server_state.connections):
                if connection.transport is not None:
                    connection.transport.abort()
        await self._task
        asyncio.get_running_loop().set_exception_handler(self._handler)


def require_extra() -> None:
    """Check that the server's packages are installed.

    Raises:
        UsageError: a package is missing.
    """
    try:
        importlib.import_module("uvicorn")
        importlib.import_module("fastapi.sse")
        importlib.import_module("prometheus_client")
    except ImportError:
        raise UsageError(
            "the page needs FastAPI, uvicorn and prometheus_client: pip install 'stream_dp[serve]'"
        ) from None


def _without_accept_errors(loop: asyncio.AbstractEventLoop) -> _Handler | None:
    """Let the loop report only once that it has no file for a connection; return the former handler."""
    before, said = loop.get_exception_handler(), False

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal said
        if context.get("message") == _NO_FILES:
            if said:
                return
            said = True
            context = {"message": "no file is left for another connection"}
        if before is None:
            loop.default_exception_handler(context)
        else:
            before(loop, context)

    loop.set_exception_handler(handle)
    return before


def _uvicorn(app: "ASGIApp", room: "Connections") -> "uvicorn.Server":
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            for listener in sockets or ():
                listener.listen(_BACKLOG)  # longer than the number accepted at once

        def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]  # theirs is a generator
            return nullcontext()

    config = uvicorn.Config(
        app,
        http=bounded(room),
        h11_max_incomplete_event_size=_LARGEST_HEAD,
        log_config=None,
        log_level="error",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        backlog=_ACCEPTED_AT_ONCE,
    )
    config.load()  # here, so that errors reach the caller
    return Server(config)


async def _listen(host: str, port: int) -> socket.socket:
    """Listen on the first free port from `port` on."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        raise WorldError(
            f"the page cannot be served: no address for host {host!r}; try 127.0.0.1"
        ) from None
    family, _, _, _, address = found[0]
    last = port if port == 0 else min(port + _PORTS_TO_TRY - 1, 65535)
    for candidate in range(port, last + 1):
        try:
            return listening_at(family, (address[0], candidate, *address[2:]))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise WorldError(
                    f"the page cannot be served on {host}:{candidate}: {error.strerror}"
                ) from None
    raise WorldError(
        f"the page cannot be served: ports {port} to {last} of {host} are taken; choose another"
    )


def listening_at(family: int, address: tuple[object, ...]) -> socket.socket:
    """Return a socket that listens at an address.

    Raises:
        OSError: the address is taken or not available.
    """
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _reachable(host: str) -> str:
    """Return a host name that a browser on this machine can use."""
    return {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "[::1]"}.get(host, _bracketed(host))  # noqa: S104 - a lookup


# ---
# A second server for the operator alone: one page of figures that are NOT PRIVATE, for holders of a token.
#
# Rules: the server listens at the given address and port only. Without the token nothing is answered, not even which
# pages exist; a request for another host gets 421. The server shares no route, no view and no port with the public
# page, and knows only a function that writes the figures.

_HOST = "127.0.0.1"
_PATH = "/metrics"
Written: TypeAlias = Callable[[str], tuple[bytes, str]]
"""Returns text and content type for an `Accept` header."""


class OperatorServer:
    """Serves the result of `written` to holders of `token`; `hosts` are further host names (without a port)."""

    def __init__(self, written: Written, token: str, hosts: frozenset[str] = frozenset()) -> None:
        """Make the server; it listens after `start`.

        Raises:
            UsageError: a required package is not installed, or the token is empty.
        """
        require_extra()
        if not token:
            raise UsageError("the operator's figures need a token")
        self._written, self._token, self._hosts = written, token, hosts
        self._serving: Serving | None = None

    @property
    def url(self) -> str:
        """The address of the figures."""
        if self._serving is None:
            raise UsageError("the operator's server was not started")
        return f"{self._serving.url.removesuffix('/')}{_PATH}"

    async def start(self, port: int, host: str = _HOST) -> None:
        """Listen on this port (0: any) of an address of this machine.

        Raises:
            WorldError: the port is taken or not available; no other port is tried, because scrapers expect this
            one.
        """
        try:
            listener = listening_at(socket.AF_INET, (host, port))
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            why = "is taken; choose another" if taken else f"cannot be had: {error.strerror}"
            raise WorldError(f"the operator's port {port} of {host} {why}") from None
        names = LOOPBACK | {host} | self._hosts
        self._serving = Serving(guarded(self._written, self._token, names), listener, host)

    async def stop(self) -> None:
        """End all connections and free the port; a second call does nothing."""
        if self._serving is not None:
            serving, self._serving = self._serving, None
            await serving.stop()


def guarded(written: Written, token: str, hosts: frozenset[str] = LOOPBACK) -> "ASGIApp":
    """Return the application: the figures for requests to these `hosts` with the token, refusals for all others."""
    from starlette.requests import Request
    from starlette.responses import Response

    from stream_dp.server.api import Shield

    async def told(scope: "Scope", receive: "Receive", send: "Send") -> None:
        request = Request(scope)
        refused = _refusal(request, token)
        if refused is None:
            text, form = written(request.headers.get("accept", ""))
            refused = Response(text, headers={"content-type": form, "vary": "accept"})
        await refused(scope, receive, send)

    return Shield(told, hosts)


def _refusal(request: "Request", token: str) -> "Response | None":
    """Return the refusal of a request, or None to answer it. The token is checked first."""
    from starlette.responses import JSONResponse

    if not _holds(request, token):
        detail = "needs `Authorization: Bearer TOKEN` with the operator's token"
        return JSONResponse(
            {"detail": detail, "exit_code": 2}, 401, headers={"www-authenticate": "Bearer"}
        )
    if request.url.path != _PATH:
        return JSONResponse({"detail": f"only {_PATH} is here", "exit_code": 2}, 404)
    if request.method not in ("GET", "HEAD"):
        return JSONResponse({"detail": "can only be read", "exit_code": 2}, 405)
    return None


def _holds(request: "Request", token: str) -> bool:
    """Return whether the request has the token; compared in constant time."""
    given = request.headers.getlist("authorization")
    scheme, _, said = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    same = hmac.compare_digest(said.strip().encode(), token.encode())
    return same and scheme.lower() == "bearer"
