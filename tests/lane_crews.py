"""Lanes on this event loop: what they are sent and report goes through bytes, and they die and hang by lot."""

import asyncio
import pickle
from collections.abc import Sequence
from copy import copy, deepcopy
from random import Random
from typing import Any

import pytest
from unit.journal import runtime_worlds

from stream_dp.engine.engine import Engine
from stream_dp.engine.lanes import processes as form
from stream_dp.engine.lanes.processes import Came, Lane, LaneReader, Sought
from stream_dp.engine.ports import Beginning
from stream_dp.engine.tick_reader import Reader
from stream_dp.engine.user_table import UserTable
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
        source = copy(self._source)
        if hasattr(source, "limit"):  # the world moves it while it runs
            limit = property(lambda _: self._source.limit)
            source.__class__ = type("OfALane", (type(source),), {"limit": limit})
        source._batches = [b for b in source._batches if b.partition % lanes == lane]
        source._partitions = [number for number in source._partitions if number % lanes == lane]
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

    def fresh(table: UserTable, _: Any) -> UserTable:
        return UserTable(int(table._bits))

    patch.setattr(UserTable, "__deepcopy__", fresh, raising=False)
    patch.setattr(UserHash, "__deepcopy__", lambda same, _: same, raising=False)
    patch.setattr(Engine, "_reader_of", reader_of)
    patch.setattr(form, "SILENT_S", 0.02 if hangs else 60)
    patch.setattr(form, "DEATHS", 1000)
    patch.setattr(runtime_worlds.Router, "counting", lambda router: None, raising=False)
    patch.setattr(runtime_worlds.Router, "count", lambda router, counting: None, raising=False)
    return crews
