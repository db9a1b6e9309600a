"""A pipeline file, run until it is stopped: what `stream-dp run` and an embedding program call."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from stream_dp import __version__
from stream_dp.core.progress import Progress, unseen
from stream_dp.engine.ports import Ports
from stream_dp.errors import TakenOver, UsageError
from stream_dp.kafka.log.lease import Holder
from stream_dp.operate.audit.journal_access import require_own
from stream_dp.operate.check.new_ledger import require_fitting
from stream_dp.operate.observe.figures_beside import FiguresPort, figures_told
from stream_dp.operate.observe.lifecycle_log import TellEvent, silent
from stream_dp.operate.observe.operator_figures import OperatorFigures
from stream_dp.operate.observe.page_beside import served
from stream_dp.operate.observe.traces_beside import traced
from stream_dp.operate.operator_key import sealer_for
from stream_dp.operate.run.awaited_brokers import source_there
from stream_dp.operate.run.running import PRODUCT, Run, Setup, signals
from stream_dp.operate.run.standby import presence_of, standing_by
from stream_dp.operate.run.start_line import start_line, told_start
from stream_dp.operate.run.ticks_told import ticks_told
from stream_dp.operate.run.wiring import known_ends
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.file.yaml import load

KEPT_RELEASES = 10_000  # per series, in memory, for the page


@dataclass(frozen=True, slots=True)
class Operator:
    """Callbacks and options of a run's operator: where it starts, its phases, and the figures of its commits.

    The figures are exact; `port` is where else they are served, if anywhere. `patient`: wait for brokers that do
    not answer yet, and say so through `starts`. `traces` (None: no traces) receives the collector's address.
    `progress` receives how far a start has come. `waits` is called when a standby is ready to take over. `opened`
    receives the page's address. `over` is called when no tick is left but the run stays for its page.
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
    """Do nothing beside the engine."""
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
    """Tell the operator where the run starts, once it is ready."""

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
