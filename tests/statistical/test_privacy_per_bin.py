"""HSS bin by bin: the exact law is the oracle's, the worst exact loss is max(e1, e2) + e_c, and the twins lose more.

No statistics. The oracle searches all small streams in closed form, in fractions; of the real code all noise is
enumerated (what is cut off only widens a bracket), on a few streams; the sparse vectors alone are a block of watches
(`test_privacy_monitor`). That the whole is its two parts is checked by taint and by two copies (conformance).
"""

import itertools
import math
import pickle
from collections.abc import Callable, Hashable
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

import numpy as np
import pytest
from oracles import per_bin as oracle
from oracles.transcripts import Transcripts, enumerate_transcripts, loss_bounds, tail_support
from statistical.attack import Pair, Rows

from stream_dp.core.mechanism import IntArray, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.sealed import inside_of
from stream_dp.mechanisms.hss.per_bin_hss import PerBinHSS
from stream_dp.mechanisms.linear.counter import CloseQuery, HandOverSchedule, SeparateCounters
from stream_dp.mechanisms.linear.tree import FRACTION_BITS, TreeNoise, TreeShape, TreeState
from stream_dp.testing.noise import SeededNoise

ASK = Query()


def close(*columns: int) -> CloseQuery:
    """The query that closes the updates of these columns."""
    return CloseQuery(columns=np.array(columns, dtype=np.int64))


class OneNode(TreeNoise):
    """A tree of one update, of which nothing but the one node in use is drawn."""

    def init(self, noise: Noise) -> TreeState:
        zeros = np.zeros(self.width, dtype=np.int64)
        return TreeState(0, (zeros,), (), zeros, zeros)

    def advance(self, state: TreeState, noise: Noise) -> TreeState:
        zeros = np.zeros(self.width, dtype=np.int64)
        return TreeState(1, (noise.laplace(self.scale, self.width),), (), zeros, zeros)

    def fine(self, state: TreeState) -> IntArray:
        node: IntArray = state.windows[0] << FRACTION_BITS
        return node


class FreshNodes(SeparateCounters):
    """Right: trees of one update each, so that a counter draws one node for an update."""

    schedule = HandOverSchedule(1, 1)

    def tree(self, number: int, width: int | None = None) -> TreeNoise:
        return OneNode(TreeShape(2, 1), 1 / self.unit_epsilon, width or self.width)


class Small(PerBinHSS):
    """Right: a counter with one node an update."""

    @cached_property
    def counters(self) -> SeparateCounters:
        return FreshNodes(self.width, self.counter_epsilon, self.neighbors, self.ones)

    def gamma(self, query: int, intervals: int) -> int:
        """Small, and another one for each interval."""
        return 2 + intervals % 2


class L0FreeCounters(FreshNodes):
    """Every column's counter at the whole epsilon."""

    @property
    def unit_epsilon(self) -> Fraction:
        return self.epsilon


ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
WATCH, COUNT = Fraction(5), Fraction(4)


def law(kind: Callable[..., PerBinHSS], rows: Rows, relation: Neighbors = ADD) -> Transcripts:
    """The law of the whole mechanism on these rows."""
    made = partial(kind, len(rows[0]), WATCH, COUNT, relation, 8)
    messages = [m for row in rows for m in (Update(np.array(row)), ASK)]
    return enumerate_transcripts(made, messages, tail_support(1e-3), key=bare)


def lost(kind: Callable[..., PerBinHSS], pair: Pair) -> float:
    """A loss that the whole mechanism certainly has on this pair."""
    return loss_bounds(law(kind, pair[0]), law(kind, pair[1]), tolerance=1e-2).lower


def bare(state: Any) -> Hashable:
    """The bytes of a state without its mechanisms, whose caches fill as they run."""
    parts = [(i, inside_of(child.state)) for i, child in state.parts.live.items()]
    return pickle.dumps((state.queries, state.intervals, state.released, parts))


def column(*values: int) -> Rows:
    return tuple((v,) for v in values)


@pytest.mark.parametrize("values", [(2, 1), (3, 0)])
def test_the_real_mechanism_has_the_oracles_law(values: tuple[int, ...]) -> None:
    node = Fraction(math.exp(-4))
    right = oracle.Column(5.0, 5.0, 4.0, lambda _, j: 2 + (j - 1) % 2)
    expected = oracle.law(values, right, node, 4)
    found = law(Small, column(*values))
    assert found.missing < 1e-2
    shown = sorted(expected, key=lambda s: -expected[s])[:20]
    assert all(within(found, s, expected[s]) for s in shown)
    other = oracle.law(values, oracle.Column(5.0, 5.0, 4.0, lambda *_: 3), node, 4)
    assert not all(within(found, s, other.get(s, Fraction(0))) for s in shown)


def within(found: Transcripts, shown: tuple[int, ...], chance: Fraction) -> bool:
    """Whether these releases have this chance, inside the bounds."""
    low, high = found.bounds(tuple(e for value in shown for e in (None, (value,))))
    return low - 1e-9 <= float(chance) <= high + 1e-9


@pytest.mark.parametrize("shares", [(1.0, 1.0, 0.5), (0.3, 0.7, 1.0), (0.7, 0.3, 1.0)])
def test_one_column_loses_the_larger_share_and_the_counters(
    shares: tuple[float, float, float],
) -> None:
    """However long it runs, and with thresholds that change: met exactly."""
    right = oracle.Column(*shares, lambda t, j: 1 + (t + 2 * j) % 3)
    claim = max(shares[:2]) + shares[2]
    assert oracle.worst_added(right, 1) <= claim + 1e-9
    for horizon in (2, 3):
        assert oracle.worst_added(right, horizon) == pytest.approx(claim, abs=1e-9)


def test_a_moved_event_loses_both_in_two_columns() -> None:
    """So at half of each share per column the claim is watch_epsilon + counter_epsilon, met exactly."""
    right = oracle.Column(0.5, 0.5, 0.25, lambda t, j: 1 + (t + 2 * j) % 3)
    for horizon in (2, 3):
        assert oracle.worst_moved(right, horizon) == pytest.approx(1.0 + 0.5, abs=1e-9)


PAIRS = [(column(0), column(1)), (column(1, 0), column(2, 0)), (column(0, 1), column(0, 2))]


@pytest.mark.parametrize("pair", PAIRS)
def test_the_real_mechanism_loses_no_more_than_it_claims(pair: Pair) -> None:
    assert 4 < lost(Small, pair) <= 9 + 1e-9


@pytest.mark.parametrize("twin", [False, True])
@pytest.mark.parametrize(("relation", "ones", "l0"), [(ADD, 1, 1), (ADD, 2, 2), (REPLACE, 1, 2)])
def test_scales_are_exactly_the_claimed_ones(
    relation: Neighbors, ones: int, l0: int, twin: bool
) -> None:
    """A node of a counter has scale height * L0 / e_c; a twin that forgets L0 has another where L0 is not 1."""
    kind = L0FreeCounters if twin else FreshNodes
    noise = SeededNoise(1)
    counters = kind(3, COUNT, relation, ones)
    state = counters.init(noise)
    for columns in ([0], [1, 2], [0, 2]):
        state, _ = counters.step(state, close(*columns), noise)
    assert ({call.scale for call in noise.calls} == {l0 / COUNT}) is (not twin or l0 == 1)


def test_the_bits_of_the_oracle_add_up() -> None:
    right = oracle.Column(0.4, 0.9, 1.0, lambda t, j: t + j)
    bits = itertools.product((False, True), repeat=4)
    assert sum(oracle.bits_probability((1, 0, 3, 2), tops, right) for tops in bits) == 1
