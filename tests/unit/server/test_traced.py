"""Requests as spans: by their route, with nothing that a client says; and nothing of them in anybody else's traces."""

from typing import Any

import httpx
import pytest
from opentelemetry import trace
from starlette.types import ASGIApp
from told_spans import ToldSpans
from unit.server.conftest import connected, listening

from stream_dp.server import api
from stream_dp.server.api import Traced, create_app
from stream_dp.server.view import PublicView

CANARY = "s3cr3t"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ASKED = [
    ("GET", "/healthz", "GET /healthz", 200),
    ("GET", "/api/series/total?from=1&to=2", "GET /api/series/{name}", 200),
    ("GET", f"/api/series/{CANARY}?from={CANARY}", "GET /api/series/{name}", 422),
    ("GET", f"/{CANARY}", "GET /{name}", 404),
    ("HEAD", f"/api/{CANARY}/", "HEAD", 404),
    (CANARY.upper(), "/healthz", "_OTHER /healthz", 405),
]


async def asked(app: ASGIApp) -> None:
    """Ask it all, as a client that puts a secret wherever it can."""
    headers = {"traceparent": PARENT, "baggage": f"a={CANARY}", "user-agent": CANARY}
    async with connected(app, raises=False) as client:
        client.headers.update(headers)
        for method, path, _, status in ASKED:
            answer = await client.request(method, path)
            assert answer.status_code == status, (method, path)


async def test_a_request_is_told_by_its_route(view: PublicView) -> None:
    told = ToldSpans()
    await asked(Traced(create_app(view, frozenset({"localhost"})), told.traces))
    for span, (_, _, name, status) in zip(told.ended, ASKED, strict=True):
        method, _, route = name.partition(" ")
        said: dict[str, Any] = {"http.request.method": method, "stream_dp.outcome": "done"}
        said |= {"http.response.status_code": status} | ({"http.route": route} if route else {})
        assert (span.name, dict(span.attributes or {})) == (name, said)
        assert span.parent is None  # the client's own trace is not taken up
        assert CANARY not in span.to_json().lower()


async def test_a_page_tells_who_asked_for_it(view: PublicView) -> None:
    told = ToldSpans()
    async with (
        listening(view, spans=told.traces) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=100) as client,
    ):
        await client.get("/healthz")
    assert [span.name for span in told.ended] == ["GET /healthz"]


@pytest.fixture
def around(monkeypatch: pytest.MonkeyPatch) -> ToldSpans:
    told = ToldSpans()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: told.provider)
    return told


async def test_the_program_around_is_told_nothing(view: PublicView, around: ToldSpans) -> None:
    await asked(create_app(view, frozenset({"localhost"})))
    assert around.ended == ()


async def test_a_page_that_lets_fastapi_tell_is_caught(
    view: PublicView, around: ToldSpans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "SILENT", None)
    await asked(create_app(view, frozenset({"localhost"})))
    assert any(CANARY in span.to_json() for span in around.ended)
