"""What only the operator can say: how a file marks it, and how its absence is told.

A domain, the start of a clock or a zone that a program took from data would tell of the data. So `stream-dp init`
leaves them open, and a file with an open one is refused, with the words "declare the domain of country". Rules: this
file knows no particular key.
"""

from collections.abc import Sequence
from typing import Any, Final

import yaml
from pydantic_core import ErrorDetails

UNDECLARED: Final = "declare this"
"""What stands where the operator has to say something; no key takes it."""
_VALUES: Final = (
    "list the values that may come, such as [DE, FR], from what you know and not from the data"
)
_SCHEMA: Final = "schema"


def declaring(error: ErrorDetails, node: Any, message: str) -> str:
    """Return the message of an error at this node; where something is open there, that it is to be declared."""
    if not _is_open(error, node):
        return message
    what = message if isinstance(node, yaml.ScalarNode) else _VALUES
    return f"declare the {error['loc'][-1]} of {_whose(error['loc'])}: {what}"


def _is_open(error: ErrorDetails, node: Any) -> bool:
    if isinstance(node, yaml.ScalarNode):
        return bool(node.value == UNDECLARED)
    empty = isinstance(node, yaml.SequenceNode) and not node.value
    return empty and error["type"] == "too_short" and error["loc"][0] == _SCHEMA


def _whose(loc: Sequence[str | int]) -> str:
    """The field, or the part of the file, that the last key of a place belongs to."""
    return str(loc[1]) if loc[0] == _SCHEMA and len(loc) > 2 else f"the {loc[0]}"
