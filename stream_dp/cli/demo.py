"""`stream-dp demo`: a year of real flights through a local Kafka to a private live page.

Rules: the data is public, so this command may show exact figures, and only because the pipeline file says so. It
keeps its state in the user's state folder, goes on where it stopped, and `--fresh` deletes that state only.
"""

import asyncio
import shutil
import sys
import time
import webbrowser
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from stream_dp.adapters.records import load_records, ticked
from stream_dp.app.example_files import DATA, flights_folder
from stream_dp.app.paced import Paced
from stream_dp.app.replay_feed import feed
from stream_dp.app.running import Run, served, signals
from stream_dp.app.wiring import (
    fields_of,
    open_ports,
    sealed_commits,
    sealer_for,
    settings_for,
)
from stream_dp.broker.jars import resolve_jars
from stream_dp.broker.lock import held
from stream_dp.broker.places import state_dir
from stream_dp.broker.process import LocalKafka
from stream_dp.broker.topics import create_topic
from stream_dp.cli.broker import fetch_progress
from stream_dp.cli.demo_results import print_results, results
from stream_dp.cli.options import Port
from stream_dp.errors import FailClosed, UsageError, WorldError
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.spec import (
    FileSource,
    KafkaSource,
    PipelineSpec,
    ReleasesFile,
    ReplayClock,
    SqliteJournal,
)
from stream_dp.pipeline.yaml import load
from stream_dp.runtime.journal_summary import JournalSummary, read_summary
from stream_dp.runtime.keys import Sealer
from stream_dp.runtime.ports import Ports

JOURNAL = "flights.journal"
PARTITIONS = 2
SECONDS_FOR_A_YEAR = 120
QUESTION = (
    "{name: very_late, statistic: count, where: [{field: delay, at_least: 120}], epsilon: 0.25}"
)


@dataclass(frozen=True, slots=True)
class Options:
    """What the flags say."""

    embedded: bool
    headless: bool
    until_end: bool
    fresh: bool
    as_json: bool
    compare_exact: bool
    port: int


def demo(
    *,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="No broker: file source and SQLite journal.")
    ] = False,
    headless: Annotated[bool, typer.Option("--headless", help="No page, not paced.")] = False,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop at the end of the year with a table.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete the demo's state first.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one JSON object on the last line of stdout.")
    ] = False,
    compare_exact: Annotated[
        bool, typer.Option("--compare-exact", help="Show exact values beside the private ones.")
    ] = False,
    port: Port = 8765,
) -> None:
    """Real flight departures, live and private, in the browser. Ctrl-C stops; a second start goes on."""
    options = Options(embedded, headless, until_end, fresh, as_json, compare_exact, port)
    try:
        asyncio.run(_demo(options))
    except FailClosed as error:
        raise FailClosed(
            f"{error}. If no other demo runs: --fresh deletes what an earlier one left"
        ) from None


async def _demo(options: Options) -> None:
    console = Console(stderr=True)
    spec = load(flights_folder() / "pipeline.yaml")
    if not spec.public_data:
        raise UsageError(
            "the demo shows exact figures: its pipeline must declare public_data: true"
        )
    embedded = options.embedded or not _kafka_can_be_had(console)
    folder = state_dir() / "demo" / ("embedded" if embedded else "kafka")
    if options.fresh:
        _delete(folder, console)
    folder.mkdir(parents=True, exist_ok=True)
    if embedded:
        await _run(_embedded(spec, folder), folder, options, console, None)
        return
    async with LocalKafka(folder / "broker") as kafka:
        console.print(f"Kafka is ready at {kafka.bootstrap}")
        local = spec.model_copy(
            update={"source": KafkaSource(topic="flights", bootstrap=kafka.bootstrap)}
        )
        await create_topic(kafka.bootstrap, "flights", PARTITIONS)
        await _run(local, folder, options, console, lambda: _feed(local, options))


def _kafka_can_be_had(console: Console) -> bool:
    """Fetch what a local Kafka needs; one line and False where that is impossible."""
    try:
        resolve_jars(fetch_progress)
    except (WorldError, UsageError) as error:
        console.print(
            f"No local Kafka here ({error}); going on with --embedded", soft_wrap=True, markup=False
        )
        return False
    return True


