"""Texts that several commands print, made from plain values of the local engine or of an answer over HTTP."""

import json
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from stream_dp.accounting.amounts import text
from stream_dp.core.wording import how_many

PIPED_WIDTH = 180


def wide_console(width: int = PIPED_WIDTH, *, highlight: bool = True) -> Console:
    """Return a console; if it is not a terminal it has `width` columns, by default enough for a tree."""
    return Console(width=None if sys.stdout.isatty() else width, highlight=highlight)


def folding_table(*columns: str, title: str | None = None, right: Container[str] = ()) -> Table:
    """Return a table whose cells are wrapped and never cut off; those of the columns in `right` are aligned there."""
    table = Table(title=title)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def verdict_table(rows: Iterable[Sequence[str]], title: str) -> Table:
    """Return a table of rows (series, window, typical number, half-width, verdict); a series is named once."""
    table = folding_table("series", "over", "typically", "band", "verdict", title=title)
    last = ""
    for series, *cells in rows:
        table.add_row(*(escape(cell) for cell in ("" if series == last else series, *cells)))
        last = series
    return table


def derivation_tree(node: Mapping[str, Any], parent: Tree | None = None) -> Tree:
    """Return the tree of a node {subject, rule, source, guarantee, conditions, alternatives, premises}."""
    subject, why = node.get("subject", ""), f"by {node.get('rule', '')}, {node.get('source', '')}"
    label = f"[bold]{escape(subject)}[/bold]  {escape(f'{_amounts(node)}  {why}')}"
    tree = Tree(label, highlight=False) if parent is None else parent.add(label, highlight=False)
    for condition in node.get("conditions", ()):
        held = escape(f"{condition['name']}: {condition['why']}")
        tree.add(f"[green]holds[/green] {held}", highlight=False)
    if node.get("alternatives"):
        others = escape(_others(node["alternatives"]))
        tree.add(f"[dim]not used: {others}[/dim]", highlight=False)
    for premise in node.get("premises", ()):
        derivation_tree(premise, tree)
    return tree


def _amounts(node: Mapping[str, Any]) -> str:
    """Return `eps 1, delta 0`; measures other than DP are named, and so are protected users."""
    guarantee = node.get("guarantee", {})
    amounts = ", ".join(
        f"{'eps' if key == 'epsilon' else key} {text(Fraction(str(amount)))}"
        for key, amount in guarantee.items()
        if key not in ("measure", "neighbors", "group", "users")
    )
    if "users" in guarantee:
        amounts = f"{amounts}, {guarantee['users']}"
    return f"{guarantee['measure']} {amounts}" if "measure" in guarantee else amounts


def promise_text(node: Mapping[str, Any]) -> str:
    """Return the guarantee of a derivation's node and its theorem, in one line.

    >>> guarantee = {"epsilon": "0.1", "delta": "0", "neighbors": "add_remove"}
    >>> promise_text({"rule": "proven mechanism", "source": "[HSV] Lemma 7.4", "guarantee": guarantee})
    'eps 0.1, delta 0, neighbours add_remove, by proven mechanism, [HSV] Lemma 7.4'
    """
    neighbors = node["guarantee"]["neighbors"]
    return f"{_amounts(node)}, neighbours {neighbors}, by {node['rule']}, {node['source']}"


def _others(alternatives: list[Mapping[str, Any]]) -> str:
    """Return the other applicable rules with their prices, and the number of rules that do not apply."""
    prices = [f"{a['source']} ({_amounts(a)})" for a in alternatives if "guarantee" in a]
    refused = len(alternatives) - len(prices)
    lacking = [f"not applicable: {how_many(refused, 'rule')} (--json shows why)"] if refused else []
    return "; ".join(prices + lacking)


def on_records(shown: Mapping[str, Any], form: str = " {}") -> str:
    """Return in `form` which records `shown` is about; empty where it is about every record.

    >>> on_records({"records": "country = DE"}), on_records({"records": ""})
    (' on records with country = DE', '')
    """
    records = shown.get("records")
    return form.format(f"on records with {records}") if records else ""


