"""The port through which the engine learns what a question means that is asked while it runs.

Rules: the pipeline implements it. `ask` decides nothing and changes nothing; `open` and `close` change what the router
counts. What a definition means depends on it, its first tick and the pipeline file alone, so that a journal can be
replayed.
"""

from dataclasses import dataclass
from typing import Protocol

from stream_dp.core.derivation import Derivation
from stream_dp.runtime.commit import Created
from stream_dp.runtime.series import Series


@dataclass(frozen=True, slots=True)
class Question:
    """A definition understood: its canonical bytes, the series' name, why it costs what it costs, and a digest of the
    mechanism that would serve it.
    """

    definition: bytes
    name: str
    derivation: Derivation
    mechanism: str = ""


class Questions(Protocol):
    """What a pipeline knows of questions."""

    def ask(self, definition: bytes, start: int) -> Question:
        """Understand a definition, for a series that sees ticks from `start` on.

        Raises:
            UsageError: it is no series of this pipeline; every problem is named with its key.
            NotDerivable: no rule covers it.
        """
        ...

    def place(self, definition: bytes) -> int:
        """The column where its entries would begin."""
        ...

    def open(self, created: Created) -> Series:
        """Count its entries from now on, and return the series.

        Raises:
            FailClosed: the columns are taken: the journal was not written by this pipeline.
        """
        ...

    def close(self, number: int) -> None:
        """Count its entries no more; its columns are free."""
        ...
