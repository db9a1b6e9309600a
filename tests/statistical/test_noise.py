"""Chi-square of the samplers: against the mass functions, and against OpenDP as a second opinion.

Error level: all tests of this file together reject correct samplers with probability at most 1e-6 (each look at
1e-6 / LOOKS). Our seeds are fixed, so our part is deterministic; OpenDP draws afresh, and a wrong scale escapes the
comparisons with it with probability below 1e-7 in all (noncentral chi-square). Every comparison is also shown to fail:
a scale x 1.1, a variance x 5/6 or a lost low bit must be rejected by the very same function. A pass proves nothing;
exactness is shown in tests/unit/noise.
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
IN_OPENDP = LAWS[:-1]  # its samples are 64-bit integers
LEVEL = 1e-6 / (len(LAWS) + len(WIDE) + len(IN_OPENDP) + 2)
SIZE, OPENDP_SIZE, BINS = 400_000, 60_000, 60
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


def counts_of(samples: IntArray, edges: IntArray) -> IntArray:
    places = np.searchsorted(edges, samples, side="right")
    counts: IntArray = np.bincount(places, minlength=len(edges) + 1)
    return counts


def p_against_mass(samples: IntArray, name: str, parameter: Fraction) -> float:
    """p-value of the samples against the distribution's own probabilities."""
    edges = edges_of(name, parameter)
    inner = below(name, parameter, edges)
    expected = np.diff(np.concatenate([[0.0], inner, [1.0]])) * len(samples)
    kept = expected > 0
    assert expected[kept].min() > 50  # the limit distribution holds this far out only then
    counts = counts_of(samples, edges)
    assert not counts[~kept].any()
    statistic = ((counts - expected)[kept] ** 2 / expected[kept]).sum()
    return float(chi2.sf(statistic, kept.sum() - 1))


def p_of_two(first: IntArray, second: IntArray, edges: IntArray) -> float:
    """p-value of two samples having one distribution."""
    table = np.array([counts_of(first, edges), counts_of(second, edges)])
    table = table[:, table.sum(axis=0) > 100]
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    statistic = ((table - expected) ** 2 / expected).sum()
    return float(chi2.sf(statistic, table.shape[1] - 1))


def p_of_remainders(samples: IntArray, name: str, parameter: Fraction, modulus: int) -> float:
    """p-value of X modulo a small number: sees wrongly joined digits that wide bins hide."""
    r = np.arange(modulus)
    a = 1.0 if name == "gaussian" else np.exp(-1 / float(parameter))
    mass = a**r + (a ** (modulus - r) if name == "laplace" else 0)
    expected = mass / mass.sum() * len(samples)
    counts = np.bincount(samples % modulus, minlength=modulus)
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), modulus - 1))


def draw_opendp(name: str, parameter: Fraction) -> IntArray:
    opendp = pytest.importorskip("opendp.prelude")
    opendp.enable_features("contrib")
    domain = opendp.vector_domain(opendp.atom_domain(T="i64"))
    if name == "gaussian":
        space = domain, opendp.l2_distance(T="f64")
        sampler = opendp.m.make_gaussian(*space, scale=float(parameter) ** 0.5)
    else:
        space = domain, opendp.l1_distance(T="i64")
        sampler = opendp.m.make_laplace(*space, scale=float(parameter))
    samples = np.array(sampler([0] * OPENDP_SIZE), dtype=np.int64)
    return samples[samples >= 0] if name == "geometric" else samples


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


@pytest.mark.parametrize(("name", "parameter"), IN_OPENDP)
def test_opendp_draws_the_same_distributions(name: str, parameter: Fraction) -> None:
    theirs, edges = draw_opendp(name, parameter), edges_of(name, parameter)
    assert p_of_two(draw(name, parameter, 4), theirs, edges) > LEVEL
    assert p_of_two(too_little(name, parameter, 5), theirs, edges) < LEVEL


def test_neighbouring_samples_are_independent() -> None:
    """Lag-one products have mean 0; 6.5 standard deviations: 8e-11, below the level of a look."""
    for scale in (Fraction(5, 2), Fraction(1000)):
        signs = np.where(draw("laplace", scale, 6) >= 0, 1, -1)
        centred = signs - signs.mean()
        assert abs((centred[1:] * centred[:-1]).sum()) < 6.5 * np.sqrt(SIZE)
