"""A worker: a process, on whatever machine, that reads lanes of a topic and writes their rows for the engine.

Rules: which lanes it reads, the group of the workers says; what counts, the log of the rows (`engine.lanes.rows`). It
holds the keys of rows, of users' hashes and of tick marks, never the journal's. Nothing that it holds is durable: after
any change (of lanes, of the layout) and any doubt it begins again behind the last row that counts.
"""

import asyncio
import logging
import os
import pickle
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stream_dp.engine.lanes.processes import restore
from stream_dp.engine.lanes.rows import COUNTING, LaneChain, Layout, Verdict
from stream_dp.engine.lanes.workers import LaneWork, Overtaken, remember
from stream_dp.engine.tick_assembler import TickAssembler
from stream_dp.engine.tick_reader import Gathering, RecordGuard
from stream_dp.errors import FailClosed, Outage, UsageError
from stream_dp.files.system_clock import SystemClock
from stream_dp.journal.keys import WorkerKeys
from stream_dp.kafka.log.rows import KafkaRows, Membership, RowsProducer
from stream_dp.kafka.source.source import KafkaSource, Share
from stream_dp.live.planner import counted
from stream_dp.operate.keys import worker_keys_for
from stream_dp.operate.run.running import INTERRUPTED
from stream_dp.operate.run.settings import (
    Patience,
    kafka_source,
    patience_of,
    rows_of,
    settings_for,
    settled,
    source_there,
)
from stream_dp.pipeline.fingerprints import earlier, fingerprint
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_guard import guard_of
from stream_dp.pipeline.yaml import load
from stream_dp.records.endpoints import KafkaSourceSpec, Workers

LOOK_S = 0.2
"""How often a worker looks for a new layout."""
_PAUSE_S = 1.0
_log = logging.getLogger(__name__)


class _Changed(Exception):
    """Other lanes are this worker's, or there is a layout of another file or topic."""


class _Laid(Exception):
    """There is a new layout of the same file and topics, to be read from the log."""


class Worker:
    """Reads lanes of a pipeline's topic until it is cancelled; `tell` learns which."""

    def __init__(self, spec: PipelineSpec, keys: WorkerKeys, tell: Callable[[str], None]) -> None:
        source = settled(spec.source, KafkaSourceSpec)
        if source.workers is None:
            raise UsageError(
                f"{spec.name}: no workers read its source; `source: workers: {{lanes: N}}` says so, for good"
            )
        self._spec, self._keys, self._tell = spec, keys, tell
        self._workers: Workers = source.workers
        self._settings = settings_for(source)
        self._members = Membership(self._settings, spec.name)
        self._said = ""

    async def run(self) -> None:
        """Work until cancelled. Raises `FailClosed`, or `WorldError` after an outage that is longer than `patience`."""
        patience = Patience(patience_of(self._spec), from_the_start=True)
        try:
            while True:
                try:
                    await self._attempt(patience)
                except _Changed:
                    pass
                except Overtaken:
                    _log.warning(
                        "Another worker's row counts, and this one's is not equal to it, or others are far ahead: this "
                        "one goes on behind that row"
                    )
                    await asyncio.sleep(_PAUSE_S)
                except Outage as error:
                    wait = patience.wait(error, advanced=False)
                    if str(error) != self._said:
                        _log.warning("%s; trying again", error)
                    self._said = str(error)
                    await asyncio.sleep(wait)
        finally:
            await self._members.leave()

    async def _attempt(self, patience: Patience) -> None:
        rows = rows_of(self._spec, self._keys.rows)
        if rows is None:
            raise TypeError("a worker needs rows")
        async with AsyncExitStack() as stack:
            stack.push_async_callback(rows.close)
            await self._there(rows)
            topic = await rows.open()
            layout = await rows.layout()
            if layout is None:
                await asyncio.sleep(_PAUSE_S)
                raise _Changed
            self._require_same(layout, topic, rows)
            spec = self._as_laid(layout)
            await self._members.join()
            while not (lanes := self._members.lanes):
                await self._members.changed.wait()
                self._members.changed.clear()
            self._members.changed.clear()
            patience.runs()
            self._said = ""
            self._tell(f"reads {_numbered(lanes)} of {self._workers.lanes}")
            await _Session(spec, self._keys, rows, layout, lanes).work(self._members)

    async def _there(self, rows: KafkaRows) -> None:
        told = False
        while not await rows.made():
            if not told:
                self._tell(
                    "waits for the first start of its engine; if that runs, grant this user the rights on its topics"
                )
            told = True
            await asyncio.sleep(_PAUSE_S)

    def _require_same(self, layout: Layout, topic: str, rows: KafkaRows) -> None:
        if layout.topic != topic:
            raise FailClosed(
                f"topic {rows.topic!r} was made again; its engine says what to do when it starts"
            )
        if layout.counting != COUNTING:
            raise FailClosed(
                f"{self._spec.name}: its engine counts as version {layout.counting} of counting, this worker as "
                f"version {COUNTING}: let both run one version of stream_dp, the engine first"
            )
        if layout.lanes != rows.lanes:
            raise _another_file(self._spec.name)

    def _as_laid(self, layout: Layout) -> PipelineSpec:
        """Return the pipeline as its journal goes on, which may have begun with an earlier file."""
        if layout.fingerprint == fingerprint(self._spec) or not layout.file:
            spec = self._spec
        else:
            spec = earlier(layout.file, self._spec).spec
        if layout.fingerprint != fingerprint(spec):
            raise _another_file(self._spec.name)
        return spec


