"""Reads a pipeline file: YAML whose scalars stay text, with the place of every problem.

Rules: YAML decides only on structure, so NO stays "NO" and 1e-6 stays exact; the models interpret texts. One
`UsageError` lists the problems, each as `file:line:column: key.path: message`; of a definition that came by message
nothing is repeated. Anchors are allowed in a file but not in a live series, where a few of them could expand a
thousandfold. Tags, duplicate keys and empty values are refused. This file knows no particular key.
"""

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from stream_dp.core.wording import near_names
from stream_dp.errors import UsageError
from stream_dp.pipeline.layout import uncollected
from stream_dp.pipeline.problems import (
    UNKNOWN,
    Written,
    as_list,
    explained,
    message,
    near_key,
    suggestion,
)
from stream_dp.pipeline.spec import PipelineSpec, diagnose, diagnose_series
from stream_dp.records.scalars import UNDECLARED
from stream_dp.statistics import Series

# The nodes of a YAML text: from PyYAML, and for a long text from libyaml, which is thirty times as fast. Both must
# agree, or PyYAML decides, whose messages and places are shown to people: it reads a text that libyaml refuses, and
# characters which the two read differently. Nodes without a tag get a standard tag without further meaning. libyaml
# has no limit of nesting and does not protect the stack; here it has a limit.

LONG = 1 << 12  # characters; PyYAML reads a shorter text in a tenth of a second
MOST_NESTED = 100
PLAIN_TAG = "tag:yaml.org,2002:str"
_ALIKE = re.compile("[\n\x20-\x3e@-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd]*")
_UNLIKE = re.compile(r"^(?:\.\.\.|---|%)", re.MULTILINE)


class _TooDeep(Exception):
    """The text is nested more deeply than any pipeline."""


class _Fast(getattr(yaml, "CSafeLoader", object)):  # type: ignore[misc]  # if there is libyaml
    """Composes nodes with libyaml and acts as its resolver."""

    depth = 0

    def resolve(self, kind: Any, value: Any, implicit: Any) -> str:
        return PLAIN_TAG

    def descend_resolver(self, parent: Any, index: Any) -> None:
        self.depth += 1
        if self.depth > MOST_NESTED:
            raise _TooDeep

    def ascend_resolver(self) -> None:
        self.depth -= 1


def nodes(text: str) -> yaml.Node | None:
    """Return the root of a text's single document, None without one. A plain scalar has style None or "". Raises
    yaml.YAMLError, ValueError, OverflowError, RecursionError: it is not YAML, or nested too deeply.
    """
    root: yaml.Node | None
    if yaml.__with_libyaml__ and len(text) >= LONG and read_alike(text):
        with suppress(_TooDeep, yaml.YAMLError, ValueError, RecursionError):
            root = _Fast(text).get_single_node()
            return root
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    return root


def read_alike(text: str) -> bool:
    """Whether it has no tabs, line breaks but line feeds, document markers, directives or `?`, where readers differ."""
    return _ALIKE.fullmatch(text) is not None and _UNLIKE.search(text) is None


