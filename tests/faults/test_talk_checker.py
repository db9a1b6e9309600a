"""The judge of talks finds what is wrong: each way to break one is found by the rule that is about it."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from faults.evidence import Public
from faults.talk_checker import Talk, answers_of, talk_findings

QUEUE = {0: "a", 1: None, 2: "a", 3: "b", 5: None, 6: "c"}


def public(number: int, name: str | None, *, committed: bool = True, **said: Any) -> Public:
    body = json.dumps({"v": 1, "number": number, "id": name, **said}).encode()
    return Public(body, committed, None if name is None else name.encode())


def good() -> Talk:
    """A message sent twice, two records that are none, an answer that was written in vain first."""
    answers = [
        public(1, "a", answer={"x": 1}),
        public(2, None, places=[1, 2]),
        public(3, "b", answer={"x": 2}),
        public(4, None, places=[5]),
        public(5, "c", refused={"kind": "usage"}),
    ]
    durable = {number: one.body for number, one in enumerate(answers, 1)}
    in_vain = public(3, "b", committed=False, answer={"x": 2})
    return Talk(dict(QUEUE), [*answers[:2], in_vain, *answers[2:]], durable)


def without(talk: Talk, number: int) -> Talk:
    """An answer was never published, nor made durable; the others close the gap."""
    kept = [
        replaced(
            one, number=json.loads(one.body)["number"] - (json.loads(one.body)["number"] > number)
        )
        for one in talk.public
        if json.loads(one.body)["number"] != number and one.committed
    ]
    return Talk(talk.queue, kept, {n: one.body for n, one in enumerate(kept, 1)})


def replaced(one: Public, **said: Any) -> Public:
    return one._replace(body=json.dumps({**json.loads(one.body), **said}).encode())


def twice(talk: Talk) -> Talk:
    more = [*talk.public, public(6, "c", answer={"x": 3})]
    return Talk(talk.queue, more, {**talk.durable, 6: more[-1].body})


def other_bytes(talk: Talk) -> Talk:
    """What was published before a crash was another answer than the one that is durable."""
    changed = [one if one.committed else replaced(one, answer={"x": 7}) for one in talk.public]
    return Talk(talk.queue, changed, talk.durable)


def swapped(talk: Talk) -> Talk:
    """Two messages were executed in another order than that of the queue."""
    ids = {"a": "b", "b": "a"}
    changed = []
    for one in talk.public:
        name = json.loads(one.body)["id"]
        new = replaced(one, id=ids.get(name, name))
        changed.append(
            new._replace(key=new.key and ids.get(new.key.decode(), new.key.decode()).encode())
        )
    durable = {json.loads(one.body)["number"]: one.body for one in changed}
    return Talk(talk.queue, changed, durable)


def early(talk: Talk) -> Talk:
    return Talk(talk.queue, talk.public, {n: body for n, body in talk.durable.items() if n < 5})


def unpublished(talk: Talk) -> Talk:
    return Talk(talk.queue, [one for one in talk.public if b'"c"' not in one.body], talk.durable)


def keyless(talk: Talk) -> Talk:
    return Talk(talk.queue, [talk.public[0]._replace(key=b"b"), *talk.public[1:]], talk.durable)


def forged(talk: Talk) -> Talk:
    return replace(talk, queue={**talk.queue, 6: None})


TWINS: dict[Callable[[Talk], Talk], set[str]] = {
    lambda talk: without(talk, 3): {"once"},
    lambda talk: without(talk, 4): {"places"},
    twice: {"once"},
    other_bytes: {"versions"},
    swapped: {"order"},
    early: {"durable", "versions"},
    unpublished: {"once", "durable"},
    keyless: {"keys"},
    forged: {"once", "places"},
}


def test_a_good_talk_has_no_findings() -> None:
    assert talk_findings(good()) == []


@pytest.mark.parametrize(("broken", "rules"), TWINS.items(), ids=range(len(TWINS)))
def test_a_broken_talk_is_found_by_its_rule(
    broken: Callable[[Talk], Talk], rules: set[str]
) -> None:
    found = talk_findings(broken(good()))
    assert {line.partition(":")[0] for line in found} == rules, found


def test_the_answers_of_a_journal_are_read_from_its_commits() -> None:
    answer = ["answer", 7, "a", bytes(32), 9, b"{}", "ann", "list", ""]
    assert answers_of([{"answers": [answer]}, {"ticks": [1]}, {"answers": []}]) == {7: b"{}"}
