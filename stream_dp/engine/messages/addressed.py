"""A message as the engine takes it: whose it is, what it wants, and the port that reads both.

Rules: who sent it is known before what it wants, for a message that wants nothing there is still has its id and its
answer. This file knows no topic, form or clock.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, repr=False)
class Wanted:
    """What a message wants: of a `series`, by `parameters`; or the series of a `definition`.

    `accept_noise`: it shall run even if it fires mostly by noise.
    """

    do: str
    series: str = ""
    definition: bytes = b""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    accept_noise: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Addressed:
    """A message whose sender is known, and not yet what it wants; `operator`: she may act for every analyst.

    `analyst` names whose ledger pays ("": the main one), `do` what is to be done ("" where that is no known thing), and
    `wanted` what is known of it already. The same `content` again is the same message; empty, it is the `text`.
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
        """The SHA-256 of what makes it the message that it is."""
        return hashlib.sha256(self.content or self.text).digest()


class MessageReader(Protocol):
    """What turns records and texts into messages; implemented by the pipeline."""

    def opened(self, value: bytes, stamp: int) -> Addressed:
        """Return the message in the envelope of a record that came at `stamp` (ms since 1970).

        Raises:
            NotAccepted: it cannot be read, or is not signed by whom it names.
        """
        ...

    def said(self, text: bytes, signer: str) -> Addressed:
        """Return the message of somebody whose token has been checked.

        Raises:
            NotAccepted: it cannot be read, or names another analyst.
        """
        ...

    def wanted(self, message: Addressed) -> Wanted:
        """Return what a message wants.

        Raises:
            UsageError: nothing that there is; every problem is named with its key, never with a value.
        """
        ...
