"""The law of a sparse vector's threshold noise, given that its instance is still alive: what bands of HSS pay for it.

A threshold with large noise lives longest, so the noise of the instance alive now is not geometric any more: on quiet
data it is almost uniform. What is known is that the j-th instance drew it once. With J the number of closed intervals
and G the tail of (threshold noise) - (query noise), P(J = j and it exceeds z) <= min(P(J = j), G(z))
<= (P(J = j) + w_j) min(1, G(z) / w_j), w_j = SURVIVAL * share: summed over j, (1 + SURVIVAL) times the law with
tail min(1, G / w_j), a geometric moved up. All of this is a function of public values.
"""

import math
from fractions import Fraction

SURVIVAL = 0.5  # what long-lived thresholds may add to a band's failure probability, as a share


def interval_share(intervals: int, possible: int) -> float:
    """Return w_j = 1 / ((j + 1) (1 + ln n)): at most 1 in sum over the n possible numbers of closed intervals."""
    return 1 / ((intervals + 1) * (1 + math.log(possible)))


def moved_up(scales: tuple[Fraction, Fraction], share: float) -> int:
    """The least z0 such that z0 + geometric dominates the law with tail min(1, P(lift - query > z) / share)."""
    a, b = (math.exp(-1 / float(scale)) for scale in scales)
    return max(0, math.ceil(float(scales[0]) * math.log((1 - b) / (1 - a * b) / share)))
