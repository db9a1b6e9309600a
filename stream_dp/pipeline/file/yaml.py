"""Reading a pipeline file: YAML whose scalars stay text, and every error at once with its place.

Rules: YAML decides on nothing but structure, so NO stays "NO" and 1e-6 stays exact; the models decide what a
text means. One `UsageError` lists all problems, each as `file:line:column: key.path: message`. Anchors
are fine in a file, but not in a live series, where a few would write out a thousandfold; tags, duplicate keys and empty
values are refused. This file knows no particular key.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic_core import ErrorDetails

from stream_dp.errors import UsageError
from stream_dp.pipeline.file.spec import PipelineSpec, diagnose, diagnose_series
from stream_dp.pipeline.file.told_problems import (
    BY_MESSAGE,
    Problem,
    joined,
    placed,
    problem_at,
    refuse_all,
)
from stream_dp.pipeline.file.yaml_nodes import nodes
from stream_dp.pipeline.file.yaml_words import yaml_words
from stream_dp.pipeline.routing.uncollected import uncollected
from stream_dp.statistics import Series

_T = TypeVar("_T")
_BREAKS = re.compile("[\x85\u2028\u2029]")
_HALF = "holds half of a pair of escapes, such as \\ud83d without \\ude00; write both halves, or the character itself"
_CONTROL = 'not valid YAML: holds a control character; write it in double quotes as an escape such as "\\u0007"'
_LIVE = "series"
_NULL = "has no value (null); leave it out, or put quotes around it if it is a text"
_NOTHING = {"": "has no value", **dict.fromkeys(("~", "null", "Null", "NULL"), _NULL)}
_STANDARD = "tag:yaml.org,2002:"


def load(path: str | Path) -> PipelineSpec:
    """Read and check a pipeline file; its relative paths become relative to its folder.

    Raises:
        UsageError: the file cannot be read or is not a valid pipeline; the message lists every problem.
    """
    path = Path(path)
    context = {"folder": path.parent}
    with uncollected():
        return _checked(_text(path), str(path), lambda data: diagnose(data, context))


def load_series(definition: bytes, spec: PipelineSpec, name: str = _LIVE) -> Series:
    """Read and check one entry of `series:` (YAML or JSON, no aliases), which is created beside those of the file.

    Raises:
        UsageError: it is no series of this pipeline; the message lists every problem with its key. Without a `name`
            of its own it came from elsewhere, and nothing of what is wrong with it is repeated.
    """

    def check(data: Any) -> Series | list[ErrorDetails]:
        return diagnose_series(data, spec)

    return load_live(definition, check, name)


def load_live(
    definition: bytes, check: Callable[[Any], _T | list[ErrorDetails]], name: str = _LIVE
) -> _T:
    """Read a definition (YAML or JSON, no aliases) that came while the engine runs: what `check` makes of it.

    `name` is the message's key that holds it, or where else it stands; of what came by message nothing is repeated.

    Raises:
        UsageError: all problems, as those of `load_series`.
    """
    try:
        text = definition.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{name}: not a text in UTF-8") from None
    return _checked(_unbroken(text), name, check, aliases=False)


def _unbroken(text: str) -> str:
    """The text; JSON with escapes for the characters at which YAML breaks lines, and would read a space for them."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text  # a text in YAML says what YAML makes of it
    return _BREAKS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _checked(
    text: str, name: str, check: Callable[[Any], _T | list[ErrorDetails]], *, aliases: bool = True
) -> _T:
    """The value that `check` makes of a text; all problems of both are told at once."""
    reader = _Reader(aliases)
    try:
        root = _compose(text, name)
        data = reader.value(root, "")
    except RecursionError:
        raise UsageError(f"{name}: not valid YAML: nested too deeply") from None
    if reader.aliased:
        refuse_all(
            name, reader.problems
        )  # unchecked: written out it may be a thousand times as long
    result = check(data)
    problems = list(reader.problems)
    if isinstance(result, list):
        told = {problem.path for problem in problems}
        found = placed(root, result, repeat=name not in BY_MESSAGE)
        problems += [problem for problem in found if problem.path not in told]
    if problems or isinstance(result, list):
        refuse_all(name, problems)
    return result


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not a text file in UTF-8") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None


