"""HSS: continual histogram statistics by sparse vector intervals ([HSV] Alg. 4, relative thresholds).

The stream is cut into intervals. Within one, a sparse vector instance watches a quantity of the rows since the last
crossing; only when it answers "above" does the interval's sum go, once, into a continual counter whose answer h is
released until the next crossing. Where a quantity q is released whose error follows from that of h, q(h + c) is
watched against q(h) + gamma; a histogram, and a q without such a law, is read off h, and the largest growth of a column
is watched against gamma. Rules: this is plain Python over a `ConcurrentComposition`: rows and `pending` are tainted and
are only added and passed on; what is branched on (answers, h, indices) is an answer of a sub-mechanism or public. This
file knows no samplers and no ticks.
"""

import math
from dataclasses import dataclass, field, replace
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
from stream_dp.mechanisms.bounds import geometric_tail, index_probability
from stream_dp.mechanisms.exact_class import of_the_exact_class
from stream_dp.mechanisms.hss.inner_counter import (
    Closing,
    Inner,
    InnerCounter,
    error_bound,
    inner_counter,
)
from stream_dp.mechanisms.hss.quantities import MAXIMUM, ErrorLaw, Quantity
from stream_dp.mechanisms.hss.self_tuned import SelfTuned
from stream_dp.mechanisms.hss.sparse_vector import SparseVector
from stream_dp.mechanisms.hss.survivors import SURVIVAL, interval_share, moved_up
from stream_dp.mechanisms.noise_quantiles import lagging_quantile, laplace_quantile
from stream_dp.mechanisms.serving import CountRows, Deciding

COUNTER = 0
FAILURE = 0.05
SUITE = "tests/conformance"  # taint, and two copies on neighbouring inputs


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


