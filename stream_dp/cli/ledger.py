"""`stream-dp ledger`: what was spent, and whether the journal is whole. Works while the engine runs."""

import asyncio
import json
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from stream_dp.accounting.amounts import text
from stream_dp.app.budget_view import budget_json, state
from stream_dp.app.ledger_check import derived_again, header_of, spans
from stream_dp.app.tick_times import begin_text, tick_text
from stream_dp.app.wiring import sealed_commits, sealer_for
from stream_dp.cli.derivation_tree import wide_console
from stream_dp.cli.options import KeyFile, PipelineFile
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.report import derivation_json
from stream_dp.pipeline.yaml import load
from stream_dp.runtime.journal_summary import JournalSummary, read_summary


def ledger(
    pipeline: PipelineFile,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    key_file: KeyFile = None,
) -> None:
    """Show what was charged to PIPELINE.yaml's budget and check its journal from end to end."""
    spec = load(pipeline)
    sealer = sealer_for(spec, key_file)
    summary = asyncio.run(read_summary(sealed_commits(spec), sealer, spec.name))
    shown = ledger_json(build(spec), summary)
    if as_json:
        typer.echo(json.dumps(shown))
    else:
        _print(shown)


def ledger_json(built: Built, summary: JournalSummary) -> dict[str, Any]:
    """What the journal's ledger says, derived again and compared.

    Raises:
        FailClosed: it belongs to another pipeline, or does not add up.
    """
    header = header_of(built, summary)
    admission, total = derived_again(built, summary)
    return {
        "pipeline": built.spec.name,
        "private": header.private,
        "accepted": header.accepted,
        **budget_json(built.spec, admission.subledgers),
        "derivation": derivation_json(total),
        "charges": _charges(
            summary, lambda tick: begin_text(header.origin, built.spec.clock.step, tick)
        ),
        "ticks": summary.ticks,
        "releases": summary.releases,
        "journal": "whole",
    }


def _charges(summary: JournalSummary, begins: Callable[[int], str]) -> list[dict[str, Any]]:
    """Every charge with the first tick that what it pays for sees, and the first that it does not (None: it runs)."""
    later = list(spans(summary).values())
    ticks = [(0, None)] * (len(summary.charges) - len(later)) + later
    return [
        {
            "commit": n, "name": c.name, "analyst": c.analyst, "epsilon": text(c.epsilon), "delta": text(c.delta),
            "measure": c.measure, "rule": c.rule, "start": start, "start_time": begins(start),
            "end": end, "end_time": None if end is None else begins(end),
        }
        for (n, c), (start, end) in zip(summary.charges, ticks, strict=True)
    ]  # fmt: skip


def _print(shown: dict[str, Any]) -> None:
    console = Console(soft_wrap=True)
    table = Table(title=f"{shown['pipeline']}: ledger")
    for column in ("commit", "charge", "analyst", "epsilon", "start", "end", "rule"):
        table.add_column(column, overflow="fold")
    for charge in shown["charges"]:
        table.add_row(
            str(charge["commit"]), charge["name"], charge["analyst"], charge["epsilon"],
            tick_text(charge, "start"), tick_text(charge, "end"), charge["rule"],
        )  # fmt: skip
    wide_console().print(table)
    if shown["accepted"]:
        console.print(
            f"This journal began as new guarantee {shown['accepted']!r}; an older one on the same source adds to it.",
            markup=False,
        )
    if not shown["private"]:
        console.print(
            "NOT PRIVATE: the test kit wrote this journal, with noise that protects nobody."
        )
    console.print(
        f"Budget {shown['budget']} ({shown['filter']} filter): {state(shown)}; "
        f"delta {shown['delta']}. Odometer so far: {shown['odometer']['bound']}. "
        f"{shown['ticks']} ticks, {shown['releases']} releases; the journal is whole and adds up."
    )
