"""Routes for releases, live series and messages; `api` has the others.

Rules: published releases and recorded answers are sent as their exact bytes; all else is a model of `server.models`.
Only holders of a token may write. A request with a key is done once, however often it is sent.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import Depends, FastAPI, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.sse import EventSourceResponse
from pydantic import BaseModel

from stream_dp.engine.messages.conversation import error_of
from stream_dp.errors import StreamDPError
from stream_dp.journal.answer_body import RefusedMessage, read_answer
from stream_dp.journal.commit import Release
from stream_dp.server.broadcast import Broadcast, history, in_one_part
from stream_dp.server.live_series import LiveSeriesService, Sender
from stream_dp.server.models import asked
from stream_dp.server.models.answer import Refusal
from stream_dp.server.models.published import EXAMPLES, SeriesList, SeriesReleases, StreamEvent
from stream_dp.server.refusals import (
    BUG,
    Refused,
    json_body,
    reference,
    refusals,
    request_key,
    status_of,
)
from stream_dp.server.view import PublicView, TokenHolder

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
    ) -> Response:
        if name not in view.log.names() and name not in known():
            raise Refused(404, "no such series; /api/series lists them")
        places = view.log.places_between(name, first, _LARGEST if last is None else last)
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
