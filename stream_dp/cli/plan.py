"""`stream-dp plan`: the guarantee as a tree, and the errors to expect. Touches no data."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from stream_dp.accounting.amounts import text
from stream_dp.app.budget_view import budget_json, state
from stream_dp.cli.derivation_tree import derivation_tree, wide_console
from stream_dp.cli.options import PipelineFile
from stream_dp.core.guarantee import differential_privacy
from stream_dp.errors import WorldError
from stream_dp.pipeline.builder import Built, Chosen, build
from stream_dp.pipeline.report import derivation_json, plan_json, predicted_errors
from stream_dp.pipeline.svg import draw
from stream_dp.pipeline.yaml import load


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
    built = build(load(pipeline))
    if picture is not None:
        _draw(built, picture)
    if as_json:
        typer.echo(json.dumps(plan_json(built)))
        return
    console = wide_console()
    console.print(_guarantee(built), highlight=False)
    console.print(derivation_tree(derivation_json(built.promise)))
    console.print(_errors(built))
    for chosen in built.chosen:
        console.print(f"{chosen.spec.name}: {chosen.choice.why}", highlight=False)
    for warning in warnings(built):
        console.print(f"[yellow]Note[/yellow]: {warning}")


def _draw(built: Built, path: Path) -> None:
    try:
        path.write_text(draw(derivation_json(built.promise)), encoding="utf-8")
    except OSError as error:
        raise WorldError(f"--picture: {path} cannot be written: {error.strerror}") from None


def warnings(built: Built) -> list[str]:
    """What a reader of the guarantee must know beside it."""
    notes = [
        "this pipeline only: other pipelines on the same source have ledgers of their own and add up",
        "the guarantee holds against computationally bounded adversaries (noise comes from ChaCha20)",
    ]
    people = [f for f in built.spec.fields if any(p in f.lower() for p in _PEOPLE)]
    if people:
        notes.append(
            f"the unit is one event, but the schema has {', '.join(people)}: a person with many events is "
            "protected for each of them, not for all together"
        )
    return notes


_PEOPLE = ("user", "person", "customer", "patient", "member", "email", "account", "client")


def _guarantee(built: Built) -> str:
    measure, privacy = differential_privacy(built.derivation.guarantee.measure), built.spec.privacy
    shown, ledger = budget_json(built.spec, built.subledgers()), built.ledger
    return (
        f"[bold]{built.spec.name}[/bold] is ({text(measure.epsilon)}, {text(measure.delta)})-differentially "
        f"private: unit one {privacy.unit}, neighbours {privacy.neighbors}, over all releases for ever.\n"
        f"With all that is asked while it runs: ({shown['budget']}, {shown['delta']}), by the "
        f"{ledger.filter.name} filter.\nBudget {shown['budget']}: {state(shown)}.\n"
    )


def _errors(built: Built) -> Table:
    confidence = float(built.spec.confidence)
    table = Table(title=f"Predicted error: half-width at confidence {confidence:g}")
    table.add_column("tick", justify="right")
    columns = [dict(predicted_errors(built.spec, chosen)) for chosen in built.chosen]
    for chosen in built.chosen:
        table.add_column(f"{chosen.spec.name}\n{_kind(chosen)}", justify="right")
    for tick in columns[0]:
        table.add_row(str(tick), *(f"{errors[tick]:,}" for errors in columns))
    return table


def _kind(chosen: Chosen) -> str:
    return f"{type(chosen.mechanism).__name__}, eps {text(chosen.spec.epsilon)}"
