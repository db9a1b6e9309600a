"""Lanes on this event loop: what they are sent and report goes through bytes, and they die and hang by lot. Or workers
write their rows into a log in memory; these die by lot too, or do not hear of a new layout.
"""

import asyncio
import pickle
import sys
from collections.abc import Sequence
from copy import copy, deepcopy
from random import Random
from typing import Any

import msgspec
import pytest
from unit.journal import runtime_worlds

from stream_dp.engine.engine import Engine
from stream_dp.engine.lanes import processes as form
from stream_dp.engine.lanes.processes import Came, Lane, LaneReader, Sought
from stream_dp.engine.lanes.rows import (
    LaneRow,
    Layout,
    encoded,
    layout_in,
    row_in,
)
from stream_dp.engine.lanes.workers import LaneWork, Overtaken, RowsReader
from stream_dp.engine.ports import Beginning
from stream_dp.engine.tick_reader import Reader
from stream_dp.engine.user_table import UserTable
from stream_dp.live.planner import counted
from stream_dp.pipeline.router import Counting
from stream_dp.pipeline.user_guard import UserHash


class LoopChannel:
    """A lane and the way to it; `dies` and `hangs` are chances at each report. What it read last before it begins again
    comes once more, late.
    """

    def __init__(self, lane: Any, random: Random, dies: float, hangs: float) -> None:
        self._orders = asyncio.Queue[bytes]()
        self._reports = asyncio.Queue[bytes]()
        self._random, self._dies, self._hangs = random, dies, hangs
        self.killed = False
        self._last = b""
        self._task = asyncio.create_task(lane(self._tell).serve(self._next))

    async def _tell(self, report: Any) -> None:
        if self._random.random() < self._dies:
            self.kill()
        if self.killed or self._random.random() < self._hangs:
            await asyncio.Event().wait()
        sent = pickle.dumps(report)
        self._reports.put_nowait(sent)
        if isinstance(report, Came):
            self._last = sent
        elif isinstance(report, Sought) and self._last:
            self._reports.put_nowait(self._last)
        await asyncio.sleep(0)

    async def _next(self) -> Any:
        return pickle.loads(await self._orders.get())  # noqa: S301 - of this test

    def send(self, order: Any) -> None:
        self._orders.put_nowait(pickle.dumps(order))

    async def receive(self) -> Any:
        if not (report := await self._reports.get()):
            raise EOFError
        return pickle.loads(report)  # noqa: S301 - of this test

    def kill(self) -> None:
        self.killed = True
        self._task.cancel()
        self._reports.put_nowait(b"")


def of_a_lane(whole: Any, lane: int, lanes: int) -> Any:
    """The source that has the partitions of a lane alone."""
    source = copy(whole)
    if hasattr(source, "limit"):  # the world moves it while it runs
        limit = property(lambda _: whole.limit)
        source.__class__ = type("OfALane", (type(source),), {"limit": limit})
    source._batches = [b for b in source._batches if b.partition % lanes == lane]
    source._partitions = [number for number in source._partitions if number % lanes == lane]
    return source


class LoopCrew:
    """The lanes of an engine whose source, guard and router are those of the process that began."""

    def __init__(
        self, engine: Engine, most: int, random: Random, dies: float = 0, hangs: float = 0
    ) -> None:
        self.most, self.ends = most, dict[int, int]()
        self._source: Any = engine._ports.source
        self._router, self._guard = deepcopy((engine._router, engine._guard))
        self._lot = random, dies, hangs
        self.channels: list[LoopChannel] = []

    async def enlist(self, lane: int, lanes: int, beginning: Beginning) -> LoopChannel:
        source = of_a_lane(self._source, lane, lanes)
        router, guard = deepcopy((self._router, self._guard))

        def made(tell: Any) -> Lane:
            return Lane(source, guard, router, lambda: source.open(0), tell)

        self.channels.append(LoopChannel(made, *self._lot))
        return self.channels[-1]

    async def close(self) -> None:
        for channel in self.channels:
            channel.kill()


def in_lanes(
    patch: pytest.MonkeyPatch, seed: int = 0, dies: float = 0, hangs: float = 0
) -> list[LoopCrew]:
    """Let every engine read by lanes, one for each partition; return their crews."""
    crews, random = list[LoopCrew](), Random(seed)

    def reader_of(engine: Engine, partitions: Sequence[int], beginning: Beginning) -> Reader:
        crews.append(LoopCrew(engine, len(partitions), random, dies, hangs))
        parts = (
            engine._guard, engine._router, partitions, engine._inbox, engine._memories, lambda: engine._group,
        )  # fmt: skip
        engine._lanes = LaneReader(
            *parts, crew=crews[-1], lanes=len(partitions), beginning=beginning
        )
        return engine._lanes

    _copied(patch)
    patch.setattr(Engine, "_reader_of", reader_of)
    patch.setattr(form, "SILENT_S", 0.02 if hangs else 60)
    patch.setattr(form, "DEATHS", 1000)
    return crews


def _copied(patch: pytest.MonkeyPatch) -> None:
    """Let a router and a guard be copied for another process, which remembers nothing."""

    def fresh(table: UserTable, _: Any) -> UserTable:
        return UserTable(int(table._bits))

    nothing = Counting((), (), runtime_worlds.WIDTH)
    patch.setattr(UserTable, "__deepcopy__", fresh, raising=False)
    patch.setattr(UserHash, "__deepcopy__", lambda same, _: same, raising=False)
    patch.setattr(runtime_worlds.Router, "counting", lambda router: nothing, raising=False)
    patch.setattr(runtime_worlds.Router, "count", lambda router, counting: None, raising=False)


