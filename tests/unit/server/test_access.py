"""Who may read and ask: closed reading, readers' tokens, the page's cookie, users that a proxy names, the log.

Rules: each way in has its forged twin. The oracle of what is closed is the application's own list of routes.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from unit.server.conftest import MakeRelease
from unit.server.fake_live_series import WRITES, FakeLiveSeries

from stream_dp.engine.messages.issued_tokens import DAY_MS, IssuedTokens, id_of
from stream_dp.errors import FailClosed, UsageError
from stream_dp.journal.keys import Sealer
from stream_dp.operate.observe.public_view import reader_of
from stream_dp.pipeline.yaml import load_as
from stream_dp.server import access as module
from stream_dp.server.access import Access, AccessLog, Proxy
from stream_dp.server.api import create_app, create_home
from stream_dp.server.server import PageServer
from stream_dp.server.view import PublicView, TokenHolder

NOW = 1_790_000_000_000
SEALER = Sealer(bytes(range(32)), "flights")
OPERATOR, ANN = SEALER.query_token(), SEALER.query_token("ann")
PROXIED = {"X-Forwarded-Email": "Ann@Example.org"}
PROXY = Proxy.model_validate({
    "header": "X-Forwarded-Email", "from": ["10.1.0.0/16", "127.0.0.1", "fd00::/8"],
    "analysts": {"ann@example.org": "ann"}, "readers": ["*@example.org", "bob@other.org"],
})  # fmt: skip
CLOSED = Access(reads="known")
JSON = {"Content-Type": "application/json"}
FREE = {"/healthz", "/api/access", "/api/login", "/api/openapi.json"}
DEFINITION = {"name": "late", "statistic": "count", "epsilon": "0.1"}


@pytest.fixture
def tokens(tmp_path: Path) -> IssuedTokens:
    return IssuedTokens(tmp_path / "tokens", SEALER, ["ann"])


@pytest.fixture
def asked_view(view: PublicView, live_series: FakeLiveSeries, tokens: IssuedTokens) -> PublicView:
    def holder(text: str) -> TokenHolder | None:
        found = tokens.shown(text)
        return found and TokenHolder(found.analyst, found.id, found.expires, found.state(NOW))  # type: ignore[return-value]

    return replace(
        view, live_series=live_series, token=OPERATOR, analysts={"ann": ANN}, issued=holder,
        readers=lambda text: reader_of(tokens, text, NOW),
    )  # fmt: skip


def app_of(view: PublicView, access: Access, log: AccessLog | None = None) -> FastAPI:
    return create_app(view, frozenset({"localhost"}), None, access, log)


def client_of(app: Any, peer: str = "192.0.2.7") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, client=(peer, 4711))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost:8765")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def reading_routes(app: FastAPI) -> list[str]:
    """Every address of the API that can be read without asking, with names filled in."""
    routes = [route for route in app.routes if isinstance(route, APIRoute)]
    paths = [
        route.path
        for route in routes
        if "GET" in (route.methods or ()) and route.path.startswith(("/api", "/metrics"))
    ]
    return [
        path.replace("{name}", "total")
        for path in paths
        if not re.search("halt|/me$", path) and path not in FREE
    ]


async def statuses(
    client: httpx.AsyncClient, paths: list[str], headers: Mapping[str, str]
) -> set[int]:
    return {
        (await client.get(path, headers=headers)).status_code
        for path in paths
        if path != "/api/stream"
    }


async def test_closed_reading_takes_a_token_on_every_route(
    asked_view: PublicView, tokens: IssuedTokens
) -> None:
    app = app_of(asked_view, CLOSED)
    paths = reading_routes(app)
    assert len(paths) >= 8
    reader, text = tokens.make_reading("bi", 30, NOW)
    _, old = tokens.make_reading("bi", 1, NOW - 2 * DAY_MS)
    _, gone = tokens.make_reading("bi", 30, NOW)
    tokens.revoke(id_of(gone), NOW)
    assert not {text, old, gone} & {*tokens.path.read_text().split('"')}
    async with client_of(app) as client:
        for headers in ({}, bearer("0" * 64), bearer(f"{reader.id}.{'0' * 64}"), bearer(old), bearer(gone),
                        {"Authorization": f"Basic {text}"}):  # fmt: skip
            assert await statuses(client, paths, headers) == {401}
            assert (await client.get("/api/stream", headers=headers)).status_code == 401
        for good in (text, ANN, OPERATOR, tokens.make("ann", 30, NOW)[1]):
            assert await statuses(client, paths, bearer(good)) == {200}
        for path in FREE - {"/api/login"}:
            assert (await client.get(path)).status_code == 200
        page = (await client.get("/")).text
        assert "<html data-access " in page
        refused = await client.get("/api/series")
        assert "--reader NAME" in refused.json()["detail"]
        assert refused.headers["www-authenticate"] == "Bearer"
        assert "expired" in (await client.get("/api/plan", headers=bearer(old))).json()["detail"]
        assert "revoked" in (await client.get("/api/plan", headers=bearer(gone))).json()["detail"]


async def test_reading_is_open_by_default_and_nothing_is_added(asked_view: PublicView) -> None:
    app = app_of(asked_view, Access())
    async with client_of(app) as client:
        assert await statuses(client, reading_routes(app), {}) == {200}
        assert "data-access" not in (await client.get("/")).text
        assert (await client.get("/api/access")).status_code == 404
        assert (await client.get("/api/series", headers=PROXIED)).status_code == 200


@pytest.mark.parametrize("access", [Access(), CLOSED])
async def test_a_readers_token_never_asks(
    asked_view: PublicView, live_series: FakeLiveSeries, tokens: IssuedTokens, access: Access
) -> None:
    _, text = tokens.make_reading("ann", 30, NOW)  # the name of an analyst gives no right of hers
    async with client_of(app_of(asked_view, access)) as client:
        for line in (*WRITES, "GET /api/me", "GET /api/queries/total/halt"):
            method, path = line.split()
            refused = await client.request(method, path, headers=bearer(text) | JSON, content=b"{}")
            assert refused.status_code == 403
            assert "may read here and not ask" in refused.json()["detail"]
    assert live_series.senders == []


def test_a_line_of_the_list_makes_no_analyst_of_a_reader(tokens: IssuedTokens) -> None:
    token, text = tokens.make_reading("ann", 30, NOW)
    line = tokens.path.read_text()
    assert tokens.shown(text) is None
    assert tokens.shown_reading(text) == token
    tokens.path.write_text(line.replace('"reader":"ann"', '"analyst":"ann"'))
    assert tokens.shown(text) is None
    assert tokens.shown_reading(text) is None
    tokens.path.write_text(line.replace('"reader":"ann"', '"analyst":"ann","reader":"ann"'))
    with pytest.raises(FailClosed, match="is damaged"):
        tokens.shown_reading(text)


@pytest.mark.parametrize(
    ("name", "days"), [("", 30), ("Bi", 30), ("a" * 64, 30), ("bi", 0), ("bi", 4000)]
)
def test_what_is_no_reader_gets_no_token(tokens: IssuedTokens, name: str, days: int) -> None:
    with pytest.raises(UsageError, match=r"--reader|--days"):
        tokens.make_reading(name, days, NOW)


def test_a_page_without_the_key_knows_readers_and_no_analyst(tokens: IssuedTokens) -> None:
    token, text = tokens.make_reading("bi", 30, NOW)
    keyless = IssuedTokens(tokens.path, None, ["ann"])
    assert keyless.shown_reading(text) == token
    with pytest.raises(UsageError, match="the operator's key is needed"):
        keyless.make("ann", 30, NOW)
    assert tokens.path.read_text().count("\n") == 1


# --- the page's cookie --------------------------------------------------------------------------


async def test_the_cookie_reads_and_never_asks(
    asked_view: PublicView, live_series: FakeLiveSeries, tokens: IssuedTokens
) -> None:
    app = app_of(asked_view, CLOSED)
    mine, text = tokens.make("ann", 30, NOW)
    async with client_of(app) as client:
        assert (await client.post("/api/login")).status_code == 401
        assert (await client.post("/api/login", headers=bearer("x"))).status_code == 401
        entered = await client.post("/api/login", headers=bearer(text))
        assert entered.json() == {
            "reads": "known",
            "admitted": True,
            "name": "ann",
            "asks": True,
            "cookie": True,
        }
        cookie = entered.headers["set-cookie"]
        assert re.fullmatch(
            "stream_dp_flights=[0-9a-f]{64}; Path=/; HttpOnly; SameSite=Strict", cookie
        )
        assert text.partition(".")[2] not in cookie
        assert await statuses(client, reading_routes(app), {}) == {200}
        assert (await client.get("/api/access")).json()["asks"] is False
        for line in (
            *WRITES,
            "GET /api/me",
        ):  # all that a page of another site could send, were its origin hidden
            method, path = line.split()
            assert (
                await client.request(method, path, headers=JSON, content=b"{}")
            ).status_code == 401
        assert live_series.senders == []
        foreign = {"Origin": "https://evil.example", **bearer(text)}
        assert (await client.post("/api/login", headers=foreign)).status_code == 403
        assert (await client.delete("/api/login")).status_code == 204
        assert await statuses(client, reading_routes(app), {}) == {401}
        await client.post("/api/login", headers=bearer(text))
        assert await statuses(client, reading_routes(app), {}) == {200}
        kept = {"Cookie": cookie.partition(";")[0]}  # a copy of it, of before she logged out
        async with client_of(app) as other:
            assert (await other.get("/api/plan", headers=kept)).status_code == 401
        # beside a cookie that a page of a neighbouring name has set
        ours = f"stream_dp_flights={client.cookies['stream_dp_flights']}"
        twice = {"Cookie": f"{ours}; {kept['Cookie']}"}
        async with client_of(app) as other:
            assert (await other.get("/api/plan", headers=twice)).status_code == 401
        tokens.revoke(mine.id, NOW)
        assert await statuses(client, reading_routes(app), {}) == {401}


async def test_the_cookie_is_for_tls_alone_where_the_browser_came_by_tls(
    asked_view: PublicView,
) -> None:
    headers = bearer(ANN) | {"Origin": "https://localhost:8765"}
    async with client_of(app_of(asked_view, CLOSED)) as client:
        entered = await client.post("/api/login", headers=headers)
        assert entered.headers["set-cookie"].endswith("; Secure")


@pytest.mark.parametrize("forged", ["0" * 64, "", ANN, OPERATOR])
async def test_a_forged_cookie_lets_nobody_in(asked_view: PublicView, forged: str) -> None:
    async with client_of(app_of(asked_view, CLOSED)) as client:
        cookie = {"Cookie": f"stream_dp_flights={forged}"}
        assert (await client.get("/api/series", headers=cookie)).status_code == 401


async def test_no_more_cookies_than_a_bound_let_somebody_in(
    asked_view: PublicView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    app = app_of(asked_view, CLOSED)
    async with client_of(app) as client:
        entered = [await client.post("/api/login", headers=bearer(ANN)) for _ in range(3)]
    kept = [answer.headers["set-cookie"].partition(";")[0] for answer in entered]
    async with client_of(app) as other:
        found = [
            (await other.get("/api/plan", headers={"Cookie": one})).status_code for one in kept
        ]
    assert found == [401, 200, 200]


async def test_an_open_stream_ends_with_its_token(
    asked_view: PublicView, tokens: IssuedTokens, release: MakeRelease, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(module, "_LOOK_AGAIN_S", 0.0)
    made, text = tokens.make_reading("bi", 30, NOW)
    server = PageServer(asked_view, CLOSED)
    await server.start(port=0)
    lines = list[str]()
    try:
        async with (
            httpx.AsyncClient(base_url=server.url, timeout=100) as client,
            client.stream("GET", "/api/stream?after=-1", headers=bearer(text)) as stream,
        ):
            assert stream.status_code == 200
            with pytest.raises(httpx.TransportError):  # noqa: PT012 - the stream ends in the midst of it
                async for line in stream.aiter_lines():
                    lines.append(line)
                    if line.startswith("id: 4"):
                        tokens.revoke(made.id, NOW)
                        asked_view.log.append(release(9, tick=9))
    finally:
        await server.stop()
    assert "id: 4" in lines
    assert "id: 9" not in lines


async def test_a_home_page_lists_what_its_reader_may_read(
    asked_view: PublicView, view: PublicView
) -> None:
    hosts = frozenset({"localhost"})
    pages = {"flights": app_of(asked_view, CLOSED), "other": app_of(view, CLOSED)}
    async with client_of(create_home(pages, hosts)) as client:
        assert (await client.get("/api/pipelines")).status_code == 401
        assert (await client.get("/flights/api/series")).status_code == 401
        assert (await client.get("/flights/api/series", headers=bearer(ANN))).status_code == 200
        assert (await client.get("/other/api/series", headers=bearer(ANN))).status_code == 401
        assert (await client.get("/api/pipelines", headers=bearer(ANN))).json() == {
            "pipelines": ["flights"]
        }
    async with client_of(create_home({"flights": app_of(view, Access())}, hosts)) as client:
        assert (await client.get("/api/pipelines")).json() == {"pipelines": ["flights"]}


# --- a proxy's users ----------------------------------------------------------------------------


@pytest.mark.parametrize("reads", ["anyone", "known"])
@pytest.mark.parametrize("peer", ["10.1.2.3", "127.0.0.1", "::ffff:10.1.2.3", "fd00::7"])
async def test_a_proxys_user_asks_as_an_analyst(
    asked_view: PublicView, live_series: FakeLiveSeries, reads: Any, peer: str
) -> None:
    async with client_of(app_of(asked_view, Access(reads=reads, proxy=PROXY)), peer) as client:
        seen = (await client.get("/api/access", headers=PROXIED)).json()
        assert seen == {
            "reads": reads,
            "admitted": True,
            "name": "ann",
            "asks": True,
            "cookie": False,
        }
        assert (await client.get("/api/me", headers=PROXIED)).json()["analyst"] == "ann"
        made = await client.post("/api/queries", headers=PROXIED, json=DEFINITION)
        assert made.status_code == 201
        bob = {"X-Forwarded-Email": "bob@other.org"}
        assert (await client.get("/api/series", headers=bob)).status_code == 200
        assert (await client.post("/api/queries", headers=bob, json=DEFINITION)).status_code == 403
        assert (
            await client.post(
                "/api/queries", headers=bob | bearer(ANN), json=DEFINITION | {"name": "b"}
            )
        ).status_code == 201
        assert (await client.get("/api/me")).status_code == 401
        await client.post("/api/login", headers=bearer(ANN))
        assert (await client.get("/api/me")).status_code == 401
        assert (await client.get("/api/me", headers=PROXIED)).status_code == 200
    assert [sender.signer for sender in live_series.senders] == ["ann", "ann"]


@pytest.mark.parametrize("reads", ["anyone", "known"])
@pytest.mark.parametrize(
    ("peer", "headers"),
    [
        ("192.0.2.7", [("X-Forwarded-Email", "ann@example.org")]),
        ("10.2.0.1", [("x-forwarded-email", "ann@example.org")]),
        ("192.0.2.7", [("X-Forwarded-Email", "ann@example.org"), ("X-Forwarded-For", "10.1.2.3")]),
        ("", [("X-Forwarded-Email", "ann@example.org")]),
        ("10.1.2.3", [("X-Forwarded-Email", "ann@example.org"), ("X-Forwarded-Email", "bob@other.org")]),
        ("10.1.2.3", [("X-Forwarded-Email", "bob@other.org"), ("x-forwarded-email", "ann@example.org")]),
    ],
)  # fmt: skip
async def test_a_forged_user_is_refused(
    asked_view: PublicView, live_series: FakeLiveSeries, reads: Any, peer: str, headers: list[tuple[str, str]]
) -> None:  # fmt: skip
    async with client_of(app_of(asked_view, Access(reads=reads, proxy=PROXY)), peer) as client:
        for path in ("/api/series", "/api/me", "/api/access"):
            assert (await client.get(path, headers=headers)).status_code == 403
        asked = await client.post("/api/queries", headers=headers, json=DEFINITION)
        assert asked.status_code == 403
        assert "example.org" not in asked.text
    assert live_series.senders == []


@pytest.mark.parametrize(
    "user", ["eve@evil.example", "eve@example.org.evil", "ann@example.org, eve", "*"]
)
async def test_a_user_who_is_not_listed_reads_nothing(asked_view: PublicView, user: str) -> None:
    headers = {"X-Forwarded-Email": user}
    async with client_of(
        app_of(asked_view, Access(reads="known", proxy=PROXY)), "10.1.2.3"
    ) as client:
        refused = await client.get("/api/series", headers=headers)
        assert refused.status_code == 403
        assert "proxy.readers" in refused.json()["detail"]
        assert (
            await client.get("/api/series", headers={"X-Forwarded-Email": " "})
        ).status_code == 401
        assert (await client.get("/", headers=headers)).status_code == 200


async def test_another_site_cannot_ask_through_the_proxys_session(
    asked_view: PublicView, live_series: FakeLiveSeries
) -> None:
    """The browser sends the proxy's cookie by itself, so a form or a script elsewhere arrives as the user."""
    async with client_of(app_of(asked_view, Access(proxy=PROXY)), "10.1.2.3") as client:
        for more, status in (
            ({"Origin": "https://evil.example"}, 403),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Sec-Fetch-Site": "same-site"}, 403),
            ({"Content-Type": "text/plain"}, 415),  # without either, from an old browser: a form
            ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ):
            content = json.dumps(DEFINITION)
            asked = await client.post(
                "/api/queries", headers=PROXIED | JSON | more, content=content
            )
            assert asked.status_code == status
        preflight = await client.options(
            "/api/queries/total", headers=PROXIED | {"Origin": "https://evil.example"}
        )
        assert not any(name.startswith("access-control") for name in preflight.headers)
    assert live_series.senders == []


