"""A pipeline file, run until it is stopped: what `stream-dp run` and an embedding program call."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from stream_dp import __version__
from stream_dp.core.time import moment_text
from stream_dp.core.wording import Progress, unseen
from stream_dp.engine.ports import Ports, Spans, untold
from stream_dp.errors import TakenOver, UsageError
from stream_dp.kafka.log.lease import Holder, Presence
from stream_dp.operate.audit.journal_access import require_own
from stream_dp.operate.check_pipeline import require_fitting, require_wanted
from stream_dp.operate.keys import require_analysts, sealer_for
from stream_dp.operate.observe.lifecycle_log import TellEvent, silent
from stream_dp.operate.observe.operator_figures import (
    FiguresPort,
    OperatorFigures,
    figures_told,
    traced,
)
from stream_dp.operate.run.file_change import going_on
from stream_dp.operate.run.running import Run, alongside, signals
from stream_dp.operate.run.settings import WAIT_S, answered, joined, source_there
from stream_dp.operate.run.wiring import PRODUCT, Setup, known_ends, presence_of
from stream_dp.pipeline.yaml import load
from stream_dp.records.endpoints import FileSourceSpec, KafkaSourceSpec, ReplayClock
from stream_dp.server.access import OPEN, Access
from stream_dp.server.server import PageServer, require_extra


@asynccontextmanager
async def served(
    run: Run,
    port: int | None,
    opened: Callable[[str], None] = lambda url: None,
    host: str = "127.0.0.1",
    access: Access = OPEN,
    spans: Spans = untold,
) -> AsyncIterator[None]:
    """Serve the page beside the engine, on `port` (None: not at all), once the engine is ready.

    `opened` receives the page's address. `access` says who may read, and further host names of the page.
    `spans` traces requests. If the page cannot be served, the run stops.
    """
    if port is None:
        yield
        return
    page = PageServer(run.view(), access, spans=spans)

    async def serve() -> None:
        await run.ready.wait()
        await page.start(host, port)
        opened(page.url)

    try:
        async with alongside(serve, run.stop):
            yield
    finally:
        await page.stop()


_JOINING_S = 5.0  # brokers wait 3 s for others by default before a group begins
_LEAVING_S = 1.0  # hanging brokers must not delay the end; the membership expires soon anyway


@asynccontextmanager
async def standing_by(
    presence: Presence | None, stopped: asyncio.Event, waits: Callable[[], None] | None
) -> AsyncIterator[bool]:
    """Be present while the context is open; yield whether to run.

    An engine announces its presence before it runs, else a standby that starts at the same time would fence it. If
    the announcement takes too long, the engine runs all the same. A standby passes `waits`, which is called first;
    its context is entered once no other engine is present. If `stopped` is set before, the context yields False.
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
    being, stop = asyncio.create_task(joined(presence)), asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait({being, stop}, timeout=_JOINING_S, return_when=asyncio.FIRST_COMPLETED)
        yield True
    finally:
        stop.cancel()
        being.cancel()
        await asyncio.wait({being, asyncio.create_task(presence.leave())}, timeout=_LEAVING_S)