def _another_file(name: str) -> FailClosed:
    return FailClosed(
        f"{name}: its engine runs another pipeline file than this worker; give both the same"
    )


def _numbered(lanes: frozenset[int]) -> str:
    names = ", ".join(map(str, sorted(lanes)))
    return f"lane {names}" if len(lanes) == 1 else f"lanes {names}"


@dataclass(slots=True, repr=False)
class _Session:
    """Work on some lanes, with one connection to the source, under one `layout` after another."""

    spec: PipelineSpec
    keys: WorkerKeys
    rows: KafkaRows
    layout: Layout
    lanes: frozenset[int]

    async def work(self, members: Membership) -> None:
        """Work until something else than the layout changes. Raises `_Changed`, `Overtaken`, or what fails.

        What fails under a layout that is no longer the newest, as where rows were deleted since, is a change.
        """
        async with self._source() as source, self._producer() as producer:
            partitions = await source.open(self.layout.origin)
            if source.identity != self.layout.source:
                raise FailClosed(f"topic {source.name!r} is another one than that of the journal")
            while True:
                try:
                    await self._work(source, partitions, producer, members)
                except _Laid:
                    self.layout = await self.rows.layout() or self.layout
                except FailClosed:
                    if await self.rows.layout() == self.layout:
                        raise
                    raise _Changed from None

    async def _work(
        self,
        source: KafkaSource,
        partitions: tuple[int, ...],
        producer: RowsProducer,
        members: Membership,
    ) -> None:
        guards = {lane: self._guard() for lane in self.lanes}
        chains = await self._recovered(guards)
        works = self._works(source, chains, guards, partitions)
        cuts = [chain.cut for chain in chains.values()]
        await source.seek(
            {at: place for cut in cuts for at, place in cut.positions.items()},
            {at: open_there for cut in cuts for at, open_there in cut.behind.items()},
        )
        tasks = [
            asyncio.create_task(task)
            for task in (
                self._read(source, works, producer),
                self._listen(works),
                self._look(),
                _reassigned(members),
            )
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()

    def _guard(self) -> RecordGuard:
        guard = guard_of(self.spec, self.layout.origin, self.keys.users)
        guard.begin(self.layout.first)
        restore(guard, self.layout.held, self.layout.tick)
        return guard

    async def _recovered(self, guards: Mapping[int, RecordGuard]) -> Mapping[int, LaneChain]:
        """Return the chains of the lanes, and let the guards stand there: behind all that is in the logs now."""
        chains = {lane: LaneChain(self.layout, lane) for lane in self.lanes}
        ends = {lane: end for lane, end in (await self.rows.ends()).items() if lane in chains}
        await self.rows.follow({lane: self.layout.places[lane] for lane in chains})
        while not await self.rows.caught_up(ends):
            for _, row, plain in await self.rows.read(sorted(chains)):
                if chains[row.lane].take(row, plain) is Verdict.COUNTS:
                    remember(guards[row.lane], row)
        for chain in chains.values():
            chain.require_begun()
        return chains

    def _router(self) -> OpenRouter:
        layout, spec = self.layout, self.spec
        router = OpenRouter(spec, layout.origin, None, self.keys.users)
        if router.width > layout.width:
            raise FailClosed(f"{spec.name}: its engine counts other series than this worker's file")
        try:
            router.count(counted(spec, layout.added, layout.muted, layout.width))
        except UsageError:
            raise FailClosed(
                f"{spec.name}: its engine counts a live series or a watch that this version does not read; let both "
                "run one version of stream_dp, the engine first"
            ) from None
        return router

    def _works(
        self,
        source: KafkaSource,
        chains: Mapping[int, LaneChain],
        guards: Mapping[int, RecordGuard],
        partitions: tuple[int, ...],
    ) -> Mapping[int, LaneWork]:
        router = self._router()
        works = dict[int, LaneWork]()
        for lane, chain in chains.items():
            mine = [at for at in partitions if at % self.layout.lanes == lane]
            ticks = TickAssembler(mine, router.width, chain.cut)
            gathering = Gathering(source, guards[lane], router, ticks)
            works[lane] = LaneWork(self.layout, lane, chain, gathering, marked=not source.grows)
        return works

    async def _read(
        self, source: KafkaSource, works: Mapping[int, LaneWork], producer: RowsProducer
    ) -> None:
        batches: Sequence[Any] = ()
        while True:  # where marks skip ticks, rows may follow at once
            for batch in batches:
                works[batch.partition % self.layout.lanes].take(batch)
                await asyncio.sleep(0)
            made = [
                (lane, self.rows.outgoing(stamp, plain))
                for lane, work in works.items()
                for stamp, plain in work.rows()
            ]
            await producer.written(made)
            batches = await source.read()

    async def _listen(self, works: Mapping[int, LaneWork]) -> None:
        while True:
            for _, row, plain in await self.rows.read(sorted(works)):
                works[row.lane].heard(row, plain)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            newest = await self.rows.layout()
            if newest is not None and newest.epoch != self.layout.epoch:
                raise _Laid if newest.continues(self.layout) else _Changed

    @asynccontextmanager
    async def _source(self) -> AsyncIterator[KafkaSource]:
        share = Share(self.lanes, self.layout.lanes)
        source = kafka_source(self.spec, SystemClock(), lambda: self.keys.marks, share)
        try:
            yield source
        finally:
            await source.close()

    @asynccontextmanager
    async def _producer(self) -> AsyncIterator[RowsProducer]:
        producer = RowsProducer(self.rows.settings)
        await producer.open()
        try:
            yield producer
        finally:
            await producer.close()


async def _reassigned(members: Membership) -> None:
    await members.changed.wait()
    raise _Changed


def serve() -> None:
    """Work until standard input ends: the program of such a process."""
    spec, keys = pickle.load(sys.stdin.buffer)  # noqa: S301 - of the program that started this one

    def wait() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
    asyncio.run(Worker(spec, keys, lambda what: None).run())


async def work(pipeline: Path, key_file: Path | None, tell: Callable[[str], None]) -> str:
    """Work for a pipeline until Ctrl-C or SIGTERM, and return its name; wait for brokers that do not answer yet."""
    spec = load(pipeline)
    keys = worker_keys_for(spec, key_file)
    worker = Worker(spec, keys, lambda what: tell(f"{spec.name}: this worker {what}"))
    await source_there(spec, tell)
    task, loop = asyncio.create_task(worker.run()), asyncio.get_running_loop()
    stopped = False

    def stop() -> None:
        nonlocal stopped
        if stopped:
            os._exit(INTERRUPTED)
        stopped = True
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    with suppress(asyncio.CancelledError):
        await task
    return spec.name
