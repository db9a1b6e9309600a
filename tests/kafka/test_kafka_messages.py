"""The topics of messages on a real broker: the ports' contracts, what the topics must be, and what nobody can stop."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from faults.talk_checker import Talk, talk_findings
from kafka.hostile_batches import HOSTILE
from kafka.kafka_worlds import Close, administering, create, half_a_transaction, visible, writing
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
from stream_dp.kafka.log.public import KafkaAnswers
from stream_dp.kafka.log.questions import KafkaQuestions
from stream_dp.live.envelope import LARGEST_MESSAGE, write_envelope
from stream_dp.testing.sequence_checks import (
    check_answers,
    check_answers_versions,
    check_questions,
    check_questions_hostile,
    sample_answer,
    sample_answers,
)

Put = Callable[[bytes], Awaitable[None]]


@pytest.mark.parametrize("check", [check_answers, check_answers_versions])
async def test_the_contract_of_answers_holds(
    settings: KafkaSettings, name: str, check: Callable[[Callable[[], Answers]], Awaitable[None]]
) -> None:
    await check(lambda: KafkaAnswers(KafkaLease(settings, name)))


@pytest.mark.parametrize("check", [check_questions, check_questions_hostile])
async def test_the_contract_of_a_queue_holds(
    kafka: str,
    settings: KafkaSettings,
    name: str,
    check: Callable[[Callable[[], Questions], Put], Awaitable[None]],
) -> None:
    async with writing(kafka) as producer:

        async def put(value: bytes) -> None:
            await producer.send_and_wait(f"{name}.queries", value, partition=0)

        await check(lambda: KafkaQuestions(settings, name), put)


async def test_answers_have_the_id_as_key_and_the_cut_as_time(
    kafka: str, settings: KafkaSettings, name: str, closing: list[Close]
) -> None:
    for _ in range(2):
        answers = KafkaAnswers(KafkaLease(settings, name))
        closing.append(answers.close)
        await answers.open()
        await answers.publish(sample_answers(1, 4))
        await half_a_transaction(answers._lease, f"{name}.answers", b"aborted")
    found = await visible(kafka, f"{name}.answers")
    assert [(one.key, one.timestamp, one.headers) for one in found] == [
        (b"id-1", 2_000, ()), (b"id-2", 3_000, ()), (None, 4_000, ()),
    ]  # fmt: skip
    newest = KafkaAnswers(KafkaLease(settings, name))
    closing.append(newest.close)
    await newest.open()
    assert await newest.last() == sample_answer(3).body


async def opened(settings: KafkaSettings, name: str, closing: list[Close]) -> KafkaQuestions:
    made = KafkaQuestions(settings, name)
    closing.append(made.close)
    await made.open()
    return made


async def test_the_topic_of_messages_stamps_on_arrival_and_forgets(
    kafka: str, settings: KafkaSettings, name: str, closing: list[Close]
) -> None:
    await opened(settings, name, closing)
    async with administering(kafka) as admin:
        found = await config(admin, f"{name}.queries")
    wanted = {
        "message.timestamp.type": "LogAppendTime", "cleanup.policy": "delete",
        "compression.type": "uncompressed", "retention.ms": str(7 * 24 * 3_600_000),
    }  # fmt: skip
    assert {key: found[key] for key in wanted} == wanted


@pytest.mark.parametrize(
    ("wrong", "mend"),
    [
        ({"message_timestamp_type": "CreateTime"}, "message.timestamp.type=LogAppendTime"),
        (
            {"message_timestamp_type": "LogAppendTime", "cleanup_policy": "compact"},
            "cleanup.policy=delete",
        ),
    ],
)
async def test_a_topic_that_would_believe_or_lose_is_refused_with_what_mends_it(
    kafka: str,
    settings: KafkaSettings,
    name: str,
    closing: list[Close],
    wrong: dict[str, str],
    mend: str,
) -> None:
    await create(kafka, f"{name}.queries", 1, **wrong)
    with pytest.raises(FailClosed, match=rf"{name}.queries.*must stamp.*{mend}"):
        await opened(settings, name, closing)


async def test_a_topic_of_messages_has_one_order(
    kafka: str, settings: KafkaSettings, name: str, closing: list[Close]
) -> None:
    await create(kafka, f"{name}.queries", 2, message_timestamp_type="LogAppendTime")
    with pytest.raises(FailClosed, match="one partition"):
        await opened(settings, name, closing)


async def taken(questions: KafkaQuestions, until: int) -> list[Question]:
    """All messages before a place."""
    found: list[Question] = []
    async with asyncio.timeout(120):
        while not found or found[-1].place < until - 1:
            found += await questions.read()
    return found


async def test_whatever_a_broker_takes_has_its_place_and_what_follows_is_read(
    kafka: str, settings: KafkaSettings, name: str, closing: list[Close]
) -> None:
    """On a topic that stores what it gets as it is packed: bombs, packings that lie, headers that are no text."""
    topic = await create(
        kafka,
        f"{name}.queries",
        1,
        message_timestamp_type="LogAppendTime",
        max_message_bytes="10000000",
    )

    def put() -> int:
        with Wire(kafka) as wire:
            return sum(wire.produce(topic, 0, one.encoded()).error == 0 for one in HOSTILE)

    assert await asyncio.to_thread(put) > 50
    async with writing(kafka) as producer:
        last = (await producer.send_and_wait(topic, b"last", partition=0)).offset
    questions = await opened(settings, name, closing)
    await questions.seek(-1)
    found = await taken(questions, last + 1)
    assert [one.place for one in found] == list(range(last + 1))
    assert found[-1].value == b"last"
    await questions.seek(last - 100)
    assert await taken(questions, last + 1) == found[last - 100 :]


async def test_a_message_counts_once_its_transaction_is_committed(
    kafka: str, settings: KafkaSettings, name: str, closing: list[Close]
) -> None:
    questions = await opened(settings, name, closing)
    lease = KafkaLease(settings, f"{name}.other")
    closing.append(lease.close)
    await lease.start()
    await half_a_transaction(lease, f"{name}.queries", b"in vain")
    again = KafkaLease(settings, f"{name}.other")
    closing.append(again.close)
    await again.start()  # aborts it
    async with writing(kafka) as producer:
        last = (await producer.send_and_wait(f"{name}.queries", b"good", partition=0)).offset
    await questions.seek(-1)
    assert [one.value for one in await taken(questions, last + 1)] == [b"good"]


async def test_a_topic_made_anew_is_read_from_its_first_record(
    kafka: str, settings: KafkaSettings, name: str, closing: list[Close]
) -> None:
    questions = await opened(settings, name, closing)
    async with writing(kafka) as producer:
        await producer.send_and_wait(f"{name}.queries", b"first", partition=0)
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


async def test_the_command_line_by_kafka_with_a_token_and_a_name_alone(
    kafka: str, tmp_path: Path
) -> None:
    world = await TalkingWorld.made(tmp_path, kafka)
    code, token, _ = await world.command("query", "token", str(world.file), "--analyst", "ann")
    assert (code, token.strip()) == (0, world.token("ann"))
    (tmp_path / "ann.token").write_text(token)
    (tmp_path / "ann.token").chmod(0o600)
    where = ("--via", "kafka", "--analyst", "ann", "--json")
    known = {
        "STREAM_DP_TOKEN_FILE": str(tmp_path / "ann.token"), "STREAM_DP_KAFKA_BOOTSTRAP": kafka,
        "STREAM_DP_KEY_FILE": "",
    }  # fmt: skip

    async def query(what: str, *more: str) -> tuple[int, str, str]:
        return await world.command("query", what, world.name, *more, *where, **known)

    series = (
        '{"name": "busy", "statistic": "alerts", "by": "kind", "threshold": 5, "epsilon": "0.5"}'
    )
    dear = series.replace("0.5", "3").replace("busy", "dear")
    async with fed(world), running(world):
        await until_topics(world)
        code, out, errors = await query("preview", "--series", series)
        assert (code, json.loads(out)["fits"]) == (0, True), errors
        assert json.loads(out)["noise"].startswith("mostly noise")
        code, out, errors = await query("create", "--series", series)
        assert (code, "mostly noise" in errors) == (2, True), errors
        code, out, errors = await query("create", "--series", series, "--yes")
        assert (code, json.loads(out)["name"]) == (0, "busy"), errors
        code, _, errors = await query("create", "--series", dear)
        assert (code, "asks for epsilon 3" in errors) == (3, True), errors
        async with asyncio.timeout(120):  # it is refused until the first tick is released
            while code != 0:
                code, out, errors = await query("ask", "busy", "--keys", "red", "--id", fresh_id())
        assert (code, json.loads(out)["answer"]["series"]) == (0, "busy"), errors
        name = json.loads(out)["id"]
        again = await query("ask", "busy", "--keys", "red", "--id", name)
        assert again == (0, out, "")  # its answer for ever, however late
        code, told, errors = await query("ask", "all", "--id", name)
        assert (code, told) == (2, "")  # and no answer to anything else
        assert errors.startswith("stream-dp: id: was used for another message"), errors
        assert "an id of its own" in errors
        code, out, errors = await query("list")
        assert "busy" in {one["name"] for one in json.loads(out)["queries"]}, errors
        code, _, errors = await query("halt", "all")
        assert code == 2, errors
        code, out, errors = await query("halt", "busy")
        assert (code, json.loads(out)["name"]) == (0, "busy"), errors


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
                if (
                    "crowd" not in batch.name
                    and "MB" not in batch.name
                    and "nulls" not in batch.name
                ):
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
    with pytest.raises(WorldError, match=r"queries.*does not exist.*the engine of"):
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