def budget_text(shown: Mapping[str, Any]) -> str:
    """Return spent and remaining budget of `budget_json` as a clause, with units if they differ.

    Where not all records meet the same, it names those that meet most.

    >>> shown = {"unit": "epsilon", "capacity": "2", "budget": "2", "spent": "1.7", "left": "0.3"}
    >>> budget_text(shown | {"heaviest": "coupon = true"})
    'spent 1.7 (on records with coupon = true, where most was spent), left 0.3'
    """
    spent, left = shown.get("delta_spent", "0"), shown.get("delta_left", "0")
    deltas = "" if spent == left == "0" else f"; of delta {spent} spent by series, {left} left"
    heaviest = shown.get("heaviest")
    records = f" (on records with {heaviest}, where most was spent)" if heaviest else ""
    if shown["unit"] == "epsilon" and shown["capacity"] == shown["budget"]:
        return f"spent {shown['spent']}{records}, left {shown['left']}{deltas}"
    return (
        f"spent {shown['spent']} {shown['unit']} of {shown['capacity']}{records}, one more series can cost up to "
        f"epsilon {shown['left']}{deltas}"
    )


def name_text(entry: Mapping[str, Any]) -> str:
    """Return a series' name, with its version from the second one on.

    >>> name_text({"name": "orders", "version": 2})
    'orders, version 2'
    """
    return f"{entry['name']}, version {entry['version']}" if "version" in entry else entry["name"]


def tick_text(entry: Mapping[str, Any], key: str) -> str:
    """Return the tick under `key` with its begin; "runs" if there is none.

    >>> tick_text({"end": 40, "end_time": "2026-01-18T06:04:00Z"}, "end"), tick_text({"end": None}, "end")
    ('40 (2026-01-18T06:04:00Z)', 'runs')
    """
    tick, time = entry.get(key), entry.get(f"{key}_time")
    if tick is None:
        return "runs"
    return str(tick) if time is None else f"{tick} ({time})"


def given_back(halt: Mapping[str, Any]) -> str:
    """Return what a halt gives back, to which new series, and from which tick on.

    >>> halt = {"freed": "0.1", "freed_everywhere": "0", "budget": "2", "records": "country = DE", "end": 4}
    >>> given_back(halt)
    '0.1 of 2 to new series on records with country = DE, from tick 4 on (to a new series on every record: 0)'
    >>> given_back({"freed": "0.1", "records": "", "end": 4}), given_back({"freed": "0", "records": ""})
    ('0.1 to new series, from tick 4 on', 'nothing')
    """
    back, everywhere = halt["freed"], halt.get("freed_everywhere", halt["freed"])
    if back == "0":
        return "nothing"
    of = f" of {halt['budget']}" if "budget" in halt else ""
    others = f" (to a new series on every record: {everywhere})" if everywhere != back else ""
    return (
        f"{back}{of} to new series{on_records(halt)}, from tick {tick_text(halt, 'end')} on{others}"
    )


def watch_end_text(watch: Mapping[str, Any]) -> str:
    """Return the tick at which a watch ends, as in `tick_text`, and how much of it has fired for good.

    >>> watch_end_text({"end": 40, "fired": 1}), watch_end_text({"end": None, "by": "airline", "fired": 2})
    ('40, fired', 'runs, 2 keys fired')
    """
    fired, end = watch.get("fired", 0), tick_text(watch, "end")
    keys = f"{how_many(fired, 'key')} " if watch.get("by") else ""
    return f"{end}, {keys}fired" if fired else end


def answer_text(series: str, end: str, answer: Mapping[str, Any]) -> str:
    """Return a series' answer at the cut at time `end`; a value with nested containers gets its own lines.

    >>> windows = {"tick": {"value": 9, "band": 30}, "1h": {"value": 12, "band": 97}}
    >>> print(answer_text("orders", "2026-01-18T06:04:00Z", {"tick": 4, "windows": windows, "confidence": 0.95}))
    orders at 2026-01-18T06:04:00Z: tick 4, confidence 0.95
      windows:
        tick: value 9, band 30
        1h: value 12, band 97
    """
    shown = {key: value for key, value in answer.items() if key != "series"}
    return "\n".join(_lines(f"{series} at {end}:", shown))


