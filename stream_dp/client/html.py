"""Tables for notebooks: what `_repr_html_` of series, budgets and plans returns."""

from collections.abc import Iterable, Sequence
from html import escape


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
