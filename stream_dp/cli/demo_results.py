"""The table and the JSON object at the end of the demo.

Rules: exact figures come from the journal and are shown for sources declared public only; the caller checks.
"""

import json
from dataclasses import dataclass
from typing import Any

import msgspec
import typer
from rich.console import Console, JustifyMethod
from rich.table import Table

from stream_dp.accounting.amounts import number
from stream_dp.app.journal_access import sealed_commits
from stream_dp.core.guarantee import differential_privacy
from stream_dp.pipeline.builder import Built
from stream_dp.runtime.journal_summary import JournalSummary, read_summary
from stream_dp.runtime.keys import Sealer
from stream_dp.runtime.release import Released, read
from stream_dp.serve.view import ReleaseLog

SHOWN_KEYS = 5


@dataclass(frozen=True, slots=True)
class Results:
    """What the demo ends with, exact: `events` of this run, `statement` of all runs."""

    broker: str
    seconds: float
    events: int
    summary: JournalSummary
    final: dict[str, dict[str, Any]]


async def results(
    built: Built, sealer: Sealer, broker: str, seconds: float, before: int, log: ReleaseLog
) -> Results:
    """Read the journal's totals and the last release of each series; `before` events came in earlier runs."""
    through = max((release.tick for release in log.latest().values()), default=-1)
    summary = await read_summary(sealed_commits(built.spec), sealer, built.spec.name, through)
    final = {name: _final(read(release.body)) for name, release in log.latest().items()}
    return Results(broker, seconds, summary.events - before, summary, final)


def _final(last: Released) -> dict[str, Any]:
    """Of a series' last release: value, values or fired, with band and tick."""
    whole = msgspec.to_builtins(last)
    return {key: whole[key] for key in ("value", "values", "fired", "band", "tick") if key in whole}


def print_results(built: Built, found: Results, as_json: bool, compare_exact: bool) -> None:
    """Print the table on stdout and, if wanted, the JSON object as its last line."""
    exact = _exact(built, found.summary) if compare_exact else None
    console = Console(soft_wrap=True)
    console.print(_table(found, exact))
    summary = found.summary
    console.print(
        f"{summary.events:,} events, {summary.dead_letters:,} dead letters, {summary.late:,} late, "
        f"{summary.ticks:,} ticks, {summary.releases:,} releases in {found.seconds:.1f} s "
        "(exact figures because this source is declared public_data)"
    )
    if as_json:
        typer.echo(json.dumps(_json(built, found, exact)))


def _json(built: Built, found: Results, exact: dict[str, Any] | None) -> dict[str, Any]:
    measure = differential_privacy(built.derivation.guarantee.measure)
    summary = found.summary
    content = {
        "broker": found.broker,
        "events": summary.events,
        "dead_letters": summary.dead_letters,
        "ticks": summary.ticks,
        "releases": summary.releases,
        "seconds": round(found.seconds, 3),
        "events_per_second": round(found.events / max(found.seconds, 1e-9)),
        "epsilon": number(measure.epsilon),
        "delta": number(measure.delta),
        "final": found.final,
    }
    return content if exact is None else {**content, "exact": exact}


def _exact(built: Built, summary: JournalSummary) -> dict[str, Any]:
    """Exact totals of every series that has a total."""
    rows = summary.rows
    if rows is None:
        return {}
    known = {
        c.spec.name: c.spec.exact(
            rows[built.layout.slice(c.spec.name)], built.layout.keys(c.spec.name)
        )
        for c in built.chosen
    }
    return {name: total for name, total in known.items() if total is not None}


def _table(found: Results, exact: dict[str, Any] | None) -> Table:
    tick = max((release["tick"] for release in found.final.values()), default=-1)
    table = Table(title=f"Private values at tick {tick}")
    for column in ("series", "key", "private value", "band"):
        justify: JustifyMethod = "right" if column in ("private value", "band") else "left"
        table.add_column(column, justify=justify, overflow="fold")
    if exact is not None:
        table.add_column("exact (public data)", justify="right")
    for name, release in found.final.items():
        halted = "" if release["tick"] == tick else f" (until tick {release['tick']})"
        for key, value in _shown(release):
            known = None if exact is None else exact.get(name)
            beside = known.get(key) if isinstance(known, dict) else known
            row = [name + halted, key, _number(value), f"± {release['band']:,}"]
            table.add_row(*row, *([] if exact is None else [_number(beside)]))
    return table


def _shown(release: dict[str, Any]) -> list[tuple[str, Any]]:
    """The scalar, the largest few values, or the keys with an alert at this tick."""
    if "value" in release:
        return [("", release["value"])]
    if "fired" in release:
        fired = release["fired"]
        return [(", ".join(fired) or "no alert at this tick", True if fired else None)]
    values: dict[str, Any] = release["values"]
    ranked = sorted(values.items(), key=lambda item: -item[1])[:SHOWN_KEYS]
    left = len(values) - len(ranked)
    return [*ranked, *([(f"... {left} more", None)] if left else [])]


def _number(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else f"{value:,}"
