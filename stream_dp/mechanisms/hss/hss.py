"""HSS: continual histogram statistics by sparse vector intervals ([HSV] Alg. 4, relative thresholds).

The stream is cut into intervals. Within one, a sparse vector instance watches a quantity of the rows since the last
crossing; only when it answers "above", the interval's sum goes, once, into a continual counter, whose answer h is
released until the next crossing. Where the error of the released quantity q follows from that of h, q(h + c) is
compared with q(h) + gamma, for the open interval's sums c. A histogram, and a q without such an error law, is computed
from h, and the largest growth of a column is compared with gamma. Where a delta is granted, the counter may be a
Gaussian one (`GaussianHSS`), analysed with all columns together, where [HSV] section 7 gives each column a share of
epsilon and of delta; sparse vectors stay pure, because any number of them is created, and their deltas would add up
([HSV] Thm 5.2, 5.4). Rules: this is plain Python over a `ConcurrentComposition`. Rows and `pending` are tainted: they
are only added and passed on. The code branches only on answers of sub-mechanisms (answers, h) and on public values
(indices). This file knows no samplers and no ticks.
"""

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from stream_dp.accounting.conversions import pure_to_zcdp
from stream_dp.accounting.derive import derive
from stream_dp.accounting.situations import Composite, Fixed, Parallel, Touched
from stream_dp.core.composition import Ask, CompositionState, ConcurrentComposition, Create, Halt
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import ZCDP, Guarantee, PureDP
from stream_dp.core.mechanism import IntArray, Message, Noise, Query, Step, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.mechanisms.checks import of_the_exact_class
from stream_dp.mechanisms.hss.sparse_vector import (
    MAXIMUM,
    SURVIVAL,
    ErrorLaw,
    Quantity,
    SelfTuned,
    SparseVector,
    ceil_root,
    interval_share,
    moved_up,
)
from stream_dp.mechanisms.linear.counter import HandOverCounter, HybridCounter, Trees
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.noise_law import geometric_tail, index_probability, laplace_sum_tail
from stream_dp.mechanisms.noise_quantiles import lagging_quantile, laplace_quantile
from stream_dp.mechanisms.serving import CountRows, Lags, Sides, Word

Counts: TypeAlias = Trees | GaussianCounter
"""A counter whose noise law is known in advance."""
InnerCounter: TypeAlias = HandOverCounter | HybridCounter | GaussianCounter
"""A counter of interval sums: a pure one at epsilon / L0 for each column, or a Gaussian one at rho for all columns."""


class Closing(NamedTuple):
    """The scale of the noises that close the intervals of an HSS, and the counter that their sums go into.

    `apart`: every column has its own intervals.
    """

    scale: Fraction
    counter: Counts
    apart: bool


@lru_cache(maxsize=256)
def error_bound(counter: InnerCounter, epoch: int, law: ErrorLaw, failure: float) -> int:
    """Return a bound on q's error, all updates of at most `epoch` bits together, exceeded with chance <= `failure`.

    The bound is two-sided; `law` describes the effect of the columns' noise on q. All updates from 2^k to 2^(k+1) - 1
    have one bound: that of the answer with the largest variance among them, at the failure probability of the last.
    """
    if epoch == 0:
        return 0
    first, last = 1 << (epoch - 1), (1 << epoch) - 1
    share = index_probability(failure, last, None) / max(law.high, law.low)
    terms = [law.terms(counter.most_noise_terms(at)) for at in (first, last)]
    here = max(laplace_sum_tail(each, share) for each in terms) + law.rest
    return max(here, error_bound(counter, epoch - 1, law, failure))


COUNTER = 0
FAILURE = 0.05
TOO_HIGH = 0.5  # share of two sides' failure probability that is for values that are too high
KEPT = 1024  # cached bounds
FINE = 1000  # a node's deviation is rounded up to a multiple of 1 / FINE
SUITE = "tests/conformance"  # tests of taint, and of two copies on neighbouring inputs


