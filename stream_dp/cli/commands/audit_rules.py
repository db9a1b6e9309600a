"""`stream-dp audit --rules`: what each composition rule books against the exact worst case; naive books beside it."""

import json
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from stream_dp.cli.printing import wide_console
from stream_dp.cli.progress_line import progress
from stream_dp.operate.audit.rules_table import require_certified, rules_json

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
    with progress("Making small instances") as line:
        if not as_json:
            line.say("Playing every adaptive adversary of some small instances: half a minute.")
        table = rules_json(line)
    if as_json:
        typer.echo(json.dumps(table))
    else:
        _print(table)
    require_certified(table)


def _print(table: dict[str, Any]) -> None:
    console = wide_console(WIDTH, highlight=False)
    console.print("[bold]Composition rules against every adaptive adversary, exactly[/bold]\n")
    _print_compared(console, table["rules"])
    console.print(f"\n{LEGEND}")
    console.print("\n[bold]Not certified here[/bold]\n")
    for rule in table["rules"]:
        if "why" in rule:
            console.print(_pair(escape(_head(rule)), escape(rule["why"])))
    console.print(
        "\n[bold]Randomized response is universal[/bold], [HSV] Lemma 4.7, 5.6, [Lyu] Thm 3: constructed, law by law\n"
    )
    for each in table["constructions"]:
        console.print(_pair(escape(each["words"]), _constructed(each)))
    console.print("\n[bold]Admission that an adversary exceeds[/bold]")
    for book in table["counterexamples"]:
        _print_book(console, book)


def _print_compared(console: Console, rules: list[dict[str, Any]]) -> None:
    """The instances, each rule's under its name."""
    console.print(_row("instance", "booked", "exact worst case", "verdict"), style="underline")
    before = ""
    for rule in rules:
        if "compared" not in rule:
            continue
        if rule["rule"] != before:
            console.print(f"[bold]{escape(_head(rule))}[/bold]")
        before, verdict = rule["rule"], rule["compared"]["verdict"]
        said = verdict if rule["certified"] else f"[bold red]{verdict}[/bold red]"
        cells = (escape(rule["instance"]), _measure(rule["booked"]), _exact(rule["compared"]))
        console.print(_row(*cells, said))


def _constructed(each: dict[str, Any]) -> str:
    if not (each["decomposed"] and each["equal"]):
        return "[bold red]NOT EQUAL[/bold red]"
    return f"equal; IRR is asked {each['asked']} time(s) while pairs are equal"


def _print_book(console: Console, book: dict[str, Any]) -> None:
    console.print(f"\n[bold]{escape(book['books'])}[/bold], {escape(book['source'])}")
    console.print(_pair("they promise", f"{book['quantity']}: {_number(book['promised'])}"))
    exact = f"[bold]{_number(book['exact'])}[/bold]: {escape(book['adversary'])}"
    console.print(_pair("an adversary gets", exact))
    console.print(_pair("our rules", escape(book["ours"])))


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


def _head(rule: dict[str, Any]) -> str:
    return f"{rule['rule']}, {rule['source']}" if rule["source"] else rule["rule"]


def _measure(booked: dict[str, Any]) -> str:
    """`epsilon 1.0986`, with delta where it is one; measures other than DP name themselves."""
    name, amounts = booked["measure"], {k: v for k, v in booked.items() if k != "measure"}
    if name == "DP" and not amounts["delta"]:
        del amounts["delta"]
    said = ", ".join(f"{key} {_number(value)}" for key, value in amounts.items())
    return said if name == "DP" else f"{name}: {said}"


def _exact(compared: dict[str, Any]) -> str:
    """`epsilon 1.7918`; with what is booked where the booked measure does not say it."""
    bound = "at most " if compared["verdict"] == "within the cut" else ""
    booked = f" of {_number(compared['booked'])} at {compared['at']}" if compared["at"] else ""
    return f"{compared['quantity']} {bound}{_number(compared['exact'])}{booked}"


def _number(amount: float | str) -> str:
    return "without bound" if amount in ("infinite", float("inf")) else f"{amount:.5g}"