def _delete(folder: Path, console: Console) -> None:
    """Delete the demo's state, naming every entry.

    Raises:
        UsageError: a demo runs on it.
    """
    if not folder.exists():
        return
    if any(held(lock) for lock in (folder / "broker" / "lock", folder / f"{JOURNAL}.lock")):
        raise UsageError("a demo is running: stop it first, --fresh would delete what it works on")
    for entry in sorted(folder.iterdir()):
        console.print(f"--fresh deletes {entry}", soft_wrap=True, markup=False)
    shutil.rmtree(folder)


def _embedded(spec: PipelineSpec, folder: Path) -> PipelineSpec:
    return spec.model_copy(
        update={
            "source": FileSource(path=flights_folder() / DATA),
            "journal": SqliteJournal(kind="sqlite", path=folder / JOURNAL),
            "releases": ReleasesFile(path=folder / "flights.releases.jsonl"),
        }
    )


async def _feed(spec: PipelineSpec, options: Options) -> None:
    clock, source = spec.clock, spec.source
    if not isinstance(clock, ReplayClock) or not isinstance(source, KafkaSource):
        raise UsageError("the demo replays a file into a Kafka topic")
    records = await asyncio.to_thread(
        load_records, flights_folder() / DATA, fields_of(spec), clock.field
    )
    ticks = await asyncio.to_thread(ticked, records, clock.start, clock.step, clock.horizon)
    speed = None if options.headless else clock.horizon / SECONDS_FOR_A_YEAR
    await feed(settings_for(source), source.topic, ticks, speed)


async def _run(
    spec: PipelineSpec,
    folder: Path,
    options: Options,
    console: Console,
    feeder: Callable[[], Awaitable[None]] | None,
) -> None:
    built, sealer = build(spec), sealer_for(spec, None)
    ports = open_ports(spec, sealer, marks=folder)
    if feeder is None and not options.headless:
        ports = _paced(ports, spec)
    this = Run(built, ports, keep=1 if options.headless else None)
    before = await _so_far(built, sealer, folder)
    started = time.monotonic()
    port = None if options.headless else options.port

    def opened(url: str) -> None:
        console.print(f"The page is at {url}")
        if before is None or before.ticks != spec.clock.horizon:
            console.print(
                "Ask it something of your own while it runs, as far as the budget goes:\n"
                f"  {sys.argv[0]} query create {flights_folder() / 'pipeline.yaml'} --url {url} --series '{QUESTION}'",
                soft_wrap=True, markup=False, highlight=False,
            )  # fmt: skip
        if sys.stdout.isatty():
            webbrowser.open(url)

    async with signals(this), _feeding(feeder, this), served(this, port, opened):
        await this.until_end(console)
        seconds = time.monotonic() - started
        if not options.until_end and not this.stopped.is_set():
            console.print("The year is over; Ctrl-C ends the demo, --fresh begins anew")
            await this.stopped.wait()
    events = 0 if before is None else before.events
    found = await results(built, sealer, folder.name, seconds, events, this.log)
    print_results(built, found, options.as_json, options.compare_exact)


@asynccontextmanager
async def _feeding(feeder: Callable[[], Awaitable[None]] | None, this: Run) -> AsyncIterator[None]:
    """Feed the topic beside the engine; the feed ends with it, and a failed feed ends the engine."""
    if feeder is None:
        yield
        return

    async def work() -> None:
        try:
            await feeder()
        except Exception:
            this.stop()
            raise

    task = asyncio.create_task(work())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.result()


async def _so_far(built: Built, sealer: Sealer, marks: Path) -> JournalSummary | None:
    """What earlier runs did; without a high-water mark there was none, and no journal to read."""
    if not _ran_before(marks):
        return None
    return await read_summary(sealed_commits(built.spec), sealer, built.spec.name)


def _ran_before(marks: Path) -> bool:
    return any(marks.glob("*.json"))


def _paced(ports: Ports, spec: PipelineSpec) -> Ports:
    speed = (spec.clock.horizon or 1) / SECONDS_FOR_A_YEAR
    return replace(ports, source=Paced(ports.source, speed))
