"""A small public view and a client that talks to it without a socket."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp
from unit.server import public_world as world
from unit.server.fake_live_series import FakeLiveSeries

from stream_dp.journal.commit import Release
from stream_dp.journal.release import release_of
from stream_dp.server.api import create_app
from stream_dp.server.server import PageServer
from stream_dp.server.view import PublicView, ReleaseLog

MakeRelease = Callable[..., Release]


def _release(sequence: int, series: str = "total", tick: int | None = None, **more: Any) -> Release:
    content = more or {"value": 10 * sequence, "band": 37}
    at = sequence if tick is None else tick
    body = {"v": 1, "sequence": sequence, "series": series, "tick": at}
    whole = {**body, "end": "2013-01-18T06:00:00Z", **content, "confidence": 0.95}
    return release_of(json.dumps(whole).encode())


@pytest.fixture
def release() -> MakeRelease:
    """Make a release, as its bytes are read; its tick is its sequence unless given."""
    return _release


@pytest.fixture
def log() -> ReleaseLog:
    made = ReleaseLog()
    for sequence in range(5):
        made.append(_release(sequence))
    made.append(_release(5, "by_key", 4, values={"ATL": 1203}, band=37))
    return made


@pytest.fixture
def view(log: ReleaseLog) -> PublicView:
    entries = [world.series(name) for name in ("total", "by_key", "silent")]
    return PublicView(lambda: world.pipeline("flights", *entries), world.plan, world.budget, log)


def connected(view: PublicView | ASGIApp, *, raises: bool = True) -> httpx.AsyncClient:
    """A client that calls the server of a view, or an application, `localhost`; with `raises`, bugs reach the test."""
    app = create_app(view, frozenset({"localhost"})) if isinstance(view, PublicView) else view
    transport = httpx.ASGITransport(app, raise_app_exceptions=raises)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost:8765")


@asynccontextmanager
async def listening(view: PublicView, **more: Any) -> AsyncIterator[int]:
    server = PageServer(view, **more)
    await server.start(port=0)
    try:
        yield port_of(server)
    finally:
        await server.stop()


def port_of(server: PageServer) -> int:
    return int(server.url.rstrip("/").rpartition(":")[2])


@pytest.fixture
async def client(view: PublicView) -> AsyncIterator[httpx.AsyncClient]:
    async with connected(view) as made:
        yield made


@pytest.fixture
def live_series() -> FakeLiveSeries:
    return FakeLiveSeries()
