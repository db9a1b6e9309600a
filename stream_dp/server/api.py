"""The HTTP application: middleware, and the routes for pages, configuration, analysts and metrics; see `routes`.

Rules: an answer contains only what `PublicView` contains, and no answer repeats any part of the request. Facts about
a token are given only to its holder; fields, statistics and ledgers are public. Every answer except files of pages
is `no-store`.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response, Security
from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stream_dp.engine.ports import Spans
from stream_dp.server.broadcast import Broadcast
from stream_dp.server.metrics import FORMS, Exposition
from stream_dp.server.models.answer import Health
from stream_dp.server.models.asked import Me, Schema
from stream_dp.server.models.configured import Budget, Pipeline, Plan
from stream_dp.server.refusals import ABOUT, Refused, add_document, add_refusals, refusals
from stream_dp.server.routes import add_messages, add_queries, add_series, add_stream
from stream_dp.server.tokens import OPERATOR, Token
from stream_dp.server.view import PublicView, TokenHolder

if TYPE_CHECKING:
    from fastapi.telemetry import TelemetryConfig

POLICY = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""The default Content-Security-Policy: files of this server only."""

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
    """ASGI middleware that checks host and origin of requests, and adds security headers to every answer.

    `allowed_hosts` are names or addresses without a port (IPv6 as `[::1]`). A request for another host gets 421 and
    nothing else: a page of another site whose name was rebound to this address must not read answers. A browser may
    write from our own pages only: any other origin gets 403. A request that states the length of its body in two
    ways gets 400 and is the last of its connection, because a proxy before us may see another end of it.
    """

    def __init__(self, app: ASGIApp, allowed_hosts: frozenset[str]) -> None:
        self._app = app
        self._allowed = frozenset(host.lower() for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
    """Return whether a browser says that a page of another origin than `host` sent the request."""
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


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_OTHER = "_OTHER"
_CONFIGURATION: list[str | Enum] = ["configuration"]
DOCS_POLICY = f"{POLICY}; img-src 'self' data:"
"""The policy of `/docs`, whose style sheet contains icons as data."""

_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_METRICS_PATH = "/metrics"
_RELEASES: list[str | Enum] = ["releases"]
_METRICS_LINE = (
    'stream_dp_release_value{key="",pipeline="flights",series="departures",window=""} 1203.0\n'
)
_METRICS_FORMS = {form: {"schema": {"type": "string"}, "example": _METRICS_LINE} for form in FORMS}
_QUERIES: list[str | Enum] = ["queries"]
SILENT: "TelemetryConfig" = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "auto_configure": False,
}
"""Switches off FastAPI's own telemetry, which would send whole addresses and errors to the program's exporters."""


def create_app(
    view: PublicView, allowed_hosts: frozenset[str], broadcast: Broadcast | None = None
) -> FastAPI:
    """Return the application that answers from `view`; `allowed_hosts` as in `Shield`."""
    app = FastAPI(
        **ABOUT,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=refusals(421, 500),
        telemetry=SILENT,
    )
    app.add_middleware(Shield, allowed_hosts=allowed_hosts)
    add_refusals(app)
    add_series(app, view)
    add_stream(app, broadcast or Broadcast(view))
    add_configuration(app, view)
    add_queries(app, view)
    add_analysts(app, view)
    add_messages(app, view)
    add_document(app)
    add_metrics(app, view)
    add_pages(app)
    return app


def add_analysts(app: FastAPI, view: PublicView) -> None:
    """Add `/api/schema`, and `/api/me` if there are live series and a token."""

    @app.get(
        "/api/schema",
        tags=_QUERIES,
        summary="The declared fields, and the statistics that can be asked of them",
        operation_id="get_schema",
        response_description="What can be asked.",
        response_model_exclude_unset=True,
    )
    async def schema() -> Schema:
        return Schema.model_validate(view.schema())

    if view.live_series is not None and view.token:
        _add_me(app, view)


def _add_me(app: FastAPI, view: PublicView) -> None:
    holder = Security(Token(view))

    @app.get(
        "/api/me",
        tags=_QUERIES,
        summary="Whose token this is, until when, and what its holder may spend",
        operation_id="get_me",
        response_description="The holder of the token.",
        responses=refusals(401, 503),
        response_model_exclude_unset=True,
    )
    async def me(holder: TokenHolder = holder) -> Me:
        token = {"token": holder.token, "expires": holder.expires} if holder.token else {}
        account = _account(view.budget(), holder.analyst)
        return Me.model_validate({"analyst": holder.analyst, "epsilon": account, **token})


