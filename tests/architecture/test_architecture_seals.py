"""Who may open the sealed states of sub-mechanisms: the composition, which steps them, and what writes or checks them.

Each rule is tried on a snippet that breaks it.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from architecture.test_architecture_source import Rule, Syntax, imported, is_within

SEAL = "stream_dp.core.sealed"
OPENERS = {
    "stream_dp/verify/exact/enumeration.py": "tells states apart by all they hold, for exact checks",
    "stream_dp/verify/game.py": "compares a state with the recorded one, and bands with the released ones",
    "stream_dp/core/composition.py": "steps what it holds",
    "stream_dp/core/serial.py": "writes it and reads it back",
}
WRITERS = (
    "stream_dp.core.serial",
    "stream_dp.mechanisms.states",
    "pickle",
    "copy",
    "gc",
    "inspect",
)


def opens(tree: ast.Module) -> Iterator[str]:
    """Find imports of the seal, and ways round it that can be seen."""
    for line, name in imported(tree):
        if is_within(name, SEAL):
            yield f"line {line}: imports {name}"
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=attr) | ast.Constant(value=str(attr)) if "_Sealed__" in attr:
                yield f"line {node.lineno}: goes round the seal"
            case ast.Attribute(attr="__getattribute__", value=ast.Name(id="object")):
                yield f"line {node.lineno}: reads attributes past their class"


def writes(tree: ast.Module) -> Iterator[str]:
    """Find imports by which a composite could turn its parts into bytes."""
    for line, name in imported(tree):
        if any(is_within(name, writer) for writer in WRITERS):
            yield f"line {line}: imports {name}"


def composites(syntax: Syntax) -> dict[Path, ast.Module]:
    """Return the mechanisms that run others through a composition."""
    composition = "stream_dp.core.composition"
    return {
        path: tree
        for path, tree in syntax.items()
        if path.parts[1] == "mechanisms"
        and path.name != "states.py"
        and any(is_within(name, composition) for _, name in imported(tree))
    }


def test_only_the_composition_and_what_writes_it_open_states(syntax: Syntax) -> None:
    own = Path(SEAL.replace(".", "/") + ".py")
    kit = ("testing",)
    found = {
        str(path)
        for path, tree in syntax.items()
        if path != own and path.parts[1] not in kit and list(opens(tree))
    }
    assert found == OPENERS.keys()


def test_no_composite_writes_its_parts(syntax: Syntax) -> None:
    found = composites(syntax)
    assert {path.name for path in found} >= {"hss.py", "per_bin_hss.py", "papers.py"}
    assert {path: list(writes(tree)) for path, tree in found.items() if list(writes(tree))} == {}


@pytest.mark.parametrize(
    ("rule", "bad"),
    [
        (opens, "from stream_dp.core.sealed import inside_of"),
        (opens, "x = child.state._Sealed__value"),
        (opens, "x = getattr(child.state, '_Sealed__value')"),
        (opens, "x = object.__getattribute__(child, 'state')"),
        (writes, "from stream_dp.mechanisms.states import STATES"),
        (writes, "def f():\n    import pickle"),
    ],
)
def test_the_rules_can_fail(rule: Rule, bad: str) -> None:
    assert len(list(rule(ast.parse(bad)))) == 1
