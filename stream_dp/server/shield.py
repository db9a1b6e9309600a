"""Checks and headers of every answer: host, origin, and security headers.

Rules: a request for another host gets 421 and nothing else (a page of another site whose name was rebound to this
address must not read answers). A browser may write from our own pages only: any other origin gets 403. A request
that states the length of its body in two ways gets 400 and is the last of its connection, because a proxy before us
may see another end of it. No answer repeats any part of the request. This file knows ASGI and no route.
"""

from collections.abc import Iterable

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""The Content-Security-Policy of every answer without its own: files of this server only."""

_HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class Shield:
    """ASGI middleware; `allowed_hosts` are names or addresses without a port (IPv6 as `[::1]`)."""

    def __init__(self, app: ASGIApp, allowed_hosts: frozenset[str]) -> None:
        """Guard `app`."""
        self._app = app
        self._allowed = frozenset(host.lower() for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass the request on and complete the answer's headers."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                _complete(MutableHeaders(scope=message))
            await send(message)

        await self._for(scope)(scope, receive, send_guarded)

    def _for(self, scope: Scope) -> ASGIApp:
        if _values(scope, b"content-length") and _values(scope, b"transfer-encoding"):
            return _TWO_LENGTHS
        hosts = _values(scope, b"host")
        if len(hosts) != 1 or _without_port(hosts[0]) not in self._allowed:
            return _MISDIRECTED
        writes = scope["method"] not in _READING
        return _FOREIGN if writes and _is_foreign(scope, hosts[0]) else self._app


_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_FOREIGN = JSONResponse(
    {"detail": "pages of another origin may not write here", "exit_code": 2}, status_code=403
)
_MISDIRECTED = JSONResponse(
    {"detail": "this server does not answer for that host", "exit_code": 2}, status_code=421
)
_TWO_LENGTHS = JSONResponse(
    {"detail": "a request must say the length of its body in one way", "exit_code": 2},
    status_code=400,
    headers={"connection": "close"},
)


def _values(scope: Scope, wanted: bytes) -> list[str]:
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return [value.decode("latin-1").lower() for name, value in headers if name == wanted]


def _is_foreign(scope: Scope, host: str) -> bool:
    """Return whether a browser says that a page from elsewhere than `host` sends this."""
    sites, origins = _values(scope, b"sec-fetch-site"), _values(scope, b"origin")
    return any(site not in {"same-origin", "none"} for site in sites) or any(
        origin.partition("://")[2] != host for origin in origins
    )


def _complete(headers: MutableHeaders) -> None:
    for name, value in _HEADERS.items():
        headers.setdefault(name, value)
    headers.setdefault("cache-control", "no-store")


def _without_port(host: str) -> str:
    """Return a host name without its port.

    >>> _without_port("LocalHost:8765"), _without_port("[::1]:8765"), _without_port("[::1]")
    ('localhost', '[::1]', '[::1]')
    """
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() and not name.endswith(":") else host).lower()
