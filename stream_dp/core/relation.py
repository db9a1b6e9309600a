"""Verification functions ([HSV] Def 3.3), the claims of creation queries, and conjunction.

Rules: a relation is an immutable value that stands for the sequence of pairs accepted so far; `accept` returns the
relation after one more pair, or None where the longer sequence is not f-valid. Its cost does not depend on the number
of pairs so far (up to a logarithm in the number of mechanisms created). A message is *admissible* where the pair of
the message with itself is accepted. Both sides of an f-valid pair of sequences are admissible under every relation
here, so a production guard is the same object, used on pairs of equal messages. This file knows no message by name.
"""

from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal
from typing import Any, ClassVar, Protocol

import numpy as np

from stream_dp.core.guarantee import Measure


class Relation(Protocol):
    """An incremental verification function on pairs of messages."""

    @property
    def first_pair_consistent(self) -> bool:
        """Whether, after a first pair of identical messages, only identical pairs are accepted ([HSV] Def 5.12)."""
        ...

    def accept(self, left: Any, right: Any) -> "Relation | None":
        """Return the relation after the next pair; None where the pair is not f-valid, or not of message type."""
        ...


@dataclass(frozen=True, slots=True)
class Claim:
    """A creation query's claim about its mechanism: `measure` holds with respect to `relation` ([HSV] Def 4.1).

    The measure is (epsilon, delta), or Renyi DP at an order ([HSV] section 13), or a privacy function of f-DP; then
    `finite` says whether its communication is finite ([HSV] Def 14.4).
    """

    measure: Measure
    relation: Relation
    finite: bool = False


def same(left: object, right: object) -> bool:
    """Say whether no mechanism can tell two messages apart: equal values of the same types, at every depth.

    Equality is not enough: 1 is True, 0.0 is -0.0 and Decimal("1.0") is Decimal("1.00"), also inside sets and dicts.

    Example:
        >>> same((1, np.array([2])), (1, np.array([2]))), same(1, True), same({1}, {True})
        (True, False, False)
    """
    if left is right:
        return True
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        alike = left.dtype == right.dtype and left.shape == right.shape
        return alike and left.tobytes() == right.tobytes()
    if isinstance(left, tuple | list) and isinstance(right, tuple | list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, set | frozenset) and isinstance(right, set | frozenset):
        return left == right and same(*(sorted(map(_written, items)) for items in (left, right)))
    if isinstance(left, dict) and isinstance(right, dict):
        return same(list(left.items()), list(right.items()))  # the order is visible
    if is_dataclass(left) and not isinstance(left, type):
        names = (f.name for f in fields(left))
        return all(same(getattr(left, name), getattr(right, name)) for name in names)
    if isinstance(left, np.generic) and isinstance(right, np.generic):
        return left.dtype == right.dtype and left.tobytes() == right.tobytes()
    if isinstance(left, float | complex | Decimal):
        return repr(left) == repr(right)
    return bool(left == right)


def _written(item: object) -> str:
    """Return an item of a set as text that shows its types; inside it, the order of a set does not matter."""
    if isinstance(item, tuple | frozenset):
        parts = map(_written, item)
        inner = sorted(parts) if isinstance(item, frozenset) else parts
        return f"{type(item).__name__}({', '.join(inner)})"
    return f"{type(item).__name__} {item!r}"


@dataclass(frozen=True, slots=True)
class Identical:
    """Both messages are the same in every pair."""

    first_pair_consistent: ClassVar[bool] = True

    def accept(self, left: Any, right: Any) -> "Identical | None":
        return self if same(left, right) else None


@dataclass(frozen=True, slots=True)
class Nothing:
    """No pair of messages is accepted."""

    first_pair_consistent: ClassVar[bool] = True

    def accept(self, left: Any, right: Any) -> None:
        """Refuse every pair."""


@dataclass(frozen=True, slots=True)
class All:
    """The conjunction of `parts`: a pair is f-valid if it is f-valid for each of them."""

    parts: tuple[Relation, ...]

    @property
    def first_pair_consistent(self) -> bool:
        """Whether one part is first-pair consistent; the conjunction accepts no more pairs than that part."""
        return any(part.first_pair_consistent for part in self.parts)

    def accept(self, left: Any, right: Any) -> "All | None":
        after, moved = [], False
        for part in self.parts:
            if (next_part := part.accept(left, right)) is None:
                return None
            after.append(next_part)
            moved = moved or next_part is not part
        return All(tuple(after)) if moved else self
