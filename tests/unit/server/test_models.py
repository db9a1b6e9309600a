"""The models are true: real answers of whole worlds are of their form, what the product says of real pipelines is
too, and a release leaves as the bytes that were published."""

import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from unit.server import public_world as world
from unit.server.fake_live_series import FakeLiveSeries

from stream_dp.core.time import TickGrid
from stream_dp.journal.commit import Release
from stream_dp.journal.release import Rank, Released, Shape, content, part, write
from stream_dp.operate.budget_view import api_budget
from stream_dp.operate.demo import flights_folder
from stream_dp.operate.observe.public_view import pipeline_json
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.report import plan_json
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load
from stream_dp.server.api import create_app
from stream_dp.server.broadcast import Broadcast
from stream_dp.server.models import answer, asked, configured, published
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
    {**DELTA, "filter": "gdp"},
    {**DELTA, "filter": "tight_approximate"},
    {**DELTA, "filter": "zcdp"},
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
    """A client with the token of a server with releases of all shapes, and some whose bytes nobody would write."""
    log = view.log
    log.append(release(6, "late", 7, fired=["UA"], band=12))
    log.append(release(7, "late", 8, fired=[], band=12, not_private=True))
    odd = b'{ "series":"odd", "tick":9,"sequence":8, "v":1.0e0,"value":-0}'
    log.append(Release(8, "odd", 9, odd))
    app = create_app(
        replace(view, live_series=FakeLiveSeries(), token=TOKEN), frozenset({"localhost"})
    )
    transport = httpx.ASGITransport(app)
    async with Client(transport=transport, base_url="http://localhost:8765") as made:
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
        ("GET /api/series/late", published.SeriesReleases),
        ("GET /api/series/silent", published.SeriesReleases),
        ("GET /api/queries", asked.QueryList),
        ("POST /api/queries/preview", asked.Preview),
        ("POST /api/queries", asked.Created),
        ("DELETE /api/queries/total", asked.Halted),
        ("GET /api/series/nobodys", answer.Refusal),
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


async def test_the_list_of_newest_releases_is_of_its_form(client: Client) -> None:
    said = await client.get("/api/series")
    found = published.SeriesList.model_validate_json(said.content)
    assert [entry.latest is None for entry in found.series] == [False, True, False]


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


async def test_every_event_of_a_stream_is_of_its_form(
    view: PublicView, release: MakeRelease
) -> None:
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
    """One event as a browser reads it."""
    lines = dict(line.split(": ", 1) for line in block.split("\n"))
    return {"event": "message", **lines, "data": json.loads(lines["data"])}


@pytest.mark.parametrize("more", FILTERS, ids=lambda more: str(more.get("filter", list(more))))
def test_what_the_product_says_is_of_its_form(more: dict[str, Any]) -> None:
    check(PipelineSpec.model_validate({**FLIGHTS, "privacy": {**PRIVACY, **more}}))


def test_what_the_product_says_of_the_example_is_of_its_form() -> None:
    check(load(flights_folder() / "pipeline.yaml"))


def check(spec: PipelineSpec) -> None:
    """Its public answers are of their form, and not one key is lost on the way."""
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


def test_the_models_of_releases_have_the_fields_that_are_written() -> None:
    quotients: list[type[answer.Answer]] = [published.RatioRelease, published.RatiosRelease]
    fields = set().union(*(model.model_fields for model in [*SHAPES.values(), *quotients]))
    assert fields == set(Released.__struct_fields__)


@pytest.mark.parametrize("shape", published.EXAMPLES)
def test_the_examples_are_releases_of_their_shape(shape: str) -> None:
    found = RELEASE.validate_python(published.EXAMPLES[shape])
    assert type(found).__name__.lower() == f"{shape}release"


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"values": {"UA": True}}, "values"),
        ({"value": "1.5"}, "value"),
        ({"value": 1, "offset": 4711}, "offset"),
        ({"fired": {"UA": True}}, "fired"),
    ],
    ids=str,
)
def test_what_is_no_release_is_found(change: dict[str, Any], key: str) -> None:
    scalar = {k: v for k, v in published.EXAMPLES["scalar"].items() if k != "value"}
    with pytest.raises(ValidationError, match=key):
        RELEASE.validate_python(scalar | change)


async def test_a_key_that_is_not_documented_does_not_leave(view: PublicView) -> None:
    """Law 1 in the types: an answer with one more key is a bug, and is not sent."""
    leaky = replace(view, budget=lambda: {**world.budget(), "events": 4711})
    transport = httpx.ASGITransport(
        create_app(leaky, frozenset({"localhost"})), raise_app_exceptions=False
    )
    async with Client(transport=transport, base_url="http://localhost:8765") as client:
        said = await client.get("/api/budget")
    assert said.status_code == 500
    assert answer.Refusal.model_validate_json(said.content).exit_code == 1
    assert "4711" not in said.text


def test_an_error_of_a_model_does_not_repeat_values() -> None:
    with pytest.raises(ValidationError) as raised:
        configured.Budget.model_validate({**world.budget(), "events": 471104})
    assert re.search("471104", str(raised.value)) is None
