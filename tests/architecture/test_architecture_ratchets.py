"""Figures of the source tree that may only fall: each stands here as it is today, beside the goal.

Rules: a change that makes a figure worse is refused; one that makes it better lowers the number here in the same
commit, for a number that is not reached any more is refused as well. `-rP` prints the figures.
"""

import ast
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from architecture.test_architecture_reached import graph, named
from architecture.test_architecture_source import Syntax, imported

from stream_dp.statistics import STATISTICS

FOLDER_ENTRIES = 20  # goal; sub-folders count as one
PARAMETERS = 8
OWN_IMPORTS = 20

# name of the figure: (today, goal)
RATCHETS = {
    "folders of more than 20 entries": (0, 0),
    "entries of the largest folder": (19, 20),
    "modules with one importer, in per cent": (10, 10),
    "functions of more than 8 parameters": (0, 0),
    "modules with more than 20 own imports": (0, 0),
    "isinstance with a mechanism or a statistic outside of its folder": (0, 0),
}


def entries(syntax: Syntax) -> Counter[Path]:
    """Return how many entries each folder has: modules and sub-folders, without its own `__init__`.

    The package itself is left out: its folders are those of the design.
    """
    inside = {path for path in syntax if path.name != "__init__.py"}
    inside |= {parent for path in syntax for parent in path.parents}
    return Counter(path.parent for path in inside if len(path.parts) > 2)


def importers(syntax: Syntax) -> Counter[str]:
    """Return how many other modules import each module that is no package."""
    files = {named(path) for path in syntax if path.name != "__init__.py"}
    imports = graph(syntax).items()
    return Counter(name for importer, names in imports for name in (names & files) - {importer})


def by_design(syntax: Syntax) -> set[str]:
    """Return the modules that have one importer on purpose, or none but the face.

    A statistic is one file, which only their list imports, so that a new one is one line. What only the face
    `stream_dp` names is an entry point, as a command is.
    """
    home = Path("stream_dp", "statistics")
    statistics = {named(path) for path in syntax if path.parent == home}
    users = importers({path: tree for path, tree in syntax.items() if named(path) != "stream_dp"})
    entry_points = graph(syntax).get("stream_dp", set()) - users.keys()
    return statistics | entry_points


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([name for name in names if name not in {"self", "cls"}])


def many_parameters(tree: ast.Module) -> list[str]:
    """Return the functions with more parameters than a reader can hold."""
    functions = (
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return [function.name for function in functions if parameters(function) > PARAMETERS]


def classes_asked(tree: ast.Module) -> list[str]:
    """Return the last names of the classes that `isinstance` is asked about."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    asked = [
        call.args[1]
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "isinstance" and len(call.args) == 2
    ]
    found = (node for argument in asked for node in ast.walk(argument))
    names = (getattr(node, "id", getattr(node, "attr", "")) for node in found)
    return [name for name in names if name]


def ladders(syntax: Syntax) -> int:
    """Return how often a module outside of the folder asks whether something is this mechanism or that statistic."""
    mechanism_home, statistic_home = Path("stream_dp/mechanisms"), Path("stream_dp/statistics")
    wired = "wire"
    mechanisms = {
        node.name
        for path, tree in syntax.items()
        if mechanism_home in path.parents
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and any(wired in ast.unparse(decorator) for decorator in node.decorator_list)
    }
    statistics = {kind.__name__ for kind in STATISTICS}
    count = 0
    for path, tree in syntax.items():
        asked = classes_asked(tree)
        if mechanism_home not in path.parents:
            count += sum(name in mechanisms for name in asked)
        if statistic_home not in path.parents:
            count += sum(name in statistics for name in asked)
    return count


def own_imports(syntax: Syntax) -> list[Path]:
    """Return the modules that import more of our modules than a reader can hold; the face is a list of names."""
    names = {named(path) for path in syntax}

    def count(tree: ast.Module) -> int:
        whole = {name for _, name in imported(tree)}
        return len((whole | {name.rpartition(".")[0] for name in whole}) & names)

    modules = {path: tree for path, tree in syntax.items() if path.suffix == ".py"}
    return [path for path, tree in modules.items() if count(tree) > OWN_IMPORTS]


def figures(syntax: Syntax) -> dict[str, int]:
    folders = entries(syntax)
    files = {named(path) for path in syntax if path.name != "__init__.py"} - by_design(syntax)
    used = importers(syntax)
    alone = [name for name in files if used[name] == 1]
    return {
        "folders of more than 20 entries": sum(n > FOLDER_ENTRIES for n in folders.values()),
        "entries of the largest folder": max(folders.values()),
        "modules with one importer, in per cent": round(100 * len(alone) / len(files)),
        "functions of more than 8 parameters": sum(
            len(many_parameters(tree)) for tree in syntax.values()
        ),
        "modules with more than 20 own imports": len(own_imports(syntax)),
        "isinstance with a mechanism or a statistic outside of its folder": ladders(syntax),
    }


def test_figures_only_fall(syntax: Syntax) -> None:
    today = figures(syntax)
    for name, figure in today.items():
        print(f"{name}: {figure} (goal {RATCHETS[name][1]})")  # shown by -rP
    assert today == {name: allowed for name, (allowed, _) in RATCHETS.items()}


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (lambda syntax: entries(syntax)[Path("stream_dp/core")], 2),
        (lambda syntax: importers(syntax)["stream_dp.core.tick"], 1),
        (lambda syntax: sum(len(many_parameters(tree)) for tree in syntax.values()), 1),
        (ladders, 2),
    ],
)
def test_each_figure_counts(count: Callable[[Syntax], int], expected: int) -> None:
    code = {
        "stream_dp/__init__.py": "",
        "stream_dp/core/__init__.py": "",
        "stream_dp/core/tick.py": "def f(self, a, b, c, d, e, f, g, h, *, i): ...\ndef g(a, b): ...",
        "stream_dp/core/deep/__init__.py": "import stream_dp.core.tick",
        "stream_dp/mechanisms/linear/tree.py": "@wire('tree', 1)\nclass Tree: ...\nisinstance(1, Tree)",
        "stream_dp/operate/see.py": "isinstance(x, Tree)\nisinstance(x, a.CountSeries | int)",
    }
    assert count({Path(path): ast.parse(source) for path, source in code.items()}) == expected


def test_statistics_and_entry_points_stand_alone_by_design() -> None:
    code = {
        "stream_dp/__init__.pyi": "from stream_dp.python.budget import Budget\nimport stream_dp.core.tick",
        "stream_dp/python/budget.py": "import stream_dp.core.tick",
        "stream_dp/core/tick.py": "",
        "stream_dp/statistics/count.py": "",
        "stream_dp/statistics/parts/choice.py": "",
    }
    syntax = {Path(path): ast.parse(source) for path, source in code.items()}
    assert by_design(syntax) == {"stream_dp.python.budget", "stream_dp.statistics.count"}


def test_a_module_that_knows_too_much_is_counted() -> None:
    many = {f"stream_dp/m{number}.py": "" for number in range(21)}
    reader = "\n".join(f"import stream_dp.m{number}" for number in range(21))
    code = {**many, "stream_dp/reader.py": reader, "stream_dp/__init__.py": ""}
    syntax = {Path(path): ast.parse(source) for path, source in code.items()}
    assert own_imports(syntax) == [Path("stream_dp/reader.py")]
