"""The port through which the engine learns what a live series, created while it runs, would be.

Rules: the pipeline implements it. `propose` decides nothing and changes nothing. It may take seconds, so a `Deriver`
calls it while ticks go on, and a cut only charges and opens. `Proposal.open` and `close` change what the router counts.
What a definition means depends on it, its first tick and the pipeline file alone, so that a journal can be replayed.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from stream_dp.core.derivation import Derivation
from stream_dp.core.messages import Query
from stream_dp.engine.messages.work import MESSAGE_STEPS, limited
from stream_dp.engine.registry import LiveSeries
from stream_dp.engine.series import Series
from stream_dp.errors import UsageError
from stream_dp.journal.commit import Created


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

    def at(self, start: int) -> "Proposal | None":
        """Return the same series for ticks from `start` on; None where that must be derived anew."""
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


@dataclass(frozen=True, slots=True)
class Derived:
    """What came of a definition in a message, for a series from tick `start` on; `steps` is the work that it took."""

    start: int
    steps: int
    outcome: Proposal | UsageError

    def at(self, start: int) -> Proposal | UsageError | None:
        """Return what came of it for a series from `start` on, a refusal too; None where it must be derived anew."""
        return self.outcome if isinstance(self.outcome, UsageError) else self.outcome.at(start)


class Deriver(Protocol):
    """Derives definitions that come in messages, one after the other, while ticks go on."""

    async def derive(self, definition: bytes, start: int) -> Derived:
        """Understand a definition, for a series that sees ticks from `start` on, in the steps of a message.

        Raises:
            EngineEnded: it was closed meanwhile.
        """
        ...

    async def close(self) -> None:
        """End what it has begun; may be called again."""
        ...


def derived_by(planner: SeriesPlanner, definition: bytes, start: int) -> Derived:
    """Understand a definition in the steps of a message, with the error that it predicts; blocks."""
    outcome: Proposal | UsageError
    with limited(MESSAGE_STEPS) as steps:
        try:
            outcome = planner.propose(definition, start)
            outcome.predicted()
        except UsageError as refusal:
            outcome = refusal
    return Derived(start, steps.taken, outcome)


class OnThread:
    """Derives on a thread of this process, with `planner`."""

    def __init__(self, planner: SeriesPlanner | None) -> None:
        self._planner = planner

    async def derive(self, definition: bytes, start: int) -> Derived:
        """Understand a definition; see `Deriver`."""
        if self._planner is None:
            return Derived(start, 0, UsageError("this engine takes no live series"))
        return await asyncio.to_thread(derived_by, self._planner, definition, start)

    async def close(self) -> None:
        """Do nothing: a thread ends by itself, after the steps of a message."""
