"""An analyst on a Kafka that asks for a login has the rights of the documentation and no others."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from kafka.kafka_worlds import create
from kafka.secured_broker import READ, TOPIC, USERS, WRITE, Secured, grant
from kafka.secured_worlds import SecuredWorld

from stream_dp.client.kafka_messages import talking
from stream_dp.client.message_text import fresh_id, message_text
from stream_dp.errors import WorldError
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.log.reader import reading

_LITERAL = 3
TOKEN = "5e" * 32


@pytest.fixture
def world(
    secured: Secured, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> SecuredWorld:
    """A pipeline whose engine, which comes in by SCRAM, has run and is off now."""
    monkeypatch.setenv("STREAM_DP_HOME", str(tmp_path / "home"))
    mine = SecuredWorld(secured, tmp_path, name, "SCRAM").write()
    asyncio.run(create(secured.admin, mine.topic, 1))
    mine.grant()
    assert mine.feed() == 0
    assert mine.command("run", mine.file, "--until-end", "--key-file", mine.key()) == 0
    return mine


@pytest.fixture
def ann(world: SecuredWorld) -> KafkaSettings:
    """How the analyst comes in: by PLAIN, as a user of her own."""
    return world.secured.settings("PLAIN")


def granted(world: SecuredWorld, *rights: tuple[str, int]) -> None:
    """Give the analyst rights on the pipeline's topics."""
    user = USERS["PLAIN"]
    every = [(TOPIC, f"{world.name}.{which}", _LITERAL, right, user) for which, right in rights]
    asyncio.run(grant(world.secured, every))


async def sent(settings: KafkaSettings, pipeline: str) -> str:
    """Send a message that no engine answers; what the client says in the end."""
    name = fresh_id()
    with pytest.raises(WorldError) as waited:
        async with talking(settings, pipeline, TOKEN) as messages:
            await messages.answer(message_text("list", {}, name, "ann"), name, 0.5)
    return str(waited.value)


def test_write_on_the_queries_and_read_on_the_answers_are_enough_and_show_nothing_else(
    world: SecuredWorld, ann: KafkaSettings
) -> None:
    granted(world, ("queries", WRITE), ("answers", READ))
    assert "no engine of" in asyncio.run(sent(ann, world.name))

    async def looked(topic: str) -> None:
        async with reading(replace(ann, patience_s=2.0, retry_s=1.0), topic) as log:
            await log.last()

    for which in ("queries", "releases", "private.journal", "private.lease"):
        with pytest.raises(WorldError):
            asyncio.run(looked(f"{world.name}.{which}"))


@pytest.mark.parametrize(
    ("rights", "named"),
    [((), "queries"), ((("answers", READ),), "queries"), ((("queries", WRITE),), "answers")],
)
def test_a_right_that_is_missing_is_told_by_its_topic(
    world: SecuredWorld, ann: KafkaSettings, rights: tuple[tuple[str, int], ...], named: str
) -> None:
    granted(world, *rights)
    assert f"{world.name}.{named}" in asyncio.run(sent(ann, world.name))
