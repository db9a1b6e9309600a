"""The odometer of [WRRW] for concurrent pure mechanisms: a bound on the privacy loss at all times.

With probability 1 - delta' the loss of the whole view never exceeds R + B(2 R), at any time: R is the sum of rho =
epsilon tanh(epsilon / 2) over the mechanisms created so far, B a one-sided boundary ([WRRW] Thm 3.2, tight).

Proof [D]. Fix l > 0 and an adversary. For a mechanism and its own history h let Phi(h) be the supremum, over the
ways in which the adversary may go on with it, of the mean of e^(l x the loss still to come). Stopping is one, so
Phi >= 1. At its creation Phi is at most e^(l (l+1) rho): the mechanism is rho-zCDP against adaptive adversaries,
which says this of the order l + 1. Answers of a mechanism depend on its own history only, so each message to one of
them, in whatever order, lets the product over the mechanisms of e^(l loss - l (l+1) rho) Phi grow by a factor of
mean at most 1, and so does a creation: it is a supermartingale that begins at 1, and is at least e^(l L - l (l+1)
R). That is all that the line-crossing and mixture bounds ask of a sequential composition, and the mixture over l is
one too. A bound by the largest load of a tick holds as well: an event touches only what is alive at its tick, a
pure mechanism is as pure after any number of equal pairs, so that its factor may begin when it is touched, and B
grows with R. A user's events touch only what is alive at some tick of their public window: the same, with times
rounded outward to whole windows.

The bound does not extend to mechanisms with a delta: a view is a post-processing of randomized responses, and
post-processing does not preserve pDP.
"""

from collections.abc import Sequence
from fractions import Fraction

from stream_dp.accounting.conversions import pure_to_zcdp
from stream_dp.accounting.directed import ceil_units
from stream_dp.accounting.filters.filter import SQUARED
from stream_dp.accounting.rules.ticks import loads
from stream_dp.accounting.situations import Alive
from stream_dp.core.guarantee import PureDP
from stream_dp.verify.odometers.boundaries import OneSidedMixtureBoundary
from stream_dp.verify.odometers.odometer import Odometer

FAILS = Fraction(
    1, 10**6
)  # delta', fixed for all ledgers: a value chosen by looking would not be valid
GAMMA = Fraction(1, 100)  # where the mixture is tightest: about V = 2 R = 0.01


def loss_bound(
    epsilons: Sequence[Fraction], alive: Sequence[Alive] | None = None, fails: Fraction = FAILS
) -> Fraction:
    """Return a bound on the privacy loss at all times with probability 1 - `fails`, rounded up; at most the sum.

    `alive`: the ticks that each part sees, where the protected event lies in one tick; rounded outward to public
    windows, where a user's events lie in one window. None: the protected data may lie in all ticks.
    """
    lives = [Alive(0, None)] * len(epsilons) if alive is None else alive
    rhos = [pure_to_zcdp(PureDP(epsilon)).rho for epsilon in epsilons]
    rho = ceil_units(_largest(lives, rhos), SQUARED)
    boundary = OneSidedMixtureBoundary(fails, GAMMA)
    found = Odometer(boundary, tight=True, variance=2 * rho, drift=rho).bound()
    certain = _largest(lives, epsilons)
    return certain if found is None else min(found, certain)


def _largest(alive: Sequence[Alive], amounts: Sequence[Fraction]) -> Fraction:
    return max((load for _, load in loads(alive, amounts)), default=Fraction(0))
