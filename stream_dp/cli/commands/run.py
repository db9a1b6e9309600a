"""`stream-dp run`: run a pipeline until stopped."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from stream_dp.cli.logged import LogForm, LogFormat, logged
from stream_dp.cli.options import AllowHost, Host, KeyFile, PipelineFile, Port
from stream_dp.cli.progress_line import progress
from stream_dp.cli.ticks_shown import ticks_shown
from stream_dp.core.how_many import how_many
from stream_dp.errors import UsageError
from stream_dp.operate.observe.figures_beside import LOCAL, FiguresPort
from stream_dp.operate.observe.lifecycle_log import TellEvent
from stream_dp.operate.observe.operator_figures import LATE, OperatorFigures
from stream_dp.operate.run.run_pipeline import Operator, run_pipeline
from stream_dp.operate.run.running import PRODUCT, Run, Setup, Unanswered

OVER = "its last tick is over: messages that come from now on are not answered"

Standby: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--standby",
        help="Wait while another engine of the pipeline runs; take over when it is gone.",
    ),
]


def run(
    pipeline: PipelineFile,
    *,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop at the horizon of a replay clock.")
    ] = False,
    serve: Annotated[bool, typer.Option("--serve", help="Serve the API and the page.")] = False,
    port: Port = 8765,
    host: Host = "127.0.0.1",
    allow_host: AllowHost = None,
    key_file: KeyFile = None,
    standby: Standby = False,
    no_check: Annotated[
        bool,
        typer.Option("--no-check", help="Begin a new ledger also where no record fits the schema."),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            help="Say at the end how many records were counted, late, dead. NOT PRIVATE.",
        ),
    ] = False,
    accept_new_guarantee: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Begin an empty journal although the pipeline ran on this source before; the journal records "
            "NAME. The old and the new guarantee add up.",
        ),
    ] = "",
    log_format: LogFormat = LogForm.TEXT,
    operator_port: Annotated[
        int | None,
        typer.Option(
            "--operator-port",
            min=0,
            max=65535,
            show_default=False,
            help="Port for exact figures (records, dead letters, lag) as metrics, on this machine, to who shows the "
            "operator's token. NOT PRIVATE.",
        ),
    ] = None,
    operator_token_file: Annotated[
        Path | None,
        typer.Option(
            "--operator-token-file",
            help="With --operator-port: a token for it alone (mode 0600), in place of the operator's.",
        ),
    ] = None,
    operator_host: Annotated[
        str,
        typer.Option(
            "--operator-host",
            help="With --operator-port: where it listens. Elsewhere than here only inside a network of the operator's.",
        ),
    ] = LOCAL,
    traces: Annotated[
        bool,
        typer.Option(
            "--traces",
            help="Send traces of its work, without content, to the OpenTelemetry collector that "
            "OTEL_EXPORTER_OTLP_ENDPOINT names. NOT PRIVATE.",
        ),
    ] = False,
) -> None:
    """Run PIPELINE.yaml until stopped; goes on where the journal ends."""
    shown = port if serve else None
    run_on_terminal(
        pipeline, until_end, shown, key_file,
        accepted=accept_new_guarantee, check=not no_check, verbose=verbose, standby=standby,
        host=host, hosts=frozenset(allow_host or ()), form=log_format,
        figures=(operator_port, operator_token_file, operator_host), traces=traces,
    )  # fmt: skip


async def _or_leave(
    running: Coroutine[Any, Any, Run], log: TellEvent, tell: Callable[[str], None]
) -> Run:
    """Await it; where it was told to stop and gets no answer, leave at once: what hangs would hold the process."""
    try:
        return await running
    except Unanswered as error:
        log("stopped", exit_code=error.exit_code, error=str(error))
        tell(f"stream-dp: {error}")
        os._exit(error.exit_code)


def run_on_terminal(
    pipeline: Path,
    until_end: bool,
    port: int | None,
    key_file: Path | None,
    setup: Setup = PRODUCT,
    *,
    accepted: str = "",
    standby: bool = False,
    check: bool = True,
    verbose: bool = False,
    host: str = "127.0.0.1",
    hosts: frozenset[str] = frozenset(),
    form: LogForm = LogForm.TEXT,
    figures: tuple[int | None, Path | None, str] = (None, None, LOCAL),
    traces: bool = False,
) -> None:
    """Run and say on stderr how far it is; the test kit calls it with a setup of its own.

    `figures`: the operator's port, the file of its token, and where it listens.
    """
    silent = form is LogForm.JSON
    with logged(pipeline, form) as log, progress(f"Reading {pipeline}", silent=silent) as line:
        tell = line.say
        if verbose and form is LogForm.JSON:
            raise UsageError("--verbose tells exact counts, which --log-format json never does")

        def phase(event: str, /, **fields: str | int) -> None:
            log(event, **fields)
            if event == "catching up":
                line("Catching up, the brokers are not there")

        def waits() -> None:
            log("standing by")
            line("")
            tell("Standing by until no other engine of it is there")

        def opened(url: str) -> None:
            log("ready", url=url)
            tell(f"The page is at {url}")

        def told(url: str) -> None:
            log("operator port", url=url)
            tell(f"The operator's figures (NOT PRIVATE) are at {url}")

        def sent(url: str) -> None:
            log("traces", url=url)
            tell(f"Traces (NOT PRIVATE) go to {url}")

        totals = OperatorFigures(lambda reasons: tell(_many_dead(pipeline, reasons)))
        operator = Operator(
            totals, tell, phase, _figures_port(figures, told, hosts), patient=True,
            traces=sent if traces else None, progress=line,
            over=lambda: tell(_over(pipeline, page=port is not None)),
        )  # fmt: skip
        done = asyncio.run(
            _or_leave(
                run_pipeline(
                    pipeline,
                    until_end,
                    port,
                    key_file,
                    setup,
                    accepted=accepted,
                    standby=standby,
                    check=check,
                    operator=operator,
                    host=host,
                    hosts=hosts,
                    waits=waits,
                    opened=opened,
                    beside=ticks_shown(line),
                ),
                log,
                tell,
            )
        )
        tell(
            f"{done.built.spec.name}: {how_many(done.ticks, 'tick')}, {how_many(done.releases, 'release')}"
        )
        if done.ticks == done.built.spec.clock.horizon:
            tell(f"{done.built.spec.name}: {OVER}")
        tell(_totals(pipeline, totals, shown=verbose or done.built.spec.public_data))


def _figures_port(
    asked: tuple[int | None, Path | None, str],
    told: Callable[[str], None],
    hosts: frozenset[str],
) -> FiguresPort | None:
    """The operator's port, if there is to be one."""
    port, token_file, host = asked
    if port is not None:
        return FiguresPort(port, token_file, told, host, hosts)
    for option, given in (
        ("--operator-token-file", token_file is not None), ("--operator-host", host != LOCAL),
    ):  # fmt: skip
        if given:
            raise UsageError(f"{option}: there is no --operator-port that it is for")
    return None


