"""HSS bin by bin: each column has its own sparse vector and is updated only at its own crossings.

A re-armed count sparse vector per column detects when the column has grown by its public threshold. Only then the
column's own counter closes an update, and its answer is released until the next crossing. Where an event sets few
entries this beats the joint form (`hss`): a column pays for its own growth, and a count that shifts by a constant
costs max(e1, e2) instead of e1 + e2. Rules: plain Python over a `ConcurrentComposition`, as in `hss`: rows are
tainted and only passed on; which columns cross, and what is released and how often, follows from answers and public
values. This file knows no samplers and no ticks.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from stream_dp.accounting.derive import derive
from stream_dp.accounting.situations import Composite, Fixed
from stream_dp.core.composition import Ask, CompositionState, ConcurrentComposition, Create
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import IntArray, Message, Noise, Query, Step
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.mechanisms.checks import of_the_exact_class
from stream_dp.mechanisms.hss.hss import FAILURE, KEPT, TOO_HIGH, Closing, error_bound
from stream_dp.mechanisms.hss.sparse_vector import (
    SHORTEST,
    SURVIVAL,
    ErrorLaw,
    SelfTuned,
    interval_share,
    moved_up,
    unseen,
)
from stream_dp.mechanisms.linear.counter import CloseQuery, SeparateCounters
from stream_dp.mechanisms.noise_law import geometric_tail, index_probability
from stream_dp.mechanisms.noise_quantiles import lagging_quantile, laplace_quantile
from stream_dp.mechanisms.serving import CountRows, Lags, Sides, Word
from stream_dp.mechanisms.watches.block import LevelsQuery
from stream_dp.mechanisms.watches.kinds import CountWatchers

WATCHERS, COUNTERS = 0, 1
SUITE = "tests/conformance"  # tests of taint, and of two copies on neighbouring inputs


@wire("per-bin-hss-state", 2)
@dataclass(frozen=True, slots=True, repr=False)
class PerBinState:
    """All public but `parts`: the number of `queries`; by column, shape (width,), closed `intervals`, what is
    `released`, `levels`, the thresholds of the live sparse vectors, and at which query they were `armed`.
    """

    queries: int
    intervals: IntArray
    released: IntArray
    levels: IntArray
    armed: IntArray
    parts: CompositionState


def first_state(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of version 2 for those of version 1: sparse vectors count as armed from the beginning."""
    return fields | {"armed": np.zeros_like(fields["intervals"])}


