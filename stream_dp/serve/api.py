"""The HTTP API for reading: public configuration and published releases.

Rules: an answer holds what `PublicView` holds and nothing else; releases are joined as bytes and
never encoded again. 404 and 422 name our own parameters and never repeat what was sent. No page
of this server loads anything from elsewhere. Every answer but the page's own files is `no-store`.
"""

from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Header, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.sse import EventSourceResponse

from stream_dp.pipeline.svg import PICTURE_POLICY, draw
from stream_dp.runtime.commit import Release
from stream_dp.serve.broadcast import Broadcast
from stream_dp.serve.queries import add_queries
from stream_dp.serve.shield import Shield
from stream_dp.serve.view import PublicView

_LARGEST = 2**63 - 1
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}

_Tick = Annotated[int, Query(ge=0, le=_LARGEST)]


def create_app(
    view: PublicView, allowed_hosts: frozenset[str], broadcast: Broadcast | None = None
) -> FastAPI:
    """Answer with `view`, for requests to `allowed_hosts` (names without a port)."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.add_middleware(Shield, allowed_hosts=allowed_hosts)
    app.add_exception_handler(RequestValidationError, _refuse)
    _add_configuration(app, view)
    _add_series(app, view)
    add_queries(app, view)
    _add_stream(app, broadcast or Broadcast(view))
    _add_page(app)
    return app


def _add_configuration(app: FastAPI, view: PublicView) -> None:
    @app.get("/healthz")
    async def healthz() -> Response:
        return _json(b'{"status":"ok"}')

    @app.get("/api/pipeline")
    async def pipeline() -> Response:
        return _json(msgspec.json.encode(view.pipeline()))

    @app.get("/api/plan")
    async def plan() -> Response:
        return _json(msgspec.json.encode(view.plan()))

    @app.get("/api/plan.svg")
    async def plan_picture() -> Response:
        picture = draw(_whole(view.plan()))
        headers = {"content-security-policy": PICTURE_POLICY}
        return Response(picture, media_type="image/svg+xml", headers=headers)

    @app.get("/api/budget")
    async def budget() -> Response:
        return _json(msgspec.json.encode(view.budget()))


def _whole(plan: Mapping[str, Any]) -> Mapping[str, Any]:
    """The tree of everything, or of the file's series where that is all there is."""
    tree: Mapping[str, Any] = plan.get("promise", plan).get("derivation", {})
    return tree


def _add_series(app: FastAPI, view: PublicView) -> None:
    def known() -> set[str]:
        return {str(series["name"]) for series in view.pipeline().get("series", ())}

    @app.get("/api/series")
    async def all_series() -> Response:
        latest = view.log.latest()
        entries = (_latest(name, latest) for name in sorted(known() | set(latest)))
        return _json(
            b'{"sequence":%d,"series":[%s]}' % (view.log.last_sequence, b",".join(entries))
        )

    @app.get("/api/series/{name}")
    async def one_series(
        name: str,
        first: Annotated[_Tick, Query(alias="from")] = 0,
        last: Annotated[_Tick, Query(alias="to")] = _LARGEST,
    ) -> Response:
        if name not in view.log.names() and name not in known():
            raise HTTPException(404, "no such series; /api/series lists them")
        bodies = _join(view.log.series_between(name, first, last))
        return _json(b'{"series":%s,"releases":[%s]}' % (msgspec.json.encode(name), bodies))


def _add_stream(app: FastAPI, broadcast: Broadcast) -> None:
    @app.get("/api/stream")
    async def stream(
        after: Annotated[int | None, Query(ge=-1, le=_LARGEST)] = None,
        last_event_id: Annotated[int | None, Header(ge=0, le=_LARGEST)] = None,
    ) -> EventSourceResponse:
        events = broadcast.events(after if last_event_id is None else last_event_id)
        return EventSourceResponse(events, headers={"x-accel-buffering": "no"})


def _add_page(app: FastAPI) -> None:
    pages = {
        file.name: file.read_bytes()
        for file in (files("stream_dp.serve") / "page").iterdir()
        if file.is_file()
    }

    @app.get("/")
    async def index() -> Response:
        return _file("index.html", pages["index.html"])

    @app.get("/{name}")
    async def page(name: str) -> Response:
        if name not in pages:
            raise HTTPException(404, "no such page")
        return _file(name, pages[name])


async def _refuse(_request: Request, error: Exception) -> Response:
    problems = error.errors() if isinstance(error, RequestValidationError) else ()
    names = sorted({str(problem["loc"][-1]) for problem in problems})
    return JSONResponse(
        {"detail": f"must be whole numbers in range: {', '.join(names)}"}, status_code=422
    )


def _latest(name: str, latest: Mapping[str, Release]) -> bytes:
    body = latest[name].body if name in latest else b"null"
    return b'{"name":%s,"latest":%s}' % (msgspec.json.encode(name), body)


def _join(releases: Iterable[Release]) -> bytes:
    return b",".join(release.body for release in releases)


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")


def _file(name: str, content: bytes) -> Response:
    media_type = _MEDIA_TYPES.get(name[name.rfind(".") :], "application/octet-stream")
    return Response(content, media_type=media_type, headers={"cache-control": "no-cache"})
