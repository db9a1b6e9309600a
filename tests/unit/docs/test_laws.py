"""Pages that name tests, files and code name what is there: laws, security, recipes, the way through the code."""

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
    "gone", ["tests/unit/docs/test_laws.py::test_gone", "tests/gone.py::test_x"]
)
def test_a_test_that_is_gone_is_found(gone: str) -> None:
    here = "- `tests/unit/docs/test_laws.py::test_there_are_eight_laws`"
    assert missing(f"- `{gone}`\n{here}") == [gone]


SECURITY = (ROOT / "docs" / "security.md").read_text()


def test_what_keeps_the_claims_is_there() -> None:
    kept = SECURITY.partition("## What keeps the claims of this page")[2].partition("\n## ")[0]
    assert missing(kept) == []
    assert len(named(kept)) == kept.count("\n- ") > 20
    assert "No test can hold" in kept


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
MADE = ("heartbeat", "tick_noise", "rate", "NAME")  # by whoever follows a recipe


def missing_files(text: str) -> list[str]:
    named = re.findall(r"`((?:stream_dp|tests|docs)/[\w/.-]*)`", text)
    there = (each for each in named if Path(each).stem not in MADE and "NAME" not in each)
    return [each for each in there if not (ROOT / each).exists()]


def anchor(heading: str) -> str:
    return "#" + heading.lower().replace(" ", "-")


def test_the_files_it_names_are_there() -> None:
    assert CONTRIBUTING.count("`stream_dp/") > 10
    assert missing_files(CONTRIBUTING) == []


@pytest.mark.parametrize("gone", ["tests/unit/gone", "stream_dp/gone.py", "docs/gone.md"])
def test_a_file_that_is_gone_is_found(gone: str) -> None:
    assert missing_files(f"`{gone}` and `stream_dp/cli/NAME.py`") == [gone]


def test_its_contents_are_its_recipes() -> None:
    headings = re.findall(r"^## (.+)$", CONTRIBUTING, re.MULTILINE)
    assert re.findall(r"^- \[([^]]+)\]\((#[^)]+)\)$", CONTRIBUTING, re.MULTILINE) == [
        (heading, anchor(heading)) for heading in headings
    ]


READING = (ROOT / "docs" / "reading.md").read_text()
MOST_LINES = 1_500


def stops(page: str) -> list[str]:
    rows = [row for row in page.splitlines() if re.match(r"\| \d+\. ", row)]
    return [name for row in rows for name in re.findall(r"`([\w.]+)`", row.split("|")[2])]


def lines(name: str) -> int:
    module, _, wanted = name.rpartition(".")
    path = ROOT / "stream_dp" / Path(*module.split(".")).with_suffix(".py")
    nodes = ast.parse(path.read_text()).body
    (node,) = (node for node in nodes if getattr(node, "name", "") == wanted)
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def test_the_way_is_short() -> None:
    names = stops(READING)
    assert len(names) > 20
    assert sum(map(lines, names)) <= MOST_LINES


def test_the_page_has_every_folder() -> None:
    folders = {path.parent.name for path in (ROOT / "stream_dp").glob("*/__init__.py")}
    table = READING.partition("## Folders")[2]
    first = " ".join(row.split("|")[1] for row in table.splitlines() if row.startswith("| `"))
    assert folders <= set(re.findall(r"`(\w+)`", first))
