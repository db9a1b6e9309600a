"""Every source of ours that needs no broker keeps the port's contract, and the checks of it can fail.

Kafka's is in tests/kafka/test_kafka_source_contract.py.
"""

import gzip
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TypeAlias

import pytest

from stream_dp.core.time import TickGrid
from stream_dp.engine.ports import NOTHING_BEHIND, Batch, Behinds, Positions, Source
from stream_dp.files.files import FileSource
from stream_dp.files.memory import MemorySource
from stream_dp.operate import replay_feed
from stream_dp.records.schema import CategoryField, Fields, TimeField
from stream_dp.testing import source_checks as suite
from stream_dp.testing.source_checks import SOURCE_CHECKS, SourceCase


def stamped() -> list[Batch]:
    """Two partitions of stamped records with the marks between them, three ticks; partition 1 is silent at first."""
    return [
        _records(0, 0, 0, "first", "second"),
        _records(0, 2, 0, "third"),
        Batch(0, (), (), 3, mark=0),
        Batch(1, (), (), 0, mark=1),
        _records(0, 3, 1, "fourth", "fifth"),
        _records(1, 0, 2, "sixth", "seventh"),
        Batch(0, (), (), 5, mark=1),
        _records(0, 5, 2, "eighth"),
        Batch(0, (), (), 6, mark=2),
        Batch(1, (), (), 2, mark=2),
    ]


def singly(batches: Iterable[Batch]) -> list[Batch]:
    """The same records and marks, one record a batch."""
    found: list[Batch] = []
    for one in batches:
        first = one.position - len(one.payloads)
        for at, pair in enumerate(zip(one.payloads, one.labels, strict=True)):
            found.append(Batch(one.partition, (pair[0],), (pair[1],), first + at + 1, one.tick))
        if one.mark is not None:
            found.append(Batch(one.partition, (), (), one.position, mark=one.mark))
    return found


def _records(partition: int, first: int, tick: int, *names: str) -> Batch:
    payloads = tuple(f"{name} record".encode() for name in names)
    stop = first + len(names)
    return Batch(partition, payloads, range(first, stop), stop, tick)


class Right(MemorySource):
    """Breaks nothing."""

    def __init__(self) -> None:
        super().__init__(stamped())


class _Changed(Right):
    """Gives each batch as `change` makes it."""

    def change(self, batch: Batch) -> Batch:
        raise NotImplementedError

    async def read(self) -> Sequence[Batch]:
        return [self.change(one) for one in await super().read()]


class LosesARecordAtASeek(Right):
    """The first record behind a position is gone."""

    async def seek(self, positions: Positions, behind: Behinds = NOTHING_BEHIND) -> None:
        await super().seek(positions, behind)
        for at, one in enumerate(self._left if positions else ()):
            if one.payloads:
                shorter = replace(one, payloads=one.payloads[1:], labels=one.labels[1:])
                self._left[at] = shorter
                return


class RepeatsAtASeek(_Changed):
    """A batch's position is where the batch begins: a seek gives it again."""

    def change(self, batch: Batch) -> Batch:
        return replace(batch, position=max(0, batch.position - len(batch.payloads)))


class MarksEarly(Right):
    """The mark of a tick comes before the last records of it."""

    async def seek(self, positions: Positions, behind: Behinds = NOTHING_BEHIND) -> None:
        await super().seek(positions, behind)
        at = next((n for n, one in enumerate(self._left) if one.mark == 0), 0)
        if at:
            records, mark = self._left[at - 1 : at + 1]
            before = replace(mark, position=records.position - len(records.payloads))
            self._left[at - 1 : at + 1] = before, records


class MarksByTheClock(_Changed):
    """Which tick has passed depends on when it is read."""

    clock = count()

    def change(self, batch: Batch) -> Batch:
        return batch if batch.mark is None else replace(batch, mark=next(self.clock))


class LabelsShifted(_Changed):
    """Labels count from the last seek on."""

    at = 0

    async def seek(self, positions: Positions, behind: Behinds = NOTHING_BEHIND) -> None:
        self.at = 0
        await super().seek(positions, behind)

    def change(self, batch: Batch) -> Batch:
        first, self.at = self.at, self.at + len(batch.payloads)
        return replace(batch, labels=range(first, self.at))


class LabelsMissing(_Changed):
    """One label a batch."""

    def change(self, batch: Batch) -> Batch:
        return replace(batch, labels=batch.labels[:1])


class NoMarkBehindASeek(Right):
    """A mark that did not move the position is not given again."""

    async def seek(self, positions: Positions, behind: Behinds = NOTHING_BEHIND) -> None:
        await super().seek(positions, behind)
        at = next((n for n, one in enumerate(self._left) if one.mark is not None), None)
        if positions and at is not None:
            del self._left[at]


class GoesOnWhereItIsNotNamed(Right):
    """A partition that a seek does not name stays where it is."""

    async def seek(self, positions: Positions, behind: Behinds = NOTHING_BEHIND) -> None:
        left = self._left
        await super().seek(positions, behind)
        if positions:
            mine = [one for one in left if one.partition not in positions]
            self._left = [one for one in self._left if one.partition in positions] + mine


class BeginsAgain(Right):
    """After the end comes the beginning."""

    async def read(self) -> Sequence[Batch]:
        found = await super().read()
        if not found:
            await self.seek({})
        return found


class OnePlaceForAll(Right):
    """All sources of this kind read on from one common place."""

    left: list[Batch] = []  # noqa: RUF012 - this is what is broken

    async def seek(self, positions: Positions, behind: Behinds = NOTHING_BEHIND) -> None:
        await super().seek(positions, behind)
        type(self).left[:] = self._left
        self._left = self.left


