"""The HTTP API: its routes, middleware, and the OpenAPI document that describes them.

Rules: an answer contains only what `PublicView` contains: models in, models out. Facts about a token are given only
to its holder; fields, statistics and ledgers are public. The page and the reader of the document are files of the
package, served by their names only and read once, before the first request. They load nothing from elsewhere, and
no HTML file contains a script or style. Every other answer is `no-store`. Requests become spans by method and
route, never with content of an address or a body; a trace context in a request is ignored. Series and their
histories, live series and messages are in `routes`.
"""

from collections.abc import Mapping
from enum import Enum
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Security
from fastapi.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stream_dp.engine.ports import Spans
from stream_dp.server.broadcast import Broadcast
from stream_dp.server.holders import TokenHolder
from stream_dp.server.metrics.exposition import Exposition
from stream_dp.server.metrics.gauges import FORMS
from stream_dp.server.models.answer import Health
from stream_dp.server.models.asked import Me, Schema
from stream_dp.server.models.configured import Budget, Pipeline, Plan
from stream_dp.server.openapi import ABOUT, add_document
from stream_dp.server.refusals import Refused, add_refusals, refusals
from stream_dp.server.routes.queries import add_queries
from stream_dp.server.routes.series import add_series, add_stream
from stream_dp.server.routes.talk import add_messages
from stream_dp.server.shield import POLICY, Shield
from stream_dp.server.tokens import OPERATOR, Token
from stream_dp.server.view import PublicView

if TYPE_CHECKING:
    from fastapi.telemetry import TelemetryConfig


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_OTHER = "_OTHER"
_CONFIGURATION: list[str | Enum] = ["configuration"]
DOCS_POLICY = f"{POLICY}; img-src 'self' data:"
"""The policy of the reader: its style sheet contains icons as data. Scripts and styles are files here too."""

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
    """Return the application that answers from `view`, for requests to `allowed_hosts` (names without a port)."""
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
    """Return the epsilons of an analyst's ledger, or of the pipeline's own."""
    if analyst == OPERATOR:
        return budget["epsilon"]
    return next(each["epsilon"] for each in budget["analysts"] if each["name"] == analyst)


def add_metrics(app: FastAPI, view: PublicView) -> None:
    """Add the route that exports `view` to Prometheus and similar systems."""
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
    """Add the routes of the page (`/`) and of the document's reader (`/docs`)."""
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
    """Add the routes for the configuration of `view`."""

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
    """ASGI middleware around all routes; an event stream is one request as long as it is open."""

    def __init__(self, app: ASGIApp, spans: Spans) -> None:
        """Report requests to `app` to `spans`."""
        self._app, self._spans = app, spans

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request in a span."""
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
    """Return the route of a request with parameter names in place of values; empty if there is no route."""
    form = getattr(scope.get("route"), "path_format", None)
    return {"route": form} if isinstance(form, str) else {}
