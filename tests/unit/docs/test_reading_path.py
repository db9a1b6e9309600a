"""The way through the code (docs/reading.md): every stop is there, and all of them are short enough to be read."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "reading.md").read_text(encoding="utf-8")
MOST_LINES = 1_500


def stops(page: str) -> list[str]:
    """Return the names to read, in order."""
    rows = [row for row in page.splitlines() if re.match(r"\| \d+\. ", row)]
    return [name for row in rows for name in re.findall(r"`([\w.]+)`", row.split("|")[2])]


def lines(name: str) -> int:
    """Return how long a class or a function is."""
    module, _, wanted = name.rpartition(".")
    path = ROOT / "stream_dp" / Path(*module.split(".")).with_suffix(".py")
    nodes = ast.parse(path.read_text(encoding="utf-8")).body
    (node,) = (node for node in nodes if getattr(node, "name", "") == wanted)
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def test_the_way_is_short() -> None:
    names = stops(PAGE)
    assert len(names) > 20
    assert sum(map(lines, names)) <= MOST_LINES


def test_the_page_has_every_folder() -> None:
    folders = {path.parent.name for path in (ROOT / "stream_dp").glob("*/__init__.py")}
    table = PAGE.partition("## Folders")[2]
    first = " ".join(row.split("|")[1] for row in table.splitlines() if row.startswith("| `"))
    assert folders <= set(re.findall(r"`(\w+)`", first))
