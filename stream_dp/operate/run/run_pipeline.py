"""A pipeline file, run until it is stopped: what `stream-dp run` and an embedding program call."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from stream_dp import __version__
from stream_dp.core.progress import Progress, unseen
from stream_dp.core.time import moment_text
from stream_dp.engine.ports import Ports, Spans, untold
from stream_dp.errors import StreamDPError, TakenOver, UsageError
from stream_dp.kafka.client.clients import backing_off
from stream_dp.kafka.log.lease import Holder, Presence
from stream_dp.operate.audit.journal_access import require_own
from stream_dp.operate.check_pipeline import require_fitting
from stream_dp.operate.keys import sealer_for
from stream_dp.operate.observe.lifecycle_log import TellEvent, silent
from stream_dp.operate.observe.operator_figures import FiguresPort, OperatorFigures, figures_told
from stream_dp.operate.observe.traces import traced
from stream_dp.operate.published_bodies import TickTimes
from stream_dp.operate.run.running import PRODUCT, Run, Setup, signals
from stream_dp.operate.run.settings import settings_for, source_there
from stream_dp.operate.run.wiring import known_ends
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load
from stream_dp.records.endpoints import (
    FileSourceSpec,
    KafkaJournalSpec,
    KafkaSourceSpec,
    ReplayClock,
    SourceSpec,
)
from stream_dp.server.server import PageServer


@asynccontextmanager
async def served(
    run: Run,
    port: int | None,
    opened: Callable[[str], None] = lambda url: None,
    host: str = "127.0.0.1",
    hosts: frozenset[str] = frozenset(),
    spans: Spans = untold,
) -> AsyncIterator[None]:
    """Serve the page beside the engine, on `port` (None: not at all), once the engine is ready.

    `opened` receives the page's address. `hosts` are further host names, without a port, that clients may use.
    `spans` traces requests.
    """
    if port is None:
        yield
        return
    page = PageServer(run.view(), hosts, spans=spans)

    async def serve() -> None:
        await run.ready.wait()
        await page.start(host, port)
        opened(page.url)

    def done(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            run.stop()

    starting = asyncio.create_task(serve())
    starting.add_done_callback(done)
    try:
        yield
    finally:
        starting.cancel()
        await asyncio.wait({starting})
        await page.stop()
    if not starting.cancelled():
        starting.result()


_LONGEST_WAIT_S = 5.0
_JOINING_S = 5.0  # brokers wait 3 s for others by default before a group begins
_LEAVING_S = 1.0  # hanging brokers must not delay the end; the membership expires soon anyway


def presence_of(spec: PipelineSpec) -> Presence | None:
    """Return the presence group of this pipeline's engines, which standbys watch; None without a journal in Kafka."""
    if isinstance(spec.journal, KafkaJournalSpec) and isinstance(spec.source, KafkaSourceSpec):
        return Presence(settings_for(spec.source), spec.name)
    return None


@asynccontextmanager
async def standing_by(
    presence: Presence | None, stopped: asyncio.Event, waits: Callable[[], None] | None
) -> AsyncIterator[bool]:
    """Be present while the context is open; yield whether to run.

    An engine announces its presence before it runs, else a standby that starts at the same time would fence it. If
    the announcement takes too long, the engine runs all the same. A standby passes `waits`, which is called first;
    its context is entered once no other engine is present. If `stopped` is set before, the context yields False.

    Raises:
        UsageError: a standby of a pipeline without a Kafka journal.
        WorldError: a standby that has no right to look.
    """
    if presence is None:
        if waits is not None:
            raise UsageError("--standby: only a pipeline with a Kafka journal has a standby")
        yield True
        return
    if waits is not None:
        waits()
        if not await _permitted(presence, stopped):
            await presence.leave()
            yield False
            return
    being, stop = asyncio.create_task(_be_there(presence)), asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait({being, stop}, timeout=_JOINING_S, return_when=asyncio.FIRST_COMPLETED)
        yield True
    finally:
        stop.cancel()
        being.cancel()
        await asyncio.wait({being, asyncio.create_task(presence.leave())}, timeout=_LEAVING_S)


