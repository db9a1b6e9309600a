"""Ids, rates and numbers of answers: an id is used once for ever, memory is bounded, an answer is given again."""

import json
from dataclasses import replace
from random import Random

import pytest
from commit_parts import parts
from live_acts import drained

from stream_dp.core.time import TickGrid
from stream_dp.engine.messages.addressed import Addressed
from stream_dp.engine.messages.answering import recorded
from stream_dp.engine.messages.conversation import (
    LONGEST_MS,
    PLACES,
    Conversation,
    body_of,
    error_of,
    not_accepted,
    refusal_of,
)
from stream_dp.errors import (
    BudgetRefused,
    NoRoom,
    NotAccepted,
    NotDerivable,
    NotYours,
    UnknownMechanism,
    UsageError,
)
from stream_dp.files.memory import MemoryAnswers
from stream_dp.journal.answer_body import (
    AnswerCut,
    RefusalKind,
    RefusedMessage,
    answer_head,
    places_in,
    read_answer,
)
from stream_dp.journal.commit import Commit, decode, encode

HOUR = 3_600_000
NOW = 1_000 * HOUR
AT = AnswerCut.before(5, TickGrid(0, HOUR))


def message(
    name: str, until: int = NOW + HOUR, analyst: str = "", text: bytes = b"{}"
) -> Addressed:
    return Addressed(name, analyst, operator=True, until=until, do="list", text=text)


def kind_of(conversation: Conversation, said: Addressed, stamp: int = NOW) -> str:
    """Why a message is not accepted; empty where it is."""
    try:
        conversation.admit(said, stamp)
    except NotAccepted as refusal:
        return refusal.kind
    conversation.answer(said, {}, AT)
    return ""


def commit_of(number: int, conversation: Conversation) -> Commit:
    _, written = conversation.record(())
    return Commit(
        number, b"", answers=conversation.take_answers(), parts={conversation.kind: written or b""}
    )


def test_an_id_is_used_once_also_for_another_text() -> None:
    conversation = Conversation()
    assert kind_of(conversation, message("a")) == ""
    for text, kind in ((b"{}", "repeated"), (b"other", "used")):
        assert kind_of(conversation, message("a", text=text)) == kind
    assert kind_of(conversation, message("A")) == ""


def test_the_same_message_is_the_one_with_the_same_content() -> None:
    conversation, first = Conversation(), replace(message("a", text=b"first"), content=b"what")
    assert kind_of(conversation, first) == ""
    again = Conversation()
    again.replay(Commit(1, b"", answers=drained(conversation, AT)))
    for one in (conversation, again):
        assert one.number_of(replace(first, text=b"again", until=NOW + 2 * HOUR)) == 1
        assert kind_of(one, replace(first, text=b"again")) == "repeated"
        assert kind_of(one, replace(first, content=b"else")) == "used"


def test_a_refusal_says_what_is_wrong_with_the_time_and_what_to_do() -> None:
    conversation = Conversation()
    for until in (NOW, NOW + LONGEST_MS):
        assert kind_of(Conversation(), message("a", until)) == ""
    for until, why in (
        (NOW - 1, "until: lay before the moment at which the message arrived; send it again with"),
        (NOW + LONGEST_MS + 1, "until: lies more than 24 hours after the moment at which it"),
    ):
        with pytest.raises(NotAccepted, match=why) as refused:
            conversation.admit(message("a", until), NOW)
        assert refused.value.kind == "expired"


