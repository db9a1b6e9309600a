"""`stream-dp demo`: a year of real flights through a local Kafka to a private live page."""

import asyncio
import json
import sys
import webbrowser
from typing import Annotated

import typer
from rich.console import Console

from stream_dp.app.demo import DemoOptions, Told, run_demo
from stream_dp.app.demo_figures import figures_of
from stream_dp.app.example_files import flights_folder
from stream_dp.cli.broker import fetch_progress
from stream_dp.cli.demo_results import print_results
from stream_dp.cli.options import Port
from stream_dp.cli.progress import progress

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
    asyncio.run(_demo(options, as_json, compare_exact))


async def _demo(options: DemoOptions, as_json: bool, compare_exact: bool) -> None:
    console = Console(stderr=True)

    def line(text: str) -> None:
        console.print(text, soft_wrap=True, markup=False)

    def page(url: str, goes_on: bool) -> None:
        console.print(f"The page is at {url}")
        if goes_on:
            console.print(_invitation(url), soft_wrap=True, markup=False, highlight=False)
        if sys.stdout.isatty():
            webbrowser.open(url)

    told = Told(line, fetch_progress, page, progress(console))
    async with run_demo(options, told) as done:
        found = await figures_of(done, compare_exact=compare_exact)
    print_results(found)
    if as_json:
        typer.echo(json.dumps(found.json(done.built)))


def _invitation(url: str) -> str:
    command = f"{sys.argv[0]} query create {flights_folder() / 'pipeline.yaml'} --url {url} --series '{LIVE_SERIES}'"
    return f"Ask it something of your own while it runs, as far as the budget goes:\n  {command}"
