"""The page's HTTP server inside the caller's event loop.

Rules: the port is bound before anything else, so no other process can take it in between. Signals stay the caller's.
`stop` is quick, also with open streams and with clients that do not read. There is no access log, and no log line
about clients' errors. FastAPI, uvicorn and prometheus_client are imported when a server is built.
"""

import asyncio
import errno
import importlib
import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from stream_dp.engine.ports import Spans, untold
from stream_dp.errors import UsageError, WorldError
from stream_dp.server.access import OPEN, Access, AccessLog
from stream_dp.server.broadcast import Broadcast
from stream_dp.server.view import PublicView

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

    from stream_dp.server.connections import Connections, Limits

_Handler: TypeAlias = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]

LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
_PORTS_TO_TRY = 100
_GRACE_SECONDS = 0.6
_BACKLOG = 128
_ACCEPTED_AT_ONCE = 16  # each uses a file before `admit` counts it
_LARGEST_HEAD = 16384
_NO_FILES = "socket.accept() out of system resource"  # asyncio's message, every second


class Listening:
    """A server that listens once a subclass has set `_serving`; `what` names it in errors."""

    what: ClassVar[str]
    _serving: "Serving | None" = None

    @property
    def url(self) -> str:
        if self._serving is None:
            raise UsageError(f"{self.what} was not started")
        return self._serving.url

    async def stop(self) -> None:
        """Free the port; a second call does nothing."""
        serving, self._serving = self._serving, None
        if serving is not None:
            await serving.stop()


class PageServer(Listening):
    """Serves one `PublicView`, or several by the names of their pipelines, with a home page; it listens after `start`.

    `access` says who may read, and further host names (without a port) of this server. By default, `limits` leaves
    files of the process to the engine. `spans` traces requests.
    """

    what = "the page server"

    def __init__(
        self,
        view: PublicView | Mapping[str, PublicView],
        access: Access = OPEN,
        limits: "Limits | None" = None,
        spans: Spans = untold,
    ) -> None:
        require_extra()
        self._view, self._limits = view, limits
        self._access, self._spans = access, spans

    async def start(self, host: str = "127.0.0.1", port: int = 8765) -> None:
        """Listen on `port` or the next free one (0: any), and answer from now on."""
        if self._serving is not None:
            raise UsageError("this page server was already started")
        from stream_dp.server.api import Traced, create_app, create_home

        listener = await _listen(host, port)
        hosts = LOOPBACK | {_bracketed(host)} | self._access.names
        several = self._view if isinstance(self._view, Mapping) else {"": self._view}
        self._broadcasts = {name: Broadcast(view) for name, view in several.items()}
        access = self._access
        log = None if access.log is None else AccessLog(access.log)
        pages = {
            name: create_app(view, hosts, self._broadcasts[name], access, log)
            for name, view in several.items()
        }
        app = Traced(pages[""] if "" in pages else create_home(pages, hosts), self._spans)
        self._serving = Serving(app, listener, host, self._limits)

    async def stop(self) -> None:
        """End all streams and connections and free the port; a second call does nothing."""
        if self._serving is not None:
            for broadcast in self._broadcasts.values():
                broadcast.close()
        await super().stop()


class Serving:
    """Serves an ASGI application on a listening socket until `stop`; `host` is used for the URL."""

    def __init__(
        self, app: "ASGIApp", listener: socket.socket, host: str, limits: "Limits | None" = None
    ) -> None:
        from stream_dp.server.connections import Connections, Limits

        self.url = f"http://{_reachable(host)}:{listener.getsockname()[1]}/"
        room = Connections(limits or Limits.of_process())
        self._server = _uvicorn(app, room)
        self._handler = _without_accept_errors(asyncio.get_running_loop())
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]), name="page server")

    async def stop(self) -> None:
        self._server.should_exit = True
        done, _ = await asyncio.wait({self._task}, timeout=_GRACE_SECONDS)
        if not done:  # clients that stopped reading hold the rest open
            for connection in list(self._server.server_state.connections):
                if connection.transport is not None:
                    connection.transport.abort()
        await self._task
        asyncio.get_running_loop().set_exception_handler(self._handler)


def require_extra() -> None:
    """Raise UsageError, which names the extra, if a package of the server is not installed."""
    try:
        for package in ("uvicorn", "fastapi.sse", "prometheus_client"):
            importlib.import_module(package)
    except ImportError:
        raise UsageError(
            "the page needs FastAPI, uvicorn and prometheus_client: pip install 'stream_dp[serve]'"
        ) from None


def _without_accept_errors(loop: asyncio.AbstractEventLoop) -> _Handler | None:
    """Let the loop report a lack of files for connections only once; return the former handler."""
    before, reported = loop.get_exception_handler(), False

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal reported
        if context.get("message") == _NO_FILES:
            if reported:
                return
            reported = True
            context = {"message": "no file is left for another connection"}
        if before is None:
            loop.default_exception_handler(context)
        else:
            before(loop, context)

    loop.set_exception_handler(handle)
    return before


def _uvicorn(app: "ASGIApp", room: "Connections") -> "uvicorn.Server":
    import uvicorn

    from stream_dp.server.connections import bounded

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
        proxy_headers=False,  # else loopback peers could name another address as theirs
        lifespan="off",
        ws="none",
        server_header=False,
        backlog=_ACCEPTED_AT_ONCE,
    )
    config.load()  # here, so that errors reach the caller
    return Server(config)


async def _listen(host: str, port: int) -> socket.socket:
    try:
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        raise WorldError(
            f"the page cannot be served: host {host!r} has no address; try 127.0.0.1"
        ) from None
    family, _, _, _, address = addresses[0]
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
        f"the page cannot be served: ports {port} to {last} of {host} are in use; choose "
        "another port"
    )


def listening_at(family: int, address: tuple[object, ...]) -> socket.socket:
    """Return a socket that listens at an address; raise OSError if it is taken or not available."""
    # asyncio turns Nagle's algorithm off only where it sees TCP; with it each answer waits 40 ms for the reader
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
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
    """Return the host name with which a browser on this machine reaches `host`."""
    return {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "[::1]"}.get(host, _bracketed(host))  # noqa: S104 - a lookup
