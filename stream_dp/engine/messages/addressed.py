"""A message as the engine takes it: its sender, its request, the port that reads both, and the work it may cost.

Rules: the sender is known before the request is read, because a message with an unknown request still has its id and
its answer. The work of a definition is counted in steps, never in time, so it is the same on every machine; without a
limit (a pipeline file, a journal) steps are not bounded. This file knows no topic, form or clock.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from stream_dp.errors import UsageError

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


def write_parameters(parameters: Mapping[str, Any]) -> bytes:
    """Return the public parameters of a query as journals hold them: one form for one meaning."""
    return json.dumps(parameters, sort_keys=True, separators=(",", ":")).encode()


def read_parameters(form: bytes) -> Mapping[str, Any]:
    """Return the parameters that `write_parameters` wrote, or raise `UsageError`."""
    try:
        parameters: Mapping[str, Any] = json.loads(form)
    except (ValueError, RecursionError):
        raise UsageError("watch: cannot be read") from None
    return parameters


@dataclass(slots=True)
class Steps:
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
    """Count steps, if they are limited; raise `UsageError` once the limit is exceeded."""
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

    `analyst` names the ledger that pays ("": the main one), `do` the requested action ("": unknown), `wanted` the
    request if it is known already. Messages with the same `content` (empty: `text`) are the same message.
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
        """Return the message in the envelope of a record that came at `stamp` (ms since 1970). Raises `NotAccepted` if
        it cannot be read, or is not signed for the analyst whom it names.
        """

    def said(self, text: bytes, signer: str) -> Addressed:
        """Return the message in `text`, whose signer's token has been checked; raises `NotAccepted` as `opened`."""

    def wanted(self, message: Addressed) -> Wanted:
        """Return the request; raise `UsageError`, which names every problem with its key, never with a value."""
