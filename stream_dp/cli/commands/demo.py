"""`stream-dp demo`: a year of real flights through a local Kafka to a private live page."""

import asyncio
import json
import os
import shlex
import sys
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from stream_dp.cli.options import Port, Processes, with_groups
from stream_dp.cli.printing import folding_table
from stream_dp.cli.progress_line import Line, progress
from stream_dp.cli.until_stopped import ticks_shown
from stream_dp.core.wording import how_many
from stream_dp.operate.demo import (
    DemoOptions,
    DemoRun,
    Told,
    flights_folder,
    run_demo,
)
from stream_dp.operate.demo_figures import DemoFigures, figures_of

SHOWN_KEYS = 5
LIVE_SERIES = (
    "{name: very_late, statistic: count, where: [{field: delay, at_least: 120}], epsilon: 0.1}"
)


@dataclass(frozen=True, slots=True)
class Readers:
    """Options: who reads the topic."""

    processes: Processes = None
    workers: Annotated[
        int, Option("--workers", min=0, help="So many workers read the topic for the engine.")
    ] = 0


@with_groups
def demo(
    *,
    embedded: Annotated[
        bool, Option("--embedded", help="Use no broker, but a file source and an SQLite journal.")
    ] = False,
    headless: Annotated[bool, Option("--headless", help="No page, not paced.")] = False,
    until_end: Annotated[
        bool, Option("--until-end", help="Stop at the end of the year and print a table.")
    ] = False,
    fresh: Annotated[bool, Option("--fresh", help="Delete the demo's state first.")] = False,
    as_json: Annotated[
        bool, Option("--json", help="End with one JSON object on the last line of stdout.")
    ] = False,
    compare_exact: Annotated[
        bool, Option("--compare-exact", help="Show exact values beside the private ones.")
    ] = False,
    port: Port = 8765,
    readers: Readers,
) -> None:
    """Show real flight departures, live and private, in the browser. Ctrl-C stops; a new start continues."""
    options = DemoOptions(
        embedded, headless, until_end, fresh, port, readers.processes, readers.workers
    )
    with progress("Looking at what is here") as line:
        done, figures = asyncio.run(_demo(options, line, compare_exact=compare_exact))
    print_results(figures)
    if as_json:
        typer.echo(json.dumps(figures.json(done.built)))


async def _demo(
    options: DemoOptions, line: Line, *, compare_exact: bool
) -> tuple[DemoRun, DemoFigures]:
    def page(url: str, token: str) -> None:
        link = f"{url}#token={token}" if token else url
        line.say(f"The page is at {link}")
        if token:
            line.say(_invitation(url))
        if sys.stdout.isatty():
            webbrowser.open(link)

    callbacks = Told(line.say, line, page, ticks_shown(line))
    async with run_demo(options, callbacks) as done:
        line("Reading the journal")
        figures = await figures_of(done, compare_exact=compare_exact)
        line("Stopping")
    return done, figures


def _invitation(url: str) -> str:
    home = os.environ.get("STREAM_DP_HOME")
    there = f"STREAM_DP_HOME={shlex.quote(home)} " if home else ""
    called = Path(sys.argv[0])
    us = f"{sys.executable} -m {called.parent.name}" if called.name == "__main__.py" else called
    command = f"{us} query create {flights_folder() / 'pipeline.yaml'} --url {url} --series '{LIVE_SERIES}'"
    return (
        "The link has a guest's token: ask something of your own below the cards. Or as the operator, from a second "
        f"terminal:\n  {there}{command}"
    )


def print_results(figures: DemoFigures) -> None:
    console = Console(soft_wrap=True)
    console.print(_table(figures))
    summary = figures.summary
    console.print(
        f"{how_many(summary.totals.records, 'event')}, {how_many(summary.dead_letters, 'dead letter')}, "
        f"{summary.totals.late:,} late, "
        f"{how_many(summary.totals.ticks, 'tick')}, {how_many(summary.totals.releases, 'release')} in "
        f"{figures.seconds:.1f} s "
        "(exact figures because this source is declared public_data)"
    )


def _table(figures: DemoFigures) -> Table:
    exact = figures.exact
    tick = max((release["tick"] for release in figures.final.values()), default=-1)
    columns, right = ("series", "key", "private value", "band"), ("private value", "band")
    table = folding_table(*columns, title=f"Private values at tick {tick}", right=right)
    if exact is not None:
        table.add_column("exact (public data)", justify="right")
    for name, release in figures.final.items():
        halted = "" if release["tick"] == tick else f" (until tick {release['tick']})"
        total = None if exact is None else exact.get(name)
        for window, part in (release.get("windows") or {"": release}).items():
            known = (total or {}).get(window) if window else total
            for key, value in _shown(part):
                beside = known.get(key) if isinstance(known, dict) else known
                shown = f"{name} {window}".strip() + halted
                row = [shown, key, _number(value), _sure(part, key)]
                table.add_row(*row, *([] if exact is None else [_number(beside)]))
    return table


def _shown(release: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the scalar with its name, the few largest values, or the keys with an alert at this tick."""
    if "value" in release:
        return [(release.get("name", ""), release["value"])]
    if "fired" in release:
        fired = release["fired"]
        return [(", ".join(fired) or "no alert at this tick", True if fired else None)]
    if "ranks" in release:
        return [(rank["name"], rank["value"]) for rank in release["ranks"][:SHOWN_KEYS]]
    if "quantiles" in release:
        return [(at, quantile["value"]) for at, quantile in release["quantiles"].items()]
    values: dict[str, Any] = release["values"]
    ranked = sorted(values.items(), key=lambda item: -(item[1] or 0))[:SHOWN_KEYS]
    left = len(values) - len(ranked)
    return [*ranked, *([(f"... {left} more", None)] if left else [])]


def _sure(part: dict[str, Any], key: str) -> str:
    """Return the half-width, or the interval of a quotient."""
    if "band" in part:
        return f"± {part['band']:,}"
    ends = part.get("low"), part.get("high")
    if "values" in part:
        if key not in part["values"]:
            return ""
        at = list(part["values"]).index(key)
        ends = part["lows"][at], part["highs"][at]
    low, high = ("open" if end is None else f"{end:,}" for end in ends)
    return f"{low} to {high}"


def _number(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else f"{value:,}"