@wire("per-bin-hss", 1, rests_on=(CountWatchers, SeparateCounters))
@dataclass(frozen=True)
class PerBinHSS(CountRows, Lags):
    """Histogram of `width` columns; a column is released anew when it has grown by about its self-tuned threshold.

    Answers of shape (width,), never negative. `horizon` is the number of queries where it is known; `ones` the most
    entries of a row that one event sets.

    Privacy claim: (watch_epsilon + counter_epsilon)-DP under `neighbors`, adaptively: [HSV] Thm 6.1 over {count
    sparse vectors: max(e1, e2) a column; counters}, each by Cor 5.5 over its columns, k = L0, joined by Thm 4.10.
    Which columns close is an answer of the sparse vectors, so equal in both runs.
    """

    width: int
    watch_epsilon: Fraction
    counter_epsilon: Fraction
    neighbors: Neighbors
    horizon: int | None
    ones: int = 1
    composition: ConcurrentComposition = field(
        default_factory=ConcurrentComposition, repr=False, compare=False
    )

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(PureDP(self.watch_epsilon + self.counter_epsilon), self.neighbors)

    @cached_property
    def watchers(self) -> CountWatchers:
        return CountWatchers(self.width, self.watch_epsilon, self.neighbors, self.ones)

    @property
    def closing(self) -> Closing:
        return Closing(self.watchers.scale, self.counters, apart=True)

    @cached_property
    def counters(self) -> SeparateCounters:
        return SeparateCounters(self.width, self.counter_epsilon, self.neighbors, self.ones)

    @cached_property
    def tuned(self) -> SelfTuned:
        return SelfTuned(1 / self.counters.unit_epsilon, self.watchers.scale, self.horizon)

    def gamma(self, query: int, intervals: int) -> int:
        """The public threshold of a column at the query-th query after its `intervals` closed intervals."""
        key = query.bit_length() if self.horizon is None else 0, intervals
        if key not in self._gammas:
            self._gammas[key] = self.tuned.gamma(query, intervals)
        return self._gammas[key]

    @cached_property
    def _gammas(self) -> dict[tuple[int, int], int]:
        return {}

    @of_the_exact_class
    def derivation(self) -> Derivation:
        both = (self.watchers.derivation(), self.counters.derivation())
        composite = Composite(
            "HSS bin by bin",
            "rows are only forwarded, to both parts; messages depend only on crossings, released values and "
            "their numbers",
            "both parts get the same rows unchanged, so neighbouring streams stay neighbours; a crossing names "
            "columns, not rows",
            SUITE,
        )
        return derive((derive(both, Fixed("sub-mechanisms")),), composite)

    def public(self, updates: int, state: PerBinState | None) -> tuple[int, Hashable] | None:
        """Return the number of queries, rounded up to a power of two, and the set of numbers of closed intervals."""
        if state is None:
            return None
        return self._rounded(max(1, state.queries)), frozenset(state.intervals.tolist())

    def band(self, public: tuple[int, frozenset[int]], confidence: float) -> int:
        """Return a bound on any column's |released - true|: its growth since the crossing, and its counter's noise.

        The growth is less than gamma + (threshold noise) - (query noise). Each column's bound is computed as in
        `HSS.lag`: crossings never look at a counter's noise, which is therefore independent of the number of intervals
        J, and moving the law of the threshold's noise up, by the public J, pays for its survival.
        """
        query, intervals = public
        return max([self._column_band(query, each, confidence) for each in intervals])

    def excess(self, public: tuple[int, frozenset[int]], failure: float) -> int:
        """Return a bound on a column's released - true (counter noise), exceeded with probability <= `failure`."""
        laws = (self.counters.noise_terms(intervals) for intervals in public[1])
        return max(laplace_quantile(tuple(terms), 2 * failure) for terms in laws)

    @property
    def words(self) -> tuple[Word, Word | None]:
        return "proven", "calibrated"

    def sides(self, state: PerBinState, confidence: float) -> Sides:
        """Return the two sides of each column, by its own numbers of closed intervals and of queries since the last.

        Below, for values that are too high: a quantile of the counter's noise. Above: the law of `unseen` is proven for
        each instance. That it may be taken for that of the instance alive now, and the noise of the very counter be
        added to it, is calibrated (docs/hss.md, "What has grown unseen").
        """
        query = self._rounded(max(1, state.queries))
        ages = (state.queries - state.armed).tolist()
        columns = list(zip(state.intervals.tolist(), map(_up_to, ages), strict=True))
        known = {each: self._column_sides(query, *each, confidence) for each in set(columns)}
        below, above = zip(*map(known.__getitem__, columns), strict=True)
        return np.array(below, dtype=np.int64), np.array(above, dtype=np.int64)

    def at_once(self, query: int, intervals: int) -> int:
        """Return gamma + the tails of the noises of all thresholds and updates of all columns (`HSS.at_once`)."""
        query, law = self._rounded(query), ErrorLaw(added=1, high=self.width, low=self.width)
        lift = index_probability(FAILURE / 2, intervals + 1, None) / self.width
        noise = error_bound(self.counters, intervals.bit_length(), law, FAILURE / 2)
        return self._highest(query, intervals) + geometric_tail(self.watchers.scale, lift) + noise

    def lag(self, query: int, intervals: int, confidence: float) -> int:
        return self._column_band(self._rounded(query), intervals, confidence)

    def _column_band(self, query: int, intervals: int, confidence: float) -> int:
        key, known = (query, intervals, confidence), self._column_bands
        if key not in known:
            if len(known) >= KEPT:
                known.clear()
            scale, terms = self.watchers.scale, tuple(self.counters.noise_terms(intervals))
            moved = moved_up((scale, scale), SURVIVAL * interval_share(intervals, query + 1))
            behind = max(0, self.gamma(query, intervals) - 1) + moved
            failure = 1 - confidence
            known[key] = lagging_quantile(behind, terms, scale, 1, failure, 1 + SURVIVAL)
        return known[key]

    def _column_sides(
        self, query: int, intervals: int, age: int, confidence: float
    ) -> tuple[int, int]:
        """Return the sides of a column; right after a crossing (age 0) nothing is unseen.

        There both sides share what the noise alone may fail with elsewhere, so columns that cross fail no more often.
        """
        grown = self._grown(query, self.gamma(query, intervals), age) if age else -1
        key, known = (intervals, grown, confidence), self._known_sides
        if key not in known:
            if len(known) >= KEPT:
                known.clear()
            terms, failure = tuple(self.counters.noise_terms(intervals)), 1 - confidence
            high = failure * TOO_HIGH
            if age:
                scale = self.watchers.scale
                above = lagging_quantile(grown, terms, scale, 0, failure - high, 1.0)
                known[key] = laplace_quantile(terms, 2 * high), above
            else:
                known[key] = (laplace_quantile(terms, high),) * 2
        return known[key]

    @cached_property
    def _known_sides(self) -> dict[tuple[int, int, float], tuple[int, int]]:
        return {}

    def _grown(self, query: int, gamma: int, age: int) -> int:
        key, known = (query, gamma, age), self._known_growths
        if key not in known:
            if len(known) >= KEPT:
                known.clear()
            known[key] = unseen(self.watchers.scale, gamma, self._thresholds(query, age))
        return known[key]

    @cached_property
    def _known_growths(self) -> dict[tuple[int, int, int], int]:
        return {}

    def _highest(self, query: int, intervals: int) -> int:
        """Return the largest gamma up to so many intervals, which never falls."""
        key = query.bit_length() if self.horizon is None else 0
        known = self._peaks.setdefault(key, [self.gamma(query, 0)])
        while len(known) <= intervals:
            known.append(max(known[-1], self.gamma(query, len(known))))
        return known[intervals]

    @cached_property
    def _peaks(self) -> dict[int, list[int]]:
        return {}

    def _thresholds(self, query: int, age: int) -> list[tuple[int, int]]:
        """Return (number of queries, how far gamma was below that of now, at most) for the last `age` queries.

        Without a horizon gamma has risen by ln 2 scales, and once rounded, with each power of two; `query` is the next
        one. Each of the octaves that the last queries may lie in counts as if all of them did, as far as it is long.
        """
        if self.horizon is not None:
            return [(age, 0)]
        now, scale = max(SHORTEST, 2 * query), float(self.watchers.scale)
        octaves = [1 << bits for bits in range(query.bit_length() - 1)]
        return [
            (min(age, many), math.ceil(scale * math.log(now / max(SHORTEST, 2 * many))) + 1)
            for many in octaves
            if 2 * many > query // 2 - age
        ]

    @cached_property
    def _column_bands(self) -> dict[tuple[int, int, float], int]:
        return {}

    def _rounded(self, query: int) -> int:
        """Return the number of queries that a bound is computed for: the horizon, or the next power of two."""
        return self.horizon or 1 << query.bit_length()

    def opening(self) -> tuple[int, int]:
        """Return counts one event short of the threshold, in the second column too where an event may reach both."""
        first = max(0, self.gamma(1, 0) - 1)
        return first, first if self.neighbors.l0(self.width, self.ones) > 1 else 0

    def init(self, noise: Noise) -> PerBinState:
        zeros = np.zeros(self.width, dtype=np.int64)
        step = self.composition.step
        parts, _ = step(self.composition.init(), Create(self.watchers), noise)
        parts, _ = step(parts, Create(self.counters), noise)
        return PerBinState(0, zeros, zeros, self._levels(1, zeros), zeros, parts)

    def step(self, state: PerBinState, message: Message, noise: Noise) -> Step[PerBinState]:
        if isinstance(message, Query):
            after = self._watch(state, noise)
            return after, after.released.copy()
        parts, _ = self.composition.step(state.parts, Ask(WATCHERS, message), noise)
        parts, _ = self.composition.step(parts, Ask(COUNTERS, message), noise)
        return replace(state, parts=parts), None

    def _watch(self, state: PerBinState, noise: Noise) -> PerBinState:
        query, levels = state.queries + 1, state.levels
        if self.horizon is None and query & (query - 1) == 0:
            levels = self._levels(query, state.intervals)
        asked = Ask(WATCHERS, LevelsQuery(levels=levels))
        parts, crossed = self.composition.step(state.parts, asked, noise)
        after = replace(state, queries=query, levels=levels, parts=parts)
        if crossed is None:
            raise TypeError("watchers answer every query")
        columns = crossed.nonzero()[0]
        return self._close(after, columns, noise) if len(columns) else after

    def _close(self, state: PerBinState, columns: IntArray, noise: Noise) -> PerBinState:
        asked = Ask(COUNTERS, CloseQuery(columns=columns))
        parts, counts = self.composition.step(state.parts, asked, noise)
        if counts is None:
            raise TypeError("counters answer every query")
        copied = (state.released, state.intervals, state.levels, state.armed)
        released, intervals, levels, armed = (array.copy() for array in copied)
        released[columns] = np.maximum(counts, 0)
        intervals[columns] += 1
        levels[columns] = self._levels(state.queries, intervals[columns])
        armed[columns] = state.queries
        return PerBinState(state.queries, intervals, released, levels, armed, parts)

    def _levels(self, query: int, intervals: IntArray) -> IntArray:
        return np.array([self.gamma(query, j) for j in intervals.tolist()], dtype=np.int64)


def _up_to(age: int) -> int:
    """Return the least power of two that is no less, for which sides are computed; 0 of 0."""
    return 1 << (age - 1).bit_length() if age else 0
