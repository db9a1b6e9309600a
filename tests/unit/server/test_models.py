"""The models and the OpenAPI document are true: to real answers, to what the product says, and to the routes."""

import json
import re
import runpy
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from unit.server import public_world as world
from unit.server.conftest import connected
from unit.server.fake_live_series import FakeLiveSeries, mapping_errors

from stream_dp.core.time import TickGrid
from stream_dp.errors import BudgetRefused, UnknownMechanism
from stream_dp.journal.commit import Release
from stream_dp.journal.release import Rank, Released, Shape, content, part, write
from stream_dp.operate.budget_view import api_budget
from stream_dp.operate.observe.public_view import pipeline_json
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.report import plan_json
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.server.api import create_app
from stream_dp.server.broadcast import Broadcast
from stream_dp.server.models import answer, asked, configured, published
from stream_dp.server.refusals import document
from stream_dp.server.view import PublicView, ReleaseLog

TOKEN = "a1" * 32
LATE = {"name": "late", "statistic": "count", "epsilon": "0.1"}
PRIVACY = {"unit": "event", "neighbors": "add_remove", "epsilon": "20"}
KEYED = {"by": "origin", "epsilon": "0.01"}
FLIGHTS = {
    "version": "1",
    "name": "flights",
    "source": {"kind": "kafka", "topic": "flights", "bootstrap": "127.0.0.1:9092"},
    "schema": {"origin": {"type": "category", "domain": ["EWR", "JFK"]}},
    "clock": {"kind": "wall", "step": "1h", "delay": "2s"},
    "series": [
        {"name": "departures", "statistic": "count", "epsilon": "0.01"},
        {"name": "by_origin", "statistic": "histogram", "method": "tree", **KEYED},
        {"name": "late", "statistic": "alerts", "threshold": "100", **KEYED},
    ],
}
DELTA = {"delta": "1e-9"}
FILTERS: list[dict[str, Any]] = [
    {},
    {"analysts": [{"name": "ann", "epsilon": "0.5"}]},
    {**DELTA, "filter": "basic", "first_block_delta": "1e-10"},
    {**DELTA, "filter": "tight_approximate"},
    {**DELTA, "filter": "renyi", "order": 30},
]
SHAPES: dict[Shape, type[answer.Answer]] = {
    Shape.SCALAR: published.ScalarRelease,
    Shape.HISTOGRAM: published.HistogramRelease,
    Shape.FLAGS: published.FlagsRelease,
    Shape.RANKS: published.RanksRelease,
    Shape.WINDOWS: published.WindowsRelease,
}
RELEASE: TypeAdapter[Any] = TypeAdapter(published.Release)

Client = httpx.AsyncClient
MakeRelease = Callable[..., Release]


@pytest.fixture
async def whole(view: PublicView, release: MakeRelease) -> AsyncIterator[Client]:
    log = view.log
    log.append(release(6, "late", 7, fired=["UA"], band=12))
    log.append(release(7, "late", 8, fired=[], band=12, not_private=True))
    odd = b'{ "series":"odd", "tick":9,"sequence":8, "v":1.0e0,"value":-0}'
    log.append(Release(8, "odd", 9, odd))
    async with connected(replace(view, live_series=FakeLiveSeries(), token=TOKEN)) as made:
        made.headers["Authorization"] = f"Bearer {TOKEN}"
        yield made


@pytest.mark.parametrize(
    ("request_line", "model"),
    [
        ("GET /healthz", answer.Health),
        ("GET /api/pipeline", configured.Pipeline),
        ("GET /api/plan", configured.Plan),
        ("GET /api/budget", configured.Budget),
        ("GET /api/series/total", published.SeriesReleases),
        ("GET /api/series/by_key", published.SeriesReleases),
        ("GET /api/series/silent", published.SeriesReleases),
        ("GET /api/queries", asked.QueryList),
        ("POST /api/queries/preview", asked.Preview),
        ("POST /api/queries", asked.Created),
        ("DELETE /api/queries/total", asked.Halted),
        ("GET /api/series/total?from=x", answer.Refusal),
        ("DELETE /api/queries/nobodys", answer.Refusal),
        ("POST /api/queries?analyst=X", answer.Refusal),
    ],
)
async def test_real_answers_are_of_their_form(
    whole: Client, request_line: str, model: type[answer.Answer]
) -> None:
    method, path = request_line.split()
    content = json.dumps(LATE) if method == "POST" else None
    said = await whole.request(
        method, path, content=content, headers={"Content-Type": "application/json"}
    )
    assert (model is answer.Refusal) == (said.status_code >= 400)
    found = model.model_validate_json(said.content)
    assert json.loads(found.model_dump_json(exclude_unset=True)) == said.json()