def test_what_is_remembered_lies_within_two_days() -> None:
    random = Random(5)
    conversation, stamp = Conversation(per_tick=10**9), NOW
    for number in range(5000):
        stamp += random.randint(0, HOUR // 4)
        late = stamp - random.choice((0, 0, HOUR, 30 * HOUR))
        kind_of(conversation, message(f"{number}", late + random.randint(-HOUR, LONGEST_MS)), late)
        assert len(conversation._used) == len(conversation._ends) < 48 * 12
    newest = max(end for end, _ in conversation._ends)
    assert min(end for end, _ in conversation._ends) > newest - 2 * LONGEST_MS


def test_the_very_same_copy_is_never_accepted_again() -> None:
    random = Random(6)
    conversation, sent, stamp = Conversation(per_tick=10**9), list[Addressed](), NOW
    for number in range(3000):
        stamp += random.randint(0, HOUR)
        said = message(f"m{number}", stamp + random.randint(0, LONGEST_MS))
        assert kind_of(conversation, said, stamp) == ""
        sent.append(said)
        copy, late = random.choice(sent), stamp - random.choice((0, HOUR, 100 * HOUR))
        assert kind_of(conversation, copy, late) in {"repeated", "expired"}
    assert len(conversation._used) < 200


@pytest.mark.parametrize(
    ("days", "kind"), [(2 * LONGEST_MS - 1, "repeated"), (2 * LONGEST_MS, "expired")]
)
def test_what_is_just_forgotten_has_just_expired(days: int, kind: str) -> None:
    conversation, said = Conversation(), message("a", NOW)
    assert kind_of(conversation, said) == ""
    assert kind_of(conversation, message("b", NOW + days), NOW + LONGEST_MS) == ""
    assert kind_of(conversation, said) == kind


def test_what_was_forgotten_stays_expired_after_a_start_from_a_checkpoint() -> None:
    conversation, said = Conversation(), message("a", NOW)
    assert kind_of(conversation, said) == ""
    later = NOW + 2 * LONGEST_MS
    assert kind_of(conversation, message("b", later), NOW + LONGEST_MS) == ""
    again = Conversation()
    again.load(Commit(1, b"", parts={conversation.kind: conversation.save() or b""}))
    assert kind_of(again, said) == "expired"


def test_a_twin_that_forgets_by_its_own_clock_accepts_a_late_copy() -> None:
    class Forgetful(Conversation):
        def _forget(self, floor: int) -> None:
            del floor
            self._used.clear()

    conversation, said = Forgetful(), message("a")
    assert kind_of(conversation, said) == ""
    assert kind_of(conversation, message("b")) == ""
    assert kind_of(conversation, said) == ""


def test_a_restart_remembers_at_least_as_much() -> None:
    random = Random(7)
    conversation, commits, stamp, sent = Conversation(), list[Commit](), NOW, list[Addressed]()
    for number in range(500):
        stamp += random.randint(0, HOUR)
        said = message(f"m{number}", stamp + random.randint(0, LONGEST_MS))
        conversation.ticked()
        assert kind_of(conversation, said, stamp) == ""
        sent.append(said)
        conversation.place = number + 1
        commits.append(commit_of(number, conversation))
    again = Conversation()
    for commit in commits:
        again.replay(commit)
    assert (again.place, again.next_number) == (500, 501)
    assert conversation._used.keys() <= again._used.keys()
    for said in sent:
        assert kind_of(again, said, stamp) in {"repeated", "expired"}
    assert again.number_of(sent[-1]) == 500
    with pytest.raises(NotAccepted):
        again.number_of(message("m499", text=b"other"))
    assert again.number_of(message("new")) is None


def test_the_rate_is_of_each_analyst_and_each_tick_also_after_a_restart() -> None:
    conversation = Conversation(per_tick=2)
    kinds = [kind_of(conversation, message(f"a{n}", analyst="ann")) for n in range(3)]
    assert kinds == ["", "", "rate"]
    assert kind_of(conversation, message("b", analyst="bob")) == ""
    answers = drained(conversation, AT)
    conversation.ticked()
    assert kind_of(conversation, message("a2", analyst="ann")) == ""
    again = Conversation(per_tick=2)
    again.replay(Commit(1, b"", answers=answers))
    assert kind_of(again, message("a3", analyst="ann")) == "rate"
    assert kind_of(again, message("b2", analyst="bob")) == ""  # one is counted once
    again.replay(Commit(2, b"", ticks=(5,)))
    assert kind_of(again, message("a3", analyst="ann")) == ""


def test_all_refusals_between_two_ticks_share_an_answer_with_a_count_of_each_reason() -> None:
    conversation = Conversation()
    for place, kind in enumerate(["used", "used", "expired", "used"]):
        conversation.refuse(not_accepted(RefusalKind(kind)), place)
    assert kind_of(conversation, message("a")) == ""
    said = [json.loads(answer.body) for answer in drained(conversation, AT)]
    assert [(each["number"], each["id"]) for each in said] == [(1, "a"), (2, None)]
    line = said[1]
    assert (line["places"], line["refused"]["kind"]) == ([0, 1, 3], "used")
    assert [(each["places"], each["kind"]) for each in line["also"]] == [([2], "expired")]
    conversation.refuse(not_accepted(RefusalKind.USED), 5)
    assert not conversation.waits
    assert drained(conversation, AT) == ()
    conversation.ticked()
    assert conversation.waits
    (later,) = drained(conversation, AT)
    assert read_answer(later.body).places == (5,)
    conversation.refuse(not_accepted(RefusalKind.USED), 6)
    conversation.end()
    assert conversation.waits


def test_refusals_that_wait_outlive_a_restart_with_the_place_up_to_which_was_read() -> None:
    conversation = Conversation()
    conversation.refuse(not_accepted(RefusalKind.USED), 0)
    first = drained(conversation, AT)
    commits = [Commit(1, b"", answers=first, parts=parts(messages=(1, ())))]
    for place in (1, 2):
        conversation.refuse(not_accepted(RefusalKind.UNREADABLE), place)
    conversation.place = 3
    commits.append(decode(encode(commit_of(2, conversation))))
    waiting = commits[-1].parts
    again = Conversation()
    for commit in commits:
        again.replay(commit)
    assert (again.place, again.due, again.next_number) == (3, False, 2)
    again.replay(Commit(3, b"", ticks=(5,), parts=waiting))
    (line,) = drained(again, AT)
    assert read_answer(line.body).places == (1, 2)
    again.replay(Commit(4, b"", answers=(line,), parts=parts(messages=(3, ()))))
    assert not again.waits


def test_an_answer_to_many_names_the_places_of_some_and_tells_what_became_of_each() -> None:
    conversation = Conversation()
    for place in range(3000):
        kind = RefusalKind.UNREADABLE if place % 2 else RefusalKind.SIGNATURE
        conversation.refuse(not_accepted(kind), place)
    (answer,) = drained(conversation, AT)
    assert len(answer.body) < 1500
    found = read_answer(answer.body)
    assert found.records == 3000
    assert [
        len(places) for places in (found.places or (), *(one.places for one in found.also or ()))
    ] == [PLACES] * 2
    refusals = [found.refusal(place) for place in (0, 1, 40, 2999, 3000)]
    kinds = [refused and refused.kind for refused in refusals]
    assert kinds == ["signature", "unreadable", "signature", "unreadable", None]
    assert found.names(2999)
    assert not found.names(3000)


def test_the_form_of_an_answer() -> None:
    conversation, said = Conversation(), message("a")
    conversation.admit(said, NOW)
    answer = conversation.answer(said, {"b": 1}, AT)
    assert answer.body == (
        b'{"v":1,"number":1,"id":"a","do":"list","tick":4,"end":"1970-01-01T05:00:00Z","answer":{"b":1}}'
    )
    assert places_in(answer.body) == ()
    conversation.admit(message("b"), NOW)
    assert places_in(conversation.answer(message("b"), {}, AT, places=(17,)).body) == (17,)
    first = AnswerCut.before(0, TickGrid(0, HOUR))
    conversation.refuse(NotAccepted("used", "id: why"), 17)
    *_, refused = drained(conversation, first)
    assert refused.body == (
        b'{"v":1,"number":3,"id":null,"places":[17],"tick":null,"end":"1970-01-01T00:00:00Z",'
        b'"refused":{"kind":"used","exit_code":2,"detail":"id: why"}}'
    )
    assert answer_head(refused.body).end_ms == 0


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (BudgetRefused("x"), "budget", 3), (UnknownMechanism("x"), "unknown", 2), (NotYours("x"), "forbidden", 2),
        (NotDerivable("x"), "derivation", 2), (NoRoom("x"), "room", 2), (UsageError("x"), "usage", 2),
    ],
)  # fmt: skip
def test_a_refusal_tells_the_error_that_it_was(error: UsageError, kind: str, code: int) -> None:
    refused = refusal_of(error)
    assert refused == RefusedMessage(kind, code, "x")
    assert type(error_of(refused)) is type(error)
    assert refusal_of(not_accepted(RefusalKind.RATE)).kind == "rate"
    again = error_of(refusal_of(not_accepted(RefusalKind.USED)))
    assert isinstance(again, NotAccepted)
    assert (again.kind, again.exit_code) == ("used", 2)
    assert "with an id of its own" in str(again)


