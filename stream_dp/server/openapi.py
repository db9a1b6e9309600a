"""The OpenAPI document at /api/openapi.json: FastAPI's document of the routes, without repetition and sorted.

Rules: the document is made at the first request for it, on a thread, because that takes a third of a second of CPU
time. It describes the routes of this server: without live series it has no route that writes.
"""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from stream_dp import __version__
from stream_dp.server.models.asked import Definition, Question
from stream_dp.server.models.told import AnalystMessage, AskParameters

PATH = "/api/openapi.json"

_DESCRIPTION = """\
Live statistics under differential privacy: what is published, to everyone who can reach this server; series that come
and go, to the holder of a token. All that is served is public, each number was published once and never changes.

Ticks are numbers on a public grid, from 0; times are UTC. Charged amounts are exact decimal strings, those of the plan
are numbers to show. Where a key may be missing, it is not required; where it may be null, its type says so.
A path that is not here is answered by 404, a method that a path does not have by 405, both with `{"detail"}`.
"""
_TAGS = [
    {"name": "releases", "description": "What was published, byte for byte."},
    {"name": "configuration", "description": "What the pipeline is, promises and has spent."},
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
"""The introduction of the document."""


def reference(model: type[BaseModel]) -> dict[str, str]:
    """Return a reference to the schema of a model."""
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def add_document(app: FastAPI) -> None:
    """Add the route of the document, which describes the routes of `app` at the time of the first request."""

    @app.get(PATH, include_in_schema=False)
    def openapi() -> JSONResponse:  # not async: FastAPI gives it a thread
        if app.openapi_schema is None:
            app.openapi_schema = document(app)
        return JSONResponse(app.openapi_schema)


def document(app: FastAPI) -> dict[str, Any]:
    """Return the document: answers by status, each refusal written once, no parameter that may be null."""
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
    """Return the answers by status with references to the refusals, which are added to `shared`."""
    found: dict[str, Any] = {}
    for status, answer in sorted(responses.items()):
        if status < "400" or shared.get(f"Refused{status}", answer) != answer:
            found[status] = answer
        else:
            shared[f"Refused{status}"] = answer
            found[status] = {"$ref": f"#/components/responses/Refused{status}"}
    return found


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a given parameter: never null, without its own name.

    >>> _plain({"anyOf": [{"type": "integer"}, {"type": "null"}], "title": "After", "description": "..."})
    {'type': 'integer'}
    """
    given: dict[str, Any] = next(iter(schema.get("anyOf", [schema])))
    return {key: given[key] for key in given if key not in {"title", "description"}}