async def test_releases_leave_byte_for_byte(whole: Client, view: PublicView) -> None:
    """Also those with bytes that no encoder of ours would choose."""
    raw = {"series": msgspec.Raw, "releases": list[msgspec.Raw]}
    several = msgspec.defstruct("Several", raw.items())
    newest = msgspec.defstruct("Newest", [("name", str), ("latest", msgspec.Raw)])
    every = msgspec.defstruct("Every", [("sequence", int), ("series", list[newest])])  # type: ignore[valid-type]
    for name in view.log.names():
        said: Any = msgspec.json.decode(
            (await whole.get(f"/api/series/{name}")).content, type=several
        )
        bodies = [release.body for release in view.log.series_between(name, 0, 2**63)]
        assert [bytes(body) for body in said.releases] == bodies
    found: Any = msgspec.json.decode((await whole.get("/api/series")).content, type=every)
    latest = {name: release.body for name, release in view.log.latest().items()}
    assert {e.name: bytes(e.latest) for e in found.series if e.name != "silent"} == latest
    assert b'{ "series":"odd"' in latest["odd"]


async def test_stream_events_are_of_their_form(view: PublicView, release: MakeRelease) -> None:
    log = ReleaseLog(keep=2)
    for sequence in range(4):
        log.append(release(sequence))
    log.append(release(4, "late", fired=["UA"], band=12))
    events = Broadcast(replace(view, log=log)).events(-1)
    wire = b"".join([await anext(events) for _ in range(3)]).decode()
    found = [
        published.StreamEvent.model_validate(_parsed(block)) for block in wire.split("\n\n")[:-1]
    ]
    assert [event.event for event in found] == ["head", "gap", *["message"] * 3]
    assert [event.id for event in found] == [None, None, 2, 3, 4]
    assert isinstance(found[-1].data, published.FlagsRelease)


def _parsed(block: str) -> dict[str, Any]:
    lines = dict(line.split(": ", 1) for line in block.split("\n"))
    return {"event": "message", **lines, "data": json.loads(lines["data"])}


@pytest.mark.parametrize("more", FILTERS, ids=lambda more: str(more.get("filter", list(more))))
def test_what_the_product_says_is_of_its_form(more: dict[str, Any]) -> None:
    check(PipelineSpec.model_validate({**FLIGHTS, "privacy": {**PRIVACY, **more}}))


def check(spec: PipelineSpec) -> None:
    built = build(spec)
    prices = [(chosen.spec.name, chosen.spec.epsilon) for chosen in built.chosen]
    said: dict[type[answer.Answer], dict[str, Any]] = {
        configured.Pipeline: pipeline_json(built, built.spec.series),
        configured.Plan: plan_json(built),
        configured.Budget: api_budget(spec, built.subledgers(), prices),
    }
    for model, told in said.items():
        sent = model.model_validate(told).model_dump_json(exclude_unset=True)
        assert json.loads(sent) == json.loads(json.dumps(told))


def test_the_worlds_of_these_tests_are_of_their_form() -> None:
    configured.Pipeline.model_validate(world.pipeline("flights", world.series("total")))
    configured.Plan.model_validate(world.plan())
    configured.Budget.model_validate(world.budget())


@pytest.mark.parametrize("shape", Shape)
@pytest.mark.parametrize("private", [True, False])
def test_what_the_engine_writes_is_a_release_of_its_shape(shape: Shape, private: bool) -> None:
    """The writer and reader of releases and their model name the same fields."""
    entries = np.array([-3] if shape is Shape.SCALAR else [0, 1])
    if shape is Shape.WINDOWS:
        both = part(("",), entries[1:], 3), part(("AA", "UA"), entries, 4)
        shown: dict[str, Any] = {"windows": dict(zip(("tick", "1h"), both, strict=True))}
    elif shape is Shape.RANKS:
        first = Rank(name="AA", value=3, tied=("UA",), more=2)
        shown = {"ranks": (first, Rank(name="UA", value=0, tied=())), "band": 2}
    else:
        shown = {**content(shape, ("AA", "UA")[: len(entries)], entries), "band": 2}
    body = write(
        Released(
            v=1, sequence=4, series="s", tick=3, end=TickGrid(0, 500, None).end_text(3),
            confidence=0.95, not_private=not private, **shown,
        )
    )  # fmt: skip
    found = RELEASE.validate_json(body)
    assert type(found) is SHAPES[shape]
    assert json.loads(found.model_dump_json(exclude_unset=True)) == json.loads(body)


