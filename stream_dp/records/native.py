"""Records as columns by a compiled step, where the distribution `stream-dp-native` of this version is installed.

Rules: the step reads plain records alone, as the Python decoder would; every other record is left to that decoder,
which alone says what is a dead letter. So what is read is a function of the record, whether the step is there or not.
`STREAM_DP_NATIVE=0` in the environment turns it off. Columns and values are private.
"""

import ctypes
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from stream_dp.core.mechanism import IntArray
from stream_dp.records.schema import CategoryField, FieldSpec, held_as

FEWEST = 64  # records; for fewer the call takes as long as it saves
VARIABLE: Final = "STREAM_DP_NATIVE"
_MODULE, _DISTRIBUTION = "stream_dp_native", "stream-dp-native"
_MOST_MEMBERS, _MOST_NODES = 64, 16
_OBJECT, _CODED, _BOOLEAN, _INTEGER, _NUMBER, _TEXT = range(6)
_KINDS: Final = {
    "category": _CODED,
    "boolean": _BOOLEAN,
    "integer": _INTEGER,
    "number": _NUMBER,
    "text": _TEXT,
}
_FREE = -1
_T = TypeVar("_T", covariant=True)
Leaf: TypeAlias = tuple[Sequence[str], str, FieldSpec]
"""Where a value lies in its record, the attribute that holds it, and its field."""


class Step:
    """The compiled step in a shared library. Raises OSError or AttributeError if it is no such library."""

    def __init__(self, library: str) -> None:
        functions, pointer, number = ctypes.CDLL(library), ctypes.c_void_p, ctypes.c_int64
        named = functions.stream_dp_native_version
        named.restype = ctypes.c_char_p
        self.version: str = named().decode()
        self.values = functions.stream_dp_native_values
        self.values.argtypes = [pointer, number, number, pointer]
        self.table = functions.stream_dp_native_table
        self.table.argtypes = [pointer, number, ctypes.c_char_p, pointer, number]
        self.table.restype = None
        self.columns = functions.stream_dp_native_columns
        self.columns.argtypes = [pointer] * 3 + [number, pointer, number, pointer, pointer, number]
        self.columns.restype = number


class Use(NamedTuple):
    """The step that is used, if any, and in words what decodes records."""

    step: Step | None
    says: str


@cache
def used() -> Use:
    """Look for the step, once in a process."""
    if os.environ.get(VARIABLE) == "0":
        return Use(None, f"by Python alone: {VARIABLE} is 0")
    try:
        own, there, spec = version("stream_dp"), version(_DISTRIBUTION), find_spec(_MODULE)
    except PackageNotFoundError:
        return Use(None, "by Python alone: stream_dp[native] is not installed")
    if there != own:
        return Use(None, f"by Python alone: {_DISTRIBUTION} {there} is not of {own}")
    try:
        step = Step(str(None if spec is None else spec.origin))
    except (OSError, AttributeError):
        return Use(None, f"by Python alone: {_DISTRIBUTION} {there} cannot be loaded here")
    if step.version != own:
        return Use(None, f"by Python alone: the library of {_DISTRIBUTION} is of {step.version}")
    return Use(step, f"by {_DISTRIBUTION} {there}, and by Python for records that are not plain")


class _Lazy(Sequence[_T]):
    """A sequence whose items are made when somebody asks for one of them."""

    @abstractmethod
    def _made(self) -> Sequence[_T]: ...

    @cached_property
    def _each(self) -> Sequence[_T]:
        return self._made()

    def __iter__(self) -> Iterator[_T]:
        return iter(self._each)

    def __getitem__(self, at: Any) -> Any:
        return self._each[at]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class Values(_Lazy[bytes]):
    """Values where they lie, in parts: the bounds of a part say where each begins and ends, of shape (values, 2)."""

    def __init__(self, parts: Sequence[tuple[bytes | memoryview, IntArray]]) -> None:
        self.parts = parts

    @classmethod
    def of(cls, payloads: Sequence[bytes]) -> "Values":
        """Return these payloads, of which None is an empty one."""
        if isinstance(payloads, cls):
            return payloads
        each = [payload or b"" for payload in payloads]
        lengths = np.fromiter(map(len, each), np.int64, len(each))
        ends = np.cumsum(lengths)
        return cls([(b"".join(each), np.column_stack([ends - lengths, ends]))])

    def chosen(self, some: NDArray[np.bool_]) -> "Values":
        ends = np.cumsum([len(bounds) for _, bounds in self.parts])[:-1]
        parts = zip(self.parts, np.split(some, ends), strict=True)
        return Values([(data, bounds[kept]) for (data, bounds), kept in parts])

    def _made(self) -> list[bytes]:
        return [
            bytes(data[begin:end]) for data, bounds in self.parts for begin, end in bounds.tolist()
        ]

    def __len__(self) -> int:
        return sum(len(bounds) for _, bounds in self.parts)


