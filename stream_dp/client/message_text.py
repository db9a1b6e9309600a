"""The text, id and answer of a message, for HTTP and Kafka, and the error of a refusal."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import UNSET

from stream_dp.engine.messages.conversation import error_of
from stream_dp.journal.answer_body import read_answer
from stream_dp.noise import fresh_seed

LASTS = timedelta(hours=1)
"""How long after its creation a message may arrive, by default."""


def fresh_id() -> str:
    """Return a unique id: 128 random bits, in hex."""
    return fresh_seed()[:16].hex()


def message_text(
    do: str, content: Mapping[str, Any], name: str, analyst: str = "", definition: str = ""
) -> str:
    """Return the JSON text of a message with the id `name`, which may arrive until an hour from now.

    `definition` is the JSON of a series, a watch or a file, which is included unchanged.
    """
    until = (datetime.now(UTC) + LASTS).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = json.dumps({"id": name, "analyst": analyst, "until": until, "do": do, **content})
    key = {"watch": "watch", "apply": "file"}.get(do, "series")
    return f'{text[:-1]}, "{key}": {definition}}}' if definition else text


def good_answer(body: bytes, place: int = -1) -> bytes:
    """Return the bytes of an answer, unless it refuses the message at `place` of the queue.

    Raises:
        UsageError, BudgetRefused: the engine's refusal; nothing has changed.
        FailClosed: the bytes are not an answer.
    """
    answer = read_answer(body)
    if answer.refused is not UNSET:
        raise error_of(answer.refusal(place) or answer.refused)
    return body
