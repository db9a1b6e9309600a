"""The counter inside an HSS: which one it is, and how far its noise moves what is read off it.

Rules: one function for each kind of budget says which counter runs, so that another takes its place with one line.
Bounds are functions of public numbers. This file knows no sparse vector and no interval.
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

Inner = HandOverCounter  # the class that `inner_counter` makes, for those that rest on it
GaussianInner = GaussianCounter  # that of `gaussian_inner_counter`


class Counts(Protocol):
    """A counter with the noise of its answers known beforehand."""

    def noise(self, public: int, view: int | None = None) -> NoiseLaw:
        """Return the law of the noise in a column's answer after so many updates."""
        ...


class InnerCounter(Mechanism[Any], Counts, Protocol):
    """A counter for any number of updates, with the noise of its answers known beforehand."""

    def derivation(self) -> Derivation:
        """Derive its guarantee."""
        ...

    def noise_terms(self, updates: int) -> list[Term]:
        """Return the independent noises in a column's answer after `updates`, before it is rounded."""
        ...

    def most_noise_terms(self, updates: int) -> list[Term]:
        """Return the noises of the answer with the largest variance under the tree or epoch of `updates`."""
        ...


class Closing(NamedTuple):
    """The scale of the noises that close the intervals of an HSS, and the counter that their sums go into.

    `apart`: each column has intervals of its own.
    """

    scale: Fraction
    counter: Counts
    apart: bool


def inner_counter(width: int, epsilon: Fraction, neighbors: Neighbors, ones: int) -> InnerCounter:
    """Return the counter that interval sums go into: `width` columns for any number of intervals, epsilon / L0 each."""
    return Inner(width, epsilon, neighbors, ones)


def gaussian_inner_counter(
    width: int, rho: Fraction, neighbors: Neighbors, ones: int
) -> InnerCounter:
    """Return the counter where a delta is granted: all columns together at rho in zCDP, for any number of intervals."""
    return GaussianInner(width, rho, neighbors, None, ones)


def error_bound(counter: InnerCounter, updates: int, law: ErrorLaw, failure: float) -> int:
    """Return a bound on q's error after each of the first `updates` updates; it is exceeded with at most `failure`.

    `law` says what the columns' noise does to q; two-sided. It is one number for all updates from 2^k to 2^(k+1) - 1:
    from the answer with the largest variance there, at the failure probability of the last of them.
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
