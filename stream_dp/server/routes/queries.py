"""The API for series that come and go while the engine runs: preview, create, halt, list.

Rules: the list is public, everything else needs a token. A request with a key is done once, however often it is
sent. Without live series or a token, the routes that write do not exist.
"""

from collections.abc import Awaitable, Mapping
from enum import Enum
from typing import Annotated, Any, TypeVar

from fastapi import Depends, FastAPI, Path, Query, Request, Security

from stream_dp.errors import StreamDPError
from stream_dp.server.bodies import json_body, request_key
from stream_dp.server.holders import TokenHolder
from stream_dp.server.live_series import LiveSeriesService, Sender
from stream_dp.server.models import asked
from stream_dp.server.models.answer import Answer, Documented
from stream_dp.server.openapi import reference
from stream_dp.server.refusals import BUG, refusals
from stream_dp.server.tokens import Token
from stream_dp.server.view import PublicView

A = TypeVar("A", bound=Answer)

_TAGS: list[str | Enum] = ["queries"]


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
    """Add the routes under /api/queries; those that write only if there are live series and a token."""

    @app.get(
        "/api/queries",
        tags=_TAGS,
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
        tags=_TAGS,
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
        tags=_TAGS,
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
        tags=_TAGS,
        summary="End a series; under the filters `pure` and `basic` this frees later ticks",
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
