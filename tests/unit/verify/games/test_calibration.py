"""The yardstick of an audit: what randomized response shows is computed, and agrees with playing it."""

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pytest

from stream_dp.core.composition import Ask, ConcurrentComposition, Create
from stream_dp.core.guarantee import ApproxDP, Guarantee
from stream_dp.core.mechanism import IntArray, Message, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.testing.noise import SeededNoise
from stream_dp.verify.exact.exact_delta import exact_delta
from stream_dp.verify.exact.finite import FirstPair, Sampled, SampledState, draw_from
from stream_dp.verify.exact.randomized_response import ASK, InteractiveRandomizedResponse
from stream_dp.verify.games.game import HALT, Game
from stream_dp.verify.games.lower_bound import (
    MOST,
    epsilon_bound,
    evidence,
    shows_one,
    strongest,
    universal,
)
from stream_dp.verify.relations.pair_conditions import fixed_mechanisms

ONE, NONE = Fraction(1), Fraction(0)


class PlannedSeries(Sampled):
    """An interactive randomized response: an update is its initial state, and every query is its q*."""

    def step(
        self, state: SampledState, message: Message, noise: Noise
    ) -> tuple[SampledState, IntArray | None]:
        """Take the bit, or answer q*."""
        if not isinstance(message, Query):
            return Sampled.step(self, state, message, noise)
        answer, inner = draw_from(self.machine.step(state.inner, ASK), noise)
        assert isinstance(answer, int)
        return SampledState(inner, (answer,)), np.array([answer], dtype=np.int64)


@dataclass(frozen=True)
class AskTwice:
    """Creates it, sends the bits 0 and 1 as a pair, asks twice."""

    create: Create

    def init(self, noise: Noise) -> int:
        """Nothing sent."""
        return 0

    def step(self, sent: int, message: Any, noise: Noise) -> tuple[int, Any]:
        """The next message."""
        zero, one = (Update(np.array([bit], dtype=np.int64)) for bit in (0, 1))
        ask = (Ask(0, Query()),) * 2
        plan = [(self.create,) * 2, (Ask(0, zero), Ask(0, one)), ask, ask, HALT]
        return sent + 1, plan[sent]


def played(machine: InteractiveRandomizedResponse, claim: ApproxDP, plays: int) -> list[IntArray]:
    """Both answers, shape (plays, 2), for b = 0 and for b = 1."""
    create = Create(PlannedSeries(machine, Guarantee(claim, Neighbors.ADD_REMOVE)))
    game, seeds = Game(ConcurrentComposition(), fixed_mechanisms((create,))), itertools.count(1)

    def side(b: Literal[0, 1]) -> IntArray:
        views = [game.play(AskTwice(create), b, SeededNoise(next(seeds))) for _ in range(plays)]
        heard = [
            [int(m[0]) for m in v.transcript.messages if isinstance(m, np.ndarray)] for v in views
        ]
        return np.array(heard)

    return [side(0), side(1)]


@pytest.mark.parametrize("delta", [NONE, Fraction(1, 8)])
def test_playing_the_universal_mechanism_agrees_with_the_yardstick(delta: Fraction) -> None:
    """500 judged plays a side: the bound is off by .35 (about 4 standard deviations) with probability below 1e-3."""
    machine = InteractiveRandomizedResponse(Fraction(3), delta)  # few fair bits to a sample
    claim = ApproxDP(Fraction(10987, 10000), delta)  # at least ln 3
    left, right = played(machine, claim, 1000)
    found = evidence(left, right, float(delta), 0.01)
    expected = strongest(claim.epsilon, delta, 500, 0.01)
    assert 0.4 < expected < 1
    assert found.lower == pytest.approx(expected, abs=0.35)
    law = [float(shows_one(machine, bit)) for bit in (1, 0)]
    assert [side[:, 1].mean() for side in (right, left)] == pytest.approx(law, abs=0.07)


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