async def test_a_key_that_is_not_documented_does_not_leave(view: PublicView) -> None:
    """Law 1 in the types: an answer with one more key is a bug, and is not sent."""
    leaky = replace(view, budget=lambda: {**world.budget(), "events": 4711})
    async with connected(leaky, raises=False) as client:
        said = await client.get("/api/budget")
    assert said.status_code == 500
    assert answer.Refusal.model_validate_json(said.content).exit_code == 1
    assert "4711" not in said.text


DOCS = Path(__file__).resolve().parents[3] / "docs"
PLACES = ("", "{name}", "ask/{name}", "cards/{name}", "docs", "docs/{name}", "api/openapi.json")
FILES = {f"GET /{name}" for name in PLACES}
WRITES = [
    "POST /api/queries", "POST /api/queries/preview", "DELETE /api/queries/{name}", "POST /api/messages",
    "POST /api/series/{name}/ask",
]  # fmt: skip


def application(live_series: FakeLiveSeries | None = None) -> FastAPI:
    view = PublicView(dict, dict, dict, ReleaseLog(), live_series, TOKEN)
    return create_app(view, frozenset({"localhost"}))


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    return document(application(FakeLiveSeries()))


def operations(said: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in said["paths"].items()
        for method, operation in methods.items()
    }


def references(part: Any) -> Iterator[str]:
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
    for step in reference.removeprefix("#/").split("/"):
        found = found[step]
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
        for status, told in operation["responses"].items():
            whole = pointed(said, told["$ref"]) if "$ref" in told else told
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


def test_only_what_writes_needs_the_token(said: dict[str, Any]) -> None:
    guarded = [line for line, operation in operations(said).items() if "security" in operation]
    of_the_holder = ["GET /api/me", "GET /api/queries/{name}/halt"]
    assert sorted(guarded) == sorted([*WRITES, *of_the_holder])
    scheme = said["components"]["securitySchemes"]["token"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")


async def test_it_is_served_and_names_no_other_host(said: dict[str, Any]) -> None:
    async with connected(application(FakeLiveSeries())) as client:
        answers = [await client.get("/api/openapi.json") for _ in range(2)]
    assert [answer.json() for answer in answers] == [said, said]
    assert answers[0].headers["content-type"] == "application/json"
    assert "://" not in answers[0].text


ERRORS = [*(error for error, _ in mapping_errors()), UnknownMechanism("no such"), ValueError("x")]


@pytest.mark.parametrize("line", WRITES)
async def test_every_refusal_that_is_given_is_described(said: dict[str, Any], line: str) -> None:
    live_series = FakeLiveSeries()
    described = operations(said)[line]["responses"]
    right = {"Authorization": f"Bearer {TOKEN}"}
    asks: list[dict[str, Any]] = [
        {"json": LATE, "headers": right},
        {"json": LATE},
        {"json": LATE, "headers": {**right, "Host": "evil.example"}},
        {"json": LATE, "headers": {**right, "Origin": "http://evil.example"}},
        {"content": b"x" * 70_000, "headers": {**right, "Content-Type": "application/json"}},
        {"content": b"{}", "headers": {**right, "Content-Type": "text/plain"}},
        {"json": LATE, "headers": right, "params": {"analyst": "X"}},
    ]
    not_here = UnknownMechanism if line.startswith("POST") else BudgetRefused
    method, path = line.split()
    async with connected(application(live_series)) as client:
        for error in ERRORS:
            if isinstance(error, not_here):  # a halt costs nothing, and only a halt names what runs
                continue
            live_series.error = error
            for ask in asks if error is ERRORS[0] else asks[:1]:
                answer = await client.request(method, path.replace("{name}", "late"), **ask)
                assert str(answer.status_code) in described, (error, ask)
                assert set(answer.json()) == {"detail", "exit_code"}


def test_the_committed_copy_is_up_to_date() -> None:
    script = runpy.run_path(str(DOCS / "openapi.py"))
    assert (DOCS / "openapi.json").read_text() == script["text"](), "run: python docs/openapi.py"
