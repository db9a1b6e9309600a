"""From a measure without an epsilon to (epsilon, delta)-DP at a granted delta.

zCDP, tCDP and RDP: Canonne, Kamath, Steinke 2020 (arXiv 2004.00010), Prop. 12, at the best order; a curve is taken
at its best order, because it holds at each of them. GDP: Dong, Roth, Su 2022, Cor. 2.13. All rounded up.
"""

from dataclasses import replace
from fractions import Fraction

from stream_dp.accounting.amounts import text
from stream_dp.accounting.conversions import renyi_epsilon, truncated_epsilon, zcdp_epsilon
from stream_dp.accounting.gaussian_curve import gaussian_to_approx
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import (
    NAMES,
    ZCDP,
    ApproxDP,
    GaussianDP,
    Measure,
    RenyiCurve,
    RenyiDP,
    TruncatedZCDP,
    differential_privacy,
)

DELTALESS = (ZCDP, TruncatedZCDP, RenyiDP, RenyiCurve, GaussianDP)
RENYI, GAUSSIAN = "Canonne, Kamath, Steinke 2020, Prop. 12", "Dong, Roth, Su 2022, Cor. 2.13"


def price(measure: Measure, delta: Fraction) -> Fraction | None:
    """Return the epsilon of the measure at this delta, rounded up; None where it has no epsilon there."""
    if isinstance(measure, DELTALESS) and delta == 0:
        return None
    match measure:
        case ZCDP():
            return zcdp_epsilon(measure, delta)
        case TruncatedZCDP():
            return truncated_epsilon(measure, delta)
        case RenyiDP():
            return renyi_epsilon(measure, delta)
        case RenyiCurve(points):
            return min(renyi_epsilon(point, delta) for point in points)
        case GaussianDP():
            return gaussian_to_approx(measure, delta).epsilon
        case _:
            stated = differential_privacy(measure)
            return stated.epsilon if stated.delta <= delta else None


def at_delta(premise: Derivation, delta: Fraction) -> Derivation:
    """Return `premise` as (epsilon, delta)-DP; unchanged where it states an epsilon already.

    Raises:
        NotDerivable: the premise has no epsilon at this delta.
    """
    measure = premise.guarantee.measure
    if not isinstance(measure, DELTALESS):
        return premise
    epsilon = price(measure, delta)
    granted = Condition(
        "delta", epsilon is not None, f"{text(delta)} is granted" if delta else "none is granted"
    )
    like = premise.guarantee
    return Derivation(
        premise.subject,
        replace(like, measure=ApproxDP(epsilon or Fraction(0), delta)),
        f"{NAMES[type(measure)]} at a delta",
        GAUSSIAN if isinstance(measure, GaussianDP) else RENYI,
        (granted,),
        (premise,),
    )
