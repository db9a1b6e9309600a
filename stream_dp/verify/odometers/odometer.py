"""The odometer: a bound on the loss so far that holds at all times at once ([WRRW] Def 6, Thm 3).

With probability 1 - delta' - delta'' the privacy loss never exceeds `bound()`, however the parameters are chosen.
The loss is a drift plus a martingale; a `Boundary` bounds the latter in terms of the intrinsic time V.

Inputs must be pDP: an (epsilon, delta)-DP mechanism may lose more than epsilon with a probability far above delta,
and is refused until `conversions.approx_to_probabilistic` has converted it. Plain: V adds e^2, the drift e^2/2.
Tight, for pure and zCDP inputs: the drift adds rho and V adds 2 rho, since E exp(l L) <= exp(l (l+1) rho) at every
l > 0. An input with d > 0 is taken given that its loss is at most e: this renormalises both sides by at most s =
d/(1-d) >= -ln(1-d), so it is charged as e + s with s more of drift ([WRRW] leave s out; randomized response alone
needs none).
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Protocol

from stream_dp.accounting.amounts import budget_units, cost_units
from stream_dp.accounting.conversions import pure_to_zcdp
from stream_dp.accounting.directed import ceil_units
from stream_dp.accounting.filters.budgets import own_delta
from stream_dp.accounting.filters.filter import SQUARED
from stream_dp.core.guarantee import ZCDP, Measure, ProbabilisticDP, PureDP
from stream_dp.errors import NotDerivable


class Boundary(Protocol):
    """A time-uniform boundary of a sub-Gaussian martingale."""

    def above(self, variance: Fraction) -> Fraction | None:
        """Return a bound on the martingale at all times, with probability 1 - delta'; None: infinity."""
        ...


@dataclass(frozen=True, slots=True)
class Odometer:
    """Sums over the observed mechanisms (V and drift in units of 10^-24, delta in 10^-12, all rounded up) and a
    boundary.

    `tight` takes pure and zCDP inputs only.
    """

    boundary: Boundary
    slack: int = 0
    tight: bool = False
    variance: int = 0
    drift: int = 0
    delta: int = 0

    @classmethod
    def of(
        cls, boundary: Boundary, slack: Fraction = Fraction(0), *, tight: bool = False
    ) -> "Odometer":
        """Return an empty odometer; `slack` is delta'', for the inputs' own deltas; the boundary has delta'.

        Raises:
            InvalidCost: the slack is neither 0 nor an exact number between 0 and 1.
        """
        return cls(boundary, budget_units(own_delta(slack, owner="an odometer")), tight)

    def observe(self, measure: Measure) -> "Odometer":
        """Return the odometer after one more mechanism; this odometer is unchanged.

        Raises:
            NotDerivable: the measure is not pDP (plain), or neither pure nor zCDP (tight).
        """
        match measure:
            case PureDP() if self.tight:
                return self._tightly(pure_to_zcdp(measure))
            case ZCDP() if self.tight:
                return self._tightly(measure)
            case PureDP(epsilon) if not self.tight:
                return self._plainly(epsilon, Fraction(0))
            case ProbabilisticDP(epsilon, delta) if not self.tight:
                return self._plainly(epsilon, delta)
            case _:
                raise NotDerivable(self._refusal(measure))

    def _tightly(self, measure: ZCDP) -> "Odometer":
        rho = ceil_units(measure.rho, SQUARED)
        return replace(self, variance=self.variance + 2 * rho, drift=self.drift + rho)

    def _plainly(self, epsilon: Fraction, delta: Fraction) -> "Odometer":
        renormalised = delta / (1 - delta)
        square = (epsilon + renormalised) ** 2
        return replace(
            self,
            variance=self.variance + ceil_units(square, SQUARED),
            drift=self.drift + ceil_units(square / 2 + renormalised, SQUARED),
            delta=self.delta + cost_units(delta),
        )

    def _refusal(self, measure: Measure) -> str:
        if self.tight:
            return f"a tight odometer takes pure and zCDP mechanisms, not {measure}"
        return (
            f"an odometer takes pDP mechanisms, not {measure}: (epsilon, delta)-DP bounds no privacy loss "
            "([WRRW] App. F). Convert it first with approx_to_probabilistic"
        )

    def bound(self) -> Fraction | None:
        """Return the loss so far, rounded up; None where no finite bound holds."""
        if self.delta > self.slack:
            return None
        above = self.boundary.above(Fraction(self.variance, SQUARED))
        return None if above is None else above + Fraction(self.drift, SQUARED)
