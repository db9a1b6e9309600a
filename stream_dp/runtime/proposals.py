"""The port through which the engine learns what a live series, created while it runs, would be.

Rules: the pipeline implements it. `propose` decides nothing, changes nothing and may take seconds: the engine calls it
on a thread. `Proposal.open` and `close` change what the router counts. What a definition means depends on it, its
first tick and the pipeline file alone, so that a journal can be replayed.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from stream_dp.core.derivation import Derivation
from stream_dp.core.messages import Query
from stream_dp.runtime.commit import Created
from stream_dp.runtime.registry import LiveSeries
from stream_dp.runtime.series import Series


class Proposal(Protocol):
    """A definition understood, for a series that sees ticks from some tick on."""

    @property
    def definition(self) -> bytes:
        """The definition's canonical bytes."""
        ...

    @property
    def name(self) -> str:
        """The series' name."""
        ...

    @property
    def start(self) -> int:
        """The first tick that it would see."""
        ...

    @property
    def derivation(self) -> Derivation:
        """The derivation of what the series guarantees, and so of its price."""
        ...

    @property
    def mechanism(self) -> str:
        """A digest of the mechanism that would serve it, with its parameters."""
        ...

    @property
    def error_unit(self) -> str:
        """What predicted errors are measured in, in words that stand behind a number."""
        ...

    @property
    def supposing(self) -> str:
        """What predicted errors are for, or in, where that is not plain: "for 1,000 records"; else empty."""
        ...

    def predicted(self) -> tuple[int, float]:
        """Return (tick, half-width): the error to expect at the last tick, or the farthest one without a horizon.

        Where there are windows it is the largest of theirs, so that an error that is asked for is kept in each.
        """
        ...

    def windows(self) -> Mapping[str, float]:
        """Return the error to expect of each window at that tick, by its name; nothing where there are none."""
        ...

    @property
    def alarms(self) -> Sequence[Mapping[str, Any]]:
        """How likely each of its alarms is a false one, as plain values; nothing where it has none."""
        ...

    @property
    def noise(self) -> str:
        """Why it would fire mostly by noise, and what would do; empty where it does not. Public."""
        ...

    def place(self, payer: str, running: Sequence[int]) -> int:
        """Return the column of the tick row where the series' entries would begin.

        `running` are the numbers of the live series that run and that the payer's ledger paid for, the oldest first.

        Raises:
            NoRoom: there is none for one more of the payer's, or for so many entries.
        """
        ...

    def open(self, created: Created) -> Series:
        """Count the series' entries from now on, and return the series.

        Raises:
            FailClosed: the columns are taken: the journal was not written by this pipeline.
        """
        ...


class WatchProposal(Protocol):
    """A watch of a series that runs, as it would begin or end."""

    @property
    def name(self) -> str:
        """The watch's name."""
        ...

    @property
    def place(self) -> int:
        """The first place that the watch has, or had."""
        ...

    @property
    def query(self) -> Query:
        """What begins it, or ends it, in the mechanism."""
        ...

    @property
    def columns(self) -> slice:
        """The columns of the tick row where its events count."""
        ...

    @property
    def series(self) -> Series:
        """The series as it would be then."""
        ...

    @property
    def noise(self) -> str:
        """Why it would fire mostly by noise, and what would do; empty where it does not, or ends. Public."""
        ...

    def require_room(self) -> None:
        """Do nothing where its names are short enough for its monitor; of what a journal holds it is never asked.

        Raises:
            NoRoom: they are not.
        """
        ...

    def take(self) -> None:
        """Count its events from now on, or no more."""
        ...


class SeriesPlanner(Protocol):
    """What turns definitions of live series into proposals; implemented by the pipeline."""

    def propose(self, definition: bytes, start: int) -> Proposal:
        """Understand a definition, for a series that sees ticks from `start` on.

        Raises:
            UsageError: it is no series of this pipeline; every problem is named with its key.
            NotDerivable: no rule covers it.
        """
        ...

    def watch(self, live: LiveSeries, definition: bytes, start: int, analyst: str) -> WatchProposal:
        """Understand the definition of a watch of a series that runs, which this analyst adds from tick `start` on.

        Raises:
            UsageError: it is none for this series; every problem is named with its key.
        """
        ...

    def unwatch(self, live: LiveSeries, name: str, end: int) -> WatchProposal:
        """Understand the end of a watch, which sees no tick from `end` on.

        Raises:
            UsageError: there is none of this name.
        """
        ...

    def hold(self) -> None:
        """Go on counting what is counted now, whatever begins or ends, until `renew`."""
        ...

    def renew(self) -> None:
        """Count what has begun since `hold`, and no more what has ended."""
        ...

    def close(self, number: int) -> Mapping[str, Any]:
        """Count the entries of series `number` no more; its columns are free. Return what lists tell of it: public."""
        ...
