"""The HTTP application: middleware, and the routes for pages, configuration, analysts and metrics; see `routes`.

Rules: an answer contains only what `PublicView` contains, and no answer repeats any part of the request. Facts about
a token are given only to its holder; fields, statistics and ledgers are public. Every answer except files of pages
is `no-store`.
"""

from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response, Security
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stream_dp.engine.ports import Spans
from stream_dp.server.broadcast import Broadcast
from stream_dp.server.metrics import FORMS, Exposition
from stream_dp.server.models.answer import Health
from stream_dp.server.models.asked import Me, Schema
from stream_dp.server.models.configured import Budget, Pipeline, Plan
from stream_dp.server.refusals import ABOUT, Refused, add_document, add_refusals, refusal, refusals
from stream_dp.server.routes import add_list, add_messages, add_queries, add_releases, routes_of
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
    "cache-control": "no-store",
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
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
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
_FOREIGN = refusal(403, "pages of another origin may not write here")
_MISDIRECTED = refusal(421, "this server does not answer for that host")
_TWO_LENGTHS = refusal(400, "a request must say the length of its body in one way")
_TWO_LENGTHS.headers["connection"] = "close"


def _values(scope: Scope, wanted: bytes) -> list[str]:
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return [value.decode("latin-1").lower() for name, value in headers if name == wanted]


def _is_foreign(scope: Scope, host: str) -> bool:
    """Return whether a browser says that a page of another origin than `host` sent the request."""
    sites, origins = _values(scope, b"sec-fetch-site"), _values(scope, b"origin")
    return any(site not in {"same-origin", "none"} for site in sites) or any(
        origin.partition("://")[2] != host for origin in origins
    )


def _without_port(host: str) -> str:
    """Return a host name without its port.

    >>> _without_port("LocalHost:8765"), _without_port("[::1]:8765"), _without_port("[::1]")
    ('localhost', '[::1]', '[::1]')
    """
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() and not name.endswith(":") else host).lower()


DOCS_POLICY = f"{POLICY}; img-src 'self' data:"
"""The policy of `/docs`, whose style sheet contains icons as data."""

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_METRICS_LINE = (
    'stream_dp_release_value{key="",pipeline="flights",series="departures",window=""} 1203.0\n'
)
_METRICS_FORMS = {form: {"schema": {"type": "string"}, "example": _METRICS_LINE} for form in FORMS}
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
        generate_unique_id_function=lambda route: route.name,
    )
    app.add_middleware(Shield, allowed_hosts=allowed_hosts)
    add_refusals(app)
    add_releases(app, view, broadcast or Broadcast(view))
    add_configuration(app, view)
    add_list(app, view)
    if view.live_series is not None and view.token:
        token = Security(Token(view))
        add_queries(app, view.live_series, token)
        add_messages(app, view.live_series, token)
        add_me(app, view, token)
    add_document(app)
    add_metrics(app, view)
    add_files(app, "docs", "/docs", DOCS_POLICY)
    add_files(app, "page", "", POLICY)
    return app


def add_configuration(app: FastAPI, view: PublicView) -> None:
    route = routes_of(app, "configuration")

    @route(
        "GET /healthz",
        summary="Whether the server runs, and whether its engine does",
        answer="The server runs.",
    )
    async def health() -> Health:
        behind = view.behind()
        late = {} if behind is None else behind._asdict()
        known = {key: seconds for key, seconds in late.items() if seconds is not None}
        status = "catching up" if view.catching_up() else "ok"
        return Health.model_validate({"status": status, **known})

    @route(
        "GET /api/pipeline",
        summary="The public configuration and the series that run",
        answer="The configuration.",
    )
    async def get_pipeline() -> Pipeline:
        return Pipeline.model_validate(view.pipeline())

    @route(
        "GET /api/plan",
        summary="The guarantee with its derivation, and of each series price and expected error",
        answer="The plan.",
    )
    async def get_plan() -> Plan:
        return Plan.model_validate(view.plan())

    @route(
        "GET /api/budget", summary="What was spent, by whom, and what is left", answer="The budget."
    )
    async def get_budget() -> Budget:
        return Budget.model_validate(view.budget())

    @routes_of(app, "queries")(
        "GET /api/schema",
        summary="The declared fields, and the statistics that can be asked of them",
        answer="What can be asked.",
    )
    async def get_schema() -> Schema:
        return Schema.model_validate(view.schema())


def add_me(app: FastAPI, view: PublicView, token: Any) -> None:
    @routes_of(app, "queries")(
        "GET /api/me",
        summary="Whose token this is, until when, and what its holder may spend",
        answer="The holder of the token.",
        responses=refusals(401, 503),
    )
    async def get_me(holder: TokenHolder = token) -> Me:
        issued = {"token": holder.token, "expires": holder.expires} if holder.token else {}
        account = _account(view.budget(), holder.analyst)
        return Me.model_validate({"analyst": holder.analyst, "epsilon": account, **issued})


def _account(budget: Mapping[str, Any], analyst: str) -> Any:
    if analyst == OPERATOR:
        return budget["epsilon"]
    return next(entry["epsilon"] for entry in budget["analysts"] if entry["name"] == analyst)


def add_metrics(app: FastAPI, view: PublicView) -> None:
    exposition = Exposition(view)

    @routes_of(app, "releases")(
        "GET /metrics",
        summary="The newest releases and the budget, for Prometheus",
        answer="OpenMetrics where the request accepts it, else the older plain text.",
        response_class=Response,
        responses={200: {"content": _METRICS_FORMS}, **refusals(503)},
    )
    async def get_metrics(request: Request) -> Response:
        text, form = await exposition.text(request.headers.get("accept", ""))
        return Response(text, headers={"content-type": form, "vary": "accept"})


def add_files(app: FastAPI, folder: str, base: str, policy: str) -> None:
    """Add a folder of the package under `base`, its index with this policy; files are read now, served by name only.

    They load nothing from elsewhere, and no HTML contains a script or style.
    """
    entries = (files("stream_dp.server") / folder).iterdir()
    contents = {file.name: file.read_bytes() for file in entries if file.is_file()}

    def answer(name: str, policy: str = POLICY) -> Response:
        if name not in contents:
            raise Refused(404, "no such page")
        media_type = _MEDIA_TYPES.get(name[name.rfind(".") :], "application/octet-stream")
        headers = {"cache-control": "no-cache", "content-security-policy": policy}
        return Response(contents[name], media_type=media_type, headers=headers)

    @app.get(base or "/", include_in_schema=False)
    async def index() -> Response:
        return answer("index.html", policy)

    @app.get(f"{base}/{{name}}", include_in_schema=False)
    async def page_file(name: str) -> Response:
        return answer(name)


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
        method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
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
