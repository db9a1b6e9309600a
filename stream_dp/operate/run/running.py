"""An engine with its published releases, and the signals that end it.

Rules: the first Ctrl-C (or SIGTERM) ends the run after the commit in flight, within some seconds; the second one
leaves at once with 130. Nothing here prints: `ticks` and `releases`, which are public, may be polled while the
engine runs.
"""

import asyncio
import gc
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from stream_dp.engine.engine import Engine
from stream_dp.engine.messages.answering import Requests, Understanding
from stream_dp.engine.ports import Audience, Ports
from stream_dp.errors import Outage, StreamDPError, WorldError
from stream_dp.journal.commit import Release
from stream_dp.live.analyst_messages import SignedMessages
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.operate.keys import issued_for
from stream_dp.operate.observe.lifecycle_log import TellEvent, silent
from stream_dp.operate.observe.public_view import public_view
from stream_dp.operate.published_bodies import Backlog, TickTimes
from stream_dp.operate.query.series_words import FiredWatches, SeriesWords
from stream_dp.operate.run.deriving import DerivingProcess
from stream_dp.operate.run.live_series import Attempt
from stream_dp.operate.run.settings import Patience, patience_of
from stream_dp.operate.run.wiring import PRODUCT, Setup
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.router import OpenRouter, memories_of
from stream_dp.pipeline.user_guard import guard_of
from stream_dp.server.view import NOTHING, PublicView, ReleaseLog

_log = logging.getLogger(__name__)
INTERRUPTED = 130
RETAIN_AGAIN_S = 60.0
"""So long after a deletion that failed comes the next try."""
READ_AT_START = 250_000
"""A start reads about so many releases for the page, of more than 25 series fewer than the page keeps: else it takes
seconds.
"""
STOPPING_S = 7.0
"""Seconds that a requested stop may take; supervisors kill after ten seconds or more."""
GIVING_BACK_S = 2.0


class Unanswered(WorldError):
    """A run was told to stop but brokers or disk did not answer; the caller may end the process at once."""


