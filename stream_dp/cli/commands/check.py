"""`stream-dp check`: does a sample fit, and what are the series worth by it? `simulate`: how large are errors?

For the operator's own terminal: NOT PRIVATE.
"""

import asyncio
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from stream_dp.cli.options import AsJson, KeyFile, PipelineFile, with_groups
from stream_dp.cli.printing import folding_table, verdict_table, wide_console
from stream_dp.cli.progress_line import progress
from stream_dp.core.wording import how_many
from stream_dp.operate.check_pipeline import (
    Judgement,
    check_pipeline,
    checked_json,
    false_alarms,
    within_limit,
)
from stream_dp.operate.fitting import Fitting
from stream_dp.operate.simulate import Point
from stream_dp.operate.simulate import plot as plotted
from stream_dp.operate.simulate import simulate as simulated

UNFIT = 2


def check(
    pipeline: PipelineFile,
    *,
    data: Annotated[
        Path | None, Option(help="The file of the sample: CSV, JSON lines or Parquet, also as .gz.")
    ] = None,
    topic: Annotated[str, Option(help="The topic of the sample, at the pipeline's brokers.")] = "",
    sample: Annotated[
        int,
        Option(
            min=1,
            max=1_000_000,
            help="Number of records: the first records of a file, or the last of each partition.",
        ),
    ] = 1000,
    as_json: AsJson = False,
    key_file: KeyFile = None,
) -> None:
    """Show which records of a sample cannot be used, and why, before PIPELINE.yaml spends any budget. NOT PRIVATE.

    The sample comes from the pipeline's own source, or from --data or --topic. Exit code 2: more of the sample than
    `warn_dead` allows cannot be used, or the pipeline file is broken. The command opens no journal and charges nothing.
    """
    with progress("Reading a sample of the records") as line:
        checking = check_pipeline(pipeline, data, topic, sample, key_file, line.say, line)
        checked = asyncio.run(checking)
    built, fitting, judgement = checked
    if as_json:
        typer.echo(json.dumps(checked_json(checked)))
    else:
        _print(built.spec.name, fitting, [alarm.words for alarm in false_alarms(built)])
        _print_verdicts(judgement)
    if not within_limit(fitting, built.spec.source.warn_dead):
        raise typer.Exit(UNFIT)


@dataclass(frozen=True, slots=True)
class Tried:
    """Options: what a simulation tries, all with all."""

    epsilon: Annotated[
        str,
        Option(
            metavar="E,E",
            help="Budgets to try. Default: half of the file's budget, the budget itself, and twice the budget.",
        ),
    ] = ""
    cap: Annotated[
        str, Option(metavar="N,N", help="Caps of users (max_events, or overall) to try.")
    ] = ""
    step: Annotated[str, Option(metavar="D,D", help="Values of clock.step to try.")] = ""


@with_groups
def simulate(
    pipeline: PipelineFile,
    *,
    data: Annotated[
        Path, Option(help="Data that you may look at: CSV, JSON lines or Parquet, also as .gz.")
    ],
    tried: Tried,
    plot: Annotated[
        Path | None,
        Option(help="Draw the errors, and write the picture to this file: .svg, .png or .pdf."),
    ] = None,
    runs: Annotated[int, Option(min=1, max=1000, help="Number of runs for each budget.")] = 10,
    sample: Annotated[
        int,
        Option(min=1, max=10_000_000, help="Number of records to read from the start of the file."),
    ] = 1_000_000,
    as_json: AsJson = False,
) -> None:
    """Show how large PIPELINE.yaml's errors are at several budgets, on data that you may look at. NOT PRIVATE.

    The pipeline's mechanisms run on the records of --data, each time with fresh noise, and their releases are compared
    with the true values. Each series gets the same share of every budget, and every cap and step is tried with every
    budget. The command opens no journal, charges nothing and publishes nothing. Use public, synthetic or old data: if
    you tune a pipeline on the data that it protects, the result reveals something about these data.
    """
    with progress("Simulating") as line:
        points = simulated(pipeline, data, tried.epsilon, runs, sample, line, tried.cap, tried.step)
    if plot is not None:
        plotted(points, plot)
    if as_json:
        shown = {"private": False, "runs": runs, "points": [point.json() for point in points]}
        typer.echo(json.dumps(shown))
        return
    _print_points(points, [what for what in ("cap", "step") if getattr(tried, what)])