FIRST = AnswerCut.before(0, TickGrid(0, 1000))
BODIES = [body_of(number, f"m{number}", "list", FIRST, {"queries": []}) for number in (1, 2, 3, 4)]


@pytest.mark.parametrize("number", [1, 2, 3, 4])
async def test_the_answer_of_a_number_is_given_again(number: int) -> None:
    assert await recorded(MemoryAnswers(list(BODIES)), number) == BODIES[number - 1]


@pytest.mark.parametrize("kept", [BODIES[2:], BODIES[:1], []])
async def test_another_one_is_not_given_in_its_place(kept: list[bytes]) -> None:
    with pytest.raises(NotAccepted, match="id: this very message came before"):
        await recorded(MemoryAnswers(list(kept)), 2)


async def test_where_no_answers_are_kept_it_is_on_record_only() -> None:
    with pytest.raises(NotAccepted, match="its answer is in the topic"):
        await recorded(None, 1)


def test_an_id_that_was_used_again_is_known_after_a_restart() -> None:
    """A day after its first message has expired, when a message of two days later makes it forgotten."""
    live, again, commits = Conversation(), message("daily", NOW + 45 * HOUR), list[Commit]()
    said = [
        (message("daily", NOW + 1), NOW),
        (message("x", NOW + 48 * HOUR + HOUR // 12), NOW + 24 * HOUR + HOUR // 10),
        (again, NOW + 25 * HOUR),
    ]
    for number, (one, stamp) in enumerate(said):
        live.ticked()
        assert kind_of(live, one, stamp) == ""
        live.place = number + 1
        commits.append(commit_of(number, live))
    replayed, loaded = Conversation(), Conversation()
    for commit in commits:
        replayed.replay(commit)
    loaded.load(Commit(9, b"", ticks=(1,), parts={"messages": live.save() or b""}))
    for conversation in (live, replayed, loaded):
        conversation.ticked()
        later = NOW + 26 * HOUR
        assert kind_of(conversation, message("y", NOW + 27 * HOUR), later) == ""
        assert kind_of(conversation, again, later) == "repeated"
        assert conversation.save() is not None
