"""`stream-dp doctor`: what a run needs of the cluster and of this machine. Changes nothing."""

import asyncio
import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from typer import Option

from stream_dp.cli.options import AsJson, KeyFile, PipelineFile
from stream_dp.cli.progress_line import progress
from stream_dp.operate.doctor import Level, diagnose_pipeline, exit_code

_COLOURS = {Level.OK: "green", Level.UNCHECKED: "dim", Level.WARNING: "yellow", Level.WRONG: "red"}


def doctor(
    pipeline: PipelineFile,
    *,
    as_json: AsJson = False,
    write: Annotated[
        bool,
        Option(
            "--write", help="Compare clocks by empty records in NAME.private.clock, as a run does."
        ),
    ] = False,
    key_file: KeyFile = None,
) -> None:
    """Check brokers, login, rights, topics, clocks, key and disk for PIPELINE.yaml; say what to mend.

    Exit codes: 0 all well, 4 `run` would stop rather than risk something, 5 something cannot be reached or is denied.
    """
    with progress(f"Looking at what {pipeline} needs"):
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
