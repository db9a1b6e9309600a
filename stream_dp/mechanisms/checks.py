"""What every mechanism checks: its rows, their number, and that a derivation holds only for its own class.

The bound on rows keeps their sums inside 64 bits. The guard in front of the engine admits much smaller counts, so no
sum of admitted counts is refused. An amount beyond the bound needs more than 10^9 of the largest records in one tick.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from stream_dp.core.composition import ConcurrentComposition
from stream_dp.core.derivation import Derivation
from stream_dp.core.mechanism import IntArray
from stream_dp.core.row_relations import counts_up_to
from stream_dp.core.wire import is_labelled
from stream_dp.core.wording import how_many
from stream_dp.errors import NotDerivable, RejectedMessage

LARGEST = 1 << 60


def checked(row: IntArray, width: int) -> IntArray:
    """Return `row` if it is an int64 array of shape (width,) with entries in [0, 2^60].

    Raises:
        RejectedMessage: anything else; the message does not repeat the row.
    """
    _require_shape(row, width)
    if not counts_up_to(row, LARGEST):
        raise RejectedMessage("the entries of a row must be counts from 0 to 2^60")
    return row


def checked_amounts(row: IntArray, width: int) -> IntArray:
    """Return `row` if it is as `checked` asks, but with entries in [-2^60, 2^60]."""
    _require_shape(row, width)
    if width and (row.min() < -LARGEST or row.max() > LARGEST):
        raise RejectedMessage("the entries of a row must be amounts from -2^60 to 2^60")
    return row


def _require_shape(row: IntArray, width: int) -> None:
    if not isinstance(row, np.ndarray) or row.dtype != np.int64 or row.shape != (width,):
        raise RejectedMessage(f"a row must be an int64 array of shape ({width},)")


def require_left(updates: int, most: int) -> None:
    """Refuse (RejectedMessage) one more update of a counter for at most `most` updates, after `updates` updates."""
    if updates >= most:
        raise RejectedMessage(
            f"this counter was declared for {how_many(most, 'update')} and has had them all; "
            "declare a longer horizon"
        )


M = TypeVar("M")
_PLAIN = (int, bool, str, Fraction, type(None))


def of_the_exact_class(derivation: Callable[[M], Derivation]) -> Callable[[M], Derivation]:
    """Decorate the method `derivation` of a mechanism to refuse (NotDerivable) a class that only inherits it: it may
    run other code than the proven one. A subclass that runs the proven code may define a derivation that calls its
    base's.
    """

    @wraps(derivation)
    def exact(mechanism: M) -> Derivation:
        require_exact_class(mechanism)
        return derivation(mechanism)

    return exact


def require_exact_class(mechanism: object) -> None:
    """Refuse (NotDerivable) a mechanism that only inherits its derivation, or has a parameter of an inexact class.

    A parameter that is an object (a quantity, a composition, a mechanism) must be of a class that has its own kind
    (`wire`) and no base class with one.
    """
    cls = type(mechanism)
    if "derivation" not in vars(cls):
        bases = [base.__name__ for base in cls.__mro__ if "derivation" in vars(base)]
        known = f"; what is proven of {bases[0]} is not proven of a subclass" if bases else ""
        raise NotDerivable(f"no derivation is known for a {cls.__name__}{known}")
    if is_dataclass(mechanism):
        for field in fields(mechanism):
            _require_known(cls, field.name, getattr(mechanism, field.name))


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
            f"{cls.__name__}, {name}: the derivation is proven for another class, not for a "
            f"{kind.__name__}"
        )
