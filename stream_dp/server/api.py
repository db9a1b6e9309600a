"""The HTTP application: middleware and all routes.

Rules: an answer contains only what `PublicView` contains, and no answer repeats any part of the request. Published
releases and recorded answers are sent as their exact bytes; all else is a model of `server.models`. Only holders of a
token may write. A token is compared with the known ones in constant time, before a byte of the body is read, and is
never repeated in an answer; facts about it, such as that it is expired, are given only to its holder. Fields,
statistics and ledgers are public. A request with a key is done once, however often it is sent. Every answer except
files of pages is `no-store`. Who may read is decided in front of the routes (`server.access`).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from fastapi import Depends, FastAPI, Header, Path, Query, Request, Response, Security
from fastapi.requests import HTTPConnection
from fastapi.responses import StreamingResponse
from fastapi.security import HTTPBearer
from fastapi.sse import EventSourceResponse
from pydantic import BaseModel
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stream_dp.engine.messages.conversation import error_of
from stream_dp.engine.ports import Spans
from stream_dp.errors import StreamDPError
from stream_dp.journal.answer_body import RefusedMessage, read_answer
from stream_dp.journal.commit import Release
from stream_dp.journal.release import read_head
from stream_dp.server.access import (
    CALLER,
    NEEDED,
    ONLY_READS,
    OPEN,
    OPERATOR,
    Access,
    AccessLog,
    Caller,
    Gate,
    Refused,
    Tokens,
    bearer,
)
from stream_dp.server.broadcast import Broadcast, history, in_one_part
from stream_dp.server.metrics import FORMS, Exposition
from stream_dp.server.models import asked
from stream_dp.server.models.answer import Health, Refusal, Visitor
from stream_dp.server.models.asked import Me, Schema
from stream_dp.server.models.configured import Budget, Pipeline, Plan
from stream_dp.server.models.published import EXAMPLES, SeriesList, SeriesReleases, StreamEvent
from stream_dp.server.refusals import (
    ABOUT,
    BUG,
    add_document,
    add_refusals,
    json_body,
    reference,
    refusal,
    refusal_of,
    refusals,
    request_key,
    status_of,
)
from stream_dp.server.view import LiveSeriesService, PublicView, ReleaseLog, Sender, TokenHolder

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


class Token(HTTPBearer):
    """Accepts requests with a token of `view`, or of an analyst whom the proxy names; returns who asks."""

    def __init__(self, view: PublicView) -> None:
        super().__init__(
            scheme_name="token",
            description="An analyst's token, which `stream-dp token PIPELINE.yaml --analyst NAME` makes for a time and "
            "`--revoke` takes back; she pays from her own ledger. Or the operator's, which `stream-dp query token "
            "PIPELINE.yaml` prints for the holder of the operator key.",
        )
        self._tokens = Tokens(view)

    async def __call__(self, request: HTTPConnection) -> TokenHolder:  # type: ignore[override]
        """Return the holder of the request's token; WorldError if the issued tokens cannot be looked up."""
        if shown := bearer(request.headers.getlist("authorization")):
            return self._tokens.holder(shown)
        caller: Caller | None = request.scope.get(CALLER)
        if caller is not None and caller.by == "proxy":
            if caller.asks:
                return TokenHolder(caller.name)
            raise Refused(403, f"this user {ONLY_READS}")
        raise Refused(401, NEEDED)


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
    view: PublicView,
    allowed_hosts: frozenset[str],
    broadcast: Broadcast | None = None,
    access: Access = OPEN,
    log: AccessLog | None = None,
) -> FastAPI:
    """Return the application that answers from `view`, as `access` allows; `allowed_hosts` as in `Shield`."""
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
    if access.asks_who:
        app.state.gate = Gate(view, access, refusal_of, log)
        add_access(app, app.state.gate, access)
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
    add_files(app, "page", "", POLICY, asks_who=access.asks_who)
    return app