def _print_points(points: Sequence[Point], tried: Collection[str]) -> None:
    heads = ("over", "cut off", "typically", "budget", "epsilon", "band", "RMSE", "95 % error")
    title = "Simulated releases and their errors, NOT PRIVATE"
    table = folding_table("series", *tried, *heads, "coverage", "verdict", title=title)
    last = ""
    for point in points:
        name = point.row.series
        others = [str(getattr(point, what)) for what in tried]
        table.add_row("" if name == last else name, *others, *point.words)
        last = name
    wide_console().print(table)
    Console(soft_wrap=True, highlight=False).print(
        "NOT PRIVATE: these figures are computed from exact values. Nothing was charged and nothing was "
        "published. If you tune a pipeline on the data that it protects, the tuned file reveals something about "
        "these data, and no budget covers this loss: use public, synthetic or old data. Errors are computed for "
        "the records that count. The column `cut off` shows the part of the records that caps cut off. Alerts "
        "are not simulated: `stream-dp plan` shows the probability of false alarms.",
        markup=False,
    )


def _print(name: str, fitting: Fitting, alarms: list[str]) -> None:
    console = wide_console()
    console.print(_fields(name, fitting))
    if fitting.reasons:
        console.print(_reasons(fitting))
    lines = Console(soft_wrap=True, highlight=False)
    if not fitting.records:
        lines.print(
            f"{fitting.origin} holds no records yet, so nothing could be checked.",
            markup=False,
        )
    for hint in fitting.hints:
        times = f"{hint.records:,} x " if hint.records else ""
        lines.print(f"  {times}{hint.says}", markup=False)
    for alarm in alarms:
        lines.print(f"  {alarm}", markup=False)
    counts = {"dead": fitting.dead, "late": fitting.late, "other": fitting.other}
    shares = ", ".join(
        f"{n:,} {what} ({_share_text(fitting.share(n))})" for what, n in counts.items()
    )
    shares += f", of which {fitting.null:,} null" if fitting.null else ""
    lines.print(
        f"NOT PRIVATE: {how_many(fitting.records, 'record')} of {fitting.origin}: {shares}.",
        markup=False,
    )


def _print_verdicts(judgement: Judgement) -> None:
    title = "How useful the series are, judged by this sample, NOT PRIVATE"
    wide_console().print(verdict_table(judgement.table, title))
    lines = Console(soft_wrap=True, highlight=False)
    for line in judgement.lines:
        lines.print(line, markup=False)
    lines.print(
        "NOT PRIVATE: these verdicts are computed from exact figures of the sample. Never publish them. If you change "
        "the file because of a verdict, the file reveals something about the sample.",
        markup=False,
    )


def _fields(name: str, fitting: Fitting) -> Table:
    columns = ("field", "type", "fits", "null", "missing", "wrong type", "other")
    table = folding_table(
        *columns, title=f"{name}: how the records of {fitting.origin} fit the schema, NOT PRIVATE"
    )
    for fit in fitting.fields:
        counts = (fit.fits, fit.null, fit.missing, fit.wrong, fit.other)
        unused = "" if fit.used else " (not used)"
        table.add_row(f"{fit.name}{unused}", fit.type, *(f"{len(count):,}" for count in counts))
    return table


def _reasons(fitting: Fitting) -> Table:
    columns = ("reason", "field", "records", "example")
    table = folding_table(*columns, title="records that cannot be used")
    for reason in fitting.reasons:
        table.add_row(reason.reason, reason.field or "", f"{reason.records:,}", reason.example)
    return table


def _share_text(share: float) -> str:
    """Return a share in percent; a share above zero is never shown as zero.

    >>> _share_text(0.0), _share_text(0.0001), _share_text(0.0769)
    ('0.0%', 'under 0.1%', '7.7%')
    """
    return "under 0.1%" if 0 < share < 0.001 else f"{share:.1%}"
