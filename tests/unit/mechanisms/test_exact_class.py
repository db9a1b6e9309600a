"""What is proven of a class is proven of no subclass: twins that inherit a derivation, a price or a proof are refused.

Every twin here was derived as proven, before classes were looked at exactly.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from stream_dp.accounting.derive import RULES, derive
from stream_dp.accounting.filters.filter import Entry, Spend
from stream_dp.accounting.filters.linear import PureFilter
from stream_dp.accounting.ledger import CLASSES, CONCURRENT, Ledger
from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.situations import Filtered, Fixed, Touched
from stream_dp.core.composition import ConcurrentComposition
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import NAMES, Guarantee, PureDP
from stream_dp.core.mechanism import IntArray
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.errors import BudgetRefused, InvalidCost, NotDerivable
from stream_dp.mechanisms.hss.hss import HSS
from stream_dp.mechanisms.hss.sparse_vector import Maximum, Quantity, SparseVector
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.serving import derived
from stream_dp.mechanisms.watches.kinds import Alerts
from stream_dp.testing.noise import ZeroNoise

ADD, ONE = Neighbors.ADD_REMOVE, Fraction(1)


class SilentAlerts(Alerts):
    """Draws no noise."""

    __slots__ = ()

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        return Alerts.step(self, state, message, ZeroNoise())


@wire("counter-of-test-exact-class", 1)
@dataclass(frozen=True)
class SilentCounter(Counter):
    """A kind of its own, and the derivation of another."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        return Counter.step(self, state, message, ZeroNoise())


@dataclass(frozen=True, slots=True)
class SilentComposition(ConcurrentComposition):
    """Hands its mechanisms no noise."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        return ConcurrentComposition.step(self, state, message, ZeroNoise())


class Tenfold(Maximum):
    """Ten times as sensitive as what it stands on."""

    __slots__ = ()

    def of(self, sums: IntArray) -> int:
        return 10 * int(sums.max())


class Unlisted(Quantity):
    """Not monotone; says of itself that it is proven in mechanisms/hss/sparse_vector.py."""

    def of(self, sums: IntArray) -> int:
        return 1000 * (int(np.sum(sums)) % 2)

    def sensitivity(self, relation: Neighbors, width: int, ones: int) -> int:
        return 1

    def error(self, width: int) -> None:
        """Nothing."""

    @property
    def words(self) -> str:
        return "something"


class Generous(Fraction):
    """A fraction that grows where it is multiplied."""

    def __mul__(self, other: Any) -> Any:
        return Fraction(self.numerator, self.denominator) * other * 10


SHARES = (ONE, ONE, ONE)
TWINS: dict[str, Callable[[], Any]] = {
    "alerts without noise": lambda: SilentAlerts(3, ONE, ADD, 20),
    "a counter of another kind": lambda: SilentCounter(3, ONE, ADD, 8),
    "a composition without noise": lambda: HSS(3, None, *SHARES, ADD, 9, composition=SilentComposition()),
    "a louder maximum": lambda: HSS(3, Tenfold(), *SHARES, ADD, 9),
    "a louder maximum, watched": lambda: SparseVector(3, ONE, ONE, ADD, (0, 0, 0), Tenfold()),
    "a quantity of nobody's": lambda: SparseVector(3, ONE, ONE, ADD, (0, 0, 0), Unlisted()),
    "an epsilon that grows": lambda: Counter(3, Generous(1), ADD, 8),
}  # fmt: skip


@pytest.mark.parametrize("twin", TWINS)
def test_a_subclass_inherits_no_derivation(twin: str) -> None:
    """Neither asked for as the pipeline does, nor by itself."""
    for ask in (lambda: derived(TWINS[twin](), "s"), lambda: TWINS[twin]().derivation()):
        with pytest.raises((NotDerivable, InvalidCost)) as caught:
            ask()
        assert "class" in str(caught.value) or "exact" in str(caught.value)


class Restated(Counter):
    """Runs the counter's code and says so."""

    def derivation(self) -> Derivation:
        return Counter.derivation(self)


def test_a_subclass_may_state_a_derivation_of_its_own() -> None:
    assert derived(Restated(1, ONE, ADD, 8), "s").guarantee.measure == PureDP(ONE)


def test_measures_guarantees_derivations_and_situations_take_no_subclass() -> None:
    for closed in (*NAMES, Guarantee, Derivation, Condition, Touched, *RULES):
        with pytest.raises(NotDerivable, match=f"{closed.__name__} may have no subclass"):
            type("Cheaper", (closed,), {"__slots__": ()})


def test_what_only_looks_like_a_measure_or_a_derivation_is_refused() -> None:
    """A mock passes `isinstance`: it says of itself that it is of that class."""
    measure, derivation = Mock(spec=PureDP, epsilon=Fraction(0)), Mock(spec=Derivation)
    assert isinstance(measure, PureDP)
    right = leaf("right", Guarantee(PureDP(ONE), ADD), "here")
    tries: list[Callable[[], object]] = [
        lambda: Guarantee(measure, ADD),
        lambda: Guarantee(PureDP(ONE), Mock(spec=Neighbors)),
        lambda: derive((derivation,), Fixed("s")),
        lambda: derive((right,), Mock(spec=Fixed, subject="s")),
        lambda: replace(right, premises=(derivation,)),
        lambda: replace(right, conditions=(Mock(spec=Condition, holds=True),)),
        lambda: Ledger.of(ONE).price(derivation),
    ]
    for each in tries:
        with pytest.raises(NotDerivable):
            each()
    with pytest.raises(BudgetRefused, match="no theorem for Mock"):
        Ledger.of(ONE).ask("cheap", measure, "rule")
    with pytest.raises(InvalidCost, match="must be an exact number"):
        PureDP(Generous(1))


class Gratis(PureFilter):
    """A filter by the name of a proven one that charges nothing."""

    __slots__ = ()

    def cost(self, entry: Entry) -> Spend:
        return Spend()


def test_a_filter_is_proven_by_its_class_not_by_its_name() -> None:
    right = leaf("right", Guarantee(PureDP(Fraction(5)), ADD), "here")
    gratis = Gratis(10**12)
    assert gratis.name == "pure"
    for attempt in (
        lambda: derive((right,), Filtered("asked", gratis)),
        lambda: Ledger.under(gratis),
    ):
        with pytest.raises(NotDerivable, match="not a Gratis of the same name"):
            attempt()
    assert {name for name, standing in CONCURRENT.items() if standing.proven} == CLASSES.keys()