MOST = 100  # problems listed at once: finding each in the text takes time in its length
# names of texts that came by message: their content is never repeated
_BY_MESSAGE = ("series", "watch")
_T = TypeVar("_T")
_M = TypeVar("_M", bound=BaseModel)
_ESCAPED = re.compile("[\x7f-\uffff]")
_BREAKS = re.compile("[\x85\u2028\u2029]")
_QUOTED = re.compile(r"'.*'", re.DOTALL)  # greedy: a value may contain quotes and line breaks
_HALF = "holds half of a pair of escapes, such as \\ud83d without \\ude00; write both halves, or the character itself"
_CONTROL = 'not valid YAML: holds a control character; write it in double quotes as an escape such as "\\u0007"'
_LIVE, _SCHEMA = "series", "schema"
_NULL = "has no value (null); leave it out, or put quotes around it if it is a text"
_NOTHING = {"": "has no value", **dict.fromkeys(("~", "null", "Null", "NULL"), _NULL)}
_STANDARD = "tag:yaml.org,2002:"
_DISCRIMINATORS = ("kind", "type", "statistic", "format")
_VALUES = (
    "list the values that may come, such as [DE, FR], from what you know and not from the data"
)
_QUOTES = "a text that begins with such a sign needs quotes around it"
_WORDS: Final[tuple[tuple[str, str], ...]] = (
    (r"found character '\\t'", "a tab stands here; YAML wants spaces"),
    (r"found character|scanning (an (alias|anchor)|a (directive|block scalar))|a tag", _QUOTES),
    (r"quoted scalar.*found unexpected", "the quotes that begin here are never closed"),
    (r"found unknown escape", "\\ begins an escape in double quotes; write \\\\"),
    (r"simple key.*expected ':'", "a key without ': ' behind it; a space belongs behind the colon"),
    (r"mapping values are not allowed",
     "a colon too many, a dash without a space, or a line indented unlike those above; a text with ': ' needs quotes"),
    (r"<block end>, but found '<block ", "is indented unlike the lines that it belongs to"),
    (r"<block end>, but found '\?'", "a key stands here, where the lines above are entries of a list"),
    (r"<block end>, but found '-'", "an entry of a list stands here, where the lines above are keys"),
    (r"expected ',' or '(.)', but got", "a comma is missing before this, or the {0} to what opens {1}"),
    (r"expected", "text stands behind what has ended already"),
)  # fmt: skip
"""Patterns for PyYAML's context and problem, the first match counts, each with the text for people."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """A problem at a place of the text, with its keys as `path`; `meant` suggests a public name."""

    line: int
    column: int
    path: str
    message: str
    meant: str = ""

    def text(self, name: str) -> str:
        """Return the problem as a line; for a file with the place in the form that editors read."""
        where = f"{name}:{self.line}:{self.column}: "
        if name in _BY_MESSAGE:
            where = f"{name}, line {self.line}, column {self.column}: "
        return where + (f"{self.path}: " if self.path else "") + self.message + self.meant


def _refuse(name: str, problems: Sequence[Problem]) -> NoReturn:
    if name in _BY_MESSAGE:
        problems = [
            replace(problem, message=_QUOTED.sub("what stands there", problem.message))
            for problem in problems
        ]
    lines = [problem.text(name) for problem in sorted(problems)[:MOST]]
    more = [f"{name}: at least {MOST} problems; the rest is not listed"] * (len(problems) >= MOST)
    raise UsageError("\n".join([*lines, *more]))


def _problem_at(mark: Any, path: str, message: str, meant: str = "") -> Problem:
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    return Problem(line, column, path, message, meant)


def joined(path: str, key: str | int) -> str:
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def load(path: str | Path) -> PipelineSpec:
    """Read and check a pipeline file; its relative paths become relative to its folder.

    Raises `UsageError`: the file cannot be read or is not a valid pipeline; the message lists all problems of single
    parts, or if there are none, all conflicts between parts.
    """
    path = Path(path)
    return load_text(_text(path), path.parent, str(path))


def load_as(path: Path, kind: type[_M]) -> _M:
    """Read and check another file of the operator's, as a model; errors and paths are as of `load`."""

    def check(data: Any) -> _M | list[ErrorDetails]:
        try:
            return kind.model_validate(data, context={"folder": path.parent})
        except ValidationError as error:
            return explained(error, data, kind)

    return _checked(_text(path), str(path), check)


def load_text(text: str, folder: Path, name: str) -> PipelineSpec:
    """Read and check the text of a pipeline file called `name` in `folder`; errors are those of `load`."""
    with uncollected():
        return _checked(text, name, lambda data: diagnose(data, {"folder": folder}))


def load_series(definition: bytes, spec: PipelineSpec, name: str = _LIVE) -> Series:
    """Read and check one entry of `series:` (YAML or JSON, no aliases) that is created beside the file's series.

    Raises `UsageError`: it is no series of this pipeline; the message lists every problem with its key. With the
    default `name` the text came by message, and its content is not repeated.
    """
    return load_live(definition, lambda data: diagnose_series(data, spec), name)


def load_live(
    definition: bytes, check: Callable[[Any], _T | list[ErrorDetails]], name: str = _LIVE
) -> _T:
    """Read a definition (YAML or JSON, no aliases) for a running engine, and return the result of `check`. `name` is
    the key of the message, or another name of its place. Raises like `load_series`.
    """
    try:
        text = definition.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{name}: is not UTF-8 text") from None
    return _checked(_unbroken(text), name, check, aliases=False)


def canonical_series(series: Series) -> bytes:
    """Return the definition as journals and messages hold it: JSON that reads the same as YAML."""
    return escaped(
        series.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=series.left_out)
    )


def escaped(plain: Any) -> bytes:
    """Return plain values as JSON that reads the same as YAML, which breaks lines at some characters, refuses others
    unless they are escaped, and takes no surrogate pairs.
    """
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode()