def create_home(pages: Mapping[str, FastAPI], allowed_hosts: frozenset[str]) -> FastAPI:
    """Return the app of several pipelines: a page that lists them, and the app of each under its name."""
    app = FastAPI(
        openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False, telemetry=SILENT
    )
    app.add_middleware(Shield, allowed_hosts=allowed_hosts)
    add_refusals(app)

    @app.get("/api/pipelines")
    async def get_pipelines(request: Request) -> dict[str, list[str]]:
        admitted = []
        for name, page in pages.items():
            gate: Gate | None = getattr(page.state, "gate", None)
            if gate is None or gate.admits(request.scope):
                admitted.append(name)
        if pages and not admitted:
            raise Refused(
                401,
                "no pipeline here is open to everyone; log in on the pipeline's own page, /NAME/",
            )
        return {"pipelines": admitted}

    for name, page in pages.items():
        app.mount(f"/{name}", page)
    add_files(app, "page", "", POLICY, "home.html")
    return app


def add_access(app: FastAPI, gate: Gate, access: Access) -> None:
    """Let the gate decide on every request, and add the routes that tell a page who it is and let it in."""
    route = routes_of(app, "access")
    app.add_middleware(gate.before)

    def visitor(caller: Caller | None, *, entered: bool = False) -> Visitor:
        if caller is None:
            return Visitor(
                reads=access.reads,
                admitted=access.reads == "anyone",
                name="",
                asks=False,
                cookie=False,
            )
        cookie = entered or caller.by == "cookie"
        return Visitor(
            reads=access.reads, admitted=True, name=caller.name, asks=caller.asks, cookie=cookie
        )

    @route(
        "GET /api/access",
        summary="Whether everyone may read, and as whom the server knows this client",
        answer="What this client may do.",
        responses=refusals(401, 403, 503),
    )
    async def get_access(request: Request) -> Visitor:
        return visitor(request.scope.get(CALLER))

    @route(
        "POST /api/login",
        summary="Exchange a token for a cookie that reads and never asks, for the page",
        answer="What the holder of the token may do; the cookie is HttpOnly, for this site, and ends with the browser.",
        responses=refusals(401, 503),
    )
    async def log_in(request: Request, response: Response) -> Visitor:
        shown = bearer(request.headers.getlist("authorization"))
        if not shown:
            raise Refused(401, NEEDED)
        caller = gate.tokens.caller(shown)
        response.headers["set-cookie"] = gate.enter(shown, secure=_over_tls(request))
        return visitor(caller, entered=True)

    @route(
        "DELETE /api/login",
        summary="End the cookie",
        answer="Nobody is logged in.",
        status_code=204,
    )
    async def log_out(request: Request) -> Response:
        cookie = gate.leave(request.scope, secure=_over_tls(request))
        return Response(status_code=204, headers={"set-cookie": cookie})


def _over_tls(request: Request) -> bool:
    """Whether the browser sees this server behind TLS, as it says of every request that writes."""
    return request.headers.get("origin", "").startswith("https://")


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


def add_files(
    app: FastAPI,
    folder: str,
    base: str,
    policy: str,
    first: str = "index.html",
    *,
    asks_who: bool = False,
) -> None:
    """Add a folder of the package under `base`, its index `first` with this policy.

    The files are read now and served by name only. They load nothing from elsewhere, and no HTML contains a script or
    style. `asks_who`: the index says that it matters who reads.
    """
    contents = dict(_files_in(files("stream_dp.server") / folder))
    if asks_who:
        contents[first] = contents[first].replace(b"<html ", b"<html data-access ", 1)

    def answer(name: str, policy: str = POLICY) -> Response:
        if name not in contents:
            raise Refused(404, "no such page")
        media_type = _MEDIA_TYPES.get(name[name.rfind(".") :], "application/octet-stream")
        headers = {"cache-control": "no-cache", "content-security-policy": policy}
        return Response(contents[name], media_type=media_type, headers=headers)

    @app.get(base or "/", include_in_schema=False)
    async def index() -> Response:
        return answer(first, policy)

    def add_folder(inner: str) -> None:
        @app.get(f"{base}/{inner}{{name}}", include_in_schema=False)
        async def page_file(name: str) -> Response:
            return answer(f"{inner}{name}")

    for inner in sorted({name[: name.rfind("/") + 1] for name in contents}):
        add_folder(inner)


