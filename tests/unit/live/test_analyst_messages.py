"""Messages of analysts: each kind is read, and of what is wrong every problem is told with its key and no value."""

import json
from typing import Any

import pytest

from stream_dp.errors import UsageError
from stream_dp.live.analyst_messages import (
    MESSAGES,
    AskMessage,
    CreateMessage,
    WatchMessage,
    read_address,
    read_message,
)

END = 1_795_428_000_000
GOOD: dict[str, dict[str, Any]] = {
    "create": {"series": {"name": "m"}},
    "preview": {"series": {"name": "m"}},
    "halt": {"series": "m"},
    "list": {},
    "ask": {"series": "m", "watch": "large", "threshold": 70},
    "watch": {"series": "m", "watch": {"name": "large"}},
    "unwatch": {"series": "m", "watch": "large"},
    "apply": {"file": {"series": []}},
}


def message(kind: str, **changed: Any) -> str:
    said = {"id": "c1f", "until": "2026-11-23T10:00:00Z", "do": kind, **GOOD[kind], **changed}
    return json.dumps({key: value for key, value in said.items() if value is not ...})


def problems(text: str) -> list[str]:
    with pytest.raises(UsageError) as refused:
        read_message(text)
    return str(refused.value).split("\n")


@pytest.mark.parametrize("do", MESSAGES)
def test_each_kind_is_read_with_an_id_an_end_and_known_keys(do: str) -> None:
    found = read_message(message(do, analyst="ann"))
    assert (found.do, found.id, found.analyst, found.until) == (do, "c1f", "ann", END)
    assert type(found) is MESSAGES[do]
    for key in ("id", "until"):
        assert problems(message(do, **{key: ...})) == [f"{key}: is missing"]
    keys = [field.alias or name for name, field in MESSAGES[do].model_fields.items()]
    known = f"is not a known key; known are {', '.join(keys)}"
    assert problems(message(do, bogus="SECRET")) == [f"bogus: {known}"]


def test_there_is_a_good_message_of_each_kind() -> None:
    assert set(GOOD) == set(MESSAGES)


def test_a_definition_is_its_bytes_in_the_message() -> None:
    exact = b'{"epsilon": 0.10000000000000000001,  "name":"m"}'
    for do, key, kind in (("create", "series", CreateMessage), ("watch", "watch", WatchMessage)):
        found = read_message(message(do, **{key: "HERE"}).replace('"HERE"', exact.decode()))
        assert isinstance(found, kind)
        assert getattr(found, key) == exact


def test_what_is_asked_is_what_is_there() -> None:
    asked = read_message(message("ask", watch=..., threshold=..., keys=["b", "a"], **{"from": "a"}))
    assert isinstance(asked, AskMessage)
    assert asked.parameters == {"keys": ["b", "a"], "from": "a"}
    assert problems(message("ask", from_=1)) == ["from_: is not a known key; did you mean from?"]


@pytest.mark.parametrize("key", ["\x1b[31m", "x" * 65, ""])
def test_a_key_that_could_be_none_is_not_repeated(key: str) -> None:
    assert problems(message("list", **{key: 1})) == [
        "a key is not known, nor anything that could be one; known are id, analyst, until, do"
    ]


def test_all_problems_are_told_at_once_and_no_value() -> None:
    wrong = dict.fromkeys(("series", "threshold", "until"), "SECRET")
    said = problems(message("ask", id="SEC RET", **wrong))
    assert [one.partition(":")[0] for one in said] == ["id", "until", "series", "threshold"]
    assert "SEC" not in "".join(said)


WRONG: dict[str, tuple[str, list[Any]]] = {
    "threshold": ("ask", [70.0, "70", True, [70], 2**62 + 1]),
    "until": ("list", [5, None, "2026-11-23T10:00:00", "tomorrow"]),
    "id": ("list", ["", "a b", "a\n", "é", "x" * 65, None, 7, "a/b"]),
    "analyst": ("list", ["Ann", "\n", "x" * 64, None]),
    "series": ("create", ["m", None, ["m"]]),
}


@pytest.mark.parametrize(
    ("do", "key", "value"), [(do, key, v) for key, (do, values) in WRONG.items() for v in values]
)
def test_a_value_that_is_none_is_a_problem_of_its_key(do: str, key: str, value: Any) -> None:
    (said,) = problems(message(do, **{key: value}))
    assert said.startswith(f"{key}: must be ")


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{", "{}}", "[" * 100_000, '{"do":' + "[" * 60_000, "\x00"]
)
def test_what_is_no_object_is_refused(text: str) -> None:
    assert problems(text) == ["a message must be a JSON object"]


@pytest.mark.parametrize("do", [..., "drop", ["ask"], {}, None, "x" * 1000])
def test_what_cannot_be_done_is_refused_with_what_can(do: Any) -> None:
    assert problems(message("list", do=do)) == [
        "do: must be one of create, preview, halt, list, ask, watch, unwatch, apply"
    ]


def test_a_value_nested_deeply_is_a_problem_of_its_key() -> None:
    for depth in (100, 30_000):
        text = message("halt", series="HERE").replace('"HERE"', "[" * depth + "]" * depth)
        assert problems(text) in (["series: must be text"], ["a message must be a JSON object"])


@pytest.mark.parametrize(("do", "known"), [("ask", "ask"), ("drop", ""), (["ask"], ""), (..., "")])
def test_an_address_is_read_whatever_the_message_wants(do: Any, known: str) -> None:
    said = read_address(message("list", do=do, analyst="ann", bogus=1, series="S"))
    assert (said.id, said.analyst, said.until, said.do) == ("c1f", "ann", END, known)


@pytest.mark.parametrize("wrong", [{"id": ...}, {"until": "soon"}, {"analyst": "A"}, {"id": [[]]}])
def test_without_an_id_an_end_and_a_name_there_is_no_address(wrong: dict[str, Any]) -> None:
    (key,) = wrong
    with pytest.raises(UsageError, match=f"^{key}: "):
        read_address(message("list", **wrong))
