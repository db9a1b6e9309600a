"""Comparison of the amount that a rule books with the exact worst case.

| booked | compared with |
|---|---|
| epsilon-DP | ln of the largest ratio of a transcript (`worst_ratio`) |
| (epsilon, delta)-DP | `exact_delta` at epsilon |
| (alpha, epsilon)-RDP, curves; rho-zCDP and tCDP at some whole orders | `exact_moment` |
| mu-GDP | its delta at some epsilons, each with `exact_delta` |

Rules: VIOLATED is said only where the exact figure is certainly above the booked one; roundings are below
`ROUNDING`.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import TypeAlias

from stream_dp.accounting.directed import Interval
from stream_dp.accounting.gaussian_curve import gaussian_delta
from stream_dp.core.guarantee import (
    ZCDP,
    GaussianDP,
    Measure,
    RenyiCurve,
    RenyiDP,
    TruncatedZCDP,
    differential_privacy,
)
from stream_dp.verify.exact.exact_delta import delta_bracket, exact_delta, worst_ratio
from stream_dp.verify.exact.exact_renyi import exact_moment
from stream_dp.verify.exact_checks.instance import Instance

Amount: TypeAlias = Fraction | float  # inf where there is no bound

DIGITS = 10**30
ROUNDING = Fraction(1, 10**25)
TIGHT = Fraction(1, 10**9)  # smaller differences count as equal
ORDERS = (2, 3, 5)
EPSILONS = (Fraction(1, 2), Fraction(1), Fraction(3, 2), Fraction(2))


class Verdict(StrEnum):
    """Relation of the exact worst case to the booked amount."""

    EQUAL = "equal"
    WITHIN = "within"
    CUT = "within the cut"  # the noise left out could hide at most the exact figure shown
    VIOLATED = "VIOLATED"


@dataclass(frozen=True, slots=True)
class Comparison:
    """`quantity` (epsilon or delta), booked and exact; the worst comparison where a measure promises several
    amounts.

    `at` names the comparison that is shown, such as "order 2".
    """

    quantity: str
    at: str
    booked: Fraction
    exact: Amount
    verdict: Verdict


def compare(measure: Measure, instance: Instance) -> Comparison:
    """Compare `measure`, booked for `instance`, with the exact worst case over all adaptive adversaries."""
    if instance.cut:
        return _cut(measure, instance)
    match measure:
        case RenyiDP():
            return _renyi([measure], instance)
        case RenyiCurve(points):
            return _renyi(list(points), instance)
        case ZCDP(rho):
            return _renyi([RenyiDP(Fraction(a), rho * a) for a in ORDERS], instance)
        case TruncatedZCDP(rho, omega):
            below = [Fraction(a) for a in ORDERS if a < omega]
            return _renyi([RenyiDP(a, rho * a) for a in below], instance)
        case GaussianDP():
            return _gaussian(measure, instance)
        case _:
            stated = differential_privacy(measure)
            if stated.delta:
                return _approximate(stated.epsilon, stated.delta, instance)
            return _pure(stated.epsilon, instance)


def ratio(epsilon: Fraction) -> Fraction:
    """Return e^epsilon, rounded down to 30 digits; the exact delta changes by less than that."""
    found = Interval.of(epsilon).exp().lower
    return max(Fraction(math.floor(found * DIGITS), DIGITS), Fraction(1))


def _delta(epsilon: Fraction, instance: Instance) -> Fraction:
    return exact_delta(instance.machine, instance.pairs, ratio(epsilon), instance.rounds)


def _logarithm(value: Amount) -> Amount:
    return math.inf if isinstance(value, float) else Interval.of(value).ln().lower


def _verdict(booked: Fraction, exact: Amount) -> Verdict:
    if exact > booked + ROUNDING:
        return Verdict.VIOLATED
    return Verdict.EQUAL if exact > booked - TIGHT else Verdict.WITHIN


def _pure(epsilon: Fraction, instance: Instance) -> Comparison:
    exact = _logarithm(worst_ratio(instance.machine, instance.pairs, instance.rounds))
    return Comparison("epsilon", "", epsilon, exact, _verdict(epsilon, exact))


def _approximate(epsilon: Fraction, delta: Fraction, instance: Instance) -> Comparison:
    exact = _delta(epsilon, instance)
    return Comparison("delta", "", delta, exact, _verdict(delta, exact))


def _renyi(points: list[RenyiDP], instance: Instance) -> Comparison:
    def at(point: RenyiDP) -> Comparison:
        order = int(point.alpha)
        if order != point.alpha:
            raise ValueError(f"order {point.alpha}: only whole orders can be compared")
        moment = exact_moment(instance.machine, instance.pairs, order, instance.rounds)
        logarithm = _logarithm(moment)
        exact = logarithm / (order - 1)
        verdict = _verdict(point.epsilon, exact)
        return Comparison("epsilon", f"order {order}", point.epsilon, exact, verdict)

    return worst_comparison([at(point) for point in points])


def _gaussian(measure: GaussianDP, instance: Instance) -> Comparison:
    def at(epsilon: Fraction) -> Comparison:
        booked, exact = gaussian_delta(measure, epsilon), _delta(epsilon, instance)
        where = f"epsilon {float(epsilon):g}"
        return Comparison("delta", where, booked, exact, _verdict(booked, exact))

    return worst_comparison([at(epsilon) for epsilon in EPSILONS])


def worst_comparison(found: list[Comparison]) -> Comparison:
    """Return the comparison that is violated, or whose exact figure is nearest to the booked amount."""

    def badness(one: Comparison) -> tuple[bool, float]:
        share = float(one.exact) / float(one.booked) if one.booked else float(one.exact)
        return one.verdict is Verdict.VIOLATED, share

    return max(found, key=badness)


def _cut(measure: Measure, instance: Instance) -> Comparison:
    """Compare a machine with cut noise: delta lies between two bounds; VIOLATED if the lower one is above."""
    stated = differential_privacy(measure)
    machine, pairs, rounds = instance.machine, instance.pairs, instance.rounds
    found = delta_bracket(machine, pairs, ratio(stated.epsilon), rounds)
    if found.lower > stated.delta + ROUNDING:
        verdict, exact = Verdict.VIOLATED, found.lower
    else:
        verdict, exact = Verdict.CUT, found.upper
    return Comparison("delta", "", stated.delta, exact, verdict)
