"""Routes for releases, live series and messages; `api` has the others.

Rules: published releases and recorded answers are sent as their exact bytes; all else is a model of `server.models`.
Only holders of a token may write. A request with a key is done once, however often it is sent.
"""

from collections.abc import Awaitable, Mapping
from enum import Enum
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import Depends, FastAPI, Header, Path, Query, Request, Response, Security
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
from stream_dp.server.models.answer import Answer, Documented, Refusal
from stream_dp.server.models.asked import AnalystMessage, AskParameters, MessageAnswer
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
from stream_dp.server.tokens import Token
from stream_dp.server.view import PublicView, TokenHolder

_TAGS: list[str | Enum] = ["releases"]
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
_STREAM: Mapping[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events, until the client leaves or the server ends.",
        "content": {
            "text/event-stream": {
                "schema": reference(StreamEvent),
                "example": (
                    'retry: 1000\nevent: head\ndata: {"sequence":1237,"fingerprint":"5d1f"}\n\n'
                    f"id: 1238\ndata: {msgspec.json.encode(EXAMPLES['flags']).decode()}\n\n"
                ),
            }
        },
    },
    **refusals(422),
}

_Tick = Annotated[int, Query(ge=0, le=_LARGEST)]
_Sequence = Annotated[int | None, Query(ge=-1, le=_LARGEST)]


