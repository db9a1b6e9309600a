"""Odometers: upper bounds on the privacy loss so far.

Mechanisms that run at the same time: `accounting.ledger`, under a filter that its table `CONCURRENT` lists as proven;
and `loss_bound`, a bound at all times, where all of them are pure. Mechanisms that run one after the other, each
answered before the next is chosen: also `Odometer` with a boundary of [WRRW] Thm 3, which bounds the loss at all
times at once. These boundaries need pDP. Post-processing does not preserve pDP, so [HSTV]'s reduction to randomized
response does not apply to them.

delta' is the probability that a boundary fails, V the intrinsic time of the loss martingale.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Protocol

from stream_dp.accounting.amounts import Interval, budget_units, ceil_units, cost_units, ln_inverse
from stream_dp.accounting.conversions import bits_float, pure_to_zcdp
from stream_dp.accounting.filters.filter import SQUARED, budget, own_delta
from stream_dp.accounting.rules.time import loads
from stream_dp.accounting.situations import Alive
from stream_dp.core.guarantee import ZCDP, Measure, ProbabilisticDP, PureDP
from stream_dp.errors import NotDerivable

FACTOR, SHARE, CONSTANT = Fraction(17, 10), Fraction(72, 100), Fraction(52, 10)


class Boundary(Protocol):
    """A time-uniform boundary of a sub-Gaussian martingale."""

    def above(self, variance: Fraction) -> Fraction | None:
        """Return a bound on the martingale at V, valid at all times with probability 1 - delta'; None: infinity."""
        ...


def _require(what: str, amount: Fraction, below: Fraction | None = None) -> None:
    budget(what, amount, below=below, owner="an odometer")


@dataclass(frozen=True, slots=True)
class FilterBoundary:
    """sqrt(2 y L)/2 + sqrt(2 L)/(2 sqrt(y)) V, L = ln(1/delta'), for any touching point y > 0 ([WRRW] Thm 3.1).

    The line touches the curve of advanced composition at a target epsilon.

    Raises:
        InvalidCost: delta' is not between 0 and 1, or the touching point is not positive.
    """

    delta: Fraction
    touching: Fraction

    def __post_init__(self) -> None:
        _require("the delta'", self.delta, Fraction(1))
        _require("the touching point", self.touching)

    @classmethod
    def tuned(cls, epsilon: Fraction, delta: Fraction) -> "FilterBoundary":
        """Return the boundary that touches at epsilon: y = (sqrt(2L + 2 epsilon) - sqrt(2L))^2.

        [WRRW] print epsilon in place of 2 epsilon. That line touches at epsilon/2: it is valid, but loses about a
        quarter of the budget. Any y is valid, so a float may choose it.

        Raises:
            InvalidCost: epsilon is not an exact positive number, or delta' not between 0 and 1.
        """
        _require("the epsilon", epsilon)
        _require("the delta'", delta, Fraction(1))
        twice = 2 * bits_float(delta)
        root = 2 * float(epsilon) / (math.sqrt(twice + 2 * float(epsilon)) + math.sqrt(twice))
        return cls(delta, Fraction(root * root))

    def above(self, variance: Fraction) -> Fraction | None:
        twice = ln_inverse(self.delta) * 2
        line = (twice * self.touching).sqrt() / 2 + (twice / self.touching).sqrt() * (variance / 2)
        return line.upper


