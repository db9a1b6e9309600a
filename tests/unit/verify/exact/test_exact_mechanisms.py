"""Exact privacy of sparse vectors and alerts, in closed form; that real sparse vectors have this law: statistical."""

from fractions import Fraction

import numpy as np
import pytest
from oracles.rearmed import bits_probability
from oracles.svt import Decays, pattern_probability
from oracles.turns import Turns

from stream_dp.core.mechanism import Query
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.linear.counter import CloseQuery, Counter
from stream_dp.mechanisms.watches.block import LevelsQuery
from stream_dp.mechanisms.watches.kinds import Alerts
from stream_dp.verify.exact.enumeration import Enumerated
from stream_dp.verify.exact.exact_delta import Bracket, delta_bracket, exact_delta, worst_ratio
from stream_dp.verify.exact.exact_sparse_vector import AboveThreshold, RearmedAlerts, Row, all_below
from stream_dp.verify.exact.finite import DifferAtMost

ADD = Neighbors.ADD_REMOVE
HALF, QUARTER = Fraction(1, 2), Fraction(1, 4)
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


# --- the code that runs in production -----------------------------------------------------------


def bounds(machine: Enumerated, pairs: Turns, units: int, ticks: int) -> Bracket:
    """The bracket at a claim of `units` of epsilon."""
    return delta_bracket(machine, pairs, machine.base**-units, 2 * ticks)


ONE_MORE = Turns(((0,),), (((0,), (1,)), ((1,), (0,))))


def close(*columns: int) -> CloseQuery:
    return CloseQuery(columns=np.array(columns, dtype=np.int64))


def test_queries_of_other_columns_or_levels_are_other_queries() -> None:
    """What is remembered for one must not be taken for the other."""
    levels = [LevelsQuery(levels=np.array(each)) for each in ([1, 2], [1, 3], [1, 2])]
    for a, b, again in ([close(0, 1), close(1, 0), close(0, 1)], levels):
        assert len({a, b, again}) == 2
        assert a == again != b != Query()


def test_the_real_alerts_meet_their_claim() -> None:
    alerts = Enumerated(Alerts(1, Fraction(1), ADD, threshold=2), Fraction(1, 8), 6)
    one = Turns(((0,), (1,)), ONE_MORE.moved)
    assert bounds(alerts, one, 1, 2).upper < Fraction(1, 10_000)
    assert bounds(alerts, one, 0, 2).lower > HALF


def test_irrational_decays_are_refused() -> None:
    with pytest.raises(ValueError, match="must be a whole number"):
        Enumerated(Counter(1, HALF, ADD, 2), HALF, 1).initial()
