"""Continual counters with Gaussian noise: how many events so far, per column, with or without a declared horizon.

Columns are released jointly: an event touches L0 entries by at most one each, so the whole row of noises costs L0 times
one column in zCDP, where (epsilon, delta) counters of their own would get a share of epsilon each ([HSV] section 7).
The answer is the exact integer count plus integer noise. This file knows no ticks and no names.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, isqrt

import numpy as np

from stream_dp.accounting.amounts import text
from stream_dp.accounting.discrete_gaussian import discrete_gaussian
from stream_dp.accounting.rules.leaf import leaf
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import ZCDP, GaussianDP, Guarantee
from stream_dp.core.how_many import how_many
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.exact_class import of_the_exact_class
from stream_dp.mechanisms.linear.counter import Linear
from stream_dp.mechanisms.linear.decays import MOST_STEPS, decays_for
from stream_dp.mechanisms.linear.lattice_noise import LatticeNoise, LatticeState, covered
from stream_dp.mechanisms.noise_law import NOTHING, NoiseLaw
from stream_dp.mechanisms.noise_quantiles import Term
from stream_dp.mechanisms.row_check import require_left
from stream_dp.mechanisms.serving import CountRows

SOURCE = "discrete Gaussian (Canonne, Kamath, Steinke 2020) correlated by a BLT (arXiv 2404.16706)"
MOST_RHO = 1000
FINE = 10**18  # a mu is rounded up to a multiple of 1 / FINE
PIECES = 256  # discrete Laplace terms that replace a Gaussian in `noise_terms`


@wire("gaussian-counter-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class GaussianCounterState:
    """`total`: exact counts, shape (width,), private. `noise`: the correlated noise."""

    total: IntArray
    noise: LatticeState


@wire("gaussian-counter", 1, rests_on=(LatticeNoise,))
@dataclass(frozen=True)
class GaussianCounter(CountRows, Linear[GaussianCounterState]):
    """`width` continual counters for at most `horizon` updates, or for any number (up to 2^40) where it is None.

    `ones`: the most entries of a row that one event sets (1: one-hot rows). `gdp`: the counter claims sqrt(2
    rho)-Gaussian DP. The claim holds for the same noise up to one unit of lattice variance and gives a smaller
    epsilon at a delta, but composes only where communication is finite: it needs a horizon, with an answer after
    each update; rows and answers are 64-bit integers, and larger noise stops the engine.

    Privacy claim: `rho`-zCDP for such event streams under `neighbors`, at every prefix, adaptively: Gaussian noise
    correlated over time (buffered linear Toeplitz, arXiv 2404.16706) on an integer lattice, all columns together;
    the proof is in `lattice_noise`. Every entry of a step may change by at most one.

    >>> from stream_dp.testing.noise import ZeroNoise
    >>> from stream_dp.core.messages import Query, Update
    >>> counter = GaussianCounter(1, Fraction(1, 50), Neighbors.ADD_REMOVE, horizon=10)
    >>> state = counter.init(ZeroNoise())
    >>> state, _ = counter.step(state, Update(np.array([3])), ZeroNoise())
    >>> counter.step(state, Query(), ZeroNoise())[1]
    array([3])
    """

    width: int
    rho: Fraction
    neighbors: Neighbors
    horizon: int | None
    ones: int = 1
    gdp: bool = False

    @property
    def guarantee(self) -> Guarantee:
        """zCDP at `rho`, or GDP at sqrt(2 rho)."""
        measure = GaussianDP(self.mu) if self.gdp else ZCDP(self.rho)
        return Guarantee(measure, self.neighbors, finite=self.horizon is not None)

    @property
    def mu(self) -> Fraction:
        """sqrt(2 rho), rounded up to 18 digits."""
        square = 2 * self.rho * FINE**2
        root = isqrt(square.numerator // square.denominator)
        return Fraction(root + (root * root < square), FINE)

    @property
    def steps(self) -> int:
        """The most updates that it takes."""
        return MOST_STEPS if self.horizon is None else self.horizon

    @cached_property
    def lattice(self) -> LatticeNoise:
        """The noise process: for each column, the sum of squared shifts over its variance is at most 2 rho / L0.

        Raises:
            NotDerivable: no positive rho, or one too small for 64 bits; more than 2^40 updates.
        """
        if not 0 < self.rho <= MOST_RHO or not 1 <= self.steps <= MOST_STEPS:
            raise NotDerivable("a Gaussian counter needs a rho in (0, 1000] and 1 to 2^40 updates")
        unit = 2 * self.rho / self.rows.l0
        found = LatticeNoise.calibrated(decays_for(self.horizon), self.steps, unit, self.width)
        return found.for_gdp if self.gdp else found

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee: one leaf for all columns together.

        Raises:
            NotDerivable: the noise is too small for `rho`, or the event may lie in two rows.
        """
        many = "any number of updates" if self.horizon is None else how_many(self.horizon, "update")
        noise, subject = self._noise(), f"{self.width} Gaussian counter(s), {many}"
        return leaf(subject, self.guarantee, SOURCE, (noise,))

    def _noise(self) -> Condition:
        """Return the condition on the noise: squared shifts in all columns that an event touches, over the variance."""
        touched, lattice = self.rows.l0, self.lattice
        shifts = covered(lattice.decays, lattice.bits, self.steps)
        if self.gdp:
            mu = discrete_gaussian(lattice.variance, Fraction(touched * shifts)).mu
            why = (
                f"{touched} column(s), mu of the squared shift {text(mu)}, at most {text(self.mu)}"
            )
            return Condition("noise", mu <= self.mu, why)
        paid = touched * shifts / (2 * lattice.variance)
        why = f"{touched} column(s), squared shift over twice the variance {text(paid)}, at most {text(self.rho)}"
        return Condition("noise", paid <= self.rho, why)

    def noise(self, public: int, view: int | None = None) -> NoiseLaw:
        """Return the law of the noise in the answer after `public` updates: normal, plus roundings."""
        if not public:
            return NOTHING
        drift = self.lattice.drift(public)
        variance = self.lattice.deviation(public) ** 2
        return NoiseLaw((), variance, 0.5 + drift, between=2 * drift)

    def noise_terms(self, updates: int) -> list[Term]:
        """Return DLap terms whose sum has tails at least as heavy as the noise in the answer after `updates`
        updates.

        The PIECES terms have together at least the noise's variance. No cumulant of a DLap is negative, so the
        moment generating function of the sum is above that of the Gaussian, and a Chernoff bound for the sum also
        bounds the noise.
        """
        if updates == 0:
            return []
        whole = self.lattice.deviation(updates) + self.lattice.drift(updates)
        square = (
            (whole + 0.5) ** 2 / PIECES + 1 / 6
        ) / 2  # of the scale: a DLap has at least 2 b^2 - 1/6
        return [Term(Fraction(ceil(square**0.5 * 2**20), 2**20), PIECES)]

    def most_noise_terms(self, updates: int) -> list[Term]:
        """Return terms at least as wide as those of any answer up to the next power of two of `updates`."""
        return self.noise_terms(min(self.steps, 1 << updates.bit_length()))

    def init(self, noise: Noise) -> GaussianCounterState:
        """Return the first state: all counts zero; draws nothing."""
        return GaussianCounterState(np.zeros(self.width, dtype=np.int64), self.lattice.init())

    def advanced(
        self, state: GaussianCounterState, total: IntArray, noise: Noise
    ) -> GaussianCounterState:
        """Return the state after one more update, with this total."""
        require_left(state.noise.steps, self.steps)
        return GaussianCounterState(total, self.lattice.advance(state.noise, noise))

    def value(self, state: GaussianCounterState) -> IntArray:
        """Return the noise of an answer, as integers."""
        return self.lattice.value(state.noise)
