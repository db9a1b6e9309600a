"""The black-box enumerator, on a noisy sum; that it finds the laws of sparse vectors is in tests/statistical."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from oracles.transcripts import REJECTED, enumerate_transcripts, loss_bounds

from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import Message, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import RejectedMessage


@dataclass(frozen=True)
class NoisySum:
    """Laplace noises on one count, drawn as a vector."""

    scale: Fraction
    width: int = 1
    draws: int = 1

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(PureDP(1 / self.scale), Neighbors.ADD_REMOVE)

    def init(self, noise: Noise) -> list[int]:
        return [0]

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        if not isinstance(message, Update):
            return state, state[0] + noise.laplace(self.scale, self.draws)
        if message.row.min() < 0:
            raise RejectedMessage("negative row")
        return [state[0] + int(message.row.sum())], None


class Mutating(NoisySum):
    """Writes into the state it was given."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        state[0] += 1
        return super().step(state, message, noise)


def ticks(count: int) -> list[Message]:
    return [Update(np.array([count])), Query()]


def test_a_mechanism_with_too_little_noise_is_convicted() -> None:
    half = NoisySum(Fraction(1, 2))
    a, b = (enumerate_transcripts(lambda: half, ticks(c), 12) for c in (0, 1))
    loss = loss_bounds(a, b)
    assert 1.99 < loss.lower <= 2 + 1e-9  # twice a claimed 1
    assert loss.covered > 0.99
    assert math.fsum(a.lower.values()) + a.missing == pytest.approx(1, abs=1e-12)


def test_vector_draws_and_views() -> None:
    def clamp(answer: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(max(-2, min(2, v)) for v in answer)

    law = enumerate_transcripts(lambda: NoisySum(Fraction(1, 3), draws=2), ticks(1), 6, view=clamp)
    assert len(law.lower) == 25
    a = math.exp(-3)
    assert law.bounds((None, (1, 0)))[0] == pytest.approx(((1 - a) / (1 + a)) ** 2 * a)
    assert law.as_dict()[None, (1, 0)] == law.bounds((None, (1, 0)))


def test_a_refusal_is_part_of_the_transcript() -> None:
    law = enumerate_transcripts(lambda: NoisySum(Fraction(3)), ticks(-1), 3)
    assert {transcript[0] for transcript in law.lower} == {REJECTED}


def test_a_mutated_state_is_noticed() -> None:
    with pytest.raises(AssertionError, match="mutated"):
        enumerate_transcripts(lambda: Mutating(Fraction(1)), ticks(1), 3)


def test_the_limit_stops_an_enumeration() -> None:
    with pytest.raises(RuntimeError, match="branches"):
        enumerate_transcripts(lambda: NoisySum(Fraction(1), draws=3), ticks(1), 9, limit=1000)
