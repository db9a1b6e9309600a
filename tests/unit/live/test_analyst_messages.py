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

UNTIL = "2026-11-23T10:00:00Z"
GOOD: dict[str, dict[str, Any]] = {
    "create": {"series": {"name": "m"}},
    "preview": {"series": {"name": "m"}},
    "halt": {"series": "m"},
    "list": {},
    "ask": {"series": "m", "watch": "large", "threshold": 70},
    "watch": {"series": "m", "watch": {"name": "large"}},
    "unwatch": {"series": "m", "watch": "large"},
}


def message(kind: str, **changed: Any) -> str:
    said = {"id": "c1f", "until": UNTIL, "do": kind, **GOOD[kind], **changed}
    return json.dumps({key: value for key, value in said.items() if value is not ...})


def problems(text: str) -> list[str]:
    with pytest.raises(UsageError) as refused:
        read_message(text)
    return str(refused.value).split("\n")


@pytest.mark.parametrize("do", MESSAGES)
def test_each_kind_is_read(do: str) -> None:
    found = read_message(message(do, analyst="ann"))
    assert (found.do, found.id, found.analyst, found.until) == (do, "c1f", "ann", 1_795_428_000_000)
    assert type(found) is MESSAGES[do]


def test_there_is_a_good_message_of_each_kind() -> None:
    assert set(GOOD) == set(MESSAGES)


def test_a_definition_is_its_bytes_in_the_message() -> None:
    exact = b'{"epsilon": 0.10000000000000000001,  "name":"m"}'
    for do, key, kind in (("create", "series", CreateMessage), ("watch", "watch", WatchMessage)):
        text = message(do, **{key: "HERE"}).replace('"HERE"', exact.decode())
        found = read_message(text)
        assert isinstance(found, kind)
        assert getattr(found, key) == exact


def test_what_is_asked_is_what_is_there() -> None:
    asked = read_message(message("ask", watch=..., threshold=..., keys=["b", "a"], **{"from": "a"}))
    assert isinstance(asked, AskMessage)
    assert asked.parameters == {"keys": ["b", "a"], "from": "a"}


@pytest.mark.parametrize("key", ["id", "until"])
@pytest.mark.parametrize("do", MESSAGES)
def test_every_message_has_an_id_and_an_end(do: str, key: str) -> None:
    assert problems(message(do, **{key: ...})) == [f"{key}: is missing"]


@pytest.mark.parametrize("do", MESSAGES)
def test_a_key_that_is_not_known_is_named(do: str) -> None:
    keys = [field.alias or name for name, field in MESSAGES[do].model_fields.items()]
    known = f"is not a known key; known are {', '.join(keys)}"
    assert problems(message(do, bogus="SECRET")) == [f"bogus: {known}"]
    near = "is not a known key; did you mean from?" if do == "ask" else known
    assert problems(message(do, from_="SECRET")) == [f"from_: {near}"]


def test_a_key_that_could_be_none_is_not_repeated() -> None:
    for key in ("\x1b[31m", "x" * 65, "", "a b"):
        assert problems(message("list", **{key: 1})) == [
            "a key is not known, nor anything that could be one; known are id, analyst, until, do"
        ]


def test_all_problems_are_told_at_once_and_no_value() -> None:
    said = problems(
        message("ask", id="SEC RET", series="SECRET", threshold="SECRET", until="SECRET")
    )
    assert [one.partition(":")[0] for one in said] == ["id", "until", "series", "threshold"]
    assert "SEC" not in "".join(said)


@pytest.mark.parametrize("threshold", [70.0, "70", True, [70], {}, 2**62 + 1, 10**50])
def test_a_threshold_is_an_integer(threshold: object) -> None:
    (said,) = problems(message("ask", threshold=threshold))
    assert said.startswith("threshold: must be ")


@pytest.mark.parametrize("until", [5, None, "2026-11-23T10:00:00", "tomorrow", "9" * 100])
def test_an_end_is_a_time_with_its_offset(until: object) -> None:
    (said,) = problems(message("list", until=until))
    assert said.startswith("until: must be ")


@pytest.mark.parametrize("name", ["", "a b", "a\n", "é", "x" * 65, None, 7, "a/b"])
def test_an_id_is_short_and_plain(name: object) -> None:
    (said,) = problems(message("list", id=name))
    assert said.startswith("id: must be ")


@pytest.mark.parametrize("analyst", ["Ann", "a b", "\n", "x" * 64, None])
def test_an_analyst_is_a_name_or_empty(analyst: object) -> None:
    (said,) = problems(message("list", analyst=analyst))
    assert said.startswith("analyst: must be ")


@pytest.mark.parametrize("definition", ["m", 5, None, ["m"]])
def test_a_definition_is_an_object(definition: object) -> None:
    assert problems(message("create", series=definition)) == ["series: must be a JSON object"]


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "7", '"x"', "{", "{}}", "[" * 100_000, '{"do":' + "[" * 60_000, "\x00"],
)
def test_what_is_no_object_is_refused(text: str) -> None:
    assert problems(text) == ["a message must be a JSON object"]


@pytest.mark.parametrize("do", [..., "drop", ["ask"], {}, 7, None, "x" * 1000])
def test_what_cannot_be_done_is_refused_with_what_can(do: Any) -> None:
    assert problems(message("list", do=do)) == [
        "do: must be one of create, preview, halt, list, ask, watch, unwatch"
    ]


def test_a_value_nested_deeply_is_a_problem_of_its_key() -> None:
    for depth in (100, 30_000):
        text = message("halt", series="HERE").replace('"HERE"', "[" * depth + "]" * depth)
        said = problems(text)
        assert said in (["series: must be text"], ["a message must be a JSON object"])


def test_an_address_is_read_whatever_the_message_wants() -> None:
    for do, known in (("ask", "ask"), ("drop", ""), (["ask"], ""), (None, "")):
        said = read_address(message("list", do=do, analyst="ann", bogus=1, series="S"))
        assert (said.id, said.analyst, said.until, said.do) == (
            "c1f",
            "ann",
            1_795_428_000_000,
            known,
        )
    assert read_address(message("list", do=...)).do == ""


@pytest.mark.parametrize("wrong", [{"id": ...}, {"until": "soon"}, {"analyst": "A"}, {"id": [[]]}])
def test_without_an_id_an_end_and_a_name_there_is_no_address(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as refused:
        read_address(message("list", **wrong))
    (key,) = wrong
    assert str(refused.value).startswith(f"{key}: ")
