"""Refusals: errors as answers; request bodies and keys; the OpenAPI document, which describes every refusal.

Rules: every refusal by a route is {detail, exit_code}, with the exit code of the command line. It names our own
parameters and never repeats the request's content; for a bug it says only that there is one.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import FastAPI, Header, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from stream_dp import __version__
from stream_dp.errors import (
    BudgetRefused,
    FailClosed,
    MostlyNoise,
    NoRoom,
    NotAccepted,
    NotYours,
    StreamDPError,
    UnknownMechanism,
    UsageError,
    WorldError,
)
from stream_dp.journal.answer_body import RefusalKind
from stream_dp.server.access import BODY, Refused
from stream_dp.server.models.answer import Refusal
from stream_dp.server.models.asked import NOISE, AnalystMessage, AskParameters, Definition, Question
from stream_dp.server.view import LARGEST_DEFINITION

BUG = "a bug in stream_dp; nothing that was not committed was released"

_STATUS: Mapping[type[StreamDPError], int] = {
    UnknownMechanism: 404,
    NotYours: 403,
    BudgetRefused: 409,
    NoRoom: 409,
    MostlyNoise: 428,
    UsageError: 422,
    FailClosed: 503,
    WorldError: 503,
}
_NOT_ACCEPTED: Mapping[str, int] = {
    RefusalKind.SIGNATURE: 403,
    RefusalKind.USED: 409,
    RefusalKind.REPEATED: 409,
    RefusalKind.RATE: 429,
}
_EXPECTED = {"analyst": "must be lower-case letters, digits, dots, _ or -, at most 63 of them"}
_MEANING: Mapping[int, tuple[str, str, int]] = {
    401: ("No token, or not this pipeline's; where reading is closed, also there.",
          "needs `Authorization: Bearer TOKEN`; ...", 2),
    403: ("Sent by a web page of another origin; a user's name that no proxy sent; or not the sender's to do.",
          "pages of another origin may not write here", 2),
    404: ("Nothing of this name is known or runs.", "no series has this name; /api/series lists the series", 2),
    409: ("The budget, or the room for live series, does not cover it; or its id or key was used for something else.",
          "large: asked epsilon 0.7, spent 0.5, left 0.5; the largest that fits is 0.5", 3),
    413: ("The body is too large.", "the body must not be larger than 65536 bytes", 2),
    415: ("The body is not called JSON.", "the body must be a JSON object, with Content-Type: application/json", 2),
    421: ("The Host header does not name this server.", "this server does not answer for that host", 2),
    422: ("A parameter or the definition is wrong: every problem with its key, never with its value.",
          "must be whole numbers in range: from", 2),
    428: ("It would fire mostly by noise, and `accept_noise` does not confirm it.",
          f"series: {NOISE}. Nothing was done; to run it all the same, confirm it: accept_noise", 2),
    429: ("More messages of this analyst before the next tick than are executed.",
          "more messages of this analyst came before the next tick than may be executed; nothing was done", 2),
    500: ("A bug of ours.", BUG, 1),
    503: ("The engine stopped (exit code 4), or its world failed: broker, network, disk (5).",
          "the journal cannot be written: the disk is full", 5),
}  # fmt: skip
"""For each status its meaning, an example text and its exit code."""


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route that refuses with these statuses."""
    responses: dict[int | str, dict[str, Any]] = {}
    for status in statuses:
        meaning, detail, exit_code = _MEANING[status]
        example = Refusal(detail=detail, exit_code=exit_code).model_dump()
        content = {"application/json": {"example": example}}
        responses[status] = {"model": Refusal, "description": meaning, "content": content}
    if 401 in responses:
        header = {"schema": {"type": "string", "const": "Bearer"}, "description": "The scheme."}
        responses[401]["headers"] = {"WWW-Authenticate": header}
    return responses


def add_refusals(app: FastAPI) -> None:
    for kind in (Refused, RequestValidationError, StreamDPError, Exception):
        app.add_exception_handler(kind, _answered)


def refusal(status: int, detail: str, exit_code: int = UsageError.exit_code) -> Response:
    headers = {"www-authenticate": "Bearer"} if status == 401 else None
    content = Refusal(detail=detail, exit_code=exit_code).model_dump()
    return JSONResponse(content, status, headers=headers)


async def _answered(_request: Request, error: Exception) -> Response:
    return refusal_of(error)


def refusal_of(error: Exception) -> Response:
    match error:
        case Refused():
            return refusal(error.status, str(error))
        case RequestValidationError():
            return refusal(422, _invalid(error))
        case StreamDPError():
            status = status_of(error)
            return refusal(status, BUG if status == 500 else str(error), error.exit_code)
    return refusal(500, BUG, StreamDPError.exit_code)


