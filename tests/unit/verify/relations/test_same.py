"""Identical messages are those that no mechanism can tell apart; equality of Python's values is the broken twin."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from stream_dp.core.mechanism import Query, Update
from stream_dp.core.relation import Identical, same
from stream_dp.verify.exact.exact_delta import worst_ratio
from stream_dp.verify.exact.finite import FirstPair, Law
from stream_dp.verify.relations import StaticDataSet

ONE = Fraction(1)


@dataclass(frozen=True)
class Held:
    """A message that holds something."""

    what: Any


@dataclass(frozen=True)
class One:
    """A class that is itself the message."""


@dataclass(frozen=True)
class Other:
    """Another one, with as few fields."""


TOLD_APART: list[tuple[Any, Any]] = [
    (1, True), (0.0, -0.0), (Decimal("1.0"), Decimal("1.00")), ((1,), (True,)), (Held(1), Held(True)),
    (frozenset({1}), frozenset({True})), (frozenset({(0, 1)}), frozenset({(0, True)})),
    (frozenset({frozenset({1})}), frozenset({frozenset({True})})), ({"a": 1}, {"a": True}), ({1: "a"}, {True: "a"}),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}), (complex(0.0, 0.0), complex(0.0, -0.0)),
    (np.array([0.0]), np.array([-0.0])), (np.array([1], dtype=np.int64), np.array([1], dtype=np.int32)),
    (np.float32(0.0), np.float32(-0.0)), (np.int64(1), np.int32(1)), (One, Other),
]  # fmt: skip
ALIKE: list[tuple[Any, Any]] = [
    (frozenset({1, 2, 3}), frozenset({3, 2, 1})), ({"a": (1, 2)}, {"a": (1, 2)}), (0.5, 0.5),
    ("x" * 9, "".join(["x"] * 9)),
    (frozenset({frozenset({1, 9}), frozenset({2})}), frozenset({frozenset({2}), frozenset({9, 1})})),
    (np.array([[1, 2]]), np.array([[1, 2]])), (Update(np.array([1])), Update(np.array([1]))), (Query(3), Query(3)),
    (np.arange(6)[::2], np.array([0, 2, 4])), (float("nan"), float("nan")),
    (np.float32("nan"), np.float32("nan")), (One(), One()),
]  # fmt: skip


def shown(value: Any) -> str:
    """Return its text, the same in every process: workers compare the names of their tests."""
    return type(value).__name__ if " at 0x" in repr(value) else repr(value)


@pytest.mark.parametrize(("left", "right"), TOLD_APART, ids=repr)
def test_what_can_be_told_apart_is_not_the_same(left: Any, right: Any) -> None:
    """Neither as a message, nor as a later query of a static data set (Def 5.12)."""
    assert not same(left, right)
    assert Identical().accept(left, right) is None
    begun = StaticDataSet(lambda a, b: True).accept(0, 1)
    assert begun is not None
    assert begun.accept(left, right) is None
    assert begun.accept(left, left) is not None


@pytest.mark.parametrize(("left", "right"), ALIKE, ids=shown)
def test_what_cannot_be_told_apart_is_the_same(left: Any, right: Any) -> None:
    assert same(left, right)


@dataclass(frozen=True)
class Telling:
    """Answers what its query is, word for word: private where later queries are identical, whatever the data set."""

    def initial(self) -> Mapping[str, Fraction]:
        return {"": ONE}

    def step(self, state: str, query: Any) -> Law[str]:
        return {(repr(query) if isinstance(query, frozenset) else "", state): ONE}


@dataclass(frozen=True)
class Equal(FirstPair):
    """The twin: later pairs need only be equal."""

    def moves(self) -> Any:
        if self.begun:
            yield (frozenset({1}), frozenset({True})), self
        yield from ((pair, Equal(self.first, begun=True)) for pair in self.first if not self.begun)


def test_equality_in_place_of_identity_is_caught() -> None:
    """A mechanism that loses nothing on identical queries tells the secret bit where they are merely equal."""
    asked = FirstPair(((0, 1),), (frozenset({1}), frozenset({True})))
    assert worst_ratio(Telling(), asked, 3) == 1
    assert worst_ratio(Telling(), Equal(((0, 1),)), 3) == float("inf")
