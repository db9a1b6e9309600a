"""The ports of the engine: where records and messages come from, what makes commits durable, where releases go.

Rules: adapters implement these and nothing else. Offsets, positions and payloads are private. Failures of the world are
`WorldError`, anything that endangers the guarantee is `FailClosed`.
"""

import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from stream_dp.core.mechanism import IntArray
from stream_dp.core.wording import Progress, unseen
from stream_dp.engine.user_table import ByColumn, Used
from stream_dp.journal.commit import Answer, Commit, Release
from stream_dp.journal.dead_letters import Span
from stream_dp.journal.keys import Sealer
from stream_dp.noise import fresh_seed

Positions: TypeAlias = Mapping[int, int]
_D = TypeVar("_D", bound=Release | Answer, contravariant=True)
NOBODY: Mapping[int, ByColumn] = MappingProxyType({})


class Behind(NamedTuple):
    """What a source reads again before a position where something was still open: from `start`. Of the open part, what
    lies below `done` was given before the position.
    """

    start: int
    done: int = 0

    def __repr__(self) -> str:
        return "<Behind>"


Behinds: TypeAlias = Mapping[int, Behind]
NOTHING_BEHIND: Behinds = MappingProxyType({})
Published: TypeAlias = Callable[[Release], None]


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive records of one partition, then perhaps a tick mark; a new partition shows by its first batch.

    `tick` is the tick of all `payloads` where the source's clock assigns it (append stamps), None where each record's
    own time does (replay). `mark` = k: after these payloads the partition has passed the end of tick k and of all
    earlier ticks. Reading continues at `position`; what lies `behind` it is read again. `labels` tell people where a
    payload lies (offset or line). `refused` are records before the mark that the source could not read.

    `decoded` is what a router has decoded of the payloads (None: nothing yet). A guard removes the records that do not
    count: `capped` is the number of those beyond their user's cap, and records whose user cannot be read are added to
    `refused`. `used` is what the remaining records use of their users' caps. `users` has, by tick and column, the users
    with an event and those with a capped event, where columns count them. `units` is what each payload adds within the
    totals that series share, by the field that each is of.
    """

    partition: int
    payloads: Sequence[bytes] = field(repr=False)
    labels: Sequence[int] = field(repr=False)
    position: int = field(repr=False)
    tick: int | None = None
    mark: int | None = None
    behind: Behind | None = field(default=None, repr=False)
    refused: Sequence[Span] = field(default=(), repr=False)
    decoded: Any = field(default=None, repr=False)
    used: Sequence[Used] = field(default=(), repr=False)
    capped: int = field(default=0, repr=False)
    users: Mapping[int, ByColumn] = field(default_factory=dict, repr=False)
    units: Mapping[str, IntArray] = field(default_factory=dict, repr=False)

    def units_at(self, places: Sequence[int]) -> dict[str, IntArray]:
        at = np.asarray(places, np.int64)
        return {of: units[at] for of, units in self.units.items()}


@asynccontextmanager
async def closing(items: AsyncIterator[bytes]) -> AsyncIterator[AsyncIterator[bytes]]:
    """Close the iterator where reading stops; left to the event loop it would complain on stderr."""
    try:
        yield items
    finally:
        if isinstance(items, AsyncGenerator):
            await items.aclose()


class Source(Protocol):
    """Replayable records of partitions; the partitions are fixed unless the source `grows`."""

    @property
    def name(self) -> str:
        """The topic or file name, as the journal's header has it."""

    @property
    def identity(self) -> str:
        """What distinguishes this source, once open, from another one of the same name; empty if nothing does."""

    @property
    def grows(self) -> bool:
        """Whether partitions may be added; a new partition is read from its first record on."""

    async def open(self, origin: int) -> tuple[int, ...]:
        """Connect and return the partitions; `origin` (ms since 1970) is the start of tick 0. Then comes `seek`."""

    async def seek(self, positions: Positions, behind: Behinds = NOTHING_BEHIND) -> None:
        """Continue at these positions (none: at the origin), and read again what lies `behind` them."""

    async def read(self) -> Sequence[Batch]:
        """Wait for the next batches; the answer is empty only at the end of a finite source."""

    async def close(self) -> None: ...


