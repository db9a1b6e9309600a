"""Reading a pipeline file: YAML whose scalars stay text, and every error at once with its place.

Rules: YAML decides on nothing but structure, so NO stays "NO" and 1e-6 stays exact; the models decide what a
text means. One `UsageError` lists all problems (up to `MOST`), each as `file:line:column: key.path: message`. Anchors
are fine in a file, but not in a live series, where a few would write out a thousandfold; tags, duplicate keys and empty
values are refused. This file knows no particular key.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml
from pydantic_core import ErrorDetails

from stream_dp.errors import UsageError
from stream_dp.pipeline.scalars import PATTERNS
from stream_dp.pipeline.spec import PipelineSpec, diagnose, diagnose_series
from stream_dp.pipeline.statistics import Series
from stream_dp.pipeline.uncollected import uncollected
from stream_dp.pipeline.undeclared import declaring
from stream_dp.pipeline.yaml_nodes import nodes

_T = TypeVar("_T")
MOST = 100  # problems told at once: each is looked up in the text, which takes time in its length
_BREAKS = re.compile("[\x85\u2028\u2029]")
_QUOTED = re.compile(r"'.*'", re.DOTALL)  # of one problem: a value may hold quotes and line breaks

_HALF = "holds half of a pair of escapes, such as \\ud83d without \\ude00; write both halves, or the character itself"
_CONTROL = 'not valid YAML: holds a control character; write it in double quotes as an escape such as "\\u0007"'
_LIVE = "series"
_BY_MESSAGE = (
    _LIVE,
    "watch",
)  # names of texts that did not come from a file: nothing of them is repeated
_STANDARD = "tag:yaml.org,2002:"
_DISCRIMINATORS = ("kind", "type", "statistic")
_MESSAGES = {
    "missing": "is missing",
    "extra_forbidden": "is not a known key",
    "model_type": "must be a mapping (key: value)",
    "model_attributes_type": "must be a mapping (key: value)",
    "dict_type": "must be a mapping (key: value)",
    "tuple_type": "must be a list",
    "string_type": "must be text",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "bool_parsing": "must be true or false",
}


@dataclass(frozen=True, slots=True, order=True)
class _Problem:
    line: int
    column: int
    path: str
    message: str

    def told(self, name: str) -> str:
        """The problem, in the text of this name; of a file with the place as editors take it."""
        where = f"{name}:{self.line}:{self.column}: "
        if name in _BY_MESSAGE:
            where = f"{name}, line {self.line}, column {self.column}: "
        return where + (f"{self.path}: " if self.path else "") + self.message


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
        _refuse(name, reader.problems)  # unchecked: written out it may be a thousand times as long
    result = check(data)
    problems = list(reader.problems)
    if isinstance(result, list):
        told = {problem.path for problem in problems}
        found = {_place(root, error) for error in result[:MOST] if not _follows(error, result)}
        problems += [problem for problem in found if problem.path not in told]
    if problems or isinstance(result, list):
        _refuse(name, problems)
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
        mark = error.problem_mark or error.context_mark
        here = "not valid JSON or YAML here; look for a comma, a quote or a bracket that is missing"
        message = (
            here if name in _BY_MESSAGE else f"not valid YAML: {error.problem or error.context}"
        )
        _refuse(name, [_at(mark, "", message)])
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        _refuse(name, [_Problem(line, column, "", _CONTROL)])
    except (ValueError, OverflowError):
        # PyYAML checks neither \U00110000 nor the digits of %YAML 1.1
        raise UsageError(
            f"{name}: not valid YAML: holds an escape or a number that means nothing"
        ) from None
    if root is None:
        _refuse(name, [_Problem(1, 1, "", "is empty; it must hold keys and values")])
    if not isinstance(root, yaml.MappingNode):
        _refuse(name, [_at(root.start_mark, "", "must be a mapping (key: value)")])
    return root


def _refuse(name: str, problems: Sequence[_Problem]) -> NoReturn:
    if name in _BY_MESSAGE:
        problems = [
            replace(each, message=_QUOTED.sub("what stands there", each.message))
            for each in problems
        ]
    told = [each.told(name) for each in sorted(problems)[:MOST]]
    more = [f"{name}: at least {MOST} problems; the rest is not listed"] * (len(problems) >= MOST)
    raise UsageError("\n".join([*told, *more]))


def _at(mark: Any, path: str, message: str) -> _Problem:
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    return _Problem(line, column, path, message)


def _join(path: str, key: str | int) -> str:
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


@dataclass(slots=True)
class _Reader:
    """Turns nodes into dicts, lists and text, and notes what YAML allows but a pipeline, or a live series, does not."""

    aliases: bool = True
    aliased: bool = False
    problems: list[_Problem] = field(default_factory=list)
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
        self.problems.append(_at(node.start_mark, path, message))

    def _fresh(self, node: yaml.Node, path: str) -> Any:
        if not node.tag.startswith(_STANDARD):
            return self._note(node, path, f"the tag '{node.tag}' is not supported")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, _join(path, i)) for i, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode) and not node.value and not node.style:
            return self._note(node, path, "has no value")
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
            elif not key.value.isascii() and self._whole(key, _join(path, "[key]")) is None:
                continue
            elif key.value in entries:
                self._note(key, _join(path, key.value), "this key is already there")
            elif self.aliases and _plainly_read(value):
                entries[key.value] = value.value
            else:
                entries[key.value] = self.value(value, _join(path, key.value))
        return entries


def _plainly_read(node: yaml.Node) -> bool:
    """Whether a node is a text that says what stands there, and nothing is to be noted of it."""
    return (
        type(node) is yaml.ScalarNode
        and node.value.isascii()
        and (node.value != "" or bool(node.style))
        and node.tag.startswith(_STANDARD)
    )


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
                self.path = _join(self.path, part)
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
        self.path = _join(self.path, part)
        return None

    def _enter(self, node: yaml.Node, key: yaml.Node | None, part: str | int) -> None:
        self.node, self.mark, self.tagged = node, node.start_mark, False
        self.key_mark = (key or node).start_mark
        self.path = _join(self.path, part)

    def _tag(self) -> str | None:
        for key, value in self.node.value:
            if key.value in _DISCRIMINATORS and isinstance(value, yaml.ScalarNode):
                return str(value.value)
        return None


def _place(root: yaml.Node, error: ErrorDetails) -> _Problem:
    """Where and how to tell one of pydantic's errors."""
    walk = _Walk(root, root.start_mark, root.start_mark)
    loc = error["loc"]
    if error["type"].startswith("union_tag"):
        loc = (*loc, error["ctx"]["discriminator"].strip("'"))
    for part in loc:
        walk.step(part)
    if error["type"] == "union_tag_not_found":
        return _at(walk.mark, walk.path, f"is missing{_meant(walk.node, str(loc[-1]))}")
    at_key = error["type"] == "extra_forbidden"
    said = declaring(error, walk.node, message(error))
    return _at(walk.key_mark if at_key else walk.mark, walk.path, said)


