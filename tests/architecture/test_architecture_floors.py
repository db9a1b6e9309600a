"""What the upper floors may know.

Rules: `operate` prints nothing. `cli` asks `operate`, and starts what `broker` has; it knows no pipeline, engine or
audit.
"""

import ast
from collections.abc import Iterator

import pytest
from architecture.test_architecture_source import (
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
    "stream_dp.operate",
    "stream_dp.broker",
    "stream_dp.cli",
    "stream_dp.core.wording",  # how numbers are written with their nouns
    "stream_dp.errors",
)


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


def test_operate_prints_nothing(syntax: Syntax) -> None:
    quiet = findings(printing_libraries, syntax, lambda path: under(path, "operate", "python"))
    assert quiet == []


def test_the_command_line_asks_operate(syntax: Syntax) -> None:
    assert findings(knows_too_much, syntax, lambda path: under(path, "cli")) == []


@pytest.mark.parametrize(
    ("rule", "bad"),
    [
        (printing_libraries, "def f():\n    import typer"),
        (knows_too_much, "from stream_dp.pipeline.builder import build"),
        (knows_too_much, "def f():\n    from stream_dp.engine import engine"),
    ],
)
def test_what_is_imported_too_high_is_found(rule: Rule, bad: str) -> None:
    assert len(list(rule(ast.parse(bad)))) == 1
    good = "import json\nfrom stream_dp import __version__\nfrom stream_dp.operate.a import b"
    assert list(rule(ast.parse(good))) == []