class Lagging(CountRows, Lags):
    """What the forms of HSS with one sparse vector share: a counter, and a release that lags behind the counts."""

    horizon: int | None

    @property
    def counter(self) -> InnerCounter:
        raise NotImplementedError

    @property
    def _law(self) -> ErrorLaw:
        """How the noise of the columns changes what is released."""
        raise NotImplementedError

    def leader(self, state: Any) -> int | None:
        """Return the column released as the largest, the first of equal ones; None while no column is above 0.

        The leader is public, at no further cost: h is an answer of the counter, whose guarantee covers all columns.
        Where the maximum is released, its band holds at once for the true count of this column: the value is too high
        by at most the noise of this column, because columns only grow, and too low by no more than for the truly
        largest one.
        """
        return MAXIMUM.holder(state.released)

    def _survival(self, query: int, intervals: int) -> float:
        """Return SURVIVAL times the share w_j of `intervals` among the possible numbers (`HSS.lag`)."""
        known = self.horizon is not None and query <= self.horizon
        possible = (self.horizon or 0) + 1 if known else 1 << query.bit_length()
        return SURVIVAL * interval_share(intervals, possible)

    def _lagging(self, behind: int, scale: Fraction, intervals: int, confidence: float) -> int:
        """Return the half-width for growth of at most `behind` + a geometric of this scale, and the counter's noise."""
        law, terms = self._law, self.counter.noise_terms(intervals)
        return law.rest + lagging_quantile(
            behind, law.terms(terms), scale, law.high, 1 - confidence, law.low * (1 + SURVIVAL)
        )

    def _sides(self, behind: int, scale: Fraction, intervals: int, confidence: float) -> Sides:
        """Return the two sides of what `_lagging` bounds; before the first interval closes, no value is too high."""
        key, known = (behind, intervals, confidence), self._known_sides
        if key not in known:
            if len(known) >= KEPT:
                known.clear()
            law, terms = self._law, self._law.terms(self.counter.noise_terms(intervals))
            failure = 1 - confidence
            high = failure * TOO_HIGH
            below = law.rest + laplace_quantile(terms, 2 * high / law.high) if intervals else 0
            late = law.low * (1 + SURVIVAL)
            above = law.rest + lagging_quantile(behind, terms, scale, 0, failure - high, late)
            known[key] = np.array([below]), np.array([above])
        return known[key]

    @cached_property
    def _known_sides(self) -> dict[tuple[int, int, float], Sides]:
        return {}


