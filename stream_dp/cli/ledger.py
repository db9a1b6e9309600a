"""`stream-dp ledger`: what was spent, and whether the journal is whole. Works while the engine runs."""

import asyncio
import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from stream_dp.accounting.accounts import MAIN
from stream_dp.accounting.amounts import cost_units, text
from stream_dp.accounting.ledger import PURE
from stream_dp.accounting.situations import Alive
from stream_dp.cli.budget import budget_json
from stream_dp.cli.run import KeyFile, PipelineFile
from stream_dp.cli.wiring import sealed_commits, sealer_for
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import differential_privacy
from stream_dp.errors import FailClosed
from stream_dp.pipeline.budget import target
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.derivations import whole
from stream_dp.pipeline.open_router import OpenRouter
from stream_dp.pipeline.planner import derivation_json
from stream_dp.pipeline.questions import PipelineQuestions
from stream_dp.pipeline.yaml import load
from stream_dp.runtime.books import Books, charge_of
from stream_dp.runtime.commit import Commit, Created, Halted
from stream_dp.runtime.roster import Roster
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
    first = [charge for commit, charge in statement.charges if commit == 0]
    if first != [charge_of(entry) for entry in built.ledger.entries]:
        raise FailClosed("the journal's charges differ from what the pipeline file derives")
    books, total = derived_again(built, statement)
    return {
        "pipeline": built.spec.name,
        "private": statement.header.private,
        "accepted": statement.header.accepted,
        **budget_json(built.spec, books.accounts),
        "derivation": derivation_json(total),
        "charges": _charges(statement),
        "ticks": statement.ticks,
        "releases": statement.releases,
        "journal": "whole",
    }


def derived_again(built: Built, statement: Statement) -> tuple[Books, Derivation]:
    """The books after everything the journal records, each charge derived again from its definition, and the total
    derived on its own: from the mechanisms and the ticks at which each was alive.

    Raises:
        FailClosed: a charge is not what it should be, or would be refused; or the two totals differ.
    """
    plan = built.plan(0)
    questions = PipelineQuestions(built.spec, OpenRouter(built.spec, plan.origin))
    books = Books(Roster(plan.series), built.accounts(), questions)
    for commit in statement.changing:
        books.replay(commit)
    main = books.accounts.main
    parts = [*built.frozen, *_asked(questions, statement)]
    total = whole(built.spec.name, main.filter, parts, target(built.spec.privacy))
    if main.filter.name == PURE:
        alive = differential_privacy(total.premises[0].guarantee.measure).epsilon
        if cost_units(alive) > main.peak.amount:
            raise FailClosed(
                f"the journal's ledger says {text(main.peak.amount)} at most, but the mechanisms alive at one tick add "
                f"up to {text(alive)}; stop using this journal and report this"
            )
    return books, total


def _asked(questions: PipelineQuestions, statement: Statement) -> list[tuple[Derivation, Alive]]:
    """The questions that the main ledger paid for, with the ticks each has seen or will."""
    spans = _spans(statement)
    main = [
        (created, charge)
        for commit in statement.changing
        for created, charge in zip(_created(commit), commit.charges, strict=True)
        if charge.analyst == MAIN
    ]
    found = []
    for created, _ in main:
        start, end = spans[created.number]
        if end is None or end > start:
            question = questions.ask(created.definition, created.start)
            found.append((question.derivation, Alive(start, None if end is None else end - 1)))
    return found


def _created(commit: Commit) -> list[Created]:
    return [change for change in commit.changes if isinstance(change, Created)]


def _spans(statement: Statement) -> dict[int, tuple[int, int | None]]:
    """From the number of a question to its first tick, and the first one it does not see (None: it lives)."""
    changes = [change for commit in statement.changing for change in commit.changes]
    ends = {change.number: change.end for change in changes if isinstance(change, Halted)}
    return {c.number: (c.start, ends.get(c.number)) for c in changes if isinstance(c, Created)}


def _charges(statement: Statement) -> list[dict[str, Any]]:
    """Every charge, with the ticks of what it pays for; `end` is None for what lives."""
    later = list(_spans(statement).values())
    spans = [(0, None)] * (len(statement.charges) - len(later)) + later
    return [
        {
            "commit": n, "name": c.name, "analyst": c.analyst, "epsilon": text(c.epsilon), "delta": text(c.delta),
            "measure": c.measure, "rule": c.rule, "start": start, "end": end,
        }
        for (n, c), (start, end) in zip(statement.charges, spans, strict=True)
    ]  # fmt: skip


def _print(shown: dict[str, Any]) -> None:
    console = Console(soft_wrap=True)
    table = Table(title=f"{shown['pipeline']}: ledger")
    for column in ("commit", "charge", "of", "epsilon", "ticks", "rule"):
        table.add_column(column)
    for charge in shown["charges"]:
        last = charge["end"]
        ticks = f"from {charge['start']}" if last is None else f"{charge['start']} to {last - 1}"
        table.add_row(
            str(charge["commit"]), charge["name"], charge["analyst"], charge["epsilon"], ticks, charge["rule"]
        )  # fmt: skip
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
        f"Budget {shown['budget']} ({shown['filter']} filter): spent {shown['spent']}, left {shown['left']}; "
        f"delta {shown['delta']}. Odometer: {shown['odometer']['bound']}. "
        f"{shown['ticks']} ticks, {shown['releases']} releases; the journal is whole and adds up."
    )
