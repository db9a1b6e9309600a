"""The discrete Gaussian as GDP: exact laws at the corners of the trade-off function, and at their deltas.

The oracle sums e^(-k^2/(2 s^2)) from the far end and asks scipy for normal quantiles of the logarithms (1e-12). Twins:
mu = 1/s, as of the continuous noise; and the shift taken once where an event shifts by several.
"""

import math
from fractions import Fraction

import pytest
from scipy.special import ndtri_exp

from stream_dp.accounting.gaussian_curve import discrete_gaussian, gaussian_delta
from stream_dp.core.guarantee import GaussianDP
from stream_dp.errors import NotDerivable

VARIANCES = [Fraction(3, 4), Fraction(2), Fraction(100)]
FINE = 1e-9
CUT = 12  # values at the far end, where what lies beyond still counts


def chances(variance: Fraction) -> dict[int, float]:
    """The law, out to where floats end."""
    far = int(37 * math.sqrt(variance))
    weights = {k: math.exp(-k * k / (2 * float(variance))) for k in range(-far, far + 1)}
    total = math.fsum(weights.values())
    return {k: w / total for k, w in weights.items()}


def quantiles(variance: Fraction) -> list[float]:
    """t_k = Phi^-1(F(k)) for k up to 0; above, by symmetry, the same gaps."""
    below, result, law = 0.0, [], chances(variance)
    for k, chance in law.items():
        below += chance
        if min(law) + CUT < k <= 0:
            result.append(float(ndtri_exp(math.log(below))))
    return result


def widest(variance: Fraction, shift: int) -> float:
    """The least mu at the corners of the trade-off function of a shift."""
    t = quantiles(variance)
    return max(high - low for low, high in zip(t, t[shift:], strict=False))


def exact_delta(variance: Fraction, epsilon: float) -> float:
    """The delta of a shift by 1 at epsilon."""
    law = chances(variance)
    ratio = math.exp(epsilon)
    return math.fsum(max(0.0, p - ratio * law.get(k - 1, 0.0)) for k, p in law.items())


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_mu_covers_every_corner_and_is_near(variance: Fraction) -> None:
    for shift in (1, 2, 3):
        mu = float(discrete_gaussian(variance, Fraction(shift**2)).mu)
        least = widest(variance, shift)
        assert least <= mu + FINE
        if variance >= 10:
            assert mu < least * 1.01
    squared = float(discrete_gaussian(variance).mu) ** 2
    assert squared == pytest.approx(-math.log(2 * math.exp(-1 / (2 * variance)) - 1), rel=1e-12)


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_a_delta_is_covered_at_every_epsilon(variance: Fraction) -> None:
    mu = discrete_gaussian(variance)
    for tenths in range(1, 40):
        epsilon = Fraction(tenths, 10)
        covered = float(gaussian_delta(mu, epsilon))
        assert exact_delta(variance, float(epsilon)) <= covered + FINE


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_the_continuous_mu_is_caught(variance: Fraction) -> None:
    """1/s is too little, at a corner and as a delta."""
    claimed = 1 / math.sqrt(variance)
    assert widest(variance, 1) > claimed * (1 + 1e-4)
    twin = GaussianDP(Fraction(claimed))
    grid = [Fraction(n, 50) for n in range(1, 200)]
    excess = max(exact_delta(variance, float(e)) - float(gaussian_delta(twin, e)) for e in grid)
    assert excess > FINE


def test_a_shift_counted_once_is_caught() -> None:
    assert widest(Fraction(10), 3) > 2 * float(discrete_gaussian(Fraction(10)).mu)


def test_what_is_not_proven_is_refused() -> None:
    for variance in (Fraction(0), Fraction(72, 100)):
        with pytest.raises(NotDerivable, match="Use zCDP"):
            discrete_gaussian(variance)
