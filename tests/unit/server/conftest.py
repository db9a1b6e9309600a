"""A small public view and a client that talks to it without a socket."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from unit.server import public_world as world

from stream_dp.journal.commit import Release
from stream_dp.journal.release import release_of
from stream_dp.server.api import create_app
from stream_dp.server.view import PublicView, ReleaseLog

MakeRelease = Callable[..., Release]


def _release(sequence: int, series: str = "total", tick: int | None = None, **more: Any) -> Release:
    content = more or {"value": 10 * sequence, "band": 37}
    body = {
        "v": 1,
        "sequence": sequence,
        "series": series,
        "tick": sequence if tick is None else tick,
    }
    whole = {**body, "end": "2013-01-18T06:00:00Z", **content, "confidence": 0.95}
    return release_of(json.dumps(whole).encode())


@pytest.fixture
def release() -> MakeRelease:
    """Make a release, as its bytes are read; its tick is its sequence unless given."""
    return _release


@pytest.fixture
def log() -> ReleaseLog:
    """A log with five releases of `total` and one of `by_key`."""
    made = ReleaseLog()
    for sequence in range(5):
        made.append(_release(sequence))
    made.append(_release(5, "by_key", 4, values={"ATL": 1203}, band=37))
    return made


@pytest.fixture
def view(log: ReleaseLog) -> PublicView:
    """A view of that log."""
    entries = [world.series(name) for name in ("total", "by_key", "silent")]
    return PublicView(lambda: world.pipeline("flights", *entries), world.plan, world.budget, log)


@pytest.fixture
async def client(view: PublicView) -> AsyncIterator[httpx.AsyncClient]:
    """A client that calls the server `localhost`."""
    transport = httpx.ASGITransport(create_app(view, frozenset({"localhost"})))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8765") as made:
        yield made
