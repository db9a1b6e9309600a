"""The game of [HSV] Def 3.7: an adversary against V[f] o* I(b) o* M, for a secret bit b.

The mechanism is the very object that runs in production, a `Mechanism` or a `ConcurrentComposition`. At the first
pair that the verification function refuses the interaction halts. This file knows no statistics.
"""

from dataclasses import dataclass
from typing import Any, Literal

from stream_dp.audit.identifier import Identifier
from stream_dp.audit.message_pairs import PairCheck
from stream_dp.audit.transcript import HALT, Machine, PostProcessed, Side, View, interact
from stream_dp.core.mechanism import Noise


@dataclass(frozen=True, slots=True)
class HaltingVerifier:
    """V[f] ([HSV] Def 3.5): f-valid pairs pass, the first other one halts; answers go back unchanged."""

    function: PairCheck

    def init(self) -> PairCheck | None:
        """No pair so far."""
        return self.function

    def step(
        self, state: PairCheck | None, side: Side, message: Any
    ) -> tuple[PairCheck | None, Side, Any]:
        """Check, or pass back; what is no pair of messages is not f-valid."""
        if side is Side.RIGHT:
            return state, Side.LEFT, message
        if state is None or not isinstance(message, tuple) or len(message) != 2:
            return None, Side.LEFT, HALT
        after = state.accept(*message)
        return (after, Side.RIGHT, message) if after is not None else (None, Side.LEFT, HALT)


@dataclass(frozen=True, slots=True)
class Game:
    """`mechanism` behind the verifier with this verification function."""

    mechanism: Machine[Any]
    verifier: PairCheck

    def challenger(self, b: Literal[0, 1]) -> PostProcessed:
        """The machine V[f] o* I(b) o* M."""
        identified = PostProcessed(Identifier(b), self.mechanism)
        return PostProcessed(HaltingVerifier(self.verifier), identified)

    def play(
        self, adversary: Machine[Any], b: Literal[0, 1], noise: Noise, rounds: int = 10_000
    ) -> View:
        """The adversary's view; it sees pairs of its own and answers to their b-th messages, never b."""
        return interact(adversary, self.challenger(b), noise, rounds)
