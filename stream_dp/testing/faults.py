"""Crashes and pauses at chosen points of a run, and a slow reader: adapters around adapters.

Rules: a crash is SIGKILL to this process, so nothing is cleaned up; a pause is SIGSTOP. `mid-commit`, `mid-publish`
and `mid-answer` leave what a kill in the middle leaves: an open transaction, or some lines and an incomplete one.
This file reaches into the adapters; they know nothing of it.
"""

import asyncio
import os
import signal
import sqlite3
import sys
from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from stream_dp.engine.ports import (
    NOTHING_BEHIND,
    Batch,
    Behinds,
    Journal,
    Positions,
    PublicPort,
    Source,
)
from stream_dp.errors import UsageError
from stream_dp.files.files import FileSink
from stream_dp.files.highwater import HighWater
from stream_dp.files.memory import WrappedSource
from stream_dp.files.sqlite import SqliteAnswers, SqliteJournal
from stream_dp.journal.commit import Answer, Commit, Release
from stream_dp.kafka.log.journal import KafkaJournal
from stream_dp.kafka.log.lease import KafkaLease, Outgoing
from stream_dp.kafka.log.public import PublicTopic

_D = TypeVar("_D", bound=Release | Answer)
POINTS = (
    *(
        f"{moment}-{what}"
        for what in ("commit", "publish", "answer")
        for moment in ("before", "mid", "after")
    ),
    "before-prune",
    "after-prune",
)


@dataclass(slots=True)
class Watch:
    """Counts how often each point was reached; crashes or pauses once, at the n-th time of a point."""

    crash: tuple[str, int] | None = None
    pause: tuple[str, int] | None = None
    trace: bool = False
    reached: Counter[str] = field(default_factory=Counter)

    def due(self, point: str) -> bool:
        """Count the point; return whether to crash here."""
        self.reached[point] += 1
        if self.trace:
            sys.stdout.write(f"{point}\n")
            sys.stdout.flush()
        return (point, self.reached[point]) == self.crash

    def at(self, point: str) -> None:
        """Count the point, and crash or pause here if it is the chosen one."""
        if self.due(point):
            die()
        if (point, self.reached[point]) == self.pause:
            os.kill(os.getpid(), signal.SIGSTOP)


def point_of(text: str | None) -> tuple[str, int] | None:
    """Return point and number from "POINT:NUMBER", or None."""
    if text is None:
        return None
    point, _, number = text.partition(":")
    if point not in POINTS or not number.isdecimal():
        raise UsageError(f"wanted POINT:NUMBER, with a point of {', '.join(POINTS)}")
    return point, int(number)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class WatchedJournal:
    """The `Journal` port, watched at the three points of a commit."""

    def __init__(self, journal: Journal, watch: Watch) -> None:
        self._journal, self._watch = journal, watch

    async def open(self) -> None:
        await self._journal.open()

    @property
    def begin(self) -> int:
        return self._journal.begin

    def checkpoints(self) -> Sequence[int]:
        return self._journal.checkpoints()

    async def read(self, begin: int = 0) -> AsyncIterator[bytes]:
        async with aclosing(aiter(self._journal.read(begin))) as blobs:  # type: ignore[type-var]
            async for sealed in blobs:
                yield sealed

    async def verify(self, positions: Positions) -> None:
        await self._journal.verify(positions)

    async def append(self, commit: Commit, sealed: bytes) -> None:
        self._watch.at("before-commit")
        if self._watch.due("mid-commit"):
            await half_a_commit(self._journal, commit, sealed)
            die()
        await self._journal.append(commit, sealed)
        self._watch.at("after-commit")

    async def prune(self, before: int) -> None:
        self._watch.at("before-prune")
        await self._journal.prune(before)
        self._watch.at("after-prune")

    async def close(self) -> None:
        await self._journal.close()


