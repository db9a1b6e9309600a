"""`stream-dp audit`: attack the configured mechanisms and bound their epsilon from below. Touches no data.

`--rules` is in `audit_rules`; `--trace`, which reads a journal, in `audit_trace`.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from stream_dp.accounting.amounts import text
from stream_dp.cli.options import KeyFile, with_groups
from stream_dp.cli.printing import wide_console
from stream_dp.cli.progress_line import progress
from stream_dp.core.how_many import how_many
from stream_dp.errors import UsageError
from stream_dp.operate.audit.attack import TOGETHER, Attack, attack

RUNS, TICKS, CONFIDENCE = 3000, 2, 0.99


@dataclass(frozen=True, slots=True)
class Games:
    """How many games are played, and what is concluded from them."""

    runs: Annotated[int, typer.Option(help="Games per row, half with each stream.")] = RUNS
    ticks: Annotated[int, typer.Option(help="Ticks per game, the horizon at most.")] = TICKS
    confidence: Annotated[float, typer.Option(help="How surely all bounds hold together.")] = (
        CONFIDENCE
    )


@with_groups
def audit(
    pipeline: Annotated[
        Path | None,
        typer.Argument(metavar="PIPELINE.yaml", show_default=False, help="The pipeline file."),
    ] = None,
    *,
    rules: Annotated[
        bool, typer.Option("--rules", help="Certify the composition rules; no pipeline, no games.")
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            show_default=False,
            help="Play a journal again as the theory's composition: FILE is a pipeline file, or a journal of "
            "PIPELINE.yaml. Needs the key; no games.",
        ),
    ] = None,
    copy: Annotated[
        Path | None,
        typer.Option(
            "--copy",
            metavar="COPY",
            show_default=False,
            help="With --trace PIPELINE.yaml: copy its journal, from disk or from Kafka, into this new file first, and "
            "check the copy.",
        ),
    ] = None,
    games: Games,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    key_file: KeyFile = None,
) -> None:
    """Attack PIPELINE.yaml's mechanisms, each and all together: can one event be told from its absence too well?

    With --rules: every composition rule on small instances, exactly, against all adaptive adversaries (half a minute).
    With --trace: what an engine did, from its journal, against the concurrent composition, byte for byte.
    """
    if trace is not None:
        if rules:
            raise UsageError("--trace checks a journal and --rules the rules: one at a time")
        from stream_dp.cli.commands.audit_trace import audit_trace  # all that reads journals

        audit_trace(pipeline, trace, key_file, copy, as_json=as_json)
        return
    if copy is not None:
        raise UsageError(
            "--copy: is for --trace PIPELINE.yaml, whose journal it copies; without --trace no journal is read"
        )
    if rules == (pipeline is not None):
        raise UsageError(
            "name a PIPELINE.yaml to attack its mechanisms, or --rules to certify the composition rules"
            + (", not both" if rules else "")
        )
    if not 0 < games.confidence < 1:
        raise UsageError(
            f"--confidence: must lie between 0 and 1, got {games.confidence:g}; try {CONFIDENCE}"
        )
    if pipeline is None:
        from stream_dp.cli.commands.audit_rules import (
            audit_rules,
        )  # all that certifies rules, for --rules only

        audit_rules(as_json=as_json)
    else:
        _attack(pipeline, games, as_json)


def _attack(pipeline: Path, games: Games, as_json: bool) -> None:
    """Play the games and print what they show.

    Raises:
        FailClosed: a claim is refuted.
    """
    with progress(f"Reading {pipeline}") as line:
        found = attack(pipeline, **asdict(games), progress=line)
    if as_json:
        typer.echo(json.dumps({**found.json(), **asdict(games)}))
    else:
        _print(found, games.runs, games.confidence)
    found.require_unrefuted()


def _print(attacked: Attack, runs: int, confidence: float) -> None:
    console = wide_console()
    table = Table(title=f"{attacked.pipeline}: audit by {how_many(runs, 'game')} per row")
    for column in ("series", "mechanism", "claimed epsilon", "epsilon is at least"):
        table.add_column(column)
    table.add_column("strongest possible would show")
    table.add_column("best event, how often under the two streams")
    for each in attacked.series:
        table.add_row(each.name, each.mechanism, *_cells(each.finding))
    table.add_section()
    table.add_row(TOGETHER, f"{attacked.filter} filter", *_cells(attacked.together))
    console.print(table)
    typer.echo(
        f"Each game: two streams that differ in {attacked.unit} ({attacked.relation}), told apart by the releases; "
        "together, one such pair for each series, the worst for it. All "
        f"lower bounds hold together with confidence {confidence:g}. A bound below the claim proves nothing: "
        "the derivation (stream-dp plan) does. One above it refutes the claim.\n"
        f"{_deltas(attacked)}"
        "Strongest possible: as many games against randomized response, the least private mechanism of the same claim "
        "(computed from expected counts, not played; luck may show a little more). Where that is near 0 too, there "
        "were too few games to tell."
    )


def _deltas(attacked: Attack) -> str:
    """What a claim at a delta means; nothing where none has one."""
    if not any(each.finding.delta for each in attacked.claims):
        return ""
    return (
        "At a delta: so much is taken off an event's probability before the bound is computed. A claim in zCDP, RDP or "
        f"GDP holds at every delta and is attacked at {text(attacked.chosen_delta)}: so few games see no smaller one.\n"
    )


def _cells(found: Any) -> tuple[str, str, str, str]:
    """Claim, bound, yardstick and event."""
    lower = f"{found.lower:.4f}"
    at = f" at delta {text(found.delta)}" if found.delta else ""
    return (
        f"{text(found.claimed)}{at}",
        f"[bold red]{lower}[/bold red]" if found.violated else lower,
        f"{found.strongest:.4f}",
        f"{found.event}: {found.rates[0]:.1%}, {found.rates[1]:.1%}"
        if found.lower
        else "none shows a difference at this confidence",
    )
