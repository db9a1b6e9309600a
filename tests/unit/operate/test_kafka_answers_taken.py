"""Which answer of the public topic is taken for that to one's own message: the one that names its place."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from live_acts import drained

from stream_dp.client.kafka_messages import KafkaMessages
from stream_dp.client.message_text import fresh_id, message_text
from stream_dp.core.time import TickGrid
from stream_dp.engine.messages.conversation import Conversation, body_of, not_accepted
from stream_dp.errors import NotAccepted, StreamDPError, WorldError
from stream_dp.journal.answer_body import AnswerCut, Answered, RefusalKind
from stream_dp.kafka.client.clients import KafkaSettings

HERE = 17  # where the message comes to lie
AT = AnswerCut.before(3, TickGrid(0, 1000))
NAME = fresh_id()


def answer(told: Mapping[str, Any] | StreamDPError, *places: int, name: str | None = NAME) -> bytes:
    """An answer of the topic."""
    return body_of(1, name, "ask", AT, told, places)


def refused(kind: RefusalKind, *places: int) -> bytes:
    """The refusal of records that are no messages."""
    return answer(not_accepted(kind), *places, name=None)


class Topics:
    """A queue in which the message gets the place `HERE`, and a topic with `bodies` in which one comes at a time."""

    def __init__(self, bodies: list[bytes]) -> None:
        self.bodies = list(bodies)

    async def send_and_wait(self, topic: str, value: bytes, partition: int) -> SimpleNamespace:
        """Take the message."""
        return SimpleNamespace(offset=HERE)

    async def getmany(self, place: Any, timeout_ms: int) -> dict[Any, list[SimpleNamespace]]:
        """Return the next answer."""
        return {place: [SimpleNamespace(value=self.bodies.pop(0))]} if self.bodies else {}


async def told(bodies: list[bytes], recorded: bytes | None = None) -> bytes:
    """What comes back for a message, where the topic brings these answers behind it."""
    messages = KafkaMessages(KafkaSettings("127.0.0.1:9"), "shop", "5e" * 32)
    messages._reader = messages._producer = Topics(bodies)

    async def found(name: str) -> bytes | None:
        assert name == NAME
        return recorded

    messages.recorded = found  # type: ignore[method-assign]
    return await messages.answer(message_text("ask", {"series": "a"}, NAME), NAME, 0.05)


async def test_the_answer_that_names_the_place_is_the_one() -> None:
    mine = answer({"series": "a"}, HERE)
    others = [answer({}, 16, name="x"), refused(RefusalKind.UNREADABLE, 3, 4), answer({}, name="y")]
    assert await told([*others, mine]) == mine


@pytest.mark.parametrize("places", [(5,), ()], ids=["in the queue", "over HTTP"])
async def test_a_late_answer_to_another_message_of_the_id_is_not_taken(places: tuple[int]) -> None:
    """The id was used for another message, which is answered only now."""
    another = answer({"series": "b"}, *places)
    with pytest.raises(NotAccepted, match="id: was used for another message") as found:
        await told([another, refused(RefusalKind.USED, 16, HERE)], another)
    assert (found.value.kind, found.value.exit_code) == ("used", 2)


async def test_what_came_before_has_the_answer_that_it_had() -> None:
    first = answer({"series": "a"}, 5)
    assert await told([first, refused(RefusalKind.REPEATED, HERE)], first) == first


async def test_of_records_that_are_refused_together_each_has_its_own_reason() -> None:
    """Also where there are more than an answer names places for; the answer to an accepted one lies before it."""
    talk = Conversation()
    for place in range(100):
        kind = RefusalKind.USED if place in (HERE, 3) else RefusalKind.UNREADABLE
        talk.refuse(not_accepted(kind), place)
    (line,) = drained(talk, AT)
    with pytest.raises(NotAccepted, match="id: was used for another message"):
        await told([line.body])
    crowd = Conversation()
    for place in range(HERE - 60, HERE + 40):
        if place != HERE:
            crowd.refuse(not_accepted(RefusalKind.SIGNATURE), place)
    (line,) = drained(crowd, AT)
    mine = answer({"series": "a"}, HERE)
    assert await told([mine, line.body]) == mine
    with pytest.raises(NotAccepted, match="signature: made neither"):
        await told([line.body])


async def test_a_repetition_whose_answer_is_gone_says_so() -> None:
    with pytest.raises(NotAccepted, match="id: this very message came before"):
        await told([refused(RefusalKind.REPEATED, HERE)])


async def test_a_twin_that_looks_at_the_id_alone_takes_the_answer_to_another_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Answered, "names", lambda self, place: self.id in (NAME, None))
    another = answer({"series": "b"}, 5)
    assert await told([another, refused(RefusalKind.USED, HERE)], another) == another


async def test_who_waits_in_vain_learns_it() -> None:
    with pytest.raises(WorldError, match=f"no engine of shop answered .* under the id {NAME}"):
        await told([answer({}, 5, name="x")])
