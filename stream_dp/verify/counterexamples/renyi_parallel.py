"""[HSV] Thm 13.5: parallel composition of Renyi-DP continual mechanisms, charged for the touched ones only.

In the 1-sparse parallel composition of (alpha, eps)-RDP mechanisms the divergence between the adversary's views
exceeds any eps' after enough creations, though only one mechanism ever gets a pair of different messages. Rules:
whole orders only, so that moments e^((alpha-1) D) are rational and everything is exact; TOP has the role that it has
in `randomized_response`.

Errata of the printed proof: (1) its last display averages (P/Q)^alpha over P = V^0; Def 13.1 averages over Q = V^1.
So its q is too small for large eps': at alpha = 2, eps' = 8 the divergence (base 2) is 6.4. Here the odds are
chosen from the exact moment. (2) Powers of 2 stand beside log(1 + x) <= x: bases 2 and e are mixed. (3) eps = 0 is
false: (alpha, 0)-RDP mechanisms have equal laws, and so has their composition; the proof's p is then 0 and its
adversary waits for ever. (4) The display's first line must have ((1-q)/q)^alpha in its second term.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from fractions import Fraction
from typing import Any

import numpy as np

from stream_dp.core.composition import Ask, Create
from stream_dp.core.guarantee import ApproxDP, Guarantee, RenyiDP
from stream_dp.core.mechanism import Mechanism, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.verify.exact.finite import Law, Sampled
from stream_dp.verify.exact.randomized_response import LeakyState, Symbol, noisy_bit, revealed
from stream_dp.verify.games.game import HALT, View


class Phase(Enum):
    CREATE = auto()
    SAME = auto()
    LOOK = auto()
    JUDGE = auto()
    LISTEN = auto()
    DONE = auto()


@dataclass(frozen=True, slots=True)
class WaitingAdversary(ABC):
    """The deterministic adversary of [HSV] Thm 5.2 and Thm 13.5: it waits for a failure in at most `most` creations.

    It creates mechanisms and sends (0, 0) to each, until one fails (`Symbol.TOP`); only then it sends (0, 1), to that
    mechanism. So only one mechanism gets a pair of different messages, but its own answer chose it.
    """

    most: int = field(kw_only=True)

    @property
    @abstractmethod
    def mechanism(self) -> Mechanism[Any]:
        """The mechanism to create; it takes bits, answers TOP when it fails, and then TOP + 1 + bit."""

    def init(self, noise: Noise) -> tuple[Phase, int]:
        return Phase.CREATE, 0

    def step(self, state: tuple[Phase, int], message: Any, noise: Noise) -> tuple[Any, Any]:
        phase, created = state
        if phase is Phase.JUDGE:
            gave_up = int(message[0]) == Symbol.TOP
            if gave_up:
                return (Phase.LISTEN, created), (_bit(created, 0), _bit(created, 1))
            phase = Phase.CREATE if created < self.most else Phase.DONE
        match phase:
            case Phase.CREATE:
                return (Phase.SAME, created + 1), (Create(self.mechanism),) * 2
            case Phase.SAME:
                return (Phase.LOOK, created), (_bit(created, 0),) * 2
            case Phase.LOOK:
                return (Phase.JUDGE, created), (Ask(created - 1, Query()),) * 2
            case Phase.LISTEN:
                return (Phase.DONE, created), (Ask(created - 1, Query()),) * 2
            case _:
                return (Phase.DONE, created), HALT

    def guess(self, view: View) -> int | None:
        """Return the bit that the view shows; None where no mechanism failed."""
        last = view.transcript.last
        known = isinstance(last, np.ndarray) and int(last[0]) > Symbol.TOP
        return int(last[0]) - Symbol.TOP - 1 if known else None


def _bit(created: int, bit: int) -> Ask:
    return Ask(created - 1, Update(np.array([bit], dtype=np.int64)))


ONE = Fraction(1)


@dataclass(frozen=True, slots=True)
class NoisyLeak:
    """M of the proof: takes at most two bits, and answers TOP with probability `chance`, else BOTTOM, whatever the bit.

    After TOP it answers with a noisy bit, right with probability odds / (1 + odds).

    Privacy claim: moment 1 + chance * (m - 1) at every order, where m is the moment of the noisy bit, for one
    changed bit; also (0, chance * (odds - 1) / (odds + 1))-DP, and pure ln(odds)-DP.
    """

    chance: Fraction
    odds: Fraction

    def initial(self) -> Mapping[LeakyState, Fraction]:
        return {(0, Symbol.BOTTOM): ONE}

    def step(self, state: LeakyState, query: int) -> Law[LeakyState]:
        taken, symbol = state
        if taken == 2:
            return {(None, state): ONE}
        if symbol is Symbol.TOP:
            law = noisy_bit(query, self.odds)
            return {(revealed(bit), (taken + 1, symbol)): p for bit, p in law.items()}
        chances = {Symbol.TOP: self.chance, Symbol.BOTTOM: 1 - self.chance}
        return {(int(s), (taken + 1, s)): p for s, p in chances.items()}


def bit_moment(odds: Fraction, order: int) -> Fraction:
    """Return e^((order-1) D) of a noisy bit: the sum of P^order Q^(1-order) over its values; symmetric."""
    return (odds**order + odds ** (1 - order)) / (1 + odds)


@dataclass(frozen=True, slots=True)
class RenyiAdversary(WaitingAdversary):
    """A of [HSV] Thm 13.5, with at most `most` creations of `NoisyLeak(chance, odds)`.

    Example: each mechanism has moment 16/7 at order 2; the composition comes arbitrarily near to 43/7.
        >>> adversary = RenyiAdversary(2, Fraction(1, 4), Fraction(7), most=20)
        >>> adversary.mechanism_moment, round(float(adversary.moment), 2)
        (Fraction(16, 7), 6.13)
    """

    order: int
    chance: Fraction
    odds: Fraction

    @classmethod
    def against(cls, order: int, epsilon: Fraction, excess: int) -> "RenyiAdversary":
        """Return an adversary whose (order, epsilon)-RDP mechanisms compose to more than `excess` at this order.

        The odds make the noisy bit's moment m at least 3^(excess * (order-1)); the chance makes a mechanism's
        moment at most 1 + (order-1) epsilon <= e^((order-1) epsilon); with enough creations the moment exceeds
        (m+1)/2.

        Raises:
            ValueError: the order is below 2, or epsilon is 0, for which the theorem is false.
        """
        if order < 2 or epsilon <= 0:
            raise ValueError(
                f"the order is 2 or more and epsilon above 0, got {order} and {epsilon}"
            )
        odds = Fraction(4 * 3**excess)
        gain = bit_moment(odds, order) - 1
        chance = min(Fraction(1, 2), (order - 1) * epsilon / gain)
        return cls(order, chance, odds, most=math.ceil(1 / chance))

    @property
    def claim(self) -> RenyiDP:
        """The Renyi DP of each mechanism; ln(1 + x) <= x bounds its exact moment."""
        excess = (self.mechanism_moment - 1) / (self.order - 1)
        return RenyiDP(Fraction(self.order), excess)

    @property
    def mechanism(self) -> Sampled:
        """The mechanism, with its (0, delta) guarantee; delta is the mean leak."""
        delta = self.chance * (self.odds - 1) / (self.odds + 1)
        guarantee = Guarantee(ApproxDP(Fraction(0), delta), Neighbors.ADD_REMOVE)
        return Sampled(NoisyLeak(self.chance, self.odds), guarantee)

    @property
    def mechanism_moment(self) -> Fraction:
        """The exact moment of one mechanism: the charge of a book that counts touched mechanisms only."""
        return 1 + self.chance * (bit_moment(self.odds, self.order) - 1)

    @property
    def moment(self) -> Fraction:
        """The exact moment of the composition: 1 + (1 - (1 - chance)^most) (m - 1)."""
        return 1 + self.listening_probability * (bit_moment(self.odds, self.order) - 1)

    @property
    def listening_probability(self) -> Fraction:
        """1 - (1 - chance)^most: the probability that the adversary gets a noisy bit at all."""
        return 1 - (1 - self.chance) ** self.most

    @property
    def winning_probability(self) -> Fraction:
        """The probability that the adversary guesses the bit."""
        return self.listening_probability * self.odds / (1 + self.odds)
