"""docs/operations.md: its table of incidents has every exit code, and quotes what the code says."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from stream_dp import errors
from stream_dp.operate.run.running import INTERRUPTED

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "operations.md").read_text()
BY_SIGNAL = {"137, 143 or a signal"}


def rows(page: str) -> list[tuple[str, str]]:
    """The table of incidents: code, and what is said there."""
    table = page.split("## By exit code")[1].split("\n\n")[2]
    cells = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return [(each[0], each[1]) for each in cells]


@cache
def said() -> str:
    """Every text in the code, pieces that stand beside each other joined."""
    files = sorted((ROOT / "stream_dp").rglob("*.py"))
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text())))
    constants = (node.value for node in nodes if isinstance(node, ast.Constant))
    return "\n".join(value for value in constants if isinstance(value, str))


def unsaid(page: str) -> list[str]:
    """What the table quotes and no code says; paths and words of the shell are not quoted there."""
    return [
        quote
        for _, cell in rows(page)
        for quote in re.findall(r"`([^`]+)`", cell)
        if quote not in said()
    ]


def codes(page: str) -> set[str]:
    """The codes that have a row."""
    return {code for code, _ in rows(page)} - BY_SIGNAL


def every_code() -> set[str]:
    """What an engine may end with."""
    kinds, found = [errors.StreamDPError], {0, INTERRUPTED}
    while kinds:
        kind = kinds.pop()
        found.add(kind.exit_code)
        kinds += kind.__subclasses__()
    return {str(code) for code in found}


def test_the_table_quotes_the_code() -> None:
    assert len(rows(PAGE)) > 15
    assert unsaid(PAGE) == []


def test_every_exit_code_has_a_row() -> None:
    assert codes(PAGE) == every_code()


@pytest.mark.parametrize(
    ("old", "new"), [("was written with key", "was sealed by key"), ("| 130 |", "| 131 |")]
)
def test_a_page_that_is_wrong_is_noticed(old: str, new: str) -> None:
    assert old in PAGE
    page = PAGE.replace(old, new)
    assert (unsaid(page), codes(page)) != ([], every_code())
