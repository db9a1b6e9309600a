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
from typing import Any, Protocol

from stream_dp.engine.lanes.rows import Layout
from stream_dp.engine.lanes.workers import LaneWork, Overtaken
from stream_dp.errors import FailClosed, Outage
from stream_dp.files.system_clock import SystemClock
from stream_dp.journal.keys import WorkerKeys
from stream_dp.kafka.log.rows import KafkaRows, Membership, RowsProducer
from stream_dp.kafka.source.source import KafkaSource, Share
from stream_dp.operate.keys import worker_keys_for
from stream_dp.operate.run.hosted import LaneHost, workers_of
from stream_dp.operate.run.running import INTERRUPTED
from stream_dp.operate.run.settings import (
    Patience,
    kafka_source,
    patience_of,
    rows_of,
    settings_for,
    source_there,
)
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load

LOOK_S = 0.2
"""How often a worker looks for a new layout."""
_PAUSE_S = 1.0
_log = logging.getLogger(__name__)


class _Changed(Exception):
    """Other lanes are this worker's, or there is a layout of another file or topic."""


class _Laid(Exception):
    """There is a new layout of the same file and topics."""

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout = layout


class Members(Protocol):
    """Which lanes this worker should read, as those that live share them out; `changed` is set where that changes."""

    lanes: frozenset[int]
    changed: asyncio.Event

    async def join(self) -> None:
        """Be one of them; a second call does nothing."""

    async def leave(self) -> None: ...


class Worker:
    """Reads lanes of a pipeline's topic until it is cancelled; `tell` learns which."""

    def __init__(
        self,
        spec: PipelineSpec,
        keys: WorkerKeys,
        tell: Callable[[str], None],
        members: Members | None = None,
    ) -> None:
        """`members` says which lanes (default: the group `NAME.workers`)."""
        source, self._workers = workers_of(spec)
        self._spec, self._keys, self._tell = spec, keys, tell
        self._settings = settings_for(source)
        self._members = members or Membership(self._settings, spec.name)
        self._said = ""
        self._wrote = False

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
                    wait = patience.wait(error, self._wrote)
                    if str(error) != self._said:
                        _log.warning("%s; trying again", error)
                    self._said = str(error)
                    await asyncio.sleep(wait)
        finally:
            await self._members.leave()

    async def _attempt(self, patience: Patience) -> None:
        rows, self._wrote = rows_of(self._spec, self._keys.rows), False
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
            if layout.topic != topic:
                raise FailClosed(
                    f"topic {rows.topic!r} was deleted and created again. Start the engine: it prints what to do"
                )
            host = LaneHost(self._spec, self._keys, layout)
            await self._members.join()
            while not (lanes := self._members.lanes):
                await self._members.changed.wait()
                self._members.changed.clear()
            self._members.changed.clear()
            patience.runs()
            self._said = ""
            self._tell(f"reads {_numbered(lanes)} of {self._workers.lanes}")
            session = _Session(host, rows, lanes)
            try:
                await session.work(self._members)
            finally:
                self._wrote = session.wrote

    async def _there(self, rows: KafkaRows) -> None:
        told = False
        while not await rows.made():
            if not told:
                self._tell(
                    "waits for the first start of its engine. If the engine runs already, grant this user the "
                    "rights on its topics"
                )
            told = True
            await asyncio.sleep(_PAUSE_S)


def _numbered(lanes: frozenset[int]) -> str:
    names = ", ".join(map(str, sorted(lanes)))
    return f"lane {names}" if len(lanes) == 1 else f"lanes {names}"


@dataclass(slots=True, repr=False)
class _Session:
    """Work on some lanes, with one connection to the source, under one layout after another."""

    host: LaneHost
    rows: KafkaRows
    lanes: frozenset[int]
    wrote: bool = False

    async def work(self, members: Members) -> None:
        """Work until something else than the layout changes. Raises `_Changed`, `Overtaken`, or what fails.

        What fails under a layout that is no longer the newest, as where rows were deleted since, is a change.
        """
        async with self._source() as source, self._producer() as producer:
            partitions = await source.open(self.host.layout.origin)
            if source.identity != self.host.layout.source:
                raise FailClosed(
                    f"topic {source.name!r} was deleted and created again: it is not the topic that the "
                    "journal has recorded"
                )
            while True:
                try:
                    await self._work(source, partitions, producer, members)
                except _Laid as laid:
                    self.host = LaneHost(self.host.spec, self.host.keys, laid.layout)
                except FailClosed:
                    if await self.rows.layout() == self.host.layout:
                        raise
                    raise _Changed from None

    async def _work(
        self,
        source: KafkaSource,
        partitions: tuple[int, ...],
        producer: RowsProducer,
        members: Members,
    ) -> None:
        works = await self._recovered()
        for lane, work in works.items():
            work.begin([at for at in partitions if at % self.host.layout.lanes == lane])
        cuts = [work.chain.cut for work in works.values()]
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

    async def _recovered(self) -> Mapping[int, LaneWork]:
        """Return the lanes behind all that is in their logs now."""
        works = {lane: self.host.work(lane) for lane in self.lanes}
        ends = {lane: end for lane, end in (await self.rows.ends()).items() if lane in works}
        await self.rows.follow({lane: self.host.layout.places[lane] for lane in works})
        while not await self.rows.caught_up(ends):
            for _, row, plain in await self.rows.read(sorted(works)):
                works[row.lane].heard(row, plain)
        return works

    async def _read(
        self, source: KafkaSource, works: Mapping[int, LaneWork], producer: RowsProducer
    ) -> None:
        batches: Sequence[Any] = ()
        while True:  # where marks skip ticks, rows may follow at once
            for batch in batches:
                works[batch.partition % self.host.layout.lanes].take(batch)
                await asyncio.sleep(0)
            made = [
                (lane, self.rows.outgoing(stamp, plain))
                for lane, work in works.items()
                for stamp, plain in work.rows()
            ]
            await producer.written(made)
            self.wrote = self.wrote or bool(made)
            batches = await source.read()

    async def _listen(self, works: Mapping[int, LaneWork]) -> None:
        while True:
            for _, row, plain in await self.rows.read(sorted(works)):
                works[row.lane].heard(row, plain)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            newest = await self.rows.layout()
            if newest is not None and newest.epoch != self.host.layout.epoch:
                raise _Laid(newest) if newest.continues(self.host.layout) else _Changed

    @asynccontextmanager
    async def _source(self) -> AsyncIterator[KafkaSource]:
        share = Share(self.lanes, self.host.layout.lanes)
        source = kafka_source(self.host.spec, SystemClock(), lambda: self.host.keys.marks, share)
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


async def _reassigned(members: Members) -> None:
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
