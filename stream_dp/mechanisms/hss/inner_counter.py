"""The counter inside an HSS: which counter runs, and how far its noise moves the values computed from it.

Rules: one function for each kind of budget chooses the counter, so one line exchanges it. Bounds are functions of
public numbers. This file knows no sparse vector and no interval.
"""

from fractions import Fraction
from typing import Any, NamedTuple, Protocol

from stream_dp.core.derivation import Derivation
from stream_dp.core.mechanism import Mechanism
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.bounds import index_probability, laplace_sum_tail
from stream_dp.mechanisms.hss.quantities import ErrorLaw
from stream_dp.mechanisms.linear.counter import HandOverCounter
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.noise_law import NoiseLaw
from stream_dp.mechanisms.noise_quantiles import Term

Inner = HandOverCounter  # the class that `inner_counter` makes, for mechanisms that rest on it
GaussianInner = GaussianCounter  # the class that `gaussian_inner_counter` makes


class Counts(Protocol):
    """A counter whose noise law is known in advance."""

    def noise(self, public: int, view: int | None = None) -> NoiseLaw:
        """Return the law of the noise in a column's answer after `public` updates."""
        ...


class InnerCounter(Mechanism[Any], Counts, Protocol):
    """A counter for any number of updates whose noise law is known in advance."""

    def derivation(self) -> Derivation:
        """Derive the guarantee by the rules of the accounting."""
        ...

    def noise_terms(self, updates: int) -> list[Term]:
        """Return the independent noises in a column's answer after `updates` updates, before rounding."""
        ...

    def most_noise_terms(self, updates: int) -> list[Term]:
        """Return the noises of the answer with the largest variance in the tree or epoch that `updates` lies in."""
        ...


class Closing(NamedTuple):
    """The scale of the noises that close the intervals of an HSS, and the counter that their sums go into.

    `apart`: every column has its own intervals.
    """

    scale: Fraction
    counter: Counts
    apart: bool


def inner_counter(width: int, epsilon: Fraction, neighbors: Neighbors, ones: int) -> InnerCounter:
    """Return the counter of interval sums: `width` columns, any number of intervals, epsilon / L0 per column."""
    return Inner(width, epsilon, neighbors, ones)


def gaussian_inner_counter(
    width: int, rho: Fraction, neighbors: Neighbors, ones: int
) -> InnerCounter:
    """Return the counter of interval sums where a delta is granted: all columns together at rho in zCDP."""
    return GaussianInner(width, rho, neighbors, None, ones)


def error_bound(counter: InnerCounter, updates: int, law: ErrorLaw, failure: float) -> int:
    """Return a bound on q's error, all of the first `updates` updates together, exceeded with probability <=
    `failure`.

    The bound is two-sided; `law` describes the effect of the columns' noise on q. All updates from 2^k to 2^(k+1) -
    1 have one bound: that of the answer with the largest variance among them, at the failure probability of the
    last of them.
    """
    if updates == 0:
        return 0
    first = 1 << (updates.bit_length() - 1)
    last = 2 * first - 1
    share = index_probability(failure, last, None) / max(law.high, law.low)
    here = max(_tail(counter.most_noise_terms(at), law, share) for at in {first, last})
    return max(here, error_bound(counter, first - 1, law, failure))


def _tail(terms: list[Term], law: ErrorLaw, share: float) -> int:
    return laplace_sum_tail(law.terms(terms), share) + law.rest
