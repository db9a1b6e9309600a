"""Messages by HTTP to a real engine: the same bytes for the same id, also after a restart; whose token may do what."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
from unit.live.live_series_worlds import SEALER
from unit.live.message_worlds import UNTIL, WITH_ANALYSTS, MessageWorld, large, text

from stream_dp.engine.engine import Engine
from stream_dp.operate.run.live_series import EngineLiveSeries
from stream_dp.server.api import create_app
from stream_dp.server.view import PublicView, ReleaseLog

NAMES = ("ann", "bob")
Client = httpx.AsyncClient


@asynccontextmanager
async def client_of(world: MessageWorld, engine: Engine) -> AsyncIterator[Client]:
    """A client of the engine's API."""
    live_series = EngineLiveSeries(world.built, engine, world.planner, world.words)
    tokens = {name: SEALER.query_token(name) for name in NAMES}
    view = PublicView(dict, dict, dict, ReleaseLog(), live_series, SEALER.query_token(), tokens)
    transport = httpx.ASGITransport(create_app(view, frozenset({"localhost"})))
    async with Client(transport=transport, base_url="http://localhost:8765") as made:
        yield made


def right(name: str = "", key: str = "") -> dict[str, str]:
    """The headers of the operator, or of an analyst."""
    keyed = {"Idempotency-Key": key} if key else {}
    bearer = {"Authorization": f"Bearer {SEALER.query_token(name)}"}
    return {**bearer, "Content-Type": "application/json", **keyed}


async def on(
    world: MessageWorld, then: Callable[[Client, Engine], Awaitable[None]], tick: int = 2
) -> None:
    """Do something with a client of an engine that has come to a tick."""

    async def told(engine: Engine) -> None:
        async with client_of(world, engine) as client:
            await then(client, engine)

    await world.told(told, tick)


def set_back(world: MessageWorld) -> MessageWorld:
    """What a crash before the last tick leaves."""
    world.store.commits = world.store.commits[:-1]
    shown = json.loads(world.bodies[-1])["tick"]
    world.bodies[:] = [body for body in world.bodies if json.loads(body)["tick"] < shown]
    return world


async def test_the_same_message_gives_the_same_bytes_before_and_after_a_restart() -> None:
    world, found = MessageWorld(WITH_ANALYSTS), dict[str, httpx.Response]()
    asks = {
        "a": text("a", "create", "ann", series=large("anns", "0.1")),
        "b": text("b", "ask", series="watched", threshold=10**6),
        "c": text("c", "ask", series="nobody"),
        "d": text("d", "create", series=large("dear", "9")),
    }

    async def ask(client: Client, _engine: Engine) -> None:
        for name, said in asks.items():
            answer = await client.post("/api/messages", content=said, headers=right())
            again = await client.post("/api/messages", content=said, headers=right())
            assert answer.content == again.content
            assert answer.content in world.answers
            assert answer.status_code == again.status_code
            assert found.setdefault(name, answer).content == answer.content
            other = await client.post(
                "/api/messages", content=f'{said[:-1]}, "more": 1}}', headers=right()
            )
            assert (other.status_code, other.json()["exit_code"]) == (409, 2)

    await on(world, ask)
    await on(set_back(world), ask, tick=10)
    assert [found[name].status_code for name in asks] == [200, 200, 404, 409]
    assert len(world.answers) == len(asks)


async def test_a_request_with_a_key_is_done_once() -> None:
    world, first = MessageWorld(WITH_ANALYSTS), list[Any]()

    async def ask(client: Client, engine: Engine) -> None:
        said = json.dumps(large("anns", "0.1"))
        done = await client.post("/api/queries?analyst=ann", content=said, headers=right("", "k1"))
        asked = await client.post(
            "/api/series/orders/ask", content="{}", headers=right("bob", "k2")
        )
        first.append((done.status_code, done.json(), asked.content))
        assert first[0] == first[-1]
        assert first[0][0] == 201
        assert len(world.answers) == 2
        for content, key in ((f"{said} ", "k1"), (said, "k2")):
            other = await client.post("/api/queries", content=content, headers=right("", key))
            assert other.status_code == 409
        assert len(engine.admission.registry.live) == 3

    await on(world, ask)
    await on(set_back(world), ask, tick=10)