def _files_in(folder: Traversable, inner: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield each file below a folder: its path from there, and its content."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files_in(entry, f"{inner}{entry.name}/")
        else:
            yield f"{inner}{entry.name}", entry.read_bytes()


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


_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])
_LARGEST = 2**63 - 1
_JSON = "application/json"
_LIST = {
    "sequence": 1238,
    "series": [
        {"name": "departures", "latest": EXAMPLES["scalar"]},
        {"name": "by_destination", "latest": EXAMPLES["histogram"]},
        {"name": "late_departures", "latest": EXAMPLES["flags"]},
    ],
}
_RELEASES = {
    shape: {"value": {"series": release["series"], "releases": [release]}}
    for shape, release in EXAMPLES.items()
}
_STREAM = {
    "schema": reference(StreamEvent),
    "example": (
        'retry: 1000\nevent: head\ndata: {"sequence":1237,"fingerprint":"5d1f"}\n\n'
        f"id: 1238\ndata: {msgspec.json.encode(EXAMPLES['flags']).decode()}\n\n"
    ),
}
_MESSAGE = {"id": "c1f", "until": "2026-11-23T10:00:00Z", "do": "ask", "series": "by_page"}
_RECORDED = "Durable and public; the bytes on record."

_Tick = Annotated[int, Query(ge=0, le=_LARGEST)]
_Sequence = Annotated[int | None, Query(ge=-1, le=_LARGEST)]
_Analyst = Annotated[
    str,
    Query(
        pattern="^([a-z0-9][a-z0-9_.-]{0,62})?$",
        description="Whose ledger pays; empty: the pipeline's own.",
    ),
]
_AcceptNoise = Annotated[
    bool,
    Query(
        description="Create it even if it fires mostly by noise: a preview says so under `noise`."
    ),
]
_Key = Annotated[str, Depends(request_key)]
_Name = Annotated[str, Path(description="The name of a series that was created and runs.")]


def routes_of(app: FastAPI, tag: str) -> Callable[..., Callable[[_Endpoint], _Endpoint]]:
    """Return a decorator that adds routes; a key that an answer does not set is not sent."""

    def route(
        line: str, *, summary: str, answer: str, **more: Any
    ) -> Callable[[_Endpoint], _Endpoint]:
        method, path = line.split()
        return app.api_route(
            path,
            methods=[method],
            tags=[tag],
            summary=summary,
            response_description=answer,
            response_model_exclude_unset=True,
            **more,
        )

    return route


