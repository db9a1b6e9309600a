"""`stream-dp demo`: a year of real flights through a local Kafka to a private live page."""

import asyncio
import json
import os
import shlex
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from stream_dp.cli.commands.demo_results import print_results
from stream_dp.cli.options import Port
from stream_dp.cli.progress_line import Line, progress
from stream_dp.cli.ticks_shown import ticks_shown
from stream_dp.operate.demo import DemoOptions, DemoRun, Told, run_demo
from stream_dp.operate.demo_figures import DemoFigures, figures_of
from stream_dp.operate.example_files import flights_folder

LIVE_SERIES = (
    "{name: very_late, statistic: count, where: [{field: delay, at_least: 120}], epsilon: 0.25}"
)


def demo(
    *,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="No broker: file source and SQLite journal.")
    ] = False,
    headless: Annotated[bool, typer.Option("--headless", help="No page, not paced.")] = False,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop at the end of the year with a table.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete the demo's state first.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one JSON object on the last line of stdout.")
    ] = False,
    compare_exact: Annotated[
        bool, typer.Option("--compare-exact", help="Show exact values beside the private ones.")
    ] = False,
    port: Port = 8765,
) -> None:
    """Real flight departures, live and private, in the browser. Ctrl-C stops; a second start goes on."""
    options = DemoOptions(embedded, headless, until_end, fresh, port)
    with progress("Looking at what is here") as line:
        done, found = asyncio.run(_demo(options, line, compare_exact=compare_exact))
    print_results(found)
    if as_json:
        typer.echo(json.dumps(found.json(done.built)))


async def _demo(
    options: DemoOptions, line: Line, *, compare_exact: bool
) -> tuple[DemoRun, DemoFigures]:
    def page(url: str, goes_on: bool) -> None:
        line.say(f"The page is at {url}")
        if goes_on:
            line.say(_invitation(url))
        if sys.stdout.isatty():
            webbrowser.open(url)

    told = Told(line.say, line, page, ticks_shown(line))
    async with run_demo(options, told) as done:
        line("Reading the journal")
        found = await figures_of(done, compare_exact=compare_exact)
        line("Stopping")
    return done, found


def _invitation(url: str) -> str:
    home = os.environ.get("STREAM_DP_HOME")
    there = f"STREAM_DP_HOME={shlex.quote(home)} " if home else ""
    called = Path(sys.argv[0])
    us = f"{sys.executable} -m {called.parent.name}" if called.name == "__main__.py" else called
    command = f"{us} query create {flights_folder() / 'pipeline.yaml'} --url {url} --series '{LIVE_SERIES}'"
    return f"Ask it something of your own while it runs, as far as the budget goes:\n  {there}{command}"
