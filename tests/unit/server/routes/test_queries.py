"""The API for queries: who may write, what is refused and how, and that nothing else comes out."""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from unit.server import public_world as world
from unit.server.fake_live_series import SECRET_COUNT, TIME, FakeLiveSeries, mapping_errors

from stream_dp.errors import RejectedMessage, StreamDPError, TaintError
from stream_dp.server.api import create_app
from stream_dp.server.live_series import LARGEST_DEFINITION
from stream_dp.server.view import PublicView

TOKEN = "a1" * 32
RIGHT = {"Authorization": f"Bearer {TOKEN}"}
JSON = {"Content-Type": "application/json"}
LATE = {"name": "late", "statistic": "count", "epsilon": "0.1"}
SECRET = "s3cr3t-" + "value"

Client = httpx.AsyncClient

CREATED = (
    "name", "start", "start_time", "epsilon", "rule", "left", "error", "error_tick", "confidence",
)  # fmt: skip
HALTED = ("name", "end", "end_time", "left")
PREVIEWED = (
    "fits", "asked", "spent", "unit", "left", "largest", "error", "error_tick", "confidence", "error_unit",
    "derivation",
)  # fmt: skip
QUERY = (
    "name", "statistic", "analyst", "epsilon", "start", "start_time", "end", "end_time", "created",
)  # fmt: skip


@pytest.fixture
def live_series() -> FakeLiveSeries:
    """A live_series."""
    return FakeLiveSeries()


def connected(view: PublicView) -> Client:
    """A client of this view."""
    app = create_app(view, frozenset({"localhost"}))
    return Client(transport=httpx.ASGITransport(app), base_url="http://localhost:8765")


@pytest.fixture
async def open_live_series(view: PublicView, live_series: FakeLiveSeries) -> AsyncIterator[Client]:
    """A client of a server with a live_series, with the right token."""
    async with connected(replace(view, live_series=live_series, token=TOKEN)) as client:
        client.headers.update(RIGHT)
        yield client


async def test_a_series_is_created_listed_and_halted(
    open_live_series: Client, live_series: FakeLiveSeries
) -> None:
    body = json.dumps(LATE).encode()
    created = await open_live_series.post("/api/queries?analyst=ann", content=body, headers=JSON)
    assert created.status_code == 201
    assert created.json() == {
        "name": "late",
        "start": 17,
        "start_time": TIME,
        "epsilon": "0.1",
        "rule": "parallel over time",
        "left": "0.4",
        "error": 17,
        "error_tick": 99,
        "confidence": 0.95,
    }
    assert live_series.asked == [("create", body, "ann")]

    listed = (await open_live_series.get("/api/queries")).json()["queries"]
    assert [(q["name"], q["analyst"], q["created"]) for q in listed] == [
        ("total", "", False),
        ("late", "ann", True),
    ]
    assert (listed[1]["start"], listed[1]["end"]) == (17, None)

    live_series.now = 40
    halted = await open_live_series.delete("/api/queries/late")
    ended = {"end": 40, "end_time": TIME}
    assert (halted.status_code, halted.json()) == (200, {"name": "late", **ended, "left": "0.5"})
    assert (await open_live_series.get("/api/queries")).json()["queries"][
        1
    ].items() >= ended.items()


async def test_a_preview_says_what_it_would_cost_and_changes_nothing(
    open_live_series: Client, live_series: FakeLiveSeries
) -> None:
    before = json.dumps(live_series.series)
    answer = await open_live_series.post("/api/queries/preview", json={**LATE, "epsilon": "0.7"})
    assert answer.status_code == 200
    assert tuple(answer.json()) == PREVIEWED
    assert answer.json()["fits"] is False
    assert answer.json()["largest"] == "0.5"
    assert json.dumps(live_series.series) == before


async def test_only_the_documented_keys_leave(open_live_series: Client) -> None:
    answers = [
        await open_live_series.post("/api/queries/preview", json=LATE),
        await open_live_series.post("/api/queries", json=LATE),
        await open_live_series.delete("/api/queries/late"),
        await open_live_series.get("/api/queries"),
    ]
    for answer, keys in zip(answers[:3], (PREVIEWED, CREATED, HALTED), strict=True):
        assert set(answer.json()) == set(keys)
    assert all(set(query) == set(QUERY) for query in answers[3].json()["queries"])
    assert not any(str(SECRET_COUNT) in answer.text for answer in answers)


