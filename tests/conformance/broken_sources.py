"""Sources over memory that break one rule each; `Right` breaks none."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from itertools import count

from stream_dp.engine.ports import NOTHING_BEHIND, Batch, Behinds, Positions, Source
from stream_dp.files.memory import MemorySource
from stream_dp.testing import source_checks as suite
from stream_dp.testing.source_checks import SourceCase


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


class ReadsByTheClock(_Changed):
    """A record's tick is that of the moment at which it is read."""

    clock = count()

    def change(self, batch: Batch) -> Batch:
        return replace(batch, tick=next(self.clock)) if batch.payloads else batch


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


class BeginsAtTheOrigin(Right):
    """The first seek leads to the origin, whatever it names."""

    begun = False

    async def seek(self, positions: Positions, behind: Behinds = NOTHING_BEHIND) -> None:
        await super().seek(positions if self.begun else {}, behind)
        self.begun = True


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


class ClosesForAll(OnePlaceForAll):
    """Closing one ends the others."""

    async def read(self) -> Sequence[Batch]:
        return await MemorySource.read(self)

    async def seek(self, positions: Positions, behind: Behinds = NOTHING_BEHIND) -> None:
        await MemorySource.seek(self, positions)
        self.everyone.append(self)

    everyone: list["ClosesForAll"] = []  # noqa: RUF012 - this is what is broken

    async def close(self) -> None:
        for one in self.everyone:
            one._left = []


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
        (BeginsAtTheOrigin, suite.check_positions, "a seek gives the same records"),
        (RepeatsAtASeek, suite.check_reading, "positions grow"),
        (RepeatsAtASeek, suite.check_positions, "a seek gives the same records"),
        (MarksEarly, suite.check_reading, "no record comes behind the mark"),
        (ReadsByTheClock, suite.check_repeat, "a tick's content is the same"),
        (MarksByTheClock, suite.check_repeat, "a tick's content is the same"),
        (LabelsShifted, suite.check_positions, "a seek gives the same records"),
        (LabelsMissing, suite.check_reading, "each payload has its label"),
        (NoMarkBehindASeek, suite.check_positions, "a seek gives the marks"),
        (GoesOnWhereItIsNotNamed, suite.check_origin, "a partition that is not named"),
        (BeginsAgain, suite.check_end, "the end of a finite source"),
        (OnePlaceForAll, suite.check_two_readers, "two readers"),
        (ClosesForAll, suite.check_two_readers, "two readers"),
        (ClosesOnce, suite.check_close, "`close` twice"),
        (SaysWhereItIs, suite.check_repr, "`repr` of a source"),
        (MarksStandStill, suite.check_reading, "marks grow"),
    ]
