"""HSS: continual histogram statistics by sparse vector intervals ([HSV] Alg. 4, relative thresholds).

The stream is cut into intervals. Within one, a sparse vector instance watches a statistic of the rows since
the last crossing; only when it answers "above" does the interval's sum go, once, into a continual counter whose
answer is released until the next crossing. `HISTOGRAM` watches the largest growth of a column against gamma;
`MAXIMUM` watches the largest column, max(h + c) against max(h) + gamma. Rules: this is plain Python over a
`ConcurrentComposition`: rows and `pending` are tainted and are only added and passed on; what is branched on
(answers, h, indices) is an answer of a sub-mechanism or public. This file knows no samplers and no ticks.
"""

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from functools import cached_property

import numpy as np

from stream_dp.accounting.derive import derive
from stream_dp.accounting.situations import Composite, Fixed, Parallel, Touched
from stream_dp.core.composition import (
    Ask,
    CompositionState,
    ConcurrentComposition,
    Create,
    Halt,
)
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Message, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.mechanisms.bounds import geometric_tail, index_probability, laplace_sum_tail
from stream_dp.mechanisms.hybrid_counter import HybridCounter
from stream_dp.mechanisms.noise_quantiles import lagging_quantile
from stream_dp.mechanisms.sparse_vector import SparseVector

COUNTER = 0
FAILURE = 0.05
SURVIVAL = 0.5  # what long-lived thresholds may add to a band's failure probability, as a share
LEAD = 1 << 30  # events: no noise catches up with so many
SUITE = "tests/conformance"  # taint, and two copies on neighbouring inputs


@wire("hss-statistic", 1)
class Statistic(StrEnum):
    """What is released: every column, or the largest one."""

    HISTOGRAM = "histogram"
    MAXIMUM = "maximum"


