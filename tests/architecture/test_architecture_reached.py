"""Nothing is dead: every module is imported, at any depth, from a command, an integration, the test kit or the face."""

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

from architecture.test_architecture_source import Syntax, imported

BEGINS = ("stream_dp.cli", "stream_dp.integrations", "stream_dp.testing")
BESIDE: dict[
    str, str
] = {}  # none today; a module that nothing reaches stands here, with the reason


def named(path: Path) -> str:
    """Return a module's dotted name; a package's is that of its folder."""
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def graph(syntax: Syntax) -> dict[str, set[str]]:
    """Return which modules each module imports, at any depth of its code."""
    names = {named(path) for path in syntax}
    found = {}
    for path, tree in syntax.items():
        whole = {name for _, name in imported(tree)}
        found[named(path)] = (whole | {name.rpartition(".")[0] for name in whole}) & names
    return found


def unreached(imports: Mapping[str, Iterable[str]], begins: Iterable[str]) -> set[str]:
    """Return the modules that no chain of imports from `begins` reaches."""
    reached, waiting = set[str](), list(begins)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting.extend(imports[name])
    return set(imports) - reached


def test_every_module_is_reached(syntax: Syntax) -> None:
    imports = graph(syntax)
    packages = {named(path) for path in syntax if path.name == "__init__.py"}
    first = ("stream_dp", "stream_dp.__main__")
    begins = [name for name in imports if name in first or name.startswith(BEGINS)]
    assert unreached(imports, begins) - packages == BESIDE.keys()


def test_a_module_that_nothing_imports_is_found() -> None:
    code = {
        "stream_dp/__init__.py": "",
        "stream_dp/cli/commands/run.py": "def f():\n    from stream_dp.operate import page",
        "stream_dp/operate/__init__.py": "",
        "stream_dp/operate/page.py": "from stream_dp.core.tick import Tick",
        "stream_dp/core/tick.py": "",
        "stream_dp/core/dead.py": "import stream_dp.core.deader",
        "stream_dp/core/deader.py": "import stream_dp.core.dead",
    }
    imports = graph({Path(path): ast.parse(source) for path, source in code.items()})
    assert unreached(imports, ["stream_dp", "stream_dp.cli.commands.run"]) == {
        "stream_dp.core.dead",
        "stream_dp.core.deader",
    }


def circles(imports: Mapping[str, set[str]]) -> list[set[str]]:
    """Return the groups of modules that import each other, directly or by others."""
    reached = {name: _from(name, imports) for name in imports}
    alike = {
        frozenset(other for other in reached[name] if name in reached[other]) for name in imports
    }
    return sorted((set(group) for group in alike if len(group) > 1), key=sorted)


def _from(name: str, imports: Mapping[str, set[str]]) -> set[str]:
    waiting, reached = [name], set[str]()
    while waiting:
        for other in imports[waiting.pop()] - reached:
            reached.add(other)
            waiting.append(other)
    return reached


def test_no_modules_import_each_other(syntax: Syntax) -> None:
    packages = {named(path) for path in syntax if path.name == "__init__.py"}
    imports = {
        name: names - packages for name, names in graph(syntax).items() if name not in packages
    }
    assert circles(imports) == []


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [{"a", "b", "c"}]