class Journal(Protocol):
    """The private, durable sequence of sealed commits of one pipeline, with one writer, which holds a lease."""

    async def open(self) -> None:
        """Fence every other writer first, then get ready; create an empty journal where there is none."""

    @property
    def begin(self) -> int:
        """The number, once open, of the first commit that is left; 0 if there is none."""

    def checkpoints(self) -> Sequence[int]:
        """Return, once open, the numbers of the commits after which the last checkpoints stand, newest first."""

    def read(self, begin: int = 0) -> AsyncIterator[bytes]:
        """Yield all durable sealed commits from number `begin` on, which is one of `checkpoints`, or from the first
        that is left, oldest first; checks that none is missing or half written.
        """

    async def verify(self, positions: Positions) -> None:
        """Check, after `read`, that other places that know this journal agree with its last commit's positions.

        `positions` is empty for an empty journal. Raises `Unconfirmed` if the other places know nothing any more and
        all else agrees (the journal may go on if what is public says the same), `FailClosed` if it was wiped or set
        back.
        """

    async def append(self, commit: Commit, sealed: bytes) -> None:
        """Make `sealed`, which is `commit`, durable together with `commit.positions`, atomically."""

    async def prune(self, before: int) -> None:
        """Delete all commits before number `before`, where a checkpoint stands and a durable commit says so."""

    async def close(self) -> None: ...


class PublicPort(Protocol[_D]):
    """A public, ordered sequence of durable bodies; `journal.public_sequence` says which number a body has."""

    async def open(self) -> None: ...

    async def last(self) -> bytes | None:
        """Return the last visible body; None if there is none."""

    def read(self, beyond: int = -1) -> AsyncIterator[bytes]:
        """Yield the visible bodies whose number is larger than `beyond`, oldest first."""

    async def publish(self, durable: Sequence[_D], /) -> None:
        """Make these visible, in order and all at once, after the body that `last` returns."""

    async def close(self) -> None: ...


class Question(NamedTuple):
    """A record of the queue of messages: its place there, its bytes (empty if unreadable), and when it came. `stamp` is
    given by the queue (ms since 1970), not by the sender.
    """

    place: int
    value: bytes
    stamp: int

    def __repr__(self) -> str:
        return f"<Question at {self.place}>"


class Questions(Protocol):
    """The queue of messages to an engine, in one order; records are hostile and never stop it."""

    async def open(self) -> None:
        """Connect; create an empty queue where there is none."""

    async def seek(self, place: int) -> None:
        """Continue at this place, whose record may be gone; -1 is the first record that is left."""

    async def read(self) -> Sequence[Question]:
        """Wait for the next records, in the order of their places; a few at a time."""

    async def close(self) -> None: ...


class Channel(Protocol):
    """The way to a process that reads a lane, and back; see `engine.lanes.processes` for what is sent."""

    def send(self, order: Any) -> None:
        """Send without waiting; what a process that has ended does not get is lost."""

    async def receive(self) -> Any:
        """Wait for the next report; raise EOFError once the process has ended."""

    def kill(self) -> None: ...


class Beginning(NamedTuple):
    """How a pipeline began: when (ms since 1970), and with which partitions; and the length of its ticks, in ms."""

    origin: int
    partitions: Sequence[int]
    step: int = 0


class Crew(Protocol):
    """Processes that read the source beside the engine, one for each lane; at most `most`. `ends` are the ends of the
    partitions that they know of; private.
    """

    most: int
    ends: dict[int, int]

    async def enlist(self, lane: int, lanes: int, beginning: Beginning) -> Channel:
        """Start a process that reads the partitions of this one of so many lanes."""

    async def close(self) -> None:
        """End all processes."""


