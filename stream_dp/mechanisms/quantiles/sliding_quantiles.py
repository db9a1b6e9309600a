"""Quantiles of a value over sliding windows and so far: post-processing of noisy counts of a tree over its buckets.

The noisy rank of a bucket's end is the best estimate of how many events lie up to it; less q times that of all events
it says by how much the quantile q lies below (negative: above). Read as a monotone function of the bucket, in the sense
of least squares, it passes 0 in the bucket before which its partial sums are least: there the quantile is told, and
inside the bucket in proportion. Beside it stand the buckets that are not ruled out: where the ranks up to the end, and
before the beginning, are on their right sides but for the noise that they may have. A quantile's true bucket is ruled
out only if the noise of one of two ranks, which the data name, goes beyond its margin: so no margin is needed for all
buckets at once. Rules: ranks are integers, margins are functions of public parameters. This file draws nothing and
knows no values.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from stream_dp.accounting.derive import derive
from stream_dp.accounting.situations import Fixed
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import Guarantee
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Message, Query
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_law import RowLaw
from stream_dp.core.wire import wire
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.exact_class import of_the_exact_class
from stream_dp.mechanisms.quantiles.rank_margins import Floats, rank_margins
from stream_dp.mechanisms.quantiles.value_levels import FRACTION_BITS
from stream_dp.mechanisms.quantiles.value_tree import ValueTree, ValueTreeState
from stream_dp.mechanisms.serving import Deciding

PARTS = 100
"""Places inside a bucket."""
EACH = 3
"""Numbers told of a quantile: its place, in parts of buckets, and how many buckets below and above are ruled out."""
Bools: TypeAlias = NDArray[np.bool_]
RUNNING = 1.13
_KEPT = 64  # margins of so many moments are remembered


@wire("sliding-quantiles", 1)
@dataclass(frozen=True)
class SlidingQuantiles(Deciding):
    """Answers of shape (views * len(at) * EACH,): of each quantile of each view what `EACH` says.

    `at` are the quantiles, increasing, each between 0 and 1. With probability `confidence` no true bucket of any
    quantile of a view is ruled out there.

    Privacy claim: that of `tree`: everything is made of its answers.

    Raises:
        NotDerivable: no quantiles, or a confidence that is none.
    """

    tree: ValueTree
    at: tuple[Fraction, ...]
    confidence: Fraction

    def __post_init__(self) -> None:
        """Refuse what cannot be told."""
        if not self.at or not 0 < self.confidence < 1:
            raise NotDerivable("quantiles need one share or more, and a confidence between 0 and 1")

    @property
    def width(self) -> int:
        """Number of entries of the rows it takes."""
        return self.tree.width

    @property
    def neighbors(self) -> Neighbors:
        """The neighbours of the tree."""
        return self.tree.neighbors

    @property
    def rows(self) -> RowLaw:
        """What one event changes in its rows."""
        return RowLaw(self.width, self.neighbors)

    @property
    def guarantee(self) -> Guarantee:
        """That of the tree."""
        return self.tree.guarantee

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee: that of the tree, whose answers are all that is looked at.

        Raises:
            NotDerivable: the noise of the counts is too small.
        """
        return derive((self.tree.derivation(),), Fixed("quantiles read from noisy counts"))

    def public(self, updates: int, state: ValueTreeState) -> Hashable:
        """Return the number of updates: noise depends on nothing else."""
        return updates

    def band(self, public: int, confidence: float) -> int:
        """Return the largest band of the views."""
        views = range(self.tree.views)
        return max(self.view_band(v, self.tree.view_public(v, public), confidence) for v in views)

    def view_public(self, place: int, updates: int, state: ValueTreeState) -> int:
        """Return the number of updates, as far as the noise of the view at `place` depends on it."""
        return self.tree.view_public(place, updates)

    def view_band(self, place: int, public: int, confidence: float) -> int:
        """Return by how many events the told buckets of a view may miss the ranks that were asked.

        A told bucket is too high by L events only if, from a bucket that the data name on, some running average of the
        noise of the ranks is below -L; too low likewise. Running averages go `RUNNING` times as far as the largest
        margin at most, in simulations of the worst data that there could be (test_running_ranks).
        """
        return math.ceil(RUNNING * int(self._computed(place, public, confidence).max()))

    def opening(self) -> tuple[int, int]:
        """Return so many events that the asked rank lies between the first two buckets."""
        p, s = min(self.at, key=lambda quantile: quantile.denominator).as_integer_ratio()
        return p, s - p

    def init(self, noise: Noise) -> ValueTreeState:
        """Return the first state: nothing counted."""
        return self.tree.init(noise)

    def step(
        self, state: ValueTreeState, message: Message, noise: Noise
    ) -> tuple[ValueTreeState, IntArray | None]:
        """Count a row, or tell the quantiles.

        Raises:
            RejectedMessage: a bad row, or an update beyond the horizon of the counts.
        """
        state, counts = self.tree.step(state, message, noise)
        if counts is None or not isinstance(message, Query):
            return state, None
        views = counts.reshape(self.tree.views, self.tree.levels.nodes)
        told = [self._told(place, state.updates, view) for place, view in enumerate(views)]
        return state, np.concatenate(told)

    def _told(self, place: int, updates: int, nodes: IntArray) -> IntArray:
        """What is told of each quantile of a view, from its noisy counts."""
        margins = self._margins(place, self.tree.view_public(place, updates))
        own, more = self.tree.levels.estimates(nodes)
        fine = (own.astype(object) << FRACTION_BITS) + more
        through, last = np.cumsum(fine), len(fine) - 1
        found, highest = [], 0
        for quantile, margin in zip(self.at, margins, strict=True):
            p, s = quantile.as_integer_ratio()
            ranks = s * through - p * through[-1]
            bucket = int(np.argmin(np.cumsum(ranks) - ranks))
            before = ranks[bucket - 1] if bucket else -p * through[-1]
            highest = max(highest, bucket * PARTS + _inside(before, ranks[bucket]))
            room = margin.astype(object) * (s << FRACTION_BITS)
            bucket = highest // PARTS
            low = min(int(np.argmax(_last_holds(ranks >= -room))), bucket)
            begins = _first_holds(np.concatenate([[0], ranks[:-1] - room[:-1]]) <= 0)
            high = max(last - int(np.argmax(begins[::-1])), bucket)
            found += [highest, low, last - high]
        return np.array(found, dtype=np.int64)

    @cached_property
    def _spread(self) -> tuple[Floats, Floats]:
        """Of the noisy ranks of each quantile, at each bucket's end."""
        return self.tree.levels.spread(self.at)

    @cached_property
    def _known(self) -> dict[tuple[int, int], IntArray]:
        """Margins computed last."""
        return {}

    def _margins(self, place: int, public: int) -> IntArray:
        if (place, public) not in self._known:
            if len(self._known) >= _KEPT:
                self._known.clear()
            found = self._computed(place, public, float(self.confidence))
            self._known[place, public] = found
        return self._known[place, public]

    def _computed(self, place: int, public: int, confidence: float) -> IntArray:
        """Margins of shape (len(at), leaves): each rank is beyond its own on either side with a chance of 1 / len(at).

        Each quantile has its part of the failures, and two ranks that may fail, on one side each.
        """
        terms = self.tree.noise(public, place).terms
        return rank_margins(terms, *self._spread, (1 - confidence) / len(self.at))


def _inside(before: int, through: int) -> int:
    """Where between the ends of its bucket, of these ranks, the ranks pass 0; in the middle where they do not."""
    width = through - before
    if not before < 0 < through:
        return PARTS // 2 if width else 0
    return int(min(-before * PARTS // width, PARTS - 1))


def _last_holds(holds: Bools) -> Bools:
    """Which buckets end late enough: the last one always, for it ends all events."""
    return np.append(holds[:-1], [True])


def _first_holds(holds: Bools) -> Bools:
    """Which buckets begin early enough: the first one always, for it begins all events."""
    return np.append([True], holds[1:])
