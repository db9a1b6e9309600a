"""Exact privacy of sparse vectors, alerts and counters, in closed form and with the real code; broken twins."""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from oracles.rearmed import bits_probability
from oracles.svt import Decays, pattern_probability
from oracles.turns import Turns

from stream_dp.core.mechanism import IntArray, Noise, Query
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.hss.sparse_vector import SparseVector
from stream_dp.mechanisms.linear.counter import Counter, HandOverCounter, HandOverSchedule
from stream_dp.mechanisms.linear.separate_counters import (
    CloseQuery,
    SeparateCounters,
    SeparateState,
)
from stream_dp.mechanisms.linear.tree import TreeNoise, TreeShape, rounded
from stream_dp.mechanisms.watches.kinds import Alerts
from stream_dp.mechanisms.watches.monitor_state import LevelsQuery
from stream_dp.verify.exact.enumeration import Enumerated
from stream_dp.verify.exact.exact_delta import Bracket, delta_bracket, exact_delta, worst_ratio
from stream_dp.verify.exact.exact_sparse_vector import (
    AboveThreshold,
    RearmedAlerts,
    Row,
    SVTState,
    all_below,
)
from stream_dp.verify.exact.finite import DifferAtMost

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
HALF, QUARTER = Fraction(1, 2), Fraction(1, 4)
BASE = Fraction(1, 64)  # of the noise of counters: few values have nearly all of the mass
DECAYS = [(HALF, HALF), (HALF, QUARTER), (QUARTER, HALF)]
ONE_COLUMN = ((0,), (1,), (2,))
ONE_EVENT = (((0,), (1,)), ((1,), (0,)), ((1,), (2,)), ((2,), (1,)))
MOVED = (((1, 0), (0, 1)), ((0, 1), (1, 0)))


def ticks(
    rows: tuple[Row, ...], moved: tuple[tuple[Row, Row], ...], levels: tuple[int, ...]
) -> DifferAtMost:
    """Every row with every threshold; one pair of different rows."""
    same = tuple((row, level) for row in rows for level in levels)
    return DifferAtMost(same, tuple(((a, level), (b, level)) for a, b in moved for level in levels))


@pytest.mark.parametrize("margins", [(), (2,), (0, 1), (-3, 2, 1), (1, -1, -4, 0)])
def test_the_series_agrees_with_the_other_derivation(margins: tuple[int, ...]) -> None:
    for tau, nu in DECAYS:
        other = pattern_probability(margins, (False,) * len(margins), Decays(tau, nu))
        assert all_below(margins, tau, nu) == other


def test_rearmed_alerts_have_the_law_of_the_other_derivation() -> None:
    machine, level = RearmedAlerts(HALF, QUARTER), 2
    for bits in ((0, 1, 0), (1, 1, 0), (0, 0, 1)):
        state, chance = next(iter(machine.initial())), Fraction(1)
        for row, bit in zip((1, 2, 0), bits, strict=True):
            law = {a: (s, p) for (a, s), p in machine.step(state, ((row,), level)).items()}
            state, chance = law[bit][0], chance * law[bit][1]
        tops = tuple(map(bool, bits))
        other = bits_probability((1, 2, 0), tops, level - 1, Decays(HALF, QUARTER))
        assert chance == other


@pytest.mark.parametrize(("tau", "nu"), DECAYS)
@pytest.mark.parametrize("rounds", [2, 4])
def test_count_alerts_cost_the_larger_share_for_ever(
    tau: Fraction, nu: Fraction, rounds: int
) -> None:
    """max(e1, e2), met exactly, one shot and re-armed; no growth with the rounds."""
    claimed = 1 / min(tau, nu)
    pairs = ticks(ONE_COLUMN, ONE_EVENT, (2,))
    for machine in (RearmedAlerts(tau, nu), AboveThreshold(tau, nu)):
        assert worst_ratio(machine, pairs, rounds) == claimed
        assert exact_delta(machine, pairs, claimed, rounds) == 0
        assert exact_delta(machine, pairs, claimed * Fraction(99, 100), rounds) > 0


