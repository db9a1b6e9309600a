"""The API for messages: any message, and a short form for asking one series.

Rules: only holders of a token may send messages; the token is checked before a byte of the body is read. An answer
is sent as the recorded bytes; if it is a refusal, the status shows that too.
"""

from collections.abc import Awaitable
from enum import Enum
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Path, Request, Response, Security
from pydantic import BaseModel

from stream_dp.engine.messages.answer_words import error_of
from stream_dp.errors import StreamDPError
from stream_dp.journal.answer_body import RefusedMessage, read_answer
from stream_dp.server.bodies import json_body, request_key
from stream_dp.server.holders import TokenHolder
from stream_dp.server.live_series import LiveSeriesService, Sender
from stream_dp.server.models.answer import Refusal
from stream_dp.server.models.told import AnalystMessage, AskParameters, MessageAnswer
from stream_dp.server.openapi import reference
from stream_dp.server.refusals import BUG, refusals, status_of
from stream_dp.server.tokens import Token
from stream_dp.server.view import PublicView

_TAGS: list[str | Enum] = ["messages"]
_ON_RECORD = (403, 404, 409, 422)
"""Statuses of refusals that may be recorded answers."""
_Key = Annotated[str, Depends(request_key)]
_Name = Annotated[str, Path(description="The name of a series that runs.")]


def add_messages(app: FastAPI, view: PublicView) -> None:
    """Add the routes of messages if there are live series and a token."""
    if view.live_series is not None and view.token:
        _add(app, view.live_series, Token(view))


def _add(app: FastAPI, live_series: LiveSeriesService, token: Token) -> None:
    holder = Security(token)
    example = {"id": "c1f", "until": "2026-11-23T10:00:00Z", "do": "ask", "series": "by_page"}

    @app.post(
        "/api/messages",
        tags=_TAGS,
        summary="Say what to do: one message, one answer, the same for ever",
        operation_id="send_message",
        response_model=MessageAnswer,
        response_description="Durable and public; the bytes on record.",
        responses=_refused(),
        openapi_extra=_body(AnalystMessage, example),
    )
    async def message(request: Request, holder: TokenHolder = holder) -> Response:
        return await _answered(live_series.message(await json_body(request), holder.analyst))

    @app.post(
        "/api/series/{name}/ask",
        tags=_TAGS,
        summary="Ask a series: parts of its last release, or a threshold of a monitor",
        operation_id="ask_series",
        response_model=MessageAnswer,
        response_description="Durable and public; the bytes on record.",
        responses=_refused(),
        openapi_extra=_body(AskParameters, {"keys": ["ATL", "BOS"]}),
    )
    async def ask(
        request: Request, name: _Name, key: _Key, holder: TokenHolder = holder
    ) -> Response:
        body = await json_body(request)
        return await _answered(live_series.ask(name, body, Sender(holder.analyst, key)))


async def _answered(work: Awaitable[bytes]) -> Response:
    """Return the answer's bytes. A bug's text is neither sent nor logged, because it can contain data."""
    try:
        body = await work
        refused = read_answer(body).refused
    except StreamDPError:
        raise
    except Exception:  # noqa: BLE001 - see above
        raise StreamDPError(BUG) from None
    status = status_of(error_of(refused)) if isinstance(refused, RefusedMessage) else 200
    return Response(body, status, media_type="application/json")


def _body(model: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": reference(model), "example": example}}
    return {"requestBody": {"required": True, "content": content}}


def _refused() -> dict[int | str, dict[str, Any]]:
    """Return the possible refusals: by the server itself, or as recorded answers."""
    found = refusals(401, 403, 404, 409, 413, 415, 422, 429, 503)
    either = {"anyOf": [reference(Refusal), reference(MessageAnswer)]}
    for status in _ON_RECORD:
        found[status] = {
            "description": f"{found[status]['description']} The answer on record, if there is one.",
            "content": {"application/json": {"schema": either}},
        }
    return found
