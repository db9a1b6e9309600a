"""Processes that read the source beside the engine, each one lane; the engine starts them and speaks by pipes.

Rules: a process gets the specification, the key of users' hashes and that of tick marks; no key of the journal, no
token and no state of a mechanism. It writes nothing anywhere but into its pipe, and ends when that pipe does: with the
engine. Signals of the terminal are the engine's.
"""

import asyncio
import logging
import os
import pickle
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from stream_dp.engine.lanes.processes import BEAT_S, Beat, Lane, Logged, Report
from stream_dp.engine.ports import Beginning, Crew
from stream_dp.errors import WorldError
from stream_dp.files.system_clock import SystemClock
from stream_dp.journal.keys import Sealer
from stream_dp.kafka.source.source import Share
from stream_dp.operate.run.deriving import beside
from stream_dp.operate.run.settings import kafka_source
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_guard import guard_of
from stream_dp.records.endpoints import KafkaSourceSpec

_PROGRAM = "from stream_dp.operate.run.lane_processes import serve; serve()"
_LENGTH = 8
_BUFFER = 1 << 22
_ENDING_S = 2.0


@dataclass(frozen=True, slots=True, repr=False)
class LaneKeys:
    """The keys that a lane needs."""

    users: bytes
    marks: bytes


@dataclass(frozen=True, slots=True, repr=False)
class _Task:
    """What a process is started for."""

    spec: PipelineSpec
    keys: LaneKeys
    share: Share
    beginning: Beginning


class PipedLane:
    """The `Channel` to a process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._length: int | None = None

    def send(self, order: Any) -> None:
        stdin = self._process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(_framed(order))

    async def receive(self) -> Any:
        """Return the next report; cancelled amid one, the next call goes on with it."""
        stream = self._process.stdout
        if stream is None:
            raise EOFError
        self._length = await _length(stream) if self._length is None else self._length
        content = await stream.readexactly(self._length)
        self._length = None
        return _value(content)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()


class LaneProcesses:
    """The `Crew` of a pipeline: at most `most` processes, each with a lane."""

    def __init__(self, most: int, spec: PipelineSpec, keys: LaneKeys) -> None:
        self.most, self.ends = most, dict[int, int]()
        self._spec, self._keys = spec, keys
        self._processes: list[Process] = []

    async def enlist(self, lane: int, lanes: int, beginning: Beginning) -> PipedLane:
        """Start a process; raises WorldError where this machine starts none."""
        self._processes = [process for process in self._processes if process.returncode is None]
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-c", _PROGRAM,
                stdin=PIPE, stdout=PIPE, limit=_BUFFER, start_new_session=True, env=beside(os.environ),
            )  # fmt: skip
        except OSError as error:
            raise WorldError(f"no process for a lane can be started: {error}") from None
        self._processes.append(process)
        channel = PipedLane(process)
        channel.send(_Task(self._spec, self._keys, Share(frozenset({lane}), lanes), beginning))
        return channel

    async def close(self) -> None:
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.kill()
        for process in self._processes:
            with suppress(TimeoutError):
                async with asyncio.timeout(_ENDING_S):
                    await process.wait()


def crew_of(spec: PipelineSpec, sealer: Sealer) -> Crew | None:
    """Return the crew of a pipeline; None where the engine's process reads alone."""
    if not isinstance(spec.source, KafkaSourceSpec):
        return None
    declared = spec.source.processes
    most = os.cpu_count() or 1 if declared == "cores" else declared
    if most == 1:
        return None
    return LaneProcesses(most, spec, LaneKeys(sealer.user_key(), sealer.mark_key()))


def _framed(value: Any) -> bytes:
    content = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return len(content).to_bytes(_LENGTH) + content


async def _next(stream: asyncio.StreamReader) -> Any:
    """Return the next value; raise EOFError at the end, also amid a value."""
    return _value(await stream.readexactly(await _length(stream)))


async def _length(stream: asyncio.StreamReader) -> int:
    return int.from_bytes(await stream.readexactly(_LENGTH))


def _value(content: bytes) -> Any:
    return pickle.loads(content)  # noqa: S301 - of this program's other process


class _Told(logging.Handler):
    """Hands log records on to the engine's process."""

    def __init__(self, tell: Callable[[Report], None]) -> None:
        super().__init__(logging.WARNING)
        self._report = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._report(Logged(record.levelno, record.name, record.getMessage()))


def serve() -> None:
    """Read a lane until standard input ends: the program of a process."""
    into, out = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # output of libraries must not mix with reports
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    asyncio.run(_serve(into, out))


async def _serve(into: int, out: int) -> None:
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader(_BUFFER)
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(orders), os.fdopen(into, "rb", buffering=0)
    )
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop), os.fdopen(out, "wb", buffering=0)
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)

    def write(report: Report) -> None:
        if not writer.is_closing():
            writer.write(_framed(report))

    async def tell(report: Report) -> None:
        write(report)
        with suppress(ConnectionError):  # the engine is gone, and this process ends
            await writer.drain()

    async def beat() -> None:
        while True:
            await tell(Beat())
            await asyncio.sleep(BEAT_S)

    logging.getLogger().addHandler(_Told(write))
    beating = asyncio.create_task(beat())
    with suppress(EOFError):
        task: _Task = await _next(orders)
        await _lane(task, tell, lambda: _next(orders))
    beating.cancel()


async def _lane(task: _Task, tell: Callable[[Report], Any], orders: Callable[[], Any]) -> None:
    spec, keys, (origin, first, _) = task.spec, task.keys, task.beginning
    source = kafka_source(spec, SystemClock(), lambda: keys.marks, task.share)
    guard = guard_of(spec, origin, keys.users)

    async def opened() -> Sequence[int]:
        guard.begin(first)
        return await source.open(origin)

    router = OpenRouter(spec, origin, None, keys.users)
    lane = Lane(source, guard, router, opened, tell, source.known_ends)
    try:
        await lane.serve(orders)
    finally:
        await source.close()
