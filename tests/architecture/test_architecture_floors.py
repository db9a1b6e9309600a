"""What the upper floors may know, and that one name means one thing.

Rules: `app` prints nothing. `cli` asks `app`, and starts what `broker` has; it knows no pipeline, engine or audit.
A name on an allow-list has its reason there, and leaves the list when it is no duplicate any more.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from architecture.test_architecture_source import (
    Definition,
    Rule,
    Syntax,
    findings,
    imported,
    is_within,
    under,
)

PRINTERS = ("rich", "typer", "click")
CLI_MAY_USE = (
    "stream_dp.__version__",
    "stream_dp.accounting.amounts",  # how amounts are written
    "stream_dp.app",
    "stream_dp.broker",
    "stream_dp.cli",
    "stream_dp.core.how_many",  # how numbers are written with their nouns
    "stream_dp.errors",
)

FILE_NAMES = {
    "__init__.py": "a package's own file",
    "alerts.py": "a mechanism, and the statistic that it serves",
    "dead_letters.py": "what was refused, and the command that lists it",
    "demo.py": "what a command does, and the command",
    "gaussian.py": "a rule and a filter of one measure",
    "ledger.py": "the ledger, and the command that shows it",
    "live_series.py": "the live series, for the planner, the server, the client and the engine",
    "monitor.py": "a mechanism, and the statistic that it serves",
    "renyi.py": "a rule and a filter of one measure",
    "schema.py": "the fields of records, and the command that prints the JSON Schema of pipeline files",
    "series.py": "what the engine runs, and the routes that read it",
}
SCHEMAS = Path("stream_dp/serve/models")  # the API's schemas have the names of what they show
DEFINED_TWICE = {
    "Ask": "the message to a mechanism, in the model and for its actor",
    "Condition": "one of a theorem, and one of `where:` in a pipeline file",
    "Halt": "the message that ends a mechanism, in the model and for its actor",
    "Router": "what the runtime asks for, and what the pipeline has",
    "ask": "the command, and what an actor does with a query",
    "exact": "an amount from whole units, and from text without a float",
    "run": "the command, and the test kit's",
}


def printing_libraries(tree: ast.Module) -> Iterator[str]:
    """Find imports of what writes on a terminal."""
    for line, name in imported(tree):
        if any(is_within(name, library) for library in PRINTERS):
            yield f"line {line}: imports {name}"


def knows_too_much(tree: ast.Module) -> Iterator[str]:
    """Find imports from floors that a command has no business with."""
    for line, name in imported(tree):
        ours = is_within(name, "stream_dp")
        if ours and not any(is_within(name, allowed) for allowed in CLI_MAY_USE):
            yield f"line {line}: imports {name}"


def same_files(paths: list[Path]) -> dict[str, list[Path]]:
    """Return the file names that stand in more than one folder."""
    found = defaultdict(list)
    for path in paths:
        found[path.name].append(path)
    return {name: where for name, where in found.items() if len(where) > 1}


def defined_twice(syntax: Syntax) -> dict[str, list[Path]]:
    """Return the public classes and functions that more than one module defines at its top."""
    found = defaultdict(list)
    for path, tree in syntax.items():
        if path.is_relative_to(SCHEMAS):
            continue
        for name in {node.name for node in tree.body if isinstance(node, Definition)}:
            if not name.startswith("_"):
                found[name].append(path)
    return {name: where for name, where in found.items() if len(where) > 1}


def test_app_prints_nothing(syntax: Syntax) -> None:
    assert findings(printing_libraries, syntax, lambda path: under(path, "app")) == []


def test_the_command_line_asks_app(syntax: Syntax) -> None:
    assert findings(knows_too_much, syntax, lambda path: under(path, "cli")) == []


def test_files_of_one_name_are_one_thing(syntax: Syntax) -> None:
    assert same_files(list(syntax)).keys() == FILE_NAMES.keys()


def test_a_public_name_is_defined_once(syntax: Syntax) -> None:
    assert defined_twice(syntax).keys() == DEFINED_TWICE.keys()


@pytest.mark.parametrize(
    ("rule", "bad"),
    [
        (printing_libraries, "from rich.console import Console"),
        (printing_libraries, "def f():\n    import typer"),
        (knows_too_much, "from stream_dp.pipeline.builder import build"),
        (knows_too_much, "from stream_dp.accounting.amounts_of import text"),
        (knows_too_much, "def f():\n    from stream_dp.runtime import engine"),
    ],
)
def test_what_is_imported_too_high_is_found(rule: Rule, bad: str) -> None:
    assert len(list(rule(ast.parse(bad)))) == 1


def test_right_imports_pass() -> None:
    tree = ast.parse(
        "import json\nfrom stream_dp import __version__\nfrom stream_dp.app.page_beside import served"
    )
    assert list(knows_too_much(tree)) + list(printing_libraries(tree)) == []


def test_names_that_stand_twice_are_found() -> None:
    twice = "class A: ...\n"
    syntax: Mapping[Path, ast.Module] = {
        Path("x/a.py"): ast.parse(f"{twice}def _b(): ..."),
        Path("y/a.py"): ast.parse("def A(): ...\ndef _b(): ..."),
        Path("y/c.py"): ast.parse("def d():\n    def A(): ..."),
    }
    assert same_files(list(syntax)) == {"a.py": [Path("x/a.py"), Path("y/a.py")]}
    assert defined_twice(syntax) == {"A": [Path("x/a.py"), Path("y/a.py")]}
