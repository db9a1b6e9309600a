"""An analyst asks a real engine over HTTP with a token of her own: what she may, what it costs, what is refused."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from unit.live.live_series_worlds import SEALER
from unit.live.message_worlds import (
    NOW,
    UNTIL,
    WITH_ANALYSTS,
    MessageWorld,
    large,
    sealed,
)
from unit.live.message_worlds import text as message

from stream_dp.engine.engine import Engine
from stream_dp.engine.messages.issued_tokens import DAY_MS, IssuedTokens
from stream_dp.journal.keys import Sealer
from stream_dp.operate.observe.public_view import public_view
from stream_dp.operate.run.live_series import Attempt, EngineLiveSeries
from stream_dp.server.api import create_app
from stream_dp.server.view import ReleaseLog

NAMES = ("ann", "bob")
GUARDED = [
    ("GET", "/api/me"), ("POST", "/api/queries"), ("POST", "/api/queries/preview"), ("DELETE", "/api/queries/orders"),
    ("POST", "/api/messages"), ("POST", "/api/series/orders/ask"),
]  # fmt: skip
Client = httpx.AsyncClient
Then = Callable[[Client, IssuedTokens], Awaitable[None]]


@asynccontextmanager
async def client_of(
    world: MessageWorld, engine: Engine, issued: IssuedTokens
) -> AsyncIterator[Client]:
    """A client of the engine's API, as a run serves it."""
    live_series = EngineLiveSeries(world.built, engine, world.planner, world.words)
    attempt = Attempt(engine, world.planner, live_series)
    view = public_view(
        world.built, lambda: attempt, lambda: False, ReleaseLog(), SEALER.query_token, issued
    )
    transport = httpx.ASGITransport(create_app(view, frozenset({"localhost"})))
    async with Client(transport=transport, base_url="http://localhost:8765") as made:
        yield made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the list of tokens is."""
    return tmp_path / "shop.tokens"


async def on(
    path: Path, then: Then, world: MessageWorld | None = None, tick: int = 2
) -> MessageWorld:
    """Do something with a client of an engine that has come to a tick."""
    world = world or MessageWorld(WITH_ANALYSTS)

    async def told(engine: Engine) -> None:
        issued = IssuedTokens(path, SEALER, NAMES)
        async with client_of(world, engine, issued) as client:
            await then(client, IssuedTokens(path, SEALER, NAMES))  # another process's

    await world.told(told, tick)
    return world


def bearer(text: str) -> dict[str, str]:
    """The header with a token."""
    return {"Authorization": f"Bearer {text}"}


def made_for(issued: IssuedTokens, name: str, days: int = 30) -> dict[str, str]:
    """The header with a new token of an analyst's."""
    return bearer(issued.make(name, days, NOW)[1])


async def test_she_sees_who_she_is_and_what_she_may_spend(path: Path) -> None:
    async def ask(client: Client, issued: IssuedTokens) -> None:
        token, text = issued.make("ann", 30, NOW)
        account = {"total": "1", "spent": "0", "left": "1"}
        who = {"analyst": "ann", "token": token.id, "expires": token.expires}
        assert (await client.get("/api/me", headers=bearer(text))).json() == {
            **who,
            "epsilon": account,
        }
        done = await client.post("/api/queries", json=large("anns", "0.3"), headers=bearer(text))
        assert done.status_code == 201
        me = (await client.get("/api/me", headers=bearer(text))).json()
        assert me["epsilon"] == {"total": "1", "spent": "0.3", "left": "0.7"}
        other = (await client.get("/api/me", headers=made_for(issued, "bob"))).json()
        assert (other["analyst"], other["epsilon"]) == ("bob", account)
        mine = await client.get("/api/me", headers=bearer(SEALER.query_token()))
        assert mine.json() == {
            "analyst": "",
            "epsilon": {"total": "6", "spent": "4", "left": "2"},
        }

    await on(path, ask)


NOISY = {"name": "busy", "statistic": "alerts", "by": "country", "threshold": 50, "epsilon": "0.1"}


async def test_what_is_mostly_noise_is_told_and_then_confirmed(path: Path) -> None:
    async def ask(client: Client, issued: IssuedTokens) -> None:
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

    await on(path, ask)


