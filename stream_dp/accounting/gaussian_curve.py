"""Gaussian DP as (epsilon, delta)-DP, and pure DP as Gaussian DP, with a rigorous normal distribution function.

Phi(x) = 1/2 + phi(x) (x + x^3/3 + x^5/15 + ...): all terms have one sign, so intervals enclose the sum, and the
rest is at most the last term once the terms halve. Beyond `FAR` the tail is bounded, not computed: safe, not tight.
"""

import math
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist

from stream_dp.accounting.amounts import UNITS, Interval, ceil_units
from stream_dp.accounting.conversions import zcdp_epsilon
from stream_dp.core.guarantee import ZCDP, ApproxDP, GaussianDP, PureDP
from stream_dp.errors import NotDerivable


def discrete_gaussian(variance: Fraction, squares: Fraction = Fraction(1)) -> GaussianDP:
    """Return mu-GDP of N_Z(0, variance) draws that one event shifts by integers with a sum of squares <= `squares`.

    mu is rounded up; the shifts may be chosen adaptively. Answers are integers without bound, so communication is
    finite ([HSV] Def 14.4; `Guarantee.finite`) only where they are clamped and there is a horizon.

    N_Z(0, s^2) has P(k) proportional to e^(-k^2 / (2 s^2)) on the integers. A count that one event shifts by 1 is
    exactly (1 / (2 s^2))-zCDP with it, like with continuous noise, but it is NOT (1/s)-GDP (tests show where that
    fails). It is mu-GDP with mu^2 = -ln(2 e^(-1 / (2 s^2)) - 1) = 1/s^2 + 1/(4 s^4) + ..., for s^2 > 1 / (2 ln 2).

    Proof [D]. F is the distribution function, t_k = Phi^-1(F(k)), D_k = t_k - t_(k-1). The trade-off function of the
    two answers is the polygon through (1 - F(k), F(k - 1)). That of N(0, 1) against N(mu, 1) is convex: it lies below
    iff it does at the corners, that is iff mu >= D_k for every k.
    (1) Where k is large, Mills' ratio gives t_k^2 + 2 ln t_k = (k+1)^2 / s^2 + c + o(1), so that D_k tends to at most
    1/s; for small k by symmetry.
    (2) So the supremum is at most 1/s, or is attained, at some k. Then the cells beside [t_(k-1), t_k] are no wider
    than D = D_k: with a mean E over that cell under the normal law, P(k+1) <= P(k) e^(-D^2/2) E e^(-tD), P(k-1) <=
    P(k) e^(-D^2/2) E e^(tD). The product: e^(-1/s^2) = P(k+1) P(k-1) / P(k)^2 <= e^(-D^2) E cosh((t - t') D), with
    t, t' independent in the cell. That function is convex in t and in t', so its mean is at most the one with both
    at the ends, with chances p and 1 - p: 1 + 2 p (1 - p) (cosh D^2 - 1) <= (1 + cosh D^2) / 2 = cosh^2(D^2 / 2). So
    D^2 - 2 ln cosh(D^2 / 2) <= 1/s^2; the left side is 2 ln 2 - 2 ln(1 + e^(-D^2)), which gives the claim.
    (3) A shift by v is v cells: mu v. Shifts of several independent draws, each chosen by what was answered before,
    with squares of at most S^2 in sum: mu S ([HSV] Cor 14.10).

    Raises:
        NotDerivable: the variance is not above 1 / (2 ln 2), about 0.7213: nothing is proven for it.
    """
    kept = Interval.of(-1 / (2 * variance)).exp() * 2 - 1 if variance > 0 else Interval.of(0)
    if kept.low <= 0:
        raise NotDerivable(
            "no GDP guarantee is proven for discrete Gaussian noise of variance "
            f"{float(variance):g}: where one event shifts the value by 1, the variance must be "
            "above 0.7214. Use zCDP"
        )
    return GaussianDP(((Interval.of(0) - kept.ln()) * squares).sqrt().upper)


FAR = 10  # standard deviations; Phi(-10) is 7.6e-24, so 36 of 60 digits remain
FINE = Fraction(1, 10**9)  # precision of the search for an epsilon
_DIGITS = "3.14159265358979323846264338327950288419716939937510582097494"
_PI = Interval(Decimal(_DIGITS + "4"), Decimal(_DIGITS + "5"))
_NEGLIGIBLE = Decimal("1E-58")
_KEPT = 4096  # cached results
_HALVINGS = 60
_LARGE = 40  # an epsilon that gives no protection; the quantile is computed below it