async def test_the_list_is_public(view: PublicView, live_series: FakeLiveSeries) -> None:
    async with connected(replace(view, live_series=live_series, token=TOKEN)) as client:
        assert (await client.get("/api/queries")).json()["queries"][0]["name"] == "total"


@pytest.mark.parametrize(
    "change",
    [{}, {"token": TOKEN}, {"live_series": FakeLiveSeries()}],
    ids=["neither", "no live series", "no token"],
)
async def test_without_live_series_or_a_token_nothing_can_be_written(
    view: PublicView, change: dict[str, Any]
) -> None:
    async with connected(replace(view, **change)) as client:
        for authorization in (f"Bearer {TOKEN}", "Bearer "):
            client.headers["Authorization"] = authorization
            assert (await client.post("/api/queries", json=LATE)).status_code == 405
            assert (await client.post("/api/queries/preview", json=LATE)).status_code in {404, 405}
            assert (await client.delete("/api/queries/total")).status_code in {404, 405}
        assert (await client.get("/api/queries")).status_code == 200
    assert not getattr(change.get("live_series"), "asked", [])


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("Authorization", TOKEN)],
        [("Authorization", "Bearer ")],
        [("Authorization", f"Basic {TOKEN}")],
        [("Authorization", f"Bearer {TOKEN[:-1]}")],
        [("Authorization", f"Bearer {TOKEN}0")],
        [("Authorization", f"Bearer {TOKEN.upper()}")],
        [("Authorization", "Bearer \u00e9".encode("latin-1"))],
        [("Authorization", f"Bearer {TOKEN}"), ("Authorization", f"Bearer {TOKEN}")],
        [("Cookie", f"token={TOKEN}")],
    ],
    ids=["none", "bare", "empty", "basic", "short", "long", "case", "latin", "two", "cookie"],
)
async def test_only_the_token_opens_it(
    view: PublicView, live_series: FakeLiveSeries, headers: list[tuple[str, str]]
) -> None:
    async with connected(replace(view, live_series=live_series, token=TOKEN)) as client:
        for method, path in (
            ("POST", "/api/queries"),
            ("POST", "/api/queries/preview"),
            ("DELETE", "/api/queries/total"),
        ):
            answer = await client.request(method, path, headers=headers, content=b"{}")
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.json()["exit_code"] == 2
            assert TOKEN not in answer.text + str(answer.headers)
    assert live_series.asked == []


async def test_the_token_is_not_shown_by_repr(
    view: PublicView, live_series: FakeLiveSeries
) -> None:
    assert TOKEN not in repr(replace(view, live_series=live_series, token=TOKEN))


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", None])
async def test_a_form_cannot_ask(
    open_live_series: Client, live_series: FakeLiveSeries, kind: str | None
) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    answer = await open_live_series.post("/api/queries", content=json.dumps(LATE), headers=headers)
    assert (answer.status_code, answer.json()["exit_code"]) == (415, 2)
    assert live_series.asked == []


async def test_a_charset_is_no_other_type(open_live_series: Client) -> None:
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    content = json.dumps(LATE)
    assert (
        await open_live_series.post("/api/queries", content=content, headers=headers)
    ).status_code == 201


async def test_a_large_body_is_refused_while_it_comes(
    open_live_series: Client, live_series: FakeLiveSeries
) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 100 * LARGEST_DEFINITION:
            sent += 4096
            yield b"x" * 4096

    answer = await open_live_series.post("/api/queries", content=endless(), headers=JSON)
    assert (answer.status_code, answer.json()["exit_code"]) == (413, 2)
    assert live_series.asked == []

    full = await open_live_series.post(
        "/api/queries", content=b"x" * LARGEST_DEFINITION, headers=JSON
    )
    assert full.status_code == 422
    assert len(live_series.asked[0][1]) == LARGEST_DEFINITION


@pytest.mark.parametrize(("error", "status"), mapping_errors(), ids=lambda e: type(e).__name__)
async def test_errors_of_the_live_series(
    open_live_series: Client, live_series: FakeLiveSeries, error: StreamDPError, status: int
) -> None:
    live_series.error = error
    for answer in (
        await open_live_series.post("/api/queries", json=LATE),
        await open_live_series.post("/api/queries/preview", json=LATE),
        await open_live_series.delete("/api/queries/total"),
    ):
        assert answer.status_code == status
        assert answer.json() == {"detail": str(error), "exit_code": error.exit_code}
    assert len(live_series.series) == 1
    assert live_series.series[0]["end"] is None