@dataclass(frozen=True, slots=True)
class _Mixture:
    """A mixture (after Robbins): good over a wide range around V = gamma.

    Raises:
        InvalidCost: delta' is not between 0 and 1/2, or the gamma is not positive.
    """

    delta: Fraction
    gamma: Fraction

    def __post_init__(self) -> None:
        _require("the delta'", self.delta, Fraction(1, 2))
        _require("the gamma", self.gamma)

    def above(self, variance: Fraction) -> Fraction | None:
        total = variance + self.gamma
        return (self._bits(Interval.of(total / self.gamma)) * (2 * total)).sqrt().upper

    def _bits(self, growth: Interval) -> Interval:
        """Return the logarithm under the root, where V has grown to (V+g)/g."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class MixtureBoundary(_Mixture):
    """sqrt(2 (V+g) ln(sqrt((V+g)/g) / delta')): the normal mixture, which bounds both directions ([WRRW] Thm 3.2).

    Tight inputs are bounded above only: a mechanism may lose less than its rho. For them the boundary holds because
    it lies above the half-normal mixture's curve where delta' <= sqrt((V+g)/g) / 2; hence delta' is below 1/2.
    """

    def _bits(self, growth: Interval) -> Interval:
        return growth.ln() / 2 + ln_inverse(self.delta)


@dataclass(frozen=True, slots=True)
class OneSidedMixtureBoundary(_Mixture):
    """sqrt(2 (V+g) ln(1 + sqrt((V+g)/g) / (2 delta'))): the half-normal mixture, which bounds above only; tighter.

    The mixture of exp(l M - l^2 V/2) over half-normal l > 0 is 2 sqrt(g/(V+g)) Phi(x) exp(x^2/2), x = M/sqrt(V+g), and
    2 Phi(x) exp(x^2/2) >= 2 exp(x^2/2) - 1; Ville's inequality bounds it by 1/delta'.
    """

    def _bits(self, growth: Interval) -> Interval:
        return (growth.sqrt() / (2 * self.delta) + 1).ln()


@dataclass(frozen=True, slots=True)
class StitchedBoundary:
    """1.7 sqrt(V (ln ln(2V/v0) + .72 ln(5.2/delta'))) for V >= v0, the rate of the iterated logarithm.

    Source: [WRRW] Thm 3.3, where the 5.2 is printed as "5 . 2".

    Raises:
        InvalidCost: delta' is not between 0 and 1, or the start v0 is not positive.
    """

    delta: Fraction
    start: Fraction

    def __post_init__(self) -> None:
        _require("the delta'", self.delta, Fraction(1))
        _require("the start", self.start)

    def above(self, variance: Fraction) -> Fraction | None:
        if variance < self.start:
            return None
        iterated = Interval.of(2 * variance / self.start).ln().ln()
        bits = iterated + Interval.of(CONSTANT / self.delta).ln() * SHARE
        return ((bits * variance).sqrt() * FACTOR).upper


@dataclass(frozen=True, slots=True)
class Odometer:
    """A bound on the privacy loss so far that holds at all times at once ([WRRW] Def 6, Thm 3).

    With probability 1 - delta' - delta'' the loss never exceeds `bound()`, however the parameters are chosen. The
    loss is a drift plus a martingale, which the boundary bounds in terms of V. V and the drift are sums in units of
    10^-24, delta in units of 10^-12, all rounded up.

    Plain: V adds e^2, the drift e^2/2. `tight`, for pure and zCDP inputs only: the drift adds rho and V adds 2 rho,
    since E exp(l L) <= exp(l (l+1) rho) at every l > 0. Inputs must be pDP: an (epsilon, delta)-DP mechanism may lose
    more than epsilon with a probability far above delta; convert it with `conversions.approx_to_probabilistic`. An
    input with d > 0 is taken given that its loss is at most e. This renormalises both sides by at most s = d/(1-d) >=
    -ln(1-d), so it is charged as e + s with s more of drift ([WRRW] leave s out; randomized response alone needs
    none).
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
        """Return an empty odometer; `slack` is delta'', for the inputs' own deltas.

        Raises:
            InvalidCost: the slack is neither 0 nor an exact number between 0 and 1.
        """
        return cls(boundary, budget_units(own_delta(slack, owner="an odometer")), tight)

    def observe(self, measure: Measure) -> "Odometer":
        """Return the odometer after one more mechanism; this odometer is unchanged.

        Raises:
            NotDerivable: the measure is not pDP (plain), or neither pure nor zCDP (tight).
        """
        if self.tight:
            return self._tightly(measure)
        if not isinstance(measure, PureDP | ProbabilisticDP):
            raise NotDerivable(
                f"an odometer takes only pDP mechanisms, not {measure}: (epsilon, delta)-DP bounds "
                "no privacy loss ([WRRW] App. F). Convert it first with approx_to_probabilistic"
            )
        renormalised = measure.delta / (1 - measure.delta)
        square = (measure.epsilon + renormalised) ** 2
        return replace(
            self,
            variance=self.variance + ceil_units(square, SQUARED),
            drift=self.drift + ceil_units(square / 2 + renormalised, SQUARED),
            delta=self.delta + cost_units(measure.delta),
        )

    def _tightly(self, measure: Measure) -> "Odometer":
        known = pure_to_zcdp(measure) if isinstance(measure, PureDP) else measure
        if not isinstance(known, ZCDP):
            raise NotDerivable(
                f"a tight odometer takes only pure and zCDP mechanisms, not {measure}"
            )
        rho = ceil_units(known.rho, SQUARED)
        return replace(self, variance=self.variance + 2 * rho, drift=self.drift + rho)

    def bound(self) -> Fraction | None:
        """Return the loss so far, rounded up; None where no finite bound holds."""
        if self.delta > self.slack:
            return None
        above = self.boundary.above(Fraction(self.variance, SQUARED))
        return None if above is None else above + Fraction(self.drift, SQUARED)


# delta', fixed for all ledgers: a value chosen by looking would not be valid
FAILS = Fraction(1, 10**6)
GAMMA = Fraction(1, 100)  # where the mixture is tightest: about V = 2 R = 0.01


def loss_bound(
    epsilons: Sequence[Fraction], alive: Sequence[Alive] | None = None, fails: Fraction = FAILS
) -> Fraction:
    """Return a bound on the loss of concurrent pure mechanisms at all times, rounded up; at most the sum of epsilons.

    `alive`: the ticks that each mechanism sees, where the protected event lies in one tick; rounded outward to public
    windows, where a user's events lie in one window. None: the protected data may lie in all ticks.

    Privacy claim: with probability 1 - `fails` the loss of the whole view never exceeds R + B(2 R). R is the sum of
    rho = epsilon tanh(epsilon / 2) over the mechanisms created so far, B a one-sided boundary ([WRRW] Thm 3.2,
    tight). The claim does not extend to mechanisms with a delta: a view is a post-processing of randomized responses,
    and post-processing does not preserve pDP.

    Proof [D]. Fix l > 0 and an adversary. For a mechanism with its own history h let Phi(h) be the supremum, over the
    adversary's ways to go on with it, of the mean of e^(l x the loss still to come). The adversary may stop, so Phi
    >= 1. At the creation Phi <= e^(l (l+1) rho): the mechanism is rho-zCDP against adaptive adversaries, here at the
    order l + 1. A mechanism's answers depend on its own history only. So a message to any mechanism, in any order,
    multiplies the product over the mechanisms of e^(l loss - l (l+1) rho) Phi by a factor of mean at most 1, and so
    does a creation. The product is a supermartingale that begins at 1 and is at least e^(l L - l (l+1) R). The
    line-crossing and mixture bounds ask no more of a sequential composition; the mixture over l is a supermartingale
    too. The largest load of a tick may stand for R: an event touches only what is alive at its tick; a pure mechanism
    is as pure after any number of equal pairs, so its factor may begin when it is touched; and B grows with R. A
    user's events touch only what is alive at some tick of their public window, so whole windows take the place of
    ticks.
    """
    lives = [Alive(0, None)] * len(epsilons) if alive is None else alive
    rhos = [pure_to_zcdp(PureDP(epsilon)).rho for epsilon in epsilons]
    rho = ceil_units(_largest(lives, rhos), SQUARED)
    boundary = OneSidedMixtureBoundary(fails, GAMMA)
    bound = Odometer(boundary, tight=True, variance=2 * rho, drift=rho).bound()
    certain = _largest(lives, epsilons)
    return certain if bound is None else min(bound, certain)


def _largest(alive: Sequence[Alive], amounts: Sequence[Fraction]) -> Fraction:
    return max((load for _, load in loads(alive, amounts)), default=Fraction(0))
