"""The topics of messages on a real broker: the ports' contracts, what the topics must be, and what nobody can stop."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from faults.talk_checker import Talk, talk_findings
from kafka.hostile_batches import HOSTILE
from kafka.kafka_worlds import Parts, administering, create, half_a_transaction, visible, writing
from kafka.raw_wire import Wire
from kafka.talking_worlds import Analyst, TalkingWorld, fed, page, running, until_topics

from stream_dp.client.kafka_messages import talking
from stream_dp.client.message_text import fresh_id, message_text
from stream_dp.engine.ports import Answers, Question, Questions
from stream_dp.errors import FailClosed, NotAccepted, UnknownMechanism, UsageError, WorldError
from stream_dp.journal.answer_body import read_answer
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.topics import config
from stream_dp.kafka.log.lease import KafkaLease
from stream_dp.kafka.log.public import KafkaAnswers, KafkaQuestions
from stream_dp.live.envelope import LARGEST_MESSAGE, write_envelope
from stream_dp.testing.port_checks import (
    check_answers,
    check_answers_versions,
    check_questions,
    check_questions_hostile,
    sample_answer,
    sample_answers,
)

Put = Callable[[bytes], Awaitable[None]]
STAMPED = {"message_timestamp_type": "LogAppendTime"}


@pytest.mark.parametrize("check", [check_answers, check_answers_versions])
async def test_the_contract_of_answers_holds(
    parts: Parts, check: Callable[[Callable[[], Answers]], Awaitable[None]]
) -> None:
    await check(lambda: KafkaAnswers(KafkaLease(parts.settings, parts.name)))


@pytest.mark.parametrize("check", [check_questions, check_questions_hostile])
async def test_the_contract_of_a_queue_holds(
    parts: Parts, check: Callable[[Callable[[], Questions], Put], Awaitable[None]]
) -> None:
    async with writing(parts.kafka) as producer:

        async def put(value: bytes) -> None:
            await producer.send_and_wait(parts.topic("queries"), value, partition=0)

        await check(lambda: KafkaQuestions(parts.settings, parts.name), put)


async def test_answers_have_the_id_as_key_and_the_cut_as_time(parts: Parts) -> None:
    async def newest() -> KafkaAnswers:
        made = KafkaAnswers(KafkaLease(parts.settings, parts.name))
        parts.closing.append(made.close)
        await made.open()
        return made

    for _ in range(2):
        answers = await newest()
        await answers.publish(sample_answers(1, 4))
        await half_a_transaction(answers._lease, parts.topic("answers"), b"aborted")
    found = await visible(parts.kafka, parts.topic("answers"))
    assert [(one.key, one.timestamp, one.headers) for one in found] == [
        (b"id-1", 2_000, ()), (b"id-2", 3_000, ()), (None, 4_000, ()),
    ]  # fmt: skip
    assert await (await newest()).last() == sample_answer(3).body


async def opened(parts: Parts) -> KafkaQuestions:
    made = KafkaQuestions(parts.settings, parts.name)
    parts.closing.append(made.close)
    await made.open()
    return made


async def test_the_topic_of_messages_stamps_on_arrival_and_forgets(parts: Parts) -> None:
    await opened(parts)
    async with administering(parts.kafka) as admin:
        found = await config(admin, parts.topic("queries"))
    wanted = {
        "message.timestamp.type": "LogAppendTime", "cleanup.policy": "delete",
        "compression.type": "uncompressed", "retention.ms": str(7 * 24 * 3_600_000),
    }  # fmt: skip
    assert {key: found[key] for key in wanted} == wanted


@pytest.mark.parametrize(
    ("partitions", "wrong", "says"),
    [
        (1, {"message_timestamp_type": "CreateTime"}, "message.timestamp.type=LogAppendTime"),
        (1, {**STAMPED, "cleanup_policy": "compact"}, "cleanup.policy=delete"),
        (2, STAMPED, "one partition"),
    ],
)
async def test_a_topic_that_would_believe_lose_or_mix_is_refused(
    parts: Parts, partitions: int, wrong: dict[str, str], says: str
) -> None:
    await create(parts.kafka, parts.topic("queries"), partitions, **wrong)
    with pytest.raises(FailClosed, match=rf"{parts.name}.queries.*{says}"):
        await opened(parts)


async def taken(questions: KafkaQuestions, until: int) -> list[Question]:
    found: list[Question] = []
    async with asyncio.timeout(120):
        while not found or found[-1].place < until - 1:
            found += await questions.read()
    return found


async def test_whatever_a_broker_takes_has_its_place_and_what_follows_is_read(parts: Parts) -> None:
    """On a topic that stores what it gets as it is packed: bombs, packings that lie, headers that are no text."""
    large = {**STAMPED, "max_message_bytes": "10000000"}
    topic = await create(parts.kafka, parts.topic("queries"), 1, **large)

    def put() -> int:
        with Wire(parts.kafka) as wire:
            return sum(wire.produce(topic, 0, one.encoded()).error == 0 for one in HOSTILE)

    assert await asyncio.to_thread(put) > 50
    async with writing(parts.kafka) as producer:
        last = (await producer.send_and_wait(topic, b"last", partition=0)).offset
    questions = await opened(parts)
    await questions.seek(-1)
    found = await taken(questions, last + 1)
    assert [one.place for one in found] == list(range(last + 1))
    assert found[-1].value == b"last"
    await questions.seek(last - 100)
    assert await taken(questions, last + 1) == found[last - 100 :]


async def test_a_message_counts_once_its_transaction_is_committed(parts: Parts) -> None:
    questions, topic = await opened(parts), parts.topic("queries")
    for attempt in range(2):  # the second one aborts what the first one left open
        lease = KafkaLease(parts.settings, f"{parts.name}.other")
        parts.closing.append(lease.close)
        await lease.start()
        if attempt == 0:
            await half_a_transaction(lease, topic, b"in vain")
    async with writing(parts.kafka) as producer:
        last = (await producer.send_and_wait(topic, b"good", partition=0)).offset
    await questions.seek(-1)
    assert [one.value for one in await taken(questions, last + 1)] == [b"good"]


async def test_a_topic_made_anew_is_read_from_its_first_record(parts: Parts) -> None:
    questions = await opened(parts)
    async with writing(parts.kafka) as producer:
        await producer.send_and_wait(parts.topic("queries"), b"first", partition=0)
    await questions.seek(1_000)
    assert [one.value for one in await taken(questions, 1)] == [b"first"]


async def test_the_code_of_the_page_talks_to_an_engine(kafka: str, tmp_path: Path) -> None:
    world = await TalkingWorld.made(tmp_path, kafka)
    async with fed(world), running(world):
        await until_topics(world)
        talk = page()["talk"](kafka, world.token("ann"), world.name)
        answers = await asyncio.wait_for(talk, 60)
    assert [one["do"] for one in answers[:1] + answers[-2:]] == ["create", "ask", "halt"]
    assert answers[0]["answer"]["name"] == answers[-1]["answer"]["name"] == "large"
    assert set(answers[-2]["answer"]) >= {"value", "band", "tick"}
    assert all(one["refused"]["kind"] == "usage" for one in answers[1:-2])


HOSTILE_VALUES: dict[str, bytes | None] = {
    "a tombstone": None,
    "nothing": b"",
    "no JSON": b"no json",
    "not UTF-8": b"\xff\xfe",
    "brackets": b"[" * 200_000,
    "a future version": b'{"v": 2, "message": {}, "signature": []}',
    "a bare message": b'{"id": "a", "until": "2099-01-01T00:00:00Z", "do": "list"}',
    "another signature": b'{"v": 1, "message": "{}", "signature": "0"}',
    "700 kB": b" " * 700_000,
}


def refused_messages(analyst: Analyst) -> dict[str, tuple[bytes, str]]:
    """Envelopes that are signed, and the kind by which each is refused."""
    token, name = analyst.world.token("ann"), analyst.world.name

    def signed(**said: Any) -> bytes:
        return write_envelope(token, name, json.dumps({**analyst.message("list"), **said}))

    return {
        "expired": (signed(until="2020-01-01T00:00:00Z"), "expired"),
        "valid for too long": (signed(until="2099-01-01T00:00:00Z"), "expired"),
        "another analyst's": (signed(analyst="bob"), "signature"),
        "the operator's": (signed(analyst=""), "signature"),
        "an id that is none": (signed(id="a b"), "unreadable"),
        "no text of JSON": (write_envelope(token, name, "x" * LARGEST_MESSAGE), "unreadable"),
        "another pipeline's": (
            write_envelope(token, f"{name}x", json.dumps(analyst.message("list"))), "signature",
        ),
    }  # fmt: skip


async def test_an_engine_goes_on_past_hostile_messages_and_answers(
    kafka: str, tmp_path: Path
) -> None:
    world = await TalkingWorld.made(tmp_path, kafka)
    async with fed(world), running(world) as run:
        await until_topics(world)
        async with Analyst(world) as analyst:
            before = await analyst.ask("list")
            async with asyncio.timeout(60):  # when ticks begin is known with the first release
                while before["answer"]["queries"][0]["start_time"] is None:
                    await asyncio.sleep(0.2)
                    before = await analyst.ask("list")
            kinds = refused_messages(analyst)  # first: twenty places of a reason are named a tick
            places = {}
            for what, (envelope, _) in kinds.items():
                sent = await analyst.producer.send_and_wait(world.queries, envelope)
                places[what] = sent.offset
            for value in HOSTILE_VALUES.values():
                await analyst.producer.send_and_wait(world.queries, value, key=b"\xff\xfe")
            for batch in HOSTILE:
                if not any(word in batch.name for word in ("MB", "nulls")):
                    await asyncio.to_thread(put_raw, kafka, world.queries, batch.encoded())
            asked = await analyst.ask("ask", series="nobody")
            after = await analyst.ask("list")
            queue: dict[int, str | None] = dict.fromkeys(range(max(analyst.places.values()) + 1))
            queue |= {place: name for name, place in analyst.places.items()}
            async with asyncio.timeout(120):  # what is no message is told at a tick
                while talk_findings(  # noqa: ASYNC110
                    Talk(queue, await world.public(), await world.durable())
                ):
                    await asyncio.sleep(0.2)
            assert run.poll() is None
    assert before["answer"] == after["answer"]
    assert asked["refused"]["kind"] == "unknown"
    said = [read_answer(one.body) for one in await world.public() if one.committed]
    by_place = {
        what: [found.kind for one in said if (found := one.refusal(place)) is not None]
        for what, place in places.items()
    }
    assert by_place == {what: [kind] for what, (_, kind) in kinds.items()}
    assert "no json" not in str(said)
    later = (await world.commits())[1:]
    assert [one for one in later if one["changes"] or one["charges"]] == []
    assert all(len(one["seeds"]) == len(one["ticks"]) for one in later)  # no randomness either


def put_raw(kafka: str, topic: str, batch: bytes) -> None:
    """Send whatever bytes; the broker may refuse them."""
    with Wire(kafka) as wire:
        wire.produce(topic, 0, batch)


async def test_whoever_waits_in_vain_learns_it_and_a_used_id_has_its_answer(
    kafka: str, settings: KafkaSettings, tmp_path: Path
) -> None:
    world = await TalkingWorld.made(tmp_path, kafka)
    token = world.token("ann")
    with pytest.raises(WorldError, match=r"queries.*does not exist.*The engine of"):
        async with talking(settings, world.name, token):
            pass
    name = fresh_id()
    text = message_text("list", {}, name, "ann")
    async with running(world):
        await until_topics(world)
    async with talking(settings, world.name, token) as messages:
        with pytest.raises(WorldError, match=f"no engine .* under the id {name}"):
            await messages.answer(text, name, 1.0)
        unheard = fresh_id()
        with pytest.raises(WorldError, match=f"under the id {unheard}"):
            await messages.answer(message_text("list", {}, unheard, "ann"), unheard, 1.0)
        assert await messages.recorded(name) is None
        async with fed(world), running(world):
            # the first message of this id is answered only now, and its answer is not that to another one
            halting = message_text("halt", {"series": "all"}, unheard, "ann")
            with pytest.raises(NotAccepted, match="id: was used for another message"):
                await messages.answer(halting, unheard)
            later = await messages.answer(text, name)  # to the first one: this is a repetition
            assert read_answer(later).id == name
            assert await messages.recorded(name) == later
            other = message_text("ask", {"series": "all"}, name, "ann")
            with pytest.raises(NotAccepted, match="id: was used for another message") as refused:
                await messages.answer(other, name)
            assert refused.value.kind == "used"
            assert await messages.recorded(name) == later
            assert await messages.answer(text, name) == later
            for do, said, kind in (
                ("ask", {"series": "nobody"}, UnknownMechanism),
                ("ask", {"series": "all", "threshold": 7}, UsageError),
            ):
                other = fresh_id()
                with pytest.raises(kind):
                    await messages.answer(message_text(do, said, other, "ann"), other)
            other = fresh_id()
            with pytest.raises(UsageError, match="signature"):
                await messages.answer(message_text("list", {}, other, "bob"), other)
