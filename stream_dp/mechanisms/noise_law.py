"""The law of the noise in one answer, where it follows from public values, and the error bands it gives.

Rules: floats are allowed, because no result is added to a count. This file knows no mechanism and no state.
"""

import math
from statistics import NormalDist
from typing import NamedTuple

from stream_dp.mechanisms.noise_quantiles import Term, Terms, laplace_quantile


class NoiseLaw(NamedTuple):
    """The noise in one answer: DLap `terms`, a normal part of this `variance`, and a remainder of at most `rest`.

    `rest` includes the rounding of the answer. `between`: the remainder in the difference of two answers, where it
    is less than twice `rest`.
    """

    terms: Terms = ()
    variance: float = 0.0
    rest: float = 0.5
    between: float | None = None

    @property
    def spread(self) -> float:
        """The variance of the noise, without lattice effects and the remainder."""
        terms = (Term(*term) for term in self.terms)
        drawn = sum(2 * float(t.scale) ** 2 * t.number * t.weight**2 for t in terms)
        return drawn + self.variance

    def band(self, confidence: float) -> int:
        """Return the half-width that the noise stays within with probability `confidence`."""
        failure = 1 - confidence
        if not self.variance:
            return laplace_quantile(self.terms, failure)
        return max(0, math.ceil(self._quantile(failure) + self.rest - 1))

    def difference(self, failure: float) -> int:
        """Return the bound that the difference of two such noises exceeds with probability at most `failure`.

        Every term counts twice, because all terms are symmetric. Where sums are rounded, two roundings may add 1
        more than one.
        """
        if not self.variance:
            twice = [Term(*term)._replace(number=2 * term[1]) for term in self.terms]
            rounded = any(term.weight != 1 for term in twice)
            return laplace_quantile(tuple(twice), failure) + rounded
        rest = 2 * self.rest if self.between is None else self.between
        return math.ceil(2**0.5 * self._quantile(failure) + rest)

    def _quantile(self, failure: float) -> float:
        return -NormalDist().inv_cdf(failure / 2) * math.sqrt(self.variance)


NOTHING = NoiseLaw(rest=0.0)
