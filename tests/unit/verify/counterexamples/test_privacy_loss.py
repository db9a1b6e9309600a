"""[WRRW] App. F as a running counterexample: (epsilon, delta)-DP in place of pDP breaks an odometer; ours refuses it.

Error probability of the statistical test: if the loss exceeded the bound as rarely as promised (.0100), more than
`LIMIT` of `PLAYS` plays would show it with probability below 10^-6 (exact binomial tail, asserted); the seed is fixed.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from stream_dp.accounting.conversions import approx_to_probabilistic
from stream_dp.accounting.filters.squares import TightApproximateFilter
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.ledger import truncated_odometer as truncated_bound
from stream_dp.core.guarantee import ApproxDP, ProbabilisticDP
from stream_dp.core.mechanism import Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_relations import Stream, event
from stream_dp.errors import NotDerivable
from stream_dp.testing.noise import SeededNoise
from stream_dp.verify.counterexamples.naive_books import (
    DELTA,
    ODDS,
    RARE,
    OneBitAnswer,
    mechanism,
)
from stream_dp.verify.exact.exact_delta import exact_delta
from stream_dp.verify.exact.finite import FirstPair
from stream_dp.verify.games.game import HALT, Game, View
from stream_dp.verify.odometers import FilterBoundary, Odometer

SLACK = Fraction(1, 10_000)  # delta', far below delta
ALLOWED = SLACK + DELTA
EPSILON = Fraction(math.ceil(math.log(ODDS) * 10**12) + 1, 10**12)
PLAYS, LIMIT = 4000, 74
PAIR = FirstPair(((0, 1), (1, 0)))


def folded(odds: Fraction, delta: Fraction) -> OneBitAnswer:
    """B of App. F: RR_(ln odds, delta) without the mark that says when the bit was revealed.

    Its loss ln((delta + odds) / (1 - delta)) exceeds ln odds with probability (1 - delta) odds/(1 + odds) + delta.
    """
    heads = (1 - delta) * odds / (1 + odds) + delta
    return OneBitAnswer((1 - heads, heads))


@dataclass(frozen=True, slots=True)
class LossAdversary:
    """Sends the pair of rows (0, 1) and looks: the privacy loss of its view is what an odometer claims to bound."""

    def init(self, noise: Noise) -> int:
        """Return the first state: nothing sent."""
        return 0

    def step(self, state: int, message: Any, noise: Noise) -> tuple[int, Any]:
        """Send the two rows, then the query, then HALT."""
        if state == 0:
            return 1, tuple(Update(np.array([bit], dtype=np.int64)) for bit in (0, 1))
        return (2, (Query(), Query())) if state == 1 else (2, HALT)

    def answer(self, view: View) -> int:
        """What it saw."""
        return int(view.transcript.last[0])


def odometer() -> Odometer:
    """A valid one for pDP inputs, tuned to where the loss is."""
    return Odometer.of(FilterBoundary.tuned(Fraction(45, 100), SLACK), DELTA)


def misused() -> Fraction:
    """What it shows after one step, told that the mechanism is (epsilon, delta)-pDP."""
    bound = odometer().observe(ProbabilisticDP(EPSILON, DELTA)).bound()
    assert bound is not None
    return bound


def ratio_above(bound: Fraction) -> Fraction:
    """A rational a little above e^bound."""
    return Fraction(math.exp(bound)) * (1 + Fraction(1, 10**9))


def test_the_mechanisms_are_approximately_private_and_not_probabilistically() -> None:
    assert (float(ALLOWED), float(RARE.exceeds(ODDS))) == (0.01, 0.0231)
    for odds, delta in ((ODDS, DELTA), (Fraction(3), Fraction(1, 8))):
        for answer in (RARE,) if odds == ODDS else (folded(odds, delta),):
            assert exact_delta(answer, PAIR, odds, 1) == delta  # (ln odds, delta)-DP and no better
            assert answer.exceeds(odds) > 2 * delta  # and no (ln odds, delta)-pDP
    odds, delta = Fraction(3), Fraction(1, 8)
    assert folded(odds, delta).ratio(1, 1) == (delta + odds) / (1 - delta)  # as in App. F
    assert folded(odds, delta).exceeds(odds) == (1 - delta) * odds / (1 + odds) + delta


def test_one_step_exceeds_the_misused_odometer_more_than_twice_as_often_as_promised() -> None:
    found = RARE.exceeds(ratio_above(misused()))
    assert found == Fraction(231, 10_000)
    assert Fraction(1, 100) == ALLOWED


def test_the_adversary_sees_it_in_the_game() -> None:
    assert stats.binom.sf(LIMIT, PLAYS, float(ALLOWED)) < 1e-6
    game = Game(mechanism(RARE, ApproxDP(EPSILON, DELTA)), Stream(event(Neighbors.ADD_REMOVE)))
    adversary, noise, limit = LossAdversary(), SeededNoise(7), ratio_above(misused())
    answers = [adversary.answer(game.play(adversary, 1, noise)) for _ in range(PLAYS)]
    assert sum(RARE.ratio(answer, 1) > limit for answer in answers) > LIMIT


def test_ours_refuses_it_and_holds_for_what_it_converts_to() -> None:
    before = odometer()
    with pytest.raises(NotDerivable, match=r"takes pDP mechanisms, not ApproxDP.*App\. F"):
        before.observe(ApproxDP(EPSILON, DELTA))
    assert before == odometer()
    slack = Fraction(7, 10)
    converted = approx_to_probabilistic(ApproxDP(EPSILON, DELTA), slack)
    own = converted.delta + Fraction(1, 10**6)
    honest = Odometer.of(FilterBoundary.tuned(Fraction(1), SLACK), own)
    bound = honest.observe(converted).bound()
    assert bound is not None
    assert RARE.exceeds(Fraction(math.exp(bound))) <= SLACK + own


def test_the_truncated_view_needs_no_privacy_loss() -> None:
    """Its claim is (epsilon, delta)-DP itself, so it takes what the pDP odometer must refuse."""
    ledger = Ledger.under(TightApproximateFilter.of(Fraction(1), SLACK, DELTA))
    ledger = ledger.charge(ledger.ask("rare", ApproxDP(EPSILON, DELTA), "leaf"))
    shown = truncated_bound(ledger.filter, ledger.used)
    assert isinstance(shown, ApproxDP)
    ratio = Fraction(math.exp(shown.epsilon)) * (1 - Fraction(1, 10**9))
    assert exact_delta(RARE, PAIR, ratio, 1) <= shown.delta == ALLOWED