def _compose(text: str, name: str) -> yaml.Node:
    try:
        root = nodes(text)
    except yaml.MarkedYAMLError as error:
        mark, words = yaml_words(error)
        here = "not valid JSON or YAML here; look for a comma, a quote or a bracket that is missing"
        message = here if name in BY_MESSAGE else f"not valid YAML: {words}"
        refuse_all(name, [problem_at(mark, "", message)])
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        refuse_all(name, [Problem(line, column, "", _CONTROL)])
    except (ValueError, OverflowError):
        # PyYAML checks neither \U00110000 nor the digits of %YAML 1.1
        raise UsageError(
            f"{name}: not valid YAML: holds an escape or a number that means nothing"
        ) from None
    if root is None:
        refuse_all(name, [Problem(1, 1, "", "is empty; it must hold keys and values")])
    if not isinstance(root, yaml.MappingNode):
        refuse_all(name, [problem_at(root.start_mark, "", "must be a mapping (key: value)")])
    return root


@dataclass(slots=True)
class _Reader:
    """Turns nodes into dicts, lists and text, and notes what YAML allows but a pipeline, or a live series, does not."""

    aliases: bool = True
    aliased: bool = False
    problems: list[Problem] = field(default_factory=list)
    _done: dict[int, Any] = field(default_factory=dict)
    _open: set[int] = field(default_factory=set)

    def value(self, node: yaml.Node, path: str) -> Any:
        """What the node says; a node that several aliases name is read once."""
        if self.aliases and _plainly_read(node):
            return node.value
        if id(node) in self._done:
            if not self.aliases and not self.aliased:
                self.aliased = True
                self._note(node, path, "an alias is not allowed in a live series; write it out")
            return self._done[id(node)]
        if id(node) in self._open:
            return self._note(node, path, "an anchor must not contain itself")
        self._open.add(id(node))
        value = self._fresh(node, path)
        self._open.discard(id(node))
        self._done[id(node)] = value
        return value

    def _note(self, node: yaml.Node, path: str, message: str) -> None:
        self.problems.append(problem_at(node.start_mark, path, message))

    def _fresh(self, node: yaml.Node, path: str) -> Any:
        if not node.tag.startswith(_STANDARD):
            return self._note(node, path, f"the tag '{node.tag}' is not supported")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, joined(path, i)) for i, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode) and node.value in _NOTHING and not node.style:
            return self._note(node, path, _NOTHING[node.value])
        return self._whole(node, path)

    def _whole(self, node: yaml.Node, path: str) -> Any:
        """The scalar's text; JSON writes a character beyond U+FFFF as a pair of escapes, which YAML leaves as two."""
        try:
            node.value = node.value.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            return self._note(node, path, _HALF)
        return node.value

    def _mapping(self, node: yaml.MappingNode, path: str) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._note(key, path, "a key must be text")
            elif not key.value.isascii() and self._whole(key, joined(path, "[key]")) is None:
                continue
            elif key.value in entries:
                self._note(key, joined(path, key.value), "this key is already there")
            elif not value.value and (why := _unspaced(key.value)):
                self._note(key, path, why)
            elif self.aliases and _plainly_read(value):
                entries[key.value] = value.value
            else:
                entries[key.value] = self.value(value, joined(path, key.value))
        return entries


def _unspaced(key: str) -> str:
    """Why a key has no value, where that is plain from the key."""
    name, colon, value = key.partition(":")
    if colon and value:
        return f"a space is missing behind the colon: '{name}: {value}'"
    return "a comma ends an entry here; a decimal has a point, such as 0.5" if key.isdigit() else ""


def _plainly_read(node: yaml.Node) -> bool:
    """Whether a node is a text that says what stands there, and nothing is to be noted of it."""
    return (
        type(node) is yaml.ScalarNode
        and node.value.isascii()
        and (node.value not in _NOTHING or bool(node.style))
        and node.tag.startswith(_STANDARD)
    )
