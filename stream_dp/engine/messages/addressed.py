"""A message as the engine takes it: its sender, its request, and the port that reads both.

Rules: the sender is known before the request is read, because a message with an unknown request still has its id
and its answer. This file knows no topic, form or clock.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from stream_dp.errors import UsageError

# ---
# The parameters of a query as journals hold them: one form for one meaning, the same at a replay.
#
# Rules: parameters are public. A mechanism is asked with parameters that were read from this form, at once and at
# every replay.


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


# ---
# The work that a definition may cost: a number of steps that is counted, never a time.
#
# Rules: the same definition takes the same number of steps on every machine. Where no limit is set, as for a pipeline
# file and for definitions in a journal, steps are not bounded here. This file knows no definition.

MESSAGE_STEPS = 50_000
"""How many steps the definition of a series in a message may take."""
WATCH_STEPS = 10_000
"""How many steps the definition of a watch in a message may take; its monitor stands still meanwhile."""
TICK_STEPS = 500_000
"""How many steps an analyst's messages may take between two ticks; a message that exceeds this still runs."""
_TOO_MANY = (
    "takes more steps to derive than a message may ({most:,}): give it fewer conditions and ranges that overlap, or "
    "put it into the pipeline file"
)


@dataclass(slots=True)
class Steps:
    """Steps that were taken, and the limit `most`."""

    most: int
    taken: int = 0


_LIMIT: ContextVar[Steps | None] = ContextVar("stream_dp_steps", default=None)


@contextmanager
def limited(most: int) -> Iterator[Steps]:
    """Limit the steps that are taken inside, also on a thread started from here; yield their count."""
    steps = Steps(most)
    token = _LIMIT.set(steps)
    try:
        yield steps
    finally:
        _LIMIT.reset(token)


def take_steps(number: int) -> None:
    """Count steps, if they are limited.

    Raises:
        UsageError: the limit is exceeded.
    """
    steps = _LIMIT.get()
    if steps is None:
        return
    steps.taken += number
    if steps.taken > steps.most:
        raise UsageError(_TOO_MANY.format(most=steps.most))


@dataclass(frozen=True, slots=True, repr=False)
class Wanted:
    """The request of a message: on a `series`, with `parameters`; or for the new series of a `definition`.

    `accept_noise`: the series shall run even if it fires mostly by noise.
    """

    do: str
    series: str = ""
    definition: bytes = b""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    accept_noise: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Addressed:
    """A message whose sender is known, before its request is read; an `operator` may act for every analyst.

    `analyst` names the ledger that pays ("": the main one), `do` the requested action ("" if it is unknown), and
    `wanted` the request if it is known already. Two messages with the same `content` are the same message; if it is
    empty, `text` stands for it.
    """

    id: str
    analyst: str
    operator: bool
    until: int
    do: str
    text: bytes
    wanted: Wanted | None = None
    content: bytes = b""

    @property
    def digest(self) -> bytes:
        """The SHA-256 of the content, which identifies the message."""
        return hashlib.sha256(self.content or self.text).digest()


class MessageReader(Protocol):
    """Turns records and texts into messages; implemented by the pipeline."""

    def opened(self, value: bytes, stamp: int) -> Addressed:
        """Return the message in the envelope of a record that came at `stamp` (ms since 1970).

        Raises:
            NotAccepted: it cannot be read, or is not signed for the analyst whom it names.
        """
        ...

    def said(self, text: bytes, signer: str) -> Addressed:
        """Return the message in `text`; the token of `signer` has been checked.

        Raises:
            NotAccepted: it cannot be read, or names another analyst.
        """
        ...

    def wanted(self, message: Addressed) -> Wanted:
        """Return the request of a message.

        Raises:
            UsageError: there is no such request; every problem is named with its key, never with a value.
        """
        ...