def _unbroken(text: str) -> str:
    """Return the text; in JSON, escape the characters at which YAML would break lines."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text  # not JSON: YAML's own meaning counts
    return _BREAKS.sub(lambda sign: f"\\u{ord(sign[0]):04x}", text)


def _checked(
    text: str, name: str, check: Callable[[Any], _T | list[ErrorDetails]], *, aliases: bool = True
) -> _T:
    """Return the value that `check` makes of a text; report all problems of reading and checking at once."""
    reader = _Reader(aliases)
    try:
        root = _compose(text, name)
        data = reader.value(root, "")
    except RecursionError:
        raise UsageError(f"{name}: not valid YAML: nested too deeply") from None
    if reader.aliased:
        _refuse(name, reader.problems)  # unchecked: expanded it may be a thousand times as long
    result = check(data)
    problems = list(reader.problems)
    if isinstance(result, list):
        noted = {problem.path for problem in problems}
        wrong = placed(root, result, repeat=name not in _BY_MESSAGE)
        problems += [problem for problem in wrong if problem.path not in noted]
    if problems or isinstance(result, list):
        _refuse(name, problems)
    return result


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"{path}: this file does not exist") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not a text file in UTF-8") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None


def _compose(text: str, name: str) -> yaml.Node:
    try:
        root = nodes(text)
    except yaml.MarkedYAMLError as error:
        mark, words = _syntax(error)
        here = "not valid JSON or YAML here; look for a comma, a quote or a bracket that is missing"
        message = here if name in _BY_MESSAGE else f"not valid YAML: {words}"
        _refuse(name, [_problem_at(mark, "", message)])
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        _refuse(name, [Problem(line, column, "", _CONTROL)])
    except (ValueError, OverflowError):
        # PyYAML checks neither \U00110000 nor the digits of %YAML 1.1
        why = "not valid YAML: holds an escape or a number that means nothing"
        raise UsageError(f"{name}: {why}") from None
    if root is None:
        _refuse(name, [Problem(1, 1, "", "is empty; it must hold keys and values")])
    if not isinstance(root, yaml.MappingNode):
        _refuse(name, [_problem_at(root.start_mark, "", "must be a mapping (key: value)")])
    return root


def _syntax(error: yaml.MarkedYAMLError) -> tuple[Any, str]:
    """Return the mark and the text for a reader's error; the mark is not always where the reader stopped."""
    context, what = error.context or "", error.problem or ""
    mark, begins = error.problem_mark or error.context_mark, error.context_mark
    if re.search("simple key|quoted scalar.*unexpected", text := f"{context}: {what}"):
        mark = begins
    opens = "before" if begins is None else f"in line {begins.line + 1}, column {begins.column + 1}"
    for sign, words in _WORDS:
        if match := re.search(sign, text):
            return mark, words.format(*match.groups()[-1:], opens)
    return mark, what or context


@dataclass(slots=True)
class _Reader:
    aliases: bool = True
    aliased: bool = False
    problems: list[Problem] = field(default_factory=list)
    _done: dict[int, Any] = field(default_factory=dict)
    _open: set[int] = field(default_factory=set)

    def value(self, node: yaml.Node, path: str) -> Any:
        """Return the node's value; a node with several aliases is read once."""
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
        value = self._done[id(node)] = self._fresh(node, path)
        self._open.discard(id(node))
        return value

    def _note(self, node: yaml.Node, path: str, message: str) -> None:
        self.problems.append(_problem_at(node.start_mark, path, message))

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
    """Return why a key has no value, if the key itself shows that."""
    name, colon, value = key.partition(":")
    if colon and value:
        return f"a space is missing behind the colon: '{name}: {value}'"
    return "a comma ends an entry here; a decimal has a point, such as 0.5" if key.isdigit() else ""


def _plainly_read(node: yaml.Node) -> bool:
    return (
        type(node) is yaml.ScalarNode
        and node.value.isascii()
        and (node.value not in _NOTHING or bool(node.style))
        and node.tag.startswith(_STANDARD)
    )


def placed(root: yaml.Node, errors: Sequence[ErrorDetails], *, repeat: bool = True) -> set[Problem]:
    """Return pydantic's errors as problems with places in the text, at most `MOST`.

    Consequences of other problems are left out: a list that is too short because its items are wrong, and a missing
    key that a misspelled one stands for. `repeat`: written text may be repeated in corrected form.
    """
    some = [error for error in errors[:MOST] if not _follows(error, errors)]
    meant = {place for error in some if (place := _meant(root, error)) is not None}
    return {
        _place(root, error, repeat=repeat)
        for error in some
        if error["type"] != "missing" or error["loc"] not in meant
    }