def add_releases(app: FastAPI, view: PublicView, broadcast: Broadcast) -> None:
    """Add the routes for the newest release of each series, the releases of one series, and the stream.

    `server.models.published` describes the content of the bytes; tests compare the two. A history of more than one
    part is sent part by part, so no whole answer is ever in memory.
    """
    route = routes_of(app, "releases")

    def known() -> set[str]:
        return {str(entry["name"]) for entry in view.pipeline().get("series", ())}

    @route(
        "GET /api/series",
        summary="The newest release of every series",
        answer="By name; `latest` is null before the first release.",
        response_model=SeriesList,
        responses={200: {"content": {_JSON: {"example": _LIST}}}},
    )
    async def list_series() -> Response:
        latest = view.log.latest()
        entries = [
            {"name": name, "latest": _raw(latest[name]) if name in latest else None}
            for name in sorted(known() | set(latest))
        ]
        return _encoded({"sequence": view.log.last_sequence, "series": entries})

    @route(
        "GET /api/series/{name}",
        summary="The releases of one series",
        answer="The published bytes, by tick; more than 64 KiB come in chunks, without a Content-Length.",
        response_model=SeriesReleases,
        responses={200: {"content": {_JSON: {"examples": _RELEASES}}}, **refusals(404, 422)},
    )
    async def get_series(
        name: Annotated[str, Path(description="The name of a series; `/api/series` lists them.")],
        first: Annotated[
            _Tick, Query(alias="from", description="The first tick (a number on the grid).")
        ] = 0,
        last: Annotated[
            _Tick | None,
            Query(
                alias="to",
                description="The last tick (a number on the grid), included; without it, the newest.",
            ),
        ] = None,
        version: Annotated[
            int | None,
            Query(
                ge=1,
                le=_LARGEST,
                description="The releases of this version of the series alone; without it, of all versions, by tick.",
            ),
        ] = None,
    ) -> Response:
        if name not in view.log.names() and name not in known():
            raise Refused(404, "no series has this name; /api/series lists the series")
        places = view.log.places_between(name, first, _LARGEST if last is None else last)
        if version is not None:
            places = _of_version(view.log, name, places, version)
        releases = in_one_part(view.log, name, places)
        if releases is None:
            return StreamingResponse(history(view.log, name, places), media_type=_JSON)
        return _encoded({"series": name, "releases": list(map(_raw, releases))})

    @route(
        "GET /api/stream",
        summary="Releases as server-sent events",
        answer="Server-sent events, until the client leaves or the server ends.",
        response_class=Response,
        response_model=StreamEvent,
        responses={200: {"content": {"text/event-stream": _STREAM}}, **refusals(422)},
    )
    async def stream_releases(
        after: Annotated[
            _Sequence, Query(description="Begin after this sequence (-1: with the first release).")
        ] = None,
        last_event_id: Annotated[
            int | None,
            Header(
                ge=0,
                le=_LARGEST,
                description="The sequence of the last event that was read; browsers send it by themselves. "
                "Goes before `after`; without either the stream begins with the next release.",
            ),
        ] = None,
    ) -> EventSourceResponse:
        events = broadcast.events(after if last_event_id is None else last_event_id)
        return EventSourceResponse(events, headers={"x-accel-buffering": "no"})


def _of_version(log: ReleaseLog, name: str, places: range, version: int) -> range:
    """Return those places of a series where its releases are of this version: one version follows the other."""

    def version_at(place: int) -> int:
        (release,) = log.at(name, range(place, place + 1))
        return read_head(release.body).version

    begin = bisect_left(places, version, key=version_at)
    return places[begin : bisect_right(places, version, begin, key=version_at)]


def _raw(release: Release) -> msgspec.Raw:
    return msgspec.Raw(release.body)  # the encoder copies it unchanged


def _encoded(content: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(content), media_type=_JSON)


def add_list(app: FastAPI, view: PublicView) -> None:
    route = routes_of(app, "queries")

    @route(
        "GET /api/queries",
        summary="Every series that runs, of the file and created, and the last halted ones",
        answer="The file's first, the halted ones last: of each ledger the last twenty.",
    )
    async def list_queries() -> asked.QueryList:
        queries = [] if view.live_series is None else view.live_series.queries()
        return asked.QueryList(queries=tuple(map(asked.Query.documented, queries)))


