"""Exact worst-case loss of re-armed alerts on one key's count, and of three broken ways to re-arm.

Right: the instance that crosses consumes the whole tick, the next one starts from 0 with the next
tick and fresh noise; then one event touches one instance, and parallel composition of interactive
mechanisms ([HSV] Cor 5.5, k = 1) charges one instance. A transcript is one bit per tick.
"""

import itertools
from collections.abc import Sequence
from enum import Enum, auto
from fractions import Fraction

from oracles.exact import log_ratio
from oracles.svt import Decays, Pair, Worst, pattern_probability, worst_pair


class Rearm(Enum):
    """How the alert goes on after a crossing."""

    FRESH = auto()  # next tick, from 0, new noise: the only right one
    CARRY_OVERSHOOT = auto()  # the count keeps what lay above the threshold
    FEED_TWICE = auto()  # the crossing tick's events also enter the next instance
    REUSED_TAU = auto()  # the noisy threshold survives the crossing


def tick_margins(
    increments: Sequence[int], tops: Sequence[bool], threshold: int, rearm: Rearm
) -> tuple[int, ...]:
    """The margin of each tick's comparison, given the public bits so far."""
    found, count = [], 0
    for x, top in zip(increments, tops, strict=True):
        count += x
        found.append(threshold - count + 1)
        if top:
            count = _after_crossing(count, x, threshold, rearm)
    return tuple(found)


def _after_crossing(count: int, x: int, threshold: int, rearm: Rearm) -> int:
    """The count with which the next instance starts."""
    if rearm is Rearm.CARRY_OVERSHOOT:
        return count - threshold
    return x if rearm is Rearm.FEED_TWICE else 0


def bits_probability(
    increments: Sequence[int],
    tops: tuple[bool, ...],
    threshold: int,
    noise: Decays,
    rearm: Rearm = Rearm.FRESH,
) -> Fraction:
    """Exact P[the alert bits are `tops`]."""
    margin = tick_margins(increments, tops, threshold, rearm)
    if rearm is Rearm.REUSED_TAU:
        return pattern_probability(margin, tops, noise)
    result, begin = Fraction(1), 0
    for end in range(1, len(tops) + 1):
        if tops[end - 1] or end == len(tops):
            result *= pattern_probability(margin[begin:end], tops[begin:end], noise)
            begin = end
    return result


def pair_loss(pair: Pair, threshold: int, noise: Decays, rearm: Rearm = Rearm.FRESH) -> float:
    """max over all bit strings of |ln(P_a / P_b)| for two sequences of per-tick counts."""
    return max(
        abs(
            log_ratio(
                bits_probability(pair[0], tops, threshold, noise, rearm),
                bits_probability(pair[1], tops, threshold, noise, rearm),
            )
        )
        for tops in itertools.product((False, True), repeat=len(pair[0]))
    )


def worst_loss(
    horizon: int,
    threshold: int,
    noise: Decays,
    rearm: Rearm = Rearm.FRESH,
    values: Sequence[int] = (0, 1, 2),
) -> Worst:
    """Worst exact loss over counts from `values` where one copy has one more event in one tick."""
    pairs = (
        (base, tuple(x + int(t == tick) for t, x in enumerate(base)))
        for base in itertools.product(values, repeat=horizon)
        for tick in range(horizon)
    )
    return worst_pair(pairs, lambda p: pair_loss(p, threshold, noise, rearm))
