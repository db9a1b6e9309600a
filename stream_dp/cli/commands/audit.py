"""`stream-dp audit`: attack the configured mechanisms and bound their epsilon from below. Touches no data.

`--rules` compares what each composition rule books with the exact worst case. `--trace` compares a journal, read with
the operator's key, with the concurrent composition. Only these two options import what they need.
"""

import asyncio
import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer import Argument, Option

from stream_dp import __version__
from stream_dp.accounting.amounts import text
from stream_dp.cli.options import AsJson, KeyFile, with_groups
from stream_dp.cli.printing import wide_console
from stream_dp.cli.progress_line import progress
from stream_dp.core.wording import how_many
from stream_dp.errors import UsageError
from stream_dp.operate.audit.attack import TOGETHER, Attack, Attacked, attack

if TYPE_CHECKING:
    from stream_dp.operate.audit.trace_check import TraceReport


RULES_WIDTH = 100  # where it is no terminal
RULES_LEGEND = (
    "RR(e, d): randomized response, IRR its interactive form; every (e, d)-DP mechanism follows from one "
    "of them. A delta is the exact one at the booked epsilon.\n"
    "[bold]equal[/bold]: an adversary reaches the booked amount, so a smaller amount would be wrong. "
    "[bold]within[/bold]: no adversary reaches the booked amount here. [bold]within the cut[/bold]: the product's own "
    "code, with its noise cut off at a radius; the cut changes the result by at most the amount shown. An instance "
    "proves no theorem; one instance marked VIOLATED refutes the rule."
)
RUNS, TICKS, CONFIDENCE = 3000, 2, 0.99


@dataclass(frozen=True, slots=True)
class Games:
    """How many games are played, and what is concluded from them."""

    runs: Annotated[
        int, Option(help="Number of games for each row of the table; half of them use each stream.")
    ] = RUNS
    ticks: Annotated[
        int,
        Option(
            help="Number of ticks of a game, at most the horizon; more where a window ends later."
        ),
    ] = TICKS
    confidence: Annotated[
        float, Option(help="The confidence with which all bounds hold together.")
    ] = CONFIDENCE
    times: Annotated[
        int | None,
        Option(
            min=1,
            show_default=False,
            help="Factor on each series' epsilon; 1: as in the file. By default the factor that makes it 2, which "
            "a few thousand games can detect.",
        ),
    ] = None


@with_groups
def audit(
    pipeline: Annotated[
        Path | None,
        Argument(metavar="PIPELINE.yaml", show_default=False, help="The pipeline file."),
    ] = None,
    *,
    rules: Annotated[
        bool, Option("--rules", help="Certify the composition rules; no pipeline, no games.")
    ] = False,
    trace: Annotated[
        Path | None,
        Option(
            "--trace",
            metavar="FILE",
            show_default=False,
            help="Play a journal again as the theory's composition: FILE is a pipeline file, or a journal of "
            "PIPELINE.yaml. Needs the key; no games.",
        ),
    ] = None,
    copy: Annotated[
        Path | None,
        Option(
            "--copy",
            metavar="COPY",
            show_default=False,
            help="With --trace PIPELINE.yaml: copy its journal, from disk or from Kafka, into this new file first, and "
            "check the copy.",
        ),
    ] = None,
    games: Games,
    as_json: AsJson = False,
    key_file: KeyFile = None,
) -> None:
    """Attack PIPELINE.yaml's mechanisms, alone and together: do they reveal one event too well?

    With --rules: every composition rule on small instances, exactly, against all adaptive adversaries (under a minute).
    With --trace: what an engine did, from its journal, against the concurrent composition, byte for byte.
    """
    if trace is not None:
        if rules:
            raise UsageError("--trace checks a journal and --rules the rules: one at a time")

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
        audit_rules(as_json=as_json)
    else:
        _attack(pipeline, games, as_json)