class Logged:
    """What outlives engines and workers: the layouts, and a log of rows for each lane."""

    def __init__(self) -> None:
        self.layouts, self.rows = list[bytes](), dict[int, list[bytes]]()

    @property
    def layout(self) -> Layout:
        return layout_in(self.layouts[-1])


class LoopRows:
    """The rows of an engine whose source workers read, one worker for each lane. At each row one dies by lot, and is
    replaced; one that `lags` goes on with a former layout, beside the one that reads the new one.
    """

    fingerprint, file = "file", b""

    def __init__(
        self, engine: Engine, log: Logged, lanes: int, random: Random, dies: float, lags: float
    ) -> None:
        self.lanes, self.log = lanes, log
        self.reader: Any = None
        self._engine: Any = engine
        self._router, self._guard = deepcopy((engine._router, engine._guard))
        self._random, self._dies, self._lags = random, dies, lags
        self._working: dict[int, asyncio.Task[None]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._read = dict[int, int]()
        self.ended, self.died, self.lagged = dict[int, int](), 0, 0

    async def open(self) -> str:
        return "topic"

    async def layout(self) -> Layout | None:
        return self.log.layout if self.log.layouts else None

    async def lay(self, layout: Layout) -> None:
        self.log.layouts.append(encoded(layout))
        self._begin(layout.epoch)

    def _begin(self, epoch: int) -> None:
        for lane in range(self.lanes):
            if (former := self._working.get(lane)) is not None:
                if self._random.random() < self._lags:
                    self.lagged += 1
                else:
                    former.cancel()
            self._start(lane)

    def _start(self, lane: int) -> None:
        task = self._working[lane] = asyncio.create_task(self._work(lane))
        self._tasks.append(task)

    async def ends(self) -> dict[int, int]:
        return {lane: len(self.log.rows.setdefault(lane, [])) for lane in range(self.lanes)}

    async def follow(self, places: Any) -> None:
        self._read = dict(places)
        if not self._working:
            self._begin(self.log.layout.epoch)

    async def read(self, lanes: Sequence[int]) -> list[tuple[int, LaneRow, bytes]]:
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()
        found = []
        for lane in lanes:
            if self._read[lane] < len(self.log.rows[lane]):
                plain = self.log.rows[lane][self._read[lane]]
                found.append((self._read[lane], row_in(plain), plain))
                self._read[lane] += 1
        if not found and self._over(lanes):
            await self.reader.inbox.put([])
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        return found

    def _over(self, lanes: Sequence[int]) -> bool:
        at_the_end = all(
            self.ended.get(lane) == self.log.layout.epoch for lane in range(self.lanes)
        )
        return at_the_end and all(
            self._read[lane] == len(self.log.rows[lane]) for lane in range(self.lanes)
        )

    async def drop(self, places: Any) -> None: ...
    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def counting(self, layout: Layout, lane: int) -> Any:
        spec = getattr(self._router, "_spec", None)
        return spec and counted(spec, layout.added, layout.muted, layout.width)

    async def _work(self, lane: int) -> None:
        layout, log = self.log.layout, self.log.rows[lane]
        router: Any = deepcopy(self._router)
        router.count(self.counting(layout, lane))
        work = LaneWork(layout, lane, deepcopy(self._guard), router, marked=True)
        for plain in log[layout.places[lane] :]:
            work.heard(row_in(plain), plain)
        heard = len(log)
        source = of_a_lane(self._engine._ports.source, lane, self.lanes)
        work.begin(await source.open(0))
        await source.seek(work.chain.cut.positions, work.chain.cut.behind)
        try:
            batches: Sequence[Any] = (None,)
            while batches:
                for batch in filter(None, batches):
                    work.take(batch)
                for _, plain in work.rows():
                    log.append(plain)
                    if self._random.random() < self._dies:
                        self.died += 1
                        self._again(lane, layout)
                        return
                for plain in log[heard:]:
                    work.heard(row_in(plain), plain)
                heard = len(log)
                batches = await source.read()
        except Overtaken:
            self._again(lane, layout)
            return
        self.ended[lane] = layout.epoch

    def _again(self, lane: int, layout: Layout) -> None:
        if layout.epoch == self.log.layout.epoch:
            self._start(lane)


def _nobody(plain: bytes) -> bytes:
    return encoded(msgspec.structs.replace(row_in(plain), epoch=-1))


def by_workers(
    patch: pytest.MonkeyPatch, seed: int = 0, dies: float = 0, lags: float = 0,
    rows: type[LoopRows] = LoopRows,
) -> list[LoopRows]:  # fmt: skip
    """Let workers read for every engine, in a lane for each partition; return what each engine had of them."""
    every, random = list[LoopRows](), Random(seed)
    logs = dict[int, tuple[Any, Logged]]()

    def reader_of(engine: Engine, partitions: Sequence[int], beginning: Beginning) -> Reader:
        ports: Any = engine._ports
        store = ports.journal._store
        _, log = logs.setdefault(id(store), (store, Logged()))
        limit = getattr(ports.source, "limit", sys.maxsize)  # nothing of later ticks has come
        for each in log.rows.values():
            each[:] = [plain if row_in(plain).tick <= limit else _nobody(plain) for plain in each]
        mine = rows(engine, log, len(partitions), random, dies, lags)
        every.append(mine)
        parts = (
            engine._guard, engine._router, partitions, engine._inbox, engine._memories, lambda: engine._group,
        )  # fmt: skip
        unread: Any = ports.source
        mine.reader = engine._lanes = RowsReader(
            *parts, rows=mine, source=unread, beginning=beginning
        )
        return engine._lanes

    _copied(patch)
    patch.setattr(Engine, "_reader_of", reader_of)
    return every
