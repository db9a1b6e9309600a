"""Chi-square of the discrete Gaussian: against the normal distribution function, remainders, and OpenDP's sampler.

Error level: all tests of this file together reject a correct sampler with probability at most 1e-6 (each look at
1e-6 / LOOKS). Our seeds are fixed, so our part is deterministic; OpenDP draws afresh. Every comparison is also shown to
fail: a variance of 5/6
or a lost low bit must be rejected by the same function.
Exactness is shown in tests/unit/noise/test_gaussian.py.
"""

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chi2, norm

from stream_dp.core.mechanism import IntArray
from stream_dp.noise import NoiseStream

SEED = bytes(range(32))
VARIANCES = [Fraction(1, 2), Fraction(9), Fraction(300) ** 2, Fraction(10**10), Fraction(1 << 88)]
LOOKS = 3 * len(VARIANCES) + 1
LEVEL = 1e-6 / LOOKS
SIZE = 400_000
OPENDP_SIZE = 40_000
BINS = 60


def draw(variance: Fraction, size: int, stream: int) -> IntArray:
    return NoiseStream(SEED, stream).gaussian(variance, size)


def edges_of(variance: Fraction) -> IntArray:
    """Distinct inner edges that cut the distribution into at most BINS parts of about one size."""
    quantiles = norm.ppf(np.arange(1, BINS) / BINS) * float(variance) ** 0.5
    return np.unique(np.ceil(quantiles).astype(np.int64))


def p_against_mass(samples: IntArray, variance: Fraction) -> float:
    """p-value against the masses: summed for small variances, the normal law at half integers (off by 1e-5) else."""
    edges = edges_of(variance)
    if variance < 1000:
        values = np.arange(-400, 401)
        weights = np.exp(-(values**2) / (2 * float(variance)))
        below = np.array([weights[values < edge].sum() for edge in edges]) / weights.sum()
    else:
        below = norm.cdf((edges - 0.5) / float(variance) ** 0.5)
    expected = np.diff(np.concatenate([[0.0], below, [1.0]])) * len(samples)
    counts = np.bincount(np.searchsorted(edges, samples, side="right"), minlength=len(edges) + 1)
    assert expected.min() > 50
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), len(edges)))


def p_of_remainders(samples: IntArray, modulus: int) -> float:
    """p-value of X modulo a small number being uniform: sees wrongly joined parts that wide bins hide."""
    counts = np.bincount(samples % modulus, minlength=modulus)
    expected = len(samples) / modulus
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), modulus - 1))


@pytest.mark.parametrize("variance", VARIANCES)
def test_mass_function(variance: Fraction) -> None:
    assert p_against_mass(draw(variance, SIZE, stream=1), variance) > LEVEL
    assert p_against_mass(draw(variance * Fraction(5, 6), SIZE, stream=2), variance) < LEVEL


@pytest.mark.parametrize("variance", VARIANCES[2:])
def test_remainders(variance: Fraction) -> None:
    samples = draw(variance, SIZE, stream=3)
    assert p_of_remainders(samples, 7) > LEVEL
    assert p_of_remainders(samples & ~1, 8) < LEVEL


@pytest.mark.parametrize("variance", VARIANCES[:4])
def test_opendp_draws_the_same_distribution(variance: Fraction) -> None:
    opendp = pytest.importorskip("opendp.prelude")
    opendp.enable_features("contrib")
    space = opendp.vector_domain(opendp.atom_domain(T="i64")), opendp.l2_distance(T="f64")
    theirs = opendp.m.make_gaussian(*space, scale=float(variance) ** 0.5)([0] * OPENDP_SIZE)
    theirs = np.array(theirs, dtype=np.int64)
    edges = edges_of(variance)
    for factor, same in ((Fraction(1), True), (Fraction(5, 6), False)):
        ours = draw(variance * factor, SIZE, stream=5)
        table = np.array(
            [
                np.bincount(np.searchsorted(edges, each, side="right"), minlength=len(edges) + 1)
                for each in (ours, theirs)
            ]
        )
        expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
        p = float(chi2.sf(((table - expected) ** 2 / expected).sum(), len(edges)))
        assert (p > LEVEL) == same