@pytest.mark.parametrize(("tau", "nu"), DECAYS)
def test_a_sparse_vector_on_the_largest_column_needs_s_of_two_under_replace(
    tau: Fraction, nu: Fraction
) -> None:
    """nu = e^(-e2/2) meets e1 + e2 exactly; the twin with s = 1 is nu^2 in the claim and loses e1 + 2 e2."""
    pairs = ticks(((0, 0), (0, 4)), MOVED, (2, 10))
    machine = AboveThreshold(tau, nu, (5, 4))
    claimed = 1 / (tau * nu**2)
    assert worst_ratio(machine, pairs, 3) == claimed
    assert exact_delta(machine, pairs, claimed, 3) == 0
    assert exact_delta(machine, pairs, claimed * Fraction(99, 100), 3) > 0
    claimed_with_s_of_one = 1 / (tau * nu)
    assert exact_delta(machine, pairs, claimed_with_s_of_one, 3) > 0


@pytest.mark.parametrize(("tau", "nu"), DECAYS)
def test_the_largest_column_costs_both_shares_under_add_remove(tau: Fraction, nu: Fraction) -> None:
    """Another column overtakes, so the shift is not constant: e1 + e2, met exactly, not max(e1, e2)."""
    pairs = ticks(((0, 0), (0, 4)), (((0, 0), (1, 0)), ((1, 0), (0, 0))), (2, 10))
    machine, claimed = AboveThreshold(tau, nu, (5, 4)), 1 / (tau * nu)
    assert worst_ratio(machine, pairs, 3) == claimed
    assert exact_delta(machine, pairs, claimed, 3) == 0
    assert exact_delta(machine, pairs, claimed * Fraction(99, 100), 3) > 0


@dataclass(frozen=True)
class TwoKeys:
    """Re-armed alerts on two keys with independent noise; queries are (row of two, threshold)."""

    key: RearmedAlerts

    def initial(self) -> dict[Any, Fraction]:
        """Nothing counted."""
        start = next(iter(self.key.initial()))
        return {(start, start): Fraction(1)}

    def step(self, state: Any, query: tuple[Row, int]) -> dict[tuple[Any, Any], Fraction]:
        """Both answers."""
        row, level = query
        laws = [self.key.step(s, ((x,), level)) for s, x in zip(state, row, strict=True)]
        return {
            ((a, b), (s, t)): p * q
            for (a, s), p in laws[0].items()
            for (b, t), q in laws[1].items()
        }


@pytest.mark.parametrize(("tau", "nu"), DECAYS)
def test_count_alerts_under_replace_cost_both_shares(tau: Fraction, nu: Fraction) -> None:
    """An event moves between keys: one count grows, the other shrinks; e1 + e2, met exactly, and one key is too few."""
    machine, pairs = TwoKeys(RearmedAlerts(tau, nu)), ticks(((0, 0), (2, 2)), MOVED, (2,))
    claimed = 1 / (tau * nu)
    assert worst_ratio(machine, pairs, 3) == claimed
    assert exact_delta(machine, pairs, claimed, 3) == 0
    assert exact_delta(machine, pairs, 1 / min(tau, nu), 3) > 0
    one_key = tuple(((*a, 0), (*b, 0)) for a, b in ONE_EVENT)
    appears = ticks(((0, 0), (2, 0)), one_key, (2,))
    assert worst_ratio(machine, appears, 3) == 1 / min(tau, nu)


class CarriedOvershoot(AboveThreshold):
    """Broken: the next instance starts with what lay above the threshold."""

    __slots__ = ()

    def after_crossing(self, counts: Row, threshold: int) -> SVTState:
        """The overshoot."""
        return tuple(c - threshold for c in counts), ()


def test_a_carried_overshoot_is_caught_and_grows() -> None:
    pairs = ticks(ONE_COLUMN, ONE_EVENT, (2,))
    twin = CarriedOvershoot(HALF, HALF)
    found = [worst_ratio(twin, pairs, rounds) for rounds in (2, 3, 4)]
    assert found == sorted(set(found))
    assert exact_delta(twin, pairs, Fraction(4), 4) > 0
    assert exact_delta(RearmedAlerts(HALF, HALF), pairs, Fraction(2), 4) == 0


