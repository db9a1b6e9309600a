"""The ports of the engine: where records and messages come from, what makes a commit durable, where releases and
answers go.

Rules: adapters implement these and nothing else. Offsets, positions and payloads are private. Failures of
the world are `WorldError`, anything that endangers the guarantee is `FailClosed`.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from stream_dp.core.progress import Progress, unseen
from stream_dp.journal.commit import Answer, Commit, Release
from stream_dp.journal.dead_letters import Span
from stream_dp.journal.keys import Sealer
from stream_dp.noise import fresh_seed

Positions: TypeAlias = Mapping[int, int]
_D = TypeVar("_D", bound=Release | Answer, contravariant=True)


class Behind(NamedTuple):
    """What a source must read again before a position, because something there was still open at the position.

    It reads from `start`; of what is open, that below `done` was given before the position.
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
    """Consecutive records of one partition, then perhaps a tick mark.

    `tick` is the tick of all `payloads` where the source's clock assigns it (append stamps), None where each
    record's own time does (replay). `mark` = k says: after these payloads the partition has passed the
    end of tick k (marks may skip ahead: k closes every tick up to k). `position` is where reading
    continues after the batch, its mark included, with what lies `behind` it read again. `labels` tell people where a
    payload lies (offset or line). `refused` are records before the mark that the source itself could not read: they are
    in no payload. A batch of a partition that was not known says that it was added. `decoded` is what a router has
    decoded of the payloads, for the guard and for itself; None: nothing yet.
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


@asynccontextmanager
async def closing(items: AsyncIterator[bytes]) -> AsyncIterator[AsyncIterator[bytes]]:
    """Close what is read where reading stops; left to the event loop it would complain on stderr."""
    try:
        yield items
    finally:
        if isinstance(items, AsyncGenerator):
            await items.aclose()


class Source(Protocol):
    """Replayable records of partitions, which are fixed unless it `grows`."""

    @property
    def name(self) -> str:
        """What the journal's header calls this source (topic or file name)."""
        ...

    @property
    def identity(self) -> str:
        """What tells this source, once open, from another one of the same name; empty where nothing does."""
        ...

    @property
    def grows(self) -> bool:
        """Whether partitions may be added: they are read from their first record on."""
        ...

    async def open(self, origin: int) -> tuple[int, ...]:
        """Connect; `origin` (ms since 1970) is the start of tick 0. Return the partitions; reading needs a `seek`."""
        ...

    async def seek(self, positions: Positions, behind: Behinds = NOTHING_BEHIND) -> None:
        """Continue at these positions, with what it said lies behind them; a partition without starts at the origin."""
        ...

    async def read(self) -> Sequence[Batch]:
        """Wait for what comes next; an empty answer only at the end of a finite source."""
        ...

    async def close(self) -> None:
        """Give connections and files back."""
        ...


class Journal(Protocol):
    """The private, durable sequence of sealed commits of one pipeline, with one writer."""

    async def open(self) -> None:
        """Fence every other writer first, then make ready; creates an empty journal where none is."""
        ...

    def read(self) -> AsyncIterator[bytes]:
        """Yield all durable sealed commits, oldest first; checks that none is missing or half written."""
        ...

    async def verify(self, positions: Positions) -> None:
        """Check, after `read`, that what is known of this journal elsewhere agrees with its last commit's positions.

        `positions` is empty for an empty journal. Raises:
            Unconfirmed: what should be known is gone; all else agrees. The journal may go on where what is public
                says the same.
            FailClosed: the journal was wiped or set back.
        """
        ...

    async def append(self, commit: Commit, sealed: bytes) -> None:
        """Make `sealed`, which is `commit`, durable together with `commit.positions`, atomically."""
        ...

    async def close(self) -> None:
        """Give the lease back."""
        ...


class PublicPort(Protocol[_D]):
    """A public, ordered sequence of what is durable; `journal.public_sequence` says which number a body has."""

    async def open(self) -> None:
        """Connect; creates an empty sequence where none is."""
        ...

    async def last(self) -> bytes | None:
        """The body that is visible last, or None."""
        ...

    def read(self, beyond: int = -1) -> AsyncIterator[bytes]:
        """The bodies of all that is visible whose number is larger than `beyond`, oldest first."""
        ...

    async def publish(self, durable: Sequence[_D], /) -> None:
        """Make this visible, in order and all at once; it follows `last`."""
        ...

    async def close(self) -> None:
        """Give connections and files back."""
        ...


class Sink(PublicPort[Release], Protocol):
    """The public, ordered sequence of releases."""


class Question(NamedTuple):
    """A record of the queue of messages: its place there, its bytes as they came, and when it came.

    `value` is empty where the record could not be read; `stamp` is given by the queue (ms since 1970), not by the
    sender.
    """

    place: int
    value: bytes
    stamp: int

    def __repr__(self) -> str:
        return f"<Question at {self.place}>"


class Questions(Protocol):
    """The queue of messages to an engine, in one order; records are hostile and never stop it."""

    async def open(self) -> None:
        """Connect; creates an empty queue where none is."""
        ...

    async def seek(self, place: int) -> None:
        """Continue at this place, which need not be there any more; -1 is the first record that is there."""
        ...

    async def read(self) -> Sequence[Question]:
        """Wait for the next records, in the order of their places; a few at a time."""
        ...

    async def close(self) -> None:
        """Give connections and files back."""
        ...


class Answers(PublicPort[Answer], Protocol):
    """The public, ordered sequence of answers."""


class Clock(Protocol):
    """The public wall clock."""

    def now(self) -> int:
        """Milliseconds since 1970-01-01T00:00Z."""
        ...

    async def sleep_until(self, moment: int) -> None:
        """Return once `now() >= moment`."""
        ...


class Note(Protocol):
    """Takes what is known of a piece of work before its end."""

    def __call__(self, **attributes: str | int) -> None:
        """Take it."""
        ...


class Spans(Protocol):
    """Is told of a piece of work while the context is open; when that is tells of load, so it is the operator's alone.

    It changes nothing of the work and does not wait. Names and attributes are public values, and say no count.
    """

    def __call__(self, name: str, /, **attributes: str | int) -> AbstractContextManager[Note]:
        """Begin it."""
        ...


def untold(_name: str, /, **_attributes: str | int) -> AbstractContextManager[Note]:
    """Tell nobody."""
    return nullcontext(_nothing)


def _nothing(**_attributes: str | int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Ports:
    """The adapters an engine runs on; `seeds` gives fresh 32 bytes (the test kit has others).

    Without `questions` no message comes from a queue; without `answers` they are shown to who asked and nowhere else.
    `progress` learns how far a recovery has come: of ticks that are public, and of nothing of the source.
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
