"""`stream-dp ledger`: what was spent, and whether the journal is whole. Works while the engine runs."""

import asyncio
import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from stream_dp.accounting.amounts import text
from stream_dp.cli.run import KeyFile, PipelineFile
from stream_dp.cli.wiring import sealed_commits, sealer_for
from stream_dp.errors import FailClosed
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.yaml import load
from stream_dp.runtime.statement import Statement, read_statement


def ledger(
    pipeline: PipelineFile,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    key_file: KeyFile = None,
) -> None:
    """Show what was charged to PIPELINE.yaml's budget and check its journal from end to end."""
    spec = load(pipeline)
    sealer = sealer_for(spec, key_file)
    statement = asyncio.run(read_statement(sealed_commits(spec), sealer, spec.name))
    shown = ledger_json(build(spec), statement)
    if as_json:
        typer.echo(json.dumps(shown))
    else:
        _print(shown)


def ledger_json(built: Built, statement: Statement) -> dict[str, Any]:
    """What the journal's ledger says, derived again and compared.

    Raises:
        FailClosed: it belongs to another pipeline, or does not add up.
    """
    if statement.header is None:
        raise FailClosed(
            f"the journal of {built.spec.name} is empty: it never ran. If it has releases all the same, the journal "
            "was lost, and what was spent with it: restore it"
        )
    if statement.header.fingerprint != built.fingerprint:
        raise FailClosed(
            "the journal was written for another version of this pipeline file; use the one it was run with"
        )
    charged = [charge for _, charge in statement.charges]
    expected = [(e.name, e.epsilon, e.delta) for e in built.ledger.entries]
    if [(c.name, c.epsilon, c.delta) for c in charged] != expected:
        raise FailClosed("the journal's charges differ from what the pipeline file derives")
    spent = sum(c.epsilon for c in charged)
    return {
        "pipeline": built.spec.name,
        "private": statement.header.private,
        "accepted": statement.header.accepted,
        "budget": text(built.ledger.epsilon),
        "spent": text(spent),
        "left": text(built.ledger.epsilon - spent),
        "delta": "0",
        "charges": [
            {"commit": n, "name": c.name, "epsilon": text(c.epsilon), "rule": c.rule}
            for n, c in statement.charges
        ],
        "ticks": statement.ticks,
        "releases": statement.releases,
        "journal": "whole",
    }


def _print(shown: dict[str, Any]) -> None:
    console = Console(soft_wrap=True)
    table = Table(title=f"{shown['pipeline']}: ledger")
    for column in ("commit", "charge", "epsilon", "rule"):
        table.add_column(column)
    for charge in shown["charges"]:
        table.add_row(str(charge["commit"]), charge["name"], charge["epsilon"], charge["rule"])
    console.print(table)
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
        f"Budget {shown['budget']}: spent {shown['spent']}, left {shown['left']}; delta {shown['delta']}. "
        f"{shown['ticks']} ticks, {shown['releases']} releases; the journal is whole and adds up."
    )
