"""[HSV] Thm 5.2: parallel composition of (epsilon, delta)-DP continual mechanisms, booked by the largest delta.

In the 1-sparse parallel composition of (0, delta)-DP mechanisms an adversary learns the secret bit with probability
1 - (1 - delta)^l after l creations, though only one mechanism ever gets a pair of different messages.
"""

from dataclasses import dataclass
from fractions import Fraction

from stream_dp.core.guarantee import ApproxDP, Guarantee
from stream_dp.core.neighbors import Neighbors
from stream_dp.verify.counterexamples.waiting import WaitingAdversary
from stream_dp.verify.exact.randomized_response import LeakyBit
from stream_dp.verify.exact.sampled import Sampled


def leaky_mechanism(delta: Fraction) -> Sampled:
    """M_delta of the proof as a core mechanism, with its guarantee: (0, delta)-DP for one changed bit."""
    measure = ApproxDP(Fraction(0), delta)
    return Sampled(LeakyBit(delta), Guarantee(measure, Neighbors.ADD_REMOVE))


@dataclass(frozen=True, slots=True)
class MaxDeltaAdversary(WaitingAdversary):
    """A_delta of [HSV] Thm 5.2, with at most `most` creations.

    Example:
        >>> MaxDeltaAdversary(Fraction(1, 4), most=5).winning_probability
        Fraction(781, 1024)
    """

    delta: Fraction

    @property
    def mechanism(self) -> Sampled:
        """M_delta."""
        return leaky_mechanism(self.delta)

    @property
    def winning_probability(self) -> Fraction:
        """1 - (1 - delta)^most: how often it knows the bit for sure."""
        return 1 - (1 - self.delta) ** self.most
