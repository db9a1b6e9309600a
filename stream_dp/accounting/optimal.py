"""The optimal composition of RR_(e1,d1) x ... x RR_(ek,dk): the least epsilon at a given delta, rounded up.

Kairouz, Oh, Viswanath (arXiv 1311.0776) for equal epsilons, Murtagh, Vadhan (arXiv 1507.03113) in general: the
answers with a privacy loss above epsilon are listed, equal epsilons as one binomial, in outward-rounded intervals.
For too many answers the privacy loss distribution of dp_accounting is used: losses are rounded up to this file's own
grid, and an explicit slack bounds the error of its floats. Neither result is ever larger than the sum of the epsilons.
Rules: rationals in, rationals out, every result an upper bound. This file knows no mechanism and no rule.
"""

import itertools
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

from stream_dp.accounting.amounts import Interval
from stream_dp.errors import NotDerivable

LISTED = 4000  # most answers that the exact method lists
FEW = 400  # most answers of several epsilons that are listed while a charge waits
FLOAT_ERROR = Fraction(1, 2**48)  # of a cell of a convolution: 2^-53, a constant, log2 of the cells
FAR = 10_000  # a sum of epsilons that gives no protection; e to its power is still a decimal
SHARE = 100  # the slack may be 1 / SHARE of the delta
COARSE, FINE = 2**10, 2**17  # least and most grid points up to the sum of the epsilons


def least_epsilon(
    epsilons: Iterable[Fraction], delta: Fraction, *, listed: int = LISTED
) -> Fraction:
    """Return the least epsilon, rounded up, with which RR_(e1,0) x ... x RR_(ek,0) is (epsilon, delta)-DP.

    The result is the sum of the epsilons at delta 0, and where floats do not resolve so small a delta.
    """
    parts = Counter(e for e in epsilons if e > 0)
    total = sum(parts.elements(), Fraction(0))
    if delta == 0 or not parts or total > FAR:
        return total
    if _answers_of(parts) <= listed:
        return min(listed_epsilon(parts, delta), total)
    try:
        return min(grid_epsilon(parts, delta), total)
    except NotDerivable:
        return total


Curve: TypeAlias = Callable[[Fraction], Fraction]
"""From an epsilon of at least 0 to a delta of RR_(e1,0) x ... x RR_(ek,0) at it, rounded up."""


def loss_curve(parts: Counter[Fraction], delta: Fraction, *, listed: int = LISTED) -> Curve:
    """Return the delta at every epsilon; `delta` is what results are compared with, so that floats resolve it."""
    total = sum(parts.elements(), Fraction(0))
    if total > FAR:
        return lambda epsilon: Fraction(epsilon < total)
    if _answers_of(parts) <= listed:
        return _listed_curve(parts)
    try:
        composed, slack = _composed(parts, delta)
    except NotDerivable:
        return lambda epsilon: Fraction(epsilon < total)

    def on_grid(epsilon: Fraction) -> Fraction:
        below = math.nextafter(float(epsilon), -math.inf)
        return Fraction(float(composed.get_delta_for_epsilon(max(below, 0.0)))) + slack

    return on_grid


def _listed_curve(parts: Counter[Fraction]) -> Curve:
    above_p, above_q = Interval.of(0), Interval.of(0)
    losses, sums = [], [(above_p, above_q)]
    for loss, p, q in _answers(parts):
        above_p, above_q = above_p + p, above_q + q
        losses.append(-loss)
        sums.append((above_p, above_q))

    def exact(epsilon: Fraction) -> Fraction:
        p, q = sums[bisect_left(losses, -epsilon)]
        return (p - Interval.of(epsilon).exp() * q).upper

    return exact


def beside(curve: Curve, added: Fraction, epsilon: Fraction) -> Fraction:
    """Return the delta at `epsilon`, rounded up, of what `curve` is about beside RR_(added,0); `added` <= `epsilon`.

    RR tells the truth with probability t = e^added / (1 + e^added), which uses `added` of the loss up, and lies else.
    """
    odds = Interval.of(added).exp()
    truth = odds / (odds + 1)
    return (
        truth * curve(epsilon - added) + (Interval.of(1) - truth) * curve(epsilon + added)
    ).upper


def precision(epsilons: Sequence[Fraction], delta: Fraction) -> str:
    """Return in words how `least_epsilon` computes at this delta, and how much delta it sets aside for floats."""
    parts = Counter(e for e in epsilons if e > 0)
    if (number := _answers_of(parts)) <= LISTED:
        return f"all {number:,} combinations of answers are listed; amounts are intervals, rounded outwards"
    step, indices = _grid(parts, _points(parts, delta))
    slack = _slack(indices)
    if slack * SHARE > 2 * delta:
        return "floats cannot represent so small a delta, so the sum is used"
    return (
        f"privacy loss distribution, losses rounded up to steps of {float(step):.1e}, "
        f"{float(slack):.1e} of the delta set aside for floats"
    )


def _answers_of(parts: Counter[Fraction]) -> int:
    """Return a bound on the number of answers with different losses."""
    return math.prod(n + 1 for n in parts.values())


