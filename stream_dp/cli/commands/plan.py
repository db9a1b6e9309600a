"""`stream-dp plan`: the promise in one line, prices, the errors to expect; `--notes`: all that is to be known of them;
`--proof`: why. Touches no data.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer import Option

from stream_dp.cli.options import AsJson, KeyFile, PipelineFile, Proof
from stream_dp.cli.printing import (
    budget_text,
    change_lines,
    derivation_tree,
    folding_table,
    on_records,
    verdict_table,
    wide_console,
)
from stream_dp.cli.progress_line import progress
from stream_dp.core.wording import how_many
from stream_dp.operate.budget_view import MOST_ALIKE, PlanView
from stream_dp.operate.run import file_change

PENDING = 6
_PADDING = 3  # of a column: a space to each side, and a line


def plan(
    pipeline: PipelineFile,
    *,
    against: Annotated[
        str,
        Option(
            metavar="running|OLD.yaml",
            show_default=False,
            help="Compare this file with the file that the journal uses now (running), or with OLD.yaml, and show "
            "what would change. Exit code 6: there are changes to apply.",
        ),
    ] = "",
    as_json: AsJson = False,
    proof: Proof = False,
    notes: Annotated[
        bool,
        Option(
            "--notes",
            help="Show also the errors at several ticks, notes on each series, and all other details.",
        ),
    ] = False,
    key_file: KeyFile = None,
) -> None:
    """Show what PIPELINE.yaml guarantees, why, and how large its errors will be."""
    if against:
        _compare(pipeline, against, key_file, as_json=as_json)
        return
    with progress(f"Deriving what {pipeline} guarantees"):
        view = PlanView(pipeline)
        shown = view.json() if as_json else view.shown()
    if as_json:
        typer.echo(json.dumps(shown))
    else:
        _print(shown, proof=proof, notes=notes)


def _print(shown: dict[str, Any], *, proof: bool, notes: bool) -> None:
    console = wide_console()
    console.print(shown["plainly"], highlight=False, soft_wrap=True, style="bold", markup=False)
    console.print()
    console.print(_guarantee(shown, notes=notes), highlight=False)
    if proof:
        console.print(derivation_tree(shown["derivation"]))
    if notes or not shown["guessed"]:
        console.print(_errors(shown, console.width))
    if shown["guessed"]:
        table = verdict_table(
            shown["verdicts"],
            "How useful these numbers are, according to the guesses in privacy.expect",
        )
        console.print(table)
    console.print(shown["summary"], highlight=False, markup=False, soft_wrap=True, style="bold")
    _print_words(console, shown, proof=proof, notes=notes)


def _print_words(console: Console, shown: dict[str, Any], *, proof: bool, notes: bool) -> None:
    for series in shown["series"]:
        for line in _series_lines(series, proof=proof, notes=notes):
            console.print(line, highlight=False, markup=False)
    if shown["caps"]:
        console.print(
            "Half-widths and cut-off parts with other caps, according to the guesses in privacy.expect (the "
            "guarantee is the same)"
        )
    for line in shown["caps"]:
        console.print(f"  {line}", highlight=False, markup=False)
    for warning in shown["warnings"]:
        console.print(f"[yellow]Warning[/yellow]: {escape(warning)}", highlight=False)
    for note in shown["notes"] if notes else ():
        console.print(f"Note: {note}", highlight=False, markup=False)
    if not notes:
        more = how_many(len(shown["notes"]), "note")
        console.print(
            f"`--notes` shows the errors at several ticks, how each series is computed, and {more}."
        )
    if not proof:
        console.print(
            "`--proof` shows why the guarantee holds: the derivation, with the conditions of each theorem."
        )


def _compare(pipeline: Path, old: str, key_file: Path | None, *, as_json: bool) -> None:
    """Show what a file would change; exit with 6 if something is to be applied, as its error if it cannot be."""
    with progress(f"Reading {pipeline}") as line:
        changing = asyncio.run(file_change.against(pipeline, old, key_file, line.say, line))
    if as_json:
        typer.echo(json.dumps(changing.shown))
    else:
        for text in change_lines(changing.shown):
            typer.echo(text)
    changing.require()
    if changing.shown["pending"]:
        raise typer.Exit(PENDING)


def _series_lines(series: dict[str, Any], *, proof: bool, notes: bool) -> Iterator[str]:
    lines = [series["why"]] if notes or proof else []
    if (bounds := series["bounds"]) and lines:
        lines.append(f"{bounds.words}; {bounds.proof}" if proof else bounds.words)
    for place, line in enumerate(lines):
        yield f"  {line}" if place else f"{series['name']}: {line}"
    yield from (f"  {alarm}" if lines else alarm for alarm in series["alarms"])


def _guarantee(shown: dict[str, Any], *, notes: bool) -> str:
    budget = shown["budget"]
    condition = "" if shown["condition"] is None else f", if {shown['condition']}"
    lists = f", {shown['lists']}" if shown["lists"] else ""
    more = f"{_halts(budget)}\n{_filters(shown['filters'])}" if notes else ""
    return (
        f"[bold]{shown['name']}[/bold] is ({shown['epsilon']}, {shown['delta']})-differentially private: unit "
        f"{shown['unit']}, neighbours {shown['neighbors']}{lists}{condition}, over all releases for ever.\nAll "
        f"series together, also those that are added while it runs: ({budget['budget']}, {budget['delta']}), "
        f"enforced by the {budget['filter']} filter.\nBudget {budget['budget']}: "
        f"{budget_text(budget)}{_paid_for(budget)}.\n{more}"
    )


def _halts(budget: dict[str, Any]) -> str:
    what = (
        "If a series that was added later is halted, its price becomes free again for later ticks, on the "
        "records that the series saw."
        if budget["frees"]
        else f"Under the {budget['filter']} filter, a halt of a series frees no budget here."
    )
    return f"The series of this file run as long as the pipeline. {what}"


def _filters(filters: list[dict[str, Any]]) -> str:
    """Return how many more series would fit under this filter and under others; empty where there is no other.

    >>> rows = [("optimal", 48), ("pure", 28), ("basic", 28), ("zcdp", None), ("gdp", None)]
    >>> _filters([{"filter": name, "epsilon": "0.05", "series": number} for name, number in rows])[:79]
    'Number of series of epsilon 0.05 each that could be added now: 48 under optimal'
    """
    holds, *others = filters
    if not others:
        return ""
    taking = [
        f"{other['filter']}{' (without delta)' if other['filter'] == 'pure' else ''} {_number(other)}"
        for other in others
        if other["series"] is not None
    ]
    refusing = [other["filter"] for other in others if other["series"] is None]
    by_others = f"; under other filters: {', '.join(taking)}" if taking else ""
    refused = f"; {', '.join(refusing)} would refuse the series of this file" if refusing else ""
    return (
        f"Number of series of epsilon {holds['epsilon']} each that could be added now: {_number(holds)} under "
        f"{holds['filter']}, the filter of this file{by_others}{refused}.\n"
    )


def _number(row: dict[str, Any]) -> str:
    least = "at least " if row["series"] == MOST_ALIKE else ""
    return f"{least}{row['series']:,}"


def _paid_for(budget: dict[str, Any]) -> str:
    """Return the analysts' ledgers, which count as spent although nobody has asked yet.

    >>> ann = {"name": "ann", "budget": "1", "records": ""}
    >>> _paid_for({"analysts": [ann, {"name": "bob", "budget": "0.5", "records": "country = DE"}]})
    '; the budgets of analysts count as spent: ann 1, bob 0.5 (on records with country = DE)'
    """
    theirs = ", ".join(
        f"{a['name']} {a['budget']}{on_records(a, ' ({})')}" for a in budget["analysts"]
    )
    return f"; the budgets of analysts count as spent: {theirs}" if theirs else ""


def _errors(shown: dict[str, Any], width: int) -> Table:
    """Return the predicted half-widths: a row for each series or window, a column for each tick that has room."""
    rows: list[tuple[tuple[str, str, str], dict[int, float]]] = []
    for series in (each for each in shown["series"] if each["errors"]):
        by = f"{series['statistic']}, epsilon {series['epsilon']}", series["supposing"]
        about = series["name"], ", ".join(filter(None, by))
        for window, errors in (series["windows"] or {"": series["errors"]}).items():
            rows.append(((about[0], window, about[1]), errors))
            about = "", ""
    heads = zip(*(head for head, _ in rows), strict=True)
    left = width - 1 - sum(_PADDING + max(map(len, column)) for column in heads)
    ticks = _fitting({at: [f"{errors[at]:,}" for _, errors in rows] for at in rows[0][1]}, left)
    title = f"Predicted error: half-width at confidence {shown['confidence']:g}"
    table = folding_table("series", "over", "by", title=title)
    for tick in ticks:
        table.add_column(f"tick {tick}", justify="right", no_wrap=True)
    for head, errors in rows:
        table.add_row(*head, *(f"{errors[tick]:,}" for tick in ticks))
    return table


def _fitting(cells: dict[int, list[str]], room: int) -> list[int]:
    """Return the ticks whose columns have room: first the last tick, then the first, then later before earlier. Of
    columns that are alike the last one is shown.

    >>> _fitting({0: ["7"], 90: ["9"], 200: ["13"], 364: ["13"]}, 99)
    [0, 90, 364]
    """
    following = [*cells.values()][1:]
    alike = [at for at, after in zip(cells, following, strict=False) if cells[at] == after]
    cells = {at: column for at, column in cells.items() if at not in alike}
    widths = {at: max(map(len, (f"tick {at}", *texts))) + _PADDING for at, texts in cells.items()}
    last, first, *others = [*cells][-1:] + [*cells][:1] + [*cells][-2:0:-1]
    chosen = [last]
    for tick in dict.fromkeys((first, *others)):
        if tick != last and sum(widths[shown] for shown in (*chosen, tick)) <= room:
            chosen.append(tick)
    return sorted(chosen)