def _attack(pipeline: Path, games: Games, as_json: bool) -> None:
    with progress(f"Reading {pipeline}") as line:
        result = attack(pipeline, **asdict(games), progress=line)
    statement = _statement(result, f"{datetime.now(UTC):%Y-%m-%d}")
    if as_json:
        typer.echo(json.dumps({**result.json(), **asdict(games), "statement": statement}))
    else:
        _print(result, games.runs, games.confidence)
        typer.echo(statement)
    result.require_unrefuted()


def _print(attacked: Attack, runs: int, confidence: float) -> None:
    console = wide_console()
    typer.echo(
        f"{how_many(runs, 'game')} per row can see an epsilon from {attacked.seen:g} on, at confidence {confidence}. "
        f"They detect no smaller epsilon, not even of the least private mechanism. {_louder(attacked)}"
    )
    table = Table(title=f"{attacked.pipeline}: audit by {how_many(runs, 'game')} per row")
    for column in ("series", "mechanism", "claimed epsilon", "played at", "epsilon is at least"):
        table.add_column(column)
    table.add_column("strongest possible would show")
    table.add_column("best event, how often under the two streams")
    for series in attacked.series:
        table.add_row(series.name, series.mechanism, *_cells(series))
    table.add_section()
    table.add_row(TOGETHER, f"{attacked.filter} filter", *_cells(attacked.claims[-1]))
    console.print(table)
    typer.echo(
        f"A game uses one of two streams that differ in {attacked.unit} ({attacked.relation}), and the attack guesses "
        "from the releases which one it was. The last row attacks all series together: each series has its own worst "
        f"pair of streams. All lower bounds hold together with confidence {confidence}. A lower bound below the played "
        "epsilon proves nothing: the proof is the derivation (stream-dp plan). A lower bound above it refutes the "
        "claim.\n"
        f"{_deltas(attacked)}"
        "Strongest possible: the bound from as many games against randomized response, the least private mechanism of "
        "the same claim. It is computed from expected counts, not played, so chance may give a slightly larger bound. "
        "If the strongest possible bound is near 0, there were too few games for a result."
    )


def _louder(attacked: Attack) -> str:
    """Return at which epsilons the series are played."""
    if all(claim.times == 1 for claim in attacked.claims):
        return "The games use the epsilons of the file."
    return (
        "So the games multiply all epsilons of a series (column: played at). Code and derivation stay the same, and "
        "games see more because there is less noise. --times 1 plays the epsilons of the file; --runs plays more games."
    )


def _deltas(attacked: Attack) -> str:
    """Return what a claim at a delta means; empty if no claim has a delta."""
    if not any(claim.finding.delta for claim in attacked.claims):
        return ""
    return (
        "If a claim has a delta, the audit subtracts delta from an event's probability before it computes the bound. "
        "A claim in zCDP, RDP or GDP holds at every delta. The audit attacks such a claim at delta "
        f"{text(attacked.chosen_delta)}, because so few games detect no smaller delta.\n"
    )


def _statement(attacked: Attack, day: str) -> str:
    """Return one line to quote: what was attacked on this day, with which result, and what games cannot see."""
    whole, ticks = attacked.together, how_many(attacked.ticks, "tick")
    at = f" at delta {text(whole.delta)}" if whole.delta else ""
    result = (
        f"REFUTED the claimed epsilon of {', '.join(attacked.refuted)}"
        if attacked.refuted
        else f"refuted no claim (all together: epsilon {text(whole.claimed)}{at})"
    )
    louder = max((series.times for series in attacked.series), default=1)
    multiplied = f" (at up to {louder} times its epsilon)" if louder > 1 else ""
    most = max((series.ticks for series in attacked.series), default=0)
    ticks += f" (up to {most:,} where a window ends later)" if most > attacked.ticks else ""
    return (
        f"To quote: on {day} stream_dp {__version__} played {how_many(attacked.runs, 'game')} of {ticks} against "
        f"each mechanism of {attacked.pipeline}{multiplied} and against all together, for {attacked.unit} "
        f"({attacked.relation}), and {result} at confidence {attacked.confidence}. The games can show faults in "
        f"the code of the mechanisms that cost an epsilon of {attacked.seen:g} or more as played, within {ticks}. The "
        "games cannot prove a claim. They do not test how records are read and capped, the journal, the key, the "
        "brokers, times of publication, or people with access."
    )


