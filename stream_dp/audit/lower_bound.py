"""A lower bound on a mechanism's epsilon from plays of the distinguishing game ([HSV] Def 3.7).

The mechanism runs inside the `ConcurrentComposition` of production, behind the halting verifier of its neighbours, on
noise of the caller's. Half of the plays choose an event, the other half judge it. Rules: a bound below the claim proves
nothing; one above it refutes the claim, wrongly with at most the stated probability. This file knows no pipeline.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from stream_dp.audit.adversaries import OneEventAdversary, answers
from stream_dp.audit.events import Event, Score, choose_event, epsilon_bound, statistics
from stream_dp.audit.game import Game
from stream_dp.core.composition import ConcurrentComposition, Create
from stream_dp.core.guarantee import differential_privacy
from stream_dp.core.mechanism import Mechanism, Noise
from stream_dp.core.messages import IntArray
from stream_dp.core.relations.compositions import fixed_mechanisms
from stream_dp.errors import FailClosed, UsageError

FEWEST_RUNS = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """What the plays say about one mechanism.

    `lower` is at most its epsilon, with probability at least 1 - `failure`; `event` describes what tells the streams
    apart, `rates` how often it was seen under the two, the likelier first.
    """

    claimed: Fraction
    lower: float
    event: str
    rates: tuple[float, float]
    failure: float

    @property
    def violated(self) -> bool:
        """Whether the bound exceeds the claim."""
        return self.lower > self.claimed


def audit_mechanism(
    mechanism: Mechanism[Any],
    noise: Callable[[], Noise],
    *,
    runs: int,
    ticks: int,
    failure: float,
) -> Finding:
    """Play `runs` games of `ticks` ticks, each on fresh noise, and bound the mechanism's epsilon from below.

    Raises:
        UsageError: too few runs or ticks, or a failure probability outside (0, 1).
        NotDerivable: the mechanism's guarantee is not one of differential privacy.
    """
    if runs < FEWEST_RUNS or ticks < 1 or not 0 < failure < 1:
        raise UsageError(
            f"an audit needs {FEWEST_RUNS} runs or more, a tick or more and a failure probability inside (0, 1); "
            f"got {runs} runs, {ticks} ticks, failure probability {failure:g}"
        )
    adversary, each = OneEventAdversary.against(mechanism, ticks), runs // 4
    measure = differential_privacy(mechanism.guarantee.measure)
    game = Game(ConcurrentComposition(), fixed_mechanisms((Create(mechanism),)))
    left, right = (_played(game, adversary, b, noise, 2 * each) for b in (0, 1))
    score = Score.fit(left[:each], right[:each])
    left, right = score.extended(left), score.extended(right)
    delta = float(measure.delta)
    event = choose_event(left[:each], right[:each], delta)
    counts = [event.count(sample[each:]) for sample in (right, left)]
    likely, rare = counts[::-1] if event.swapped else counts
    found = epsilon_bound(np.array([likely]), np.array([rare]), each, delta, failure)
    lower = max(0.0, math.floor(float(found[0]) * 1e4) / 1e4) if math.isfinite(found[0]) else 0.0
    return Finding(
        measure.epsilon,
        lower,
        described(event, left.shape[1] - 1, ticks),
        (likely / each, rare / each),
        failure,
    )


def _played(
    game: Game,
    adversary: OneEventAdversary,
    b: Literal[0, 1],
    noise: Callable[[], Noise],
    plays: int,
) -> IntArray:
    """The plain statistics of `plays` plays, shape (plays, statistics).

    Raises:
        FailClosed: the verifier or the mechanism refused what an event-level stream may hold.
    """
    rounds = 2 * len(adversary.pairs) + 2  # create, an update and a query per tick, halt
    found = [answers(game.play(adversary, b, noise(), rounds)) for _ in range(plays)]
    if any(len(sample) < len(adversary.pairs) for sample in found):
        raise FailClosed(
            "the game was halted: the audit's streams are no neighbours, or the mechanism refused a row of counts; "
            "report this"
        )
    return statistics(np.array(found), adversary.columns)


def described(event: Event, score: int, ticks: int) -> str:
    """The event in words; `score` is the place of the combined statistic."""
    side = f"at least {event.cut}" if event.above else f"below {event.cut}"
    if event.statistic == score:
        return f"likelihood score over {ticks} ticks {side}"
    tick, entry = divmod(event.statistic, score // ticks)
    return f"tick {tick}, entry {entry} {side}" if entry < 2 else f"tick {tick}, difference {side}"
