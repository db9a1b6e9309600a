"""How problems of a pipeline file are told: where each stands in the text, what is wrong, and what may be meant.

Rules: a problem is one line, with the place as editors take it. What was written is repeated in quotes alone, and of
what came by message nothing is; names that may be meant are public. This file knows no particular key.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import yaml
from pydantic_core import ErrorDetails

from stream_dp.core.near_names import near_names
from stream_dp.errors import UsageError
from stream_dp.pipeline.file.error_words import (
    UNKNOWN,
    Written,
    as_list,
    message,
    near_key,
    suggestion,
)
from stream_dp.pipeline.file.undeclared import declaring

MOST = 100  # problems told at once: each is looked up in the text, which takes time in its length
BY_MESSAGE = ("series", "watch")
"""Names of texts that did not come from a file: nothing of them is repeated."""
_QUOTED = re.compile(r"'.*'", re.DOTALL)  # of one problem: a value may hold quotes and line breaks
_DISCRIMINATORS = ("kind", "type", "statistic")


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """What is wrong at a place of the text, by its keys `path`; `meant` is what may be meant, of public names."""

    line: int
    column: int
    path: str
    message: str
    meant: str = ""

    def told(self, name: str) -> str:
        """The problem, in the text of this name; of a file with the place as editors take it."""
        where = f"{name}:{self.line}:{self.column}: "
        if name in BY_MESSAGE:
            where = f"{name}, line {self.line}, column {self.column}: "
        return where + (f"{self.path}: " if self.path else "") + self.message + self.meant


def refuse_all(name: str, problems: Sequence[Problem]) -> NoReturn:
    """Raise one `UsageError` with all problems of the text of this name."""
    if name in BY_MESSAGE:
        problems = [
            replace(each, message=_QUOTED.sub("what stands there", each.message))
            for each in problems
        ]
    told = [each.told(name) for each in sorted(problems)[:MOST]]
    more = [f"{name}: at least {MOST} problems; the rest is not listed"] * (len(problems) >= MOST)
    raise UsageError("\n".join([*told, *more]))


def problem_at(mark: Any, path: str, message: str, meant: str = "") -> Problem:
    """Return a problem at one of the reader's marks."""
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    return Problem(line, column, path, message, meant)


def joined(path: str, key: str | int) -> str:
    """Return the place of a key, or of an item, within another place."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def placed(root: yaml.Node, errors: Sequence[ErrorDetails], *, repeat: bool = True) -> set[Problem]:
    """Return the problems of a text that pydantic found, where they stand; of more than `MOST` the first.

    What follows from another problem is left out: a list that is too short for its items are wrong, and a key that is
    missing where another one is meant to be it. `repeat`: what was written may be repeated as it would be right.
    """
    some = [error for error in errors[:MOST] if not _follows(error, errors)]
    meant = {place for error in some if (place := _meant(root, error)) is not None}
    return {
        _place(root, error, repeat=repeat)
        for error in some
        if error["type"] != "missing" or error["loc"] not in meant
    }


@dataclass(slots=True)
class _Walk:
    """Follows an error's location through the file; a union's tag in the location has no place there."""

    node: yaml.Node
    mark: Any
    key_mark: Any
    path: str = ""
    tagged: bool = False

    def step(self, part: str | int) -> None:
        """Go to the entry `part` of the current node, or stay where there is none."""
        if isinstance(self.node, yaml.SequenceNode) and isinstance(part, int):
            if part < len(self.node.value):
                self._enter(self.node.value[part], None, part)
            else:  # an item that is missing
                self.path = joined(self.path, part)
        elif isinstance(self.node, yaml.MappingNode):
            if part == "[key]":
                self.mark = self.key_mark
            elif part == self._tag() and not self.tagged:
                self.tagged = True
            else:
                self._key(self.node, part)

    def _key(self, node: yaml.MappingNode, part: str | int) -> None:
        for key, value in node.value:
            if key.value == part:
                return self._enter(value, key, part)
        self.path = joined(self.path, part)
        return None

    def _enter(self, node: yaml.Node, key: yaml.Node | None, part: str | int) -> None:
        self.node, self.mark, self.tagged = node, node.start_mark, False
        self.key_mark = (key or node).start_mark
        self.path = joined(self.path, part)

    def _tag(self) -> str | None:
        for key, value in self.node.value:
            if key.value in _DISCRIMINATORS and isinstance(value, yaml.ScalarNode):
                return str(value.value)
        return None


def _place(root: yaml.Node, error: ErrorDetails, *, repeat: bool) -> Problem:
    """Where and how to tell one of pydantic's errors."""
    if error["type"] == "union_tag_not_found":
        return _untold(root, error)
    loc = error["loc"]
    if error["type"].startswith("union_tag"):
        loc = (*loc, error["ctx"]["discriminator"].strip("'"))
    walk = _walked(root, loc)
    written = _written(root, error, walk.node, repeat=repeat)
    said = declaring(error, walk.node, message(error, written))
    mark = walk.key_mark if error["type"] == "extra_forbidden" else walk.mark
    return problem_at(mark, walk.path, said, suggestion(error, written))


def _walked(root: yaml.Node, loc: Sequence[str | int]) -> _Walk:
    walk = _Walk(root, root.start_mark, root.start_mark)
    for part in loc:
        walk.step(part)
    return walk


def _written(root: yaml.Node, error: ErrorDetails, node: yaml.Node, *, repeat: bool) -> Written:
    if error["type"] == "extra_forbidden":
        beside = _walked(root, error["loc"][:-1]).node
        return Written(str(error["loc"][-1]), keys=_keys(beside))
    if isinstance(node, yaml.ScalarNode):
        return Written(node.value, "text", (), as_list(node.value) if repeat else None)
    return Written(form="list" if isinstance(node, yaml.SequenceNode) else "mapping")


def _keys(node: yaml.Node) -> tuple[str, ...]:
    """The keys of a mapping that are texts."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return tuple(key.value for key, _ in pairs if isinstance(key, yaml.ScalarNode))


def _meant(root: yaml.Node, error: ErrorDetails) -> tuple[str | int, ...] | None:
    """The place of the key that an unknown one is meant to be."""
    if error["type"] != "extra_forbidden":
        return None
    key = near_key(error, _written(root, error, root, repeat=False))
    return None if key is None else (*error["loc"][:-1], key)


def _untold(root: yaml.Node, error: ErrorDetails) -> Problem:
    """What to say of a mapping without the key that tells which of several it is."""
    walk, key = _walked(root, error["loc"]), error["ctx"]["discriminator"].strip("'")
    pairs = [pair for pair in walk.node.value if isinstance(pair[0], yaml.ScalarNode)]
    for wrong, value in pairs:
        if near_names(wrong.value, [key]):
            path = joined(walk.path, wrong.value)
            return problem_at(wrong.start_mark, path, UNKNOWN, f"; did you mean {key}?")
        if key in _keys(value):
            deeper = f"is missing; it stands deeper, below '{wrong.value}'"
            return problem_at(walk.mark, joined(walk.path, key), deeper)
    return problem_at(walk.mark, joined(walk.path, key), "is missing")


def _follows(error: ErrorDetails, errors: Sequence[ErrorDetails]) -> bool:
    """Whether a list is too short only because something is wrong with each of its entries."""
    if error["type"] != "too_short" or error["ctx"]["actual_length"]:
        return False
    loc = error["loc"]
    return any(other["loc"][: len(loc)] == loc for other in errors if other is not error)