def _account(budget: Mapping[str, Any], analyst: str) -> Any:
    if analyst == OPERATOR:
        return budget["epsilon"]
    return next(each["epsilon"] for each in budget["analysts"] if each["name"] == analyst)


def add_metrics(app: FastAPI, view: PublicView) -> None:
    exposition = Exposition(view)

    @app.get(
        _METRICS_PATH,
        tags=_RELEASES,
        summary="The newest releases and the budget, for Prometheus",
        operation_id="get_metrics",
        response_class=Response,
        responses={
            200: {
                "description": "OpenMetrics where the request accepts it, else the older plain text.",
                "content": _METRICS_FORMS,
            },
            **refusals(503),
        },
    )
    async def metrics(request: Request) -> Response:
        text, form = await exposition.text(request.headers.get("accept", ""))
        return Response(text, headers={"content-type": form, "vary": "accept"})


def add_pages(app: FastAPI) -> None:
    """Add the page (`/`) and the reader of the OpenAPI document (`/docs`): files of the package, read once now.

    Files are served by their names only. They load nothing from elsewhere, and no HTML contains a script or style.
    """
    page, docs = _files_of("page"), _files_of("docs")

    @app.get("/docs", include_in_schema=False)
    async def docs_index() -> Response:
        return _page_of("index.html", docs, DOCS_POLICY)

    @app.get("/docs/{name}", include_in_schema=False)
    async def docs_file(name: str) -> Response:
        return _page_of(name, docs)

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return _page_of("index.html", page)

    @app.get("/{name}", include_in_schema=False)
    async def page_file(name: str) -> Response:
        return _page_of(name, page)


def _files_of(name: str) -> Mapping[str, bytes]:
    folder = files("stream_dp.server") / name
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def _page_of(name: str, folder: Mapping[str, bytes], policy: str = POLICY) -> Response:
    if name not in folder:
        raise Refused(404, "no such page")
    media_type = _MEDIA_TYPES.get(name[name.rfind(".") :], "application/octet-stream")
    headers = {"cache-control": "no-cache", "content-security-policy": policy}
    return Response(folder[name], media_type=media_type, headers=headers)


def add_configuration(app: FastAPI, view: PublicView) -> None:
    @app.get(
        "/healthz",
        tags=_CONFIGURATION,
        summary="Whether the server runs, and whether its engine does",
        operation_id="health",
        response_description="The server runs.",
    )
    async def health() -> Health:
        return Health(status="catching up" if view.catching_up() else "ok")

    @app.get(
        "/api/pipeline",
        tags=_CONFIGURATION,
        summary="The public configuration and the series that run",
        operation_id="get_pipeline",
        response_description="The configuration.",
        response_model_exclude_unset=True,
    )
    async def pipeline() -> Pipeline:
        return Pipeline.model_validate(view.pipeline())

    @app.get(
        "/api/plan",
        tags=_CONFIGURATION,
        summary="The guarantee with its derivation, and of each series price and expected error",
        operation_id="get_plan",
        response_description="The plan.",
        response_model_exclude_unset=True,
    )
    async def plan() -> Plan:
        return Plan.model_validate(view.plan())

    @app.get(
        "/api/budget",
        tags=_CONFIGURATION,
        summary="What was spent, by whom, and what is left",
        operation_id="get_budget",
        response_description="The budget.",
        response_model_exclude_unset=True,
    )
    async def budget() -> Budget:
        return Budget.model_validate(view.budget())


class Traced:
    """ASGI middleware that makes a span of each request; an event stream is one request until its end.

    A span has method, route and status, and no content of an address or a body. A trace context in a request is
    ignored.
    """

    def __init__(self, app: ASGIApp, spans: Spans) -> None:
        self._app, self._spans = app, spans

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
    """Return the route of a request, with parameter names in place of values; empty if no route matched."""
    form = getattr(scope.get("route"), "path_format", None)
    return {"route": form} if isinstance(form, str) else {}
