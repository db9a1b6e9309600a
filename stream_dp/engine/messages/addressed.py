"""A message as the engine takes it: its sender, its request, and the port that reads both.

Rules: the sender is known before the request is read, because a message with an unknown request still has its id
and its answer. This file knows no topic, form or clock.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


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
