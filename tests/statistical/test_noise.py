"""Chi-square of the samplers against the mass functions. A pass proves nothing: exactness is shown in tests/unit/noise.

All tests of this file together reject correct samplers with probability at most 1e-6; seeds are fixed. A scale x 1.1, a
variance x 5/6 or a lost low bit must be rejected by the very same function.
"""

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from stream_dp.core.mechanism import IntArray
from stream_dp.noise import NoiseStream

SEED = bytes(range(32))
SCALES = [Fraction(1, 2), Fraction(1), Fraction(5, 2), Fraction(1000), Fraction(10**9)]
VARIANCES = [Fraction(1, 2), Fraction(9), Fraction(300) ** 2, Fraction(10**10), Fraction(1 << 88)]
LAWS = [
    *[(name, scale) for name in ("laplace", "geometric") for scale in SCALES],
    *[("gaussian", variance) for variance in VARIANCES],
]
WIDE = [(name, parameter) for name, parameter in LAWS if name != "gaussian" or parameter > 1000]
LEVEL = 1e-6 / (len(LAWS) + len(WIDE) + 2)
SIZE, BINS = 400_000, 60
Floats = NDArray[np.float64]


def draw(name: str, parameter: Fraction, stream: int) -> IntArray:
    samples: IntArray = getattr(NoiseStream(SEED, stream), name)(parameter, SIZE)
    return samples


def too_little(name: str, parameter: Fraction, stream: int) -> IntArray:
    return draw(
        name, parameter * (Fraction(5, 6) if name == "gaussian" else Fraction(11, 10)), stream
    )


def below(name: str, parameter: Fraction, edges: IntArray) -> Floats:
    """P[X < edge]; of a large variance by the normal law at half integers, off by 1e-5."""
    b = float(parameter)
    if name == "gaussian":
        if parameter >= 1000:
            return np.asarray(norm.cdf((edges - 0.5) / b**0.5))
        values = np.arange(-400, 401)
        weights = np.exp(-(values**2) / (2 * b))
        cumulated: Floats = np.array([weights[values < edge].sum() for edge in edges])
        return np.asarray(cumulated / weights.sum())
    if name == "geometric":
        return np.asarray(-np.expm1(-np.maximum(edges, 0) / b))
    share = 1 / (1 + np.exp(-1 / b))
    positive = share * np.exp(-np.maximum(edges, 0) / b)
    negative = share * np.exp(-np.maximum(1 - edges, 0) / b)
    return np.asarray(np.where(edges > 0, 1 - positive, negative))


def edges_of(name: str, parameter: Fraction) -> IntArray:
    """Distinct inner edges that cut the distribution into parts none of which is rare."""
    quantiles = np.arange(1, BINS) / BINS
    if name == "gaussian":
        edges = norm.ppf(quantiles) * float(parameter) ** 0.5
    else:
        sides = -float(parameter) * np.log(1 - quantiles)
        edges = np.concatenate([-sides, sides]) if name == "laplace" else sides
    return np.unique(np.ceil(edges).astype(np.int64))


def p_against_mass(samples: IntArray, name: str, parameter: Fraction) -> float:
    """p-value of the samples against the distribution's own probabilities."""
    edges = edges_of(name, parameter)
    inner = below(name, parameter, edges)
    expected = np.diff(np.concatenate([[0.0], inner, [1.0]])) * len(samples)
    kept = expected > 0
    assert expected[kept].min() > 50  # the limit distribution holds this far out only then
    places = np.searchsorted(edges, samples, side="right")
    counts = np.bincount(places, minlength=len(edges) + 1)
    assert not counts[~kept].any()
    statistic = ((counts - expected)[kept] ** 2 / expected[kept]).sum()
    return float(chi2.sf(statistic, kept.sum() - 1))


def p_of_remainders(samples: IntArray, name: str, parameter: Fraction, modulus: int) -> float:
    """p-value of X modulo a small number: sees wrongly joined digits that wide bins hide."""
    r = np.arange(modulus)
    a = 1.0 if name == "gaussian" else np.exp(-1 / float(parameter))
    mass = a**r + (a ** (modulus - r) if name == "laplace" else 0)
    expected = mass / mass.sum() * len(samples)
    counts = np.bincount(samples % modulus, minlength=modulus)
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), modulus - 1))


@pytest.mark.parametrize(("name", "parameter"), LAWS)
def test_mass_function(name: str, parameter: Fraction) -> None:
    assert p_against_mass(draw(name, parameter, 1), name, parameter) > LEVEL
    assert p_against_mass(too_little(name, parameter, 2), name, parameter) < LEVEL


@pytest.mark.parametrize(("name", "parameter"), WIDE)
def test_remainders(name: str, parameter: Fraction) -> None:
    samples = draw(name, parameter, 3)
    assert p_of_remainders(samples, name, parameter, 7) > LEVEL
    if parameter >= 1000:
        assert p_of_remainders(samples & ~1, name, parameter, 8) < LEVEL


def test_neighbouring_samples_are_independent() -> None:
    """Lag-one products have mean 0; 6.5 standard deviations: 8e-11, below the level of a look."""
    for scale in (Fraction(5, 2), Fraction(1000)):
        signs = np.where(draw("laplace", scale, 6) >= 0, 1, -1)
        centred = signs - signs.mean()
        assert abs((centred[1:] * centred[:-1]).sum()) < 6.5 * np.sqrt(SIZE)
