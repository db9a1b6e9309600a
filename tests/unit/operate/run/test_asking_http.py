"""An analyst asks a real engine over HTTP with a token of her own: what she may, what it costs, what is refused."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from unit.live.live_series_worlds import HORIZON, SEALER, Stopping
from unit.live.message_worlds import NOW, UNTIL, WITH_ANALYSTS, MessageWorld, large, sealed
from unit.live.message_worlds import text as message

from stream_dp.engine.engine import Engine
from stream_dp.engine.messages.issued_tokens import DAY_MS, IssuedTokens
from stream_dp.journal.keys import Sealer
from stream_dp.operate.observe.public_view import public_view
from stream_dp.operate.run.live_series import Attempt
from stream_dp.server.api import create_app
from stream_dp.server.view import PublicView, ReleaseLog

NAMES = ("ann", "bob")
GUARDED = [
    ("GET", "/api/me"), ("POST", "/api/queries"), ("POST", "/api/queries/preview"), ("DELETE", "/api/queries/orders"),
    ("POST", "/api/messages"), ("POST", "/api/series/orders/ask"),
]  # fmt: skip
Client = httpx.AsyncClient


@asynccontextmanager
async def engine_at(world: MessageWorld, tick: int = 2) -> AsyncIterator[Engine]:
    """An engine that has run to this tick; it runs to the end behind the context."""
    source = Stopping(tick)
    engine = world.messaging(source)
    run = asyncio.create_task(engine.run())
    await world.until(tick)
    try:
        yield engine
    finally:
        source.go(HORIZON)
        await run


def client_for(view: PublicView) -> Client:
    transport = httpx.ASGITransport(create_app(view, frozenset({"localhost"})))
    return Client(transport=transport, base_url="http://localhost:8765")


@asynccontextmanager
async def on(
    path: Path, world: MessageWorld | None = None, tick: int = 2
) -> AsyncIterator[tuple[Client, IssuedTokens]]:
    """A client of an engine, and the list of its tokens as another process has it."""
    world = world or MessageWorld(WITH_ANALYSTS)
    async with engine_at(world, tick) as engine:
        attempt = Attempt(engine, world.words)
        issued = IssuedTokens(path, SEALER, NAMES)
        view = public_view(
            world.built, lambda: attempt, lambda: False, ReleaseLog(), SEALER.query_token, issued
        )
        async with client_for(view) as client:
            yield client, IssuedTokens(path, SEALER, NAMES)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.tokens"


def set_back(world: MessageWorld) -> MessageWorld:
    """The world as if it had died before the last commit."""
    world.store.commits = world.store.commits[:-1]
    shown = json.loads(world.bodies[-1])["tick"]
    world.bodies[:] = [body for body in world.bodies if json.loads(body)["tick"] < shown]
    return world


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def made_for(issued: IssuedTokens, name: str, days: int = 30) -> dict[str, str]:
    return bearer(issued.make(name, days, NOW)[1])


async def test_she_sees_who_she_is_and_what_she_may_spend(path: Path) -> None:
    async with on(path) as (client, issued):
        token, text = issued.make("ann", 30, NOW)
        account = {"total": "1", "spent": "0", "left": "1"}
        who = {"analyst": "ann", "token": token.id, "expires": token.expires}
        me = (await client.get("/api/me", headers=bearer(text))).json()
        assert me == {**who, "epsilon": account}
        done = await client.post("/api/queries", json=large("anns", "0.3"), headers=bearer(text))
        assert done.status_code == 201
        me = (await client.get("/api/me", headers=bearer(text))).json()
        assert me["epsilon"] == {"total": "1", "spent": "0.3", "left": "0.7"}
        other = (await client.get("/api/me", headers=made_for(issued, "bob"))).json()
        assert (other["analyst"], other["epsilon"]) == ("bob", account)
        mine = await client.get("/api/me", headers=bearer(SEALER.query_token()))
        assert mine.json() == {"analyst": "", "epsilon": {"total": "6", "spent": "4", "left": "2"}}
        shown = (await client.get("/api/queries")).json()["queries"]
        assert [(q["analyst"], q["epsilon"]) for q in shown if q["created"]] == [("ann", "0.3")]
        assert "amount" not in json.dumps(shown)


NOISY = {"name": "busy", "statistic": "alerts", "by": "country", "threshold": 50, "epsilon": "0.1"}


async def test_what_is_mostly_noise_is_told_and_then_confirmed(path: Path) -> None:
    async with on(path) as (client, issued):
        ann = made_for(issued, "ann")
        preview = (await client.post("/api/queries/preview", json=NOISY, headers=ann)).json()
        assert preview["fits"]
        assert preview["false_alarms"][0]["chance"] > 0.05
        assert preview["noise"].startswith("mostly noise: a false alarm per key and day")
        refused = await client.post("/api/queries", json=NOISY, headers=ann)
        assert (refused.status_code, refused.json()["exit_code"]) == (428, 2)
        assert preview["noise"] in refused.json()["detail"]
        accepted = {**ann, "Idempotency-Key": "k1"}
        for _ in range(2):
            done = await client.post("/api/queries?accept_noise=true", json=NOISY, headers=accepted)
            assert (done.status_code, done.json()["name"]) == (201, "busy")
        me = (await client.get("/api/me", headers=ann)).json()
        assert me["epsilon"]["spent"] == "0.1"
        quiet = NOISY | {"name": "rare", "threshold": 5000}
        preview = (await client.post("/api/queries/preview", json=quiet, headers=ann)).json()
        assert "noise" not in preview
        assert (await client.post("/api/queries", json=quiet, headers=ann)).status_code == 201


async def test_a_preview_for_an_error_names_the_least_epsilon(path: Path) -> None:
    async with on(path) as (client, issued):
        ann = made_for(issued, "ann")
        series = {key: value for key, value in large("anns").items() if key != "epsilon"}

        async def preview(**more: Any) -> dict[str, Any]:
            told = await client.post("/api/queries/preview", json=series | more, headers=ann)
            assert told.status_code == 200
            found: dict[str, Any] = told.json()
            return found

        found = await preview(error=40)
        assert (found["fits"], found["spent"], found["left"]) == (True, "0", "1")
        assert found["error"] <= 40
        assert float(found["after"]) == pytest.approx(1 - float(found["asked"]))
        bought = {**series, "epsilon": found["asked"]}
        created = await client.post("/api/queries", json=bought, headers=ann)
        told = created.json()
        assert created.status_code == 201
        assert (told["error"], told["left"]) == (found["error"], found["after"])
        dear = await preview(name="more", error=1)
        assert (dear["fits"], dear["error"], dear["largest"]) == (False, 1, found["after"])
        assert "after" not in dear
        less = await preview(name="more", epsilon=dear["largest"])
        assert (less["fits"], less["after"]) == (True, "0")
        both = await client.post("/api/queries", json={**series, "error": 40}, headers=ann)
        assert both.status_code == 422, "only a preview takes an error"


async def test_nobody_halts_or_asks_or_pays_for_anothers_series(path: Path) -> None:
    async with on(path) as (client, issued):
        ann, bob = made_for(issued, "ann"), made_for(issued, "bob")
        mine = await client.post("/api/queries", json=large("anns", "0.1"), headers=ann)
        assert mine.status_code == 201
        listing = {"id": "x", "until": UNTIL, "do": "list", "analyst": "ann"}
        tried = [
            await client.delete("/api/queries/anns", headers=bob),
            await client.delete("/api/queries/orders", headers=bob),  # the file's
            await client.post("/api/series/anns/ask", json={}, headers=bob),
            await client.post("/api/queries?analyst=ann", json=large("b"), headers=bob),
            await client.post("/api/queries/preview?analyst=ann", json=large("b"), headers=bob),
            await client.post("/api/messages", json=listing, headers=bob),
        ]
        assert [told.status_code for told in tried] == [403] * len(tried)
        listed = (await client.get("/api/queries")).json()["queries"]
        running = [one["name"] for one in listed if one["end"] is None]
        assert running == ["orders", "watched", "anns"]
        assert (await client.delete("/api/queries/anns", headers=ann)).status_code == 200


async def tried(client: Client, header: dict[str, str]) -> list[httpx.Response]:
    return [
        await client.request(method, where, headers=header, json=None if method != "POST" else {})
        for method, where in GUARDED
    ]


async def test_a_token_that_is_not_valid_opens_nothing(path: Path, tmp_path: Path) -> None:
    world = MessageWorld(WITH_ANALYSTS)
    async with on(path, world) as (client, issued):
        made, revoked = issued.make("ann", 30, NOW)
        assert (await client.get("/api/me", headers=bearer(revoked))).status_code == 200
        issued.revoke(made.id, NOW)
        expired = issued.make("ann", 1, NOW - DAY_MS)[1]
        others = IssuedTokens(tmp_path / "other", Sealer(bytes(range(32)), "views"), NAMES)
        valid = issued.make("bob", 30, NOW)[1]
        for text, said in (
            (revoked, "was revoked"),
            (expired, "has expired"),
            (others.make("ann", 30, NOW)[1], "is no token of"),
            (valid[:-1], "is no token of"),
            (valid.partition(".")[2], "is no token of"),
            ("", "needs `Auth"),
        ):
            for told in await tried(client, bearer(text)):
                assert told.status_code == 401, (text, told.text)
                assert told.headers["www-authenticate"] == "Bearer"
                assert said in told.json()["detail"]
                assert not text or text not in told.text
        in_url = await client.get(f"/api/me?token={valid}&access_token={valid}")
        assert in_url.status_code == 401
    assert world.answers == []


async def test_while_the_list_is_damaged_no_analyst_is_let_in(path: Path) -> None:
    async with on(path) as (client, issued):
        ann = made_for(issued, "ann")
        with path.open("a") as file:
            file.write("{")
        for told in await tried(client, ann):
            assert (told.status_code, told.json()["exit_code"]) == (503, 5)
            assert str(path) not in told.text
        operator = bearer(SEALER.query_token())
        assert (await client.get("/api/me", headers=operator)).status_code == 200
        assert (await client.get("/api/queries")).status_code == 200


async def test_what_has_no_room_is_refused_alike_by_every_way(path: Path) -> None:
    """By the routes, as a message over HTTP, and from the queue: one text, kind `room`, 409, exit code 2."""
    world = MessageWorld(WITH_ANALYSTS | {"queries": {"series": "1"}}, watched=False)
    by_queue = message("q1", "create", "ann", series=large("late", "0.1"))
    told = list[str]()

    async with on(path, world) as (client, issued):
        ann, late = made_for(issued, "ann"), large("late", "0.1")
        done = await client.post("/api/queries", json=large("early", "0.1"), headers=ann)
        assert done.status_code == 201
        for route in ("/api/queries", "/api/queries/preview"):
            refused = await client.post(route, json=late, headers=ann)
            assert (refused.status_code, refused.json()["exit_code"]) == (409, 2)
            told.append(refused.json()["detail"])
        said = message("m1", "create", "ann", series=late)
        refused = await client.post("/api/messages", json=json.loads(said), headers=ann)
        assert refused.status_code == 409
        kind, code, detail = refused.json()["refused"].values()
        assert (kind, code) == ("room", 2)
        told.append(detail)
        bob, his = made_for(issued, "bob"), large("his", "0.1")
        assert (await client.post("/api/queries", json=his, headers=bob)).status_code == 201
        world.script.append((2, sealed(by_queue, "ann")))
        while all(each["id"] != "q1" for each in world.said()):  # noqa: ASYNC110 - steps of the loop
            await asyncio.sleep(0)
    queued = next(each for each in world.said() if each["id"] == "q1")["refused"]
    assert (queued["kind"], queued["exit_code"]) == ("room", 2)
    assert {*told, queued["detail"]} == {
        "live series: late is one series more, and analyst ann has 1 of the 1 that may run at once (queries.series), "
        "so none fits; halt early"
    }


async def test_a_token_goes_on_after_a_restart(path: Path) -> None:
    world, kept = MessageWorld(WITH_ANALYSTS), list[dict[str, str]]()

    async with on(path, world) as (client, issued):
        kept.append(made_for(issued, "ann"))
        done = await client.post("/api/queries", json=large("anns", "0.1"), headers=kept[0])
        assert done.status_code == 201
    async with on(path, set_back(world), 10) as (client, issued):
        name = {"name": "anns", "statistic": "count", "epsilon": "0.1"}
        taken = await client.post("/api/queries/preview", json=name, headers=kept[0])
        assert (taken.status_code, taken.json()["detail"][:6]) == (422, "name: ")
        assert (await client.get("/api/me", headers=kept[0])).json()["epsilon"]["spent"] == "0.1"
        assert (await client.delete("/api/queries/anns", headers=kept[0])).status_code == 200
