"""Binary form of frozen state values, for snapshots.

Rules: only the types named when the codec is made can be written or read, so nothing in the bytes can name
a class of its own. Integers are exact, arrays are int64. This file knows no mechanism, file or key.
"""

from collections.abc import Iterable
from dataclasses import fields
from enum import StrEnum
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np

_WORD = 1 << 63


class Codec:
    """Encode and decode nested frozen dataclasses of the given `types`.

    Raises:
        TypeError: a value of another type.  ValueError: bytes that name an unknown type.
    """

    def __init__(self, types: Iterable[type]) -> None:
        self._types = {t.__name__: t for t in types}

    def encode(self, value: object) -> bytes:
        """The bytes of `value`."""
        return msgspec.msgpack.encode(self._plain(value))

    def decode(self, data: bytes) -> Any:
        """The value of `encode`'s bytes."""
        return self._value(msgspec.msgpack.decode(data))

    def _plain(self, value: object) -> object:
        match value:
            case StrEnum():
                return {"$": self._name(value), "v": str(value)}
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
                return [self._plain(item) for item in value]
            case dict():
                return {"$dict": [[self._plain(k), self._plain(v)] for k, v in value.items()]}
            case _:
                return {
                    "$": self._name(value),
                    "v": [self._plain(getattr(value, f.name)) for f in fields(value)],  # type: ignore[arg-type]
                }

    def _name(self, value: object) -> str:
        name = type(value).__name__
        if self._types.get(name) is not type(value):
            raise TypeError(f"{name} is not one of the types this codec may write")
        return name

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
        kind = self._types.get(plain["$"])
        if kind is None:
            raise ValueError("the bytes name a type this codec does not read")
        content = self._value(plain["v"])
        return kind(content) if issubclass(kind, StrEnum) else kind(*content)
