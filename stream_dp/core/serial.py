"""Binary form of frozen values: states for snapshots, parameters for fingerprints.

Rules: a value is written under the kind and version of its class (`wire`) with its fields by name; a field at its
default, or a field with compare=False, is left out. A codec writes and reads only the types it was made with, so
bytes cannot name any other class. Integers are exact, arrays are int64. A sealed value is written as its content,
and its owner seals it again after reading. This file knows no mechanism, file or key.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from enum import StrEnum
from fractions import Fraction
from typing import Any, NoReturn, TypeAlias, TypeVar

import msgspec
import numpy as np

from stream_dp.errors import NotDerivable, TaintError, UnknownFormat

# ---
# The names under which values are written: a kind and a version on each class, never the class's own name.
#
# Rules: the meaning of a kind and version never changes, and a kind is never reused for something else. A field may
# be added with a default that keeps the old meaning; any other change raises the version. The label is on the class
# itself and is not inherited, because a subclass is something else. docs/formats.md has all rules.

T = TypeVar("T")
_LABEL = "__wire__"


@dataclass(frozen=True, slots=True)
class Wire:
    """A kind, its version, and the labels of the classes on which its behaviour rests."""

    kind: str
    version: int
    rests_on: tuple["Wire", ...] = ()

    @property
    def all_below(self) -> frozenset[tuple[str, int]]:
        """Kind and version of all labels that this one rests on, directly or not."""
        direct = {(one.kind, one.version) for one in self.rests_on}
        return frozenset(direct).union(*(one.all_below for one in self.rests_on))


def wire(
    kind: str, version: int, *, rests_on: tuple[type, ...] = ()
) -> Callable[[type[T]], type[T]]:
    """Decorate a class with its kind and version; the decorator goes above `@dataclass`.

    `rests_on` are labelled classes that the class uses without having them as fields: a new version of one of them
    changes the fingerprint of every mechanism that rests on it.
    """
    label = Wire(kind, version, tuple(wire_of(below) for below in rests_on))

    def labelled(cls: type[T]) -> type[T]:
        setattr(cls, _LABEL, label)
        return cls

    return labelled


def is_labelled(cls: type) -> bool:
    """Say whether this very class has its own label."""
    return isinstance(vars(cls).get(_LABEL), Wire)


def wire_of(cls: type) -> Wire:
    """Return the label of this very class.

    Raises:
        TypeError: the class has no label of its own.
    """
    label = vars(cls).get(_LABEL)
    if not isinstance(label, Wire):
        raise TypeError(
            f"{cls.__name__} has no kind and version to be written under; give it @wire(kind, version)"
        )
    return label


# ---
# A sealed value: it is stored and passed on, never read.
#
# A composite mechanism holds the states of its sub-mechanisms inside its own state. They are sealed so that it cannot
# read them: its answers and decisions must follow from answers alone ([HSV] 6.3). Rules: only three places open a
# state: `core.composition`, to step it; `core.serial`, to write it; and exact checks. tests/architecture lists all
# callers of `inside_of`; a mechanism that calls it is broken. An error's text never holds the value. This file knows
# no mechanism.


class SealedState:
    """Holds a value that only the composition reads; every other use raises `TaintError`.

    >>> SealedState(3) == 3
    Traceback (most recent call last):
    stream_dp.errors.TaintError: the state of a sub-mechanism is sealed: ask the sub-mechanism, through its composition
    """

    __slots__ = ("__value",)
    __array_priority__ = 1_000.0

    def __init__(self, value: object) -> None:
        object.__setattr__(self, "_SealedState__value", value)

    def _refused(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise TaintError(
            "the state of a sub-mechanism is sealed: ask the sub-mechanism, through its composition"
        )

    def __getattribute__(self, name: str) -> Any:
        """Refuse every attribute except those by which Python tells types apart."""
        if name == "__class__":
            return SealedState
        return object.__getattribute__(self, "_refused")()

    __bool__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refused
    __hash__ = None  # type: ignore[assignment]
    __len__ = __iter__ = __contains__ = __reversed__ = __getitem__ = _refused
    __int__ = __float__ = __complex__ = __index__ = __round__ = _refused
    __repr__ = __str__ = __format__ = __bytes__ = _refused
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = __abs__ = _refused
    __array__ = __array_ufunc__ = __array_function__ = _refused
    __reduce_ex__ = __copy__ = __deepcopy__ = _refused
    __setattr__ = __delattr__ = __setitem__ = __delitem__ = _refused


def inside_of(sealed: SealedState) -> Any:
    """Return the sealed value, for the composition and the codec; a mechanism that calls this is broken."""
    return object.__getattribute__(sealed, "_SealedState__value")


# ---
# Closed classes: what is proven of a class is proven of that class alone, so some classes forbid subclasses.
#
# A subclass could override the attribute a proof rests on, and still pass a type check. Rules: measures, guarantees,
# derivations and situations are closed. Mechanisms are not closed; their derivations check the exact class
# (`mechanisms.checks`). This file knows no class by name.


def takes_no_subclass(cls: type[T]) -> type[T]:
    """Forbid subclasses of a class and return it; a decorator that goes above `@dataclass`.

    >>> from stream_dp.core.guarantee import PureDP
    >>> class Free(PureDP): ...
    Traceback (most recent call last):
    stream_dp.errors.NotDerivable: PureDP takes no subclass, and Free would be one: what is proven of a class is proven of it alone; write a class of its own, with rules of its own
    """  # noqa: E501  an error text is one line

    def refuse(subclass: type, /, **_options: Any) -> None:
        raise NotDerivable(
            f"{cls.__name__} takes no subclass, and {subclass.__name__} would be one: what is proven of a class is "
            "proven of it alone; write a class of its own, with rules of its own"
        )

    setattr(cls, "__init_subclass__", classmethod(refuse))  # noqa: B010  mypy lets nobody assign it
    return cls


_WORD = 1 << 63
_Label: TypeAlias = Callable[[type], dict[str, object]]
Upgrade: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
Upgrades: TypeAlias = Mapping[str, Mapping[int, Upgrade]]


class Codec:
    """Encode and decode nested frozen dataclasses and text enumerations of the given `types`.

    `upgrades[kind][version]` converts the fields, by name, of that version to those of the next version.

    Raises:
        ValueError: two of the types have the same kind.  TypeError: a type has no kind.
    """

    def __init__(self, types: Iterable[type], upgrades: Upgrades | None = None) -> None:
        self._types: dict[str, type] = {}
        self._upgrades = upgrades or {}
        for each in types:
            if self._types.setdefault(wire_of(each).kind, each) is not each:
                raise ValueError(
                    f"two types are written as {wire_of(each).kind!r}; a kind is one type"
                )

    @property
    def types(self) -> tuple[type, ...]:
        """The types that the codec reads and writes."""
        return tuple(self._types.values())

    def encode(self, value: object) -> bytes:
        """Return the bytes of `value`.

        Raises:
            TypeError: the value holds a type that the codec was not made with.
        """
        return msgspec.msgpack.encode(_plain(value, self._label))

    def decode(self, data: bytes) -> Any:
        """Return the value that `encode` wrote as these bytes.

        Raises:
            UnknownFormat: an unknown kind, version or field; an old version without an upgrade; a missing field.
        """
        return self._value(msgspec.msgpack.decode(data))

    def _label(self, cls: type) -> dict[str, object]:
        label = wire_of(cls)
        if self._types.get(label.kind) is not cls:
            raise TypeError(f"{cls.__name__} is not one of the types this codec may write")
        return {"$": label.kind, "version": label.version}

    def _value(self, plain: Any) -> Any:
        if isinstance(plain, list):
            return tuple(self._value(item) for item in plain)
        if not isinstance(plain, dict):
            return plain
        if "$array" in plain:
            flat = np.frombuffer(plain["$array"], dtype="<i8").astype(np.int64)
            return flat.reshape(plain["shape"])
        if "$fraction" in plain:
            return Fraction(int(plain["$fraction"][0]), int(plain["$fraction"][1]))
        if "$big" in plain:
            return int(plain["$big"])
        if "$dict" in plain:
            return {self._value(k): self._value(v) for k, v in plain["$dict"]}
        return self._typed(plain)

    def _typed(self, plain: dict[str, Any]) -> Any:
        kind, version = plain["$"], plain["version"]
        cls = self._types.get(kind)
        if cls is None:
            known = ", ".join(sorted(self._types))
            raise UnknownFormat("a saved state", f"a part of the kind {kind!r}", known)
        if issubclass(cls, StrEnum):
            _upgraded({}, wire_of(cls), version, {})
            return _member(cls, plain["value"])
        content = {name: self._value(value) for name, value in plain["fields"].items()}
        content = _upgraded(content, wire_of(cls), version, self._upgrades.get(kind, {}))
        return _made(cls, content)


def canonical(value: object) -> bytes:
    """Return bytes that identify a labelled value and all that it rests on; for fingerprints, never read back.

    Bytes are equal for equal kinds, versions and contents, whatever the classes are called and wherever they live.
    """
    return msgspec.msgpack.encode(_plain(value, _whole_label), order="deterministic")


def _whole_label(cls: type) -> dict[str, object]:
    label = wire_of(cls)
    below = [list(one) for one in sorted(label.all_below)]
    return {"$": label.kind, "version": label.version, "rests_on": below}


def _plain(value: object, label: _Label) -> object:
    match value:
        case StrEnum():
            return {**label(type(value)), "value": value.value}
        case bool() | None | str() | bytes():
            return value
        case int():
            return value if -_WORD <= value < _WORD else {"$big": str(value)}
        case Fraction():
            return {"$fraction": [str(value.numerator), str(value.denominator)]}
        case np.ndarray():
            array = np.ascontiguousarray(value, dtype="<i8")
            return {"$array": array.tobytes(), "shape": list(value.shape)}
        case tuple():
            return [_plain(item, label) for item in value]
        case SealedState():
            return _plain(inside_of(value), label)
        case dict():
            return {"$dict": [[_plain(k, label), _plain(v, label)] for k, v in value.items()]}
        case _:
            return {**label(type(value)), "fields": _contents(value, label)}


def content_fields(cls: type) -> dict[str, "Field[Any]"]:
    """Return the fields of a dataclass that are written, by name: the fields with compare=True."""
    return {field.name: field for field in fields(cls) if field.compare}


def _contents(value: object, label: _Label) -> dict[str, object]:
    """Return the fields that are not at their default, by name and in the order of the names."""
    written = {}
    for name, field in sorted(content_fields(type(value)).items()):
        plain = _plain(getattr(value, name), label)
        if field.default is MISSING or plain != _plain(field.default, label):
            written[name] = plain
    return written


def _upgraded(
    content: dict[str, Any], label: Wire, version: int, upgrades: Mapping[int, Upgrade]
) -> dict[str, Any]:
    """Return the content of this version, converted to the label's version."""
    for old in range(version, label.version):
        if old not in upgrades:
            break
        content, version = upgrades[old](content), old + 1
    if version != label.version:
        what = f"a saved state of the kind {label.kind!r}"
        raise UnknownFormat(what, f"version {version}", f"version {label.version}")
    return content


def _member(cls: type[StrEnum], value: str) -> StrEnum:
    try:
        return cls(value)
    except ValueError:
        known = ", ".join(cls)
        kind = wire_of(cls).kind
        raise UnknownFormat(
            f"a saved state of the kind {kind!r}", "an unknown value", known
        ) from None


def _made(cls: type, content: dict[str, Any]) -> Any:
    """Return the value of `cls` with these fields."""
    known = content_fields(cls)
    needed = {
        name
        for name, field in known.items()
        if field.default is MISSING and field.default_factory is MISSING
    }
    if not needed <= content.keys() <= known.keys():
        what = f"a saved state of the kind {wire_of(cls).kind!r}"
        raise UnknownFormat(what, "other fields", ", ".join(sorted(known)))
    return cls(**content)
