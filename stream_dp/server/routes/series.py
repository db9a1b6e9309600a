"""Published releases: the newest of each series, those of one series, and the live stream.

Rules: a release is sent as the exact published bytes: `msgspec.Raw` puts them into the answer without reading them,
and the models of `server.models.published` describe their content (tests compare the two). A history of more than
one part is sent part by part, so no whole answer is ever in memory.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Header, Path, Query
from fastapi.responses import Response, StreamingResponse
from fastapi.sse import EventSourceResponse

from stream_dp.journal.commit import Release
from stream_dp.server.broadcast import Broadcast
from stream_dp.server.models.published import (
    EXAMPLES,
    SeriesList,
    SeriesReleases,
    StreamEvent,
)
from stream_dp.server.openapi import reference
from stream_dp.server.parts import history, in_one_part
from stream_dp.server.refusals import Refused, refusals
from stream_dp.server.view import PublicView

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
    """Add the routes for the releases of `view`."""

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
    """Add the route that streams releases as they are published."""

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
    """Return the body as raw JSON, which the encoder copies unchanged."""
    return msgspec.Raw(release.body)


def _encoded(content: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(content), media_type=_JSON)
