"""`stream-dp audit`: attack the configured mechanisms and bound their epsilon from below. Touches no data.

`--rules` is in `rules`.
"""

import json
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from stream_dp.accounting.amounts import UNITS, number, text
from stream_dp.accounting.filters.pure import PURE
from stream_dp.audit.ledger_filter import LedgerFilter
from stream_dp.audit.lower_bound import Finding, audit_mechanism, audit_together
from stream_dp.audit.relations.compositions import filtered
from stream_dp.cli.audit_rules import audit_rules
from stream_dp.cli.derivation_tree import wide_console
from stream_dp.core.mechanism import Noise
from stream_dp.errors import FailClosed, UsageError
from stream_dp.noise import NoiseStream, fresh_seed
from stream_dp.pipeline.budget import opened
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.yaml import load

RUNS, TICKS, CONFIDENCE = 3000, 2, 0.99
TOGETHER = "all series together"


def audit(
    pipeline: Annotated[
        Path | None,
        typer.Argument(metavar="PIPELINE.yaml", show_default=False, help="The pipeline file."),
    ] = None,
    *,
    rules: Annotated[
        bool, typer.Option("--rules", help="Certify the composition rules; no pipeline, no games.")
    ] = False,
    runs: Annotated[int, typer.Option(help="Games per row, half with each stream.")] = RUNS,
    ticks: Annotated[int, typer.Option(help="Ticks per game, the horizon at most.")] = TICKS,
    confidence: Annotated[
        float, typer.Option(help="How surely all bounds hold together.")
    ] = CONFIDENCE,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Attack PIPELINE.yaml's mechanisms, each and all together: can one event be told from its absence too well?

    With --rules: every composition rule on small instances, exactly, against all adaptive adversaries (half a minute).
    """
    if rules == (pipeline is not None):
        raise UsageError(
            "name a PIPELINE.yaml to attack its mechanisms, or --rules to certify the composition rules"
            + (", not both" if rules else "")
        )
    if not 0 < confidence < 1:
        raise UsageError(
            f"--confidence: must lie between 0 and 1, got {confidence:g}; try {CONFIDENCE}"
        )
    if pipeline is None:
        audit_rules(as_json=as_json)
    else:
        _attack(pipeline, runs, ticks, confidence, as_json)


def _attack(pipeline: Path, runs: int, ticks: int, confidence: float, as_json: bool) -> None:
    """Play the games and print what they show.

    Raises:
        FailClosed: a claim is refuted.
    """
    built = build(load(pipeline))
    ticks = min(ticks, built.spec.clock.horizon or ticks)
    failure = (1 - confidence) / (len(built.chosen) + 1)
    mechanisms = {chosen.spec.name: chosen.mechanism for chosen in built.chosen}
    findings = {
        name: audit_mechanism(mechanism, fresh_noise, runs=runs, ticks=ticks, failure=failure)
        for name, mechanism in mechanisms.items()
    }
    together = audit_together(
        mechanisms,
        filtered(game_filter(built)),
        built.derivation.guarantee.measure,
        fresh_noise,
        runs=runs,
        ticks=ticks,
        failure=failure,
    )
    if as_json:
        settings = {"runs": runs, "ticks": ticks, "confidence": confidence}
        typer.echo(json.dumps({**audit_json(built, findings, together), **settings}))
    else:
        _print(built, findings, together, runs, confidence)
    broken = [name for name, f in {**findings, TOGETHER: together}.items() if f.violated]
    if broken:
        raise FailClosed(
            f"the audit refutes the claimed epsilon of {', '.join(broken)}: do not run this pipeline with this "
            "version of the code, and report it"
        )


def game_filter(built: Built) -> LedgerFilter:
    """The pipeline's filter, the analysts' ledgers paid, before the first series ([HSV] Def 12.2).

    Under the pure filter the product charges the series as one block, rounded up once. Here each is created, charged
    and rounded up by itself, so the filter grants a unit of 10^-12 for each but one.
    """
    privacy = built.spec.privacy
    if built.ledger.filter.name == PURE:
        room = Fraction(len(built.chosen) - 1, UNITS)
        privacy = privacy.model_copy(update={"epsilon": privacy.epsilon + room})
    return LedgerFilter(opened(privacy).main)


def fresh_noise() -> Noise:
    """The product's noise under a seed of its own, as for one committed step."""
    return NoiseStream(fresh_seed(), 0)


def audit_json(built: Built, findings: dict[str, Finding], together: Finding) -> dict[str, Any]:
    """The findings as plain values."""
    return {
        "pipeline": built.spec.name,
        "violated": any(finding.violated for finding in (*findings.values(), together)),
        "series": [
            {
                "name": chosen.spec.name,
                "mechanism": type(chosen.mechanism).__name__,
                **_finding_json(findings[chosen.spec.name]),
            }
            for chosen in built.chosen
        ],
        "together": {"filter": built.ledger.filter.name, **_finding_json(together)},
    }


def _finding_json(found: Finding) -> dict[str, Any]:
    return {
        "claimed_epsilon": number(found.claimed),
        "epsilon_lower_bound": found.lower,
        "strongest": found.strongest,
        "event": found.event,
        "rates": list(found.rates),
        "violated": found.violated,
    }


def _print(
    built: Built, findings: dict[str, Finding], together: Finding, runs: int, confidence: float
) -> None:
    console = wide_console()
    table = Table(title=f"{built.spec.name}: audit by {runs:,} games per row")
    for column in ("series", "mechanism", "claimed epsilon", "epsilon is at least"):
        table.add_column(column)
    table.add_column("strongest possible would show")
    table.add_column("best event, how often under the two streams")
    for chosen in built.chosen:
        kind, found = type(chosen.mechanism).__name__, findings[chosen.spec.name]
        table.add_row(chosen.spec.name, kind, *_cells(found))
    table.add_section()
    table.add_row(TOGETHER, f"{built.ledger.filter.name} filter", *_cells(together))
    console.print(table)
    typer.echo(
        f"Each game: two streams that differ in one event ({built.spec.relation}), told apart by the releases; "
        "together, one such pair for each series, the worst for it. All "
        f"lower bounds hold together with confidence {confidence:g}. A bound below the claim proves nothing: "
        "the derivation (stream-dp plan) does. One above it refutes the claim.\n"
        "Strongest possible: as many games against randomized response, the least private mechanism of the same claim "
        "(computed from expected counts, not played; luck may show a little more). Where that is near 0 too, there "
        "were too few games to tell."
    )


def _cells(found: Finding) -> tuple[str, str, str, str]:
    """Claim, bound, yardstick and event."""
    lower = f"{found.lower:.4f}"
    return (
        text(found.claimed),
        f"[bold red]{lower}[/bold red]" if found.violated else lower,
        f"{found.strongest:.4f}",
        f"{found.event}: {found.rates[0]:.1%}, {found.rates[1]:.1%}"
        if found.lower
        else "none shows a difference at this confidence",
    )
