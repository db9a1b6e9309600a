"""The port that derives live series: what a series created while the engine runs would be.

Rules: the pipeline implements it. `propose` changes nothing and may take seconds, so a `Deriver` calls it while ticks
go on, and a cut only charges and opens. `Proposal.open` and `close` change what the router counts. The meaning of a
definition depends only on it, its first tick and the pipeline file, so that a journal can be replayed.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from stream_dp.core.box import Box
from stream_dp.core.derivation import Derivation
from stream_dp.core.mechanism import Query
from stream_dp.engine.messages.addressed import MESSAGE_STEPS, limited
from stream_dp.engine.series import LiveSeries, Meaning, Series
from stream_dp.errors import UsageError
from stream_dp.journal.checkpoint import Watching
from stream_dp.journal.commit import Created


class Proposal(Protocol):
    """A derived `definition` (canonical bytes) of the series `name`, which would see ticks from `start` on.

    `derivation` gives its guarantee, and so its price; `box` holds every record that it can see; `mechanism` is a
    digest of the mechanism with its parameters. `error_unit` stands behind predicted errors; `supposing` says what
    they suppose, where that is not plain ("for 1,000 records"). `verdicts` says of each window whether it is worth its
    price by the file's public guesses (none without these). `alarms` says how likely each alarm is a false one;
    `noise` why it would be mostly noise, or fire by it, and what would help (empty if it would not). All of this is
    public.
    """

    @property
    def definition(self) -> bytes: ...
    @property
    def name(self) -> str: ...
    @property
    def start(self) -> int: ...
    @property
    def derivation(self) -> Derivation: ...
    @property
    def box(self) -> Box: ...
    @property
    def mechanism(self) -> str: ...
    @property
    def error_unit(self) -> str: ...
    @property
    def supposing(self) -> str: ...
    @property
    def alarms(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def verdicts(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def noise(self) -> str: ...

    def predicted(self) -> tuple[int, float]:
        """Return (tick, half-width): the error to expect at the last tick, or the farthest one without a horizon. With
        windows it is the largest of theirs.
        """

    def windows(self) -> Mapping[str, float]:
        """Return the error to expect of each window at that tick, by its name; empty if there are no windows."""

    def at(self, start: int) -> "Proposal | None":
        """Return the same series for ticks from `start` on; None if that must be derived anew."""

    def place(self, payer: str, running: Sequence[int]) -> int:
        """Return the column of the tick row where the series' entries would begin, or raise `NoRoom`. `running` are the
        numbers of the live series that the payer's ledger paid for, the oldest first.
        """

    def open(self, created: Created) -> Series:
        """Count the series' entries from now on, and return the series; `FailClosed` if the columns are taken."""


class WatchProposal(Protocol):
    """The watch `name` of a running series, as it would begin or end; `place` is the first of its places.

    `query` begins or ends it in the mechanism, `columns` of the tick row count its events, and `series` is the series
    as it would be afterwards. `noise` is as in `Proposal`; empty for a watch that ends.
    """

    @property
    def name(self) -> str: ...
    @property
    def place(self) -> int: ...
    @property
    def query(self) -> Query: ...
    @property
    def columns(self) -> slice: ...
    @property
    def series(self) -> Series: ...
    @property
    def noise(self) -> str: ...

    def require_room(self) -> None:
        """Raise `NoRoom` if its names are too long for its monitor; a watch in a journal is not checked."""

    def take(self) -> None:
        """Begin to count its events, or stop counting them."""


class SeriesPlanner(Protocol):
    """Turns definitions of live series into proposals; implemented by the pipeline."""

    def propose(self, definition: bytes, start: int, meaning: Meaning = Meaning.NOW) -> Proposal:
        """Derive the series of a definition, for ticks from `start` on; raises `UsageError` or `NotDerivable`."""

    def watch(self, live: LiveSeries, definition: bytes, start: int, analyst: str) -> WatchProposal:
        """Derive a watch of a running series, which this analyst adds from tick `start` on; raises `UsageError`."""

    def unwatch(self, live: LiveSeries, name: str, end: int) -> WatchProposal:
        """Derive the end of a watch, which sees no tick from `end` on; raises `UsageError`."""

    def watching(self, live: LiveSeries) -> Watching | None:
        """Return how the watches of a series differ from its definition; None if they do not, or it has none."""

    def watch_again(self, live: LiveSeries, kept: Watching) -> Series:
        """Return a series that has just been opened with the watches that `watching` returned, and count them."""

    def hold(self) -> None:
        """Keep counting the same events until `renew`, whatever begins or ends meanwhile."""

    def renew(self) -> None:
        """Start counting for what has begun since `hold`, and stop counting for what has ended."""

    def close(self, number: int) -> Mapping[str, Any]:
        """Stop counting the entries of a series, free its columns, and return what lists show of it: public values.
        Those of a series of the first file stay; what it has in columns of its own is not counted any more.
        """


@dataclass(frozen=True, slots=True)
class Derived:
    """The outcome of a message's definition, for a series from tick `start` on, and the `steps` that it took."""

    start: int
    steps: int
    outcome: Proposal | UsageError

    def at(self, start: int) -> Proposal | UsageError | None:
        """Return the outcome for a series from `start` on, a refusal too; None if it must be derived anew."""
        return self.outcome if isinstance(self.outcome, UsageError) else self.outcome.at(start)


def recorded(planner: SeriesPlanner, created: Created) -> Proposal:
    """Derive a series of a journal again, by the newest meaning of its definition that has the recorded mechanism; by
    the oldest where none has it.
    """
    for meaning in Meaning:
        proposal = planner.propose(created.definition, created.start, meaning)
        if proposal.mechanism == created.mechanism:
            break
    return proposal


class Deriver(Protocol):
    """Derives definitions that come in messages, one after the other, while ticks go on."""

    async def derive(self, definition: bytes, start: int) -> Derived:
        """Derive a series for ticks from `start` on, within a message's steps; `EngineEnded` if closed meanwhile."""

    async def close(self) -> None:
        """End the derivations that have begun; may be called again."""


def derived_by(planner: SeriesPlanner, definition: bytes, start: int) -> Derived:
    """Derive the series of a definition, and its predicted error, within the steps of a message; blocks."""
    with limited(MESSAGE_STEPS) as steps:
        try:
            proposal = planner.propose(definition, start)
            proposal.predicted()
        except UsageError as refusal:
            return Derived(start, steps.taken, refusal)
    return Derived(start, steps.taken, proposal)


class OnThread:
    """Derives on a thread of this process, which ends by itself after the steps of a message."""

    def __init__(self, planner: SeriesPlanner | None) -> None:
        self._planner = planner

    async def derive(self, definition: bytes, start: int) -> Derived:
        if self._planner is None:
            return Derived(start, 0, UsageError("this engine takes no live series"))
        return await asyncio.to_thread(derived_by, self._planner, definition, start)

    async def close(self) -> None: ...
