"""The game of [HSV] Def 3.7: an adversary against V[f] o* I(b) o* M, for a secret bit b.

The identifier I(b) (Def 3.2) passes on message b of every pair; only games and audits know it. The mechanism is the
object that runs in production, a `Mechanism` or a `ConcurrentComposition`. At the first pair that the verification
function refuses the interaction halts. This file knows no statistics.
"""

from dataclasses import dataclass
from typing import Any, Literal

from stream_dp.core.mechanism import Noise
from stream_dp.core.relation import Relation
from stream_dp.verify.games.transcript import (
    HALT,
    Chain,
    Machine,
    PostProcessed,
    Side,
    View,
    interact,
)
from stream_dp.verify.games.verifier import Verifier


@dataclass(frozen=True, slots=True)
class Identifier:
    """The post-processor I(b): from the left (m_0, m_1), to the right m_b; answers go back unchanged."""

    b: Literal[0, 1]

    def init(self) -> None:
        """Return the first state: there is nothing to remember besides the bit."""

    def step(self, state: None, side: Side, message: Any) -> tuple[None, Side, Any]:
        """Pick message b of a pair, or pass an answer back."""
        if side is Side.LEFT:
            return None, Side.RIGHT, message[self.b]
        return None, Side.LEFT, message


@dataclass(frozen=True, slots=True)
class HaltingVerifier:
    """The core's V[f] as a post-processor: an f-valid pair goes to the right; any other halts."""

    function: Relation

    def init(self) -> Verifier:
        """Return the first state: no pair so far."""
        return Verifier(self.function)

    def step(self, state: Verifier, side: Side, message: Any) -> tuple[Verifier, Side, Any]:
        """Verify, or pass an answer back unchanged."""
        if side is Side.RIGHT:
            return state, Side.LEFT, message
        after = state.verify(message)
        return (after, Side.LEFT, HALT) if after.halted else (after, Side.RIGHT, message)


@dataclass(frozen=True, slots=True)
class Game:
    """`mechanism` behind the verifier with this verification function."""

    mechanism: Machine[Any]
    verifier: Relation

    def challenger(self, b: Literal[0, 1]) -> PostProcessed:
        """Return the machine V[f] o* I(b) o* M: both processors in front of the mechanism."""
        chain = Chain(HaltingVerifier(self.verifier), Identifier(b))
        return PostProcessed(chain, self.mechanism)

    def play(
        self, adversary: Machine[Any], b: Literal[0, 1], noise: Noise, rounds: int = 10_000
    ) -> View:
        """Return the adversary's view; it sees its own pairs and the answers to their b-th messages, never b."""
        return interact(adversary, self.challenger(b), noise, rounds)
