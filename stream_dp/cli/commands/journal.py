"""`stream-dp journal` and `dead-letters`: a journal's oldest commits, and the records that could not be used."""

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument

from stream_dp.cli.options import AsJson, KeyFile, PipelineFile
from stream_dp.cli.printing import folding_table, wide_console
from stream_dp.cli.progress_line import progress
from stream_dp.core.wording import how_many
from stream_dp.operate.audit.journal_access import archive_journal, read_dead_letters

_SHOWN = 3


def dead_letters(
    pipeline: PipelineFile, *, as_json: AsJson = False, key_file: KeyFile = None
) -> None:
    """List the records that PIPELINE.yaml could not use: how many, where, and why. NOT PRIVATE."""
    with progress(f"Reading {pipeline}") as line:
        shown = asyncio.run(read_dead_letters(pipeline, key_file, line.say, line))
    if as_json:
        typer.echo(json.dumps(shown))
    else:
        _print(shown)


def _print(shown: dict[str, Any]) -> None:
    console = wide_console()
    columns = ("partition", "reason", "field", "records", f"newest {shown['places']}")
    table = folding_table(*columns, title=f"{shown['pipeline']}: dead letters, NOT PRIVATE")
    for kind in shown["dead_letters"]:
        table.add_row(
            str(kind["partition"]), kind["reason"], kind["field"] or "", f"{kind['records']:,}", _places(kind)
        )  # fmt: skip
    console.print(table)
    beyond = (
        f"; {shown['capped']:,} did not count, because their users had reached a cap"
        if shown["capped"]
        else ""
    )
    console.print(
        f"NOT PRIVATE: exact numbers, for the operator alone. {how_many(shown['records'], 'record')} counted, "
        f"{shown['late']:,} of them late; {shown['dead']:,} could not be used{beyond}.",
        soft_wrap=True,
        highlight=False,
    )


def _places(kind: dict[str, Any]) -> str:
    """Return the newest ranges of a kind, and whether there are more.

    >>> _places({"ranges": [[7, 9], [12, 12]], "elsewhere": 4})
    '7-9, 12 and elsewhere'
    """
    ranges = kind["ranges"][-_SHOWN:]
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in ranges]
    more = kind["elsewhere"] or len(kind["ranges"]) > _SHOWN
    return ", ".join(texts) + " and elsewhere" * bool(more)


journal = typer.Typer(
    help="Copy PIPELINE.yaml's journal to an archive before `journal: keep` deletes its old commits.",
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
        Argument(metavar="ARCHIVE", help="An SQLite file. It is created if it does not exist."),
    ],
    *,
    as_json: AsJson = False,
    key_file: KeyFile = None,
) -> None:
    """Copy to ARCHIVE the commits of PIPELINE.yaml's journal that it lacks. They stay sealed. The engine may keep
    running.
    """
    with progress(f"Reading {pipeline}") as line:
        told = archive_journal(pipeline, archive, key_file, line.say, line)
        first, begin, end = asyncio.run(told)
    if as_json:
        typer.echo(
            json.dumps({"archive": str(archive), "added": end - begin, "begin": first, "end": end})
        )
        return
    if end == first:
        typer.echo("The journal is still empty, so nothing was archived")
        return
    lost = f". Commits before {first:,} were deleted before they were archived" if first else ""
    typer.echo(
        f"{archive}: {how_many(end - begin, 'commit')} added. The archive holds commits {first:,} to {end - 1:,}, "
        f"an unbroken chain{lost}"
    )
