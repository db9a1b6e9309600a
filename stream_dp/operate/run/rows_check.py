"""What is wrong with rows in a log, in words, with the place of each: for who writes an engine in front of one of ours.

Rules: nothing exact is told. Places are those of the log of rows; ticks, lanes and names of items are public, and of
items that differ only the names are told. What the engine would leave out or stop at is wrong here; equal repeats, and
rows of former epochs, are not.
"""

import asyncio
import base64
import json
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from stream_dp.core.wording import how_many
from stream_dp.engine.lanes.rows import (
    RECENT,
    Cells,
    LaneChain,
    LaneRow,
    Layout,
    LayoutLog,
    Sealed,
    Verdict,
    encoded,
)
from stream_dp.errors import FailClosed, UsageError, WorldError
from stream_dp.journal.keys import WorkerKeys
from stream_dp.kafka.client.topics import TopicEyes
from stream_dp.kafka.log.reader import reading
from stream_dp.operate.keys import worker_keys_for
from stream_dp.operate.run.hosted import LaneHost, sealer_of
from stream_dp.operate.run.settings import settings_for, settled
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load
from stream_dp.records.endpoints import KafkaSourceSpec

MOST = 100
"""Of so many things that are wrong the places are told; further ones are counted."""


class Finding(NamedTuple):
    """What is wrong with the record at this place of a log."""

    topic: str
    partition: int
    offset: int
    what: str

    def __str__(self) -> str:
        return f"{self.topic}, partition {self.partition}, offset {self.offset}: {self.what}"


class Checked(NamedTuple):
    """What was seen of a log: a line for each lane, the first `MOST` things that are wrong, and how many there are."""

    lines: list[str]
    findings: list[Finding]
    wrong: int


class RowsCheck:
    """Judges the rows of a pipeline, of each lane in the order of its log, under one layout."""

    def __init__(self, spec: PipelineSpec, keys: WorkerKeys, layout: Layout) -> None:
        self._host = LaneHost(spec, keys, layout)
        self._layout, self._topic = layout, f"{spec.name}.private.rows"
        self._lanes = {lane: _Lane(layout, lane) for lane in range(layout.lanes)}
        self._findings: list[Finding] = []
        self._wrong = 0

    def take(self, lane: int, offset: int, record: Sealed) -> None:
        """Judge the next record of a lane's log."""
        if lane not in self._lanes:
            self._tell(
                lane, offset, f"there are {self._layout.lanes} lanes, but none has this number"
            )
            return
        try:
            row, plain = self._host.sealer.row(lane, record)
            problems = self._lanes[lane].problems(offset, row, plain, live=self._host.live)
        except FailClosed as error:
            problems = [str(error)]
        for problem in problems:
            self._tell(lane, offset, problem)

    def end(self) -> Checked:
        for lane in self._lanes.values():
            if lane.waits:
                place = self._layout.places[lane.number]
                what = (
                    "according to the layout, a row must be here, but there is none: the log was truncated or "
                    "created again"
                )
                self._tell(lane.number, place, what)
        return Checked([lane.line() for lane in self._lanes.values()], self._findings, self._wrong)

    def _tell(self, lane: int, offset: int, what: str) -> None:
        self._wrong += 1
        if len(self._findings) < MOST:
            self._findings.append(Finding(self._topic, lane, offset, what))


class _Lane:
    def __init__(self, layout: Layout, number: int) -> None:
        self.number, self._layout = number, layout
        self._chain = LaneChain(layout, number)
        self._anchor = layout.rows.get(number)
        self._counted: OrderedDict[int, tuple[int, LaneRow]] = OrderedDict()
        self._repeats = self._former = 0

    @property
    def waits(self) -> bool:
        """Whether the row with which the layout goes on has not come."""
        return self._anchor is not None

    def line(self) -> str:
        first, end = self._layout.tick, self._chain.next_tick
        ticks = f"ticks {first} to {end - 1} count" if end > first else f"no tick from {first} on"
        told = [f"lane {self.number}: {ticks}"]
        if self._repeats:
            told.append(f"{how_many(self._repeats, 'equal repeat')} (harmless)")
        if self._former:
            told.append(
                f"{how_many(self._former, 'row')} from before this layout, of which only seal and form were checked"
            )
        return "; ".join(told)

    def problems(self, offset: int, row: LaneRow, plain: bytes, *, live: bool) -> list[str]:
        """Return what is wrong with the next row."""
        wrong = list(_malformed(row, plain, self._layout, live=live))
        if row.epoch < self._layout.epoch or offset < self._layout.places[self.number]:
            self._former += 1
            return wrong
        if row.epoch > self._layout.epoch:
            return [*wrong, f"it has epoch {row.epoch}, but no layout has begun this epoch"]
        before, expected = self._chain.next_tick, self._chain.previous
        cut, anchored = self._chain.cut, self._anchor is not None
        verdict = self._chain.take(row, plain)
        if anchored and verdict is Verdict.REPEATED:
            self._anchor = None
        elif verdict is Verdict.COUNTS:
            self._counted[row.tick] = offset, row
            if len(self._counted) > RECENT:
                self._counted.popitem(last=False)
        elif verdict is Verdict.REPEATED:
            self._repeats += 1
        elif verdict is Verdict.SKEWED:
            wrong.append(f"it does not count, because {' and '.join(self._skewed(row))}")
        elif verdict is Verdict.AHEAD:
            missing = (
                f"tick {before}" if before == row.tick - 1 else f"ticks {before} to {row.tick - 1}"
            )
            wrong.append(f"it has tick {row.tick}, but {missing} should come before it")
        elif row.tick < before:
            wrong.append(self._otherwise(row))
        else:
            wrong += _unfollowed(row, expected, cut.positions)
        return wrong

    def _skewed(self, row: LaneRow) -> Iterator[str]:
        layout = self._layout
        if row.counting != layout.counting:
            yield f"it uses version {row.counting} of the counting rules, but its engine uses version {layout.counting}"
        if row.fingerprint != layout.fingerprint:
            yield "it was written with another pipeline file"
        if row.cells.width != layout.width:
            yield f"it has {row.cells.width} cells, but the layout has {layout.width}"

    def _otherwise(self, row: LaneRow) -> str:
        counted = self._counted.get(row.tick)
        if counted is None:
            return f"another row of tick {row.tick} counted long ago"
        offset, first = counted
        names = [
            name for name in row.__struct_fields__ if getattr(row, name) != getattr(first, name)
        ]
        return (
            f"another row of tick {row.tick} counts, at offset {offset}, and this row differs from it in "
            f"{', '.join(names)}: rows must depend on the source alone"
        )


