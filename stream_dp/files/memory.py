"""Source, journal, sink, messages and answers in memory, for tests and embedding: the simplest adapters.

State that outlives an engine is a value that the caller keeps and passes to the next adapter.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic

from stream_dp.engine.ports import NOTHING_BEHIND, Batch, Behinds, Positions, Question, Source
from stream_dp.errors import FailClosed
from stream_dp.journal.checkpoint import known_after
from stream_dp.journal.commit import Answer, Commit, Release
from stream_dp.journal.public_sequence import ANSWERS, RELEASES, P, PublicSequence

_POLL_S = 0.001


class MemorySource:
    """A source of given batches, each partition in its own order.

    After a seek, a partition continues after its position. A batch that did not move the position (a mark of the clock)
    is repeated: marks may repeat, records may not.
    """

    def __init__(
        self, batches: Iterable[Batch], *, name: str = "memory", partitions: Iterable[int] | None = None
    ) -> None:  # fmt: skip
        self.name, self.identity, self.grows = name, "", False
        self._batches = tuple(batches)
        named = (batch.partition for batch in self._batches) if partitions is None else partitions
        self._partitions = tuple(sorted(set(named)))
        self._left = list(self._batches)

    async def open(self, origin: int) -> tuple[int, ...]:
        return self._partitions

    async def seek(self, positions: Positions, behind: Behinds = NOTHING_BEHIND) -> None:
        before: dict[int, int] = {}
        self._left = []
        for batch in self._batches:
            moved = batch.position > before.get(batch.partition, 0)
            before[batch.partition] = batch.position
            done = positions.get(batch.partition, 0)
            if batch.position > done or (batch.position == done and not moved):
                self._left.append(batch)

    async def read(self) -> Sequence[Batch]:
        await asyncio.sleep(0)
        return (self._left.pop(0),) if self._left else ()

    async def close(self) -> None:
        """Do nothing."""


class WrappedSource:
    """Passes every call on to `source`, with its errors: the base of wrappers, which override what they change."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @property
    def name(self) -> str:
        return self._source.name

    @property
    def identity(self) -> str:
        return self._source.identity

    @property
    def grows(self) -> bool:
        return self._source.grows

    async def open(self, origin: int) -> tuple[int, ...]:
        return await self._source.open(origin)

    async def seek(self, positions: Positions, behind: Behinds = NOTHING_BEHIND) -> None:
        await self._source.seek(positions, behind)

    async def read(self) -> Sequence[Batch]:
        return await self._source.read()

    async def close(self) -> None:
        await self._source.close()


@dataclass(slots=True)
class MemoryStore:
    """State of a `MemoryJournal`, for the next one; private."""

    commits: list[bytes] = field(default_factory=list, repr=False)
    begin: int = 0
    checkpoints: tuple[int, ...] = ()
    positions: dict[int, int] = field(default_factory=dict, repr=False)
    epoch: int = 0


class MemoryJournal:
    """The journal over a `MemoryStore`; only the one that opened it last may write."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self._store = MemoryStore() if store is None else store
        self._epoch: int | None = None

    async def open(self) -> None:
        self._store.epoch += 1
        self._epoch = self._store.epoch

    @property
    def begin(self) -> int:
        return self._store.begin

    def checkpoints(self) -> Sequence[int]:
        return self._store.checkpoints

    async def read(self, begin: int = 0) -> AsyncIterator[bytes]:
        self._check_lease()
        for sealed in tuple(self._store.commits[max(0, begin - self.begin) :]):
            yield sealed

    async def verify(self, positions: Positions) -> None:
        """Nothing outside this store knows the journal."""

    async def append(self, commit: Commit, sealed: bytes) -> None:
        self._check_lease()
        if commit.sequence != self.begin + len(self._store.commits):
            raise FailClosed("memory journal: this commit is not the next one; nothing was written")
        self._store.commits.append(sealed)
        self._store.checkpoints = known_after(commit, self._store.checkpoints)
        self._store.positions.update(commit.positions)

    async def prune(self, before: int) -> None:
        self._check_lease()
        del self._store.commits[: before - self.begin]
        self._store.begin = before

    async def close(self) -> None:
        self._epoch = None

    def _check_lease(self) -> None:
        if self._epoch != self._store.epoch:
            raise FailClosed("memory journal: another engine uses it, or it is not open")


class _MemorySequence(Generic[P]):
    """All published bodies of a public sequence, in `bodies`."""

    def __init__(self, sequence: PublicSequence[P], place: str, bodies: list[bytes] | None) -> None:
        self.bodies: list[bytes] = [] if bodies is None else bodies
        self._sequence, self._place = sequence, place

    async def open(self) -> None: ...

    async def last(self) -> bytes | None:
        return self.bodies[-1] if self.bodies else None

    async def read(self, beyond: int = -1) -> AsyncIterator[bytes]:
        for body in tuple(self.bodies):
            if self._sequence.after(body, beyond, self._place):
                yield body

    async def publish(self, durable: Sequence[P]) -> None:
        fresh = self._sequence.not_yet_visible(durable, await self.last(), self._place)
        self.bodies.extend(entry.body for entry in fresh)

    async def close(self) -> None: ...


class MemorySink(_MemorySequence[Release]):
    def __init__(self, bodies: list[bytes] | None = None) -> None:
        super().__init__(RELEASES, "memory sink", bodies)


class MemoryAnswers(_MemorySequence[Answer]):
    def __init__(self, bodies: list[bytes] | None = None) -> None:
        super().__init__(ANSWERS, "memory answers", bodies)


class MemoryQuestions:
    """The messages in `queue`, which may grow while it is read."""

    def __init__(self, queue: list[Question] | None = None) -> None:
        self.queue: list[Question] = [] if queue is None else queue
        self._place = -1

    def put(self, value: bytes, stamp: int) -> None:
        self.queue.append(Question(len(self.queue), value, stamp))

    async def open(self) -> None: ...

    async def seek(self, place: int) -> None:
        self._place = place

    async def read(self) -> Sequence[Question]:
        # the list's owner adds to it without a signal
        while not (waiting := [q for q in self.queue if q.place >= self._place]):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        self._place = waiting[-1].place + 1
        return waiting

    async def close(self) -> None: ...
