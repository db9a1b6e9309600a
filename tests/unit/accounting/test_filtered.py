"""[HSV] Thm 12.4 as a rule: what a proven filter admitted has its promise, and nothing else has."""

from dataclasses import dataclass
from fractions import Fraction

import pytest

from stream_dp.accounting.derive import derive
from stream_dp.accounting.filters.linear import PureFilter
from stream_dp.accounting.filters.squares import GaussianFilter
from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.situations import Filtered
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import ZCDP, GaussianDP, Guarantee, Measure, PureDP
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import NotDerivable

ONE = Fraction(1)


def parts(*measures: Measure) -> tuple[Derivation, ...]:
    """Leaves."""
    return tuple(leaf("part", Guarantee(m, Neighbors.ADD_REMOVE), "proof") for m in measures)


def test_what_was_admitted_has_the_promise() -> None:
    found = derive(parts(PureDP(ONE), PureDP(ONE / 3)), Filtered("asked", PureFilter.of(2 * ONE)))
    assert found.guarantee.measure == PureDP(2 * ONE)  # of the budget, whatever was asked
    assert "[HSV] Thm 12.4 over basic composition" in found.conditions[0].why


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(
        NotDerivable, match=r"admitted: the 2 part\(s\) exceed the filter's capacity"
    ):
        derive(parts(PureDP(ONE), PureDP(ONE)), Filtered("asked", PureFilter.of(ONE * 3 / 2)))
    with pytest.raises(NotDerivable, match="no theorem for zCDP"):
        derive(parts(ZCDP(ONE)), Filtered("asked", PureFilter.of(ONE)))
    with pytest.raises(NotDerivable, match="finite communication"):
        derive(parts(GaussianDP(ONE / 2)), Filtered("asked", GaussianFilter.of(ONE)))


@dataclass(frozen=True)
class Sequential(PureFilter):
    """A filter that is proven for one mechanism after the other only."""

    @property
    def name(self) -> str:
        """Its name in the table."""
        return "approximate zCDP"


def test_a_filter_that_is_not_proven_is_refused() -> None:
    with pytest.raises(
        NotDerivable, match="proven for concurrent continual mechanisms: the approx"
    ):
        derive(parts(PureDP(ONE)), Filtered("asked", Sequential(10**13)))
