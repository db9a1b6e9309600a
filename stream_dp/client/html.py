"""Tables for notebooks: what `_repr_html_` of series, budgets and plans returns."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any


def html_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], note: str = ""
) -> str:
    """Return an HTML table with a caption, and a line of text below it; everything is escaped.

    >>> html_table("a < b", ("n",), [[1]])
    '<table><caption>a &lt; b</caption><tr><th>n</th></tr><tr><td>1</td></tr></table>'
    """
    lines = [(columns, "th"), *((row, "td") for row in rows)]
    body = "".join(
        f"<tr>{''.join(f'<{tag}>{escape(str(cell))}</{tag}>' for cell in cells)}</tr>"
        for cells, tag in lines
    )
    below = f"<p>{escape(note)}</p>" if note else ""
    return f"<table><caption>{escape(title)}</caption>{body}</table>{below}"


def plan_html(plan: Mapping[str, Any]) -> str:
    """Return the table of a plan, given as `stream-dp plan --json` prints it."""
    rows = []
    for series in plan["series"]:
        windows = {w["window"]: w["predicted_error"] for w in series.get("windows") or ()}
        for window, predicted in (windows or {"": series["predicted_error"]}).items():
            last = predicted[-1] if predicted else {"error": "", "tick": ""}
            cells = (series["epsilon"], window, last["error"], last["tick"])
            rows.append((series["name"], series["mechanism"], *cells))
    promise = plan["promise"]
    title = f"epsilon {promise['epsilon']}, delta {promise['delta']} for one {plan['unit']}"
    columns = ("series", "mechanism", "epsilon", "window", "error", "at tick")
    return html_table(title, columns, rows, f"The file's series alone: epsilon {plan['epsilon']}.")
