"""The page of the laws names tests that exist: eight laws, each with tests that keep it and one that breaks it."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "laws.md").read_text()
LAWS = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]


@cache
def defined_in(path: Path) -> frozenset[str]:
    """The names of the tests in a file; none where there is no file."""
    if not path.is_file():
        return frozenset()
    nodes = ast.parse(path.read_text()).body
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(n.name for n in nodes if isinstance(n, kinds) and n.name.startswith("test_"))


def named(text: str) -> list[str]:
    """What stands in backquotes at the beginning of an item."""
    return re.findall(r"^- `([^`]+)`", text, re.MULTILINE)


def missing(text: str) -> list[str]:
    """Tests that are named and not there."""
    found = (each.partition("::") for each in named(text))
    return [path + sep + name for path, sep, name in found if name not in defined_in(ROOT / path)]


def test_there_are_eight_laws() -> None:
    assert [law.partition(".")[0] for law in LAWS] == [str(number) for number in range(1, 9)]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.partition("\n")[0])
def test_the_defined_in_a_law_are_there(law: str) -> None:
    kept, _, broken = law.partition("Shown to fail:")
    assert missing(law) == []
    assert len(named(kept)) >= 3
    assert len(named(broken)) >= 1
    assert len(named(law)) == law.count("\n- ")


@pytest.mark.parametrize(
    "gone", ["tests/unit/docs/test_laws.py::test_gone", "tests/gone.py::test_x", "tests/unit/docs"]
)
def test_a_test_that_is_gone_is_found(gone: str) -> None:
    assert missing(f"- `{gone}`\n- `tests/unit/docs/test_laws.py::test_there_are_eight_laws`") == [
        gone
    ]