class WatchedPublic(Generic[_D]):
    """A `PublicPort`, watched at the three points of a publication: `word` is "publish" or "answer"."""

    def __init__(self, port: PublicPort[_D], watch: Watch, word: str) -> None:
        self._port, self._watch, self._word = port, watch, word

    async def open(self) -> None:
        await self._port.open()

    async def last(self) -> bytes | None:
        return await self._port.last()

    async def read(self, beyond: int = -1) -> AsyncIterator[bytes]:
        async for body in self._port.read(beyond):
            yield body

    async def publish(self, durable: Sequence[_D]) -> None:
        self._watch.at(f"before-{self._word}")
        if self._watch.due(f"mid-{self._word}"):
            await half_a_publication(self._port, durable)
            die()
        await self._port.publish(durable)
        self._watch.at(f"after-{self._word}")

    async def close(self) -> None:
        await self._port.close()


class Dawdling(WrappedSource):
    """The `Source` port with one batch per read and a pause before each: a reader that lags behind."""

    def __init__(self, source: Source, pause_ms: int) -> None:
        super().__init__(source)
        self._pause = pause_ms / 1000
        self._waiting: deque[Batch] = deque()

    async def seek(self, positions: Positions, behind: Behinds = NOTHING_BEHIND) -> None:
        self._waiting.clear()
        await super().seek(positions, behind)

    async def read(self) -> Sequence[Batch]:
        await asyncio.sleep(self._pause)
        if not self._waiting:
            self._waiting.extend(await super().read())
        return [self._waiting.popleft()] if self._waiting else []


async def half_a_commit(journal: Journal, commit: Commit, sealed: bytes) -> None:
    """Write `sealed` without making it durable; does not always return."""
    match journal:
        case HighWater():
            await half_a_commit(journal.marked, commit, sealed)
        case SqliteJournal():
            rows = [(commit.sequence, sealed)]
            await asyncio.to_thread(_torn, journal._path, "commits", rows)  # noqa: SLF001
        case KafkaJournal():
            parts = list(journal._parts(commit, sealed))  # noqa: SLF001 - as it writes them
            await _open_transaction(journal._lease, parts)  # noqa: SLF001
        case _:
            raise UsageError("--crash mid-commit works only with a journal in SQLite or Kafka")


async def half_a_publication(port: PublicPort[Any], durable: Sequence[Any]) -> None:
    """Write the first half of these entries as a kill in the middle would leave it; does not always return."""
    half = durable[: max(1, len(durable) // 2)]
    match port:
        case FileSink():
            await port.publish(half)
            torn = durable[len(half) :][:1]
            with port._path.open("ab") as file:  # noqa: SLF001 - the last thing this process does
                file.write(b"".join(release.body[: len(release.body) // 2] for release in torn))
        case PublicTopic():
            records = [port._record(entry) for entry in half]  # noqa: SLF001 - as it writes them
            await _open_transaction(port._lease, records)  # noqa: SLF001
        case SqliteAnswers():
            rows = [(answer.number, answer.body) for answer in durable]
            await asyncio.to_thread(_torn, port._path, "answers", rows)  # noqa: SLF001
        case _:
            raise UsageError("--crash mid-publish and mid-answer know files, SQLite and Kafka")


def _torn(path: Path, table: str, rows: Sequence[tuple[int, bytes]]) -> None:
    """Write rows in an open transaction, large enough that SQLite writes them to its log; then die."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA cache_size = 1")
        database.execute("BEGIN IMMEDIATE")
        database.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)  # noqa: S608 - one of two
        database.execute(f"INSERT INTO {table} VALUES (-1, zeroblob(1000000))")  # noqa: S608
        die()


async def _open_transaction(lease: KafkaLease, records: Sequence[Outgoing]) -> None:
    producer = lease._producer  # noqa: SLF001 - what `transact` does before it commits
    await producer.begin_transaction()
    sent = [
        await producer.send(r.topic, r.value, r.key, 0, r.timestamp_ms, list(r.headers))
        for r in records
    ]
    await asyncio.gather(*sent)
