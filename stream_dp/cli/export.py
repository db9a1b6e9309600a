"""`stream-dp export`: released values as rows of a table. Needs no key and touches no journal."""

import asyncio
from typing import Annotated

import typer

from stream_dp.app.export.exporting import FORMS, export_releases
from stream_dp.cli.options import PipelineFile


def export(
    pipeline: PipelineFile,
    *,
    to: Annotated[str, typer.Option("--to", metavar="ADDRESS", help=f"Where to: {FORMS}.")],
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what comes, until stopped.")
    ] = False,
    every: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="With --follow: look so often, in seconds.")
    ] = 1.0,
) -> None:
    """Write what PIPELINE.yaml has released into PostgreSQL, DuckDB, Parquet or CSV: a row a number.

    What is there already is not written again; with --follow it goes on until stopped.
    """
    said = [0]

    def told(place: str, releases: int, rows: int) -> None:
        if releases > said[0] or not follow:
            typer.echo(f"{releases:,} releases, {rows:,} rows written to {place}", err=follow)
        said[0] = releases

    asyncio.run(export_releases(pipeline, to, every if follow else None, told))