def _invalid(error: RequestValidationError) -> str:
    names = sorted({str(problem["loc"][-1]) for problem in error.errors()})
    texts = [f"{name}: {_EXPECTED[name]}" for name in names if name in _EXPECTED]
    if numbers := [name for name in names if name not in _EXPECTED]:
        texts.append(f"must be whole numbers in range: {', '.join(numbers)}")
    return "; ".join(texts)


def status_of(error: StreamDPError) -> int:
    """Return the HTTP status of an error; 500 for a bug."""
    if isinstance(error, NotAccepted):
        return _NOT_ACCEPTED.get(error.kind, 422)
    return next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 500)


_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)


async def json_body(request: Request) -> bytes:
    """Return the body unchanged; a body that is not called JSON or is larger than 64 KiB is refused."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(415, "the body must be a JSON object, with Content-Type: application/json")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LARGEST_DEFINITION:
            raise Refused(413, f"the body must not be larger than {LARGEST_DEFINITION} bytes")
    request.scope[BODY] = bytes(body)
    return bytes(body)


def request_key(
    idempotency_key: Annotated[
        str,
        Header(
            description="Makes the request safe to repeat: under the same key it is done once, for a day. 1 to 64 of "
            "the characters A-Z a-z 0-9 _ . -"
        ),
    ] = "",
) -> str:
    if idempotency_key and _KEY.fullmatch(idempotency_key) is None:
        raise Refused(422, "Idempotency-Key: must be 1 to 64 characters of A-Z a-z 0-9 _ . -")
    return idempotency_key


PATH = "/api/openapi.json"

_DESCRIPTION = """\
Live statistics under differential privacy: what is published, to everyone who can reach this server; series that come
and go, to the holder of a token. All that is served is public, each number was published once and never changes.
An operator may close reading: then all routes but `/healthz` and those of `access` take a token, also a reader's, or
the cookie of `/api/login`.

Ticks are numbers on a public grid, from 0; times are UTC. Charged amounts are exact decimal strings, those of the plan
are numbers to show. Where a key may be missing, it is not required; where it may be null, its type says so.
A path that is not here is answered by 404, a method that a path does not have by 405, both with `{"detail"}`.
"""
_TAGS = [
    {"name": "releases", "description": "What was published, byte for byte."},
    {"name": "configuration", "description": "What the pipeline is, promises and has spent."},
    {
        "name": "access",
        "description": "Who reads, where reading is closed or a proxy logs people in; other servers lack these.",
    },
    {
        "name": "queries",
        "description": "Series created, previewed and halted while the engine runs. A server that runs without live "
        "series has only the list.",
    },
    {
        "name": "messages",
        "description": "What analysts say to the engine, by HTTP as by Kafka: done once, at a cut between two ticks.",
    },
]


ABOUT: dict[str, Any] = {
    "title": "stream_dp",
    "version": __version__,
    "description": _DESCRIPTION,
    "openapi_tags": _TAGS,
}


def reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def add_document(app: FastAPI) -> None:
    """Add the route of the document, which describes the routes that `app` has at the first request for it."""

    @app.get(PATH, include_in_schema=False)
    def openapi() -> JSONResponse:  # not async: a thread makes it, in 0.3 s of CPU time
        if app.openapi_schema is None:
            app.openapi_schema = document(app)
        return JSONResponse(app.openapi_schema)


def document(app: FastAPI) -> dict[str, Any]:
    """Return FastAPI's document, sorted: each refusal written once, no parameter that may be null."""
    made = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        tags=app.openapi_tags,
        routes=app.routes,
    )
    components = made["components"]
    shared: dict[str, Any] = components.setdefault("responses", {})
    for path in made["paths"].values():
        for operation in path.values():
            operation["responses"] = _shared(operation["responses"], shared)
            for parameter in operation.get("parameters", ()):
                parameter["schema"] = _plain(parameter["schema"])
    if "token" in components.get("securitySchemes", {}):
        for model in (Definition, Question, AnalystMessage, AskParameters):
            components["schemas"][model.__name__] = model.model_json_schema()
    for part in ("schemas", "responses"):
        components[part] = dict(sorted(components[part].items()))
    return made


def _shared(responses: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    """Return the answers with references in place of refusals, and add the refusals to `shared`."""
    answers = dict(sorted(responses.items()))
    for status, answer in answers.items():
        name = f"Refused{status}"
        if status >= "400" and shared.setdefault(name, answer) == answer:
            answers[status] = {"$ref": f"#/components/responses/{name}"}
    return answers


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a given parameter: never null, without its own name.

    >>> _plain({"anyOf": [{"type": "integer"}, {"type": "null"}], "title": "After", "description": "..."})
    {'type': 'integer'}
    """
    given: dict[str, Any] = next(iter(schema.get("anyOf", [schema])))
    return {key: given[key] for key in given if key not in {"title", "description"}}