async def test_who_spent_what_is_public_and_where_it_counts_is_not(path: Path) -> None:
    async def ask(client: Client, issued: IssuedTokens) -> None:
        ann, bob = made_for(issued, "ann"), made_for(issued, "bob")
        for name, epsilon, who in (("a1", "0.3", ann), ("a2", "0.2", ann), ("b1", "0.9", bob)):
            done = await client.post("/api/queries", json=large(name, epsilon), headers=who)
            assert done.status_code == 201
        assert (await client.delete("/api/queries/a2", headers=ann)).status_code == 200
        told = (await client.get("/api/queries")).json()["queries"]
        trail = [
            (one["analyst"], one["name"], one["epsilon"], one["start"], one["end"] is None)
            for one in told
            if one["created"]
        ]
        start = trail[0][3]
        assert start >= 3
        assert trail == [
            ("ann", "a1", "0.3", start, True),
            ("bob", "b1", "0.9", start, True),
            ("ann", "a2", "0.2", start, False),
        ]
        assert "amount" not in json.dumps(told)

    await on(path, ask)


async def test_what_an_error_is_for_is_told_with_it_where_it_is_not_plain(path: Path) -> None:
    mean = {"statistic": "mean", "of": "amount", "clamp": [0, 600], "step": 1, "epsilon": "0.3"}
    middle = {"statistic": "quantiles", "of": "amount", "clamp": [0, 600], "at": [0.5]}

    async def ask(client: Client, issued: IssuedTokens) -> None:
        ann = made_for(issued, "ann")
        for series, supposing in (
            ({**mean, "name": "m"}, "for 1,000 records"),
            ({**middle, "name": "q", "epsilon": "0.3"}, "in ranks"),
            (large("c", "0.3"), None),
        ):
            for route, status in (("/api/queries/preview", 200), ("/api/queries", 201)):
                told = await client.post(route, json=series, headers=ann)
                assert told.status_code == status
                assert told.json().get("supposing") == supposing
                assert ("supposing" in told.json()) is (supposing is not None)

    await on(path, ask)


async def test_a_preview_for_an_error_names_the_least_epsilon_and_what_stays_left(
    path: Path,
) -> None:
    async def ask(client: Client, issued: IssuedTokens) -> None:
        ann = made_for(issued, "ann")
        series = {key: value for key, value in large("anns").items() if key != "epsilon"}
        body = {**series, "error": 40}
        told = await client.post("/api/queries/preview", json=body, headers=ann)
        assert told.status_code == 200
        found = told.json()
        assert found["fits"] is True
        assert found["error"] <= 40
        assert 0 < float(found["asked"]) < 1
        assert float(found["after"]) == pytest.approx(1 - float(found["asked"]))
        assert (found["spent"], found["left"], found["largest"]) == ("0", "1", "1")
        assert found["derivation"]["source"]
        assert (await client.get("/api/me", headers=ann)).json()["epsilon"]["spent"] == "0"
        created = await client.post(
            "/api/queries", json={**series, "epsilon": found["asked"]}, headers=ann
        )
        assert created.status_code == 201
        assert created.json()["error"] == found["error"]
        assert created.json()["left"] == found["after"]

        dear = await client.post(
            "/api/queries/preview", json={**series, "name": "more", "error": 1}, headers=ann
        )
        refused = dear.json()
        assert (dear.status_code, refused["fits"], refused["error"]) == (200, False, 1)
        assert float(refused["asked"]) > 1
        assert "after" not in refused
        assert refused["largest"] == found["after"]
        less = {**series, "name": "more", "epsilon": refused["largest"]}
        fits = await client.post("/api/queries/preview", json=less, headers=ann)
        assert (fits.json()["fits"], fits.json()["after"]) == (True, "0")
        assert (await client.post("/api/queries", json=less, headers=ann)).status_code == 201
        again = await client.post("/api/queries", json={**less, "name": "yet"}, headers=ann)
        assert (again.status_code, again.json()["exit_code"]) == (409, 3)
        for word in ("analyst ann", "asks for epsilon", "spent 1", "0 left"):
            assert word in again.json()["detail"], again.json()["detail"]

    await on(path, ask)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"error": -1}, "error: must be a number"), ({"error": "few"}, "error: must be a number"),
        ({"error": 3, "epsilon": "0.1"}, "error: name either"), ({"error": 0, "statistic": "alerts"}, "by: "),
        ({"error": 3, "statistic": "s3cr3t"}, "statistic"), ({}, "epsilon: "),
    ],
)  # fmt: skip
async def test_a_preview_that_cannot_be_is_refused_with_its_key(
    path: Path, more: dict[str, Any], said: str
) -> None:
    async def ask(client: Client, issued: IssuedTokens) -> None:
        series = {key: value for key, value in large("anns").items() if key != "epsilon"}
        told = await client.post(
            "/api/queries/preview", json={**series, **more}, headers=made_for(issued, "ann")
        )
        assert (told.status_code, told.json()["exit_code"]) == (422, 2)
        assert said in told.json()["detail"]
        assert "s3cr3t" not in told.text

    await on(path, ask)