def _lines(lead: str, value: Any, indent: str = "") -> Iterator[str]:
    """Yield the content of a value in one line, then its parts that need lines of their own."""
    inside = dict(value if isinstance(value, Mapping) else enumerate(value, start=1))
    deep = {
        key: inside.pop(key)
        for key, part in list(inside.items())
        if _is_deep(part) or (indent and isinstance(part, Mapping))
    }
    yield f"{indent}{lead} {_plain(inside)}".rstrip()
    for key, part in deep.items():
        yield from _lines(f"{key}:", part, indent + "  ")


def _is_deep(value: Any) -> bool:
    if not isinstance(value, Mapping | list | tuple):
        return False
    inside = value.values() if isinstance(value, Mapping) else value
    return any(isinstance(part, Mapping | list | tuple) for part in inside)


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(part)}" for key, part in value.items())
    return value if isinstance(value, str) else json.dumps(value)


def watch_text(watch: Mapping[str, Any]) -> str:
    """Return when a watch fires and which events it counts, in a few words.

    >>> watch_text({"below": 3, "over": "tick", "rearm": True, "where": [{"field": "origin", "equals": "JFK"}]})
    'watch: below 3 in a tick, where origin equals JFK'
    """
    limit = next(f"{k} {watch[k]:,}" for k in ("above", "below") if watch.get(k) is not None)
    tick = {"since_firing": "", "tick": " in a tick"}.get(watch["over"], f" in {watch['over']}")
    by = f" for each of {watch['by']}" if watch.get("by") else ""
    once = "" if watch["rearm"] else ", once"
    tests = [
        " ".join([test["field"], *(f"{key} {_plain(test[key])}" for key in test if key != "field")])
        for test in watch.get("where") or ()
    ]
    where = f", where {' and '.join(tests)}" if tests else ""
    return f"watch: {limit}{tick}{by}{once}{where}"


def _back(series: Mapping[str, Any]) -> str:
    back = series["gives_back"]
    return f"gives {back} back to later ticks" if back != "0" else "gives nothing back"


def _series_lines(shown: Mapping[str, Any]) -> Iterator[str]:
    for series in shown["added"]:
        yield f"  + series {series['name']}: epsilon {series['epsilon']}, counts from tick {series['start']} on"
        if series["noise"]:
            yield f"      {series['noise']}"
    for series in shown.get("changed", ()):
        yield (
            f"  ~ series {series['name']}: version {series['version']} starts at zero at tick {series['start']}, "
            f"epsilon {series['epsilon']}. The version before has no release from tick {series['end']} on, and "
            f"{_back(series)}"
        )
        if series["noise"]:
            yield f"      {series['noise']}"
    for series in shown["ended"]:
        yield (
            f"  - series {series['name']}: no release from tick {series['end']} on; {_back(series)}; its name "
            "cannot be used again"
        )


def change_lines(shown: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a changed pipeline file would change, a line each, from what `file_change` shows."""
    name, old = shown["pipeline"], shown["against"]
    whole = f"the journal of {name}" if old == "running" else old
    if not shown["pending"]:
        yield f"{name}: nothing to apply; {whole} continues with this file"
    else:
        yield f"{name}: changes against {whole}"
    yield from _series_lines(shown)
    for series in shown.get("halted", ()):
        yield f"  ? series {series} was halted by a message. Its name cannot be used again: leave the series out"
    yield from (f"  + field {field}" for field in shown["fields"])
    before = "earlier records with this schema were dead letters"
    for schema in shown["schemas"]:
        yield f"  + schema {schema['id']}: its records count from tick {schema['start']} on; {before}"
    for series in shown["words"]:
        yield f"  ~ text of series {series}: shown from the next start on, so there is nothing to apply"
    for reason in shown["refused"]:
        yield f"  ! {reason}"
    if "after" in shown and shown["pending"]:
        before, after = shown["before"], shown["after"]
        yield (
            f"  spent {before['spent']}, then {after['spent']} {after['unit']}; left of {after['budget']}: "
            f"{before['left']}, then {after['left']}"
        )