def _unfollowed(row: LaneRow, previous: bytes, positions: object) -> Iterator[str]:
    if row.previous != previous:
        yield (
            f"it has tick {row.tick}, but `previous` is not the digest of the last row before it that counts"
            if row.tick
            else "`previous` is neither the digest of the layout nor of the last row before it that counts"
        )
    if row.begins != positions:
        yield "`begins` is not the end (`positions`) of the row before it"


def _malformed(row: LaneRow, plain: bytes, layout: Layout, *, live: bool) -> Iterator[str]:
    """Yield what no row may say, whatever came before it."""
    marks, places = row.marks, row.positions
    marked = (
        not marks
        if live
        else marks.keys() == places.keys() and min(marks.values(), default=row.tick) >= row.tick
    )
    rules = {
        "its bytes do not have the required form: another order of keys, or longer integers than needed": encoded(
            row
        )
        == plain,
        "`positions` names a partition of another lane": all(
            at % layout.lanes == row.lane for at in places
        ),
        "`positions` lies before `begins`, or lacks a partition of `begins`": all(
            places.get(at, -1) >= begin for at, begin in row.begins.items()
        ),
        "the partitions of `positions` are not in ascending order": list(places) == sorted(places),
        "`marks` must be empty with a wall clock; with a replay clock it must name the mark that closed the tick "
        "in each partition": marked,
        "`pending` holds a tick that is over": all(tick > row.tick for tick in row.pending),
        "`records`, `late` or `capped` has an impossible value": min(row.late, row.capped) >= 0
        and row.late <= row.records,
        "the cells do not use the shorter of the two forms, or the narrowest integers": all(
            Cells.of(cells.row(), cells.width) == cells
            for cells in (row.cells, *row.pending.values())
        ),
    }
    return (what for what, kept in rules.items() if not kept)


def check_rows(what: str, pipeline: Path, key_file: Path | None) -> Checked:
    """Check the rows in a topic, or in a file of lines (docs/rows.md). Raises `FailClosed` if the layout is not right,
    else `UsageError` or `WorldError`.
    """
    spec = load(pipeline)
    keys = worker_keys_for(spec, key_file)
    if Path(what).is_file():
        return _in_file(spec, keys, Path(what))
    if what != f"{spec.name}.private.rows":
        raise UsageError(
            f"{what}: this file does not exist, and the rows topic of this pipeline is "
            f"{spec.name}.private.rows"
        )
    return asyncio.run(_in_topic(spec, keys, what))


def _in_file(spec: PipelineSpec, keys: WorkerKeys, path: Path) -> Checked:
    layouts, check = LayoutLog(sealer_of(spec, keys)), None
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            said = json.loads(line)
            log, lane, offset = said["log"], int(said["partition"]), int(said["offset"])
            headers = tuple(
                (str(name), str(text).encode()) for name, text in said["headers"].items()
            )
            record = Sealed(headers, base64.b64decode(said["value"], validate=True))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise UsageError(
                f"{path}:{number}: this line is not a record of a log; docs/rows.md describes the "
                "form"
            ) from None
        if log == "layout":
            layouts.take(record)
            continue
        check = check or _under(spec, keys, layouts, f"{path}:{number}")
        check.take(lane, offset, record)
    return (check or _under(spec, keys, layouts, str(path))).end()


async def _in_topic(spec: PipelineSpec, keys: WorkerKeys, topic: str) -> Checked:
    settings = settings_for(settled(spec.source, KafkaSourceSpec))
    layouts = LayoutLog(sealer_of(spec, keys))
    async with reading(settings, f"{spec.name}.private.layout") as log:
        async for group in log.records(*await log.bounds()):
            for record in group:
                layouts.take(Sealed(record.headers, record.value))
    check = _under(spec, keys, layouts, topic)
    eyes = TopicEyes(settings, topic)
    try:
        await eyes.start()
        look = await eyes.look()
    finally:
        await eyes.stop()
    if look is None:
        raise WorldError(f"topic {topic!r} does not exist, or this user may not read it")
    layout = layouts.newest
    if layout is None or (layout.topic, layout.lanes) != (look.id, len(look.partitions)):
        raise FailClosed(
            f"topic {topic!r} is not the topic that its layout names: it was created again, or "
            "has other partitions"
        )
    for lane in look.partitions:
        async with reading(settings, topic, "read_uncommitted", lane) as log:
            _, end = await log.ends()
            async for group in log.records(await log.begin(), end):
                for record in group:
                    check.take(lane, record.offset, Sealed(record.headers, record.value))
    return check.end()


def _under(spec: PipelineSpec, keys: WorkerKeys, layouts: LayoutLog, where: str) -> RowsCheck:
    if layouts.newest is None:
        raise UsageError(
            f"{where}: a layout must come before the rows; has the engine of {spec.name} ever "
            "started?"
        )
    return RowsCheck(spec, keys, layouts.newest)
