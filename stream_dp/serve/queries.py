"""The API for mechanisms that come and go while the engine runs: preview, create, halt, list.

Rules: the list is public, everything else needs `Authorization: Bearer TOKEN`, checked before a byte of the body is
read. A body is JSON of at most 64 KiB and is never repeated in an answer. Every refusal is
{detail, exit_code}, with the exit code of the command line. Without live series
or a token there is nothing to write to.
"""

import hmac
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from stream_dp.errors import (
    BudgetRefused,
    FailClosed,
    StreamDPError,
    UnknownMechanism,
    UsageError,
    WorldError,
)
from stream_dp.serve.live_series import (
    CREATED,
    HALTED,
    LARGEST_DEFINITION,
    PREVIEWED,
    QUERY,
    LiveSeriesService,
    chosen,
)
from stream_dp.serve.view import PublicView

_ANALYST = re.compile(r"([a-z0-9][a-z0-9_.-]{0,62})?", re.ASCII)
_STATUS: Mapping[type[StreamDPError], int] = {
    UnknownMechanism: 404,
    BudgetRefused: 409,
    UsageError: 422,
    FailClosed: 503,
    WorldError: 503,
}
_BUG = "a bug of ours; nothing uncommitted was released"

Work = Callable[[], Awaitable[Mapping[str, Any]]]


def add_queries(app: FastAPI, view: PublicView) -> None:
    """Add the routes under /api/queries; those that write only where there are live series and a token."""

    @app.get("/api/queries")
    async def queries() -> Response:
        found = [] if view.live_series is None else view.live_series.queries()
        return _json({"queries": [chosen(query, QUERY) for query in found]})

    if view.live_series is not None and view.token:
        _add_writing(app, view.live_series, view.token)


def _add_writing(app: FastAPI, live_series: LiveSeriesService, token: str) -> None:
    @app.post("/api/queries")
    async def create(request: Request) -> Response:
        async def work() -> Mapping[str, Any]:
            return await live_series.create(await _definition(request), _analyst(request))

        return await _answer(request, token, work, CREATED, 201)

    @app.post("/api/queries/preview")
    async def preview(request: Request) -> Response:
        async def work() -> Mapping[str, Any]:
            return await live_series.preview(await _definition(request), _analyst(request))

        return await _answer(request, token, work, PREVIEWED)

    @app.delete("/api/queries/{name}")
    async def halt(request: Request, name: str) -> Response:
        return await _answer(request, token, lambda: live_series.halt(name), HALTED)


async def _answer(
    request: Request, token: str, work: Work, keys: Sequence[str], status: int = 200
) -> Response:
    """The documented part of what the work returns, or why there is none."""
    try:
        _check(request, token)
        return _json(chosen(await work(), keys), status)
    except _Refused as refused:
        return _refusal(refused.status, str(refused), UsageError.exit_code)
    except UnknownMechanism as error:
        return _refusal(_STATUS[UnknownMechanism], str(error), error.exit_code)
    except StreamDPError as error:
        found = (status for kind, status in _STATUS.items() if isinstance(error, kind))
        status = next(found, 500)
        return _refusal(status, _BUG if status == 500 else str(error), error.exit_code)
    except Exception:  # noqa: BLE001 - the server would print its text, which can carry data
        return _refusal(500, _BUG, StreamDPError.exit_code)


class _Refused(Exception):
    """A request that never reaches the live_series."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def _check(request: Request, token: str) -> None:
    given = request.headers.getlist("authorization")
    scheme, _, secret = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    right = hmac.compare_digest(secret.strip().encode(), token.encode())
    if scheme.lower() != "bearer" or not right:
        raise _Refused(
            401,
            "needs `Authorization: Bearer TOKEN`; `stream-dp query token PIPELINE.yaml` prints it for the holder "
            "of the operator key",
        )


async def _definition(request: Request) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise _Refused(415, "the body must be a JSON object, with Content-Type: application/json")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LARGEST_DEFINITION:
            raise _Refused(413, f"the body must not be larger than {LARGEST_DEFINITION} bytes")
    return bytes(body)


def _analyst(request: Request) -> str:
    named = request.query_params.get("analyst", "")
    if _ANALYST.fullmatch(named) is None:
        raise UsageError(
            "analyst: must be lower-case letters, digits, dots, _ or -, at most 63 of them"
        )
    return named


def _refusal(status: int, text: str, exit_code: int) -> Response:
    headers = {"www-authenticate": "Bearer"} if status == 401 else None
    return JSONResponse({"detail": text, "exit_code": exit_code}, status, headers=headers)


def _json(content: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")
