"""`stream-dp export` and `page`: released values as rows of a table, and the page without the engine. Need no key."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from stream_dp.cli.options import (
    AccessFile,
    AllowHost,
    Bootstrap,
    Host,
    LogForm,
    LogFormat,
    PipelineFile,
    Port,
    logged,
)
from stream_dp.cli.progress_line import progress
from stream_dp.cli.until_stopped import until_stopped
from stream_dp.core.wording import how_many
from stream_dp.operate.exporting import FORMS, export_releases
from stream_dp.operate.keys import access_of
from stream_dp.operate.observe.topic_page import READING, serve_page


def export(
    pipeline: PipelineFile,
    *,
    to: Annotated[str, Option("--to", metavar="ADDRESS", help=f"The target: {FORMS}.")],
    follow: Annotated[
        bool, Option("--follow", help="Go on with new releases until stopped.")
    ] = False,
    every: Annotated[
        float,
        Option(
            min=0.1,
            max=86_400,
            help="With --follow: how many seconds to wait before looking again for new releases.",
        ),
    ] = 1.0,
    log_format: LogFormat = LogForm.TEXT,
) -> None:
    """Write the releases of PIPELINE.yaml into PostgreSQL, DuckDB, Parquet or CSV, one row per number.

    Releases that are already in the target are not written again. With --follow, the export goes on until it is
    stopped.
    """
    written, reported, text = "", 0, log_format is LogForm.TEXT
    with (
        progress(f"Reading the releases of {pipeline}", silent=not text) as line,
        logged(pipeline, log_format) as log,
    ):

        def tell(place: str, releases: int, rows: int) -> None:
            nonlocal written, reported
            written = f"{how_many(releases, 'release')}, {how_many(rows, 'row')} written to {place}"
            if releases > reported:
                log("exported", releases=releases)
                if follow:
                    line.say(written)
            line("" if follow else f"Writing to {place}", releases, 0, "release")
            reported = releases

        exported = export_releases(pipeline, to, every if follow else None, tell, log)
        asyncio.run(until_stopped(exported) if follow else exported)
    typer.echo(written)


def page(
    pipeline: Annotated[
        Path,
        Argument(
            metavar="PIPELINE.yaml|DIR",
            show_default=False,
            help="A pipeline file, or a folder of pipeline files.",
        ),
    ],
    *,
    port: Port = 8765,
    host: Host = "127.0.0.1",
    allow_host: AllowHost = None,
    access: AccessFile = None,
    bootstrap: Bootstrap = "",
    log_format: LogFormat = LogForm.TEXT,
) -> None:
    """Serve the page of PIPELINE.yaml, or of all pipeline files in DIR. It reads published releases and needs no
    engine.
    """
    silent = log_format is LogForm.JSON
    with logged(pipeline, log_format) as log, progress(READING, silent=silent) as line:

        def opened(url: str) -> None:
            log("ready", url=url)
            line.say(f"The page is at {url}")

        allowed = access_of(access, allow_host or ())
        served = serve_page(pipeline, port, host, allowed, bootstrap, opened, log, line)
        asyncio.run(until_stopped(served))
