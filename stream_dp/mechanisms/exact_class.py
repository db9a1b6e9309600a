"""A derivation holds only for the class that states it, with parameters of the exact classes it was written for.

A subclass that overrides a step or a scale runs other code than the proven one, so it inherits no derivation.
Rules: a mechanism's class defines its own `derivation`; a subclass that runs the proven code may define one that
calls its base's. A parameter that is an object (a quantity, a composition, a mechanism) must be of a class that has
its own kind (`wire`) and no base class with one. This file knows no mechanism.
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
    """Decorate the method `derivation` of a mechanism to refuse (NotDerivable) a class that only inherits it."""

    @wraps(derivation)
    def checked(mechanism: M) -> Derivation:
        require_exact_class(mechanism)
        return derivation(mechanism)

    return checked


def require_exact_class(mechanism: object) -> None:
    """Check that the mechanism's class defines its own derivation and that its parameters are of exact classes.

    Raises:
        NotDerivable: the mechanism, or one of its parameters, is an instance of a subclass of a proven class.
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
    """Refuse a parameter of a class that has no label of its own or has a labelled base class."""
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