def together(first: Sequence[bytes], second: Sequence[bytes]) -> Sequence[bytes]:
    """Return the values of both; a list of the caller's own may grow."""
    if isinstance(first, Values) and isinstance(second, Values):
        return Values([*first.parts, *second.parts])
    both: list[bytes] = first if isinstance(first, list) else list(first)
    both.extend(second)
    return both


def values_in(data: memoryview, records: int) -> Values | None:
    """Return the values of the records of an uncompressed batch, without its header; None where one is not plain,
    or where they are few.
    """
    step = used().step
    if step is None or not FEWEST <= records <= len(data):
        return None
    bounds = np.empty((records, 2), np.int64)
    address = np.frombuffer(data, np.uint8).ctypes.data
    plain = step.values(address, len(data), records, bounds.ctypes.data)
    return Values([(data, bounds)]) if plain else None


@dataclass(frozen=True, slots=True, repr=False)
class Column:
    """A field's values: codes, numbers, or where in `texts` they begin. `extra` is 1, and for null 0; of texts the
    length, and for null -1. Only a `nullable` field has null.
    """

    kind: int
    nullable: bool
    values: NDArray[Any]
    extra: IntArray
    texts: bytes = b""

    @property
    def coded(self) -> bool:
        return self.kind in (_CODED, _BOOLEAN)

    @property
    def text(self) -> bool:
        return self.kind == _TEXT

    @property
    def known(self) -> NDArray[np.bool_]:
        return self.extra >= 0 if self.text else self.extra > 0

    def at(self, places: IntArray) -> "Column":
        return replace(self, values=self.values[places], extra=self.extra[places])

    def objects(self) -> list[Any] | None:
        """Return the values as Python has them; None for a category, of whose other texts nothing is kept."""
        if self.kind == _CODED:
            return None
        values = self.values == 1 if self.kind == _BOOLEAN else self.values
        found: list[Any] = values.tolist()
        if self.text:
            ends = (self.values + np.maximum(self.extra, 0)).tolist()  # null has no text
            found = [self.texts[at:end].decode() for at, end in zip(found, ends, strict=True)]
        if not self.nullable:
            return found
        return [
            value if there else None
            for value, there in zip(found, self.known.tolist(), strict=True)
        ]

    def put(self, places: IntArray, objects: Sequence[Any], domain: Sequence[Any]) -> "Column":
        """Return the column with these values, in the order of `places`; codes are places in the `domain`."""
        texts, extra = self.texts, np.array([each is not None for each in objects], np.int64)
        values: Any = [0 if each is None else each for each in objects]
        if self.coded:
            domain = (False, True) if self.kind == _BOOLEAN else domain
            codes = {value: code for code, value in enumerate(domain)}
            values = [codes.get(each, len(domain)) for each in objects]
        elif self.text:
            data = [b"" if each is None else each.encode() for each in objects]
            lengths = np.fromiter(map(len, data), np.int64, len(data))
            values = len(texts) + np.cumsum(lengths) - lengths
            texts, extra = texts + b"".join(data), np.where(extra > 0, lengths, -1)
        self.values[places], self.extra[places] = values, extra
        return replace(self, texts=texts)


class Made(_Lazy[Any]):
    """So many records, which are made when somebody asks for one of them."""

    def __init__(self, number: int, make: Callable[[], Sequence[Any]]) -> None:
        self._number, self._make = number, make

    def _made(self) -> Sequence[Any]:
        return self._make()

    def __len__(self) -> int:
        return self._number