def normal_cdf(x: Fraction) -> Interval:
    """Return an interval around P(N(0, 1) <= x).

    >>> float(normal_cdf(Fraction(-1)).upper)
    0.15865525393145705
    """
    if abs(x) > FAR:
        tail = (Interval.of(-x * x / 2).exp() / 2).high  # Chernoff
        return Interval(Decimal(0), tail) if x < 0 else Interval.of(1) - Interval(Decimal(0), tail)
    square, term = x * x, Interval.of(abs(x))
    factor, total, n = Interval.of(square), term, 0
    while square > n or term.high > _NEGLIGIBLE:  # then 2n+3 > 2 square: terms halve from here on
        n += 1
        term = term * factor / (2 * n + 1)
        total = total + term
    rest = Interval(Decimal(0), term.high)
    part = (total + rest) * Interval.of(-square / 2).exp() / (_PI * 2).sqrt()
    half = Interval.of(Fraction(1, 2))
    return half + part if x >= 0 else half - part


def gaussian_delta(measure: GaussianDP, epsilon: Fraction) -> Fraction:
    """Return Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), the exact delta of a Gaussian, rounded up."""
    mu = measure.mu
    if mu == 0:
        return Fraction(0)
    far = normal_cdf(-mu / 2 - epsilon / mu)
    kept = Interval(max(far.low, Decimal(0)), far.high)
    delta = normal_cdf(mu / 2 - epsilon / mu) - Interval.of(epsilon).exp() * kept
    return min(max(delta.upper, Fraction(0)), Fraction(1))


def gaussian_to_approx(measure: GaussianDP, delta: Fraction) -> ApproxDP:
    """Return the smallest epsilon (to 10^-9, rounded up) at which mu-GDP has this delta.

    mu-GDP is (mu^2/2)-zCDP, which gives the upper end of the search.
    """
    low, high = Fraction(0), zcdp_epsilon(ZCDP(measure.mu**2 / 2), delta)
    if gaussian_delta(measure, low) <= delta:
        return ApproxDP(low, delta)
    while high - low > FINE:
        middle = ((low + high) / 2).limit_denominator(10**12)
        if gaussian_delta(measure, middle) <= delta:
            high = middle
        else:
            low = middle
    return ApproxDP(high, delta)


@lru_cache(_KEPT)
def gaussian_budget(target: ApproxDP) -> Fraction:
    """Return the largest mu, in units of 10^-12 and rounded down, such that mu-GDP is (epsilon, delta)-DP.

    A float only chooses the start of the search.
    """

    def implied(units: int) -> bool:
        return gaussian_delta(GaussianDP(Fraction(units, UNITS)), target.epsilon) <= target.delta

    near = _near_budget(min(float(target.epsilon), _LARGE), float(target.delta))
    low, step = int(near * UNITS), 1
    high = low + 1
    while low and not implied(low):
        low, high, step = max(low - step, 0), low, 2 * step
    while implied(high):
        low, high, step = high, high + step, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if implied(middle) else (low, middle)
    return Fraction(low, UNITS)


def _near_budget(epsilon: float, delta: float) -> float:
    low, high = 0.0, 2.0 * math.sqrt(2 * epsilon) + 10
    for _ in range(_HALVINGS):
        mu = (low + high) / 2
        far = math.exp(epsilon) * math.erfc((mu / 2 + epsilon / mu) / math.sqrt(2))
        near = math.erfc((epsilon / mu - mu / 2) / math.sqrt(2))
        low, high = (mu, high) if (near - far) / 2 <= delta else (low, mu)
    return low


@lru_cache(_KEPT)
def pure_to_gaussian(measure: PureDP) -> GaussianDP:
    """Return mu-GDP of epsilon-DP: mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon)), in units of 10^-12, rounded up.

    Proof: every pure mechanism is a post-processing of randomized response ([HSV] Lemma 4.7), whose trade-off
    function is the polygon through (0, 1), (p, p), (1, 0) with p = 1 / (1 + e^epsilon). That of N(0, 1) against
    N(mu, 1) is convex and passes through the same three points, so it lies below, and no smaller mu suffices. For
    large epsilon the tail bound Phi(-x) <= e^(-x^2/2) / 2 gives sqrt(8 epsilon), which holds everywhere.
    """
    epsilon = measure.epsilon
    if epsilon > _LARGE:
        units = ceil_units(Interval.of(8 * epsilon).sqrt().upper, UNITS)
        return GaussianDP(Fraction(units, UNITS))
    if epsilon == 0:
        return GaussianDP(Fraction(0))
    odds = Interval.of(epsilon).exp()
    truth = odds / (odds + 1)

    def too_small(units: int) -> bool:
        return normal_cdf(Fraction(units, 2 * UNITS)).low < truth.high

    units = int(-2 * NormalDist().inv_cdf(1 / (1 + math.exp(epsilon))) * UNITS)  # only a start
    while not too_small(units):
        units -= 1
    while too_small(units):
        units += 1
    return GaussianDP(Fraction(units, UNITS))
