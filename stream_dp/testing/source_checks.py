"""Checks of sources, for adapters of this project and others.

A source is one `SourceCase`. Each of `SOURCE_CHECKS` raises an AssertionError that names the broken rule, and closes
what it opened. Rules: a check uses only the port. A source may choose how it groups its records, how often it repeats
a mark after a seek and how far a mark skips ahead. Two readings are the same if each partition gives the same records
in the same order and each tick ends after the same record.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from stream_dp.engine.ports import Batch, Behinds, Positions, Source

_Record: TypeAlias = tuple[bytes, int, int | None]
_Place: TypeAlias = tuple[Positions, Behinds]
_ORIGIN: _Place = ({}, {})
_END_READS = 3
_TELLING = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCase:
    """A source under test, over storage that is filled before and does not change.

    The storage holds records in several ticks, with payloads of eight bytes and more. `make` returns a new, unopened
    source over it each time; `regrouped` returns one that groups records differently. `origin` is the start of tick 0
    in milliseconds since 1970. `last` is the last tick that passes in every partition, by the storage or by the time;
    None for a source that ends by itself. A reading that takes longer than `patience_s` seconds hangs. With `late`,
    records may come after the mark of their tick, for instance from a transaction that was open there.
    """

    make: Callable[[], Source]
    origin: int = 0
    last: int | None = None
    regrouped: Callable[[], Source] | None = None
    late: bool = False
    patience_s: float = 60.0


@dataclass(slots=True, repr=False)
class _Reading:
    """The records of one partition, and how many lie before the end of each passed tick."""

    records: list[_Record] = field(default_factory=list)
    cuts: dict[int, int] = field(default_factory=dict)
    marked: int = -1

    def add(self, batch: Batch) -> None:
        labels = list(batch.labels)
        _require(len(labels) == len(batch.payloads), "each payload has its label")
        pairs = zip(batch.payloads, labels, strict=True)
        self.records += [(bytes(payload), label, batch.tick) for payload, label in pairs]
        if batch.mark is not None and batch.mark > self.marked:
            self.cuts |= dict.fromkeys(range(self.marked + 1, batch.mark + 1), len(self.records))
            self.marked = batch.mark

    def until(self, last: int | None) -> tuple[list[_Record], dict[int, int]]:
        """Return the records and cuts up to the end of tick `last`."""
        if last is None:
            return self.records, self.cuts
        cuts = {tick: cut for tick, cut in self.cuts.items() if tick <= last}
        return self.records[: cuts.get(last)], cuts

    def behind(self, before: "_Reading", last: int | None) -> tuple[list[_Record], dict[int, int]]:
        """Return this reading without the records of `before`; ticks passed there may pass again at once."""
        records, cuts = self.until(last)
        known = len(before.records)
        cuts = {tick: max(0, cut - known) for tick, cut in cuts.items() if tick > before.marked}
        return records[known:], cuts


_Readings: TypeAlias = dict[int, _Reading]


async def check_reading(case: SourceCase) -> None:
    """Check that partitions, payloads, labels, positions, ticks and marks follow the port."""
    async with _opened(case.make, case) as (source, partitions):
        name = source.name
        _require(bool(name), "a source has a name")
        once = len(set(partitions)) == len(partitions) > 0
        _require(once, "`open` returns the partitions, each once")
        batches = await _batches(source, case, partitions)
    read = {batch.partition for batch in batches}
    _require(read <= set(partitions), "batches are of its partitions")
    for partition in partitions:
        _check_order([batch for batch in batches if batch.partition == partition], case.late)
    readings = _readings(batches)
    ends = [cut for r in readings.values() for cut in r.cuts.values() if cut < len(r.records)]
    _require(any(ends), "the storage of a case has records before a mark and behind it")
    async with _opened(case.make, case) as (source, again):
        _require((source.name, again) == (name, partitions), "name and partitions stay the same")


async def check_end(case: SourceCase) -> None:
    """Check that a finite source ends with an empty read, and stays at its end."""
    if case.last is not None:
        return
    async with _opened(case.make, case) as (source, partitions):
        await _batches(source, case, partitions)
        for _ in range(_END_READS):
            _require(not await source.read(), "the end of a finite source stays the end")
        await source.seek({})
        _require(bool(await source.read()), "a seek leads back from the end")


async def check_repeat(case: SourceCase) -> None:
    """Check that a second reading gives every tick the same content, for any grouping of records."""
    first = await _read(case.make, case)
    for make in (case.make, case.regrouped or case.make):
        _same(await _read(make, case), first, case, "a tick's content is the same on every reading")


async def check_positions(case: SourceCase) -> None:
    """Check that every returned position gives the same rest again, in this process and in the next.

    Positions are taken as a commit takes them: of all partitions read so far. The others start at the origin.
    """
    async with _opened(case.make, case) as (source, partitions):
        batches = await _batches(source, case, partitions)
        whole = _readings(batches, partitions)
        tried: list[_Place] = []
        for stop in range(len(batches) + 1):
            place = _place(batches[:stop])
            if place in tried or _passed(batches[:stop], case.last):  # there `read` would wait
                continue
            tried.append(place)
            await source.seek(*place)
            rest = await _batches(source, case, partitions)
            _check_rest(rest, whole, _readings(batches[:stop], partitions), case)
            await source.seek({})
            await source.read()
    middle = tried[len(tried) // 2]
    stop = next(n for n in range(len(batches) + 1) if _place(batches[:n]) == middle)
    async with _opened(case.make, case, middle) as (source, partitions):
        rest = await _batches(source, case, partitions)
        _check_rest(rest, whole, _readings(batches[:stop], partitions), case)


async def check_origin(case: SourceCase) -> None:
    """Check that a seek moves each partition that it does not name to the origin, from any position."""
    rule = "a partition that is not named starts at the origin"
    async with _opened(case.make, case) as (source, partitions):
        batches = await _batches(source, case, partitions)
        whole = _readings(batches, partitions)
        await source.seek({})
        _same(_readings(await _batches(source, case, partitions), partitions), whole, case, rule)
        for named in partitions:
            first = next((b for b in batches if b.partition == named and b.payloads), None)
            if first is None or _passed([first], case.last):
                continue
            await source.seek(*_place([first]))
            readings = _readings(await _batches(source, case, partitions), partitions)
            _same({**readings, named: whole[named]}, whole, case, rule)


async def check_two_readers(case: SourceCase) -> None:
    """Check that two sources over the same storage, read in turn, do not disturb each other."""
    alone = await _read(case.make, case)
    async with (
        _opened(case.make, case) as (source, partitions),
        _opened(case.make, case) as (other, _),
    ):
        first: list[Batch] = list(await source.read())
        second: list[Batch] = list(await other.read())
        first += await _batches(source, case, partitions, first)
        await source.close()
        second += await _batches(other, case, partitions, second)
    rule = "two readers of the same storage do not disturb each other"
    _same(_readings(first, partitions), alone, case, rule)
    _same(_readings(second, partitions), alone, case, rule)


async def check_close(case: SourceCase) -> None:
    """Check that `close` works twice, and before `open`, and that another source can be opened afterwards."""
    never = case.make()
    await _harmless(never.close, "`close` before `open` is harmless")
    source = case.make()
    await source.open(case.origin)
    await source.seek({})
    await source.read()
    await source.close()
    await _harmless(source.close, "`close` twice is harmless")
    await _read(case.make, case)


async def check_repr(case: SourceCase) -> None:
    """Check that `repr` of a source and of its batches shows no read content."""
    async with _opened(case.make, case) as (source, partitions):
        shown = repr(source)
        batches = await _batches(source, case, partitions)
        _require(repr(source) == shown, "`repr` of a source does not change with what it reads")
        payloads = {p for batch in batches for p in batch.payloads if len(p) >= _TELLING}
        _require(bool(payloads), f"the storage of a case has payloads of {_TELLING} bytes or more")
        texts = [shown, *map(repr, batches)]
        hidden = not any(repr(payload)[2:-1] in text for payload in payloads for text in texts)
        _require(hidden, "`repr` shows no payload")
        for batch in batches:
            bare = Batch(batch.partition, (), (), 0, batch.tick, batch.mark)
            _require(repr(batch) == repr(bare), "`repr` of a batch shows no label and no position")


SOURCE_CHECKS: tuple[Callable[[SourceCase], Awaitable[None]], ...] = (
    check_reading,
    check_end,
    check_repeat,
    check_positions,
    check_origin,
    check_two_readers,
    check_close,
    check_repr,
)


def _check_order(batches: Sequence[Batch], late: bool) -> None:
    """Check one partition: positions grow, marks grow, and no record follows the end of its tick unless `late`."""
    place, marked = (0, 0), -1
    for batch in batches:
        here = batch.position, batch.behind.done if batch.behind is not None else 0
        moved = here > place if batch.payloads else here >= place
        _require(moved, "positions grow with every record")
        if batch.payloads and batch.tick is not None:
            _require(batch.tick >= 0, "a record's tick is not before the origin")
            _require(late or batch.tick > marked, "no record comes behind the mark of its tick")
        place = here
        if batch.mark is not None:
            _require(batch.mark > marked, "marks grow")
            marked = batch.mark


def _check_rest(
    batches: Sequence[Batch], whole: _Readings, before: _Readings, case: SourceCase
) -> None:
    """Check after a seek: the records after the position, and the remaining marks."""
    for partition, rest in _readings(batches, whole).items():
        known = before[partition]
        records, cuts = whole[partition].behind(known, case.last)
        again, marks = rest.until(case.last)
        _require(again == records, "a seek gives the same records again, and only those behind it")
        marks = {tick: cut for tick, cut in marks.items() if tick > known.marked}
        _require(marks == cuts, "a seek gives the marks behind it again, between the same records")


def _place(batches: Sequence[Batch]) -> _Place:
    last = {batch.partition: batch for batch in batches}
    behind = {at: batch.behind for at, batch in last.items() if batch.behind is not None}
    return {at: batch.position for at, batch in last.items()}, behind


def _readings(batches: Iterable[Batch], partitions: Iterable[int] = ()) -> _Readings:
    readings = {partition: _Reading() for partition in partitions}
    for batch in batches:
        readings.setdefault(batch.partition, _Reading()).add(batch)
    return readings


async def _read(make: Callable[[], Source], case: SourceCase) -> _Readings:
    async with _opened(make, case) as (source, partitions):
        return _readings(await _batches(source, case, partitions), partitions)


async def _batches(
    source: Source, case: SourceCase, partitions: Sequence[int], before: Sequence[Batch] = ()
) -> list[Batch]:
    """Return the batches until the source's end, or until tick `last` has passed in every partition."""
    batches: list[Batch] = []
    try:
        async with asyncio.timeout(case.patience_s):
            while _passed([*before, *batches], case.last) != set(partitions):
                if not (read := await source.read()):
                    rule = "an empty read comes at the end of a finite source only"
                    _require(case.last is None, rule)
                    return batches
                batches += read
    except TimeoutError:
        raise AssertionError("every tick passes in every partition") from None
    return batches


def _passed(batches: Sequence[Batch], last: int | None) -> set[int]:
    """Return the partitions in which tick `last` has passed; none if a source ends by itself."""
    marked = (b for b in batches if last is not None and b.mark is not None and b.mark >= last)
    return {batch.partition for batch in marked}


def _same(readings: _Readings, wanted: _Readings, case: SourceCase, rule: str) -> None:
    _require(readings.keys() == wanted.keys(), rule)
    for partition, reading in wanted.items():
        _require(readings[partition].until(case.last) == reading.until(case.last), rule)


async def _harmless(close: Callable[[], Awaitable[None]], rule: str) -> None:
    try:
        await close()
    except Exception as error:
        raise AssertionError(rule) from error


def _require(held: bool, rule: str) -> None:
    if not held:
        raise AssertionError(rule)


@asynccontextmanager
async def _opened(
    make: Callable[[], Source], case: SourceCase, place: _Place = _ORIGIN
) -> AsyncIterator[tuple[Source, tuple[int, ...]]]:
    """Open a source at `place` as an engine does, with one seek, and close it."""
    source = make()
    try:
        partitions = await source.open(case.origin)
        await source.seek(*place)
        yield source, partitions
    finally:
        await source.close()
