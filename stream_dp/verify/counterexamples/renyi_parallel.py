"""Adversaries that wait for a failure ([HSV] Thm 5.2), and their Renyi form (Thm 13.5).

In the 1-sparse parallel composition of (alpha, eps)-RDP mechanisms the divergence between the adversary's views
exceeds any eps' after enough creations, though only one mechanism ever gets a pair of different messages. Rules:
whole orders only, so that moments e^((alpha-1) D) are rational and everything is exact; TOP has the role that it has
in `randomized_response`.

Errata of the printed proof: (1) its last display averages (P/Q)^alpha over P = V^0; Def 13.1 averages over Q = V^1.
So its q is too small for large eps': at alpha = 2, eps' = 8 the divergence (base 2) is 6.4. (2) Powers of 2 stand
beside log(1 + x) <= x: bases 2 and e are mixed. (3) eps = 0 is false: (alpha, 0)-RDP mechanisms have equal laws, and
so has their composition; the proof's p is then 0 and its adversary waits for ever. (4) The display's first line must
have ((1-q)/q)^alpha in its second term.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from stream_dp.core.composition import Ask, Create
from stream_dp.core.guarantee import ApproxDP, Guarantee, RenyiDP
from stream_dp.core.mechanism import Mechanism, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.verify.exact.finite import Sampled
from stream_dp.verify.exact.randomized_response import NoisyLeak, Symbol, bit_moment
from stream_dp.verify.game import HALT, View


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

    def init(self, noise: Noise) -> tuple[int, int]:
        """Return the index of the mechanism, and the number of messages about it so far."""
        return 0, 0

    def step(self, state: tuple[int, int], message: Any, noise: Noise) -> tuple[Any, Any]:
        index, sent = state
        if sent == 3 and int(message[0]) != Symbol.TOP:
            index, sent = index + 1, 0
        if index == self.most or sent == 5:
            return state, HALT
        zero, one = (Ask(index, Update(np.array([bit], dtype=np.int64))) for bit in (0, 1))
        create, ask = Create(self.mechanism), Ask(index, Query())
        pairs = (create, create), (zero, zero), (ask, ask), (zero, one), (ask, ask)
        return (index, sent + 1), pairs[sent]

    def guess(self, view: View) -> int | None:
        """Return the bit that the view shows; None where no mechanism failed."""
        known = isinstance(view.last, np.ndarray) and int(view.last[0]) > Symbol.TOP
        return int(view.last[0]) - Symbol.TOP - 1 if known else None


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