def _cells(attacked: Attacked) -> tuple[str, ...]:
    finding = attacked.finding
    lower = f"{finding.lower:.4f}"
    at = f" at delta {text(finding.delta)}" if finding.delta else ""
    return (
        f"{text(attacked.claimed)}{at}",
        f"{text(finding.claimed)}, {attacked.times} times" if attacked.times > 1 else "",
        f"[bold red]{lower}[/bold red]" if finding.violated else lower,
        f"{finding.strongest:.4f}",
        f"{finding.event}: {finding.rates[0]:.1%}, {finding.rates[1]:.1%}"
        if finding.lower
        else f"it tells nothing before its tick {attacked.first - 1}: --ticks {attacked.first}"
        if attacked.first > attacked.ticks
        else "none shows a difference at this confidence",
    )


def audit_trace(
    pipeline: Path | None, trace: Path, key_file: Path | None, copy: Path | None, *, as_json: bool
) -> None:
    """Copy the journal to `copy` if given, compare, and print how much was compared; FailClosed if it differs."""
    from stream_dp.operate.audit.trace_check import check_trace  # all that reads journals

    with progress(f"Reading {trace}") as line:
        report = asyncio.run(check_trace(pipeline, trace, key_file, copy, line))
    if as_json:
        typer.echo(json.dumps(report.json()))
    else:
        _print_trace(report)


def _print_trace(report: "TraceReport") -> None:
    counts, made = report.counts, ""
    played = ", ".join(
        (how_many(counts.creations, "creation"), how_many(counts.asks, "ask"), how_many(counts.halts, "halt"))
    )  # fmt: skip
    compared = f"{how_many(report.releases, 'release')} and {how_many(report.answers, 'answer')}"
    if report.made:
        made = f"  {report.made:,} of these releases were computed only from other releases, without key or seed\n"
    typer.echo(
        f"{report.pipeline}: the trace of its journal, played through the concurrent composition ([HSV] Def 4.1) with "
        "the recorded seeds:\n"
        f"  {played} in {how_many(report.ticks, 'tick')}\n"
        f"  {compared} to queries compared: equal, byte for byte\n"
        f"{made}"
        f"  {how_many(report.snapshots, 'snapshot')} compared: equal"
    )
    if report.ticks:
        users = report.users
        unit, one, two = (
            ("one event", "one event more", "two")
            if users is None
            else (f"{users}", "all events of one user more", "one beyond that")
        )
        apart = (
            f"it refuses it with {two}, in two ticks"
            if report.apart
            else f"one tick is too few to show that it refuses {two}"
        )
        typer.echo(
            f"The verifier of the claimed relation ({report.relation}, {unit}, all series at once) accepts the trace "
            f"beside itself with {one}; {apart}."
        )
    typer.echo(
        "Rows and seeds are NOT PRIVATE and were read with the operator's key. This output shows no row and no seed; "
        "its numbers depend only on ticks and series."
    )


def audit_rules(*, as_json: bool) -> None:
    """Certify every rule and print the findings; raise FailClosed if an adversary exceeds what a rule books."""
    from stream_dp.operate.audit.rules_table import (  # all that certifies rules
        require_certified,
        rules_json,
    )

    with progress("Making small instances") as line:
        if not as_json:
            line.say("Playing every adaptive adversary of some small instances: under a minute.")
        table = rules_json(line)
    if as_json:
        typer.echo(json.dumps(table))
    else:
        _print_rules(table)
    require_certified(table)


