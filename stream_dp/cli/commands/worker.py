"""`stream-dp worker`: read a part of a pipeline's topic for its engine, until stopped."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from stream_dp.cli.options import PipelineFile, say_on_stderr
from stream_dp.operate.keys import export_worker_keys, worker_keys_for
from stream_dp.operate.run.worker import work
from stream_dp.pipeline.yaml import load


def worker(
    pipeline: PipelineFile,
    key_file: Annotated[
        Path | None,
        Option("--key-file", help="What --export-key wrote, or the operator's key (mode 0600)."),
    ] = None,
    export_key: Annotated[
        Path | None,
        Option(
            "--export-key",
            metavar="FILE",
            show_default=False,
            help="Write a worker's keys, derived from the operator's, into FILE, and end: all that a worker needs.",
        ),
    ] = None,
) -> None:
    """Read a part of PIPELINE.yaml's topic for its engine, on this machine or any other; start as many as you like."""
    spec = load(pipeline)
    if export_key is not None:
        export_worker_keys(spec, key_file, export_key)
        say_on_stderr(f"{export_key}: made; it opens rows of {spec.name}, not its journal")
        return
    keys = worker_keys_for(spec, key_file)
    asyncio.run(work(spec, keys, lambda what: say_on_stderr(f"{spec.name}: this worker {what}")))
    typer.echo(f"{spec.name}: this worker has ended", err=True)
