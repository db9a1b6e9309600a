"""Requests as spans: what was done, by method and route, and never by what an address or a body says.

Rules: a trace that a client says its request belongs to is not looked at. This file knows ASGI and no route.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stream_dp.engine.ports import Spans

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_OTHER = "_OTHER"


class Traced:
    """ASGI middleware around everything; a stream of events is one request, for as long as it is open."""

    def __init__(self, app: ASGIApp, spans: Spans) -> None:
        """Tell `spans` of requests to `app`."""
        self._app, self._spans = app, spans

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have it answered."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in _METHODS else _OTHER
        with self._spans("request", method=method) as note:

            async def noted(message: Message) -> None:
                if message["type"] == "http.response.start":
                    note(status=message["status"], **_route(scope))
                await send(message)

            await self._app(scope, receive, noted)


def _route(scope: Scope) -> dict[str, str]:
    """The route of a request as the program has it, with names in place of values; nothing where there is none."""
    form = getattr(scope.get("route"), "path_format", None)
    return {"route": form} if isinstance(form, str) else {}
