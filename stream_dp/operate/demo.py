"""The demo: a year of real flights through a local Kafka, or through a file and a database, to a private live page.

Rules: the data is public, so exact figures may be shown, and only because the pipeline file says so. The state lies in
`local_dir()`; a demo goes on where it stopped, and `fresh` deletes that state only. With a page the clock goes on for
`YEARS`; that demo has a state of its own, because a journal of one year cannot go on with a longer clock.
"""

import math
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from stream_dp.broker.jars import local_dir, resolve_jars
from stream_dp.broker.process import LocalKafka, held
from stream_dp.broker.topics import create_topic
from stream_dp.core.wording import Progress
from stream_dp.engine.history import JournalSummary, read_summary
from stream_dp.engine.ports import Ports, Source
from stream_dp.errors import FailClosed, UsageError, WorldError
from stream_dp.journal.keys import Sealer
from stream_dp.kafka.log.lease import Holder
from stream_dp.operate.audit.journal_access import sealed_commits
from stream_dp.operate.keys import sealer_for
from stream_dp.operate.replay_feed import Feed, Paced, Speed, feed_records, loaded
from stream_dp.operate.run.run_pipeline import served
from stream_dp.operate.run.running import Run, alongside, signals
from stream_dp.operate.run.wiring import file_source, open_ports, working
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load
from stream_dp.records.endpoints import (
    FileSourceSpec,
    KafkaSourceSpec,
    Releases,
    SqliteJournalSpec,
    Workers,
)
from stream_dp.records.privacy import Analyst

FOLDER = Path("examples", "01_flights")
DATA = "flights.csv.gz"


def flights_folder() -> Path:
    """Return the folder with the flights example: that of a checkout, else the one where the wheel put the files."""
    beside = Path(__file__).resolve().parents[2]
    for folder in (beside / FOLDER, beside / "share" / "stream_dp" / FOLDER, _recorded()):
        if folder is not None and (folder / DATA).is_file():
            return folder
    raise WorldError(
        f"the example's file {FOLDER / DATA} is missing from this installation; "
        "install stream_dp again, or run from a checkout"
    )


def _recorded() -> Path | None:
    """Return the folder that the installer's record names, or None."""
    try:
        recorded = files("stream_dp") or []
    except PackageNotFoundError:
        return None
    paths = (Path(str(file.locate())) for file in recorded if file.name == DATA)
    return next((path.resolve().parent for path in paths), None)


TOPIC = "flights"
JOURNAL = "flights.journal"
PARTITIONS = 2
SECONDS_FOR_A_YEAR = 120
FIRST_TICKS = 30 * 24
"""These are not paced, so that every window is full when the page opens."""
SLOW_FROM = Fraction(3, 4)
SLOW_SPEED = 1.2
"""From `SLOW_FROM` of the first year on a day takes 20 seconds."""
YEARS = 50
"""On the page the flights of the year come again in each following one, at the same hours of the same days: two hours
a year. So the demo goes on for four days.
"""
GUEST = Analyst(name="guest", epsilon=Fraction(2, 5))
"""The demo's analyst, beside the pipeline file: the link to the page has a token of theirs."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Options of a run: `headless` runs without a page and at full speed; `fresh` deletes the state first."""

    embedded: bool
    headless: bool
    until_end: bool
    fresh: bool
    port: int
    processes: int | None = None
    workers: int = 0


