"""The optimal composition as a filter over what is alive, decided exactly: answers listed, no float, no interval.

A ratio stands for e^epsilon and is a Fraction. The rule for single events: randomized responses of the epsilons alive
compose to the budget ([HSV] Thm 4.10 names the mechanisms, `oracles.universal` lists their answers). The rule for `k`
steps (users of at most k events; 2 for an event that may move to any tick): a step costs a k-th of every epsilon, and
k hybrids of (e', delta') make (k e', delta' (1 + e^e' + ... + e^((k-1) e'))).
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import cache

from oracles.universal import ZERO, composed_delta


@cache
def least_delta(ratios: tuple[Fraction, ...], ratio: Fraction) -> Fraction:
    """Return the least delta at e^epsilon = ratio of randomized responses of these ratios, by all 2^n answers."""
    return composed_delta([(odds, ZERO) for odds in ratios], ratio)


def root(ratio: Fraction, steps: int) -> Fraction:
    """Return the ratio of a `steps`-th of its epsilon; ValueError where that is no rational number."""
    near = (round(part ** (1 / steps)) for part in (ratio.numerator, ratio.denominator))
    rational = Fraction(*near)
    if rational**steps != ratio:
        raise ValueError(f"{ratio} has no rational root of order {steps}")
    return rational


def chain(ratio: Fraction, delta: Fraction, steps: int) -> tuple[Fraction, Fraction]:
    """Return (e^epsilon, delta) of `steps` hybrids, of which two neighbours differ by (ratio, delta)."""
    return ratio**steps, delta * sum(ratio**step for step in range(steps))


def admits(
    live: Sequence[Fraction], new: Fraction, ratio: Fraction, delta: Fraction, steps: int = 1
) -> bool:
    """Return whether `new` fits (ratio, delta) beside the ratios that are alive where it is.

    Ratios are those of the whole epsilons, also for several steps; then all have rational roots of that order.
    """
    step = root(ratio, steps)
    roots = tuple(sorted(root(odds, steps) for odds in (*live, new)))
    return chain(step, least_delta(roots, step), steps)[1] <= delta