async def test_an_analyst_pays_from_her_own_ledger_and_ends_what_is_hers() -> None:
    world = MessageWorld(WITH_ANALYSTS)

    async def ask(client: Client, engine: Engine) -> None:
        mine = await client.post("/api/queries", json=large("anns", "0.1"), headers=right("ann"))
        assert mine.status_code == 201
        assert engine.admission.subledgers.running["anns"][0] == "ann"
        number = len(world.answers)
        body = large("b", "0.1")
        for path in ("/api/queries?analyst=bob", "/api/queries/preview?analyst=bob"):
            refused = await client.post(path, json=body, headers=right("ann"))
            assert (refused.status_code, refused.json()["exit_code"]) == (403, 2)
        assert len(world.answers) == number
        assert (await client.delete("/api/queries/anns", headers=right("bob"))).status_code == 403
        said = {"id": "x", "until": UNTIL, "do": "list", "analyst": "bob"}
        assert (
            await client.post("/api/messages", json=said, headers=right("ann"))
        ).status_code == 403
        asked = await client.post("/api/series/anns/ask", content="{}", headers=right("bob"))
        assert (asked.status_code, asked.json()["refused"]["kind"]) == (403, "forbidden")
        assert (await client.delete("/api/queries/anns", headers=right("ann"))).status_code == 200

    await on(world, ask)


async def test_a_series_is_asked_for_some_of_what_it_released() -> None:
    series = [
        {"name": "by", "statistic": "histogram", "by": "country", "method": "tree", "epsilon": "1"}
    ]
    world = MessageWorld(WITH_ANALYSTS)

    async def ask(client: Client, engine: Engine) -> None:
        assert (
            await client.post("/api/queries", json=series[0], headers=right())
        ).status_code == 201
        none = await client.post("/api/series/by/ask", content="{}", headers=right())
        assert none.json()["refused"]["detail"].startswith("series: has not released anything")

    async def asks(client: Client, engine: Engine) -> None:
        last = next(
            body for body in map(json.loads, reversed(world.bodies)) if body["series"] == "by"
        )
        shared = {
            key: last[key] for key in ("series", "sequence", "tick", "end", "band", "confidence")
        }
        for parameters, keys in (
            ({}, ["DE", "FR", "other"]), ({"keys": ["other", "DE"]}, ["DE", "other"]),
            ({"from": "FR"}, ["FR", "other"]), ({"to": "FR"}, ["DE", "FR"]), ({"from": "FR", "to": "FR"}, ["FR"]),
        ):  # fmt: skip
            asked = await client.post("/api/series/by/ask", json=parameters, headers=right("bob"))
            values = {key: last["values"][key] for key in keys}
            assert asked.json()["answer"] == {**shared, "values": values}
        wrongs: list[tuple[Any, str]] = [
            ({"keys": []}, "keys: "), ({"keys": ["XX"]}, "keys: "), ({"keys": "DE"}, "keys: "),
            ({"from": "XX"}, "from: "), ({"from": "FR", "to": "DE"}, "from: "),
            ({"keys": ["DE"], "to": "DE"}, "keys: "), ({"threshold": 3}, "threshold: "), ({"id": "x"}, "id: "),
            ([], "a message must be a JSON object"),
        ]  # fmt: skip
        for wrong, said in wrongs:
            refused = await client.post("/api/series/by/ask", json=wrong, headers=right())
            told = refused.json()
            assert refused.status_code == 422, wrong
            assert told.get("refused", told)["detail"].startswith(said), wrong

    await on(world, ask)
    await on(set_back(world), asks, tick=10)
