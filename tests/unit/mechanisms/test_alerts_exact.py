"""Alerts through a re-arming, exactly: every draw's scale and number, what becomes of it, and the loss that follows.

The enumerations run the very code of production under every noise up to a radius, one unit of epsilon being
-ln(BASE); the mass beyond the radius lies between the two bounds (stream_dp/verify/exact/exact_delta.py). With a
threshold of 1 and two ticks an event can fall behind a re-arming.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from oracles.naive import rearmed_alerts
from oracles.turns import Turns
from unit.mechanisms import broken_alerts as broken

from stream_dp.core.messages import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.watches.alerts import Alerts
from stream_dp.noise import NoiseStream
from stream_dp.verify.exact.enumeration import Enumerated
from stream_dp.verify.exact.exact_delta import Bracket, delta_bracket

ADD, REPLACE, ONE = Neighbors.ADD_REMOVE, Neighbors.REPLACE, Fraction(1)
BASE, NEARLY_NOTHING = Fraction(1, 8), Fraction(1, 10_000)
TICKS, THRESHOLD = 60, 4
TWINS = [
    broken.NoFreshLift,
    broken.HalfLift,
    broken.HalfQueryNoise,
    broken.OneQueryNoise,
    broken.OneLift,
]


@dataclass(slots=True)
class Taped:
    """The product's noise; each call's scale and values stay on the tape until they are taken off."""

    stream: NoiseStream
    tape: list[tuple[Fraction, list[int]]] = field(default_factory=list)

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        """Noted."""
        drawn = self.stream.geometric(scale, size)
        self.tape.append((scale, drawn.tolist()))
        return drawn

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """Alerts have no use for it."""
        raise AssertionError("alerts draw geometric noise only")

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        """Alerts have no use for it."""
        raise AssertionError("alerts draw geometric noise only")

    def drawn(self, scale: Fraction) -> list[int]:
        """What was drawn since the last look, all of it at this scale."""
        calls, self.tape = self.tape, []
        assert {at for at, values in calls if values} <= {scale}
        return [value for _, values in calls for value in values]


def check_draws(kind: type[Alerts], width: int, relation: Neighbors, seed: int) -> int:
    """Each key is an alert of its own on its own noises: one lift an instance, one noise a query; the alerts seen."""
    random = Random(seed)
    alerts, noise = kind(width, ONE, relation, THRESHOLD), Taped(NoiseStream(bytes(32), seed))
    scale, rows = ONE * relation.l0(width), list[list[int]]()
    state = alerts.init(noise)
    lifts = [[lift] for lift in noise.drawn(scale)]
    asked: list[list[int]] = [[] for _ in range(width)]
    answers = list[list[int]]()
    for _ in range(TICKS):
        rows.append([random.randint(0, 2) for _ in range(width)])
        state, _ = alerts.step(state, Update(np.array(rows[-1])), noise)
        assert noise.drawn(scale) == []
        state, answer = alerts.step(state, Query(), noise)
        assert answer is not None
        answers.append(answer.tolist())
        drawn = noise.drawn(scale)
        crossed = [key for key in range(width) if answers[-1][key]]
        assert len(drawn) == width + len(crossed)
        for key, value in enumerate(drawn[:width]):
            asked[key].append(value)
        for key, value in zip(crossed, drawn[width:], strict=True):
            lifts[key].append(value)
    for key in range(width):
        counts, own = [row[key] for row in rows], [bool(answer[key]) for answer in answers]
        assert rearmed_alerts(counts, THRESHOLD - 1, lifts[key], asked[key]) == own
        assert len(lifts[key]) == 1 + sum(own)
    return sum(map(sum, answers))


CASES = [(1, ADD), (5, ADD), (5, REPLACE)]


@pytest.mark.parametrize(("width", "relation"), CASES)
@pytest.mark.parametrize("seed", range(5))
def test_every_draw_has_its_scale_and_its_place(width: int, relation: Neighbors, seed: int) -> None:
    assert check_draws(Alerts, width, relation, seed) > width


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_less_noise_is_caught_by_the_draws(twin: type[Alerts], relation: Neighbors) -> None:
    with pytest.raises(AssertionError):
        check_draws(twin, 5, relation, 1)


ONE_KEY = Turns(((0,), (1,)), (((0,), (1,)), ((1,), (0,))))
ONE_OF_TWO = Turns(((1, 1),), (((1, 1), (0, 1)), ((0, 1), (1, 1))))


def delta(alerts: Alerts, turns: Turns, radius: int, ticks: int, base: Fraction = BASE) -> Bracket:
    """Between which bounds the least delta lies at what the alerts claim."""
    units = alerts.epsilon
    assert units.denominator == 1
    machine = Enumerated(alerts, base, radius)
    return delta_bracket(machine, turns, base**-units.numerator, 2 * ticks)


@pytest.mark.parametrize("ticks", [2, 3])
def test_the_real_alerts_meet_their_claim_through_a_rearming(ticks: int) -> None:
    assert delta(Alerts(1, ONE, ADD, 1), ONE_KEY, 5, ticks).upper < NEARLY_NOTHING


@pytest.mark.parametrize(
    "twin", [broken.NoFreshLift, broken.HalfLift, broken.HalfQueryNoise], ids=lambda t: t.__name__
)
def test_less_noise_breaks_the_claim(twin: type[Alerts]) -> None:
    assert delta(twin(1, ONE, ADD, 1), ONE_KEY, 5, 2).lower > Fraction(1, 2)


@pytest.mark.parametrize(
    ("twin", "ticks", "radius"), [(broken.OneQueryNoise, 1, 2), (broken.OneLift, 2, 1)]
)
def test_a_second_key_whose_count_is_known_shows_a_shared_noise(
    twin: type[Alerts], ticks: int, radius: int
) -> None:
    base = Fraction(1, 64)
    right = delta(Alerts(2, ONE, ADD, 1), ONE_OF_TWO, radius, ticks, base).upper
    assert right < delta(twin(2, ONE, ADD, 1), ONE_OF_TWO, radius, ticks, base).lower / 10