async def test_the_peer_is_the_connections_own_and_no_headers(asked_view: PublicView) -> None:
    """Through a real server: a neighbour on this machine names an address of the proxy as its own."""
    far = PROXY.model_copy(update={"from_": (module._network("10.1.0.0/16"),)})
    for proxy, status in ((far, 403), (PROXY, 200)):
        server = PageServer(asked_view, Access(reads="known", proxy=proxy))
        await server.start(port=0)
        async with httpx.AsyncClient(base_url=server.url, timeout=100) as client:
            for name in ("X-Forwarded-For", "Forwarded", "X-Real-IP"):
                said = await client.get("/api/series", headers=PROXIED | {name: "10.1.2.3"})
                assert said.status_code == status
        await server.stop()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("proxy: {header: X-User, from: [0.0.0.0/0]}", "would trust every client"),
        ("proxy: {header: X-User, from: [10.1.2.3/16]}", "must be an address or a network"),
        ("proxy: {header: X-User, from: []}", "proxy.from"),
        (
            "proxy: {header: Authorization, from: [10.1.0.0/16]}",
            "a header that browsers set themselves",
        ),
        ("proxy: {header: X-User}", "proxy.from: is missing"),
        ("reads: nobody", "must be anyone or known"),
        ("read: known", "did you mean reads?"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "access.yaml").write_text(text)
    with pytest.raises(UsageError, match=re.escape(why)) as refused:
        load_as(tmp_path / "access.yaml", Access)
    assert "access.yaml:1:" in str(refused.value)


