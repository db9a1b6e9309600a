"""`stream-dp doctor`: what a run needs of the cluster and of this machine; `stream-dp rows`: whether the rows of an
engine in front are right. Both change nothing.
"""

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from typer import Argument, Option

from stream_dp.cli.options import AsJson, KeyFile, PipelineFile
from stream_dp.cli.progress_line import progress
from stream_dp.core.wording import how_many
from stream_dp.errors import FailClosed
from stream_dp.operate.doctor import Level, diagnose_pipeline, exit_code
from stream_dp.operate.run.rows_check import check_rows

_COLOURS = {Level.OK: "green", Level.UNCHECKED: "dim", Level.WARNING: "yellow", Level.WRONG: "red"}


def doctor(
    pipeline: PipelineFile,
    *,
    as_json: AsJson = False,
    write: Annotated[
        bool,
        Option(
            "--write",
            help="Also compare the clocks, by writing empty records to the topic NAME.private.clock, as "
            "`run` does.",
        ),
    ] = False,
    key_file: KeyFile = None,
) -> None:
    """Check brokers, login, rights, topics, clocks, key and disk for PIPELINE.yaml, and say how to fix each problem.

    Exit codes: 0 everything is in order; 4 `run` would refuse to start, because something is at risk; 5 something
    cannot be reached, or access is denied.
    """
    with progress(f"Checking what {pipeline} needs"):
        findings = asyncio.run(diagnose_pipeline(pipeline, key_file, write=write))
    code = exit_code(findings)
    if as_json:
        checks = [asdict(finding) for finding in findings]
        typer.echo(json.dumps({"checks": checks, "exit_code": code}))
    else:
        console = Console(soft_wrap=True, highlight=False)
        for finding in findings:
            console.print(f"[{_COLOURS[finding.level]}]{finding.level:>11}[/]", end="  ")
            console.print(f"{finding.about}: {finding.says}", markup=False)
            if finding.mend:
                console.print(f"{'':>11}  -> {finding.mend}", markup=False)
    raise typer.Exit(code)


rows = typer.Typer(
    help="Check the rows that workers, or an engine of your own, wrote for a pipeline.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@rows.callback()
def commands() -> None:
    """Keep `check` a command of its own, for it is the only one yet."""


@rows.command()
def check(
    log: Annotated[
        str,
        Argument(
            metavar="TOPIC|FILE",
            show_default=False,
            help="The rows topic, or a file with one record per line.",
        ),
    ],
    *,
    pipeline: Annotated[
        Path,
        Option(
            "--pipeline", metavar="PIPELINE.yaml", show_default=False, help="The pipeline file."
        ),
    ],
    as_json: AsJson = False,
    key_file: Annotated[
        Path | None,
        Option(
            "--key-file", help="The file of a worker's keys, or of the operator's key (mode 0600)."
        ),
    ] = None,
) -> None:
    """Check the seals, forms, chain, order, repeats and versions of rows, and say what is wrong, and where.

    Exit codes: 0 all rows are right, 4 something is wrong.
    """
    with progress(f"Reading {log}"):
        checked = check_rows(log, pipeline, key_file)
    wrong = how_many(checked.wrong, "thing")
    if as_json:
        findings = [finding._asdict() for finding in checked.findings]
        typer.echo(
            json.dumps({"lanes": checked.lines, "findings": findings, "wrong": checked.wrong})
        )
    else:
        for line in (*checked.lines, *checked.findings):
            typer.echo(str(line))
    if checked.wrong:
        raise FailClosed(f"{log}: {wrong} wrong with its rows")