class ClosesOnce(Right):
    """The second `close` fails."""

    closed = False

    async def close(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True


class SaysWhereItIs(Right):
    """Its `repr` tells how much is left."""

    def __repr__(self) -> str:
        return f"SaysWhereItIs(left={len(self._left)})"


class MarksStandStill(_Changed):
    """Every mark is that of tick 0."""

    def change(self, batch: Batch) -> Batch:
        return batch if batch.mark is None else replace(batch, mark=0)


class CutsByGroup(MemorySource):
    """A tick ends behind the group in which it is noticed, whatever else that holds."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        moved: list[Batch] = []
        marks: dict[int, Batch] = {}
        for one in batches:
            if one.mark is not None:
                marks[one.partition] = one
                continue
            moved.append(replace(one, tick=None))
            if one.partition in marks:
                moved.append(replace(marks.pop(one.partition), position=one.position))
        super().__init__([*moved, *marks.values()])


def broken() -> list[tuple[Callable[[], Source], Callable[[SourceCase], Awaitable[None]], str]]:
    """Each broken source, the check that catches it, and the beginning of what that says."""
    return [
        (LosesARecordAtASeek, suite.check_positions, "a seek gives the same records"),
        (RepeatsAtASeek, suite.check_reading, "positions grow"),
        (RepeatsAtASeek, suite.check_positions, "a seek gives the same records"),
        (MarksEarly, suite.check_reading, "no record comes behind the mark"),
        (MarksByTheClock, suite.check_repeat, "a tick's content is the same"),
        (LabelsShifted, suite.check_positions, "a seek gives the same records"),
        (LabelsMissing, suite.check_reading, "each payload has its label"),
        (NoMarkBehindASeek, suite.check_positions, "a seek gives the marks"),
        (GoesOnWhereItIsNotNamed, suite.check_origin, "a partition that is not named"),
        (BeginsAgain, suite.check_end, "the end of a finite source"),
        (OnePlaceForAll, suite.check_two_readers, "two readers"),
        (ClosesOnce, suite.check_close, "`close` twice"),
        (SaysWhereItIs, suite.check_repr, "`repr` of a source"),
        (MarksStandStill, suite.check_reading, "marks grow"),
    ]


Check: TypeAlias = Callable[[SourceCase], Awaitable[None]]
STEP, TICKS = 1000, 120
FIELDS: Fields = {"time": TimeField(), "shop": CategoryField(domain=("a",))}
ROWS = [
    ("oops", "a"),
    (1000, "b"),
    (1500, "c"),
    (999, "d"),
    (117_000, "e"),
    (-5, "f"),
    (10**9, "g"),
]
CHECKS = pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)


def memory() -> SourceCase:
    """The source in memory; one record a batch, where it is regrouped."""
    return SourceCase(
        make=lambda: MemorySource(stamped()),
        regrouped=lambda: MemorySource(singly(stamped())),
    )


def csv() -> bytes:
    """A file with good, bad and outlying times."""
    return b"time,shop\n" + b"".join(f"{time},{shop}\n".encode() for time, shop in ROWS)


def lines() -> bytes:
    """The same as JSON lines."""
    return b"".join(
        json.dumps({"time": time, "shop": shop}).encode() + b"\n" for time, shop in ROWS
    )


FILES: dict[str, bytes] = {
    "shops.csv": csv(),
    "shops.jsonl": lines(),
    "shops.csv.gz": gzip.compress(csv()),
}


def file_source(folder: Path, name: str) -> FileSource:
    path = folder / name
    path.write_bytes(FILES[name])
    return FileSource(path, FIELDS, "time", TickGrid(0, STEP, TICKS))


@CHECKS
async def test_memory_is_a_source(check: Check) -> None:
    await check(memory())


@CHECKS
@pytest.mark.parametrize("name", FILES)
async def test_a_file_is_a_source(check: Check, name: str, tmp_path: Path) -> None:
    await check(SourceCase(make=lambda: file_source(tmp_path, name)))


@CHECKS
async def test_a_paced_source_is_a_source(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_feed, "PAUSE", 0)

    def at(ticks_per_second: float) -> Source:
        return replay_feed.Paced(file_source(tmp_path, "shops.csv"), lambda _: ticks_per_second)

    await check(SourceCase(make=lambda: at(1e-9), regrouped=lambda: at(1e9)))


@pytest.mark.parametrize(
    ("make", "check", "rule"), broken(), ids=lambda x: getattr(x, "__name__", "")
)
async def test_a_broken_source_is_caught(
    make: Callable[[], Source], check: Check, rule: str
) -> None:
    with pytest.raises(AssertionError, match=rule):
        await check(SourceCase(make=make))


async def test_a_source_that_cuts_ticks_by_its_groups_is_caught() -> None:
    case = SourceCase(
        make=lambda: CutsByGroup(stamped()),
        regrouped=lambda: CutsByGroup(singly(stamped())),
    )
    with pytest.raises(AssertionError, match="a tick's content is the same"):
        await suite.check_repeat(case)


async def test_storage_that_shows_nothing_is_refused() -> None:
    """A case without records before and behind a mark would pass everything."""
    silent = SourceCase(make=lambda: MemorySource([one for one in stamped() if not one.payloads]))
    with pytest.raises(AssertionError, match="storage of a case"):
        await suite.check_reading(silent)
    with pytest.raises(AssertionError, match="storage of a case"):
        await suite.check_repr(silent)


async def test_an_endless_source_that_ends_or_never_marks_is_caught() -> None:
    ends = SourceCase(make=Right, last=5)
    with pytest.raises(AssertionError, match="finite source only"):
        await suite.check_repeat(ends)
    hangs = SourceCase(make=Right, last=5, patience_s=0)
    with pytest.raises(AssertionError, match="every tick passes"):
        await suite.check_repeat(hangs)
