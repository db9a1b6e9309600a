"""The public names of Python as a page: below each name of docs/python_names.md its signature and its docstring."""

import re
from typing import Any, get_args

import stream_dp

NAME = re.compile(r"^- `([\w.]+)`$", re.MULTILINE)
CLASS = """\
   :members:
   :member-order: bysource
   :inherited-members: Statistic, Mapping, BaseException, str, tuple, Protocol, object
   :exclude-members: kind
"""
MARKED = re.compile(r"(?<!`)`([^`]+)`(?!`)")


def value_of(name: str) -> Any:
    """The object of a public name, or of a path below the package."""
    found: Any = stream_dp
    for part in name.split("."):
        found = getattr(found, part)
    return found


def directive(match: re.Match[str]) -> str:
    """What Sphinx replaces by the documentation of a name; of a union its parts."""
    name, value = match[1], value_of(match[1])
    if parts := get_args(value):
        return f"**{name}**: one of " + ", ".join(f"`{each.__name__}`" for each in parts) + "\n"
    if isinstance(value, type):
        options = CLASS + "   :show-inheritance:\n" * issubclass(value, Exception)
        return f"```{{eval-rst}}\n.. autoclass:: stream_dp.{name}\n{options}```\n"
    return f"```{{eval-rst}}\n.. autofunction:: stream_dp.{name}\n```\n"


def names_page(page: str) -> str:
    return NAME.sub(directive, page)


def as_read(signature: str | None) -> str | None:
    """Return a signature, or what it returns, with the short name of measures."""
    measures = " | ".join(
        f"~{each.__module__}.{each.__name__}" for each in get_args(stream_dp.Measure)
    )
    short = signature and signature.replace("<factory>", "...")
    return short and short.replace(measures, "~stream_dp.Measure")


def as_markup(lines: list[str]) -> None:
    """Rewrite a docstring, in place, from the form of this repository to that of Sphinx: backticks are code."""
    for at, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            lines[at] = MARKED.sub(r"``\1``", line)
