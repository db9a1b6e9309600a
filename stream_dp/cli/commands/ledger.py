"""`stream-dp ledger`, `journal` and `dead-letters`: what a journal holds; works while the engine runs.

`ledger` shows charges and checks the journal from end to end, `journal` archives its oldest commits, `dead-letters`
lists the records that could not be used.
"""

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from typer import Argument, Option

from stream_dp.cli.options import AsJson, KeyFile, PipelineFile
from stream_dp.cli.printing import (
    budget_text,
    folding_table,
    given_back,
    name_text,
    on_records,
    tick_text,
    wide_console,
)
from stream_dp.cli.progress_line import Line, progress
from stream_dp.core.wording import how_many
from stream_dp.operate.audit.journal_access import archive_journal, read_dead_letters
from stream_dp.operate.audit.ledger_view import message_trail, read_ledger


def ledger(
    pipeline: PipelineFile,
    *,
    as_json: AsJson = False,
    messages: Annotated[
        bool,
        Option(
            "--messages", help="Print one JSON line for each message: who asked for what, and when."
        ),
    ] = False,
    archive: Annotated[
        Path | None,
        Option(
            "--archive",
            metavar="FILE",
            show_default=False,
            help="Also check the old commits that `journal: keep` has deleted, by reading them from this archive.",
        ),
    ] = None,
    key_file: KeyFile = None,
) -> None:
    """Show what was charged to PIPELINE.yaml's budget and check its journal from end to end."""
    with progress(f"Reading {pipeline}") as line:
        if messages:
            asyncio.run(_trail(pipeline, key_file, line, archive))
            return
        shown = asyncio.run(read_ledger(pipeline, key_file, line.say, line, archive))
    if as_json:
        typer.echo(json.dumps(shown))
    else:
        _print(shown)


async def _trail(pipeline: Path, key_file: Path | None, line: Line, archive: Path | None) -> None:
    async for message in message_trail(pipeline, key_file, line.say, line, archive):
        line.hide()
        typer.echo(json.dumps(message))


def _messages(shown: dict[str, Any]) -> str:
    """Return how many messages were answered and refused; empty if there were none."""
    answered, refused = (sum(m[key] for m in shown["messages"]) for key in ("answered", "refused"))
    if not answered + refused:
        return ""
    return f" {how_many(answered, 'message')} answered, {refused} refused. `--messages` shows who asked for what."


def _loss(shown: dict[str, Any]) -> str:
    """Return the bound on the loss at all times; empty if it says no more than the odometer."""
    loss = shown.get("loss")
    if loss is None or loss["bound"] == shown["odometer"]["bound"]:
        return ""
    return f" Privacy loss at any time: at most {loss['bound']}, except with probability {loss['delta']}."


def _amount(charge: dict[str, Any]) -> str:
    """Return what a charge costs; beside what is no epsilon, as a rho, the notion that it is of."""
    notion = charge["measure"]
    return f"{charge['epsilon']}{'' if notion == 'DP' else f' ({notion})'}"


def _given_back(charge: dict[str, Any]) -> str:
    return escape(given_back(charge["halt"])) if "halt" in charge else ""


def _vouched(shown: dict[str, Any]) -> str:
    """Return from which commit on it was read; empty if that is the first one."""
    begin = shown["verified_from_commit"]
    if not begin:
        return ""
    return (
        f" The journal begins with commit {begin}, because earlier commits were pruned. The checkpoint in this "
        "commit states the budget that was spent, and the series that ran at that time. Series that had ended "
        "before are contained only in the sums. `--archive FILE` reads an archive that begins earlier."
    )


def _analysts(shown: dict[str, Any]) -> str:
    """Return what analysts have left of their ledgers, each paid for in full; empty without analysts."""
    theirs = ", ".join(
        f"{a['name']} {a['left']} of {a['budget']}{on_records(a, ' ({})')}"
        for a in shown["analysts"]
    )
    return f" Left for analysts: {theirs}." if theirs else ""


def _print(shown: dict[str, Any]) -> None:
    console = Console(soft_wrap=True)
    halts = any("halt" in charge for charge in shown["charges"])
    columns = ["commit", "charge", "analyst", "epsilon", "start", "end", "rule"]
    if halts:
        columns.insert(-1, "freed by a halt")
    table = folding_table(*columns, title=f"{shown['pipeline']}: ledger")
    for charge in shown["charges"]:
        table.add_row(
            "before" if charge["commit"] is None else str(charge["commit"]),
            name_text(charge), charge["analyst"], _amount(charge),
            tick_text(charge, "start"), tick_text(charge, "end"),
            *([_given_back(charge)] if halts else []), charge["rule"],
        )  # fmt: skip
    wide_console().print(table)
    if shown["accepted"]:
        console.print(
            f"This journal began as new guarantee {shown['accepted']!r}; the older one on this source adds to it.",
            markup=False,
        )
    if file := shown.get("file"):
        ended = (
            f"; ended series of the first file: {', '.join(file['ended'])}" if file["ended"] else ""
        )
        console.print(
            f"The pipeline uses this file from tick {tick_text(file, 'start')} on. Before, it used an earlier "
            f"file{ended}.",
            markup=False,
        )
    console.print(f"Unit {shown['protects']}; neighbours {shown['neighbors']}.", markup=False)
    if "condition" in shown:
        console.print(
            f"The guarantee holds on the condition that {shown['condition']}.", markup=False
        )
    if not shown["private"]:
        console.print(
            "NOT PRIVATE: the test kit wrote this journal, with noise that protects nobody."
        )
    console.print(
        f"Budget {shown['budget']} ({shown['filter']} filter): {budget_text(shown)}; delta "
        f"{shown['delta']}.{_analysts(shown)} Odometer so far: {shown['odometer']['bound']}.{_loss(shown)} "
        f"{how_many(shown['ticks'], 'tick')}, {how_many(shown['releases'], 'release')}. The journal is complete, "
        f"and its charges add up.{_vouched(shown)}{_messages(shown)}"
    )


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
        _print_dead_letters(shown)


def _print_dead_letters(shown: dict[str, Any]) -> None:
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