def add_queries(app: FastAPI, live_series: LiveSeriesService, token: Any) -> None:
    """Add preview, create and halt for holders of a `token`."""
    route = routes_of(app, "queries")
    refused = refusals(401, 403, 409, 413, 415, 422, 429, 503)

    @route(
        "POST /api/queries",
        summary="Create a series: charged, durable and running on return",
        answer="Charged, durable and running.",
        status_code=201,
        responses={**refused, **refusals(428)},
        openapi_extra=_body(asked.Definition, asked.EXAMPLE),
    )
    async def create_query(
        request: Request,
        key: _Key,
        analyst: _Analyst = "",
        accept_noise: _AcceptNoise = False,
        holder: TokenHolder = token,
    ) -> asked.Created:
        definition = await json_body(request)
        sender = Sender(holder.analyst, key, accept_noise)
        with _bugs_concealed():
            return asked.Created.documented(await live_series.create(definition, analyst, sender))

    @route(
        "POST /api/queries/preview",
        summary="What a series would cost, whether it fits, and why; changes nothing",
        answer="What would happen; nothing has.",
        responses=refused,
        openapi_extra=_body(asked.Question, asked.PRICED),
    )
    async def preview_query(
        request: Request, analyst: _Analyst = "", holder: TokenHolder = token
    ) -> asked.Preview:
        definition = await json_body(request)
        sender = Sender(holder.analyst)
        with _bugs_concealed():
            return asked.Preview.documented(await live_series.preview(definition, analyst, sender))

    @route(
        "GET /api/queries/{name}/halt",
        summary="What ending a series would give back, to which records and from when; changes nothing",
        answer="What would happen; nothing has.",
        responses=refusals(401, 403, 404, 422, 503),
    )
    async def preview_halt(name: _Name, holder: TokenHolder = token) -> asked.HaltPreview:
        sender = Sender(holder.analyst)
        with _bugs_concealed():
            return asked.HaltPreview.documented(await live_series.preview_halt(name, sender))

    @route(
        "DELETE /api/queries/{name}",
        summary="End a series; this frees budget for later ticks",
        answer="Ended.",
        responses=refusals(401, 403, 404, 409, 422, 429, 503),
    )
    async def halt_query(name: _Name, key: _Key, holder: TokenHolder = token) -> asked.Halted:
        sender = Sender(holder.analyst, key)
        with _bugs_concealed():
            return asked.Halted.documented(await live_series.halt(name, sender))


def add_messages(app: FastAPI, live_series: LiveSeriesService, token: Any) -> None:
    """Add the routes for any message and for asking one series, for holders of a `token`."""
    route = routes_of(app, "messages")

    @route(
        "POST /api/messages",
        summary="Say what to do: one message, one answer, the same for ever",
        answer=_RECORDED,
        response_model=asked.MessageAnswer,
        responses=_refused_on_record(),
        openapi_extra=_body(asked.AnalystMessage, _MESSAGE),
    )
    async def send_message(request: Request, holder: TokenHolder = token) -> Response:
        return await _answered(live_series.message(await json_body(request), holder.analyst))

    @route(
        "POST /api/series/{name}/ask",
        summary="Ask a series: parts of its last release, or a threshold of a monitor",
        answer=_RECORDED,
        response_model=asked.MessageAnswer,
        responses=_refused_on_record(),
        openapi_extra=_body(asked.AskParameters, {"keys": ["ATL", "BOS"]}),
    )
    async def ask_series(
        request: Request,
        name: Annotated[str, Path(description="The name of a series that runs.")],
        key: _Key,
        holder: TokenHolder = token,
    ) -> Response:
        body = await json_body(request)
        return await _answered(live_series.ask(name, body, Sender(holder.analyst, key)))


async def _answered(work: Awaitable[bytes]) -> Response:
    """Return the recorded bytes; the status shows a refusal too."""
    with _bugs_concealed():
        body = await work
        refused = read_answer(body).refused
    status = status_of(error_of(refused)) if isinstance(refused, RefusedMessage) else 200
    return Response(body, status, media_type=_JSON)


@contextmanager
def _bugs_concealed() -> Iterator[None]:
    """Raise a bug without its text, which can contain data: it is neither sent nor logged."""
    try:
        yield
    except StreamDPError:
        raise
    except Exception:  # noqa: BLE001 - see above
        raise StreamDPError(BUG) from None


def _body(model: type[BaseModel], example: Mapping[str, Any]) -> dict[str, Any]:
    content = {_JSON: {"schema": reference(model), "example": example}}
    return {"requestBody": {"required": True, "content": content}}


def _refused_on_record() -> dict[int | str, dict[str, Any]]:
    """Return the possible refusals: those by the server itself, and recorded answers."""
    responses = refusals(401, 403, 404, 409, 413, 415, 422, 429, 503)
    either = {"anyOf": [reference(Refusal), reference(asked.MessageAnswer)]}
    for status in (403, 404, 409, 422):
        responses[status] = {
            "description": f"{responses[status]['description']} The answer on record, if there is one.",
            "content": {_JSON: {"schema": either}},
        }
    return responses