async def _permitted(presence: Presence, stopped: asyncio.Event) -> bool:
    """Wait until no other engine is present; return False if the run is told to stop before."""
    async with alongside(presence.alone) as waiting:
        stop = asyncio.create_task(stopped.wait())
        await asyncio.wait({waiting, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        return waiting.done() and not stopped.is_set()


def start_line(run: Run, origin: int | None) -> str:
    """Return the operator's line about a run whose engine is ready: from where it counts, what backlog it reads.

    `origin` is where the ledger begins if this run began it. The line holds public facts only, the grid and the
    first tick that is not public yet; no offset and no lag.
    """
    spec = run.built.spec
    source = spec.source
    where = f"its {source.kind}"
    if isinstance(source, KafkaSourceSpec):
        where = f"topic {source.topic}"
    elif isinstance(source, FileSourceSpec):
        where = source.path.name
    if origin is None:
        told = _goes_on(run, where)
    elif isinstance(spec.clock, ReplayClock):
        end = spec.clock.grid.end_text(spec.clock.horizon - 1)
        told = f"a new ledger; counts the records of {where} from {moment_text(origin)} to {end}"
    else:
        told = (
            f"a new ledger; counts the records that arrive in {where} from {moment_text(origin)} on, and no older "
            "records"
        )
    if isinstance(source, KafkaSourceSpec) and source.workers is not None:
        told += "; workers read it"
    elif (lanes := run.engine.lanes) > 1:
        told += f"; {lanes} processes read it"
    if (keep := spec.journal.keep) is not None:
        told += f"; its journal keeps about {-(-keep // spec.clock.step):,} ticks and deletes older ones"
    return f"{spec.name}: {told}"


def _goes_on(run: Run, where: str) -> str:
    spec, tick = run.built.spec, run.ticks
    if tick == spec.clock.horizon:
        return "all its ticks are published already"
    begin = run.times(tick)
    first = "its first tick" if begin is None else f"the tick that begins at {begin}"
    return f"continues with {first}, and catches up on {where} from there"


_MOMENT_S = 0.1
_LOOK_S = 60.0


@asynccontextmanager
async def ticks_told(run: Run, tell: TellEvent) -> AsyncIterator[None]:
    """Report the number of each public tick while the context is open, and the last one at its end.

    Reports begin with the newest public tick when the engine runs. Of the ticks published within a moment, only the
    newest is reported.
    """
    ticks = 0

    def look() -> None:
        nonlocal ticks
        if run.ready.is_set() and run.ticks > ticks:
            ticks = run.ticks
            tell("tick published", tick=ticks - 1)

    async def follow() -> None:
        await run.ready.wait()
        while True:
            look()
            seen = run.log.last_sequence
            await asyncio.sleep(_MOMENT_S)
            await run.log.wait_beyond(seen, _LOOK_S)

    try:
        async with alongside(follow):
            yield
    finally:
        look()


KEPT_RELEASES = 10_000  # per series, in memory, for the page


@dataclass(frozen=True, slots=True)
class Operator:
    """Callbacks and options of a run's operator: where it starts, its phases, and the figures of its commits.

    The figures are exact; they are also served on `port`, if there is one. `patient`: wait for brokers that do not
    answer yet, and say so through `starts`. `traces` receives the collector's address (None: no traces). `progress`
    receives how far a start has come. `waits` is called when a standby is ready to take over. `opened` receives the
    page's address. `over` is called when no tick is left but the run stays for its page. `noisy` receives why a new
    ledger would mostly pay for noise, and returns whether to begin all the same. `unjudged` receives
    that the file has no guesses. `applies` receives what a
    changed file changes, as `file_change` shows it.
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
    noisy: Callable[[str], bool] = lambda warning: True
    unjudged: Callable[[str], None] = lambda line: None
    applies: Callable[[Mapping[str, Any]], None] = lambda shown: None


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a run.

    Without `until_end`, the run stays after the horizon for its page, until it is stopped. The page is served on
    `port` (None: not at all) of `host`, as `access` allows. `accepted` names a new guarantee
    for a source that was used before. `check`: refuse a new ledger if no record fits. A `standby` begins once no
    other engine of the pipeline runs, and stands by again if another engine takes over. `yes`: begin a new ledger
    without a question where the file's guesses say that most numbers would be noise. So many `processes` read the
    topic (`PipelineSpec.read_by`). `apply`: go on with this file also where it was changed; `was` is the one before, of
    a journal that keeps none.
    """

    until_end: bool = False
    port: int | None = None
    host: str = "127.0.0.1"
    access: Access = OPEN
    key_file: Path | None = None
    accepted: str = ""
    check: bool = True
    standby: bool = False
    yes: bool = False
    processes: int | None = None
    apply: bool = False
    was: Path | None = None


def _require_possible(options: RunOptions, horizon: int | None) -> None:
    if options.until_end and horizon is None:
        raise UsageError("--until-end: this pipeline's clock has no horizon, so the run has no end")
    if options.port is not None:
        require_extra()


async def run_pipeline(
    pipeline: Path,
    options: RunOptions,
    setup: Setup = PRODUCT,
    *,
    operator: Operator | None = None,
    beside: Callable[[Run], AbstractAsyncContextManager[None]] = lambda run: nullcontext(),
    ending: Callable[[Run], AbstractAsyncContextManager[None]] = signals,
) -> Run:
    """Load, build and run; return the run after its end.

    `beside` is entered while the engine runs. `ending` is entered before and stops the run; in our own programs, by
    signals. After UsageError, NotDerivable and BudgetRefused nothing was started; after FailClosed and WorldError
    published releases stay valid.
    """
    callbacks, spec = operator or Operator(), load(pipeline).read_by(options.processes)
    callbacks.tell("starting", pipeline=spec.name, version=__version__)
    _require_possible(options, spec.clock.horizon)
    require_analysts(options.access, spec)
    callbacks.progress(f"Deriving what {spec.name} guarantees")
    sealer = sealer_for(spec, options.key_file)
    if callbacks.patient and not options.standby:
        await source_there(spec, callbacks.starts)
    callbacks.progress("Looking for a journal")
    applies, progress = callbacks.applies if options.apply else None, callbacks.progress
    seconds = inf if options.standby else WAIT_S if callbacks.patient else 0.0
    built, change = await answered(
        lambda: going_on(spec, sealer, options.was, applies, progress), seconds
    )
    new = await answered(lambda: require_own(built, sealer, private=setup.private), seconds)
    if new and not options.yes:
        require_wanted(built, str(pipeline), callbacks.noisy, callbacks.unjudged)
    if new and options.check:
        callbacks.progress("Looking at a sample of the records")
        await require_fitting(spec, sealer, str(pipeline))
    keep = 1 if options.port is None else KEPT_RELEASES
    waits = callbacks.waits if options.standby else None

    def begun() -> Run:
        holder = Holder()

        def ports() -> Ports:
            opened = setup.adapters(built.spec, sealer, options.accepted, holder)
            opened = replace(opened, spans=spans, progress=callbacks.progress)
            ends = partial(known_ends, opened)
            return callbacks.figures.watching(opened, spec.source.warn_dead, ends)

        return Run(
            built, ports(), replace(setup, change=change), keep=keep, accepted=options.accepted, again=ports,
            patient=options.standby, tell=callbacks.tell,
        )  # fmt: skip

    async def live(this: Run) -> None:
        async with (
            ending(this),
            standing_by(presence_of(spec), this.stopped, waits) as to_run,
            served(this, options.port, callbacks.opened, options.host, options.access, spans),
        ):
            if not to_run:
                return
            callbacks.figures.waiting = lambda: this.engine.waiting
            async with beside(this), _announced(this, callbacks), ticks_told(this, callbacks.tell):
                await this.until_end()
            if not options.until_end and not this.stopped.is_set():
                callbacks.over()
                await this.stopped.wait()

    async with (
        figures_told(callbacks.port, spec.name, callbacks.figures, sealer),
        traced(callbacks.traces, spec.name) as spans,
    ):
        return await lived(begun, live, standby=options.standby, tell=callbacks.tell)


async def lived(
    begun: Callable[[], Run],
    live: Callable[[Run], Awaitable[None]],
    *,
    standby: bool,
    tell: TellEvent = silent,
) -> Run:
    """Begin a run and wait for its end; a standby that another engine has replaced stands by again.

    A standby begins only when no other engine is present, so two of them do not replace each other endlessly.
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
        origin = operator.figures.origin
        operator.starts(start_line(run, origin))
        if origin is None:
            operator.tell("ledger", ledger="goes on", tick=run.ticks)
        else:
            operator.tell("ledger", ledger="new", origin=moment_text(origin))

    async with alongside(announce) as announcing:
        try:
            yield
        finally:
            if run.ready.is_set():
                await asyncio.wait({announcing})
