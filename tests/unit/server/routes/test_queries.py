"""The API for queries: who may write, what is refused and how, and that nothing else comes out."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from unit.server.conftest import connected
from unit.server.fake_live_series import SECRET_COUNT, TIME, WRITES, FakeLiveSeries, mapping_errors

from stream_dp.errors import StreamDPError
from stream_dp.server.view import LARGEST_DEFINITION, PublicView

TOKEN, ANNS = "a1" * 32, "b2" * 32
RIGHT = {"Authorization": f"Bearer {TOKEN}"}
JSON = {"Content-Type": "application/json"}
LATE = {"name": "late", "statistic": "count", "epsilon": "0.1"}
SECRET = "s3cr3t-" + "value"

Client = httpx.AsyncClient

KEYS = {
    "preview": "fits asked spent unit left largest error error_tick confidence error_unit derivation",
    "create": "name start start_time epsilon rule left error error_tick confidence",
    "halt": "name end end_time records freed largest left",
    "would": "name end end_time records freed largest freed_everywhere left budget",
    "query": "name statistic analyst epsilon start start_time end end_time created",
}


@pytest.fixture
async def open_live_series(view: PublicView, live_series: FakeLiveSeries) -> AsyncIterator[Client]:
    async with connected(replace(view, live_series=live_series, token=TOKEN)) as client:
        client.headers.update(RIGHT)
        yield client


async def test_a_life_of_a_series(open_live_series: Client, live_series: FakeLiveSeries) -> None:
    before = json.dumps(live_series.series)
    preview = await open_live_series.post("/api/queries/preview", json=LATE | {"epsilon": "0.7"})
    assert (preview.json()["fits"], preview.json()["largest"]) == (False, "0.5")
    assert json.dumps(live_series.series) == before

    body = json.dumps(LATE).encode()
    created = await open_live_series.post("/api/queries?analyst=ann", content=body, headers=JSON)
    assert created.status_code == 201
    told = {"name": "late", "start": 17, "start_time": TIME, "epsilon": "0.1", "left": "0.4"}
    assert created.json().items() >= told.items()
    assert live_series.asked[-1] == ("create", body, "ann")

    live_series.now = 40
    would = await open_live_series.get("/api/queries/late/halt")
    assert live_series.series[-1]["end"] is None
    halted = await open_live_series.delete("/api/queries/late")
    ended = {"end": 40, "end_time": TIME}
    assert (would.status_code, would.json()["budget"]) == (200, "1")
    told = {"name": "late", **ended, "left": "0.5", "freed": "0.1"}
    assert (halted.status_code, halted.json().items() >= told.items()) == (200, True)
    listed = await open_live_series.get("/api/queries")
    queries = listed.json()["queries"]
    assert [(q["analyst"], q["created"]) for q in queries] == [("", False), ("ann", True)]
    assert queries[1].items() >= {"start": 17, **ended}.items()

    answers = {"preview": preview, "create": created, "would": would, "halt": halted}
    for said, answer in answers.items():
        assert set(answer.json()) == set(KEYS[said].split())
    assert all(set(query) == set(KEYS["query"].split()) for query in queries)
    every = (*answers.values(), listed)
    assert not any(str(SECRET_COUNT) in answer.text for answer in every)


@pytest.mark.parametrize(
    "change",
    [{"token": TOKEN}, {"live_series": FakeLiveSeries()}],
    ids=["no live series", "no token"],
)
async def test_without_a_token_nothing_is_written(view: PublicView, change: dict[str, Any]) -> None:
    async with connected(replace(view, **change)) as client:
        for authorization in (f"Bearer {TOKEN}", "Bearer "):
            client.headers["Authorization"] = authorization
            for line in WRITES:
                answer = await client.request(*line.split(), json=LATE)
                assert answer.status_code in {404, 405}, line
        assert (await client.get("/api/queries")).status_code == 200
    untouched = change.get("live_series") or FakeLiveSeries()
    assert (untouched.asked, untouched.senders) == ([], [])


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("Authorization", TOKEN)],
        [("Authorization", "Bearer ")],
        [("Authorization", f"Basic {TOKEN}")],
        [("Authorization", f"Bearer {TOKEN[:-1]}")],
        [("Authorization", f"Bearer {TOKEN.upper()}")],
        [("Authorization", "Bearer \u00e9".encode("latin-1"))],
        [("Authorization", f"Bearer {ANNS}0")],
        [("Authorization", "Bearer ann")],
        [("Authorization", f"Bearer {TOKEN}, {ANNS}")],
        [("Authorization", f"Bearer {TOKEN}")] * 2,
        [("Cookie", f"token={TOKEN}")],
    ],
    ids=[
        "none",
        "bare",
        "empty",
        "basic",
        "short",
        "case",
        "latin",
        "long",
        "name",
        "both",
        "two",
        "cookie",
    ],
)
async def test_only_the_token_opens_it(
    view: PublicView, live_series: FakeLiveSeries, headers: list[tuple[str, str]]
) -> None:
    guarded = replace(view, live_series=live_series, token=TOKEN, analysts={"ann": ANNS})
    assert TOKEN not in repr(guarded)
    async with connected(guarded) as client:
        for line in WRITES:
            answer = await client.request(*line.split(), headers=headers, content=b"{}")
            assert answer.status_code == 401, line
            assert answer.headers["www-authenticate"] == "Bearer"
            shown = answer.text + str(answer.headers)
            assert (TOKEN in shown, ANNS in shown) == (False, False)
    assert (live_series.asked, live_series.senders) == ([], [])


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
async def test_a_form_cannot_ask(
    open_live_series: Client, live_series: FakeLiveSeries, kind: str | None
) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    answer = await open_live_series.post("/api/queries", content=json.dumps(LATE), headers=headers)
    assert (answer.status_code, answer.json()["exit_code"]) == (415, 2)
    assert live_series.asked == []


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
    "body",
    [
        SECRET.encode(),
        b"\xff\xfe",
        b"[]",
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


@pytest.mark.parametrize("analyst", [SECRET.upper(), "a/b", "x" * 64, "\n"])
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
    for own in ({"Origin": "https://LOCALHOST:8765"}, {"Sec-Fetch-Site": "none"}):
        answer = await open_live_series.post("/api/queries", json=LATE, headers=own)
        assert answer.status_code in {201, 422}  # made once, and the name is taken then
