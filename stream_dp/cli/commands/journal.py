"""`stream-dp journal`: what becomes of a journal's oldest commits."""

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from stream_dp.cli.options import AsJson, KeyFile, PipelineFile
from stream_dp.cli.progress_line import progress
from stream_dp.core.wording import how_many
from stream_dp.operate.audit.journal_access import archive_journal

journal = typer.Typer(
    help="Keep in an archive what `journal: keep` deletes from PIPELINE.yaml's journal.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@journal.callback()
def commands() -> None:
    """Keep `archive` a command of its own, for it is the only one yet."""


@journal.command()
def archive(
    pipeline: PipelineFile,
    archive: Annotated[
        Path,
        Argument(metavar="ARCHIVE", help="An SQLite file, which is created if it does not exist."),
    ],
    *,
    as_json: AsJson = False,
    key_file: KeyFile = None,
) -> None:
    """Add the commits of PIPELINE.yaml's journal that ARCHIVE lacks, still sealed. The engine may run meanwhile."""
    with progress(f"Reading {pipeline}") as line:
        told = archive_journal(pipeline, archive, key_file, line.say, line)
        first, begin, end = asyncio.run(told)
    if as_json:
        typer.echo(
            json.dumps({"archive": str(archive), "added": end - begin, "begin": first, "end": end})
        )
        return
    if end == first:
        typer.echo("The journal is still empty, so nothing was written")
        return
    lost = f"; commits before {first:,} were pruned before they were archived" if first else ""
    typer.echo(
        f"{archive}: {how_many(end - begin, 'commit')} added; the archive holds commits {first:,} to {end - 1:,}, each "
        f"linked to the previous commit{lost}"
    )
