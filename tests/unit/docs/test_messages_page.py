"""docs/messages.md and docs/messages.json say what the code does: schema, kinds, keys, envelopes and examples."""

import asyncio
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from loaded_script import loaded_script

from stream_dp.journal.answer_body import RefusalKind, read_answer
from stream_dp.live.analyst_messages import MESSAGES, Message, read_message
from stream_dp.live.envelope import is_signed, read_envelope

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "messages.md").read_text()


def maker() -> Any:
    """The script that writes the schema."""
    return loaded_script(DOCS / "messages.py")


def test_the_schema_is_that_of_the_models() -> None:
    assert (DOCS / "messages.json").read_text() == maker().text()


def test_every_kind_of_message_has_its_schema() -> None:
    parts = json.loads((DOCS / "messages.json").read_text())["$defs"]
    for do, model in MESSAGES.items():
        shown = parts[model.__name__]
        keys = {field.alias or name for name, field in model.model_fields.items()}
        assert (shown["properties"]["do"]["const"], set(shown["properties"])) == (do, keys)
        assert shown["additionalProperties"] is False


def rows(heading: str) -> list[list[str]]:
    """The rows of the table whose head begins so, without that."""
    table = PAGE.split(f"\n| {heading} |")[1].split("\n\n")[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]
    ]


def test_the_tables_are_those_of_the_code() -> None:
    assert [row[0].strip("`") for row in rows("key")] == [*Message.model_fields, "do"]
    assert [row[0].strip("`") for row in rows("do")] == list(MESSAGES)
    assert [row[0].strip("`") for row in rows("kind")] == list(RefusalKind)
    for do, keys, _ in rows("do"):
        fields = MESSAGES[do.strip("`")].model_fields
        assert set(re.findall(r"`(\w+)`:", keys)) <= set(fields)


def test_the_message_and_the_answers_of_the_page_are_some() -> None:
    (shown,) = re.findall(r'^    (\{"id": "c1f", "analyst".*\})$', PAGE, re.MULTILINE)
    assert read_message(shown).do == "ask"
    answers = re.findall(r'^    (\{"v":1,.*\})$', PAGE, re.MULTILINE)
    assert [read_answer(line.encode()).number for line in answers] == [7, 8, 9]


def namespace() -> dict[str, Any]:
    """What the page's code defines."""
    found: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "messages.md", "exec"), found)  # noqa: S102 - our own page
    return found


class Silent:
    """A topic that takes everything at place 17, and one that brings these answers and then nothing."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)

    async def send_and_wait(self, topic: str, value: bytes) -> SimpleNamespace:
        return SimpleNamespace(offset=17)

    def __aiter__(self) -> "Silent":
        return self

    async def __anext__(self) -> SimpleNamespace:
        if not self.answers:
            await asyncio.Event().wait()
        return SimpleNamespace(value=self.answers.pop(0))


async def test_the_code_of_the_page_takes_no_other_answer_and_waits_no_longer_than_it_says() -> (
    None
):
    page = namespace()
    said = page["message"]("list")
    others = [
        json.dumps({"id": said["id"], "number": 1, "places": [5]}).encode(),
        json.dumps({"id": said["id"], "number": 2}).encode(),
        json.dumps({"id": None, "number": 3, "places": [16]}).encode(),
    ]
    mine = json.dumps({"id": None, "number": 4, "places": [16, 17]}).encode()
    topic = Silent(*others, mine)
    assert (await page["told"](topic, topic, "5e", "orders", said))["number"] == 4
    topic = Silent(*others)
    with pytest.raises(
        TimeoutError,
        match=r"no engine of orders answered within 0.01 s: is one.*send the same again",
    ):
        await page["told"](topic, topic, "5e", "orders", said, seconds=0.01)


@pytest.mark.parametrize("do", MESSAGES)
def test_the_envelope_that_the_page_makes_is_one(do: str) -> None:
    page, token = namespace(), "5e" * 32
    key = MESSAGES[do].definition_key
    content = {} if do == "list" else {"series": "m"}
    if do == "unwatch":
        content["watch"] = "w"
    said = page["message"](do, **{**content, **({key: {"name": "m"}} if key else {})})
    found = read_envelope(page["envelope"](token, "orders", said))
    assert is_signed(token, "orders", found)
    assert not is_signed("5f" * 32, "orders", found)
    assert (read_message(found.message).do, read_message(found.message).analyst) == (do, "ann")