@dataclass(frozen=True, slots=True)
class Told:
    """Callbacks for progress: a text line, the progress of a start, the page's address, the running `Run`.

    The second argument of `page` is the guest's token, with which visitors create series; empty once all is over.
    """

    line: Callable[[str], None]
    progress: Progress
    page: Callable[[str, str], None]
    beside: Callable[[Run], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class DemoRun:
    """A finished run: its pipeline, its duration in `seconds`, and the events of earlier runs (`before`)."""

    built: Built
    sealer: Sealer
    broker: str
    seconds: float
    before: int
    run: Run


@asynccontextmanager
async def run_demo(options: DemoOptions, callbacks: Told) -> AsyncIterator[DemoRun]:
    """Run the demo until its end or the first signal; its broker, and so its journal, lasts as long as the context.

    Raises UsageError if another demo runs, or the pipeline is not one that may be shown.
    """
    embedded = options.embedded or not _kafka_can_be_had(callbacks)
    years = 1 if options.headless or options.until_end else YEARS
    states = local_dir() / "demo" / ("" if years == 1 else "years")
    folder = states / ("embedded" if embedded else "kafka")
    try:
        year = _with_guest(load(flights_folder() / "pipeline.yaml"))
        spec, speed = _lasting(year, years), None if options.headless else _speed(year)
        every = year.clock.horizon or 1
        if not spec.public_data:
            raise UsageError(
                "the demo shows exact figures, so its pipeline must declare public_data: true"
            )
        if options.fresh:
            _delete(folder, callbacks)
        folder.mkdir(parents=True, exist_ok=True)
        if embedded and options.workers:
            raise UsageError("--workers: workers read a topic, but --embedded uses no topic")
        if embedded:
            spec = _embedded(spec, folder)
            yield await _run(spec, folder, options, callbacks, source=_flights(spec, every, speed))
            return
        callbacks.progress("Starting Kafka")
        async with LocalKafka(folder / "broker") as kafka:
            callbacks.line(f"Kafka is ready at {kafka.bootstrap}")
            shared = Workers(lanes=PARTITIONS) if options.workers else None
            source = KafkaSourceSpec(topic=TOPIC, bootstrap=kafka.bootstrap, workers=shared)
            local = spec.model_copy(update={"source": source})
            await create_topic(kafka.bootstrap, TOPIC, PARTITIONS)
            to = Feed(TOPIC, speed, every=every)

            async def feed() -> None:
                records = await loaded(local, flights_folder() / DATA)
                await feed_records(local, sealer_for(local, None), records, to)

            keys = sealer_for(local, None).worker_keys()
            async with working(options.workers, local, keys):
                yield await _run(local, folder, options, callbacks, feed=feed)
    except FailClosed as error:
        flags = f"{'--embedded ' if embedded else ''}--fresh"
        raise FailClosed(
            f"{error.args[0].rstrip('.')}. The state of the demo lies in {folder}. If no demo runs on it, "
            f"`stream-dp demo {flags}` "
            f"(or `make demo ARGS='{flags}'`) deletes it and begins anew; STREAM_DP_HOME=FOLDER before the command "
            "gives this one a state of its own"
        ) from None


def _kafka_can_be_had(callbacks: Told) -> bool:
    """Fetch the files of a local Kafka; if that is impossible, report one line and return False."""
    try:
        resolve_jars(callbacks.progress)
    except (WorldError, UsageError) as error:
        callbacks.line(f"No local Kafka here ({error}); going on with --embedded")
        return False
    return True


def _delete(folder: Path, callbacks: Told) -> None:
    """Delete the demo's state and report each entry; raise UsageError if a running demo uses it."""
    if not folder.exists():
        return
    if any(held(lock) for lock in (folder / "broker" / "lock", folder / f"{JOURNAL}.lock")):
        raise UsageError(
            "a demo is running. Stop it first: --fresh would delete the state that it uses"
        )
    for entry in sorted(folder.iterdir()):
        callbacks.line(f"--fresh deletes {entry}")
    shutil.rmtree(folder)


def _with_guest(spec: PipelineSpec) -> PipelineSpec:
    privacy = spec.privacy.model_copy(update={"analysts": (GUEST,)})
    return spec.model_copy(update={"privacy": privacy})


def _lasting(spec: PipelineSpec, years: int) -> PipelineSpec:
    clock = spec.clock
    longer = clock.model_copy(update={"horizon": (clock.horizon or 1) * years})
    return spec.model_copy(update={"clock": longer})


def _flights(spec: PipelineSpec, every: int, speed: Speed | None) -> Callable[[], Source]:
    def source() -> Source:
        file = file_source(spec, every)
        return file if speed is None else Paced(file, speed)

    return source


def _embedded(spec: PipelineSpec, folder: Path) -> PipelineSpec:
    return spec.model_copy(
        update={
            "source": FileSourceSpec(path=flights_folder() / DATA),
            "journal": SqliteJournalSpec(path=folder / JOURNAL),
            "releases": Releases(path=folder / "flights.releases.jsonl"),
        }
    )


async def _run(
    spec: PipelineSpec,
    folder: Path,
    options: DemoOptions,
    callbacks: Told,
    *,
    feed: Callable[[], Awaitable[None]] | None = None,
    source: Callable[[], Source] | None = None,
) -> DemoRun:
    spec = spec.read_by(options.processes)
    built, sealer = build(spec), sealer_for(spec, None)
    holder = Holder()

    def ports() -> Ports:
        opened = open_ports(spec, sealer, holder=holder, marks=folder)
        opened = replace(opened, progress=callbacks.progress)
        return opened if source is None else replace(opened, source=source())

    this = Run(built, ports(), keep=1 if options.headless else None, again=ports)
    before = JournalSummary()
    if _ran_before(folder):
        journal = await sealed_commits(spec, callbacks.progress)
        before = await read_summary(journal.commits, sealer, spec.name)
    goes_on = before.totals.ticks != spec.clock.horizon
    token = sealer.query_token(GUEST.name) if goes_on else ""
    started = time.monotonic()
    port = None if options.headless else options.port
    async with (
        signals(this),
        nullcontext() if feed is None else alongside(feed, this.stop),
        served(this, port, lambda url: callbacks.page(url, token)),
    ):
        async with callbacks.beside(this):
            await this.until_end()
        seconds = time.monotonic() - started
        if not options.until_end and not this.stopped.is_set():
            callbacks.line("The flights are over; Ctrl-C ends the demo, --fresh begins anew")
            await this.stopped.wait()
    return DemoRun(built, sealer, folder.name, seconds, before.totals.records, this)


def _ran_before(marks: Path) -> bool:
    return any(marks.glob("*.json"))


def _speed(year: PipelineSpec) -> Speed:
    """Return the ticks per second by the tick: a month at once, most of a year in `SECONDS_FOR_A_YEAR`, then slowly."""
    horizon = year.clock.horizon or 1
    quick, slow = horizon / SECONDS_FOR_A_YEAR, math.ceil(SLOW_FROM * horizon)

    def at(tick: int) -> float:
        if tick < FIRST_TICKS:
            return math.inf
        return quick if tick < slow else min(quick, SLOW_SPEED)

    return at