# --- the code that runs in production -----------------------------------------------------------


def bounds(machine: Enumerated, pairs: Turns, units: int, ticks: int) -> Bracket:
    """The bracket at a claim of `units` of epsilon."""
    return delta_bracket(machine, pairs, machine.base**-units, 2 * ticks)


ONE_MORE = Turns(((0,),), (((0,), (1,)), ((1,), (0,))))


class TernaryCounter(Counter):
    """The counter with arity 3 and height 2, which `TreeShape.best` would not choose for so few steps."""

    height = 2

    @cached_property
    def tree(self) -> TreeNoise:
        """Four steps at most."""
        return TreeNoise(TreeShape(3, 2), self.height / self.unit_epsilon, self.width)


class ForgottenHeight(TernaryCounter):
    """Broken: each node gets the noise that the whole should have."""

    height = 1


def test_a_small_ternary_counter_meets_its_claim() -> None:
    counter = Enumerated(TernaryCounter(1, Fraction(2), ADD, horizon=3), Fraction(1, 64), 2)
    assert bounds(counter, ONE_MORE, 2, 3).upper < Fraction(1, 1_000)
    assert bounds(counter, ONE_MORE, 1, 3).lower > HALF


def test_a_counter_without_its_height_is_caught() -> None:
    twin = Enumerated(ForgottenHeight(1, Fraction(1), ADD, horizon=3), Fraction(1, 64), 2)
    assert bounds(twin, ONE_MORE, 1, 3).lower > HALF


def test_a_counter_of_one_level_meets_its_claim() -> None:
    counter = Enumerated(Counter(1, Fraction(2), ADD, horizon=1), Fraction(1, 8), 6)
    assert bounds(counter, ONE_MORE, 2, 1).upper < Fraction(1, 1_000)
    assert bounds(counter, ONE_MORE, 1, 1).lower > HALF


class SmallHandOver(HandOverCounter):
    """The counter with trees of 1, 2, 4, ... updates."""

    schedule = HandOverSchedule(1, 2)


class CheapNextTree(SmallHandOver):
    """Broken: the trees after the first get the noise of twice the epsilon."""

    def tree(self, number: int) -> TreeNoise:
        """Half the scale from the second tree on."""
        tree = super().tree(number)
        return replace(tree, scale=tree.scale / 2) if number else tree


def test_a_hand_over_counter_meets_its_claim_across_two_hand_overs() -> None:
    """Trees of 1, 2 and 4 updates, the event in any of four."""
    counter = Enumerated(SmallHandOver(1, Fraction(1), ADD), BASE, 2)
    assert bounds(counter, ONE_MORE, 1, 4).upper < Fraction(1, 1_000)
    assert bounds(counter, ONE_MORE, 0, 4).lower > HALF
    twin = Enumerated(CheapNextTree(1, Fraction(1), ADD), BASE, 2)
    assert bounds(twin, ONE_MORE, 1, 4).lower > HALF


# --- counters whose columns close apart ---------------------------------------------------------


class SmallSeparate(SeparateCounters):
    """The counters with trees of 1, 2, 4, ... updates."""

    schedule = HandOverSchedule(1, 2)


class CheapNextTrees(SmallSeparate):
    """Broken: the trees after the first get the noise of twice the epsilon."""

    def tree(self, number: int, width: int = 1) -> TreeNoise:
        """Half the scale from the second tree on."""
        tree = super().tree(number, width)
        return replace(tree, scale=tree.scale / 2) if number else tree


class BaseForgotten(SmallSeparate):
    """Broken: what finished trees answered last is dropped, so the next one releases old events with its own noise."""

    def _close(
        self, state: SeparateState, columns: IntArray, age: int, noise: Noise
    ) -> tuple[SeparateState, IntArray]:
        bare = replace(state, base=0 * state.base)
        after, noisy = super()._close(bare, columns, age, noise)
        if age == 1:  # the first hand-over
            noisy = noisy - rounded(after.base[columns])
        return after, noisy


