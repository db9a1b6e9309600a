"""The truncated-view odometer ([HSTV] Def 2.11, 2.14): to show while continual mechanisms run together.

Claim: fix any epsilon beforehand (and the rest of the measure: delta, an order). The view of any adaptive
adversary, truncated where the odometer first exceeds it, is (epsilon, delta)-DP, whatever mechanisms were created
before, at whatever prices, and however their messages were interleaved. For every epsilon; not for an epsilon that
is chosen by looking at the odometer, and not a bound on the privacy loss at all times ([WRRW] Def 6; those are
`verify.odometers`: their inputs must be pDP, which post-processing destroys, so they are not claimed for
interactive mechanisms).

Proof. Let G(used) be what `bound` returns. Fix epsilon and let F admit while G <= epsilon. (1) G is at least the
true least epsilon of the filter's family: each is evaluated with outward rounding, an order chosen by a float only
makes it larger. So where F admits, the family's filter with the budget epsilon (and delta'' = delta - delta')
admits too, and halting earlier is a post-processing. (2) That filter is valid for concurrent continual mechanisms
([HSV] Thm 12.4, Cor 13.8, 14.10; `filters.concurrent` says which). (3) The view truncated at epsilon is the view of
the adversary in front of F plus answers to the odometer, which are functions of the charges alone ([HSTV] Lemma
2.19, Thm 2.17; [HSV] has no odometer, but its Thm 12.4 is all that this needs).

An excess is not shown: the charge is priced before its mechanism exists, and the answer of the first mechanism that
exceeds epsilon is not part of the view. [HSTV] Def 1.13 prints "exit if epsilon_i >= epsilon or delta_i >= delta",
with which an odometer of constant delta has an empty view at that delta; Algorithm 5 has "not at most", which is
meant; the indices of what it returns fit a halt (i even) and not an excess (i odd), where the last answer shown is
a_(i-2).

There is no state: a ledger's filter and the amounts used are enough, and the work does not depend on the length.
"""

from fractions import Fraction

from stream_dp.accounting.conversions import renyi_to_approx, zcdp_to_approx
from stream_dp.accounting.filters.budgets import budget
from stream_dp.accounting.filters.concurrent import proven
from stream_dp.accounting.filters.filter import Filter, Spend
from stream_dp.accounting.gaussian_curve import gaussian_to_approx
from stream_dp.core.guarantee import ZCDP, ApproxDP, GaussianDP, Measure, PureDP, RenyiDP
from stream_dp.errors import NotDerivable


def truncated_odometer(filter_: Filter, used: Spend) -> Measure:
    """Return the loss so far: the least promise of the filter's family that covers `used`, never above its promise.

    Example:
        >>> from stream_dp.accounting.filters.pure import PureFilter
        >>> truncated_odometer(PureFilter.of(Fraction(2)), Spend(amount=500_000_000_000))
        PureDP(epsilon=Fraction(1, 2))

    Raises:
        NotDerivable: the filter is not proven for concurrent continual mechanisms.
    """
    proven(filter_)
    return filter_.least(used)


def truncated_odometer_at(filter_: Filter, used: Spend, delta: Fraction) -> ApproxDP:
    """Return the odometer as (epsilon, delta)-DP: at this delta for a zCDP, RDP or GDP ledger; others have their
    own delta.

    A zCDP, RDP or GDP view is also (epsilon, delta)-DP, and the least epsilon grows with the parameter, so the
    claim carries over for every epsilon.

    Raises:
        NotDerivable: the filter is not proven for concurrent continual mechanisms.
        InvalidCost: delta is not an exact number strictly between 0 and 1.
    """
    budget("the delta", delta, below=Fraction(1), owner="an odometer")
    if used == Spend():
        return ApproxDP(Fraction(0), Fraction(0))
    match truncated_odometer(filter_, used):
        case PureDP(epsilon):
            return ApproxDP(epsilon, Fraction(0))
        case ZCDP() as measure:
            return zcdp_to_approx(measure, delta)
        case RenyiDP() as measure:
            return renyi_to_approx(measure, delta)
        case GaussianDP() as measure:
            return gaussian_to_approx(measure, delta)
        case ApproxDP() as measure:
            return measure
        case measure:
            raise NotDerivable(f"no truncated view of a {type(measure).__name__} is known")