async def test_only_a_preview_takes_an_error(path: Path) -> None:
    async def ask(client: Client, issued: IssuedTokens) -> None:
        series = {**large("anns"), "error": 40}
        told = await client.post("/api/queries", json=series, headers=made_for(issued, "ann"))
        assert told.status_code == 422

    await on(path, ask)


async def test_nobody_halts_or_asks_or_pays_for_anothers_series(path: Path) -> None:
    async def ask(client: Client, issued: IssuedTokens) -> None:
        ann, bob = made_for(issued, "ann"), made_for(issued, "bob")
        mine = await client.post("/api/queries", json=large("anns", "0.1"), headers=ann)
        assert mine.status_code == 201
        tried = [
            await client.delete("/api/queries/anns", headers=bob),
            await client.delete("/api/queries/orders", headers=bob),  # the file's
            await client.post("/api/series/anns/ask", json={}, headers=bob),
            await client.post("/api/queries?analyst=ann", json=large("b"), headers=bob),
            await client.post("/api/queries/preview?analyst=ann", json=large("b"), headers=bob),
            await client.post(
                "/api/messages",
                json={"id": "x", "until": UNTIL, "do": "list", "analyst": "ann"},
                headers=bob,
            ),
        ]
        assert [told.status_code for told in tried] == [403] * len(tried)
        listed = (await client.get("/api/queries")).json()["queries"]
        assert [one["name"] for one in listed if one["end"] is None] == [
            "orders",
            "watched",
            "anns",
        ]
        assert (await client.delete("/api/queries/anns", headers=ann)).status_code == 200

    await on(path, ask)


async def tried(client: Client, header: dict[str, str]) -> list[httpx.Response]:
    """What every guarded route says to a token."""
    return [
        await client.request(method, where, headers=header, json=None if method != "POST" else {})
        for method, where in GUARDED
    ]


async def test_a_token_that_is_not_valid_opens_nothing(path: Path, tmp_path: Path) -> None:
    async def ask(client: Client, issued: IssuedTokens) -> None:
        made, revoked = issued.make("ann", 30, NOW)
        assert (await client.get("/api/me", headers=bearer(revoked))).status_code == 200
        issued.revoke(made.id, NOW)
        expired = issued.make("ann", 1, NOW - DAY_MS)[1]
        others = IssuedTokens(tmp_path / "other", Sealer(bytes(range(32)), "views"), NAMES)
        valid = issued.make("bob", 30, NOW)[1]
        for text, said in (
            (revoked, "was revoked"), (expired, "has expired"), (others.make("ann", 30, NOW)[1], "is no token of"),
            (valid[:-1], "is no token of"), (valid + "0", "is no token of"),
            (valid.partition(".")[2], "is no token of"), (f"{made.id}.", "is no token of"), ("", "needs `Auth"),
        ):  # fmt: skip
            for told in await tried(client, bearer(text)):
                assert told.status_code == 401, (text, told.text)
                assert told.headers["www-authenticate"] == "Bearer"
                assert said in told.json()["detail"]
                assert not text or text not in told.text
        in_url = await client.get(f"/api/me?token={valid}&access_token={valid}")
        assert in_url.status_code == 401

    world = await on(path, ask)
    assert world.answers == []


