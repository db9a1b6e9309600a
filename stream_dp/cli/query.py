"""`stream-dp query`: preview, create, halt and list the mechanisms of an engine that runs.

Rules: the engine decides and charges; these commands ask it over HTTP with a token made from the operator's key.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import JustifyMethod
from rich.markup import escape
from rich.table import Table

from stream_dp.app.remote_series import RemoteSeries
from stream_dp.cli.lazy import WholeHelpGroup
from stream_dp.cli.options import KeyFile, PipelineFile
from stream_dp.cli.printing import derivation_tree, tick_text, wide_console
from stream_dp.errors import BudgetRefused

query = typer.Typer(
    cls=WholeHelpGroup,
    help="Preview, create, halt and list the series of a running engine (stream-dp run FILE --serve).",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

Series = Annotated[
    str,
    typer.Option(
        metavar="JSON|@FILE",
        help="The series, as an entry of `series:` in the pipeline file, JSON or YAML; or @ and a file with it.",
    ),
]
Analyst = Annotated[str, typer.Option(metavar="NAME", help="Whose quota pays.")]
Url = Annotated[str, typer.Option(help="The engine's address, as it printed it.")]
AsJson = Annotated[bool, typer.Option("--json", help="The answer as one line of JSON.")]
HERE = "http://127.0.0.1:8765"


@query.command()
def create(
    pipeline: PipelineFile,
    *,
    series: Series,
    analyst: Analyst = "",
    url: Url = HERE,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Charge a new series to the budget and start it at the next tick. Exit code 3: it does not fit."""
    answer = RemoteSeries.of(pipeline, url, key_file).create(series, analyst)
    _say(
        answer,
        as_json,
        "{name}: created, charged epsilon {epsilon}, left {left}. " + _START + _ERROR,
    )


@query.command()
def preview(
    pipeline: PipelineFile,
    *,
    series: Series,
    analyst: Analyst = "",
    url: Url = HERE,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Show what a series would cost and why, and change nothing. Exit code 3: it would not fit."""
    answer = RemoteSeries.of(pipeline, url, key_file).preview(series, analyst)
    _say(
        answer,
        as_json,
        "It {fits}: asked epsilon {asked}, spent {spent}{unit}, left {left}, largest that fits {largest}. "
        + _ERROR,
    )
    if not as_json and "derivation" in answer:
        wide_console().print(derivation_tree(answer["derivation"]), highlight=False)
    if not answer.get("fits"):
        raise typer.Exit(BudgetRefused.exit_code)


@query.command()
def halt(
    pipeline: PipelineFile,
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    *,
    url: Url = HERE,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """End a series for good. Its budget comes free for later ticks under the filters pure and basic, else not."""
    answer = RemoteSeries.of(pipeline, url, key_file).halt(name)
    _say(
        answer, as_json, "{name}: halted, left {left}. End: tick {end}, the first it does not see."
    )


@query.command("list")
def list_(pipeline: PipelineFile, *, url: Url = HERE, as_json: AsJson = False) -> None:
    """Show every series: those of the file, those created since, those halted. Needs no key.

    A series sees the ticks from `start` on, up to and not including `end`.
    """
    found = RemoteSeries.of(pipeline, url).queries()
    if as_json:
        typer.echo(json.dumps({"queries": found}))
        return
    table = Table()
    for column in ("series", "statistic", "analyst", "epsilon", "start", "end"):
        justify: JustifyMethod = "right" if column == "epsilon" else "left"
        table.add_column(column, justify=justify, overflow="fold")
    for each in found:
        cells = [str(each.get(key) or "") for key in ("name", "statistic", "analyst", "epsilon")]
        start, end = tick_text(each, "start"), tick_text(each, "end")
        table.add_row(*map(escape, [*cells, start, end]))
    wide_console().print(table)


@query.command()
def token(pipeline: PipelineFile, *, key_file: KeyFile = None) -> None:
    """Print the API's bearer token, for curl. Whoever has it can spend the budget: keep it like the key."""
    typer.echo(RemoteSeries.of(pipeline, key_file=key_file).token())


_START = "Start: tick {start}, the first it sees. "
_ERROR = "Expected error: ± {error} at tick {error_tick} with {confidence} confidence."
_AMOUNTS = (
    "name", "epsilon", "start", "end", "asked", "spent", "left", "largest", "error", "error_tick", "confidence",
)  # fmt: skip


def _shown(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The answer as the texts show it: "?" for an amount that it lacks, a unit where that is not epsilon."""
    shown: dict[str, Any] = {**dict.fromkeys(_AMOUNTS, "?"), **answer}
    shown |= {key: tick_text(answer, key) for key in ("start", "end") if key in answer}
    shown["fits"] = "fits" if answer.get("fits") else "does not fit"
    unit = answer.get("unit", "epsilon")
    shown["unit"] = "" if unit == "epsilon" else f" {unit}"
    if "confidence" in answer:
        shown["confidence"] = f"{answer['confidence'] * 100:g}%"
    return shown


def _say(answer: Mapping[str, Any], as_json: bool, text: str) -> None:
    typer.echo(json.dumps(answer) if as_json else text.format_map(_shown(answer)))
