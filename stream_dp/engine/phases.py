"""Lifecycles as tables: which phases an engine and a lease go through, and every legal move between them.

Rules: a move that the table does not have raises, and nothing changes. The value of a phase says what it means;
docs/phases.md is made from these tables. Two facts have no phase in them: a request to stop an engine waits until
the engine runs, and a transaction of a lease runs while the lease is held. This file knows no engine and no lease.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from enum import Enum
from typing import Generic, TypeAlias, TypeVar

from stream_dp.errors import IllegalMove

_Phase = TypeVar("_Phase", bound=Enum)
Table: TypeAlias = Mapping[_Phase, frozenset[_Phase]]


class EnginePhase(Enum):
    NEW = "made; nothing is open, commands wait"
    RECOVERING = "reads the journal, publishes what is missing, opens the source; commands wait"
    RUNNING = "steps, commits, publishes and executes commands; the page may be served"
    STOPPING = "the last commit is made: the reader and the actors end"
    ENDED = "stopped, or no tick is left; commands are refused and the ports are given back"
    FAILED = "an error ended it; commands are refused and the ports are given back, what was published stays valid"


class LeasePhase(Enum):
    NONE = "not asked for, or the broker did not answer: it may be asked for again"
    FENCING = "every other engine of the pipeline is being shut out"
    HELD = "transactions are accepted"
    LOST = "another engine took over, or the outcome of a transaction is not known: nothing is accepted any more"
    CLOSED = "given back, after the transaction in flight"


ENGINE: Table[EnginePhase] = {
    EnginePhase.NEW: frozenset({EnginePhase.RECOVERING}),
    EnginePhase.RECOVERING: frozenset({EnginePhase.RUNNING, EnginePhase.FAILED}),
    EnginePhase.RUNNING: frozenset({EnginePhase.STOPPING, EnginePhase.FAILED}),
    EnginePhase.STOPPING: frozenset({EnginePhase.ENDED, EnginePhase.FAILED}),
    EnginePhase.ENDED: frozenset(),
    EnginePhase.FAILED: frozenset(),
}

LEASE: Table[LeasePhase] = {
    LeasePhase.NONE: frozenset({LeasePhase.FENCING, LeasePhase.CLOSED}),
    LeasePhase.FENCING: frozenset({LeasePhase.HELD, LeasePhase.NONE, LeasePhase.CLOSED}),
    LeasePhase.HELD: frozenset({LeasePhase.LOST, LeasePhase.CLOSED}),
    LeasePhase.LOST: frozenset({LeasePhase.CLOSED}),
    LeasePhase.CLOSED: frozenset(),
}


class Lifecycle(Generic[_Phase]):
    """A phase that only the moves of its table can change; begins with the table's first phase."""

    def __init__(self, table: Table[_Phase]) -> None:
        self._table = table
        self._reached: defaultdict[_Phase, asyncio.Event] = defaultdict(asyncio.Event)
        self._phase = next(iter(table))

    def __repr__(self) -> str:
        return f"Lifecycle({self._phase.name})"

    @property
    def phase(self) -> _Phase:
        return self._phase

    def at(self, phase: _Phase) -> bool:
        return self._phase is phase

    @property
    def over(self) -> bool:
        return not self._table[self._phase]

    def move(self, phase: _Phase) -> None:
        """Enter `phase`; raise `IllegalMove`, with nothing changed, if the table has no such move."""
        if phase not in self._table[self._phase]:
            raise IllegalMove(self._phase.name, phase.name)
        self._phase = phase
        self._reached[phase].set()

    def reached(self, phase: _Phase) -> asyncio.Event:
        """Return the event that is set once `phase` has been entered, and stays set."""
        return self._reached[phase]
