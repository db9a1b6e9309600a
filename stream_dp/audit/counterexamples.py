"""Running counterexamples: adversaries that win where a tempting rule promises that nobody can.

[HSV] Thm 5.2: in the 1-sparse parallel composition of (0, delta)-DP continual mechanisms, booked by the largest delta,
an adversary learns the secret bit with probability 1 - (1 - delta)^l after l creations, though only one mechanism
ever gets a pair of different messages. It asks identical pairs until one mechanism has given up, and only then
sends the pair (0, 1), to that one. This file knows no bit but the one it guesses.
"""

from dataclasses import dataclass
from enum import Enum, auto
from fractions import Fraction
from typing import Any

import numpy as np

from stream_dp.audit.randomized_response import LeakyBit, Symbol
from stream_dp.audit.sampled import Sampled
from stream_dp.audit.transcript import HALT, View
from stream_dp.core.composition import Ask, Create
from stream_dp.core.guarantee import ApproxDP, Guarantee
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import Query, Update
from stream_dp.core.neighbors import Neighbors


def leaky_mechanism(delta: Fraction) -> Sampled:
    """M_delta of the proof as a core mechanism, with its guarantee: (0, delta)-DP for one changed bit."""
    measure = ApproxDP(Fraction(0), delta)
    return Sampled(LeakyBit(delta), Guarantee(measure, Neighbors.ADD_REMOVE))


class Phase(Enum):
    """What the adversary sends next."""

    CREATE = auto()
    SAME = auto()
    LOOK = auto()
    JUDGE = auto()
    LISTEN = auto()
    DONE = auto()


@dataclass(frozen=True, slots=True)
class MaxDeltaAdversary:
    """A_delta of [HSV] Thm 5.2, with at most `most` creations; deterministic.

    Example:
        >>> MaxDeltaAdversary(Fraction(1, 4), most=5).winning_probability
        Fraction(781, 1024)
    """

    delta: Fraction
    most: int

    @property
    def winning_probability(self) -> Fraction:
        """1 - (1 - delta)^most: how often it knows the bit for sure."""
        return 1 - (1 - self.delta) ** self.most

    def init(self, noise: Noise) -> tuple[Phase, int]:
        """Nothing created."""
        return Phase.CREATE, 0

    def step(self, state: tuple[Phase, int], message: Any, noise: Noise) -> tuple[Any, Any]:
        """The next pair of messages, or HALT."""
        phase, created = state
        if phase is Phase.JUDGE:
            gave_up = int(message[0]) == Symbol.TOP
            if gave_up:
                return (Phase.LISTEN, created), (_bit(created, 0), _bit(created, 1))
            phase = Phase.CREATE if created < self.most else Phase.DONE
        match phase:
            case Phase.CREATE:
                return (Phase.SAME, created + 1), (Create(leaky_mechanism(self.delta)),) * 2
            case Phase.SAME:
                return (Phase.LOOK, created), (_bit(created, 0),) * 2
            case Phase.LOOK:
                return (Phase.JUDGE, created), (Ask(created - 1, Query()),) * 2
            case Phase.LISTEN:
                return (Phase.DONE, created), (Ask(created - 1, Query()),) * 2
            case _:
                return (Phase.DONE, created), HALT

    def guess(self, view: View) -> int | None:
        """The secret bit where the view shows it, else None."""
        last = view.transcript.last
        known = isinstance(last, np.ndarray) and int(last[0]) > Symbol.TOP
        return int(last[0]) - Symbol.TOP - 1 if known else None


def _bit(created: int, bit: int) -> Ask:
    return Ask(created - 1, Update(np.array([bit], dtype=np.int64)))