def _print_rules(table: dict[str, Any]) -> None:
    console = wide_console(RULES_WIDTH, highlight=False)
    console.print("[bold]Composition rules against every adaptive adversary, exactly[/bold]\n")
    _print_compared(console, table["rules"])
    console.print(f"\n{RULES_LEGEND}")
    console.print("\n[bold]Not certified here[/bold]\n")
    for rule in table["rules"]:
        if "why" in rule:
            console.print(_pair(escape(_head(rule)), escape(rule["why"])))
    console.print(
        "\n[bold]Randomized response is universal[/bold], [HSV] Lemma 4.7, 5.6, [Lyu] Thm 3: constructed, law by law\n"
    )
    for construction in table["constructions"]:
        console.print(_pair(escape(construction["words"]), _constructed(construction)))
    console.print("\n[bold]Admission that an adversary exceeds[/bold]")
    for book in table["counterexamples"]:
        _print_book(console, book)


def _print_compared(console: Console, rules: list[dict[str, Any]]) -> None:
    console.print(_row("instance", "booked", "exact worst case", "verdict"), style="underline")
    before = ""
    for rule in rules:
        if "compared" not in rule:
            continue
        if rule["rule"] != before:
            console.print(f"[bold]{escape(_head(rule))}[/bold]")
        before, verdict = rule["rule"], rule["compared"]["verdict"]
        shown = verdict if rule["certified"] else f"[bold red]{verdict}[/bold red]"
        cells = (escape(rule["instance"]), _measure(rule["booked"]), _exact(rule["compared"]))
        console.print(_row(*cells, shown))


def _constructed(construction: dict[str, Any]) -> str:
    if not (construction["decomposed"] and construction["equal"]):
        return "[bold red]NOT EQUAL[/bold red]"
    return f"equal; IRR is asked {construction['asked']} time(s) while pairs are equal"


def _print_book(console: Console, book: dict[str, Any]) -> None:
    console.print(f"\n[bold]{escape(book['books'])}[/bold], {escape(book['source'])}")
    console.print(_pair("they promise", f"{book['quantity']}: {_number(book['promised'])}"))
    exact = f"[bold]{_number(book['exact'])}[/bold]: {escape(book['adversary'])}"
    console.print(_pair("an adversary gets", exact))
    console.print(_pair("our rules", escape(book["ours"])))


def _row(*cells: str) -> Table:
    return _grid((7, 4, 4, 2), cells)


def _pair(*cells: str) -> Table:
    return _grid((4, 13), cells)


def _grid(ratios: tuple[int, ...], cells: tuple[str, ...]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    table.add_column(width=0)  # its padding is the indent
    for ratio in ratios:
        table.add_column(ratio=ratio)
    table.add_row("", *cells)
    return table


def _head(rule: dict[str, Any]) -> str:
    return f"{rule['rule']}, {rule['source']}" if rule["source"] else rule["rule"]


def _measure(booked: dict[str, Any]) -> str:
    """Return `epsilon 1.0986`, with delta if there is one; name measures other than DP."""
    name, amounts = booked["measure"], {k: v for k, v in booked.items() if k != "measure"}
    if name == "DP" and not amounts["delta"]:
        del amounts["delta"]
    shown = ", ".join(f"{key} {_number(value)}" for key, value in amounts.items())
    return shown if name == "DP" else f"{name}: {shown}"


def _exact(compared: dict[str, Any]) -> str:
    """Return `epsilon 1.7918`, and the booked amount if the booked measure does not show it."""
    bound = "at most " if compared["verdict"] == "within the cut" else ""
    booked = f" of {_number(compared['booked'])} at {compared['at']}" if compared["at"] else ""
    return f"{compared['quantity']} {bound}{_number(compared['exact'])}{booked}"


def _number(amount: float | str) -> str:
    return "without bound" if amount in ("infinite", float("inf")) else f"{amount:.5g}"
