"""A process that derives definitions from messages, so that ticks never wait for it.

Rules: the process receives the pipeline's specification and definitions: no key, no token, no record and no state.
It draws no noise and opens nothing. It starts with the first definition, ends after `IDLE_S` without one, and is
killed with the engine. It returns a definition's mechanism and prices, which the engine checks against its ledger
at a cut. If a definition ends the process, for example by its memory, the definition is refused; it never ends the
engine.
"""

import asyncio
import os
import pickle
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from stream_dp.engine.commands import ENDED
from stream_dp.engine.proposals import Derived, OnThread, derived_by
from stream_dp.errors import EngineEnded, NoRoom, NotDerivable, UsageError
from stream_dp.live.planner import LiveSeriesPlanner, PlannedSeries

CPU_S = 60
"""CPU seconds for one definition: a guard against our own mistakes, since steps bound the work much earlier."""
SMALL = 2048
"""Definitions up to this many bytes are derived in this process while the other one starts, which takes seconds."""
IDLE_S = 300.0
"""Seconds without a definition after which the process ends."""
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "PYTHONHOME", "PYTHONTZPATH", "LD_LIBRARY_PATH")
_PROGRAM = "from stream_dp.operate.run.deriving import serve; serve()"
_KINDS = {"room": NoRoom, "derivation": NotDerivable, "usage": UsageError}
_SERIES, _READY = "series", "ready"
_ENDED = (OSError, EOFError, ValueError, pickle.UnpicklingError)
"""Errors of reading from or writing to a process that has ended."""
DIED = (
    "series: its derivation ended the process that derives, for it took too much memory or time, or by an error of "
    "stream_dp; nothing was done"
)
_FAULT = "series: could not be derived, by an error of stream_dp; nothing was done"


class DerivingProcess:
    """A `Deriver` that lets another process do the work, one definition after the other."""

    def __init__(self, planner: LiveSeriesPlanner) -> None:
        self._planner = planner
        self._here = OnThread(planner)
        self._turn = asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._closed = self._none = False
        self._new = True
        self._warming: asyncio.Task[None] | None = None

    async def derive(self, definition: bytes, start: int) -> Derived:
        """Derive a definition in the process, or on a thread of this process if no other can be started.

        Raises EngineEnded if the deriver was closed.
        """
        if len(definition) <= SMALL and self._new:
            if self._warming is None:
                self._warming = asyncio.create_task(self._warm())
            return await self._here.derive(definition, start)
        async with self._turn:
            if not await self._ready():
                return await self._here.derive(definition, start)
            try:
                steps, kind, content = await self._asked((definition, start))
            except _ENDED:
                self._end()
                self._require_open()
                return Derived(start, 0, UsageError(DIED))
            self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._end)
        if kind == _SERIES:
            return Derived(start, steps, self._planner.received(content, start))
        return Derived(start, steps, _KINDS[kind](content))

    async def close(self) -> None:
        """Kill the process; a definition in work is refused with EngineEnded."""
        self._closed = True
        self._end()

    async def _warm(self) -> None:
        with suppress(EngineEnded):
            async with self._turn:
                await self._ready()

    async def _ready(self) -> bool:
        """Return whether a process takes definitions; start it if needed."""
        self._require_open()
        if self._idle is not None:
            self._idle.cancel()
        if self._process is not None and self._process.poll() is None:
            return True
        self._end()
        if self._none:
            return False
        try:
            self._process = _started()
            await self._asked(self._planner.spec)
        except _ENDED:
            self._end()
            self._require_open()
            self._none = True
        self._new = False
        return not self._none

    async def _asked(self, value: Any) -> tuple[int, str, Any]:
        """Send a value to the process and return its answer; raise OSError or EOFError if the process has ended."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise EOFError
        into, out = process.stdin, process.stdout

        def exchanged() -> tuple[int, str, Any]:
            _send(into, value)
            answer: tuple[int, str, Any] = pickle.load(out)  # noqa: S301 - of this program
            return answer

        try:
            return await asyncio.to_thread(exchanged)
        except asyncio.CancelledError:
            self._end()  # a late answer must not be read as the answer to the next definition
            raise

    def _require_open(self) -> None:
        if self._closed:
            raise EngineEnded(ENDED)

    def _end(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):  # raised for unwritten bytes
                        stream.close()


def _started() -> "subprocess.Popen[bytes]":
    """Start a process that waits for its specification, without the terminal's signals; raise OSError if impossible."""
    return subprocess.Popen(  # noqa: S603 - this program
        [sys.executable, "-P", "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=_environment(),
        start_new_session=True,
    )


def _environment() -> dict[str, str]:
    """Return the environment of the process, without any variable that may be a secret."""
    return beside({name: os.environ[name] for name in _KEPT if name in os.environ})


def beside(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process of this program, which finds the modules that this one finds."""
    places = os.pathsep.join(place or str(Path.cwd()) for place in sys.path)
    return {**environment, "PYTHONPATH": places, "OPENBLAS_NUM_THREADS": "1"}


def serve() -> None:
    """Derive definitions from standard input until it ends: the program of the process."""
    into, out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not mix with answers
    os.nice(5)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    spec = pickle.load(into)  # noqa: S301 - of the engine that started this process
    planner = LiveSeriesPlanner(spec, None)  # type: ignore[arg-type]  # opens no series
    _send(out, (0, _READY, ""))
    with suppress(EOFError, BrokenPipeError):
        while True:
            definition, start = pickle.load(into)  # noqa: S301 - of that engine
            signal.setitimer(signal.ITIMER_PROF, CPU_S)  # its signal ends the process
            answer = _derived(planner, definition, start)
            signal.setitimer(signal.ITIMER_PROF, 0)
            _send(out, answer)


def _derived(planner: LiveSeriesPlanner, definition: bytes, start: int) -> tuple[int, str, Any]:
    """Return the steps that a definition took, and the packed series or the kind and text of its refusal."""
    try:
        derived = derived_by(planner, definition, start)
        outcome = derived.outcome
        if isinstance(outcome, PlannedSeries):
            return derived.steps, _SERIES, outcome.packed()
    except Exception:  # noqa: BLE001 - no definition may end an engine
        return 0, "usage", _FAULT
    kind = next(kind for kind, of in _KINDS.items() if isinstance(outcome, of))
    return derived.steps, kind, str(outcome)


def _send(into: IO[bytes], value: Any) -> None:
    pickle.dump(value, into)
    into.flush()
