"""The running counterexample of [WRRW] App. F: (epsilon, delta)-DP is no bound on a privacy loss.

A mechanism that answers 1 with a small probability, and more often where the bit is 1, may be (epsilon, delta)-DP while
its privacy loss exceeds epsilon with a probability far above delta. An odometer ([WRRW] Thm 3) that takes it for
(epsilon, delta)-pDP is broken by one step where delta' is far below delta: exact .0231 where .0100 is allowed
(`RARE`). [WRRW] conjecture that such a break exists. This file knows no odometer and no bit but the one it is given.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from stream_dp.core.guarantee import ApproxDP, Guarantee
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.verify.exact.finite import Law
from stream_dp.verify.exact.sampled import Sampled
from stream_dp.verify.games.transcript import HALT, View

ONE = Fraction(1)


@dataclass(frozen=True, slots=True)
class OneBitAnswer:
    """Takes a bit and answers 0 or 1, once. `ones` are the chances of the answer 1 for the bits 0 and 1."""

    ones: tuple[Fraction, Fraction]

    def initial(self) -> Mapping[str, Fraction]:
        """Return the law of the first state: waiting for the bit."""
        return {"waiting": ONE}

    def step(self, state: str, query: int) -> Law[str]:
        """Answer once."""
        if state == "halted":
            return {(None, "halted"): ONE}
        return {(answer, "halted"): self.chance(answer, query) for answer in (0, 1)}

    def chance(self, answer: int, bit: int) -> Fraction:
        """The probability of this answer to this bit."""
        return self.ones[bit] if answer else 1 - self.ones[bit]

    def ratio(self, answer: int, bit: int) -> Fraction:
        """e^L: how much more probable the answer is for this bit than for the other one."""
        return self.chance(answer, bit) / self.chance(answer, 1 - bit)

    def exceeds(self, ratio: Fraction, bit: int = 1) -> Fraction:
        """The exact probability, given this bit, that the privacy loss exceeds ln(ratio)."""
        above = (a for a in (0, 1) if self.ratio(a, bit) > ratio)
        return sum((self.chance(a, bit) for a in above), Fraction(0))


def folded(odds: Fraction, delta: Fraction) -> OneBitAnswer:
    """B of App. F: RR_(ln odds, delta) without the mark that says when the bit was revealed.

    Its loss ln((delta + odds) / (1 - delta)) exceeds ln odds with probability (1 - delta) odds/(1 + odds) + delta.
    """
    heads = (1 - delta) * odds / (1 + odds) + delta
    return OneBitAnswer((1 - heads, heads))


def rare(odds: Fraction, delta: Fraction, chance: Fraction) -> OneBitAnswer:
    """Answers 1 with probability `chance` for the bit 1 and (chance - delta) / odds for 0: (ln odds, delta)-DP, met."""
    return OneBitAnswer(((chance - delta) / odds, chance))


ODDS, DELTA = Fraction(11, 10), Fraction(99, 10_000)
RARE = rare(ODDS, DELTA, Fraction(231, 10_000))


def mechanism(answer: OneBitAnswer, claim: ApproxDP) -> Sampled:
    """The counterexample as a core mechanism with the guarantee `claim`, which is true."""
    return Sampled(answer, Guarantee(claim, Neighbors.ADD_REMOVE))


@dataclass(frozen=True, slots=True)
class LossAdversary:
    """Sends the pair of rows (0, 1) and looks: the privacy loss of its view is what an odometer claims to bound."""

    def init(self, noise: Noise) -> int:
        """Return the first state: nothing sent."""
        return 0

    def step(self, state: int, message: Any, noise: Noise) -> tuple[int, Any]:
        """Send the two rows, then the query, then HALT."""
        if state == 0:
            return 1, tuple(Update(np.array([bit], dtype=np.int64)) for bit in (0, 1))
        return (2, (Query(), Query())) if state == 1 else (2, HALT)

    def answer(self, view: View) -> int:
        """What it saw."""
        return int(view.transcript.last[0])
