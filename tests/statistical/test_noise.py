"""Chi-square of the samplers: against the mass function, and against OpenDP as a second opinion.

Error level: all tests of this file together reject correct samplers with probability at most 1e-6
(each look at 1e-6 / LOOKS). Our seeds are fixed, so our part is deterministic; OpenDP draws afresh, and a wrong scale
escapes the comparisons with it with probability below 1e-7 in all (noncentral chi-square).
Every comparison is also shown to fail: samples of scale x 1.1 (or with a lost low bit) must be
rejected by the very same function. A pass proves nothing; exactness is shown in the unit tests.
"""

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from stream_dp.core.mechanism import IntArray
from stream_dp.noise import NoiseStream

SEED = bytes(range(32))
SCALES = [
    Fraction(1, 2),
    Fraction(1),
    Fraction(5, 2),
    Fraction(40),
    Fraction(1000),
    Fraction(10**9),
]
LOOKS = 7 * len(SCALES)  # 12 mass functions, 12 remainders, 12 with OpenDP, 2 of neighbours
LEVEL = 1e-6 / LOOKS
SIZE = 400_000
OPENDP_SIZE = 60_000
BINS = 60
FLOATS = NDArray[np.float64]


def draw(name: str, scale: Fraction, size: int, stream: int) -> IntArray:
    samples: IntArray = getattr(NoiseStream(SEED, stream), name)(scale, size)
    return samples


def draw_opendp(scale: Fraction, size: int) -> IntArray:
    opendp = pytest.importorskip("opendp.prelude")
    opendp.enable_features("contrib")
    space = opendp.vector_domain(opendp.atom_domain(T="i64")), opendp.l1_distance(T="i64")
    return np.array(opendp.m.make_laplace(*space, scale=float(scale))([0] * size), dtype=np.int64)


def upper_tail(scale: Fraction, edges: IntArray, *, two_sided: bool) -> FLOATS:
    """P[X >= edge] from the closed forms."""
    b = float(scale)
    if not two_sided:
        one_sided: FLOATS = np.exp(-np.maximum(edges, 0) / b)
        return one_sided
    share = 1 / (1 + np.exp(-1 / b))
    positive = share * np.exp(-np.maximum(edges, 0) / b)
    negative = 1 - share * np.exp(-np.maximum(1 - edges, 0) / b)
    both: FLOATS = np.where(edges > 0, positive, negative)
    return both


def edges_of(scale: Fraction, *, two_sided: bool) -> IntArray:
    """Distinct inner edges that cut the distribution into at most BINS parts, none of them rare."""
    quantiles = np.arange(1, BINS) / BINS
    sides = -float(scale) * np.log(1 - quantiles)
    edges = np.concatenate([-sides, sides]) if two_sided else sides
    return np.unique(np.ceil(edges).astype(np.int64))


def counts_of(samples: IntArray, edges: IntArray) -> IntArray:
    counts: IntArray = np.bincount(
        np.searchsorted(edges, samples, side="right"), minlength=len(edges) + 1
    )
    return counts


def p_against_mass(samples: IntArray, scale: Fraction, *, two_sided: bool) -> float:
    """p-value of the samples against the distribution's own probabilities."""
    edges = edges_of(scale, two_sided=two_sided)
    tail = np.concatenate([[1.0], upper_tail(scale, edges, two_sided=two_sided), [0.0]])
    expected = -np.diff(tail) * len(samples)
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


def p_of_remainders(samples: IntArray, scale: Fraction, modulus: int, *, two_sided: bool) -> float:
    """p-value of X modulo a small number: sees wrongly joined digits that wide bins hide."""
    a = np.exp(-1 / float(scale))
    r = np.arange(modulus)
    mass = a**r + (a ** (modulus - r) if two_sided else 0)
    expected = mass / mass.sum() * len(samples)
    counts = np.bincount(samples % modulus, minlength=modulus)
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), modulus - 1))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", ["laplace", "geometric"])
def test_mass_function(name: str, scale: Fraction) -> None:
    two_sided = name == "laplace"
    right = draw(name, scale, SIZE, stream=1)
    wrong = draw(name, scale * Fraction(11, 10), SIZE, stream=2)
    assert p_against_mass(right, scale, two_sided=two_sided) > LEVEL
    assert p_against_mass(wrong, scale, two_sided=two_sided) < LEVEL


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", ["laplace", "geometric"])
def test_remainders(name: str, scale: Fraction) -> None:
    two_sided = name == "laplace"
    samples = draw(name, scale, SIZE, stream=3)
    assert p_of_remainders(samples, scale, 7, two_sided=two_sided) > LEVEL


def test_remainders_see_a_lost_low_bit() -> None:
    scale = Fraction(1000)
    lost = draw("laplace", scale, SIZE, stream=3) & ~1
    assert p_of_remainders(lost, scale, 8, two_sided=True) < LEVEL


@pytest.mark.parametrize("scale", SCALES)
def test_opendp_draws_the_same_distributions(scale: Fraction) -> None:
    """Its two-sided samples against ours, its non-negative ones against our one-sided ones."""
    theirs = draw_opendp(scale, OPENDP_SIZE)
    for name, other in (("laplace", theirs), ("geometric", theirs[theirs >= 0])):
        edges = edges_of(scale, two_sided=name == "laplace")
        right = draw(name, scale, SIZE, stream=4)
        wrong = draw(name, scale * Fraction(11, 10), SIZE, stream=5)
        assert p_of_two(right, other, edges) > LEVEL
        assert p_of_two(wrong, other, edges) < LEVEL


def test_neighbouring_samples_are_independent() -> None:
    """Lag-one products have mean 0; 6.5 standard deviations: 8e-11, below the level of a look."""
    for scale in (Fraction(5, 2), Fraction(1000)):
        signs = np.where(draw("laplace", scale, SIZE, stream=6) >= 0, 1, -1)
        centred = signs - signs.mean()
        assert abs((centred[1:] * centred[:-1]).sum()) < 6.5 * np.sqrt(SIZE)
