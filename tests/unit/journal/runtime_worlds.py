"""A small pipeline in memory: real mechanisms, real noise, a plain router, ports that can fail on demand."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np

from stream_dp.core.neighbors import Neighbors
from stream_dp.engine.engine import Engine
from stream_dp.engine.history import JournalSummary, read_summary
from stream_dp.engine.ports import Audience, Batch, Ports, Source
from stream_dp.engine.recovery import NoiseMaker
from stream_dp.engine.run_config import RunConfig
from stream_dp.engine.series import Series
from stream_dp.engine.tick_assembler import Routed
from stream_dp.errors import WorldError
from stream_dp.files.memory import MemoryJournal, MemorySink, MemorySource, MemoryStore
from stream_dp.journal.commit import Charge, Commit, Release, decode
from stream_dp.journal.dead_letters import as_spans
from stream_dp.journal.keys import Sealer
from stream_dp.journal.release import Shape
from stream_dp.mechanisms.hss.hss import HSS
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.watches.kinds import Alerts
from stream_dp.noise import NoiseStream, fresh_seed
from stream_dp.testing.manual_clock import ManualClock

NAME, WIDTH, HORIZON = "clicks", 65, 24
SEALER = Sealer(bytes(range(32)), NAME)
KEYS = tuple(f"k{column}" for column in range(WIDTH - 1))
RELATION = Neighbors.ADD_REMOVE


class Router:
    """Payloads are `tick column`; anything else is a dead letter."""

    width = WIDTH

    def decode(self, batch: Batch) -> Batch:
        return batch

    def route(self, batch: Batch) -> Routed:
        routed = Routed({}, (), {})
        refused = []
        for payload, label in zip(batch.payloads, batch.labels, strict=True):
            if payload == b"junk":
                refused.append((label, "junk", None))
                continue
            tick, column = map(int, payload.split())
            row = routed.rows.setdefault(tick, np.zeros(WIDTH, np.int64))
            row[[0, 1 + column]] += 1
            routed.records[tick] = routed.records.get(tick, 0) + 1
        routed.dead = as_spans(refused)
        return routed


def series(name: str, mechanism: Any, keys: tuple[str, ...], shape: Shape) -> Series:
    rows = slice(0, 1) if shape is Shape.SCALAR else slice(1, WIDTH)
    return Series(name, mechanism, rows, keys, shape, lambda tick, state: 7, 0.95)


def plan(horizon: int = HORIZON, block: int = 1, group: int = 1) -> RunConfig:
    """Counter, HSS histogram, and alerts at an epsilon so small that each tick's are drawn by lot.

    A tick a commit, so that commits do not depend on timing.
    """
    e = Fraction(1, 1000)
    every = (
        series("total", Counter(1, e, RELATION, horizon), ("",), Shape.SCALAR),
        series("by_key", HSS(len(KEYS), None, e, e, e, RELATION, horizon), KEYS, Shape.HISTOGRAM),
        series("alerts", Alerts(len(KEYS), e, RELATION, 1), KEYS, Shape.FLAGS),
    )
    charge = Charge("all", 10**12, 0, "a rule")
    config = RunConfig(NAME, "f" * 64, 0, 1000, horizon, block, None, True, every, (charge,))
    return replace(config, group=group)


def batches(seed: int = 1, horizon: int = HORIZON) -> list[Batch]:
    """Two partitions; records of the tick and the next two, late ones, junk, and marks that skip ahead."""
    random, found = Random(seed), list[Batch]()
    for partition in (0, 1):
        position = 0
        marks = sorted({random.randrange(horizon) for _ in range(horizon)} | {horizon - 1})
        for mark in marks:
            ticks = [min(horizon - 1, max(0, mark + random.randint(-3, 2))) for _ in range(4)]
            payloads = [b"%d %d" % (tick, random.randrange(len(KEYS))) for tick in ticks]
            payloads += [b"junk"] * random.randint(0, 1)
            labels = range(position, position + len(payloads))
            position += len(payloads) + 1
            found.append(Batch(partition, payloads, labels, position, mark=mark))
    return sorted(found, key=lambda batch: batch.mark or 0)


class Crash(Exception):
    """Stands for the end of a process."""


@dataclass
class Fuse:
    """Ends a run at the n-th place it passes; never where `left` is negative."""

    left: int = -1

    def burn(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Crash


class CrashingJournal(MemoryJournal):
    """Passes a place before and behind each commit."""

    def __init__(self, store: MemoryStore, fuse: Fuse) -> None:
        super().__init__(store)
        self._fuse = fuse

    async def append(self, commit: Commit, sealed: bytes) -> None:
        self._fuse.burn()
        await super().append(commit, sealed)
        self._fuse.burn()


class CrashingSink(MemorySink):
    """Passes a place before each release, so that blocks are left half visible."""

    def __init__(self, bodies: list[bytes], fuse: Fuse) -> None:
        super().__init__(bodies)
        self._fuse = fuse

    async def publish(self, releases: Sequence[Release]) -> None:
        for release in releases:
            self._fuse.burn()
            await super().publish([release])


@dataclass
class World:
    """What outlives an engine, and what is known of all of them."""

    plan: RunConfig = field(default_factory=plan)
    batches: list[Batch] = field(default_factory=batches)
    store: MemoryStore = field(default_factory=MemoryStore)
    bodies: list[bytes] = field(default_factory=list)
    told: list[Release] = field(default_factory=list)
    drawn: list[tuple[bytes, int]] = field(default_factory=list)
    seeds: Callable[[], bytes] = fresh_seed
    sealer: Sealer = SEALER
    make_noise: NoiseMaker = NoiseStream

    def noise(self, seed: bytes, stream: int) -> Any:
        self.drawn.append((seed, stream))
        return self.make_noise(seed, stream)

    def ports(self, fuse: Fuse | None = None, source: Source | None = None) -> Ports:
        fuse = fuse or Fuse()
        return Ports(
            source or MemorySource(self.batches, partitions=(0, 1)),
            CrashingJournal(self.store, fuse),
            CrashingSink(self.bodies, fuse),
            ManualClock(10**12),
            self.sealer,
            self.seeds,
        )

    def engine(
        self,
        fuse: Fuse | None = None,
        *,
        source: Source | None = None,
        journal: MemoryJournal | None = None,
        sink: MemorySink | None = None,
    ) -> Engine:
        ports = self.ports(fuse, source)
        ports = ports if sink is None else replace(ports, sink=sink)
        ports = ports if journal is None else replace(ports, journal=journal)
        self.told.clear()
        return Engine(self.plan, Router(), ports, self.noise, Audience(self.told.append))

    async def run(self, fuse: Fuse | None = None, **ports: Any) -> None:
        await self.engine(fuse, **ports).run()

    def commits(self) -> list[Commit]:
        sealed = enumerate(self.store.commits)
        return [decode(self.sealer.open(number, each)) for number, each in sealed]

    async def summary(self) -> JournalSummary:
        return await read_summary(self._sealed(), self.sealer, self.plan.pipeline)

    async def _sealed(self) -> AsyncIterator[bytes]:
        for each in self.store.commits:
            yield each


class Waiting(MemorySource):
    """Gives its batches, then waits for `release`, then ends or fails with it."""

    def __init__(self, given: Sequence[Batch]) -> None:
        super().__init__(given, partitions=(0, 1))
        self.reached = asyncio.Event()
        self.release: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.closed = False

    async def read(self) -> Sequence[Batch]:
        if read := await super().read():
            return read
        self.reached.set()
        await self.release
        return ()

    async def close(self) -> None:
        self.closed = True


class HeldJournal(MemoryJournal):
    """Holds commit `number` until `go`, noting whether it was cancelled; then fails if `fails`."""

    def __init__(self, store: MemoryStore, number: int, *, fails: bool = False) -> None:
        super().__init__(store)
        self.number, self.fails = number, fails
        self.reached, self.go = asyncio.Event(), asyncio.Event()
        self.attempts: list[Commit] = []
        self.cancelled = self.closed = False

    async def append(self, commit: Commit, sealed: bytes) -> None:
        if commit.sequence == self.number:
            self.attempts.append(commit)
            self.reached.set()
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise
            if self.fails:
                raise WorldError("the disk failed")
        await super().append(commit, sealed)

    async def close(self) -> None:
        self.closed = True
        await super().close()
