"""Messages to a real engine by HTTP, the same bytes for the same id; and which answer of a topic is one's own."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from live_acts import drained
from unit.live.live_series_worlds import SEALER
from unit.live.message_worlds import WITH_ANALYSTS, MessageWorld, large, text
from unit.operate.run.test_asking_http import (
    NAMES,
    Client,
    bearer,
    client_for,
    engine_at,
    set_back,
)

from stream_dp.client.kafka_messages import KafkaMessages
from stream_dp.client.message_text import fresh_id, message_text
from stream_dp.core.time import TickGrid
from stream_dp.engine.engine import Engine
from stream_dp.engine.messages.conversation import Conversation, body_of, not_accepted
from stream_dp.errors import NotAccepted, StreamDPError, WorldError
from stream_dp.journal.answer_body import AnswerCut, Answered, RefusalKind
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.operate.run.live_series import Attempt, EngineLiveSeries
from stream_dp.server.view import PublicView, ReleaseLog


def right(name: str = "", key: str = "") -> dict[str, str]:
    keyed = {"Idempotency-Key": key} if key else {}
    return {**bearer(SEALER.query_token(name)), "Content-Type": "application/json", **keyed}


@asynccontextmanager
async def on(world: MessageWorld, tick: int = 2) -> AsyncIterator[tuple[Client, Engine]]:
    async with engine_at(world, tick) as engine:
        attempt = Attempt(engine, world.words)
        live_series = EngineLiveSeries(world.built, lambda: attempt, lambda: False)
        tokens = {name: SEALER.query_token(name) for name in NAMES}
        view = PublicView(dict, dict, dict, ReleaseLog(), live_series, SEALER.query_token(), tokens)
        async with client_for(view) as client:
            yield client, engine


async def twice(world: MessageWorld, then: Callable[[Client, Engine], Awaitable[None]]) -> None:
    """Do something with an engine, and with the one that goes on before its last commit."""
    async with on(world) as (client, engine):
        await then(client, engine)
    async with on(set_back(world), 10) as (client, engine):
        await then(client, engine)


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

    await twice(world, ask)
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

    await twice(world, ask)


async def test_a_series_is_asked_for_some_of_what_it_released() -> None:
    by = {"name": "by", "statistic": "histogram", "by": "country", "method": "tree", "epsilon": "1"}
    world = MessageWorld(WITH_ANALYSTS)

    async with on(world) as (client, _):
        made = await client.post("/api/queries", json=by, headers=right())
        assert made.status_code == 201
        none = await client.post("/api/series/by/ask", content="{}", headers=right())
        assert none.json()["refused"]["detail"].startswith("series: has released nothing")
    async with on(set_back(world), 10) as (client, _):
        bodies = map(json.loads, reversed(world.bodies))
        last = next(body for body in bodies if body["series"] == "by")
        shared = {key: value for key, value in last.items() if key not in ("v", "values")}
        for parameters, keys in (
            ({}, ["DE", "FR", "other"]),
            ({"keys": ["other", "DE"]}, ["DE", "other"]),
            ({"from": "FR", "to": "FR"}, ["FR"]),
        ):
            asked = await client.post("/api/series/by/ask", json=parameters, headers=right("bob"))
            values = {key: last["values"][key] for key in keys}
            assert asked.json()["answer"] == {**shared, "values": values}
        wrongs: list[tuple[Any, str]] = [
            ({"keys": ["XX"]}, "keys: "),
            ({"from": "FR", "to": "DE"}, "from: "),
            ({"keys": ["DE"], "to": "DE"}, "keys: "),
            ({"threshold": 3}, "threshold: "),
            ({"id": "x"}, "id: "),
            ([], "a message must be a JSON object"),
        ]
        for wrong, said in wrongs:
            refused = await client.post("/api/series/by/ask", json=wrong, headers=right())
            told = refused.json()
            assert refused.status_code == 422, wrong
            assert told.get("refused", told)["detail"].startswith(said), wrong


HERE = 17  # where the message comes to lie
AT = AnswerCut.before(3, TickGrid(0, 1000))
NAME = fresh_id()


def answer_of(
    answered: Mapping[str, Any] | StreamDPError, *places: int, name: str | None = NAME
) -> bytes:
    return body_of(1, name, "ask", AT, answered, places)


def refusal(kind: RefusalKind, *places: int) -> bytes:
    return answer_of(not_accepted(kind), *places, name=None)


class Topics:
    """A queue in which the message gets the place `HERE`, and a topic with `bodies` in which one comes at a time."""

    def __init__(self, bodies: list[bytes]) -> None:
        self.bodies = list(bodies)

    async def send_and_wait(self, topic: str, value: bytes, partition: int) -> SimpleNamespace:
        return SimpleNamespace(offset=HERE)

    async def getmany(self, place: Any, timeout_ms: int) -> dict[Any, list[SimpleNamespace]]:
        return {place: [SimpleNamespace(value=self.bodies.pop(0))]} if self.bodies else {}


async def answered(bodies: list[bytes], recorded: bytes | None = None) -> bytes:
    """What comes back for a message, where the topic brings these answers behind it."""
    messages = KafkaMessages(KafkaSettings("127.0.0.1:9"), "shop", "5e" * 32)
    messages._reader = messages._producer = Topics(bodies)

    async def found(name: str) -> bytes | None:
        assert name == NAME
        return recorded

    messages.recorded = found  # type: ignore[method-assign]
    return await messages.answer(message_text("ask", {"series": "a"}, NAME), NAME, 0.05)


async def test_the_answer_that_names_the_place_is_the_one() -> None:
    mine = answer_of({"series": "a"}, HERE)
    others = [
        answer_of({}, 16, name="x"),
        refusal(RefusalKind.UNREADABLE, 3, 4),
        answer_of({}, name="y"),
    ]
    assert await answered([*others, mine]) == mine


@pytest.mark.parametrize("places", [(5,), ()], ids=["in the queue", "over HTTP"])
async def test_a_late_answer_to_another_message_of_the_id_is_not_taken(places: tuple[int]) -> None:
    """The id was used for another message, which is answered only now."""
    another = answer_of({"series": "b"}, *places)
    with pytest.raises(NotAccepted, match="id: was used for another message") as found:
        await answered([another, refusal(RefusalKind.USED, 16, HERE)], another)
    assert (found.value.kind, found.value.exit_code) == ("used", 2)


async def test_what_came_before_has_the_answer_that_it_had() -> None:
    first = answer_of({"series": "a"}, 5)
    assert await answered([first, refusal(RefusalKind.REPEATED, HERE)], first) == first


async def test_of_records_that_are_refused_together_each_has_its_own_reason() -> None:
    """Also where there are more than an answer_of names places for; the answer_of to an accepted one lies before it."""
    talk = Conversation()
    for place in range(100):
        kind = RefusalKind.USED if place in (HERE, 3) else RefusalKind.UNREADABLE
        talk.refuse(not_accepted(kind), place)
    (line,) = drained(talk, AT)
    with pytest.raises(NotAccepted, match="id: was used for another message"):
        await answered([line.body])
    crowd = Conversation()
    for place in range(HERE - 60, HERE + 40):
        if place != HERE:
            crowd.refuse(not_accepted(RefusalKind.SIGNATURE), place)
    (line,) = drained(crowd, AT)
    mine = answer_of({"series": "a"}, HERE)
    assert await answered([mine, line.body]) == mine
    with pytest.raises(NotAccepted, match="signature: made neither"):
        await answered([line.body])


async def test_a_twin_that_goes_by_the_id_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answered, "names", lambda self, place: self.id in (NAME, None))
    another = answer_of({"series": "b"}, 5)
    assert await answered([another, refusal(RefusalKind.USED, HERE)], another) == another


async def test_who_waits_in_vain_learns_it() -> None:
    with pytest.raises(WorldError, match=f"no engine of shop answered .* under the id {NAME}"):
        await answered([answer_of({}, 5, name="x")])