class Run:
    """A pipeline that runs, and its published releases.

    At most `keep` releases of each series stay in memory (None: all). An outage ends an attempt. The next attempt
    has its own engine on ports that `again` opens (None: no next attempt), and recovers as after a crash.
    `accepted` names a new guarantee for a source that was used before. `patient`: ride out an outage also before
    any attempt ran. `tell` receives phases only.
    """

    def __init__(
        self,
        built: Built,
        ports: Ports,
        setup: Setup = PRODUCT,
        *,
        keep: int | None = None,
        accepted: str = "",
        again: Callable[[], Ports] | None = None,
        patient: bool = False,
        tell: TellEvent = silent,
    ) -> None:
        self.built, self._begun = built, False
        self._tell = tell
        self.log = ReleaseLog(keep)
        self.times = TickTimes(built.spec, self.log)
        self.behind = Backlog(built.spec, self.log)
        self._fired = FiredWatches()
        self.ready = asyncio.Event()
        self.stopped = asyncio.Event()
        self._setup, self._accepted, self._again = setup, accepted, again
        self._applied = ""
        self._token_of = ports.sealer.query_token
        self._issued = issued_for(built.spec, ports.sealer)
        self._patience = Patience(patience_of(built.spec), from_the_start=patient)
        self._catching_up = False
        self._ports = ports
        self._attempt = self._shown = self._on(ports)

    @property
    def engine(self) -> Engine:
        return self._attempt.engine

    def stop(self) -> None:
        if not self.stopped.is_set():
            self._tell("stopping")
        self.stopped.set()
        self.engine.stop()

    async def until_end(self) -> None:
        """Run until the horizon, the end of the source, or `stop()`, and ride out outages.

        Raises Unanswered if the run was told to stop and could not end in time.
        """
        while True:
            try:
                return await self._attempted()
            except Outage as error:
                if self._again is None or self.stopped.is_set():
                    raise
                wait = self._patience.wait(error, self.engine.advanced)
                if (applied := self.engine.admission.applied) is not None:
                    self._applied = applied.fingerprint
                if self.ready.is_set() and not self._catching_up:
                    self._tell("catching up")
                self._catching_up = self.ready.is_set()
                await self._pause(wait, error)
                self._ports = self._again()
                self._attempt = self._on(self._ports)

    @property
    def ticks(self) -> int:
        return self.log.ticks

    @property
    def releases(self) -> int:
        return max(0, self.log.last_sequence)

    @property
    def catching_up(self) -> bool:
        """Whether the engine has lost its brokers and does not run again yet."""
        return self._catching_up

    def view(self) -> PublicView:
        """Return the public view for the page, of the attempt that ran last."""
        return public_view(
            self.built, lambda: self._shown, lambda: self.catching_up, self.log, self._token_of, self._issued,
            self.behind,
        )  # fmt: skip

    def _on(self, ports: Ports, fired: FiredWatches | None = None) -> Attempt:
        """Return an attempt on these ports; releases in the log are not read again. `fired` is its own, if it is only
        tried: it works on threads.
        """
        built, setup, fired = self.built, self._setup, fired or self._fired
        config = built.run_config(ports.clock.now(), private=setup.private, accepted=self._accepted)
        config = replace(config, group=setup.group, change=setup.change, applied=self._applied)
        key = ports.sealer.user_key()
        router = OpenRouter(built.spec, config.origin, built.layout, key)
        file = {} if built.file is None else {own.name: own for own in built.file.series}
        planner = LiveSeriesPlanner(built.spec, router, file=file)
        known = max(0, self.log.last_sequence) if self.ready.is_set() else NOTHING
        words = SeriesWords(built, planner, self.times, fired)
        messages = SignedMessages(built.spec.name, ports.sealer.query_token, self._issued.text_of)
        engine = Engine(
            config, router, ports, setup.make_noise,
            Audience(self._published, known, self._wanted),
            requests=Requests(
                planner, built.subledgers(), Understanding(messages, words),
                built.spec.queries.per_tick, DerivingProcess(planner),
            ),
            guard=guard_of(built.spec, config.origin, key),
            memories=(*memories_of(built.layout, built.spec), fired),
        )  # fmt: skip
        return Attempt(engine, words)

    def _wanted(self, shown: int) -> int:
        """Return the first tick whose releases are needed: they are kept, or show which watches have fired.

        Ticks before `shown` are public. A later attempt asks for all, because releases may have become public in
        the attempt before.
        """
        begun, self._begun = self._begun, True
        registry = self.engine.admission.registry
        ages = (*(shown - live.start for live in registry.live), *(shown for _ in registry.made))
        keep, since = self.log.most_ticks(ages), self._fired.since(registry)
        if keep is None or begun:
            return 0
        keep = min(keep, READ_AT_START // max(1, len(ages)))
        return shown - keep if since is None else min(shown - keep, since)

    def _published(self, release: Release) -> None:
        self.log.append(release)
        self._fired.take(release, self.engine.admission.registry)

    async def _attempted(self) -> None:
        """Run the current attempt to its end; after a stop request, wait some seconds at most."""
        work = asyncio.create_task(self.engine.run())
        noting = asyncio.create_task(self._note_running())
        retaining = asyncio.create_task(self._retain())
        stop = asyncio.create_task(self.stopped.wait())
        try:
            await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                await asyncio.wait({work}, timeout=STOPPING_S)
            if not work.done() and await self._given_back(work):
                return
            if not work.done():
                raise self._unanswered()
            await work
        except asyncio.CancelledError:
            work.cancel()
            await asyncio.wait({work})
            raise
        finally:
            if self.engine.ready.is_set() and not noting.done():
                self._runs()
            for task in (noting, retaining, stop, work):
                task.cancel()
            gc.unfreeze()

    async def _retain(self) -> None:
        """Delete from the journal what its file says it need not keep. Where that fails, say so and go on: the next try
        comes in a minute. An attempt that ends cancels this.
        """
        keep, ports, engine = self.built.spec.journal.keep, self._ports, self.engine
        if keep is None:
            return None
        ticks = -(-keep // self.built.spec.clock.step)
        while True:
            try:
                return await engine.retain(ticks, lambda: self._on(ports, FiredWatches()).engine)
            except StreamDPError as error:
                if engine.over:
                    return None
                _log.warning("Old commits are not deleted from the journal for now: %s", error)
                await asyncio.sleep(RETAIN_AGAIN_S)

    async def _given_back(self, work: asyncio.Task[None]) -> bool:
        """End an engine that still reads its journal (nothing is in flight); return whether it ended in time."""
        if self.engine.ready.is_set():
            return False
        work.cancel()
        await asyncio.wait({work}, timeout=GIVING_BACK_S)
        return work.done()

    async def _note_running(self) -> None:
        await self.engine.ready.wait()
        self._runs()

    def _runs(self) -> None:
        self._patience.runs()
        if self._catching_up or not self.ready.is_set():
            self._tell("running")
        self._shown, self._catching_up = self._attempt, False
        gc.freeze()  # else a full collection, of all that an engine holds, makes a tick slow now and then
        self.ready.set()

    async def _pause(self, seconds: float, error: Outage) -> None:
        """Wait `seconds`; if the run is told to stop meanwhile, raise the outage as the reason of the end."""
        try:
            async with asyncio.timeout(seconds):
                await self.stopped.wait()
        except TimeoutError:
            return
        raise error

    def _unanswered(self) -> Unanswered:
        return Unanswered(
            f"{self.built.spec.name} was told to stop, but did not end within {STOPPING_S:g} s, because its brokers "
            "or its disk do not answer. What was published stays valid. The next start shows whether the last commit "
            "counts"
        )


@asynccontextmanager
async def signals(run: Run) -> AsyncIterator[None]:
    """Pass the first Ctrl-C or SIGTERM to the run; end the process at once on the second."""

    def on_signal() -> None:
        if run.stopped.is_set():
            os._exit(INTERRUPTED)
        run.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


@asynccontextmanager
async def alongside(
    work: Callable[[], Awaitable[None]], failed: Callable[[], None] = lambda: None
) -> AsyncIterator[asyncio.Task[None]]:
    """Do `work` while the context is open, and cancel it at the end, where its error is raised.

    `failed` is called as soon as the work fails.
    """

    async def watched() -> None:
        try:
            await work()
        except Exception:
            failed()
            raise

    task = asyncio.create_task(watched())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.result()
