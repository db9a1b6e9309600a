"""The OpenAPI document: whole, true to the routes and to what they answer, and its committed copy up to date."""

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from unit.server.fake_live_series import FakeLiveSeries, mapping_errors

from stream_dp.errors import BudgetRefused, UnknownMechanism
from stream_dp.server.api import create_app
from stream_dp.server.refusals import document
from stream_dp.server.view import PublicView, ReleaseLog

DOCS = Path(__file__).resolve().parents[3] / "docs"
FILES = {"GET /", "GET /{name}", "GET /docs", "GET /docs/{name}", "GET /api/openapi.json"}
TOKEN = "a1" * 32
LATE = {"name": "late", "statistic": "count", "epsilon": "0.1"}
WRITES = [
    "POST /api/queries", "POST /api/queries/preview", "DELETE /api/queries/{name}", "POST /api/messages",
    "POST /api/series/{name}/ask",
]  # fmt: skip


def application(live_series: FakeLiveSeries | None = None) -> FastAPI:
    """A server that takes queries, unless there is nothing to take them."""
    view = PublicView(dict, dict, dict, ReleaseLog(), live_series, TOKEN)
    return create_app(view, frozenset({"localhost"}))


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    """The whole document."""
    return document(application(FakeLiveSeries()))


def operations(said: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Each operation by its method and path."""
    return {
        f"{method.upper()} {path}": operation
        for path, methods in said["paths"].items()
        for method, operation in methods.items()
    }


def references(part: Any) -> Iterator[str]:
    """Every pointer in a part of the document."""
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for entry in part.values():
            yield from references(entry)
    elif isinstance(part, list):
        for entry in part:
            yield from references(entry)


def pointed(said: dict[str, Any], reference: str) -> Any:
    """What a pointer points to.

    Raises:
        KeyError: nothing is there.
    """
    found: Any = said
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return found


def test_every_route_is_described_and_no_other(said: dict[str, Any]) -> None:
    routes = [r for r in application(FakeLiveSeries()).routes if isinstance(r, APIRoute)]
    served = {f"{method} {route.path}" for route in routes for method in route.methods or ()}
    assert len(served) > 15
    assert set(operations(said)) == served - FILES


def test_each_operation_has_a_name_a_summary_and_described_parameters(said: dict[str, Any]) -> None:
    found = operations(said)
    names = [operation["operationId"] for operation in found.values()]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[a-z_]+", name) for name in names)
    for line, operation in found.items():
        assert operation["summary"], line
        assert operation["tags"], line
        for parameter in operation.get("parameters", ()):
            assert parameter["description"], (line, parameter["name"])
            assert "null" not in json.dumps(parameter["schema"]), (line, parameter["name"])


def test_each_answer_has_a_schema(said: dict[str, Any]) -> None:
    for line, operation in operations(said).items():
        for status, answer in operation["responses"].items():
            whole = pointed(said, answer["$ref"]) if "$ref" in answer else answer
            assert all(content.get("schema") for content in whole["content"].values()), line
            assert whole["description"] not in {"", "Successful Response"}, (line, status)
            assert (status >= "400") == (json.dumps(whole["content"]).count("/Refusal") == 1)


def test_pointers_lead_somewhere_and_everything_is_pointed_to(said: dict[str, Any]) -> None:
    used = set(references(said))
    for reference in used:
        assert pointed(said, reference), reference
    parts = said["components"]
    known = {
        f"#/components/{part}/{name}" for part in ("schemas", "responses") for name in parts[part]
    }
    assert known == used


def test_a_pointer_into_nothing_is_found(said: dict[str, Any]) -> None:
    with pytest.raises(KeyError):
        pointed(said, "#/components/schemas/HTTPValidationError")


def test_schemas_name_what_they_require_and_say_what_keys_mean(said: dict[str, Any]) -> None:
    for name, schema in said["components"]["schemas"].items():
        assert schema["description"], name
        assert set(schema.get("required", ())) <= set(schema.get("properties", ())), name
        assert all("default" not in entry for entry in schema.get("properties", {}).values()), name


def test_only_what_writes_needs_the_token(said: dict[str, Any]) -> None:
    guarded = [line for line, operation in operations(said).items() if "security" in operation]
    assert sorted(guarded) == sorted([*WRITES, "GET /api/me"])
    scheme = said["components"]["securitySchemes"]["token"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")


def test_without_live_series_nothing_that_writes_is_described() -> None:
    said = document(application())
    assert {line.split()[0] for line in operations(said)} == {"GET"}
    assert "Definition" not in said["components"]["schemas"]


async def test_it_is_served_and_names_no_other_host(said: dict[str, Any]) -> None:
    transport = httpx.ASGITransport(application(FakeLiveSeries()))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8765") as client:
        answers = [await client.get("/api/openapi.json") for _ in range(2)]
    assert [answer.json() for answer in answers] == [said, said]
    assert answers[0].headers["content-type"] == "application/json"
    assert "://" not in answers[0].text


ERRORS = [*(error for error, _ in mapping_errors()), UnknownMechanism("no such"), ValueError("x")]
GIVEN = [  # a halt costs nothing, and only a halt names a series that runs
    (line, error)
    for line in WRITES
    for error in ERRORS
    if not isinstance(error, UnknownMechanism if line.startswith("POST") else BudgetRefused)
]


@pytest.mark.parametrize(("line", "error"), GIVEN, ids=lambda part: str(part)[:30])
async def test_every_refusal_that_is_given_is_described(
    said: dict[str, Any], line: str, error: Exception
) -> None:
    live_series = FakeLiveSeries()
    live_series.error = error
    described = operations(said)[line]["responses"]
    right = {"Authorization": f"Bearer {TOKEN}"}
    changes: list[dict[str, Any]] = [
        {"json": LATE, "headers": right},
        {"json": LATE},
        {"json": LATE, "headers": {**right, "Host": "evil.example"}},
        {"json": LATE, "headers": {**right, "Origin": "http://evil.example"}},
        {"content": b"x" * 70_000, "headers": {**right, "Content-Type": "application/json"}},
        {"content": b"{}", "headers": {**right, "Content-Type": "text/plain"}},
        {"json": LATE, "headers": right, "params": {"analyst": "X"}},
    ]
    transport = httpx.ASGITransport(application(live_series))
    method, path = line.split()
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8765") as client:
        for change in changes:
            answer = await client.request(method, path.replace("{name}", "late"), **change)
            assert str(answer.status_code) in described
            assert set(answer.json()) == {"detail", "exit_code"}


def test_the_committed_copy_is_up_to_date() -> None:
    script = runpy.run_path(str(DOCS / "openapi.py"))
    assert (DOCS / "openapi.json").read_text() == script["text"](), "run: python docs/openapi.py"
