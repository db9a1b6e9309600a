"""`stream-dp audit --rules`: what each composition rule books against the exact worst case; naive books beside it."""

import json
import math
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from stream_dp.audit.counterexamples.naive_books import NaiveBook, books
from stream_dp.audit.exact_checks.table import Finding, findings
from stream_dp.audit.exact_checks.verdict import Amount, Comparison, Verdict
from stream_dp.cli.derivation_tree import wide_console
from stream_dp.core.guarantee import NAMES, Measure, PureDP, parameters
from stream_dp.errors import FailClosed

WIDTH = 100  # where it is no terminal
LEGEND = (
    "RR(e, d): randomized response, IRR its interactive form; every (e, d)-DP mechanism follows from one "
    "of them. A delta is the exact one at the booked epsilon.\n"
    "[bold]equal[/bold]: an adversary gets all that is booked, so nothing less would hold. [bold]within[/bold]: nobody "
    "gets all of it here. [bold]within the cut[/bold]: the product's code, its noise cut off at a radius, which hides "
    "at most what is shown. An instance proves no theorem; one VIOLATED refutes the rule."
)


def audit_rules(*, as_json: bool) -> None:
    """Certify every rule, print the findings and the counterexamples.

    Raises:
        FailClosed: an adversary exceeds what a rule books.
    """
    if not as_json:
        typer.echo(
            "Playing every adaptive adversary of some small instances: half a minute.", err=True
        )
    found, naive = list(findings()), books()
    violated = list(dict.fromkeys(f"{f.rule} ({f.source})" for f in found if f.violated))
    if as_json:
        typer.echo(json.dumps(rules_json(found, naive)))
    else:
        _print(found, naive)
    if violated:
        raise FailClosed(
            f"an adversary exceeds what is booked by {', '.join(violated)}: do not rely on guarantees derived by "
            "this version of the code, and report it"
        )


def rules_json(found: list[Finding], naive: tuple[NaiveBook, ...]) -> dict[str, Any]:
    """The findings and the counterexamples as plain values."""
    return {
        "violated": any(finding.violated for finding in found),
        "rules": [_finding_json(finding) for finding in found],
        "counterexamples": [
            {
                "books": book.title,
                "source": book.source,
                "quantity": book.quantity,
                "promised": float(book.promised),
                "exact": float(book.exact),
                "adversary": book.adversary,
                "ours": book.ours,
            }
            for book in naive
        ],
    }


def _finding_json(finding: Finding) -> dict[str, Any]:
    head = {"rule": finding.rule, "source": finding.source}
    if finding.booked is None or finding.compared is None:
        return {**head, "certified": False, "why": finding.why}
    compared = finding.compared
    return {
        **head,
        "certified": not finding.violated,
        "instance": finding.words,
        "booked": {
            "measure": NAMES[type(finding.booked)],
            **{name: float(value) for name, value in parameters(finding.booked).items()},
        },
        "compared": {
            "quantity": compared.quantity,
            "at": compared.at,
            "booked": float(compared.booked),
            "exact": "infinite" if math.isinf(compared.exact) else float(compared.exact),
            "verdict": compared.verdict,
        },
    }


def _print(found: list[Finding], naive: tuple[NaiveBook, ...]) -> None:
    console = wide_console(WIDTH, highlight=False)
    console.print("[bold]Composition rules against every adaptive adversary, exactly[/bold]\n")
    _print_compared(console, found)
    console.print(f"\n{LEGEND}")
    console.print("\n[bold]Not certified here[/bold]\n")
    for finding in found:
        if finding.compared is None:
            console.print(_pair(escape(_head(finding)), escape(finding.why)))
    console.print("\n[bold]Admission that an adversary exceeds[/bold]")
    for book in naive:
        _print_book(console, book)


def _print_compared(console: Console, found: list[Finding]) -> None:
    """The instances, each rule's under its name."""
    console.print(_row("instance", "booked", "exact worst case", "verdict"), style="underline")
    before = ""
    for finding in found:
        if finding.booked is None or finding.compared is None:
            continue
        if finding.rule != before:
            console.print(f"[bold]{escape(_head(finding))}[/bold]")
        before, verdict = finding.rule, finding.compared.verdict
        said = f"[bold red]{verdict}[/bold red]" if verdict is Verdict.VIOLATED else str(verdict)
        console.print(
            _row(escape(finding.words), _measure(finding.booked), _exact(finding.compared), said)
        )


def _print_book(console: Console, book: NaiveBook) -> None:
    console.print(f"\n[bold]{escape(book.title)}[/bold], {escape(book.source)}")
    console.print(_pair("they promise", f"{book.quantity}: {_number(book.promised)}"))
    exact = f"[bold]{_number(book.exact)}[/bold]: {escape(book.adversary)}"
    console.print(_pair("an adversary gets", exact))
    console.print(_pair("our rules", escape(book.ours)))


def _row(*cells: str) -> Table:
    """Four columns of the same widths, whatever is in them."""
    return _grid((7, 4, 4, 2), cells)


def _pair(*cells: str) -> Table:
    """A name and a text."""
    return _grid((4, 13), cells)


def _grid(ratios: tuple[int, ...], cells: tuple[str, ...]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    table.add_column(width=0)  # its padding is the indent
    for ratio in ratios:
        table.add_column(ratio=ratio)
    table.add_row("", *cells)
    return table


def _head(finding: Finding) -> str:
    return f"{finding.rule}, {finding.source}" if finding.source else finding.rule


def _measure(measure: Measure) -> str:
    """`epsilon 1.098612`; measures other than DP name themselves."""
    amounts = ", ".join(
        f"{name} {_number(value)}"
        for name, value in parameters(measure).items()
        if not (isinstance(measure, PureDP) and name == "delta")
    )
    name = NAMES[type(measure)]
    return amounts if name == "DP" else f"{name}: {amounts}"


def _exact(compared: Comparison) -> str:
    """`epsilon 1.79176`; with what is booked where the booked measure does not say it."""
    bound = "at most " if compared.verdict is Verdict.CUT else ""
    booked = f" of {_number(compared.booked)} at {compared.at}" if compared.at else ""
    return f"{compared.quantity} {bound}{_number(compared.exact)}{booked}"


def _number(amount: Amount) -> str:
    return "without bound" if math.isinf(amount) else f"{float(amount):.5g}"
