"""The black-box enumerator, on small mechanisms whose laws the exact oracles know."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from oracles import svt
from oracles.svt import Decays
from oracles.transcripts import (
    REJECTED,
    NoiseCall,
    ScriptedNoise,
    enumerate_transcripts,
    loss_bounds,
    tail_support,
)

from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import IntArray, Message, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import RejectedMessage


@dataclass(frozen=True)
class Alert:
    """AboveThreshold on a running count; after the crossing it keeps answering 1."""

    e1: Fraction
    e2: Fraction
    threshold: int
    width: int = 1

    @property
    def guarantee(self) -> Guarantee:
        """The claim under test."""
        return Guarantee(PureDP(max(self.e1, self.e2)), Neighbors.ADD_REMOVE)

    def init(self, noise: Noise) -> tuple[int, int, bool]:
        """(tau, count, crossed)."""
        return int(noise.geometric(1 / self.e1, 1)[0]), 0, False

    def step(
        self, state: tuple[int, int, bool], message: Message, noise: Noise
    ) -> tuple[tuple[int, int, bool], IntArray | None]:
        """Count, or compare."""
        tau, count, crossed = state
        if isinstance(message, Update):
            if np.any(message.row < 0):
                raise RejectedMessage("negative row")
            return (tau, count + int(message.row.sum()), crossed), None
        if not crossed:
            nu = int(noise.geometric(1 / self.e2, 1)[0])
            crossed = count + nu > self.threshold + tau
        return (tau, count, crossed), np.array([int(crossed)])


@dataclass(frozen=True)
class NoisySum:
    """Two Laplace noises on one count, drawn as a vector."""

    scale: Fraction
    width: int = 1
    draws: int = 1

    @property
    def guarantee(self) -> Guarantee:
        """One release."""
        return Guarantee(PureDP(1 / self.scale), Neighbors.ADD_REMOVE)

    def init(self, noise: Noise) -> list[int]:
        """The count."""
        return [0]

    def step(
        self, state: list[int], message: Message, noise: Noise
    ) -> tuple[list[int], IntArray | None]:
        """Count, or release."""
        if isinstance(message, Update):
            return [state[0] + int(message.row.sum())], None
        return state, state[0] + noise.laplace(self.scale, self.draws)


class Mutating(NoisySum):
    """Writes into the state it was given."""

    def step(
        self, state: list[int], message: Message, noise: Noise
    ) -> tuple[list[int], IntArray | None]:
        """Count in place."""
        if isinstance(message, Update):
            state[0] += int(message.row.sum())
            return state, None
        return super().step(state, message, noise)


def ticks(*counts: int) -> list[Message]:
    """Each count as an update, then a query."""
    return [m for c in counts for m in (Update(np.array([c])), Query())]


@pytest.mark.parametrize(("e1", "e2"), [("1", "2"), ("2", "2"), ("2", "3/2")])
def test_enumeration_finds_the_exact_law(e1: str, e2: str) -> None:
    budget = Fraction(e1), Fraction(e2)

    def make() -> Alert:
        return Alert(*budget, threshold=1)

    a = enumerate_transcripts(make, ticks(0, 1, 1), tail_support(1e-9))
    b = enumerate_transcripts(make, ticks(1, 1, 1), tail_support(1e-9))
    exact = svt.transcript_probabilities(
        (0, 1, 2), 1, Decays.of(float(budget[0]), float(budget[1]))
    )
    for t, p in enumerate(exact):
        low, high = a.bounds(tuple(e for i in range(3) for e in (None, (int(i >= t),))))
        assert low - 1e-12 <= float(p) <= high + 1e-12
        assert high - low < 1e-7
    assert math.fsum(a.lower.values()) + a.missing == pytest.approx(1, abs=1e-12)
    found, claim = loss_bounds(a, b), float(max(budget))
    assert found.lower <= claim + 1e-9
    assert found.upper <= claim + 1e-3
    exact_loss = svt.loss((0, 1, 2), (1, 2, 3), 1, Decays.of(float(budget[0]), float(budget[1])))
    assert found.lower == pytest.approx(exact_loss, abs=1e-3)


def test_a_mechanism_with_too_little_noise_is_convicted() -> None:
    def make() -> NoisySum:
        return NoisySum(Fraction(1, 2))

    a, b = (enumerate_transcripts(make, ticks(c), 12) for c in (0, 1))
    found = loss_bounds(a, b)
    assert 1.99 < found.lower <= 2 + 1e-9  # twice a claimed 1
    assert found.covered > 0.99


def test_vector_draws_and_views() -> None:
    def clamp(answer: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(max(-2, min(2, v)) for v in answer)

    law = enumerate_transcripts(lambda: NoisySum(Fraction(1, 3), draws=2), ticks(1), 6, view=clamp)
    assert len(law.lower) == 25
    a = math.exp(-3)
    expected = ((1 - a) / (1 + a)) ** 2 * a
    assert law.bounds((None, (1, 0)))[0] == pytest.approx(expected)
    assert law.as_dict()[None, (1, 0)] == law.bounds((None, (1, 0)))


def test_a_refusal_is_part_of_the_transcript() -> None:
    law = enumerate_transcripts(lambda: Alert(Fraction(3), Fraction(3), 0), ticks(-1), 3)
    assert {o[0] for o in law.lower} == {REJECTED}


def test_a_mutated_state_is_noticed() -> None:
    with pytest.raises(AssertionError, match="mutated"):
        enumerate_transcripts(lambda: Mutating(Fraction(1)), ticks(1), 3)


def test_the_limit_stops_an_enumeration() -> None:
    with pytest.raises(RuntimeError, match="branches"):
        enumerate_transcripts(lambda: NoisySum(Fraction(1), draws=3), ticks(1), 9, limit=1000)


def test_scripted_noise_records_its_calls() -> None:
    noise = ScriptedNoise([1, -2, 3])
    assert noise.geometric(Fraction(2), 1).tolist() == [1]
    assert noise.laplace(Fraction(1, 3), 2).tolist() == [-2, 3]
    assert noise.calls == [
        NoiseCall("geometric", Fraction(2), 1),
        NoiseCall("laplace", Fraction(1, 3), 2),
    ]
    assert noise.left == 0
    with pytest.raises(IndexError):
        noise.laplace(Fraction(1), 1)
    with pytest.raises(ValueError, match="never negative"):
        ScriptedNoise([-1]).geometric(Fraction(1), 1)