@wire("hss-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class HSSState:
    """`queries` asked, `intervals` closed and `released` (shape (width,)) are public; `pending` is private.

    `pending` is the sum of the rows since the last crossing; `watcher` the index of the live instance.
    """

    queries: int
    intervals: int
    released: IntArray
    pending: IntArray
    watcher: int
    parts: CompositionState


@wire("hss", 1, rests_on=(HybridCounter, SparseVector))
@dataclass(frozen=True)
class HSS:
    """Histogram or maximum of `width` columns; `kappa` scales the public threshold gamma.

    Answers: HISTOGRAM shape (width,), MAXIMUM shape (1,), never negative. `horizon` is the number of queries
    where it is known.

    Privacy claim: (threshold_epsilon + query_epsilon + counter_epsilon)-DP for one-hot event streams under
    `neighbors`, adaptively: [HSV] Thm 6.1 over {sparse vector instances: Cor 5.5, k = 1; counters: Cor 5.5,
    k = L0}, joined by Thm 4.10. Boundaries are answers of sparse vectors, so equal in both runs.
    """

    width: int
    statistic: Statistic
    threshold_epsilon: Fraction
    query_epsilon: Fraction
    counter_epsilon: Fraction
    neighbors: Neighbors
    horizon: int | None
    kappa: Fraction = Fraction(2, 5)
    composition: ConcurrentComposition = field(
        default_factory=ConcurrentComposition, repr=False, compare=False
    )

    @property
    def guarantee(self) -> Guarantee:
        """Pure DP at the sum of the three shares."""
        epsilon = self.threshold_epsilon + self.query_epsilon + self.counter_epsilon
        return Guarantee(PureDP(epsilon), self.neighbors)

    @cached_property
    def counter(self) -> HybridCounter:
        """The counter the interval sums go into."""
        return HybridCounter(self.width, self.counter_epsilon, self.neighbors)

    def instance(self, released: IntArray | None = None) -> SparseVector:
        """The sparse vector instance of the interval that begins with this public histogram (zeros)."""
        offset = (0,) * self.width
        if self.statistic is Statistic.MAXIMUM and released is not None:
            offset = tuple(released.tolist())
        return SparseVector(
            self.width, self.threshold_epsilon, self.query_epsilon, self.neighbors, offset
        )

    def gamma(self, query: int, intervals: int) -> int:
        """The public threshold at the query-th query after `intervals` closed intervals.

        kappa * (tail of the query noise + 2 * bound on the counter's noise + 1), rounded up; it depends on
        `query` only where the horizon is not known, and grows with the counter's epoch.
        """
        epoch = intervals.bit_length()
        if epoch not in self._bounds:
            self._bounds[epoch] = counter_bound(self.counter, intervals)
        share = index_probability(FAILURE / 3, query, self.horizon)
        slack = geometric_tail(self._query_scale, share)
        return math.ceil(self.kappa * (slack + 2 * self._bounds[epoch] + 1))

    @cached_property
    def _bounds(self) -> dict[int, int]:
        """The counter's bounds computed so far, one for each of its epochs."""
        return {}

    @cached_property
    def _query_scale(self) -> Fraction:
        """The scale of the instances' query noise."""
        return self.instance().query_scale

    def derivation(self) -> Derivation:
        """Derive the guarantee: instances one after the other, the counter beside them, and all of it behind HSS.

        Raises:
            NotDerivable: no rule covers the parts.
        """
        intervals = Touched.intervals(
            self.neighbors,
            "intervals are disjoint and their ends are released: an event reaches one instance",
            SUITE,
        )
        one = self.instance().derivation()
        watchers = derive((one,), Parallel("sparse vector instances", intervals))
        parts = derive((watchers, self.counter.derivation()), Fixed("sub-mechanisms"))
        composite = Composite(
            "HSS",
            "rows and interval sums are only added and forwarded; crossings, released values and indices decide",
            "one event changes one row of one instance and one entry set of one interval sum",
            SUITE,
        )
        return derive((parts,), composite)

    def public(self, updates: int, state: HSSState) -> tuple[int, int]:
        """Return the number of queries and of closed intervals; with a horizon gamma is the same at every query."""
        return self.horizon or max(1, state.queries), state.intervals

    def band(self, public: tuple[int, int], confidence: float) -> int:
        """Return a bound on |released - true|: what went by unseen since the crossing, and the counter's noise.

        Unseen is at most gamma + (threshold noise) - (query noise). A histogram entry is too high by its own noise
        only; a maximum may be too high by the largest noise of any column.

        It holds at every query for all data chosen without looking at the noise. A threshold with large noise lives
        longest, so the noise of the instance alive now is not geometric any more: on quiet data it is almost uniform.
        What is known is that the j-th instance drew it once. With J the number of closed intervals and G the
        tail of (threshold noise) - (query noise), P(J = j and it exceeds z) <= min(P(J = j), G(z))
        <= (P(J = j) + w_j) min(1, G(z) / w_j), w_j = SURVIVAL * share: summed over j, (1 + SURVIVAL) times the law
        with tail min(1, G / w_j), a geometric moved up. A histogram's crossings never look at the counter's noise,
        which is therefore independent of J. Those of a maximum do once the largest released column is not the largest
        true one; there independence is an assumption, paid for by adding up the tails of all columns (tests: rotating
        leaders).
        """
        query, intervals = public
        instance = self.instance()
        scales = (instance.lift_scale, instance.query_scale)
        known = self.horizon is not None and query <= self.horizon
        possible = (self.horizon or 0) + 1 if known else 1 << query.bit_length()
        moved = _moved_up(scales, SURVIVAL * interval_share(intervals, possible))
        return lagging_quantile(
            self.gamma(query, intervals) + moved,
            tuple(self.counter.noise_terms(intervals)),
            instance.lift_scale,
            self.width if self.statistic is Statistic.MAXIMUM else 1,
            1 - confidence,
            1 + SURVIVAL,
        )

    def opening(self) -> tuple[int, int]:
        """Return gamma: whether the interval closes and, if so, what is released, both depend on the event.

        Where only the largest column is released, a lead beyond all noise: the other columns would hide the event.
        """
        return LEAD if self.statistic is Statistic.MAXIMUM else self.gamma(1, 0), 0

    def init(self, noise: Noise) -> HSSState:
        """Return the first state: the counter and the first instance created, nothing released but zeros."""
        zeros = np.zeros(self.width, dtype=np.int64)
        parts, _ = self.composition.step(self.composition.init(), Create(self.counter), noise)
        parts, _ = self.composition.step(parts, Create(self.instance()), noise)
        return HSSState(0, 0, zeros, zeros, COUNTER + 1, parts)

    def step(
        self, state: HSSState, message: Message, noise: Noise
    ) -> tuple[HSSState, IntArray | None]:
        """Take a row, or answer (which asks the live instance once).

        Raises:
            RejectedMessage: a bad row.
        """
        if isinstance(message, Query):
            after = self._watch(state, noise)
            return after, self._answer(after.released)
        parts, _ = self.composition.step(state.parts, Ask(state.watcher, message), noise)
        return replace(state, parts=parts, pending=state.pending + message.row), None

    def _watch(self, state: HSSState, noise: Noise) -> HSSState:
        """Ask the live instance; close the interval where it says so."""
        query = state.queries + 1
        threshold = self.gamma(query, state.intervals)
        if self.statistic is Statistic.MAXIMUM:
            threshold += int(state.released.max())
        asked = Ask(state.watcher, Query(threshold))
        parts, above = self.composition.step(state.parts, asked, noise)
        after = replace(state, queries=query, parts=parts)
        return self._close(after, noise) if above is not None and above[0] else after

    def _close(self, state: HSSState, noise: Noise) -> HSSState:
        """Send the interval's sum to the counter, release its answer (clipped at zero), arm a new instance."""
        step, parts = self.composition.step, state.parts
        parts, _ = step(parts, Halt(state.watcher), noise)
        parts, _ = step(parts, Ask(COUNTER, Update(state.pending)), noise)
        parts, released = step(parts, Ask(COUNTER, Query()), noise)
        if released is None:
            raise TypeError("a counter answers every query")
        clipped = np.maximum(released, 0)
        watcher = parts.created
        parts, _ = step(parts, Create(self.instance(clipped)), noise)
        zeros = np.zeros(self.width, dtype=np.int64)
        return HSSState(state.queries, state.intervals + 1, clipped, zeros, watcher, parts)

    def _answer(self, released: IntArray) -> IntArray:
        if self.statistic is Statistic.MAXIMUM:
            return np.array([int(released.max())], dtype=np.int64)
        return released.copy()


def interval_share(intervals: int, possible: int) -> float:
    """Return w_j = 1 / ((j + 1) (1 + ln n)): at most 1 in sum over the n possible numbers of closed intervals."""
    return 1 / ((intervals + 1) * (1 + math.log(possible)))


def _moved_up(scales: tuple[Fraction, Fraction], share: float) -> int:
    """The least z0 such that z0 + geometric dominates the law with tail min(1, P(lift - query > z) / share)."""
    a, b = (math.exp(-1 / float(scale)) for scale in scales)
    return max(0, math.ceil(float(scales[0]) * math.log((1 - b) / (1 - a * b) / share)))


def counter_bound(counter: HybridCounter, updates: int) -> int:
    """A bound on all columns' noise after each of the first `updates` updates, failing rarely (FAILURE/3).

    It is one number for a whole epoch of the counter: from the most terms an answer has there, at the
    failure probability of the epoch's last update.
    """
    if updates == 0:
        return 0
    last = (1 << updates.bit_length()) - 1
    share = index_probability(FAILURE / 3, last, None) / counter.width
    here = laplace_sum_tail(counter.most_noise_terms(updates), share)
    return max(here, counter_bound(counter, (last >> 1)))