def test_the_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "access.yaml").write_text(
        "names: [stats.example.org]\nreads: known\nlog: access.jsonl\nproxy:\n  header: X-Forwarded-Email\n"
        "  from: [10.1.0.0/16]\n  analysts: {Ann@example.org: ann}\n  readers: ['*']\n"
    )
    read = load_as(tmp_path / "access.yaml", Access)
    assert read.log == tmp_path / "access.jsonl"
    assert read.proxy is not None
    assert (read.proxy.header, read.proxy.analysts) == (
        "x-forwarded-email",
        {"ann@example.org": "ann"},
    )
    assert read.proxy.reads("anybody")
    (tmp_path / "access.yaml").write_text("log: stderr")
    assert load_as(tmp_path / "access.yaml", Access).log == "stderr"


# --- the log ------------------------------------------------------------------------------------


def entries(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


async def test_the_log_says_who_asked_and_read_what(
    asked_view: PublicView, tokens: IssuedTokens, tmp_path: Path
) -> None:
    file = tmp_path / "access.jsonl"
    reader, text = tokens.make_reading("bi", 30, NOW)
    access = Access(reads="known", proxy=PROXY, log=file)
    secret = "3f9a12bc0d11." + "ab" * 32
    app = app_of(asked_view, access, AccessLog(file, lambda: 1.79e9))
    async with client_of(app, "10.1.2.3") as client:
        for _ in range(3):
            await client.get("/api/series/total", headers=bearer(text))
        await client.get("/api/series/total", headers=PROXIED)
        await client.get("/style.css")
        await client.get("/healthz")
        await client.get("/api/series/nothing-of-this-name", headers=bearer(text))
        for _ in range(2):
            await client.post(
                "/api/queries/preview", headers=bearer(ANN), json=DEFINITION | {"note": secret}
            )
        await client.post("/api/queries", headers=PROXIED, json=DEFINITION)
        watch = {"do": "watch", "series": "total", "threshold": 471104, "name": secret}
        await client.post("/api/messages", headers=bearer(OPERATOR), json=watch)
        await client.delete("/api/queries/late", headers=bearer(OPERATOR))
        await client.post("/api/queries", headers=bearer(text), json=DEFINITION)
        for _ in range(2):
            await client.get("/api/series", headers=bearer(secret))
        await client.get("/api/series", headers=PROXIED | {"X-Forwarded-Email": "eve@evil.example"})
    lines = entries(file)
    shown = {"did", "who", "as", "by", "token", "user", "series", "name", "do", "epsilon", "status"}
    known = [{key: line[key] for key in line if key in shown} for line in lines]
    bi = {"who": "bi", "as": "reader", "by": "token", "token": reader.id}
    ann = {"who": "ann", "as": "analyst"}
    operator = {"who": "operator", "as": "operator", "by": "token"}
    proxied = ann | {"by": "proxy", "user": "ann@example.org"}
    preview = ann | {
        "by": "token",
        "did": "preview",
        "name": "late",
        "epsilon": "0.1",
        "status": 200,
    }
    assert known == [
        bi | {"did": "read", "series": "total", "status": 200},
        proxied | {"did": "read", "series": "total", "status": 200},
        bi | {"did": "read", "status": 404},
        preview, preview,
        proxied | {"did": "create", "name": "late", "epsilon": "0.1", "status": 201},
        operator | {"did": "message", "do": "watch", "series": "total", "status": 200},
        operator | {"did": "halt", "series": "late", "status": 200},
        bi | {"did": "create", "status": 403},
        {"did": "read", "status": 401},
        {"did": "read", "status": 403},
    ]  # fmt: skip
    common = {(line["event"], line["from"], line["pipeline"]) for line in lines}
    assert common == {("access", "10.1.2.3", "flights")}
    whole = file.read_text()
    assert not [
        said
        for said in (text, secret, ANN, OPERATOR, "471104", "nothing-of-this-name")
        if said in whole
    ]
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_log_is_bounded_and_nobody_hides_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST", 5)
    now, file = [1.79e9], tmp_path / "log"
    log = AccessLog(file, lambda: now[0])
    for turn in range(20):
        log.note({"did": "read", "from": f"192.0.2.{turn}", "status": 200})
        log.note({"did": "preview", "who": "bob", "status": 200})
    log.note({"did": "create", "who": "ann", "status": 201})
    lines = entries(file)
    assert [line["did"] for line in lines].count("read") == 5
    assert [line["did"] for line in lines if line.get("who") == "bob"][-1].startswith("more than 5")
    assert lines[-1]["who"] == "ann"
    assert len(lines) == 2 * 6 + 1
    now[0] += module.REPEATED_S
    log.note({"did": "read", "from": "192.0.2.0", "status": 200})
    assert len(entries(file)) == len(lines) + 1


def test_a_full_disk_is_told_once_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file, room = tmp_path / "log", [0]
    write = os.write

    def full(handle: int, text: bytes) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        return write(handle, text[: room[0]])

    monkeypatch.setattr(os, "write", full)
    log = AccessLog(file)

    def ask(name: str) -> None:
        log.note({"did": "create", "who": name, "status": 201})

    for _ in range(3):
        ask("ann")
    room[0] = 10  # a part of a line
    ask("bob")
    assert [record.message.partition(" (")[2] for record in caplog.records] == [
        "No space left on device). Until it can be written, requests are not recorded"
    ]
    room[0] = 10_000
    ask("cid")
    assert file.read_text().split("\n")[0] == '{"event": '
    assert json.loads(file.read_text().split("\n")[1])["who"] == "cid"


def test_a_log_that_was_moved_away_begins_anew(tmp_path: Path) -> None:
    log = AccessLog(tmp_path / "log")
    log.note({"did": "create", "who": "ann", "status": 201})
    (tmp_path / "log").rename(tmp_path / "log.1")
    log.note({"did": "create", "who": "bob", "status": 201})
    assert [line["who"] for line in entries(tmp_path / "log")] == ["bob"]


def test_the_log_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    AccessLog("stderr").note({"did": "create", "who": "ann", "status": 201})
    assert json.loads(capsys.readouterr().err)["who"] == "ann"