class Rows(Protocol):
    """The logs of rows that workers write, one for each lane, and what they go on with; see `engine.lanes.rows`."""

    lanes: int
    fingerprint: str
    file: bytes
    """Of the pipeline file as it is now, and what it says."""

    async def open(self) -> str:
        """Connect, make or check the topics, and return the id of that of the rows; a second call only does that."""

    async def layout(self) -> Any | None:
        """Return the newest layout; None if there is none."""

    async def lay(self, layout: Any) -> None:
        """Make a layout durable, which all workers go on with."""

    async def ends(self) -> Positions:
        """Return the ends of the logs, by lane."""

    async def follow(self, places: Positions) -> None:
        """Read on at these places; raises `FailClosed` if a log does not hold its place any more."""

    async def read(self, lanes: Sequence[int]) -> Sequence[tuple[int, Any, bytes]]:
        """Return the next rows of these lanes with their places and plain bytes; perhaps none, after a moment."""

    async def drop(self, places: Positions) -> None:
        """Delete the rows before these places."""

    async def close(self) -> None: ...


Sink: TypeAlias = PublicPort[Release]
Answers: TypeAlias = PublicPort[Answer]


class Clock(Protocol):
    """The public wall clock, in ms since 1970-01-01T00:00Z."""

    def now(self) -> int: ...

    async def sleep_until(self, moment: int) -> None:
        """Return once `now() >= moment`."""


class Note(Protocol):
    """Takes attributes of a piece of work before it ends."""

    def __call__(self, **attributes: str | int) -> None: ...


class Spans(Protocol):
    """Observes work while the context is open, without changing it; its times show load: for the operator alone. Names
    and attributes are public values, and hold no count.
    """

    def __call__(self, name: str, /, **attributes: str | int) -> AbstractContextManager[Note]: ...


def untold(_name: str, /, **_attributes: str | int) -> AbstractContextManager[Note]:
    """Observe nothing."""
    return nullcontext(lambda **_attributes: None)


@dataclass(frozen=True, slots=True)
class Audience:
    """Receives every release by `published` once it is public, but those up to number `known`. Nor those of ticks
    before `wanted`, which is called at the start with the first tick that is not public.
    """

    published: Published = lambda release: None
    known: int = -1
    wanted: Callable[[int], int] = lambda tick: 0


NO_AUDIENCE = Audience()


@dataclass(frozen=True, slots=True)
class Ports:
    """The adapters that an engine runs on; `seeds` gives 32 fresh bytes (the test kit replaces it).

    Without `questions` no message comes from a queue; without `answers` an answer goes to its sender and nowhere else.
    `progress` learns how far a recovery has come: it sees public ticks only, and nothing of the source. With a `crew`
    other processes read the source, if it has several partitions, and with `rows` workers do; the engine opens it for
    what it says about itself.
    """

    source: Source
    journal: Journal
    sink: Sink
    clock: Clock
    sealer: Sealer
    seeds: Callable[[], bytes] = fresh_seed
    questions: Questions | None = None
    answers: Answers | None = None
    spans: Spans = untold
    progress: Progress = unseen
    crew: Crew | None = None
    rows: Rows | None = None


class Placement(Protocol):
    """Maps payloads to their partitions, by the record and the partitions alone: the same on every attempt."""

    def __call__(self, payloads: Sequence[bytes], partitions: Sequence[int]) -> Sequence[int]:
        """Return the partition of each payload; raise `UsageError` if it cannot choose among so many partitions."""


def by_content(payloads: Sequence[bytes], partitions: Sequence[int]) -> list[int]:
    """Return a partition for each payload, by all that it holds.

    >>> by_content([b"a", b"b", b"a"], (3, 5))
    [5, 5, 5]
    """
    return [partitions[zlib.crc32(payload) % len(partitions)] for payload in payloads]