def add_series(app: FastAPI, view: PublicView) -> None:
    """Add the routes for the newest release of each series and for the releases of one series.

    `server.models.published` describes the content of the bytes; tests compare the two. A history of more than one
    part is sent part by part, so no whole answer is ever in memory.
    """

    def known() -> set[str]:
        return {str(entry["name"]) for entry in view.pipeline().get("series", ())}

    @app.get(
        "/api/series",
        tags=_TAGS,
        summary="The newest release of every series",
        operation_id="list_series",
        response_description="By name; `latest` is null before the first release.",
        response_model=SeriesList,
        responses={200: {"content": {_JSON: {"example": _LIST}}}},
    )
    async def all_series() -> Response:
        latest = view.log.latest()
        entries = [_newest(name, latest) for name in sorted(known() | set(latest))]
        return _encoded({"sequence": view.log.last_sequence, "series": entries})

    @app.get(
        "/api/series/{name}",
        tags=_TAGS,
        summary="The releases of one series",
        operation_id="get_series",
        response_description="The published bytes, by tick; more than 64 KiB come in chunks, without a Content-Length.",
        response_model=SeriesReleases,
        responses={200: {"content": {_JSON: {"examples": _RELEASES}}}, **refusals(404, 422)},
    )
    async def one_series(
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
        found = in_one_part(view.log, name, places)
        if found is None:
            return StreamingResponse(history(view.log, name, places), media_type=_JSON)
        return _encoded({"series": name, "releases": [_bytes(release) for release in found]})


def add_stream(app: FastAPI, broadcast: Broadcast) -> None:
    @app.get(
        "/api/stream",
        tags=_TAGS,
        summary="Releases as server-sent events",
        operation_id="stream_releases",
        response_class=Response,
        response_model=StreamEvent,
        responses={**_STREAM},
    )
    async def stream(
        after: Annotated[
            _Sequence,
            Query(description="Begin after this sequence (-1: with the first release)."),
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


def _newest(name: str, latest: Mapping[str, Release]) -> dict[str, Any]:
    return {"name": name, "latest": _bytes(latest[name]) if name in latest else None}


def _bytes(release: Release) -> msgspec.Raw:
    return msgspec.Raw(release.body)  # the encoder copies it unchanged


def _encoded(content: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(content), media_type=_JSON)


A = TypeVar("A", bound=Answer)

_QUERIES_TAGS: list[str | Enum] = ["queries"]


def _body(model: type[Documented], example: Mapping[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": reference(model), "example": example}}
    return {"requestBody": {"required": True, "content": content}}


_REFUSED = refusals(401, 403, 409, 413, 415, 422, 429, 503)
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


def add_queries(app: FastAPI, view: PublicView) -> None:
    """Add the public list of series, and, if there are live series and a token, preview, create and halt."""

    @app.get(
        "/api/queries",
        tags=_QUERIES_TAGS,
        summary="Every series that runs, of the file and created, and the last halted ones",
        operation_id="list_queries",
        response_description="The file's first, the halted ones last: of each ledger the last twenty.",
        response_model_exclude_unset=True,
    )
    async def all_queries() -> asked.QueryList:
        found = [] if view.live_series is None else view.live_series.queries()
        return asked.QueryList(queries=tuple(asked.Query.documented(query) for query in found))

    if view.live_series is not None and view.token:
        _add_writing(app, view.live_series, Token(view))


def _add_writing(app: FastAPI, live_series: LiveSeriesService, token: Token) -> None:
    holder = Security(token)

    @app.post(
        "/api/queries",
        tags=_QUERIES_TAGS,
        summary="Create a series: charged, durable and running on return",
        operation_id="create_query",
        response_description="Charged, durable and running.",
        status_code=201,
        responses={**_REFUSED, **refusals(428)},
        openapi_extra=_body(asked.Definition, asked.EXAMPLE),
        response_model_exclude_unset=True,
    )
    async def create(
        request: Request,
        key: _Key,
        analyst: _Analyst = "",
        accept_noise: _AcceptNoise = False,
        holder: TokenHolder = holder,
    ) -> asked.Created:
        definition = await json_body(request)
        sender = Sender(holder.analyst, key, accept_noise)
        return await _done(asked.Created, live_series.create(definition, analyst, sender))

    @app.post(
        "/api/queries/preview",
        tags=_QUERIES_TAGS,
        summary="What a series would cost, whether it fits, and why; changes nothing",
        operation_id="preview_query",
        response_description="What would happen; nothing has.",
        responses=_REFUSED,
        openapi_extra=_body(asked.Question, asked.PRICED),
        response_model_exclude_unset=True,
    )
    async def preview(
        request: Request, analyst: _Analyst = "", holder: TokenHolder = holder
    ) -> asked.Preview:
        definition = await json_body(request)
        sender = Sender(holder.analyst)
        return await _done(asked.Preview, live_series.preview(definition, analyst, sender))

    @app.delete(
        "/api/queries/{name}",
        tags=_QUERIES_TAGS,
        summary="End a series; this frees budget for later ticks",
        operation_id="halt_query",
        response_description="Ended.",
        responses=refusals(401, 403, 404, 409, 422, 429, 503),
    )
    async def halt(name: _Name, key: _Key, holder: TokenHolder = holder) -> asked.Halted:
        return await _done(asked.Halted, live_series.halt(name, Sender(holder.analyst, key)))


async def _done(model: type[A], work: Awaitable[Mapping[str, Any]]) -> A:
    """Return the engine's answer. A bug's text is neither sent nor logged, because it can contain data."""
    try:
        return model.documented(await work)
    except StreamDPError:
        raise
    except Exception:  # noqa: BLE001 - see above
        raise StreamDPError(BUG) from None


_TALK_TAGS: list[str | Enum] = ["messages"]
_ON_RECORD = (403, 404, 409, 422)
"""Statuses of refusals that may be recorded answers."""

_TalkName = Annotated[str, Path(description="The name of a series that runs.")]


def add_messages(app: FastAPI, view: PublicView) -> None:
    """Add the routes for any message and for asking one series, if there are live series and a token."""
    if view.live_series is not None and view.token:
        _add(app, view.live_series, Token(view))


def _add(app: FastAPI, live_series: LiveSeriesService, token: Token) -> None:
    holder = Security(token)
    example = {"id": "c1f", "until": "2026-11-23T10:00:00Z", "do": "ask", "series": "by_page"}

    @app.post(
        "/api/messages",
        tags=_TALK_TAGS,
        summary="Say what to do: one message, one answer, the same for ever",
        operation_id="send_message",
        response_model=MessageAnswer,
        response_description="Durable and public; the bytes on record.",
        responses=_refused(),
        openapi_extra=_talk_body(AnalystMessage, example),
    )
    async def message(request: Request, holder: TokenHolder = holder) -> Response:
        return await _answered(live_series.message(await json_body(request), holder.analyst))

    @app.post(
        "/api/series/{name}/ask",
        tags=_TALK_TAGS,
        summary="Ask a series: parts of its last release, or a threshold of a monitor",
        operation_id="ask_series",
        response_model=MessageAnswer,
        response_description="Durable and public; the bytes on record.",
        responses=_refused(),
        openapi_extra=_talk_body(AskParameters, {"keys": ["ATL", "BOS"]}),
    )
    async def ask(
        request: Request, name: _TalkName, key: _Key, holder: TokenHolder = holder
    ) -> Response:
        body = await json_body(request)
        return await _answered(live_series.ask(name, body, Sender(holder.analyst, key)))


async def _answered(work: Awaitable[bytes]) -> Response:
    """Return the recorded bytes; the status shows a refusal too. A bug's text is neither sent nor logged."""
    try:
        body = await work
        refused = read_answer(body).refused
    except StreamDPError:
        raise
    except Exception:  # noqa: BLE001 - see above
        raise StreamDPError(BUG) from None
    status = status_of(error_of(refused)) if isinstance(refused, RefusedMessage) else 200
    return Response(body, status, media_type="application/json")


def _talk_body(model: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": reference(model), "example": example}}
    return {"requestBody": {"required": True, "content": content}}


def _refused() -> dict[int | str, dict[str, Any]]:
    """Return the possible refusals: those by the server itself, and recorded answers."""
    found = refusals(401, 403, 404, 409, 413, 415, 422, 429, 503)
    either = {"anyOf": [reference(Refusal), reference(MessageAnswer)]}
    for status in _ON_RECORD:
        found[status] = {
            "description": f"{found[status]['description']} The answer on record, if there is one.",
            "content": {"application/json": {"schema": either}},
        }
    return found
