"""The correlated Gaussian counter in rationals: dense matrices, the ideal noise and the shifts, from the definitions.

Rules: nothing here knows buffers with rests, lattices or doublings; small instances only.
"""

from collections.abc import Sequence
from fractions import Fraction

from stream_dp.mechanisms.linear.gaussian_counter import Decays


def coefficients(decays: Decays, steps: int) -> list[Fraction]:
    """c_0 = 1, c_k = sum omega_i theta_i^(k-1)."""
    poles = [1 - Fraction(1, 2**k) for k in decays.halvings]
    found = [Fraction(1)]
    for k in range(1, steps):
        terms = zip(decays.weights, poles, strict=True)
        found.append(sum((w * theta ** (k - 1) for w, theta in terms), Fraction(0)))
    return found


def inverse_sums(c: Sequence[Fraction]) -> list[Fraction]:
    """The coefficients of A C^-1: partial sums of the power series 1 / c."""
    inverse: list[Fraction] = []
    for k in range(len(c)):
        known = sum((c[j] * inverse[k - j] for j in range(1, k + 1)), Fraction(0))
        inverse.append(Fraction(k == 0) - known)
    return [sum(inverse[: k + 1], Fraction(0)) for k in range(len(c))]


def window_sums(c: Sequence[Fraction], window: int) -> list[Fraction]:
    """The coefficients of A_W C^-1, A_W adding up the last `window` steps: b_k, less b_(k - window)."""
    b = inverse_sums(c)
    return [b[k] - (b[k - window] if k >= window else 0) for k in range(len(b))]


def squares(numbers: Sequence[Fraction]) -> Fraction:
    """The sum of the squares."""
    return sum((x * x for x in numbers), Fraction(0))
