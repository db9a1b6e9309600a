"""The table at the end of the demo."""

from typing import Any

from rich.console import Console, JustifyMethod
from rich.table import Table

from stream_dp.core.how_many import how_many
from stream_dp.operate.demo_figures import DemoFigures

SHOWN_KEYS = 5


def print_results(found: DemoFigures) -> None:
    """Print the table and the totals on stdout."""
    console = Console(soft_wrap=True)
    console.print(_table(found))
    summary = found.summary
    console.print(
        f"{how_many(summary.events, 'event')}, {how_many(summary.dead_letters, 'dead letter')}, {summary.late:,} late, "
        f"{how_many(summary.ticks, 'tick')}, {how_many(summary.releases, 'release')} in {found.seconds:.1f} s "
        "(exact figures because this source is declared public_data)"
    )


def _table(found: DemoFigures) -> Table:
    exact = found.exact
    tick = max((release["tick"] for release in found.final.values()), default=-1)
    table = Table(title=f"Private values at tick {tick}")
    for column in ("series", "key", "private value", "band"):
        justify: JustifyMethod = "right" if column in ("private value", "band") else "left"
        table.add_column(column, justify=justify, overflow="fold")
    if exact is not None:
        table.add_column("exact (public data)", justify="right")
    for name, release in found.final.items():
        halted = "" if release["tick"] == tick else f" (until tick {release['tick']})"
        total = None if exact is None else exact.get(name)
        for window, part in (release.get("windows") or {"": release}).items():
            known = (total or {}).get(window) if window else total
            for key, value in _shown(part):
                beside = known.get(key) if isinstance(known, dict) else known
                shown = f"{name} {window}".strip() + halted
                row = [shown, key, _number(value), _sure(part, key)]
                table.add_row(*row, *([] if exact is None else [_number(beside)]))
    return table


def _shown(release: dict[str, Any]) -> list[tuple[str, Any]]:
    """The scalar with its name, the largest few values, or the keys with an alert at this tick."""
    if "value" in release:
        return [(release.get("name", ""), release["value"])]
    if "fired" in release:
        fired = release["fired"]
        return [(", ".join(fired) or "no alert at this tick", True if fired else None)]
    if "ranks" in release:
        return [(rank["name"], rank["value"]) for rank in release["ranks"][:SHOWN_KEYS]]
    if "quantiles" in release:
        return [(at, told["value"]) for at, told in release["quantiles"].items()]
    values: dict[str, Any] = release["values"]
    ranked = sorted(values.items(), key=lambda item: -(item[1] or 0))[:SHOWN_KEYS]
    left = len(values) - len(ranked)
    return [*ranked, *([(f"... {left} more", None)] if left else [])]


def _sure(part: dict[str, Any], key: str) -> str:
    """The half-width, or from where to where a quotient may lie."""
    if "band" in part:
        return f"± {part['band']:,}"
    ends = part.get("low"), part.get("high")
    if "values" in part:
        if key not in part["values"]:
            return ""
        at = list(part["values"]).index(key)
        ends = part["lows"][at], part["highs"][at]
    low, high = ("open" if end is None else f"{end:,}" for end in ends)
    return f"{low} to {high}"


def _number(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else f"{value:,}"
