"""From one privacy measure to another: rationals in, rationals out, every result an upper bound.

Rules: floats only *choose* an order alpha at which a bound is evaluated; the bound holds at every order, and it
is evaluated with outward-rounded intervals (`Interval`). So no result depends on the accuracy of a float.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from stream_dp.accounting.amounts import Interval, ln_inverse
from stream_dp.core.guarantee import ZCDP, ApproxDP, ProbabilisticDP, PureDP, RenyiDP, TruncatedZCDP
from stream_dp.errors import InvalidCost

STEPS = 90  # steps of the golden section over ln(alpha - 1)
LOW, HIGH = -12.0, 60.0
MOST_ORDER = 10**6


@lru_cache(maxsize=1024)
def pure_zcdp(epsilon: Fraction) -> Interval:
    """Return an interval around epsilon * tanh(epsilon / 2)."""
    inverse = Interval.of(-epsilon).exp()
    return (Interval.of(1) - inverse) / (inverse + 1) * epsilon


def pure_to_zcdp(measure: PureDP) -> ZCDP:
    """Return rho: epsilon-DP is (epsilon tanh(epsilon/2))-zCDP, and no smaller rho holds for randomized response.

    Proof: for RR, (alpha-1) D_alpha = lc(epsilon sqrt(u)) - lc(epsilon/2) with lc = ln cosh, u = (alpha - 1/2)^2.
    This is concave in u, so it stays below its tangent at u = 1/4, which is alpha (alpha-1) epsilon
    tanh(epsilon/2). Every pure mechanism is a post-processing of RR ([HSV] Thm 2.5).
    """
    return ZCDP(max(pure_zcdp(measure.epsilon).upper, Fraction(0)))


def pure_to_renyi(measure: PureDP, alpha: Fraction) -> RenyiDP:
    """Return epsilon-DP at order alpha, the divergence of randomized response: (lc(e(a-1/2)) - lc(e/2)) / (a-1)."""
    e = measure.epsilon
    top = _ln_twice_cosh(e * (alpha - Fraction(1, 2))) - _ln_twice_cosh(e / 2)
    return RenyiDP(alpha, min(max((top / (alpha - 1)).upper, Fraction(0)), e))


def _ln_twice_cosh(x: Fraction) -> Interval:
    return (Interval.of(-2 * x).exp() + 1).ln() + x


def zcdp_to_renyi(measure: ZCDP, alpha: Fraction) -> RenyiDP:
    """Return rho-zCDP at this order: (alpha, rho alpha)-RDP, by definition."""
    return RenyiDP(alpha, measure.rho * alpha)


def renyi_epsilon(measure: RenyiDP, delta: Fraction) -> Fraction:
    """Return epsilon such that (a, e)-RDP is (epsilon, delta)-DP: delta = e^((a-1)(e-epsilon)) (1-1/a)^a / (a-1)."""
    a = measure.alpha
    return max(((_gain(a) + ln_inverse(delta)) / (a - 1) + measure.epsilon).upper, Fraction(0))


def _gain(alpha: Fraction) -> Interval:
    return Interval.of(1 - 1 / alpha).ln() * alpha - Interval.of(alpha - 1).ln()


def renyi_to_approx(measure: RenyiDP, delta: Fraction) -> ApproxDP:
    return ApproxDP(renyi_epsilon(measure, delta), delta)


def zcdp_epsilon(measure: ZCDP, delta: Fraction) -> Fraction:
    """Return the epsilon of rho-zCDP at delta: the infimum of `renyi_epsilon` over the orders."""
    return renyi_epsilon(zcdp_to_renyi(measure, _order(measure.rho, delta)), delta)


def truncated_epsilon(measure: TruncatedZCDP, delta: Fraction) -> Fraction:
    """Return the epsilon of (rho, omega)-tCDP at delta: the infimum of `renyi_epsilon` over the orders below omega."""
    last = 1 + (measure.omega - 1) * (1 - Fraction(1, 10**9))
    alpha = min(_order(measure.rho, delta), last)
    return renyi_epsilon(RenyiDP(alpha, measure.rho * alpha), delta)


def _order(exact: Fraction, delta: Fraction) -> Fraction:
    """Return an order near the one at which a Renyi divergence of rho alpha gives the least epsilon at delta."""
    rho, bits = float(exact), bits_float(delta)
    return _best(lambda a: a * rho + (bits + _gain_float(a)) / (a - 1))


def zcdp_to_approx(measure: ZCDP, delta: Fraction) -> ApproxDP:
    return ApproxDP(zcdp_epsilon(measure, delta), delta)


def zcdp_budget(target: ApproxDP) -> Fraction:
    """Return a rho, rounded down, such that rho-zCDP is (epsilon, delta)-DP; never below `standard_budget`."""
    alpha = _zcdp_order(target)
    tight = _renyi_left(target, alpha) / alpha
    return max(tight.lower, standard_budget(target), Fraction(0))


def _zcdp_order(target: ApproxDP) -> Fraction:
    """Return an order near the one at which the largest rho implies `target`."""
    e, bits = float(target.epsilon), bits_float(target.delta)
    return _best(lambda a: ((bits + _gain_float(a)) / (a - 1) - e) / a)


def _renyi_left(target: ApproxDP, alpha: Fraction) -> Interval:
    """Return the epsilon of Renyi DP at this order that implies `target`, which may be negative."""
    return Interval.of(target.epsilon) - (_gain(alpha) + ln_inverse(target.delta)) / (alpha - 1)


def renyi_budget(target: ApproxDP, alpha: Fraction) -> RenyiDP:
    """Return the largest epsilon at this order, rounded down, that implies `target` (InvalidCost: none does)."""
    left = _renyi_left(target, alpha)
    if left.low <= 0:
        raise InvalidCost(
            f"Renyi DP at order {alpha} cannot give epsilon {float(target.epsilon):g} with delta "
            f"{float(target.delta):g}: choose a larger order, epsilon or delta"
        )
    return RenyiDP(alpha, Fraction(left.low))


def best_order(target: ApproxDP) -> Fraction:
    """Return the whole order, at most `MOST_ORDER`, whose budget holds most pure costs of a fortieth of epsilon.

    That is a small series beside many others.
    """
    small = PureDP(target.epsilon / 40)
    e, bits, cost = float(target.epsilon), bits_float(target.delta), float(small.epsilon)

    def twice_cosh(x: float) -> float:
        return math.log1p(math.exp(-2 * x)) + x

    def against(alpha: float) -> float:
        left = e - (bits + _gain_float(alpha)) / (alpha - 1)
        return -left * (alpha - 1) / (twice_cosh(cost * (alpha - 0.5)) - twice_cosh(cost / 2))

    near = math.floor(_best(against))
    orders = [Fraction(min(max(order, 2), MOST_ORDER)) for order in (near, near + 1)]
    return max(
        orders, key=lambda a: Fraction(_renyi_left(target, a).low) / pure_to_renyi(small, a).epsilon
    )


def standard_budget(target: ApproxDP) -> Fraction:
    """Return rho, rounded down: rho + 2 sqrt(rho L) = epsilon, so (sqrt(L+epsilon) - sqrt(L))^2, L = ln(1/delta)."""
    bits = ln_inverse(target.delta)
    root = (bits + target.epsilon).sqrt() - bits.sqrt()
    return max(root.lower, Fraction(0)) ** 2


def bits_float(delta: Fraction) -> float:
    """Return ln(1/delta) as a float, for choices only, for delta below every float too (ValueError: not in (0, 1))."""
    if not 0 < delta < 1:
        raise ValueError(f"a probability must lie strictly between 0 and 1, got {delta}")
    return math.log(delta.denominator) - math.log(delta.numerator)


def _gain_float(alpha: float) -> float:
    return alpha * math.log1p(-1 / alpha) - math.log(alpha - 1)


def _best(objective: Callable[[float], float]) -> Fraction:
    """Return an order with a small objective (golden section over ln(alpha-1)); every order > 1 is valid."""

    def at(x: float) -> float:
        return objective(1 + math.exp(x))

    ratio, low, high = (math.sqrt(5) - 1) / 2, LOW, HIGH
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = at(left), at(right)
    for _ in range(STEPS):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = at(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = at(right)
    return 1 + Fraction(math.exp((low + high) / 2)).limit_denominator(10**9) + Fraction(1, 10**9)


def approx_to_probabilistic(measure: ApproxDP, slack: Fraction) -> ProbabilisticDP:
    """(e, d)-DP is (e+t, d (1+e^(-e-t)) / (1-e^-t))-pDP for every slack t > 0.

    Corrects [WRRW] Lemma 2, which prints (2e, 2d/(e exp(e))) and is false (a two-point mechanism exceeds it). Proof: on
    A = {L > e+t}, q <= exp(-e-t) p and P(A) <= exp(e) Q(A) + d give P(A) <= d / (1 - e^-t); on {L < -e-t}
    p <= exp(-e-t) q, so P <= exp(-e-t) d / (1 - e^-t).
    """
    if slack <= 0:
        raise ValueError(f"the slack must be positive, got {slack}")
    epsilon = measure.epsilon + slack
    factor = (Interval.of(-epsilon).exp() + 1) / (Interval.of(1) - Interval.of(-slack).exp())
    return ProbabilisticDP(epsilon, (factor * measure.delta).upper)
