"""The API for series that come and go while the engine runs: preview, create, halt, list.

Rules: the list is public, everything else needs `Authorization: Bearer TOKEN`, checked before a byte of the body is
read. A body is JSON of at most 64 KiB, handed over as it was sent and never repeated in an answer. Without live series
or a token there is nothing to write to, and no such route.
"""

import hmac
from collections.abc import Awaitable, Mapping
from enum import Enum
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Path, Query, Request, Security
from fastapi.requests import HTTPConnection
from fastapi.security import HTTPBearer

from stream_dp.errors import StreamDPError
from stream_dp.serve.live_series import LARGEST_DEFINITION, LiveSeriesService
from stream_dp.serve.models import asked
from stream_dp.serve.models.answer import Answer
from stream_dp.serve.openapi import reference
from stream_dp.serve.refusals import BUG, Refused, refusals
from stream_dp.serve.view import PublicView

A = TypeVar("A", bound=Answer)

_TAGS: list[str | Enum] = ["queries"]
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": reference(asked.Definition),
                "example": asked.EXAMPLE,
            }
        },
    }
}
_REFUSED = refusals(401, 403, 409, 413, 415, 422, 503)
_Analyst = Annotated[
    str,
    Query(
        pattern="^([a-z0-9][a-z0-9_.-]{0,62})?$",
        description="Whose ledger pays; empty: the pipeline's own.",
    ),
]
_Name = Annotated[str, Path(description="The name of a series that was created and runs.")]


def add_queries(app: FastAPI, view: PublicView) -> None:
    """Add the routes under /api/queries; those that write only where there are live series and a token."""

    @app.get(
        "/api/queries",
        tags=_TAGS,
        summary="Every series, of the file and created, halted ones too",
        operation_id="list_queries",
        response_description="The file's first, the halted ones last.",
    )
    async def all_queries() -> asked.QueryList:
        found = [] if view.live_series is None else view.live_series.queries()
        return asked.QueryList(queries=tuple(asked.Query.documented(query) for query in found))

    if view.live_series is not None and view.token:
        _add_writing(app, view.live_series, _Token(view.token))


def _add_writing(app: FastAPI, live_series: LiveSeriesService, token: "_Token") -> None:
    guard = [Security(token)]

    @app.post(
        "/api/queries",
        tags=_TAGS,
        summary="Create a series: charged, durable and running on return",
        operation_id="create_query",
        response_description="Charged, durable and running.",
        status_code=201,
        dependencies=guard,
        responses=_REFUSED,
        openapi_extra=_BODY,
    )
    async def create(request: Request, analyst: _Analyst = "") -> asked.Created:
        definition = await _definition(request)
        return await _done(asked.Created, live_series.create(definition, analyst))

    @app.post(
        "/api/queries/preview",
        tags=_TAGS,
        summary="What a series would cost, whether it fits, and why; changes nothing",
        operation_id="preview_query",
        response_description="What would happen; nothing has.",
        dependencies=guard,
        responses=_REFUSED,
        openapi_extra=_BODY,
        response_model_exclude_unset=True,
    )
    async def preview(request: Request, analyst: _Analyst = "") -> asked.Preview:
        definition = await _definition(request)
        return await _done(asked.Preview, live_series.preview(definition, analyst))

    @app.delete(
        "/api/queries/{name}",
        tags=_TAGS,
        summary="End a series; under the filters `pure` and `basic` this frees later ticks",
        operation_id="halt_query",
        response_description="Ended.",
        dependencies=guard,
        responses=refusals(401, 403, 404, 422, 503),
    )
    async def halt(name: _Name) -> asked.Halted:
        return await _done(asked.Halted, live_series.halt(name))


async def _done(model: type[A], work: Awaitable[Mapping[str, Any]]) -> A:
    """Return what the engine says; of a bug nothing is said or logged, for its text can carry data."""
    try:
        return model.documented(await work)
    except StreamDPError:
        raise
    except Exception:  # noqa: BLE001 - see above
        raise StreamDPError(BUG) from None


class _Token(HTTPBearer):
    """Lets those through who hold the token."""

    def __init__(self, token: str) -> None:
        super().__init__(
            scheme_name="token",
            description="What `stream-dp query token PIPELINE.yaml` prints for the holder of the operator key.",
        )
        self._token = token.encode()

    async def __call__(self, request: HTTPConnection) -> None:
        given = request.headers.getlist("authorization")
        scheme, _, secret = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        right = hmac.compare_digest(secret.strip().encode(), self._token)
        if scheme.lower() != "bearer" or not right:
            raise Refused(
                401,
                "needs `Authorization: Bearer TOKEN`; `stream-dp query token PIPELINE.yaml` prints it for the holder "
                "of the operator key",
            )


async def _definition(request: Request) -> bytes:
    """Return the body as it was sent.

    Raises:
        Refused: it is not called JSON, or too large; it is read no further than that.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(415, "the body must be a JSON object, with Content-Type: application/json")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LARGEST_DEFINITION:
            raise Refused(413, f"the body must not be larger than {LARGEST_DEFINITION} bytes")
    return bytes(body)
