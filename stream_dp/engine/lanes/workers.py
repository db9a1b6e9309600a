"""Lanes whose rows come through a log: the engine's side, which adds them up, and what a worker does with a lane.

Rules: the engine begins where its journal ends. It writes a layout where workers must begin again, after what that
follows from is durable: at the first start, where file, version or rows of before do not fit the journal, and once for
all series and watches that begin at a cut; and every `EVERY` ticks, so that nobody reads far back. It never makes a row
itself, and what should be in the log and is not stops it. A worker writes what it reads; a row of its own that differs
from the one that counted sends it back to that.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import msgspec

from stream_dp.engine.lanes.processes import (
    QUEUED,
    Counting,
    LaneReader,
    held_by,
    restore,
    settle,
    together,
)
from stream_dp.engine.lanes.rows import (
    COUNTING,
    RECENT,
    ROW,
    LaneChain,
    LaneRow,
    Layout,
    Stamp,
    Verdict,
    another_log,
    digest,
    encoded,
    parts_of,
    row_of,
)
from stream_dp.engine.ports import Batch, Beginning, Ports, Rows, Source
from stream_dp.engine.tick_assembler import ClosedTick, Cut, Router, TickAssembler
from stream_dp.engine.tick_reader import Gathering, Reader, RecordGuard
from stream_dp.engine.user_table import Arrivals, ByColumn
from stream_dp.errors import UsageError, WorldError
from stream_dp.journal.commit import Commit

EVERY = 1_000
"""So many ticks apart are layouts that say where to read on."""
STUCK_S = 60.0
"""So long may rows come that do not follow, before the engine stops."""
LAGS_S = 15.0
_TOLD = {
    Verdict.CONTESTED: "another row counted before; is the clock of a machine wrong, or does a worker go on that was "
    "paused",
    Verdict.SKEWED: "it was written by another version of stream_dp, or with another pipeline file",
}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, repr=False)
class _Came:
    """A row that counts, its place and its digest."""

    closed: ClosedTick
    place: int
    digest: bytes


@dataclass(slots=True, repr=False, eq=False, kw_only=True)
class RowsReader(Reader):
    """Adds up the rows of all lanes; `source` says what it is, and is not read."""

    rows: Rows
    source: Source
    beginning: Beginning
    _layout: Layout | None = None
    _chains: Mapping[int, LaneChain] = field(default_factory=dict)
    _came: Mapping[int, deque[_Came]] = field(default_factory=dict)
    _stands: deque[tuple[int, Mapping[int, _Came]]] = field(default_factory=deque)
    _since: dict[int, float] = field(default_factory=dict)
    _told: set[tuple[int, Verdict]] = field(default_factory=set)
    _lags: dict[int, float] = field(default_factory=dict)
    _heard: float = float("inf")
    _laying: "asyncio.Task[None] | None" = None

    @property
    def lanes(self) -> int:
        return self.rows.lanes

    async def seek(self, cut: Cut) -> None:
        if self._laying is not None:
            await asyncio.wait({self._laying})
        if self.lanes > len(self.partitions):
            raise UsageError(
                f"source.workers.lanes: {self.lanes} lanes need at least {self.lanes} partitions, "
                f"but topic {self.source.name!r} has fewer. Give at most as many lanes as partitions"
            )
        topic = await self.rows.open() if self._layout is None else self._layout.topic
        layout: Layout | None = await self.rows.layout()
        if layout is not None and (layout.topic, layout.lanes) != (topic, self.lanes):
            raise another_log(0)
        wanted = await self._beginning_at(cut, topic, 0 if layout is None else layout.epoch + 1)
        if layout is None or not _goes_on(layout, wanted):
            layout = wanted
            await self.rows.lay(layout)
        self._layout = layout
        self._chains = {lane: LaneChain(layout, lane) for lane in range(self.lanes)}
        self._came = {lane: deque() for lane in range(self.lanes)}
        for kept in (self._stands, self._since, self._lags):
            kept.clear()
        self._heard = time.monotonic()
        await self.rows.follow(layout.places)

    async def _beginning_at(self, cut: Cut, topic: str, epoch: int) -> Layout:
        parts = parts_of(self.memories.rewind(cut), self.width, marked=not self.source.grows)
        counting = cast("Counting", self.router).counting()
        return Layout(
            self.rows.fingerprint, COUNTING, self.lanes, epoch, cut.next_tick, self.beginning.origin,
            tuple(self.beginning.partitions), self.source.identity, topic, self.width,
            dict(await self.rows.ends()), held=held_by(self.guard), file=self.rows.file,
            added=tuple(counting.told), muted=tuple(sorted((m.start, m.stop) for m in counting.muted)), **parts,
        )  # fmt: skip

    async def _read(self, cut: Cut, group: int) -> None:
        tick = cut.next_tick
        while True:
            while closed := self._closed(group - tick % group):
                tick = closed[-1].tick + 1
                await self.inbox.put(closed, group)
            short = [lane for lane, came in self._came.items() if len(came) < QUEUED]
            for place, row, plain in await self.rows.read(short):
                self._hear(place, row, plain, cut)
            self._look_for_lags()

    def _hear(self, place: int, row: LaneRow, plain: bytes, cut: Cut) -> None:
        lane = row.lane
        verdict = self._chains[lane].take(row, plain)
        if verdict is Verdict.COUNTS:
            if row.tick == cut.next_tick:
                mine = {at: p for at, p in cut.positions.items() if at % self.lanes == lane}
                if row.begins != mine:
                    raise another_log(lane)
            if row.tick >= cut.next_tick:
                self._came[lane].append(_Came(row.closed(), place, digest(plain)))
            self._told -= {(lane, other) for other in Verdict}
            self._since.pop(lane, None)
            self._heard = time.monotonic() if self.source.grows else float("inf")
            return
        now = time.monotonic()
        if self._chains[lane].unfollowed and now - self._since.setdefault(lane, now) > STUCK_S:
            raise another_log(lane)
        if verdict in _TOLD and (lane, verdict) not in self._told:
            self._told.add((lane, verdict))
            _log.warning("A row of lane %d is left out: %s", lane, _TOLD[verdict])

    def _look_for_lags(self) -> None:
        now, any_came = time.monotonic(), any(self._came.values())
        for lane, came in self._came.items():
            if came or not any_came:
                self._lags.pop(lane, None)
            elif now - self._lags.setdefault(lane, now) > LAGS_S:
                self._lags[lane] = float("inf")
                _log.warning(
                    "No row of lane %d comes, though others do: does a worker run that reads it?",
                    lane,
                )
        if not any_came and now - self._heard > LAGS_S + self.beginning.step / 1000:
            self._heard = float("inf")
            _log.warning(
                "No rows come, so ticks wait: does a worker run? `stream-dp worker`, with this pipeline file, reads "
                "the topic"
            )

    @property
    def waiting(self) -> dict[int, int]:
        """How many closed ticks of each lane wait for those of the others."""
        return {lane: len(came) for lane, came in self._came.items()}

    def _closed(self, limit: int) -> list[ClosedTick]:
        """Return up to `limit` ticks that every lane has."""
        closed = list[ClosedTick]()
        while len(closed) < limit and all(self._came.values()):
            parts = {lane: came.popleft() for lane, came in self._came.items()}
            closed.append(
                together([part.closed for part in parts.values()], self.width, self.guard)
            )
            self._stands.append((closed[-1].tick, parts))
        return closed

    def settled(self, next_tick: int) -> None:
        """Lay a layout here, where the memories of the guard stand, if it is time."""
        stand = None
        while self._stands and self._stands[0][0] < next_tick:
            stand = self._stands.popleft()
        layout = self._layout
        if stand is None or layout is None or self.tasks is None:
            return
        if (stand[0] + 1) // EVERY > layout.tick // EVERY and (
            self._laying is None or self._laying.done()
        ):
            tick, parts = stand
            self._layout = msgspec.structs.replace(
                layout, tick=tick + 1, positions={}, behind={}, marks={}, pending={}, known={},
                held=held_by(self.guard),
                places={lane: part.place for lane, part in parts.items()},
                rows={lane: part.digest for lane, part in parts.items()},
            )  # fmt: skip
            self._laying = self.tasks.create_task(self._lay(layout, self._layout))

    async def _lay(self, former: Layout, layout: Layout) -> None:
        """Say where to read on, behind a tick that is committed; nobody needs what lies before the former layout."""
        await self.rows.lay(layout)
        try:
            await self.rows.drop(former.places)
        except WorldError as error:
            _log.warning("Old rows are not deleted for now: %s", error)

    async def close(self) -> None:
        await self.rows.close()


ByLanes: TypeAlias = LaneReader | RowsReader


def by_lanes(ports: Ports, parts: tuple[Any, ...], beginning: Beginning) -> ByLanes | None:
    """Return the reader of an engine whose source others read, made of the `parts` of every reader; None where it reads
    by itself.
    """
    _, _, partitions, *_ = parts
    if ports.rows is not None:
        return RowsReader(*parts, rows=ports.rows, source=ports.source, beginning=beginning)
    lanes = 1 if ports.crew is None else min(ports.crew.most, len(partitions))
    if ports.crew is None or lanes == 1:
        return None
    return LaneReader(*parts, crew=ports.crew, lanes=lanes, beginning=beginning)


def remember(guard: RecordGuard, row: LaneRow) -> None:
    """Let a guard learn of the next row that counts, whose records it has not seen."""
    standing = Commit(0, b"", ticks=(row.tick,))
    for memory in guard.memories:
        memory.recall(row.used.get(memory.kind, {}), standing)


def _goes_on(layout: Layout, wanted: Layout) -> bool:
    """Return whether the rows of this layout lead to the cut of the wanted one, not from far back, and count the same.

    Where an engine has read by itself since, the source may hold no longer what lies behind those rows.
    """
    same = layout.continues(wanted, "width", "added", "muted")
    return same and wanted.tick - 2 * EVERY <= layout.tick <= wanted.tick


class Overtaken(Exception):
    """What was read is not what counts: to be read again from there."""


class LaneWork:
    """A lane in a worker: it hears the rows of its log up to now, begins behind the last one that counts, and makes
    those that nobody has written yet.
    """

    def __init__(
        self, layout: Layout, lane: int, guard: RecordGuard, router: Router, *, marked: bool
    ) -> None:
        self._layout, self._lane, self._marked = layout, lane, marked
        self._guard, self._router = guard, router
        self.chain = LaneChain(layout, lane)
        self._gathering: Gathering | None = None
        self._made: dict[int, bytes] = {}
        guard.begin(layout.first)
        restore(guard, layout.held, layout.tick)

    def begin(self, partitions: Sequence[int]) -> None:
        """Begin to read these partitions behind the cut of the chain. Raises `FailClosed` if the log lacks a row."""
        chain = self.chain
        chain.require_begun()
        self._behind: tuple[bytes, Mapping[int, int]] = chain.previous, chain.cut.positions
        self._next = chain.next_tick
        self._known = {tick: Arrivals(known) for tick, known in chain.cut.arriving.items()}
        ticks = TickAssembler(partitions, self._router.width, chain.cut)
        self._gathering = Gathering(self._guard, self._router, ticks)

    @property
    def _reading(self) -> Gathering:
        if self._gathering is None:
            raise TypeError("begin the lane before it reads")
        return self._gathering

    def take(self, batch: Batch) -> None:
        self._reading.take(batch)

    def rows(self) -> Iterator[tuple[Stamp, bytes]]:
        """Yield the next rows that are not in the log yet. Raises `Overtaken`."""
        for closed in self._reading.ticks.closed(RECENT):
            known = self._settled(closed)
            row = row_of(closed, self._layout, self._lane, self._behind, known, marked=self._marked)
            plain = encoded(row)
            made, counted = digest(plain), self.chain.digest_of(row.tick)
            self._behind, self._next = (made, row.positions), row.tick + 1
            if counted is None:
                self._made[row.tick] = made
                yield Stamp(ROW, self._lane, row.tick, self._layout.epoch), plain
            elif counted != made:
                raise Overtaken

    def _settled(self, closed: ClosedTick) -> dict[int, ByColumn]:
        """Let the guard stand behind this tick; return the identifiers of ticks that are still open."""
        settle(self._guard, closed.used, closed.tick + 1)
        for tick, columns in closed.arriving.items():
            self._known.setdefault(tick, Arrivals()).add(columns)
        self._known.pop(closed.tick, None)
        return {tick: arrivals.once() for tick, arrivals in self._known.items()}

    def heard(self, row: LaneRow, plain: bytes) -> None:
        """Learn of the next row of the log. Raises `Overtaken`, also where others are far ahead."""
        verdict = self.chain.take(row, plain)
        if self._gathering is None:
            if verdict is Verdict.COUNTS:
                remember(self._guard, row)
            return
        if verdict is Verdict.COUNTS:
            made = self._made.pop(row.tick, None)
            if made not in (None, digest(plain)):
                raise Overtaken
        if self.chain.next_tick - self._next > RECENT // 2:
            raise Overtaken