def _follows(error: ErrorDetails, errors: Sequence[ErrorDetails]) -> bool:
    """Whether a list is too short only because something is wrong with each of its entries."""
    if error["type"] != "too_short" or error["ctx"]["actual_length"]:
        return False
    loc = error["loc"]
    return any(other["loc"][: len(loc)] == loc for other in errors if other is not error)


def _meant(node: yaml.Node, missing: str) -> str:
    """A key of this mapping that looks like the missing one."""
    near = get_close_matches(missing, [key.value for key, _ in node.value])
    return f"; did {near[0]} mean this?" if near else ""


def message(error: ErrorDetails) -> str:
    """What is wrong, in the words of the house."""
    if error["type"] == "union_tag_invalid":
        # only what was written stands in quotes
        offered = error["ctx"]["expected_tags"].replace("'", "")
        return f"'{error['ctx']['tag']}' is none of {offered}"
    if error["type"] == "extra_forbidden" and (known := error.get("ctx", {}).get("known")):
        return f"is not a known key; known are {', '.join(known)}"
    if error["type"] == "string_pattern_mismatch" and error["ctx"]["pattern"] in PATTERNS:
        return PATTERNS[error["ctx"]["pattern"]]
    message = error["msg"].removeprefix("Value error, ")
    message = message.replace(" after validation", "")
    for subject in ("Input", "String", "Value", "Tuple", "Dictionary"):
        message = message.replace(f"{subject} should", "must")
    return _MESSAGES.get(error["type"], message)