class SharedNodes(SmallSeparate):
    """Broken: columns that close together have one noise."""

    def _close(
        self, state: SeparateState, columns: IntArray, age: int, noise: Noise
    ) -> tuple[SeparateState, IntArray]:
        return super()._close(state, columns, age, OneDraw(noise, len(columns)))


@dataclass(frozen=True, slots=True)
class OneDraw:
    """Draws for the first of `width` columns and gives it to all."""

    noise: Noise
    width: int

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """One value a node."""
        return np.repeat(self.noise.laplace(scale, size // self.width), self.width)

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        """Not used by counters."""
        raise NotImplementedError

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        """Not used by this counter."""
        raise NotImplementedError


def close(*columns: int) -> CloseQuery:
    """Close these columns' updates."""
    return CloseQuery(columns=np.array(columns, dtype=np.int64))


ALONE = Turns(((0,),), ONE_MORE.moved, levels=(close(0),))


def test_queries_of_other_columns_or_levels_are_other_queries() -> None:
    """What is remembered for one must not be taken for the other."""
    levels = [LevelsQuery(levels=np.array(each)) for each in ([1, 2], [1, 3], [1, 2])]
    for a, b, again in ([close(0, 1), close(1, 0), close(0, 1)], levels):
        assert len({a, b, again}) == 2
        assert a == again != b != Query()


def test_separate_counters_meet_their_claim_across_two_hand_overs() -> None:
    """One column, trees of 1, 2 and 4 updates, the event in any of four."""
    right = Enumerated(SmallSeparate(1, Fraction(1), ADD), BASE, 2)
    assert bounds(right, ALONE, 1, 4).upper < Fraction(1, 1_000)
    assert bounds(right, ALONE, 0, 4).lower > HALF


@pytest.mark.parametrize("twin", [CheapNextTrees, BaseForgotten])
def test_a_wrong_hand_over_of_separate_counters_is_caught(twin: type[SeparateCounters]) -> None:
    assert bounds(Enumerated(twin(1, Fraction(1), ADD), BASE, 2), ALONE, 1, 4).lower > HALF


def test_columns_that_close_apart_and_together_meet_their_claim() -> None:
    """Two columns, any of them closing at each tick, an event that moves between them; and shared noise."""
    moves = Turns(((0, 0),), MOVED, levels=(close(0), close(1), close(0, 1)))
    right = Enumerated(SmallSeparate(2, Fraction(2), REPLACE), BASE, 1)
    assert bounds(right, moves, 2, 2).upper < Fraction(1, 20)
    assert bounds(right, moves, 1, 2).lower > HALF
    twin = Enumerated(SharedNodes(2, Fraction(2), REPLACE), BASE, 3)
    assert bounds(twin, moves, 2, 1).lower > HALF


def test_the_real_sparse_vector_meets_its_claim_under_replace() -> None:
    svt = SparseVector(2, Fraction(1), Fraction(2), REPLACE, (5, 4))
    assert svt.query_scale == 1
    moved = Turns(((0, 0), (0, 4)), MOVED, levels=(5, 8))
    assert bounds(Enumerated(svt, Fraction(1, 8), 7), moved, 3, 2).upper < Fraction(1, 10_000)


def test_the_wrong_scale_under_replace_is_caught_in_the_real_code() -> None:
    """s = 1 on the largest column: an add_remove instance, fed with moved events."""
    twin = SparseVector(2, Fraction(1), Fraction(1), ADD, (5, 4))
    moved = Turns(((0, 0), (0, 4)), MOVED, levels=(5, 8))
    assert bounds(Enumerated(twin, Fraction(1, 8), 7), moved, 2, 2).lower > Fraction(1, 10_000)


def test_the_real_alerts_meet_their_claim() -> None:
    alerts = Enumerated(Alerts(1, Fraction(1), ADD, threshold=2), Fraction(1, 8), 6)
    one = Turns(((0,), (1,)), ONE_MORE.moved)
    assert bounds(alerts, one, 1, 2).upper < Fraction(1, 10_000)
    assert bounds(alerts, one, 0, 2).lower > HALF


def test_irrational_decays_are_refused() -> None:
    with pytest.raises(ValueError, match="must be whole"):
        Enumerated(Counter(1, HALF, ADD, 2), HALF, 1).initial()
