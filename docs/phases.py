"""Writes the tables and diagrams of `phases.md` from the code's own: `python docs/phases.py`.

The tests compare the committed page with what this makes.
"""

import re
from enum import Enum
from pathlib import Path
from typing import Any

from stream_dp.engine.phases import ENGINE, LEASE, Table

PAGE = Path(__file__).with_name("phases.md")
TABLES: dict[str, Table[Any]] = {"engine": ENGINE, "lease": LEASE}


def section(table: Table[Any]) -> str:
    """Return the diagram of a table, and what each phase means and may become."""
    first = next(iter(table))
    moves = [
        f"    {phase.name} --> {then.name}"
        for phase, after in table.items()
        for then in _sorted(after)
    ]
    ends = [f"    {phase.name} --> [*]" for phase, after in table.items() if not after]
    rows = [
        f"| {phase.name} | {phase.value} | {', '.join(then.name for then in _sorted(after)) or 'nothing'} |"
        for phase, after in table.items()
    ]
    diagram = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first.name}", *moves, *ends, "```"]
    return "\n".join(
        [*diagram, "", "| phase | what it means | may become |", "|---|---|---|", *rows]
    )


def text(page: str) -> str:
    """Return the page with its generated parts made anew."""
    for name, table in TABLES.items():
        part = f"<!-- {name} -->\n{section(table)}\n<!-- end -->"
        page = re.sub(rf"<!-- {name} -->\n.*?<!-- end -->", part, page, flags=re.DOTALL)
    return page


def _sorted(phases: frozenset[Enum]) -> list[Enum]:
    """In the order in which they are defined."""
    return [phase for phase in type(next(iter(phases))) if phase in phases] if phases else []


if __name__ == "__main__":
    PAGE.write_text(text(PAGE.read_text()))