def _over(pipeline: Path, *, page: bool) -> str:
    """That no tick is left, why the process is there still, and what one can do now."""
    stays = "the page and what is under /api stay until Ctrl-C" if page else "Ctrl-C ends this"
    return (
        f"All ticks of {pipeline} are released: nothing is counted any more, and nothing new can be asked. What was "
        f"released stays: {stays}, and `stream-dp export {pipeline} --to ADDRESS` writes it into tables"
    )


def _many_dead(pipeline: Path, reasons: str) -> str:
    """The warning that the declared share is exceeded; it names no count."""
    told = (
        f"Warning: more of the records than `warn_dead` allows cannot be used ({reasons}): `stream-dp dead-letters "
        f"{pipeline}` lists them, `stream-dp check {pipeline}` says what does not fit"
    )
    if LATE in reasons.split(", "):
        told += f"; why some are late: `stream-dp doctor {pipeline} --write` compares clocks"
    return told


def _totals(pipeline: Path, figures: OperatorFigures, *, shown: bool) -> str:
    """What became of the records of this run, or where to ask: exact totals are not for every log."""
    if not shown:
        return f"How many records were counted, late or dead: `stream-dp dead-letters {pipeline}` (NOT PRIVATE)"
    return (
        f"NOT PRIVATE: counted in this run: {how_many(figures.records, 'record')}, {figures.late:,} of them late; "
        f"{figures.dead:,} could not be used"
    )
