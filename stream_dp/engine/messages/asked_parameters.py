"""The parameters of a query as journals hold them: one form for one meaning, the same at a replay.

Rules: parameters are public. A mechanism is asked with parameters that were read from this form, at once and at
every replay.
"""

import json
from collections.abc import Mapping
from typing import Any

from stream_dp.errors import UsageError


def write_parameters(parameters: Mapping[str, Any]) -> bytes:
    """Return parameters as a journal holds them."""
    return json.dumps(parameters, sort_keys=True, separators=(",", ":")).encode()


def read_parameters(form: bytes) -> Mapping[str, Any]:
    """Return the parameters that `write_parameters` wrote.

    Raises:
        UsageError: they cannot be read.
    """
    try:
        found: Mapping[str, Any] = json.loads(form)
    except (ValueError, RecursionError):
        raise UsageError("watch: cannot be read") from None
    return found
