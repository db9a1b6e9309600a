"""Which event tells two samples of answers apart, and how much epsilon it proves.

An event is chosen on one part of the plays and judged on the other part, where only its two rates count. The
candidates are fixed: every answer of a touched column at or above a cut, or below; the difference of two touched
columns, or the sum of those that one event raises less those that it would raise instead; the difference of two
ticks where an event may move between them; and the sum of all answers' log-likelihood ratios (naive Bayes), cut
likewise. Rules: a bad choice costs power, never correctness. This file knows no mechanism.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_dp.core.messages import IntArray

FloatArray = NDArray[np.float64]
CUTS = 40  # most cuts per statistic
COLUMNS = 4  # most touched columns that are used one by one
CAUTION = 0.01  # failure probability of the bounds by which an event is chosen
GRAIN = 1000  # log-likelihood ratios are kept as integers of 1/1000


@dataclass(frozen=True, slots=True)
class Event:
    """`statistic` >= `cut` (< where not `above`); `swapped`: more likely under the left stream."""

    statistic: int
    cut: int
    above: bool
    swapped: bool

    def count(self, values: IntArray) -> int:
        """Count the plays in which the event happened; `values` has shape (plays, statistics)."""
        return (
            int((values[:, self.statistic] >= self.cut).sum())
            if self.above
            else int((values[:, self.statistic] < self.cut).sum())
        )


@dataclass(frozen=True, slots=True)
class Score:
    """Naive Bayes over the indicators value >= cut: integer weights for yes and for no, each of shape (statistics,)."""

    cuts: IntArray
    yes: IntArray
    no: IntArray

    @classmethod
    def fit(cls, left: IntArray, right: IntArray) -> "Score":
        """Return the cut of each statistic where the two samples differ most, and the log-likelihood ratios there."""
        cuts = np.array([_best_cut(a, b) for a, b in zip(left.T, right.T, strict=True)])
        p, q = (_smoothed((sample >= cuts).sum(axis=0), len(sample)) for sample in (right, left))
        yes, no = np.log(p / q), np.log((1 - p) / (1 - q))
        return cls(cuts, _grains(yes), _grains(no))

    def extended(self, values: IntArray) -> IntArray:
        """Return `values` with the score as one more column."""
        score = np.where(values >= self.cuts, self.yes, self.no).sum(axis=1, keepdims=True)
        return np.concatenate([values, score], axis=1)


def statistics(
    answers: IntArray, columns: int, raised: int = 1, *, changes: bool = False
) -> IntArray:
    """Return plain statistics of plays; `answers` has shape (plays, ticks, entries), the result (plays,
    statistics).

    One event touches the first `columns` entries, of which it raises the first `raised`. With `changes`, the only
    statistics are the sum of the raised entries and its change since the tick before.
    """
    touched = answers[:, :, :columns]
    up, down = (
        part.sum(axis=2, keepdims=True) for part in (touched[:, :, :raised], touched[:, :, raised:])
    )
    if changes:
        shown = np.concatenate([up, np.diff(up, axis=1, prepend=0)], axis=2)
    elif touched.shape[2] > 1:
        shown = np.concatenate([touched[:, :, :COLUMNS], up - down], axis=2)
    else:
        shown = touched
    return shown.reshape(len(answers), -1)


def labels(each: int, raised: int = 1, *, changes: bool = False) -> list[str]:
    """Return the names of the `each` statistics of a tick, in the order of `statistics`."""
    if changes:
        return ["entry 0" if raised == 1 else f"sum of entries 0 to {raised - 1}", "change"]
    entries = [f"entry {place}" for place in range(each - 1 or 1)]
    both = "difference" if (each, raised) == (3, 1) else "signed sum of what one event sets"
    return entries if each == 1 else [*entries, both]


def choose_event(left: IntArray, right: IntArray, delta: float) -> Event:
    """Return the event with the best cautious estimate on these samples, each of shape (plays, statistics)."""
    best, most = Event(0, 0, above=True, swapped=False), -math.inf
    for statistic, (a, b) in enumerate(zip(left.T, right.T, strict=True)):
        cuts = _cuts(a, b)
        low, high = ((sample[:, None] >= cuts).sum(axis=0) for sample in (a, b))
        for above, swapped in ((True, False), (True, True), (False, False), (False, True)):
            x, y = (high, low) if above else (len(b) - high, len(a) - low)
            if swapped:
                x, y = y, x
            found = epsilon_bound(x, y, len(a), delta, CAUTION)
            at = int(found.argmax())
            if found[at] > most:
                best, most = Event(statistic, int(cuts[at]), above, swapped), float(found[at])
    return best


@dataclass(frozen=True, slots=True)
class Evidence:
    """`event` was chosen on one half of the plays; `rates` are its two rates in the other half, the larger first.

    `lower` is the lower bound of epsilon that they prove, rounded down to four digits and at least 0.
    """

    event: Event
    rates: tuple[float, float]
    lower: float


def evidence(left: IntArray, right: IntArray, delta: float, failure: float) -> Evidence:
    """Return the best event on samples of shape (plays, statistics), with their score as one more statistic.

    `lower` exceeds an epsilon for which the plays are (epsilon, delta)-indistinguishable with probability at most
    `failure`.
    """
    half = len(left) // 2
    score = Score.fit(left[:half], right[:half])
    left, right = score.extended(left), score.extended(right)
    event = choose_event(left[:half], right[:half], delta)
    counts = [event.count(sample[half:]) for sample in (right, left)]
    likely, rare = counts[::-1] if event.swapped else counts
    judged = len(left) - half
    lower = proven_epsilon(likely, rare, judged, delta, failure)
    return Evidence(event, (likely / judged, rare / judged), lower)


def proven_epsilon(likely: int, rare: int, plays: int, delta: float, failure: float) -> float:
    """Return `epsilon_bound` of one event, rounded down to four digits; 0 where it proves nothing."""
    found = float(epsilon_bound(np.array([likely]), np.array([rare]), plays, delta, failure)[0])
    return max(0.0, math.floor(found * 1e4) / 1e4) if math.isfinite(found) else 0.0


def epsilon_bound(
    likely: IntArray, rare: IntArray, plays: int, delta: float, failure: float
) -> FloatArray:
    """Return a lower bound of epsilon from the counts of one event in `plays` plays under each stream; may be
    negative.

    P <= e^eps Q + delta, with Clopper-Pearson bounds, P from below and Q from above, each failing with probability
    at most failure / 2.
    """
    from scipy.special import (
        betaincinv,  # imported here: no other command needs it, and it takes longer than their imports together
    )

    p = np.where(likely > 0, betaincinv(np.maximum(likely, 1), plays - likely + 1, failure / 2), 0)
    spare = np.maximum(plays - rare, 1)
    q = np.where(rare < plays, betaincinv(rare + 1, spare, 1 - failure / 2), 1)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(p - delta, 0)) - np.log(q), dtype=np.float64)


def _cuts(a: IntArray, b: IntArray) -> IntArray:
    """Return the values that occur, reduced to CUTS quantiles."""
    values = np.unique(np.concatenate([a, b]))
    places = np.unique(np.linspace(0, len(values) - 1, CUTS).astype(int))
    return np.asarray(values[places], dtype=np.int64)


def _best_cut(a: IntArray, b: IntArray) -> int:
    cuts = _cuts(a, b)
    gap = np.abs((a[:, None] >= cuts).mean(axis=0) - (b[:, None] >= cuts).mean(axis=0))
    return int(cuts[gap.argmax()])


def _smoothed(count: IntArray, plays: int) -> FloatArray:
    return np.asarray((count + 0.5) / (plays + 1), dtype=np.float64)


def _grains(ratio: FloatArray) -> IntArray:
    return np.asarray(np.rint(ratio * GRAIN), dtype=np.int64)
