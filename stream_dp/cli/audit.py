"""`stream-dp audit`: attack the configured mechanisms and bound their epsilon from below. Touches no data."""

import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from stream_dp.accounting.amounts import number, text
from stream_dp.audit.lower_bound import Finding, audit_mechanism
from stream_dp.cli.plan import PIPED_WIDTH
from stream_dp.cli.run import PipelineFile
from stream_dp.core.mechanism import Noise
from stream_dp.errors import FailClosed, UsageError
from stream_dp.noise import NoiseStream, fresh_seed
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.yaml import load

RUNS, TICKS, CONFIDENCE = 6000, 2, 0.99


def audit(
    pipeline: PipelineFile,
    *,
    runs: Annotated[int, typer.Option(help="Games per series, half with each stream.")] = RUNS,
    ticks: Annotated[int, typer.Option(help="Ticks per game, the horizon at most.")] = TICKS,
    confidence: Annotated[
        float, typer.Option(help="How surely all bounds hold together.")
    ] = CONFIDENCE,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Attack PIPELINE.yaml's mechanisms: can one event be told from its absence better than claimed?"""
    if not 0 < confidence < 1:
        raise UsageError(
            f"--confidence: must lie between 0 and 1, got {confidence:g}; try {CONFIDENCE}"
        )
    built = build(load(pipeline))
    ticks = min(ticks, built.spec.clock.horizon or ticks)
    findings = {
        chosen.spec.name: audit_mechanism(
            chosen.mechanism,
            fresh_noise,
            runs=runs,
            ticks=ticks,
            failure=(1 - confidence) / len(built.chosen),
        )
        for chosen in built.chosen
    }
    if as_json:
        settings = {"runs": runs, "ticks": ticks, "confidence": confidence}
        typer.echo(json.dumps({**audit_json(built, findings), **settings}))
    else:
        _print(built, findings, runs, confidence)
    broken = [name for name, finding in findings.items() if finding.violated]
    if broken:
        raise FailClosed(
            f"the audit refutes the claimed epsilon of {', '.join(broken)}: do not run this pipeline with this "
            "version of the code, and report it"
        )


def fresh_noise() -> Noise:
    """The product's noise under a seed of its own, as for one committed step."""
    return NoiseStream(fresh_seed(), 0)


def audit_json(built: Built, findings: dict[str, Finding]) -> dict[str, Any]:
    """The findings as plain values."""
    return {
        "pipeline": built.spec.name,
        "violated": any(finding.violated for finding in findings.values()),
        "series": [
            {
                "name": chosen.spec.name,
                "mechanism": type(chosen.mechanism).__name__,
                "claimed_epsilon": number(findings[chosen.spec.name].claimed),
                "epsilon_lower_bound": findings[chosen.spec.name].lower,
                "event": findings[chosen.spec.name].event,
                "rates": list(findings[chosen.spec.name].rates),
                "violated": findings[chosen.spec.name].violated,
            }
            for chosen in built.chosen
        ],
    }


def _print(built: Built, findings: dict[str, Finding], runs: int, confidence: float) -> None:
    console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)
    table = Table(title=f"{built.spec.name}: audit by {runs:,} games per series")
    for column in ("series", "mechanism", "claimed epsilon", "epsilon is at least"):
        table.add_column(column)
    table.add_column("best event, how often under the two streams")
    for chosen in built.chosen:
        found = findings[chosen.spec.name]
        table.add_row(
            chosen.spec.name,
            type(chosen.mechanism).__name__,
            text(found.claimed),
            f"[bold red]{found.lower:.4f}[/bold red]" if found.violated else f"{found.lower:.4f}",
            f"{found.event}: {found.rates[0]:.1%}, {found.rates[1]:.1%}"
            if found.lower
            else "none shows a difference at this confidence",
        )
    console.print(table)
    typer.echo(
        f"Each game: two streams that differ in one event ({built.spec.relation}), told apart by the releases. All "
        f"lower bounds hold together with confidence {confidence:g}. A bound below the claim proves nothing: "
        "the derivation (stream-dp plan) does. One above it refutes the claim."
    )
