"""`stream-dp plan`: the guarantee as a tree, and the errors to expect. Touches no data."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from stream_dp.app.plan_view import PlanView
from stream_dp.cli.options import PipelineFile
from stream_dp.cli.printing import budget_text, derivation_tree, wide_console


def plan(
    pipeline: PipelineFile,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    picture: Annotated[
        Path | None,
        typer.Option(metavar="TREE.svg", help="Write the derivation tree there as a picture."),
    ] = None,
) -> None:
    """Show what PIPELINE.yaml guarantees, why, and how large its errors will be."""
    view = PlanView(pipeline)
    if picture is not None:
        view.draw(picture)
    if as_json:
        typer.echo(json.dumps(view.json()))
        return
    shown, console = view.shown(), wide_console()
    console.print(_guarantee(shown), highlight=False)
    console.print(derivation_tree(shown["derivation"]))
    console.print(_errors(shown))
    for series in shown["series"]:
        console.print(f"{series['name']}: {series['why']}", highlight=False)
        for alarm in series["alarms"]:
            console.print(f"  {alarm}", highlight=False)
    for note in shown["notes"]:
        console.print(f"[yellow]Note[/yellow]: {note}")


def _guarantee(shown: dict[str, Any]) -> str:
    budget = shown["budget"]
    condition = "" if shown["condition"] is None else f", if {shown['condition']}"
    lists = f", {shown['lists']}" if shown["lists"] else ""
    return (
        f"[bold]{shown['name']}[/bold] is ({shown['epsilon']}, {shown['delta']})-differentially private: unit "
        f"{shown['unit']}, neighbours {shown['neighbors']}{lists}{condition}, over all releases for ever.\n"
        f"With all that is asked while it runs: ({budget['budget']}, {budget['delta']}), by the "
        f"{budget['filter']} filter.\nBudget {budget['budget']}: {budget_text(budget)}.\n"
    )


def _errors(shown: dict[str, Any]) -> Table:
    """The predicted half-widths, a row for each tick and a column for each series, or each of its windows."""
    table = Table(title=f"Predicted error: half-width at confidence {shown['confidence']:g}")
    table.add_column("tick", justify="right")
    every: list[dict[int, int]] = []
    for series in (each for each in shown["series"] if each["errors"]):
        about = f"\n{series['mechanism']}, eps {series['epsilon']}"
        for window, errors in (series["windows"] or {"": series["errors"]}).items():
            heading = f"{series['name']} {window}".strip()
            table.add_column(heading + about, justify="right")
            every.append(errors)
            about = ""
    for tick in every[0]:
        table.add_row(str(tick), *(f"{errors[tick]:,}" for errors in every))
    return table
