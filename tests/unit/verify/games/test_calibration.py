"""The yardstick of an audit: what randomized response shows is computed, and no other event shows more."""

import math
from fractions import Fraction

import numpy as np
import pytest

from stream_dp.verify.exact.exact_delta import exact_delta
from stream_dp.verify.exact.finite import FirstPair
from stream_dp.verify.exact.randomized_response import ASK
from stream_dp.verify.lower_bound import MOST, epsilon_bound, shows_one, strongest, universal

ONE, NONE = Fraction(1), Fraction(0)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10**12), Fraction(1, 5), ONE, Fraction(7)])
@pytest.mark.parametrize("delta", [NONE, Fraction(1, 100)])
def test_the_universal_mechanism_keeps_the_claim_and_nearly_spends_it(
    epsilon: Fraction, delta: Fraction
) -> None:
    machine = universal(epsilon, delta)
    assert math.exp(epsilon) - 2**-16 <= machine.odds <= math.exp(epsilon) * (1 + 1e-15)
    right, left = shows_one(machine, 1), shows_one(machine, 0)
    assert right == machine.odds * left + delta  # no slack: (ln odds, delta) exactly
    pairs = FirstPair(((0, 1), (1, 0)), (ASK,))
    assert exact_delta(machine, pairs, machine.odds, 3) == delta


def test_the_yardstick_grows_towards_the_claim_with_the_games() -> None:
    shown = [strongest(ONE, NONE, plays, 0.01) for plays in (25, 250, 2500, 250_000)]
    assert shown == sorted(shown)
    assert shown[0] == 0
    assert 0.97 < shown[-1] < 1
    assert strongest(ONE, NONE, 2500, 1e-6) < strongest(ONE, NONE, 2500, 0.01)
    assert strongest(NONE, NONE, 2500, 0.01) == 0
    assert strongest(10**6 * ONE, NONE, 100, 0.01) == strongest(MOST, NONE, 100, 0.01) < 5


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_no_other_event_within_the_claim_shows_more(epsilon: float) -> None:
    """Every test within (epsilon, 0)-DP lies under two lines that meet in randomized response; 2,000 points on them."""
    plays, odds = 10**4, math.exp(epsilon)
    rare = np.linspace(0.001, 0.998, 1000)
    likely = np.minimum(odds * rare, 1 - (1 - rare) / odds)
    counts = [np.rint(plays * rate).astype(np.int64) for rate in (likely, rare)]
    most = float(epsilon_bound(counts[0], counts[1], plays, 0.0, 0.01).max())
    shown = strongest(Fraction(str(epsilon)), NONE, plays, 0.01)
    assert shown == pytest.approx(most, abs=0.005)
