"""The judge of a talk by messages: what was put, ever readable, and durable. Imports nothing of the engine.

`talk_findings` gives one line per broken rule, beginning with the rule's name; no line means that every message was
answered once, in the order of the topic, and that every answer exists in exactly one version, also among aborted ones.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from faults.evidence import Public, content


@dataclass(slots=True)
class Talk:
    """The queue by place, each record with the id of a message that is good (None: it is none); the public answers in
    the order of their topic; the answers that the journal holds, by number.
    """

    queue: Mapping[int, str | None]
    public: Sequence[Public]
    durable: Mapping[int, bytes]
    said: list[dict[str, Any]] = field(default_factory=list)


def answers_of(commits: Sequence[Mapping[str, Any]]) -> dict[int, bytes]:
    return {
        number: bytes(body)
        for commit in commits
        for _, number, _, _, _, body, *_ in commit.get("answers", ())
    }


def talk_findings(talk: Talk) -> list[str]:
    """Everything that is wrong with a talk that has come to its end."""
    talk.said = [content(record.body) for record in talk.public if record.committed]
    rules: list[Callable[[Talk], Iterator[str]]] = [
        _numbers,
        _once,
        _places,
        _order,
        _durable,
        _keys,
    ]
    found = [f"{rule.__name__[1:]}: {text}" for rule in rules for text in rule(talk)]
    return [*found, *unfounded_answers(talk.public, talk.durable)]


def unfounded_answers(public: Sequence[Public], durable: Mapping[int, bytes]) -> list[str]:
    """What is visible and not durable as those bytes; holds at every moment, also between crashes."""
    found = []
    for record in public:
        number = content(record.body)["number"]
        if durable.get(number) != record.body:
            state = "committed" if record.committed else "aborted"
            found.append(f"versions: answer {number} is visible ({state}) with other bytes")
    return found


def _numbers(talk: Talk) -> Iterator[str]:
    if [one["number"] for one in talk.said] != list(range(1, len(talk.said) + 1)):
        yield "the public answers are not numbered 1, 2, 3, ..."


def _once(talk: Talk) -> Iterator[str]:
    """Every id that is good has one answer, and no other one has any."""
    wanted = {name for name in talk.queue.values() if name is not None}
    answered = Counter(one["id"] for one in talk.said if one["id"] is not None)
    yield from (f"{name} has no answer" for name in sorted(wanted - answered.keys()))
    yield from (
        f"{name} has an answer, and was no message" for name in sorted(answered.keys() - wanted)
    )
    yield from (f"{name} has {n} answers" for name, n in sorted(answered.items()) if n > 1)


def _places(talk: Talk) -> Iterator[str]:
    """Every record that is not the first good one of its id is refused once, at its place."""
    first: dict[str, int] = {}
    for place in sorted(talk.queue):
        name = talk.queue[place]
        if name is not None:
            first.setdefault(name, place)
    wanted = Counter(talk.queue.keys() - set(first.values()))
    parts = [part for one in talk.said if one["id"] is None for part in refusals_of(one)]
    refused = Counter(place for part in parts for place in part["places"])
    unnamed = sum(part["records"] for part in parts) - refused.total()
    missing, more = sorted((wanted - refused).elements()), sorted((refused - wanted).elements())
    if more or len(missing) != unnamed:
        yield f"refused are not the records that are no messages: {missing} missing, {more} too many"


def refusals_of(one: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The reasons of an answer to what is no message, with the places that it names and how many records there are."""
    every = [{**one.get("refused", {}), "places": one["places"]}, *one.get("also", [])]
    return [{"records": len(part["places"]), **part} for part in every]


def _order(talk: Talk) -> Iterator[str]:
    """Messages are answered in the order of their queue."""
    first: dict[str, int] = {}
    for place in sorted(talk.queue, reverse=True):
        name = talk.queue[place]
        if name is not None:
            first[name] = place
    places = [first[one["id"]] for one in talk.said if one["id"] in first]
    if places != sorted(places):
        yield "messages were not answered in the order of their places"


def _durable(talk: Talk) -> Iterator[str]:
    """What readers of committed records see is the journal's answers, all of them, once."""
    seen = [record.body for record in talk.public if record.committed]
    if seen != [talk.durable[number] for number in sorted(talk.durable)]:
        yield "the public answers are not the journal's in their order"


def _keys(talk: Talk) -> Iterator[str]:
    """A record's key is the id that its answer names."""
    for record in talk.public:
        name = content(record.body)["id"]
        if record.key != (None if name is None else name.encode()):
            yield f"answer {content(record.body)['number']} has another key"