def joint_delta(deltas: Iterable[Fraction]) -> Fraction:
    """Return 1 - prod(1 - delta): the probability that some part of RR_(e1,d1) x ... reveals its bit."""
    return 1 - math.prod((1 - d for d in deltas), start=Fraction(1))


def spare(granted: Fraction, own: Fraction) -> Fraction:
    """Return delta' with 1 - (1 - delta') (1 - own) = granted: what is left; negative where own > granted."""
    return 1 - (1 - granted) / (1 - own)


def listed_epsilon(parts: Counter[Fraction], delta: Fraction) -> Fraction:
    """Return the least epsilon at `delta`, computed from all answers with a positive loss.

    delta(epsilon) is the sum of p - e^epsilon q over the answers whose loss ln(p/q) exceeds epsilon. The losses are
    searched from the largest down: the first loss at which delta(epsilon) exceeds `delta` begins the segment in
    which e^epsilon = (P - delta) / Q.
    """
    above_p, above_q = Interval.of(0), Interval.of(0)
    enough = sum(parts.elements(), Fraction(0))
    for loss, p, q in [*_answers(parts), (Fraction(0), Interval.of(0), Interval.of(0))]:
        here = above_p - Interval.of(loss).exp() * above_q
        if here.upper > delta:
            left = above_p - delta
            return enough if left.low <= 0 else max((left / above_q).ln().upper, loss)
        above_p, above_q, enough = above_p + p, above_q + q, loss
    return Fraction(0)


def _answers(parts: Counter[Fraction]) -> list[tuple[Fraction, Interval, Interval]]:
    """Return (loss, p, q) of the answers with a positive loss, largest loss first."""
    whole = Interval.of(1)
    for e in parts.elements():
        whole = whole / (Interval.of(e).exp() + 1)
    total, answers = sum(parts.elements(), Fraction(0)), []
    for lies in itertools.product(*(range(n + 1) for n in parts.values())):
        lied = sum((x * e for e, x in zip(parts, lies, strict=True)), Fraction(0))
        true = total - lied
        if true > lied:
            ways = math.prod(map(math.comb, parts.values(), lies))
            p, q = Interval.of(true).exp(), Interval.of(lied).exp()
            answers.append((true - lied, p * whole * ways, q * whole * ways))
    return sorted(answers, key=lambda answer: answer[0], reverse=True)


def grid_epsilon(parts: Counter[Fraction], delta: Fraction) -> Fraction:
    """Return the least epsilon at `delta` by dp_accounting's privacy loss distribution, losses rounded up.

    NotDerivable is raised where the error bound of the floats is not small against `delta`.
    """
    composed, slack = _composed(parts, delta)
    step, _ = _grid(parts, _points(parts, delta))
    epsilon = Fraction(float(composed.get_epsilon_for_delta(float(delta - 2 * slack))))
    while True:  # a float chose the start; this comparison is the proof
        below = math.nextafter(float(epsilon), -math.inf)
        if Fraction(float(composed.get_delta_for_epsilon(max(below, 0.0)))) + slack <= delta:
            return epsilon
        epsilon += step


def _composed(parts: Counter[Fraction], delta: Fraction) -> tuple[Any, Fraction]:
    """Return the distribution of the privacy loss and a bound on the floats' error (NotDerivable: it is too large)."""
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    step, indices = _grid(parts, _points(parts, delta))
    slack = _slack(indices)
    if slack * SHARE > 2 * delta:
        raise NotDerivable(
            f"{len(parts)} different epsilons at a delta of {float(delta):.1e} cannot be "
            f"computed exactly enough (slack {float(slack):.1e}). Use fewer different epsilons "
            "or a larger delta"
        )
    width = math.nextafter(float(step), math.inf)
    composed = None
    for n, times in indices.items():
        truth = 1 / (1 + math.exp(-n * width))
        part = PrivacyLossDistribution.create_from_rounded_probability(
            {n: truth, -n: 1 - truth}, 0.0, width
        ).self_compose(times)
        composed = part if composed is None else composed.compose(part)
    return composed, slack


def _slack(indices: Counter[int]) -> Fraction:
    """Return a bound on the error of the convolutions: the error of one cell, times all cells of all convolutions."""
    return FLOAT_ERROR * indices.total() * 2 * (sum(indices.elements()) + 1)


def _points(parts: Counter[Fraction], delta: Fraction) -> int:
    """Return the grid points up to the sum of the epsilons: as many as keep the slack below a hundredth of delta."""
    most = delta / (SHARE * 2 * parts.total() * FLOAT_ERROR)
    return max(COARSE, min(FINE, int(most)))


def _grid(parts: Counter[Fraction], points: int) -> tuple[Fraction, Counter[int]]:
    """Return a step and the epsilons in steps, rounded up; exact where the common divisor is not too fine."""
    total = sum(parts.elements(), Fraction(0))
    denominator = math.lcm(*(e.denominator for e in parts))
    common = Fraction(math.gcd(*(int(e * denominator) for e in parts)), denominator)
    step = common if common * points >= total else total / points
    indices: Counter[int] = Counter()
    for e, n in parts.items():
        indices[math.ceil(e / step)] += n
    return step, indices
