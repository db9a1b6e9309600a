"""The public face: what is public is listed, loads when it is used, and is documented.

Each check is a function from a module (or its source) to what is wrong with it, tried on one that breaks it.
"""

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import stream_dp
from stream_dp.statistics import STATISTICS


def missing(module: ModuleType) -> list[str]:
    return [name for name in module.__all__ if not hasattr(module, name)]


def unlisted(module: ModuleType) -> list[str]:
    found = vars(module).items()
    public = [name for name, value in found if name[0] != "_" and not inspect.ismodule(value)]
    return [name for name in public if name not in module.__all__]


def packages() -> Iterator[ModuleType]:
    found = pkgutil.walk_packages(stream_dp.__path__, "stream_dp.")
    names = ["stream_dp", *(each.name for each in found if each.ispkg)]
    modules = [importlib.import_module(name) for name in names]
    return (module for module in modules if hasattr(module, "__all__"))


def undescribed(function: Callable[..., object]) -> list[str]:
    """Parameters that a docstring does not name: in a section in numpy style, or as `code` in its prose."""
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    text = inspect.getdoc(function) or ""
    section = text.partition("Parameters\n----------\n")[2].partition("\n\n")[0]
    headings = (line.partition(" : ")[0] for line in section.splitlines() if line[:1] != " ")
    described = {name.lstrip("*") for heading in headings for name in heading.split(", ")}
    return [name for name in names if name not in described and f"`{name}`" not in text]


def test_the_one_list_names_what_is_there_once(root: Path) -> None:
    stub = ast.parse((root / "stream_dp" / "__init__.pyi").read_text())
    named = [each for node in stub.body if isinstance(node, ast.ImportFrom) for each in node.names]
    hidden = [each.name for each in named if each.asname != each.name]
    assert hidden == []  # of a name without an alias no type checker shows anything
    assert sorted(each.name for each in named) == stream_dp.__all__
    assert {kind.__name__.removesuffix("Series") for kind in STATISTICS} <= set(stream_dp.__all__)


def test_every_name_of_every_package_is_there_and_no_other() -> None:
    found = list(packages())
    assert {"stream_dp", "stream_dp.noise"} <= {module.__name__ for module in found}
    for module in found:
        assert (missing(module), unlisted(module)) == ([], [])


def test_the_package_shows_its_names_and_no_other() -> None:
    assert dir(stream_dp) == sorted([*stream_dp.__all__, "__version__"])
    namespace: dict[str, object] = {}
    exec("from stream_dp import *", namespace)  # noqa: S102 - it is what is tested
    assert namespace.keys() - {"__builtins__"} == set(stream_dp.__all__)
    for name in ("Bugdet", "bugdet", "Fraction"):
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
            getattr(stream_dp, name)


def test_every_public_method_describes_its_parameters() -> None:
    """But `run_async`, whose docstring refers to that of `run`."""
    functions: list[Callable[..., object]] = [stream_dp.Budget]
    names = ("Budget", "ContinualSeries", "ContinualCounter", "ContinualHistogram", "Pipeline")
    for kind in (getattr(stream_dp, name) for name in names):
        members = inspect.getmembers(kind, callable)
        functions += [f for name, f in members if name[0] != "_" and name != "run_async"]
    assert [(f.__qualname__, undescribed(f)) for f in functions if undescribed(f)] == []


def test_broken_faces_are_found() -> None:
    module = ModuleType("broken")
    vars(module).update({"__all__": ["here", "gone"], "here": 1, "extra": 2, "sub": ast})
    assert (missing(module), unlisted(module)) == (["gone"], ["extra"])

    def told(one: int, other: int) -> None:
        """Do.

        Parameters
        ----------
        one : int
            The one.
        """

    assert undescribed(told) == ["other"]
