"""Discrete Gaussian noise as Gaussian DP: a little more than the continuous noise of the same variance.

N_Z(0, s^2) has P(k) proportional to e^(-k^2 / (2 s^2)) on the integers. A count that one event shifts by 1 is exactly
(1 / (2 s^2))-zCDP with it, like the continuous one, but it is NOT (1/s)-GDP: the tests show where that fails. It is
mu-GDP with mu^2 = -ln(2 e^(-1 / (2 s^2)) - 1) = 1/s^2 + 1/(4 s^4) + ..., for s^2 > 1 / (2 ln 2).

Proof [D]. F is the distribution function, t_k = Phi^-1(F(k)), D_k = t_k - t_(k-1). The trade-off function of the two
answers is the polygon through (1 - F(k), F(k - 1)), and that of N(0, 1) against N(mu, 1) is convex: it lies below iff
it does at the corners, that is iff mu >= D_k for every k. (1) Where k is large, Mills' ratio gives
t_k^2 + 2 ln t_k = (k+1)^2 / s^2 + c + o(1), so that D_k tends to at most 1/s; for small k by symmetry. (2) So the
supremum is at most 1/s, or is attained, at some k. Then the cells beside [t_(k-1), t_k] are no wider than D = D_k: with
a mean E over that cell under the normal law, P(k+1) <= P(k) e^(-D^2/2) E e^(-tD), P(k-1) <= P(k) e^(-D^2/2) E e^(tD).
The product: e^(-1/s^2) = P(k+1) P(k-1) / P(k)^2 <= e^(-D^2) E cosh((t - t') D), with t, t' independent in the cell.
That function is convex in t and in t', so its mean is at most the one with both at the ends, with chances p and 1 - p:
1 + 2 p (1 - p) (cosh D^2 - 1) <= (1 + cosh D^2) / 2 = cosh^2(D^2 / 2). So D^2 - 2 ln cosh(D^2 / 2) <= 1/s^2; the left
side is 2 ln 2 - 2 ln(1 + e^(-D^2)), which gives the claim. (3) A shift by v is v cells: mu v. Shifts of several
independent draws, each chosen by what was answered before, with squares of at most S^2 in sum: mu S ([HSV] Cor 14.10).
Answers are integers without bound, so communication is finite ([HSV] Def 14.4) only where they are clamped and
there is a horizon.
"""

from fractions import Fraction

from stream_dp.accounting.directed import Interval
from stream_dp.core.guarantee import GaussianDP
from stream_dp.errors import NotDerivable


def discrete_gaussian(variance: Fraction, squares: Fraction = Fraction(1)) -> GaussianDP:
    """Return mu-GDP of N_Z(0, variance) draws that one event shifts by integers whose squares add up to at most
    `squares`.

    mu is rounded up; the shifts may be chosen adaptively. For concurrent composition see `Guarantee.finite`.

    Raises:
        NotDerivable: the variance is not above 1 / (2 ln 2), about 0.7213: nothing is proven for it.
    """
    kept = (
        Interval.of(2) * Interval.of(-1 / (2 * variance)).exp() - 1
        if variance > 0
        else Interval.of(0)
    )
    if kept.low <= 0:
        raise NotDerivable(
            f"discrete Gaussian noise of variance {float(variance):g} is not known to be GDP: that takes more than "
            "0.7214 where one event shifts by 1; use zCDP"
        )
    return GaussianDP(((Interval.of(0) - kept.ln()) * squares).sqrt().upper)