class _Walk(NamedTuple):
    """Where an error's location leads to in the file."""

    node: yaml.Node
    mark: Any
    key_mark: Any
    path: str


def _place(root: yaml.Node, error: ErrorDetails, *, repeat: bool) -> Problem:
    if error["type"] == "union_tag_not_found":
        return _untold(root, error)
    loc = error["loc"]
    if error["type"].startswith("union_tag"):
        loc = (*loc, error["ctx"]["discriminator"].strip("'"))
    walk = _walked(root, loc)
    written = _written(root, error, walk.node, repeat=repeat)
    wrong = _declaring(error, walk.node, message(error, written))
    mark = walk.key_mark if error["type"] == "extra_forbidden" else walk.mark
    return _problem_at(mark, walk.path, wrong, suggestion(error, written))


def _walked(root: yaml.Node, loc: Sequence[str | int]) -> _Walk:
    """Follow an error's location through the file; a union's tag in the location is skipped."""
    node, mark, key_mark, path, tagged = root, root.start_mark, root.start_mark, "", False
    for part in loc:
        pairs: list[tuple[yaml.Node, yaml.Node]] = []
        if isinstance(node, yaml.MappingNode):
            if part == "[key]":
                mark = key_mark
                continue
            if not tagged and part in _tags(node):
                tagged = True
                continue
            pairs = [pair for pair in node.value if pair[0].value == part]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            pairs = [(item, item) for item in node.value[part : part + 1]]
        else:
            continue
        path = joined(path, part)
        if pairs:  # else it is missing
            key, node = pairs[0]
            mark, key_mark, tagged = node.start_mark, key.start_mark, False
    return _Walk(node, mark, key_mark, path)


def _tags(node: yaml.MappingNode) -> set[str]:
    tags = (value for key, value in node.value if key.value in _DISCRIMINATORS)
    return {str(tag.value) for tag in tags if isinstance(tag, yaml.ScalarNode)}


def _written(root: yaml.Node, error: ErrorDetails, node: yaml.Node, *, repeat: bool) -> Written:
    if error["type"] == "extra_forbidden":
        beside = _walked(root, error["loc"][:-1]).node
        return Written(str(error["loc"][-1]), keys=_keys(beside))
    if isinstance(node, yaml.ScalarNode):
        return Written(node.value, "text", (), as_list(node.value) if repeat else None)
    return Written(form="list" if isinstance(node, yaml.SequenceNode) else "mapping")


def _keys(node: yaml.Node) -> tuple[str, ...]:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return tuple(key.value for key, _ in pairs if isinstance(key, yaml.ScalarNode))


def _meant(root: yaml.Node, error: ErrorDetails) -> tuple[str | int, ...] | None:
    """Return the place of the known key that an unknown one is similar to."""
    if error["type"] != "extra_forbidden":
        return None
    key = near_key(error, _written(root, error, root, repeat=False))
    return None if key is None else (*error["loc"][:-1], key)


def _untold(root: yaml.Node, error: ErrorDetails) -> Problem:
    walk, key = _walked(root, error["loc"]), error["ctx"]["discriminator"].strip("'")
    pairs = [pair for pair in walk.node.value if isinstance(pair[0], yaml.ScalarNode)]
    for wrong, value in pairs:
        if near_names(wrong.value, [key]):
            path = joined(walk.path, wrong.value)
            return _problem_at(wrong.start_mark, path, UNKNOWN, f"; did you mean {key}?")
        if key in _keys(value):
            deeper = f"is missing; it stands deeper, below '{wrong.value}'"
            return _problem_at(walk.mark, joined(walk.path, key), deeper)
    return _problem_at(walk.mark, joined(walk.path, key), "is missing")


def _follows(error: ErrorDetails, errors: Sequence[ErrorDetails]) -> bool:
    if error["type"] != "too_short" or error["ctx"]["actual_length"]:
        return False
    loc = error["loc"]
    return any(other["loc"][: len(loc)] == loc for other in errors if other is not error)


def _declaring(error: ErrorDetails, node: yaml.Node, wrong: str) -> str:
    loc = error["loc"]
    empty = isinstance(node, yaml.SequenceNode) and error["type"] == "too_short"
    if not (empty and loc[0] == _SCHEMA) and node.value != UNDECLARED:
        return wrong
    whose = loc[1] if loc[0] == _SCHEMA and len(loc) > 2 else f"the {loc[0]}"
    return f"declare the {loc[-1]} of {whose}: {_VALUES if empty else wrong}"