async def _permitted(presence: Presence, stopped: asyncio.Event) -> bool:
    """Wait until no other engine is present; return False if the run is told to stop before."""
    waiting = asyncio.create_task(presence.alone())
    stop = asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait({waiting, stop}, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            waiting.result()
        return waiting.done() and not stopped.is_set()
    finally:
        for task in (waiting, stop):
            task.cancel()
        await asyncio.wait({waiting, stop})


async def _be_there(presence: Presence) -> None:
    """Join, and retry on errors: presence only informs standbys, so a failure is harmless."""
    waits = backing_off(_LONGEST_WAIT_S)
    while True:
        with suppress(StreamDPError):
            return await presence.join()
        await asyncio.sleep(next(waits))


def start_line(run: Run, origin: int | None) -> str:
    """Return the operator's line about a run whose engine is ready: from where it counts, what backlog it reads.

    `origin` is where the ledger begins if this run began it. The line holds public facts only, the grid and the
    first tick that is not public yet; no offset and no lag.
    """
    spec = run.built.spec
    where = _named(spec.source)
    if origin is None:
        return f"{spec.name}: {_goes_on(run, where)}"
    if isinstance(spec.clock, ReplayClock):
        end = spec.clock.grid.end_text(spec.clock.horizon - 1)
        return f"{spec.name}: a new ledger; counts what {where} holds from {moment_text(origin)} to {end}"
    return f"{spec.name}: a new ledger; counts what comes into {where} from {moment_text(origin)} on, and nothing older"


def told_start(run: Run, origin: int | None) -> dict[str, str | int]:
    """Return log fields: whether the ledger is new, and where it begins or continues."""
    if origin is not None:
        return {"ledger": "new", "origin": moment_text(origin)}
    return {"ledger": "goes on", "tick": run.ticks}


def _goes_on(run: Run, where: str) -> str:
    spec, tick = run.built.spec, run.ticks
    if tick == spec.clock.horizon:
        return "all its ticks are public already"
    begin = TickTimes(spec, run.log)(tick)
    first = "its first tick" if begin is None else f"the tick that begins at {begin}"
    return f"goes on with {first}, and catches up on {where} from there"


def _named(source: SourceSpec) -> str:
    if isinstance(source, KafkaSourceSpec):
        return f"topic {source.topic}"
    return source.path.name if isinstance(source, FileSourceSpec) else f"its {source.kind}"


_MOMENT_S = 0.1
_LOOK_S = 60.0


@asynccontextmanager
async def ticks_told(run: Run, tell: TellEvent) -> AsyncIterator[None]:
    """Report the number of each public tick while the context is open, and the last one at its end.

    Reports begin with the newest public tick when the engine runs. Of the ticks published within a moment, only the
    newest is reported.
    """
    told = _Told(run, tell)
    telling = asyncio.create_task(told.go_on())
    try:
        yield
    finally:
        telling.cancel()
        await asyncio.wait({telling})
        told.look()
    if not telling.cancelled():
        telling.result()


class _Told:
    def __init__(self, run: Run, tell: TellEvent) -> None:
        self._run, self._tell = run, tell
        self._ticks = 0

    async def go_on(self) -> None:
        await self._run.ready.wait()
        while True:
            self.look()
            seen = self._run.log.last_sequence
            await asyncio.sleep(_MOMENT_S)
            await self._run.log.wait_beyond(seen, _LOOK_S)

    def look(self) -> None:
        if self._run.ready.is_set() and self._run.ticks > self._ticks:
            self._ticks = self._run.ticks
            self._tell("tick published", tick=self._ticks - 1)


KEPT_RELEASES = 10_000  # per series, in memory, for the page


@dataclass(frozen=True, slots=True)
class Operator:
    """Callbacks and options of a run's operator: where it starts, its phases, and the figures of its commits.

    The figures are exact; they are also served on `port`, if there is one. `patient`: wait for brokers that do not
    answer yet, and say so through `starts`. `traces` receives the collector's address (None: no traces). `progress`
    receives how far a start has come. `waits` is called when a standby is ready to take over. `opened` receives the
    page's address. `over` is called when no tick is left but the run stays for its page.
    """

    figures: OperatorFigures = field(default_factory=lambda: OperatorFigures(lambda reasons: None))
    starts: Callable[[str], None] = lambda line: None
    tell: TellEvent = silent
    port: FiguresPort | None = None
    patient: bool = False
    traces: Callable[[str], None] | None = None
    progress: Progress = unseen
    over: Callable[[], None] = lambda: None
    waits: Callable[[], None] = lambda: None
    opened: Callable[[str], None] = lambda url: None


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a run.

    Without `until_end`, the run stays after the horizon for its page, until it is stopped. The page is served on
    `port` (None: not at all) of `host`; clients may also use the names in `hosts`. `accepted` names a new guarantee
    for a source that was used before. `check`: refuse a new ledger if no record fits. A `standby` begins once no
    other engine of the pipeline runs, and stands by again if another engine takes over.
    """

    until_end: bool = False
    port: int | None = None
    host: str = "127.0.0.1"
    hosts: frozenset[str] = frozenset()
    key_file: Path | None = None
    accepted: str = ""
    check: bool = True
    standby: bool = False


@asynccontextmanager
async def nothing(_: Run) -> AsyncIterator[None]:
    yield


async def run_pipeline(
    pipeline: Path,
    options: RunOptions,
    setup: Setup = PRODUCT,
    *,
    operator: Operator | None = None,
    beside: Callable[[Run], AbstractAsyncContextManager[None]] = nothing,
    ending: Callable[[Run], AbstractAsyncContextManager[None]] = signals,
) -> Run:
    """Load, build and run; return the run after its end.

    `beside` is entered while the engine runs. `ending` is entered before and stops the run; in our own programs, by
    signals.

    Raises:
        UsageError, NotDerivable, BudgetRefused: nothing was started.
        FailClosed, WorldError: the engine stopped; published releases stay valid.
    """
    told, spec = operator or Operator(), load(pipeline)
    told.tell("starting", pipeline=spec.name, version=__version__)
    if options.until_end and spec.clock.horizon is None:
        raise UsageError("--until-end: this clock has no horizon, so there is no end")
    told.progress(f"Deriving what {spec.name} guarantees")
    built, sealer = build(spec), sealer_for(spec, options.key_file)
    if told.patient and not options.standby:
        await source_there(spec, told.starts)
    told.progress("Looking for a journal")
    new = await require_own(built, sealer, private=setup.private)
    if new and options.check:
        told.progress("Looking at a sample of the records")
        await require_fitting(spec, sealer, str(pipeline))
    keep = 1 if options.port is None else KEPT_RELEASES

    def begun() -> Run:
        holder = Holder()

        def ports() -> Ports:
            opened_ports = setup.adapters(spec, sealer, options.accepted, holder)
            opened_ports = replace(opened_ports, spans=spans, progress=told.progress)
            ends = partial(known_ends, opened_ports.source)
            return told.figures.watching(opened_ports, spec.source.warn_dead, ends)

        return Run(
            built, ports(), setup, keep=keep, accepted=options.accepted, again=ports,
            patient=options.standby, tell=told.tell,
        )  # fmt: skip

    async def live(this: Run) -> None:
        async with (
            ending(this),
            standing_by(
                presence_of(spec), this.stopped, told.waits if options.standby else None
            ) as to_run,
            served(this, options.port, told.opened, options.host, options.hosts, spans),
        ):
            if not to_run:
                return
            async with beside(this), _announced(this, told), ticks_told(this, told.tell):
                await this.until_end()
            if not options.until_end and not this.stopped.is_set():
                told.over()
                await this.stopped.wait()

    async with (
        figures_told(told.port, spec.name, told.figures, sealer),
        traced(told.traces, spec.name) as spans,
    ):
        return await lived(begun, live, standby=options.standby, tell=told.tell)


async def lived(
    begun: Callable[[], Run],
    live: Callable[[Run], Awaitable[None]],
    *,
    standby: bool,
    tell: TellEvent = silent,
) -> Run:
    """Begin a run and wait for its end; a standby that another engine has replaced stands by again.

    A standby begins only when no other engine is present, so two of them do not replace each other endlessly.

    Raises:
        TakenOver: another engine has taken over, and this one is not a standby.
    """
    while True:
        this = begun()
        try:
            await live(this)
        except TakenOver:
            tell("taken over")
            if not standby:
                raise
        else:
            return this


@asynccontextmanager
async def _announced(run: Run, operator: Operator) -> AsyncIterator[None]:

    async def announce() -> None:
        await run.ready.wait()
        operator.starts(start_line(run, operator.figures.origin))
        operator.tell("ledger", **told_start(run, operator.figures.origin))

    announcing = asyncio.create_task(announce())
    try:
        yield
    finally:
        if not run.ready.is_set():
            announcing.cancel()
        await asyncio.wait({announcing})
    if not announcing.cancelled():
        announcing.result()
