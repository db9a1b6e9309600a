"""A second server for the operator alone: one page of figures that are NOT PRIVATE, for holders of a token.

Rules: the server listens at the given address and port only. Without the token nothing is answered, not even which
pages exist; a request for another host gets 421. The server shares no route, no view and no port with the public
page, and knows only a function that writes the figures.
"""

import errno
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from stream_dp.errors import UsageError, WorldError
from stream_dp.server.server import LOOPBACK, Listening, Serving, listening_at, require_extra

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

_HOST = "127.0.0.1"
_PATH = "/metrics"
Written: TypeAlias = Callable[[str], tuple[bytes, str]]
"""Returns text and content type for an `Accept` header."""


class OperatorServer(Listening):
    """Serves the result of `written` to holders of `token`; `hosts` are further host names (without a port)."""

    what = "the operator's server"

    def __init__(self, written: Written, token: str, hosts: frozenset[str] = frozenset()) -> None:
        """Raise UsageError if a required package is not installed, or the token is empty."""
        require_extra()
        if not token:
            raise UsageError("the operator's figures need a token")
        self._written, self._token, self._hosts = written, token, hosts

    @property
    def url(self) -> str:
        return f"{super().url.removesuffix('/')}{_PATH}"

    async def start(self, port: int, host: str = _HOST) -> None:
        """Listen on this port (0: any), or raise WorldError: scrapers expect this port, so no other is tried."""
        try:
            listener = listening_at(socket.AF_INET, (host, port))
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            why = "is taken; choose another" if taken else f"cannot be had: {error.strerror}"
            raise WorldError(f"the operator's port {port} of {host} {why}") from None
        names = LOOPBACK | {host} | self._hosts
        self._serving = Serving(guarded(self._written, self._token, names), listener, host)


def guarded(written: Written, token: str, hosts: frozenset[str] = LOOPBACK) -> "ASGIApp":
    """Return the application: the figures for requests to these `hosts` with the token, refusals for all others."""
    from starlette.requests import Request
    from starlette.responses import Response

    from stream_dp.server.api import Shield

    async def answer(scope: "Scope", receive: "Receive", send: "Send") -> None:
        request = Request(scope)
        response = _refusal(request, token)
        if response is None:
            text, form = written(request.headers.get("accept", ""))
            response = Response(text, headers={"content-type": form, "vary": "accept"})
        await response(scope, receive, send)

    return Shield(answer, hosts)


def _refusal(request: "Request", token: str) -> "Response | None":
    """Return the refusal of a request, or None to answer it. The token is checked first."""
    from stream_dp.server.refusals import refusal

    if not _holds(request, token):
        return refusal(401, "needs `Authorization: Bearer TOKEN` with the operator's token")
    if request.url.path != _PATH:
        return refusal(404, f"only {_PATH} is here")
    return None if request.method in ("GET", "HEAD") else refusal(405, "can only be read")


def _holds(request: "Request", token: str) -> bool:
    from stream_dp.server.tokens import bearer, is_same

    shown = bearer(request)
    return bool(shown) and is_same(shown, token)