@wire("hss", 2, rests_on=(Inner, SparseVector))
@dataclass(frozen=True)
class HSS(CountRows, Deciding):
    """The `quantity` of `width` columns, or all of them (None).

    `kappa` scales the public threshold gamma; None: it is self-tuned and needs no guess of the volume (`self_tuned`).

    Answers: shape (width,) for the histogram, (1,) for a quantity, never negative. `horizon` is the number of queries
    where it is known, `ones` the most entries of a row that one event sets.

    Privacy claim: (threshold_epsilon + query_epsilon + counter_epsilon)-DP for such event streams under
    `neighbors`, adaptively: [HSV] Thm 6.1 over {sparse vector instances: Cor 5.5, k = 1; counters: Cor 5.5,
    k = L0}, joined by Thm 4.10. Boundaries are answers of sparse vectors, so equal in both runs.

    Raises:
        UsageError: the quantity is none for such rows or events.
    """

    width: int
    quantity: Quantity | None
    threshold_epsilon: Fraction
    query_epsilon: Fraction
    counter_epsilon: Fraction
    neighbors: Neighbors
    horizon: int | None
    kappa: Fraction | None = Fraction(2, 5)
    ones: int = 1
    composition: ConcurrentComposition = field(
        default_factory=ConcurrentComposition, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Refuse a quantity that does not fit."""
        if self.quantity is not None:
            self.quantity.checked(self.neighbors, self.width, self.ones)

    @property
    def guarantee(self) -> Guarantee:
        """Pure DP at the sum of the three shares."""
        epsilon = self.threshold_epsilon + self.query_epsilon + self.counter_epsilon
        return Guarantee(PureDP(epsilon), self.neighbors)

    @property
    def closing(self) -> Closing:
        """What closes its intervals, and which counter they go into."""
        return Closing(self._query_scale, self.counter, apart=False)

    @cached_property
    def counter(self) -> InnerCounter:
        """The counter the interval sums go into."""
        return inner_counter(self.width, self.counter_epsilon, self.neighbors, self.ones)

    @cached_property
    def _watched(self) -> Quantity | None:
        """The quantity that is watched at h + c against q(h) + gamma; None: the largest growth is, against gamma."""
        law = None if self.quantity is None else self.quantity.error(self.width)
        return None if law is None else self.quantity

    @cached_property
    def _law(self) -> ErrorLaw:
        """What the columns' noise does to what a band is for: the quantity, or one column, or each of them."""
        if self.quantity is None:
            return ErrorLaw(added=1, high=1, low=1)
        return self.quantity.error(self.width) or self._each

    @cached_property
    def _each(self) -> ErrorLaw:
        """The law of all columns at once."""
        return ErrorLaw(added=1, high=self.width, low=self.width)

    def instance(self, released: IntArray | None = None) -> SparseVector:
        """The sparse vector instance of the interval that begins with this public histogram (zeros)."""
        offset = (0,) * self.width
        if self._watched is not None and released is not None:
            offset = tuple(released.tolist())
        return SparseVector(
            self.width,
            self.threshold_epsilon,
            self.query_epsilon,
            self.neighbors,
            offset,
            self._watched or MAXIMUM,
            self.ones,
        )

    def gamma(self, query: int, intervals: int) -> int:
        """The public threshold at the query-th query after `intervals` closed intervals.

        kappa * (tail of the query noise + 2 * bound on the error that the counter's noise makes + 1), rounded up; it
        depends on `query` only where the horizon is not known, and grows with the counter's epoch. Without a kappa it
        is the self-tuned one.
        """
        if self.kappa is None:
            return self.tuned.gamma(query, intervals)
        epoch = intervals.bit_length()
        if epoch not in self._bounds:
            law = self._each if self._watched is None else self._law
            self._bounds[epoch] = error_bound(self.counter, intervals, law, FAILURE / 3)
        share = index_probability(FAILURE / 3, query, self.horizon)
        slack = geometric_tail(self._query_scale, share)
        return math.ceil(self.kappa * (slack + 2 * self._bounds[epoch] + 1))

    @cached_property
    def tuned(self) -> SelfTuned:
        """The self-tuned thresholds."""
        l0 = self.neighbors.l0(self.width, self.ones)
        node = self._law.factor * l0 / self.counter_epsilon
        return SelfTuned(node, self._query_scale, self.horizon, self._spread)

    @property
    def _spread(self) -> int:
        """How many columns there are to one that grows as the largest does: of a histogram's, few do."""
        return math.isqrt(self.width) if self._watched is None else self._law.added

    @cached_property
    def _bounds(self) -> dict[int, int]:
        """The bounds computed so far, one for each range of intervals from a power of 2 to the next."""
        return {}

    @cached_property
    def _query_scale(self) -> Fraction:
        """The scale of the instances' query noise."""
        return self.instance().query_scale

    @of_the_exact_class
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

    def public(self, updates: int, state: HSSState | None) -> tuple[int, int, bytes] | None:
        """Return the number of queries and of closed intervals, and h where a band depends on it.

        With a horizon gamma is the same at every query. Without a state nothing.
        """
        if state is None:
            return None
        query = self.horizon or max(1, state.queries)
        read_off = self.quantity is not None and self._watched is None
        return query, state.intervals, state.released.tobytes() if read_off else b""

    def leader(self, state: HSSState) -> int | None:
        """Return which column is released as the largest, of equal ones the first; None while none is above 0.

        Public, at no further cost: h is an answer of the counter, whose guarantee is for all of its columns. Where the
        maximum is released, its band holds for this column's own count too, at once: the value is too high by the noise
        of this column at most, and columns only grow; it is too low by no more than it is for the largest of all.
        """
        return MAXIMUM.holder(state.released)

    def band(self, public: tuple[int, int, bytes], confidence: float) -> int:
        """Return a bound on |released - true|; a quantity that is read off h may be off by what each column may be."""
        query, intervals, released = public
        half = self.lag(query, intervals, confidence)
        if self.quantity is None:
            return half
        return self.quantity.spread(np.frombuffer(released, dtype=np.int64), half)

    def excess(self, public: tuple[int, int, bytes], failure: float) -> int:
        """Return what an entry exceeds its count by with at most `failure`: only the counter's noise lifts it."""
        return laplace_quantile(tuple(self.counter.noise_terms(public[1])), 2 * failure)

    def lag(self, query: int, intervals: int, confidence: float) -> int:
        """Return the half-width at the query-th query after so many closed intervals.

        It bounds what went by unseen since the crossing and what the counter's noise does: to a histogram's entry, to
        the quantity, or, where the quantity is read off h, to all columns at once. Unseen is at most gamma + (threshold
        noise) - (query noise). Too high it is by the noise only.

        It holds at every query for all data chosen without looking at the noise. A threshold with large noise lives
        longest, so the noise of the instance alive now is not geometric any more: on quiet data it is almost uniform.
        What is known is that the j-th instance drew it once. With J the number of closed intervals and G the
        tail of (threshold noise) - (query noise), P(J = j and it exceeds z) <= min(P(J = j), G(z))
        <= (P(J = j) + w_j) min(1, G(z) / w_j), w_j = SURVIVAL * share: summed over j, (1 + SURVIVAL) times the law
        with tail min(1, G / w_j), a geometric moved up. Crossings by growth never look at the counter's noise,
        which is therefore independent of J. Those of a quantity of h + c do, once it depends on other columns than it
        would without noise (a largest released column that is not the largest true one); there independence is an
        assumption, paid for by adding up the tails of all columns (tests: rotating leaders).
        """
        instance = self.instance()
        scales = (instance.lift_scale, instance.query_scale)
        known = self.horizon is not None and query <= self.horizon
        possible = (self.horizon or 0) + 1 if known else 1 << query.bit_length()
        moved = moved_up(scales, SURVIVAL * interval_share(intervals, possible))
        terms = self.counter.noise_terms(intervals)
        return self._law.rest + lagging_quantile(
            self.gamma(query, intervals) + moved,
            self._law.terms(terms),
            instance.lift_scale,
            self._law.high,
            1 - confidence,
            self._law.low * (1 + SURVIVAL),
        )

    def opening(self) -> tuple[int, int]:
        """Return gamma: whether the interval closes and, if so, what is released, both depend on the event.

        A quantity may ask for more, where other columns would hide the event.
        """
        gamma = self.gamma(1, 0)
        return (gamma, 0) if self.quantity is None else self.quantity.opening(gamma)

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
        if self._watched is not None:
            threshold += self._watched.of(state.released)
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
        if self.quantity is None:
            return released.copy()
        return np.array([self.quantity.of(released)], dtype=np.int64)
