"""Binary form of frozen values: states for snapshots, parameters for fingerprints.

Rules: a value is written under the kind and version of its class (`wire`) with its fields by name; a field at its
default, or a field with compare=False, is left out. A codec writes and reads only the types it was made with, so
bytes cannot name any other class. Integers are exact, arrays are int64. A sealed value is written as its content,
and its owner seals it again after reading. This file knows no mechanism, file or key.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields
from enum import StrEnum
from fractions import Fraction
from typing import Any, TypeAlias

import msgspec
import numpy as np

from stream_dp.core.mechanism import Mechanism
from stream_dp.core.sealed import SealedState, inside_of
from stream_dp.core.wire import Wire, wire_of
from stream_dp.errors import UnknownFormat

_WORD = 1 << 63
_Label: TypeAlias = Callable[[type], dict[str, object]]
Upgrade: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
Upgrades: TypeAlias = Mapping[str, Mapping[int, Upgrade]]


class Codec:
    """Encode and decode nested frozen dataclasses and text enumerations of the given `types`.

    `upgrades[kind][version]` converts the fields, by name, of that version to those of the next version.
    """

    def __init__(self, types: Iterable[type], upgrades: Upgrades | None = None) -> None:
        self._types: dict[str, type] = {}
        self._upgrades = upgrades or {}
        for cls in types:
            kind = wire_of(cls).kind
            if self._types.setdefault(kind, cls) is not cls:
                raise ValueError(
                    f"two types are registered for the kind {kind!r}; a kind must name one type"
                )

    @property
    def types(self) -> tuple[type, ...]:
        return tuple(self._types.values())

    def encode(self, value: object) -> bytes:
        """Return the bytes of `value` (TypeError: it holds a type that the codec was not made with)."""
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
            raise TypeError(f"this codec may not write the type {cls.__name__}")
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
            return Fraction(*map(int, plain["$fraction"]))
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
    below = [list(rested) for rested in sorted(label.all_below)]
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
        raise UnknownFormat(_state_of(cls), "an unknown value", ", ".join(cls)) from None


def _state_of(cls: type) -> str:
    return f"a saved state of the kind {wire_of(cls).kind!r}"


def _made(cls: type, content: dict[str, Any]) -> Any:
    known = content_fields(cls)
    needed = {
        name
        for name, field in known.items()
        if field.default is MISSING and field.default_factory is MISSING
    }
    if not needed <= content.keys() <= known.keys():
        raise UnknownFormat(_state_of(cls), "other fields", ", ".join(sorted(known)))
    return cls(**content)


def mechanism_fingerprint(mechanism: Mechanism[Any]) -> str:
    """Return the SHA-256, in hex, of the mechanism, its parameters and all classes that it rests on.

    A state may continue only under the same fingerprint. It is computed from kinds, versions and parameters by name,
    never from class names or `repr`. The version of a mechanism stands above its class (`wire`): raise it with any
    change of its noise, its thresholds, its error band or the order of its draws. A parameter may be added with a
    default that keeps the old behaviour; one at its default is left out.

    Raises:
        TypeError: the mechanism or a parameter has no kind and version.
    """
    return hashlib.sha256(b"stream_dp mechanism 1\n" + canonical(mechanism)).hexdigest()