@wire("hss-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class HSSState:
    """`queries` asked, `intervals` closed, `released` (shape (width,)) and `watcher`, the index of the live instance,
    are public; `pending`, the sum of the rows since the last crossing, is private.
    """

    queries: int
    intervals: int
    released: IntArray
    pending: IntArray
    watcher: int
    parts: CompositionState


@wire("hss", 2, rests_on=(HandOverCounter, SparseVector))
@dataclass(frozen=True)
class HSS(Lagging):
    """Continual release of the `quantity` of `width` columns, or of all columns (None).

    `kappa` scales the public threshold gamma; None: gamma is self-tuned and needs no guess of the volume (`SelfTuned`).

    Answers: shape (width,) for the histogram, (1,) for a quantity, never negative. `horizon` is the number of queries
    where it is known, `ones` the most entries of a row that one event sets.

    Privacy claim: (threshold_epsilon + query_epsilon + counter_epsilon)-DP for such event streams under `neighbors`,
    adaptively: [HSV] Thm 6.1 over {sparse vector instances: Cor 5.5, k = 1; counters: Cor 5.5, k = L0}, joined by Thm
    4.10. Boundaries are answers of sparse vectors, so equal in both runs.
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
        if self.quantity is not None:
            self.quantity.checked(self.neighbors, self.width, self.ones)

    @property
    def guarantee(self) -> Guarantee:
        epsilon = self.threshold_epsilon + self.query_epsilon + self.counter_epsilon
        return Guarantee(PureDP(epsilon), self.neighbors)

    @property
    def closing(self) -> Closing:
        return Closing(self._query_scale, self.counter, apart=False)

    @cached_property
    def counter(self) -> InnerCounter:
        return HandOverCounter(self.width, self.counter_epsilon, self.neighbors, self.ones)

    @cached_property
    def _watched(self) -> Quantity | None:
        """The quantity q that compares q(h + c) with q(h) + gamma; None: the largest growth is compared with gamma."""
        law = None if self.quantity is None else self.quantity.error(self.width)
        return None if law is None else self.quantity

    @cached_property
    def _law(self) -> ErrorLaw:
        if self.quantity is None:
            return ErrorLaw(added=1, high=1, low=1)
        return self.quantity.error(self.width) or self._each

    @cached_property
    def _each(self) -> ErrorLaw:
        return ErrorLaw(added=1, high=self.width, low=self.width)

    def instance(self, released: IntArray | None = None) -> SparseVector:
        """Return the sparse vector instance of an interval that begins with this released histogram (None: zeros)."""
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
        """The public threshold at the query-th query after `intervals` closed intervals; self-tuned without a kappa.

        kappa * (tail of the query noise + 2 * bound on the error that the counter's noise makes + 1), rounded up; it
        depends on `query` only where the horizon is not known, and grows with the counter's epoch.
        """
        if self.kappa is None:
            return self.tuned.gamma(query, intervals)
        law = self._each if self._watched is None else self._law
        bound = error_bound(self.counter, intervals.bit_length(), law, FAILURE / 3)
        share = index_probability(FAILURE / 3, query, self.horizon)
        slack = geometric_tail(self._query_scale, share)
        return math.ceil(self.kappa * (slack + 2 * bound + 1))

    @cached_property
    def tuned(self) -> SelfTuned:
        l0 = self.neighbors.l0(self.width, self.ones)
        node = self._law.factor * l0 / self.counter_epsilon
        return SelfTuned(node, self._query_scale, self.horizon, self._spread)

    @property
    def _spread(self) -> int:
        """Typical number of columns per column that grows as fast as the largest; in a histogram few columns do."""
        return math.isqrt(self.width) if self._watched is None else self._law.added

    @cached_property
    def _query_scale(self) -> Fraction:
        return self.instance().query_scale

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee: instances one after the other, the counter in parallel to them, both inside HSS."""
        intervals = Touched.intervals(
            self.neighbors,
            "the intervals are disjoint and their ends are released, so an event reaches one instance",
            SUITE,
        )
        one = self.instance().derivation()
        watchers = derive((one,), Parallel("sparse vector instances", intervals))
        parts = derive((watchers, self.counter.derivation()), Fixed("sub-mechanisms"))
        composite = Composite(
            "HSS",
            "rows and interval sums are only added and forwarded; where they go depends only on crossings, "
            "released values and indices",
            "one event changes one row of one instance, and the entries of one interval sum",
            SUITE,
        )
        return derive((parts,), composite)

    def public(self, updates: int, state: HSSState | None) -> tuple[int, int, bytes] | None:
        """Return the numbers of queries and of closed intervals, and the bytes of h where the band depends on h."""
        if state is None:
            return None
        query = self.horizon or max(1, state.queries)
        read_off = self.quantity is not None and self._watched is None
        return query, state.intervals, state.released.tobytes() if read_off else b""

    def band(self, public: tuple[int, int, bytes], confidence: float) -> int:
        """Return a bound on |released - true|; for a quantity computed from h, from the bound of each column."""
        query, intervals, released = public
        half = self.lag(query, intervals, confidence)
        if self.quantity is None:
            return half
        return self.quantity.spread(np.frombuffer(released, dtype=np.int64), half)

    def excess(self, public: tuple[int, int, bytes], failure: float) -> int:
        """Return a bound on an entry's released - true (counter noise), exceeded with probability <= `failure`."""
        return laplace_quantile(tuple(self.counter.noise_terms(public[1])), 2 * failure)

    @property
    def words(self) -> tuple[Word, Word | None]:
        """Proven where crossings never look at the counter's noise (`lag`)."""
        if self._watched is not None:
            return "calibrated", "calibrated"
        return "proven", "proven" if self.quantity is None else None

    def sides(self, state: HSSState, confidence: float) -> Sides:
        behind = self._behind(self.horizon or max(1, state.queries), state.intervals)
        return self._sides(behind, self.instance().lift_scale, state.intervals, confidence)

    def at_once(self, query: int, intervals: int) -> int:
        """Return gamma + the tail of every threshold's noise + that of every update's noise in all columns.

        An instance that has not crossed has seen q(h + c) + (query noise) <= q(h) + gamma + (threshold noise), and the
        query noise is not negative. So no independence is needed, and data may be chosen by who sees the releases.
        """
        law = self._law if self._watched is not None else self._each
        level = max(self.gamma(query, 0), self.gamma(query, intervals)) + 1  # up to two roundings
        lift = index_probability(FAILURE / 2, intervals + 1, None)
        noise = error_bound(self.counter, intervals.bit_length(), law, FAILURE / 2)
        return level + geometric_tail(self.instance().lift_scale, lift) + noise

    def lag(self, query: int, intervals: int, confidence: float) -> int:
        """Return the half-width at the query-th query after so many closed intervals.

        It bounds the growth since the crossing, which no release shows yet, and the effect of the counter's noise: on a
        histogram's entry, on the quantity, or, where the quantity is computed from h, on all columns at once. The
        growth is at most gamma + (threshold noise) - (query noise). A release is too high by the counter's noise only.

        It holds at every query for all data chosen without looking at the noise. A threshold with large noise lives
        longest, so the noise of the instance alive now is not geometric any more: on quiet data it is almost uniform.
        It is known that the j-th instance drew it once. With J the number of closed intervals and G the tail of
        (threshold noise) - (query noise), P(J = j and it exceeds z) <= min(P(J = j), G(z)) <= (P(J = j) + w_j) min(1,
        G(z) / w_j), w_j = SURVIVAL * share: summed over j, (1 + SURVIVAL) times the law with tail min(1, G / w_j), a
        geometric moved up. All of this is a function of public values.

        Crossings by growth never look at the counter's noise, which is therefore independent of J. Crossings of a
        quantity of h + c do look at it, once the quantity depends on other columns than without noise (for example
        where the largest released column is not the truly largest). There independence is an assumption, paid for by
        adding up the tails of all columns (tests: rotating leaders).
        """
        behind = self._behind(query, intervals)
        return self._lagging(behind, self.instance().lift_scale, intervals, confidence)

    def _behind(self, query: int, intervals: int) -> int:
        instance = self.instance()
        scales = (instance.lift_scale, instance.query_scale)
        return self.gamma(query, intervals) + moved_up(scales, self._survival(query, intervals))

    def opening(self) -> tuple[int, int]:
        """Return gamma other events: then the event decides whether the interval closes; a quantity may return more."""
        gamma = self.gamma(1, 0)
        return (gamma, 0) if self.quantity is None else self.quantity.opening(gamma)

    def init(self, noise: Noise) -> HSSState:
        zeros = np.zeros(self.width, dtype=np.int64)
        parts, _ = self.composition.step(self.composition.init(), Create(self.counter), noise)
        parts, _ = self.composition.step(parts, Create(self.instance()), noise)
        return HSSState(0, 0, zeros, zeros, COUNTER + 1, parts)

    def step(self, state: HSSState, message: Message, noise: Noise) -> Step[HSSState]:
        if isinstance(message, Query):
            after = self._watch(state, noise)
            return after, self._answer(after.released)
        parts, _ = self.composition.step(state.parts, Ask(state.watcher, message), noise)
        return replace(state, parts=parts, pending=state.pending + message.row), None

    def _watch(self, state: HSSState, noise: Noise) -> HSSState:
        """Ask the live instance; close the interval if the instance answers "above"."""
        query = state.queries + 1
        threshold = self.gamma(query, state.intervals)
        if self._watched is not None:
            threshold += self._watched.of(state.released)
        asked = Ask(state.watcher, Query(threshold))
        parts, above = self.composition.step(state.parts, asked, noise)
        after = replace(state, queries=query, parts=parts)
        return self._close(after, noise) if above is not None and above[0] else after

    def _close(self, state: HSSState, noise: Noise) -> HSSState:
        """Send the interval's sum to the counter, release the counter's answer clipped at 0, and arm a new instance."""
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


@wire("gaussian-hss", 1, rests_on=(GaussianCounter, SparseVector))
@dataclass(frozen=True)
class GaussianHSS(HSS):
    """HSS with a Gaussian counter at `rho` in zCDP for all columns together; no pure epsilon goes to the counter.

    Privacy claim: (e tanh(e/2) + rho)-zCDP, e = threshold_epsilon + query_epsilon, for the events of `HSS`, adaptively:
    [HSV] Thm 6.1 over {sparse vector instances: Cor 5.5, k = 1; the counter: an event changes one interval's sum, by
    one in at most L0 entries}, joined in zCDP by Cor 13.4 at every order.
    """

    counter_epsilon: Fraction = field(default=Fraction(0), init=False, repr=False)
    rho: Fraction = field(kw_only=True)

    @property
    def guarantee(self) -> Guarantee:
        pure = pure_to_zcdp(PureDP(self.threshold_epsilon + self.query_epsilon))
        return Guarantee(ZCDP(pure.rho + self.rho), self.neighbors, fresh=True)

    @cached_property
    def counter(self) -> InnerCounter:
        return GaussianCounter(self.width, self.rho, self.neighbors, None, self.ones)

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee as `HSS` does; its code runs unchanged, only the counter is another part."""
        return super().derivation()

    @cached_property
    def tuned(self) -> SelfTuned:
        """The self-tuned thresholds; a node's deviation is about sqrt(L0 / rho)."""
        square = self.neighbors.l0(self.width, self.ones) / self.rho
        node = Fraction(ceil_root(square * FINE**2), FINE) * self._law.factor
        return SelfTuned(node, self._query_scale, self.horizon, self._spread, steady=True)
