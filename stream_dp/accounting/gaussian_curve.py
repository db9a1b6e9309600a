"""Gaussian DP as (epsilon, delta)-DP, with a rigorous normal distribution function.

Phi(x) = 1/2 + phi(x) (x + x^3/3 + x^5/15 + ...): all terms have one sign, so intervals enclose the sum, and the
rest is at most the last term once the terms halve. Beyond `FAR` the tail is bounded, not computed: safe, not tight.
"""

from decimal import Decimal
from fractions import Fraction

from stream_dp.accounting.conversions import zcdp_epsilon
from stream_dp.accounting.directed import Interval
from stream_dp.core.guarantee import ZCDP, ApproxDP, GaussianDP

FAR = 10  # standard deviations; Phi(-10) is 7.6e-24, of which 60 digits leave 36
FINE = Fraction(1, 10**9)  # to which an epsilon is searched
_DIGITS = "3.14159265358979323846264338327950288419716939937510582097494"
_PI = Interval(Decimal(_DIGITS + "4"), Decimal(_DIGITS + "5"))
_NEGLIGIBLE = Decimal("1E-58")


def normal_cdf(x: Fraction) -> Interval:
    """P(N(0, 1) <= x), enclosed.

    >>> float(normal_cdf(Fraction(-1)).upper)
    0.15865525393145705
    """
    if abs(x) > FAR:
        tail = (Interval.of(-x * x / 2).exp() / 2).high  # Chernoff
        return Interval(Decimal(0), tail) if x < 0 else Interval.of(1) - Interval(Decimal(0), tail)
    square, term = x * x, Interval.of(abs(x))
    total, n = term, 0
    while square > n or term.high > _NEGLIGIBLE:  # then 2n+3 > 2 square: terms halve from here on
        n += 1
        term = term * square / (2 * n + 1)
        total = total + term
    rest = Interval(Decimal(0), term.high)
    part = (total + rest) * Interval.of(-square / 2).exp() / (_PI * 2).sqrt()
    half = Interval.of(Fraction(1, 2))
    return half + part if x >= 0 else half - part


def gaussian_delta(measure: GaussianDP, epsilon: Fraction) -> Fraction:
    """Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu): exact for a Gaussian, rounded up."""
    mu = measure.mu
    if mu == 0:
        return Fraction(0)
    far = normal_cdf(-mu / 2 - epsilon / mu)
    kept = Interval(max(far.low, Decimal(0)), far.high)
    found = normal_cdf(mu / 2 - epsilon / mu) - Interval.of(epsilon).exp() * kept
    return min(max(found.upper, Fraction(0)), Fraction(1))


def gaussian_to_approx(measure: GaussianDP, delta: Fraction) -> ApproxDP:
    """The smallest epsilon (to 10^-9, rounded up) at which mu-GDP has this delta.

    mu-GDP is (mu^2/2)-zCDP, which gives the end of the search.
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
