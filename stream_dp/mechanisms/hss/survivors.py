"""The law of a sparse vector's threshold noise, given that its instance is still alive, as bands of HSS use it.

A threshold with large noise lives longest, so the noise of the instance alive now is not geometric any more: on
quiet data it is almost uniform. It is known that the j-th instance drew it once. With J the number of closed
intervals and G the tail of (threshold noise) - (query noise), P(J = j and it exceeds z) <= min(P(J = j), G(z))
<= (P(J = j) + w_j) min(1, G(z) / w_j), w_j = SURVIVAL * share: summed over j, (1 + SURVIVAL) times the law with
tail min(1, G / w_j), a geometric moved up. All of this is a function of public values.
"""

import math
from fractions import Fraction

SURVIVAL = 0.5  # share of a band's failure probability that is added for long-lived thresholds


def interval_share(intervals: int, possible: int) -> float:
    """Return w_j = 1 / ((j + 1) (1 + ln n)); the sum over the n possible numbers j of closed intervals is at most 1."""
    return 1 / ((intervals + 1) * (1 + math.log(possible)))


def moved_up(scales: tuple[Fraction, Fraction], share: float) -> int:
    """Return the least z0 such that z0 + geometric dominates the law with tail min(1, P(lift - query > z) / share)."""
    a, b = (math.exp(-1 / float(scale)) for scale in scales)
    return max(0, math.ceil(float(scales[0]) * math.log((1 - b) / (1 - a * b) / share)))
