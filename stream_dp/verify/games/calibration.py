"""What an audit would show if the mechanism were the worst that its claim allows: the yardstick of a finding.

Every (epsilon, delta)-DP continual mechanism is a post-processing of the interactive randomized response of the same
parameters ([HSV] Cor 5.7), so nothing under the claim tells two streams apart better. Rules: computed from its laws,
not played; what is shown is the bound at the expected counts, which a lucky run may exceed. This file knows no other
mechanism.
"""

from fractions import Fraction

from stream_dp.accounting.directed import Interval, floor_units
from stream_dp.verify.exact.randomized_response import ASK, InteractiveRandomizedResponse
from stream_dp.verify.games.events import proven_epsilon

GRID = 1 << 16  # odds are multiples of 1 / GRID
MOST = Fraction(40)  # no audit can tell odds of e^40 from larger ones


def universal(epsilon: Fraction, delta: Fraction) -> InteractiveRandomizedResponse:
    """The interactive randomized response of this claim, its odds rounded down: never less private than claimed.

    >>> universal(Fraction(1), Fraction(0)).odds
    Fraction(178145, 65536)
    """
    odds = Interval.of(min(epsilon, MOST)).exp().lower
    return InteractiveRandomizedResponse(
        max(Fraction(1), Fraction(floor_units(odds, GRID), GRID)), delta
    )


def shows_one(machine: InteractiveRandomizedResponse, bit: int) -> Fraction:
    """The probability that its last answer is 1, when it was given `bit`: the event that tells most.

    >>> shows_one(InteractiveRandomizedResponse(Fraction(3)), 1)
    Fraction(3, 4)
    """
    ((_, holding),) = machine.step(("waiting",), bit)
    return sum(
        (
            first * chance
            for (_, chosen), first in machine.step(holding, ASK).items()
            for (answer, _), chance in machine.step(chosen, ASK).items()
            if answer == 1
        ),
        Fraction(0),
    )


def strongest(epsilon: Fraction, delta: Fraction, plays: int, failure: float) -> float:
    """The lower bound that `plays` judged games with each stream prove of the universal mechanism, at expected counts.

    It grows towards `epsilon` with the games. Where it is far below, a finding of 0 says little: play more.
    """
    machine = universal(epsilon, delta)
    likely, rare = (round(plays * shows_one(machine, bit)) for bit in (1, 0))
    return proven_epsilon(likely, rare, plays, float(delta), failure)