@pytest.mark.parametrize(
    "error",
    [
        RejectedMessage(SECRET),
        TaintError(SECRET),
        StreamDPError(SECRET),
        ValueError(SECRET),
        KeyError(SECRET),
    ],
    ids=lambda e: type(e).__name__,
)
async def test_a_bug_says_nothing_of_what_it_held(
    open_live_series: Client,
    live_series: FakeLiveSeries,
    error: Exception,
    capfd: pytest.CaptureFixture[str],
) -> None:
    live_series.error = error
    answer = await open_live_series.post("/api/queries", json=LATE)
    assert (answer.status_code, answer.json()["exit_code"]) == (500, 1)
    assert SECRET not in answer.text + "".join(capfd.readouterr())


async def test_an_unknown_name_is_not_repeated(open_live_series: Client) -> None:
    answer = await open_live_series.delete(f"/api/queries/{SECRET}")
    assert (answer.status_code, answer.json()["exit_code"]) == (404, 2)
    assert SECRET not in answer.text


@pytest.mark.parametrize(
    "body",
    [
        SECRET.encode(),
        b"\xff\xfe",
        b"[]",
        b"null",
        b'{"name":"%s"}' % SECRET.encode(),
        b'{"name":"total","epsilon":"0.1"}',
    ],
)
async def test_a_bad_definition_is_not_repeated(
    open_live_series: Client, live_series: FakeLiveSeries, body: bytes
) -> None:
    answer = await open_live_series.post("/api/queries", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["exit_code"]) == (422, 2)
    assert SECRET not in answer.text
    assert "name" in answer.text
    assert len(live_series.series) == 1


@pytest.mark.parametrize("analyst", [SECRET.upper(), "-a", "a/b", "a b", "x" * 64, "\n"])
async def test_a_bad_analyst_is_named_by_its_key(
    open_live_series: Client, live_series: FakeLiveSeries, analyst: str
) -> None:
    answer = await open_live_series.post("/api/queries", params={"analyst": analyst}, json=LATE)
    assert answer.status_code == 422
    text = "analyst: must be lower-case letters, digits, dots, _ or -, at most 63 of them"
    assert answer.json() == {"detail": text, "exit_code": 2}
    assert live_series.asked == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "http://localhost:9999"},
        {"Origin": "null"},
        {"Origin": "http://localhost"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "https://evil.example"},
    ],
    ids=str,
)
async def test_another_origin_may_read_and_not_write(
    open_live_series: Client, live_series: FakeLiveSeries, headers: dict[str, str]
) -> None:
    for method, path in (("POST", "/api/queries"), ("DELETE", "/api/queries/total")):
        answer = await open_live_series.request(method, path, json=LATE, headers=headers)
        assert answer.status_code == 403
        assert "evil" not in answer.text + str(answer.headers)
        assert "access-control-allow-origin" not in answer.headers
    assert live_series.asked == []
    assert (await open_live_series.get("/api/queries", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://localhost:8765", "Sec-Fetch-Site": "same-origin"},
        {"Origin": "https://LOCALHOST:8765"},
        {"Sec-Fetch-Site": "none"},
    ],
    ids=str,
)
async def test_our_own_pages_and_tools_may_write(
    open_live_series: Client, headers: dict[str, str]
) -> None:
    assert (
        await open_live_series.post("/api/queries", json=LATE, headers=headers)
    ).status_code == 201


async def test_a_new_series_is_known_at_once(
    view: PublicView, live_series: FakeLiveSeries, release: Callable[..., bytes]
) -> None:
    series = [world.series("total")]
    shown = replace(view, pipeline=lambda: world.pipeline("flights", *series))
    async with connected(replace(shown, live_series=live_series, token=TOKEN)) as client:
        assert (await client.get("/api/series/late")).status_code == 404
        series.append(world.series("late"))
        assert (await client.get("/api/series/late")).json() == {"series": "late", "releases": []}
        listed = (await client.get("/api/series")).json()["series"]
        assert {"name": "late", "latest": None} in listed
        assert world.series("late") in (await client.get("/api/pipeline")).json()["series"]
