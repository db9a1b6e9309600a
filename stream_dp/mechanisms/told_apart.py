"""From which difference of two released counts on their order is told: a band of all differences at once.

Two counts are told apart where their released values differ by more than this band. With the stated confidence every
order that is told so is right, among all pairs of entries, whatever the data are: an order is told wrongly only where
the errors of its two entries differ by more than the band, and the failure is shared out over the pairs. Their noises
are independent, so of additive mechanisms the law of the difference is known; it is narrower than two bands. Of an HSS,
which lags behind, an entry may be too high by its noise alone, and too low by its whole band. Rules: everything here is
a function of public values; what is published clipped at 0 differs by less and tells no other order. This file knows no
names.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from stream_dp.mechanisms.hss.hss import HSS
from stream_dp.mechanisms.hss.per_bin_hss import PerBinHSS
from stream_dp.mechanisms.linear.column_counter import ColumnCounter
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.noise_quantiles import Term, laplace_quantile
from stream_dp.mechanisms.windows.gaussian_forest import GaussianForest
from stream_dp.mechanisms.windows.window_forest import WindowForest
from stream_dp.mechanisms.windows.windows_and_ever import WithEver


def all_at_once(confidence: float, number: int) -> float:
    """Return the confidence of each of `number` statements that hold all at once with `confidence` (Bonferroni).

    >>> round(all_at_once(0.95, 5), 6)
    0.99
    """
    return 1 - (1 - confidence) / max(1, number)


@dataclass(frozen=True, slots=True)
class Differences:
    """The differences of the entries of a mechanism's answers, or of the view at `place` of it.

    It has `public` and `band` as a mechanism has them, so that `serving.Bands` remembers its bands.
    """

    mechanism: Any
    place: int | None = None

    def public(self, updates: int, state: Any) -> Hashable:
        """Return the public values that the band of the mechanism depends on."""
        found: Hashable = (
            self.mechanism.public(updates, state)
            if self.place is None
            else self.mechanism.view_public(self.place, updates, state)
        )
        return found

    def band(self, public: Any, confidence: float) -> int:
        """Return the half-width that holds with `confidence` for all differences at once; 0 where there are none."""
        width = self.mechanism.width
        if width < 2:
            return 0
        failure, whole = 1 - confidence, self.mechanism
        if isinstance(whole, WithEver):
            if self.place not in (None, len(whole.forest.windows)):
                return Differences(whole.forest, self.place).band(public, confidence)
            if public <= whole.covered:
                return Differences(whole.forest, whole.longest).band(public, confidence)
            return Differences(whole.ever).band(public, confidence)
        pairs = width * (width - 1) // 2
        if isinstance(whole, WindowForest):
            return _additive(whole.noise_terms(self.place or 0, public), failure / pairs)
        if isinstance(whole, GaussianForest):
            deviation = math.sqrt(whole.view_variance(self.place or 0, public))
            return _normal(deviation, 0.5, failure / pairs)
        if isinstance(whole, ColumnCounter):
            return _additive(whole.noise_terms(public), failure / pairs)
        if isinstance(whole, GaussianCounter):
            return _gaussian(whole, public, failure / pairs)
        half = failure / 2 / width  # too low and too high, each for all entries
        low = whole.band(public, 1 - half)
        return int(low + _too_high(whole, public, half, low))


def _additive(terms: Any, failure: float) -> int:
    """The quantile of the difference of two such noises: each term twice, for all are symmetric.

    Where sums are rounded, two roundings may add 1 to what one may.
    """
    twice = tuple(Term(scale, 2 * number, *weight) for scale, number, *weight in terms)
    rounded = any(term.weight != 1 for term in twice)
    return laplace_quantile(twice, failure) + rounded


def _gaussian(counter: GaussianCounter, updates: int, failure: float) -> int:
    """That of the difference of two noises of a counter."""
    if updates == 0:
        return 0
    return _normal(counter.lattice.deviation(updates), counter.lattice.drift(updates), failure)


def _normal(deviation: float, rest: float, failure: float) -> int:
    """That of the difference of two normal noises and of what else there is of each, roundings among it."""
    quantile = -NormalDist().inv_cdf(failure / 2)
    return math.ceil(quantile * 2**0.5 * deviation + 2 * rest)


def _too_high(mechanism: Any, public: Any, failure: float, otherwise: int) -> int:
    """By how much an entry of an HSS exceeds its count at most, but with `failure`: only its noise makes it too high.

    Of another mechanism: `otherwise`.
    """
    if isinstance(mechanism, PerBinHSS):
        laws = [mechanism.counters.noise_terms(intervals) for intervals in public[1]]
    elif isinstance(mechanism, HSS) and mechanism.quantity is None:
        laws = [mechanism.counter.noise_terms(public[1])]
    else:
        return otherwise
    return max(laplace_quantile(tuple(terms), 2 * failure) for terms in laws)
