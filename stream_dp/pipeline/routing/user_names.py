"""The names of users in records, as text: the text is hashed, and it decides where a user's records lie.

Rules: an integer's text is its digits; any other value is its own text, in UTF-8. A name of more than
`LONGEST_NAME` bytes names nobody. Private: nothing here is printed.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.records.record_columns import BoolArray

LONGEST_NAME = 1024
"""The largest name of a user in bytes; longer names would cost work and name nobody."""


class UserNames(NamedTuple):
    """The users of some records as text; `long` marks names that are too long, whose text is empty."""

    texts: list[bytes]
    long: BoolArray

    @classmethod
    def of(cls, values: Iterable[str | int]) -> "UserNames":
        """Return the names for these values of the user field."""
        texts = list(map(str.encode, map(str, values)))
        long = np.fromiter(map(len, texts), np.int64, len(texts)) > LONGEST_NAME
        for at in np.flatnonzero(long).tolist():
            texts[at] = b""
        return cls(texts, long)

    def __repr__(self) -> str:
        return "<UserNames>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


def naming_field(spec: PipelineSpec, user: str) -> dict[str, Any]:
    """Return the field `user` for a decoder: not nullable, because null names nobody."""
    return {user: spec.fields[user].model_copy(update={"nullable": False})}
