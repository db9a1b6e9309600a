"""The HTTP contract: exact bytes, no echo of what was sent, only our hosts, nothing cached."""

from dataclasses import replace
from importlib.resources import files
from typing import Any

import httpx
import pytest
from unit.server.conftest import connected

from stream_dp.server.view import Behind, PublicView

SECRET = "s3cr3t-" + "x" * 20


@pytest.mark.parametrize("name", ["pipeline", "plan", "budget"])
async def test_configuration_is_served(
    client: httpx.AsyncClient, view: PublicView, name: str
) -> None:
    answer = await client.get(f"/api/{name}")
    assert answer.json() == getattr(view, name)()
    assert answer.headers["cache-control"] == "no-store"


async def test_health_is_coarse(client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz")).content == b'{"status":"ok"}'


@pytest.mark.parametrize("left", [None, 90])
async def test_health_says_how_late_public_ticks_are(view: PublicView, left: int | None) -> None:
    late = replace(view, behind=lambda: Behind(7200, left), catching_up=lambda: True)
    wanted: dict[str, Any] = {"status": "catching up", "behind": 7200}
    async with connected(late) as client:
        answer = (await client.get("/healthz")).json()
    assert answer == (wanted if left is None else {**wanted, "caught_up_in": left})


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"/api/series/{SECRET}", 404),
        (f"/{SECRET}", 404),
        (f"/api/plan/?{SECRET}", 404),
        (f"/api/series/total?from={SECRET}", 422),
        (f"/api/series/total?from=-1&to={SECRET}", 422),
        (f"/api/series/total?to={10**30}", 422),
        (f"/api/series/total?version={SECRET}", 422),
        (f"/api/stream?after={SECRET}", 422),
        (f"/docs/{SECRET}", 404),
        ("/redoc", 404),
        ("/openapi.json", 404),
        ("/..%2f..%2fpyproject.toml", 404),
    ],
)
async def test_refusals_do_not_echo(client: httpx.AsyncClient, path: str, status: int) -> None:
    answer = await client.get(path)
    assert answer.status_code == status
    everything = answer.text + str(answer.headers)
    assert SECRET not in everything
    assert str(10**30) not in everything
    stream = await client.get("/api/stream", headers={"Last-Event-ID": SECRET})
    assert (stream.status_code, SECRET in stream.text) == (422, False)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8765", "localhost.evil.example", "", "localhost:x", "[::1]"],
)
async def test_other_hosts_get_nothing(client: httpx.AsyncClient, host: str) -> None:
    answer = await client.get("/api/series", headers={"Host": host})
    assert answer.status_code == 421
    assert "evil" not in answer.text
    assert "releases" not in answer.text


async def test_two_host_headers_get_nothing(client: httpx.AsyncClient) -> None:
    headers = [("Host", "localhost"), ("Host", "evil.example")]
    assert (await client.get("/healthz", headers=headers)).status_code == 421


async def test_the_page_is_whole_and_loads_nothing_from_elsewhere(
    client: httpx.AsyncClient,
) -> None:
    index = await client.get("/")
    assert index.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in index.headers["content-security-policy"]
    assert "http" not in index.text.replace("http-equiv", "")
    page = files("stream_dp.server") / "page"
    folders = {"": page, "ask/": page / "ask", "cards/": page / "cards"}
    every = [f"{at}{file.name}" for at, folder in folders.items() for file in folder.iterdir()]
    scripts = [name for name in every if name.endswith(".js")]
    assert {"app.js", "cards/kinds.js", "ask/main.js", "uplot.min.js"} <= set(scripts)
    for name in scripts:
        answer = await client.get(f"/{name}")
        assert answer.headers["content-type"].startswith("text/javascript"), name
        assert answer.headers["x-content-type-options"] == "nosniff"
    for name in ("style.css", "uplot.css", "icon.svg", "uplot.LICENSE.txt"):
        assert (await client.get(f"/{name}")).status_code == 200, name
