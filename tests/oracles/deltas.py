"""The delta of Renyi DP and of zCDP at an epsilon: what the package solves for epsilon, and for the budget."""

from fractions import Fraction

from stream_dp.accounting.conversions import _best, _gain, _gain_float, zcdp_to_renyi
from stream_dp.core.guarantee import ZCDP, RenyiDP


def renyi_delta(measure: RenyiDP, epsilon: Fraction) -> Fraction:
    """Delta with which (alpha, e)-RDP is (epsilon, delta)-DP: e^((a-1)(e-epsilon)) (1-1/a)^a / (a-1), at most 1."""
    a = measure.alpha
    exponent = _gain(a) + (a - 1) * (measure.epsilon - epsilon)
    return Fraction(1) if exponent.low > 0 else min(exponent.exp().upper, Fraction(1))


def zcdp_delta(measure: ZCDP, epsilon: Fraction) -> Fraction:
    """inf over alpha of e^((a-1)(a rho - epsilon)) (1-1/a)^a / (a-1): the delta of rho-zCDP at epsilon."""
    rho, e = float(measure.rho), float(epsilon)
    alpha = _best(lambda a: (a - 1) * (a * rho - e) + _gain_float(a))
    return renyi_delta(zcdp_to_renyi(measure, alpha), epsilon)
