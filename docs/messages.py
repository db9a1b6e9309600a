"""Writes `messages.json`, the JSON Schema of messages, envelopes and answers: `python docs/messages.py`.

The tests compare the committed copy with what this makes.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import msgspec
from pydantic import Field, TypeAdapter

from stream_dp.journal.answer_body import Answered, ThresholdAnswer
from stream_dp.live.analyst_messages import AnyMessage
from stream_dp.live.envelope import Envelope

COPY = Path(__file__).with_name("messages.json")
_WHERE = "#/$defs/{name}"


def plain(schema: Any) -> Any:
    """The schema without titles that repeat a key, and without defaults that are never sent."""
    if isinstance(schema, list):
        return [plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: value
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
        and not (key == "default" and value in (None, ""))
    }
    return {key: plain(value) for key, value in kept.items()}


def text() -> str:
    """Return the document as it is committed."""
    models = TypeAdapter(Annotated[AnyMessage, Field(discriminator="do")])
    message = models.json_schema(ref_template="#/$defs/{model}")
    (envelope, answer, _), parts = msgspec.json.schema_components(
        [Envelope, Answered, ThresholdAnswer], ref_template=_WHERE
    )
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "NAME.queries holds envelopes, the text in each is a message; NAME.answers holds answers",
        "$defs": {
            **message.pop("$defs"), **parts, "Message": message,
            "InQueries": envelope, "InAnswers": answer,
        },
    }  # fmt: skip
    return json.dumps(plain(document), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    COPY.write_text(text())
