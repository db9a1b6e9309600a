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

from stream_dp.engine.ports import (
    NOTHING_BEHIND,
    Answers,
    Batch,
    Behinds,
    Journal,
    Positions,
    Sink,
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
from stream_dp.kafka.log.public import KafkaAnswers, KafkaSink

POINTS = (
    "before-commit",
    "mid-commit",
    "after-commit",
    "before-publish",
    "mid-publish",
    "after-publish",
    "before-answer",
    "mid-answer",
    "after-answer",
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
    """Return point and number from "POINT:NUMBER", or None.

    Raises:
        UsageError: the point is unknown, or the number is missing.
    """
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
        self._journal = journal
        self._watch = watch

    async def open(self) -> None:
        await self._journal.open()

    async def read(self) -> AsyncIterator[bytes]:
        async with aclosing(aiter(self._journal.read())) as blobs:  # type: ignore[type-var]
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

    async def close(self) -> None:
        await self._journal.close()


class WatchedSink:
    """The `Sink` port, watched at the three points of a publication."""

    def __init__(self, sink: Sink, watch: Watch) -> None:
        self._sink = sink
        self._watch = watch

    async def open(self) -> None:
        await self._sink.open()

    async def last(self) -> bytes | None:
        return await self._sink.last()

    async def read(self, beyond: int = -1) -> AsyncIterator[bytes]:
        async for body in self._sink.read(beyond):
            yield body

    async def publish(self, releases: Sequence[Release]) -> None:
        self._watch.at("before-publish")
        if self._watch.due("mid-publish"):
            await half_a_publication(self._sink, releases)
            die()
        await self._sink.publish(releases)
        self._watch.at("after-publish")

    async def close(self) -> None:
        await self._sink.close()


class WatchedAnswers:
    """The `Answers` port, watched at the three points of an answer."""

    def __init__(self, answers: Answers, watch: Watch) -> None:
        self._answers = answers
        self._watch = watch

    async def open(self) -> None:
        await self._answers.open()

    async def last(self) -> bytes | None:
        return await self._answers.last()

    async def read(self, beyond: int = -1) -> AsyncIterator[bytes]:
        async for body in self._answers.read(beyond):
            yield body

    async def publish(self, answers: Sequence[Answer]) -> None:
        self._watch.at("before-answer")
        if self._watch.due("mid-answer"):
            await half_of_the_answers(self._answers, answers)
            die()
        await self._answers.publish(answers)
        self._watch.at("after-answer")

    async def close(self) -> None:
        await self._answers.close()


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
    """Write `sealed` without making it durable; does not always return.

    Raises:
        UsageError: this kind of journal is not supported.
    """
    match journal:
        case HighWater():
            await half_a_commit(journal.marked, commit, sealed)
        case SqliteJournal():
            await asyncio.to_thread(_torn_row, journal, commit, sealed)
        case KafkaJournal():
            parts = list(journal._parts(commit, sealed))  # noqa: SLF001 - as it writes them
            await _open_transaction(journal._lease, parts)  # noqa: SLF001
        case _:
            raise UsageError("--crash mid-commit knows the sqlite and the kafka journal")


async def half_a_publication(sink: Sink, releases: Sequence[Release]) -> None:
    """Write the first half of `releases` as a kill in the middle would leave it.

    Raises:
        UsageError: this kind of sink is not supported.
    """
    half = releases[: max(1, len(releases) // 2)]
    match sink:
        case FileSink():
            await sink.publish(half)
            torn = releases[len(half) :][:1]
            with sink._path.open("ab") as file:  # noqa: SLF001 - the last thing this process does
                file.write(b"".join(release.body[: len(release.body) // 2] for release in torn))
        case KafkaSink():
            records = [sink._record(release) for release in half]  # noqa: SLF001 - as it writes them
            await _open_transaction(sink._lease, records)  # noqa: SLF001
        case _:
            raise UsageError("--crash mid-publish knows the file and the kafka sink")


async def half_of_the_answers(port: Answers, answers: Sequence[Answer]) -> None:
    """Write `answers`, or the first half of them, in a transaction that stays open; does not always return.

    Raises:
        UsageError: this kind of answers is not supported.
    """
    match port:
        case KafkaAnswers():
            half = answers[: max(1, len(answers) // 2)]
            records = [port._record(answer) for answer in half]  # noqa: SLF001 - as it writes them
            await _open_transaction(port._lease, records)  # noqa: SLF001
        case SqliteAnswers():
            await asyncio.to_thread(_torn_answers, port._path, answers)  # noqa: SLF001
        case _:
            raise UsageError("--crash mid-answer knows answers in SQLite and in Kafka")


def _torn_row(journal: SqliteJournal, commit: Commit, sealed: bytes) -> None:
    """Write a row in an open transaction, large enough that SQLite writes it to its log; then die."""
    with closing(sqlite3.connect(journal._path, isolation_level=None)) as database:  # noqa: SLF001
        database.execute("PRAGMA cache_size = 1")
        database.execute("BEGIN IMMEDIATE")
        database.execute("INSERT INTO commits VALUES (?, ?)", (commit.sequence, sealed))
        database.execute("INSERT INTO commits VALUES (-1, zeroblob(1000000))")
        die()


def _torn_answers(path: Path, answers: Sequence[Answer]) -> None:
    """Write answers in an open transaction, large enough that SQLite writes them to its log; then die."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA cache_size = 1")
        database.execute("BEGIN IMMEDIATE")
        rows = [(answer.number, answer.body) for answer in answers]
        database.executemany("INSERT INTO answers VALUES (?, ?)", rows)
        database.execute("INSERT INTO answers VALUES (-1, zeroblob(1000000))")
        die()


async def _open_transaction(lease: KafkaLease, records: Sequence[Outgoing]) -> None:
    producer = lease._producer  # noqa: SLF001 - what `transact` does before it commits
    await producer.begin_transaction()
    sent = [
        await producer.send(r.topic, r.value, r.key, 0, r.timestamp_ms, list(r.headers))
        for r in records
    ]
    await asyncio.gather(*sent)
