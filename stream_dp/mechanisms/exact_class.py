"""A derivation holds for the very class that states it, with parameters of the very classes it was written for.

A subclass that overrides a step or a scale runs other code than what is proven; it inherits no derivation. Rules: a
mechanism's class states its own `derivation` (one that runs the proven code may call that of its base, and says so by
it); a parameter that is an object (a quantity, a composition, a mechanism) is of a class with a kind of its own
(`wire`) that stands on no other such class. This file knows no mechanism.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from functools import wraps
from typing import Any, TypeVar

from stream_dp.core.composition import ConcurrentComposition
from stream_dp.core.derivation import Derivation
from stream_dp.core.wire import is_labelled
from stream_dp.errors import NotDerivable

M = TypeVar("M")
_PLAIN = (int, bool, str, Fraction, type(None))


def of_the_exact_class(derivation: Callable[[M], Derivation]) -> Callable[[M], Derivation]:
    """Return the method `derivation` of a mechanism, which refuses (NotDerivable) what only inherits it."""

    @wraps(derivation)
    def checked(mechanism: M) -> Derivation:
        require_exact_class(mechanism)
        return derivation(mechanism)

    return checked


def require_exact_class(mechanism: object) -> None:
    """Do nothing where the mechanism's class states its own derivation and its parameters are of exact classes.

    Raises:
        NotDerivable: it is a subclass of what is proven, or one of its parameters is.
    """
    cls = type(mechanism)
    if "derivation" not in vars(cls):
        bases = [base.__name__ for base in cls.__mro__ if "derivation" in vars(base)]
        known = f"; what is proven of {bases[0]} is not proven of a subclass" if bases else ""
        raise NotDerivable(f"no derivation is known for a {cls.__name__}{known}")
    if is_dataclass(mechanism):
        for each in fields(mechanism):
            _require_known(cls, each.name, getattr(mechanism, each.name))


def _require_known(cls: type, name: str, value: Any) -> None:
    """Refuse a parameter of a class that only stands on one that is known."""
    if isinstance(value, tuple):
        for item in value:
            _require_known(cls, name, item)
        return
    kind = type(value)
    if isinstance(value, Enum) or kind in _PLAIN:
        return
    if isinstance(value, ConcurrentComposition):
        known = kind is ConcurrentComposition
    else:
        known = [base for base in kind.__mro__ if is_labelled(base)] == [kind]
    if not known:
        raise NotDerivable(
            f"{cls.__name__}, {name}: what is derived is not derived for a {kind.__name__}, another class than "
            "what is proven"
        )
