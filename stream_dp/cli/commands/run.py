"""`stream-dp run`: run a pipeline until stopped; `worker`: read lanes for it; `flink`: let a cluster read them."""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from typer import Option

from stream_dp.cli.options import (
    AccessFile,
    AllowHost,
    Host,
    KeyFile,
    LogForm,
    LogFormat,
    PipelineFile,
    Port,
    Processes,
    UntilEnd,
    logged,
    say_on_stderr,
    with_groups,
)
from stream_dp.cli.printing import change_lines
from stream_dp.cli.progress_line import progress
from stream_dp.cli.until_stopped import ticks_shown
from stream_dp.core.wording import how_many
from stream_dp.errors import UsageError
from stream_dp.operate.keys import access_of, export_worker_keys
from stream_dp.operate.observe.lifecycle_log import TellEvent
from stream_dp.operate.observe.operator_figures import LATE, LOCAL, FiguresPort, OperatorFigures
from stream_dp.operate.run.hosted import flink_script
from stream_dp.operate.run.run_pipeline import Operator, RunOptions, run_pipeline
from stream_dp.operate.run.running import Run, Unanswered
from stream_dp.operate.run.wiring import PRODUCT, Setup
from stream_dp.operate.run.worker import work

OVER = "the last tick is over, so messages that arrive from now on get no answer"

Standby: TypeAlias = Annotated[
    bool,
    Option(
        "--standby",
        help="Wait while another engine of this pipeline runs, and take over when that engine ends.",
    ),
]


@dataclass(frozen=True, slots=True)
class Flags:
    """Options: how the pipeline is run."""

    until_end: UntilEnd = False
    serve: Annotated[bool, Option("--serve", help="Serve the API and the page.")] = False
    port: Port = 8765
    host: Host = "127.0.0.1"
    allow_host: AllowHost = None
    access: AccessFile = None
    key_file: KeyFile = None
    standby: Standby = False
    processes: Processes = None
    no_check: Annotated[
        bool,
        Option(
            "--no-check", help="Begin a new ledger even if no record of a sample fits the schema."
        ),
    ] = False
    yes: Annotated[
        bool,
        Option(
            "--yes",
            help="Begin a new ledger without asking, even if privacy.expect predicts that most numbers are noise.",
        ),
    ] = False
    apply: Annotated[
        bool,
        Option("--apply", help="Apply what has changed in PIPELINE.yaml since its last run."),
    ] = False
    was: Annotated[
        Path | None,
        Option(
            metavar="OLD.yaml",
            show_default=False,
            help="With --apply: the pipeline file of the last run. Needed only if the journal does not contain that "
            "file.",
        ),
    ] = None
    accept_new_guarantee: Annotated[
        str,
        Option(
            metavar="NAME",
            help="Begin an empty journal although the pipeline NAME ran on this source before. The epsilons of the old "
            "and the new journal add up. The new journal records NAME.",
        ),
    ] = ""

    @property
    def options(self) -> RunOptions:
        return RunOptions(
            until_end=self.until_end,
            port=self.port if self.serve else None,
            host=self.host,
            access=access_of(self.access, self.allow_host or ()),
            key_file=self.key_file,
            accepted=self.accept_new_guarantee,
            check=not self.no_check,
            standby=self.standby,
            yes=self.yes,
            processes=self.processes,
            apply=self.apply,
            was=self.was,
        )


@dataclass(frozen=True, slots=True)
class Telling:
    """Options: what the operator learns of a run, and where."""

    verbose: Annotated[
        bool,
        Option(
            "--verbose",
            help="At the end, print how many records were counted, late or unusable. NOT PRIVATE.",
        ),
    ] = False
    log_format: LogFormat = LogForm.TEXT
    operator_port: Annotated[
        int | None,
        Option(
            "--operator-port",
            min=0,
            max=65535,
            show_default=False,
            help="Port on this machine for exact figures as metrics: records, dead letters, lag. Only holders of the "
            "operator's token can read them. NOT PRIVATE.",
        ),
    ] = None
    operator_token_file: Annotated[
        Path | None,
        Option(
            "--operator-token-file",
            help="With --operator-port: a token for this port only (mode 0600), instead of the operator's token.",
        ),
    ] = None
    operator_host: Annotated[
        str,
        Option(
            "--operator-host",
            help="With --operator-port: the address of that port. Use only 127.0.0.1 or the operator's own network.",
        ),
    ] = LOCAL
    traces: Annotated[
        bool,
        Option(
            "--traces",
            help="Send traces of the engine's work to the OpenTelemetry collector that OTEL_EXPORTER_OTLP_ENDPOINT "
            "names. Traces contain no values of records. NOT PRIVATE.",
        ),
    ] = False

    def port(self, opened: Callable[[str], None], hosts: frozenset[str]) -> FiguresPort | None:
        """Return the port for figures, or None; raise UsageError if another option needs a port."""
        if self.operator_port is not None:
            return FiguresPort(
                self.operator_port, self.operator_token_file, opened, self.operator_host, hosts
            )
        if self.operator_token_file is not None:
            raise UsageError("--operator-token-file: needs --operator-port")
        if self.operator_host != LOCAL:
            raise UsageError("--operator-host: needs --operator-port")
        return None


QUIET = Telling()


@with_groups
def run(pipeline: PipelineFile, *, flags: Flags, telling: Telling) -> None:
    """Run PIPELINE.yaml until it is stopped. A restart continues where the journal ends."""
    run_on_terminal(pipeline, flags.options, telling=telling)