class Plan:
    """What the step reads of each record, laid out for it."""

    def __init__(self, step: Step, leaves: Sequence[Leaf]) -> None:
        self._step, self._leaves = step, leaves
        self._texts, self._slots = bytearray(), [np.empty((0, 3), np.int64)]
        tree: dict[str, Any] = {}
        for number, (path, _, _) in enumerate(leaves):
            inner = tree
            for key in path[:-1]:
                inner = inner.setdefault(key, {})
            inner[path[-1]] = number
        members, nodes, waiting = list[tuple[int, ...]](), list[tuple[int, int]](), [tree]
        for node in waiting:  # which grows
            nodes.append((len(members), len(node)))
            for key, of in node.items():
                if isinstance(of, dict):
                    waiting.append(of)
                    members.append((*self._text(key), _OBJECT, 1, len(waiting) - 1, 0, 0, 0))
                else:
                    members.append((*self._text(key), *self._leaf(of)))
        tables = (np.array(members or [(0,) * 8]), np.array(nodes), np.concatenate(self._slots))
        self._held = *tables, np.frombuffer(bytes(self._texts) or b"\0", np.uint8)
        self._plan = np.array([*(each.ctypes.data for each in self._held), len(members)], np.uint64)

    def _text(self, text: str) -> tuple[int, int]:
        begin, data = len(self._texts), text.encode()
        self._texts += data
        return begin, len(data)

    def _leaf(self, number: int) -> tuple[int, ...]:
        field = self._leaves[number][2]
        begin, size, other = sum(map(len, self._slots)), 1, 2
        if isinstance(field, CategoryField):
            codes = {text: code for code, text in enumerate(field.domain)}
            codes |= {text: codes[value] for text, value in (field.map or {}).items()}
            entries = np.array([(*self._text(text), code) for text, code in codes.items()])
            size, other = 1 << (2 * len(codes)).bit_length(), len(field.domain)
            table = np.full((size, 3), _FREE, np.int64)
            places = table.ctypes.data, size - 1, bytes(self._texts), entries.ctypes.data
            self._step.table(*places, len(entries))
            self._slots.append(table)
        return _KINDS[held_as(field)], int(field.nullable), number, begin, size - 1, other

    def read(self, values: Values) -> tuple[dict[str, Column], NDArray[np.bool_]]:
        """Return the columns by attribute, and which records are plain: only their entries mean something."""
        number, kinds = len(values), [_KINDS[held_as(field)] for _, _, field in self._leaves]
        out, plain = np.empty((2 * len(kinds), number), np.int64), np.empty(number, np.bool_)
        size = sum(int((bounds[:, 1] - bounds[:, 0]).sum()) for _, bounds in values.parts)
        room, at, held = np.empty(size if _TEXT in kinds else 0, np.uint8), 0, 0
        plan, base, flags, begin = (a.ctypes.data for a in (self._plan, out, plain, room))
        for data, bounds in values.parts:
            lies = np.frombuffer(data, np.uint8).ctypes.data, bounds.ctypes.data, len(bounds)
            held = self._step.columns(plan, *lies, base + 8 * at, number, flags + at, begin, held)
            at += len(bounds)
        texts, found = room[:held].tobytes(), dict[str, Column]()
        for place, (kind, (_, name, field)) in enumerate(zip(kinds, self._leaves, strict=True)):
            column = out[2 * place].view(np.float64 if kind == _NUMBER else np.int64)
            found[name] = Column(kind, field.nullable, column, out[2 * place + 1], texts)
        return found, plain

    def put(
        self, columns: dict[str, Column], places: IntArray, values: Callable[[str], list[Any]]
    ) -> dict[str, Column]:
        """Return the columns with what Python read of the records at these places."""
        return {
            name: columns[name].put(places, values(name), getattr(field, "domain", ()))
            for _, name, field in self._leaves
        }


def plan_of(leaves: Sequence[Leaf]) -> Plan | None:
    """Return how the step reads these values; None where it is not used, or cannot read all of them."""
    paths = {tuple(path) for path, _, _ in leaves}
    nodes = {path[:depth] for path in paths for depth in range(len(path))}
    apart = len(paths) == len(leaves) and not paths & nodes
    few = len(paths | nodes) <= _MOST_MEMBERS + 1 and len(nodes) <= _MOST_NODES
    step = used().step
    if (
        step is None
        or not (apart and few)
        or any(held_as(field) not in _KINDS for _, _, field in leaves)
    ):
        return None
    return Plan(step, leaves)


def told(plan: Plan | None) -> str:
    """Say in words what decodes the records of such a plan."""
    if plan is None and used().step is not None:
        return "by Python alone: the file reads lists or formulas, or very many fields"
    return used().says