async def test_while_the_list_is_damaged_no_analyst_is_let_in_and_its_place_is_not_told(
    path: Path,
) -> None:
    async def ask(client: Client, issued: IssuedTokens) -> None:
        ann = made_for(issued, "ann")
        with path.open("a") as file:
            file.write("{")
        for told in await tried(client, ann):
            assert (told.status_code, told.json()["exit_code"]) == (503, 5)
            assert str(path) not in told.text
        operator = bearer(SEALER.query_token())
        assert (await client.get("/api/me", headers=operator)).status_code == 200
        assert (await client.get("/api/queries")).status_code == 200

    await on(path, ask)


async def test_her_rate_is_hers(path: Path) -> None:
    async def ask(client: Client, issued: IssuedTokens) -> None:
        ann, bob = made_for(issued, "ann"), made_for(issued, "bob")
        told = [
            await client.post("/api/queries/preview", json=large(f"a{at}"), headers=ann)
            for at in range(4)
        ]
        assert [one.status_code for one in told] == [200, 200, 200, 429]
        other = await client.post("/api/queries/preview", json=large("b"), headers=bob)
        assert other.status_code == 200

    await on(path, ask, MessageWorld(WITH_ANALYSTS, per_tick=3))


async def test_what_has_no_room_is_refused_alike_by_every_way(path: Path) -> None:
    """By the routes, as a message over HTTP, and from the queue: one text, kind `room`, 409, exit code 2."""
    world = MessageWorld(WITH_ANALYSTS | {"queries": {"series": "1"}}, watched=False)
    by_queue = message("q1", "create", "ann", series=large("late", "0.1"))
    told = list[str]()

    async def ask(client: Client, issued: IssuedTokens) -> None:
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

    await on(path, ask, world)
    queued = next(each for each in world.said() if each["id"] == "q1")["refused"]
    assert (queued["kind"], queued["exit_code"]) == ("room", 2)
    assert {*told, queued["detail"]} == {
        "live series: late is one series more, and analyst ann has 1 of the 1 that may run at once (queries.series), "
        "so none fits; halt early"
    }


async def test_a_token_goes_on_after_a_restart(path: Path) -> None:
    world, kept = MessageWorld(WITH_ANALYSTS), list[dict[str, str]]()

    async def create(client: Client, issued: IssuedTokens) -> None:
        kept.append(made_for(issued, "ann"))
        done = await client.post("/api/queries", json=large("anns", "0.1"), headers=kept[0])
        assert done.status_code == 201

    async def halt(client: Client, issued: IssuedTokens) -> None:
        name = {"name": "anns", "statistic": "count", "epsilon": "0.1"}
        taken = await client.post("/api/queries/preview", json=name, headers=kept[0])
        assert (taken.status_code, taken.json()["detail"][:6]) == (422, "name: ")
        assert (await client.get("/api/me", headers=kept[0])).json()["epsilon"]["spent"] == "0.1"
        assert (await client.delete("/api/queries/anns", headers=kept[0])).status_code == 200

    await on(path, create, world)
    world.store.commits = world.store.commits[:-1]
    shown = json.loads(world.bodies[-1])["tick"]
    world.bodies[:] = [body for body in world.bodies if json.loads(body)["tick"] < shown]
    await on(path, halt, world, tick=10)


async def test_the_schema_says_what_can_be_asked_and_needs_no_token(path: Path) -> None:
    async def ask(client: Client, _issued: IssuedTokens) -> None:
        told = (await client.get("/api/schema")).json()
        assert told["fields"] == [
            {"name": "country", "type": "category", "nullable": False, "domain": ["DE", "FR"]},
            {"name": "amount", "type": "integer", "nullable": True},
        ]
        keys = {
            one["statistic"]: {key["key"]: key["required"] for key in one["keys"]}
            for one in told["statistics"]
        }
        assert keys["count"] == {"windows": False}
        assert keys["alerts"]["threshold"] is True
        assert {"ratio", "distinct", "monitor"}.isdisjoint(keys)
        assert all(one["about"].endswith((".", "?")) for one in told["statistics"])

    await on(path, ask)