def worker(
    pipeline: PipelineFile,
    key_file: Annotated[
        Path | None,
        Option(
            "--key-file",
            help="The key file that --export-key wrote, or the operator's key (mode 0600).",
        ),
    ] = None,
    export_key: Annotated[
        Path | None,
        Option(
            "--export-key",
            metavar="FILE",
            show_default=False,
            help="Write into FILE the keys that a worker needs, and end. They are derived from the operator's key.",
        ),
    ] = None,
) -> None:
    """Read a part of PIPELINE.yaml's topic for its engine. Start any number of workers, on any machines."""
    if export_key is not None:
        name = export_worker_keys(pipeline, key_file, export_key)
        say_on_stderr(f"{export_key}: made. This key opens the rows of {name}, but not its journal")
        return
    name = asyncio.run(work(pipeline, key_file, say_on_stderr))
    say_on_stderr(f"{name}: this worker has ended")


def flink(
    pipeline: PipelineFile,
    key_file: Annotated[
        Path | None,
        Option(
            "--key-file",
            help="The path, on the task managers, of the file that `worker --export-key` wrote.",
        ),
    ] = None,
) -> None:
    """Print Flink SQL with which a Flink cluster reads the lanes of PIPELINE.yaml, instead of workers."""
    typer.echo(flink_script(pipeline, key_file), nl=False)


async def _or_leave(
    running: Coroutine[Any, Any, Run], log: TellEvent, tell: Callable[[str], None]
) -> Run:
    """Await the run; if it was told to stop and a call hangs, leave at once: the call would hold the process."""
    try:
        return await running
    except Unanswered as error:
        log("stopped", exit_code=error.exit_code, error=str(error))
        tell(f"stream-dp: {error}")
        os._exit(error.exit_code)


def run_on_terminal(
    pipeline: Path, options: RunOptions, setup: Setup = PRODUCT, telling: Telling = QUIET
) -> None:
    """Run and show progress on stderr; the test kit calls this with its own setup."""
    form = telling.log_format
    silent = form is LogForm.JSON
    with logged(pipeline, form) as log, progress(f"Reading {pipeline}", silent=silent) as line:
        tell = line.say
        if telling.verbose and form is LogForm.JSON:
            raise UsageError(
                "--verbose prints exact counts, which must not appear in the logs of --log-format json"
            )

        def phase(event: str, /, **fields: str | int) -> None:
            log(event, **fields)
            if event == "catching up":
                line("Catching up; the brokers cannot be reached")

        def waits() -> None:
            log("standing by")
            line("")
            tell("Standing by until no other engine of this pipeline runs")

        def noisy(warning: str) -> bool:
            line("")
            tell(f"Warning: {warning}")
            if silent or not on_terminal():
                return True
            line.hide()
            return typer.confirm(
                "Start all the same, and spend the budget on these numbers?", err=True
            )

        def at(event: str, what: str) -> Callable[[str], None]:
            def told(url: str) -> None:
                log(event, url=url)
                tell(f"{what} {url}")

            return told

        figures = at("operator port", "The operator's figures (NOT PRIVATE) are at")
        totals = OperatorFigures(lambda reasons: tell(_many_dead(pipeline, reasons)))
        operator = Operator(
            totals, tell, phase, telling.port(figures, options.access.names), patient=True, progress=line,
            traces=at("traces", "Traces (NOT PRIVATE) go to") if telling.traces else None,
            over=lambda: tell(_over(pipeline, page=options.port is not None)),
            waits=waits, opened=at("ready", "The page is at"), noisy=noisy, applies=_applying(tell),
            unjudged=lambda line: tell(line) if on_terminal() else None,
        )  # fmt: skip
        work = run_pipeline(pipeline, options, setup, operator=operator, beside=ticks_shown(line))
        done = asyncio.run(_or_leave(work, log, tell))
        spec = done.built.spec
        tell(f"{spec.name}: {how_many(done.ticks, 'tick')}, {how_many(done.releases, 'release')}")
        if done.ticks == spec.clock.horizon:
            tell(f"{spec.name}: {OVER}")
        tell(_totals(pipeline, totals, shown=telling.verbose or spec.public_data))


def _applying(tell: Callable[[str], None]) -> Callable[[Mapping[str, Any]], None]:
    return lambda shown: tell("\n".join(change_lines(shown)))


def on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _over(pipeline: Path, *, page: bool) -> str:
    """Return the message that no tick is left, why the process still runs, and what to do now."""
    stays = (
        "The page and the API show the releases until Ctrl-C"
        if page
        else "Ctrl-C ends this command"
    )
    return (
        f"All ticks of {pipeline} are released. No more events are counted, and no new series can be asked for. "
        f"{stays}. `stream-dp export {pipeline} --to ADDRESS` writes the releases into tables"
    )


def _many_dead(pipeline: Path, reasons: str) -> str:
    """Return the warning that the declared share is exceeded; it names no count."""
    warning = (
        f"Warning: more records than `warn_dead` allows cannot be used ({reasons}). `stream-dp dead-letters "
        f"{pipeline}` lists them, and `stream-dp check {pipeline}` says what does not fit"
    )
    if LATE in reasons.split(", "):
        warning += (
            f". If records are late, `stream-dp doctor {pipeline} --write` compares the clocks"
        )
    return warning


def _totals(pipeline: Path, figures: OperatorFigures, *, shown: bool) -> str:
    """Return the totals of this run's records if `shown`, else where to ask: exact totals are not for every log."""
    if not shown:
        return (
            f"`stream-dp dead-letters {pipeline}` shows how many records were counted, late or unusable (NOT "
            "PRIVATE)"
        )
    return (
        f"NOT PRIVATE: {how_many(figures.records, 'record')} counted in this run, {figures.late:,} of them late; "
        f"{figures.dead:,} could not be used"
    )
