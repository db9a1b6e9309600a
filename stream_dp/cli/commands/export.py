"""`stream-dp export`: released values as rows of a table. Needs no key and touches no journal."""

import asyncio
from typing import Annotated

import typer
from typer import Option

from stream_dp.cli.options import LogForm, LogFormat, PipelineFile, logged
from stream_dp.cli.progress_line import progress
from stream_dp.cli.until_stopped import until_stopped
from stream_dp.core.wording import how_many
from stream_dp.operate.exporting import FORMS, export_releases


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
