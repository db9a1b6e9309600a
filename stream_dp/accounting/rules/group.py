"""Group privacy: streams that differ in up to k events (a user's), linked by a chain of k steps of one event.

The hybrids differ in one event each and are themselves admissible streams; an adversary against two of them plays
the event-level game, giving equal pairs elsewhere, so this holds adaptively. Pure: k e. (e, d): k e and d (1 + e^e
+ ... + e^((k-1)e)), not k d. zCDP: k^2 rho (Bun, Steinke 2016, Prop. 1.9). GDP: k mu (Dong, Roth, Su 2022, Thm
2.14). Adding up k randomized responses instead is false: all k events may fall into one interval of one sparse
vector.
"""

from fractions import Fraction

from stream_dp.accounting.directed import Interval
from stream_dp.accounting.optimal import FAR
from stream_dp.accounting.rules.rule import Premises, Rule, all_finite, measures
from stream_dp.accounting.situations import Group
from stream_dp.core.derivation import Condition
from stream_dp.core.guarantee import (
    NAMES,
    ZCDP,
    ApproxDP,
    GaussianDP,
    Measure,
    ProbabilisticDP,
    PureDP,
)
from stream_dp.errors import NotDerivable

TINY = Fraction(1, 10**30)  # half of the 60 digits of an interval are left
KNOWN = (PureDP, ApproxDP, ProbabilisticDP, ZCDP, GaussianDP)


def group_delta(epsilon: Fraction, delta: Fraction, size: int) -> Fraction:
    """Return delta (e^(k epsilon) - 1) / (e^epsilon - 1), rounded up; k delta at epsilon 0, and 1 where it would
    overflow.

    Below `TINY`, where e^epsilon - 1 would lose its digits, k e^((k-1) epsilon), which is no less, replaces the
    quotient.
    """
    if epsilon == 0 or size == 1 or delta == 0:
        return size * delta
    if size * epsilon > FAR:
        return Fraction(1)
    if epsilon < TINY:
        return (Interval.of((size - 1) * epsilon).exp() * size * delta).upper
    one = Interval.of(1)
    factor = (Interval.of(size * epsilon).exp() - one) / (Interval.of(epsilon).exp() - one)
    return (factor * delta).upper


def _delta(measure: Measure, size: int) -> Fraction:
    if isinstance(measure, ApproxDP | ProbabilisticDP):
        return group_delta(measure.epsilon, measure.delta, size)
    return Fraction(0)


def _conditions(premises: Premises, situation: Group) -> tuple[Condition, ...]:
    measure, k = measures(premises)[0], situation.size
    name = NAMES[type(measure)]
    known = isinstance(measure, KNOWN)
    sized = Condition(
        "group size", k >= 1, f"up to {k} event(s) of one unit, enforced by the guard"
    )
    if not known or k < 1:
        why = f"no group rule is known for {name}" if not known else f"{name} has a group rule"
        return sized, Condition("measure", known, why)
    delta = _delta(measure, k)
    return (
        sized,
        Condition("one premise", len(premises) == 1, "compose the parts first"),
        Condition("measure", True, f"{name} has a group rule"),
        Condition("delta below 1", delta < 1, f"the group's delta is {float(delta):.3g}"),
    )


def _measure(premises: Premises, situation: Group) -> Measure:
    measure, k = measures(premises)[0], situation.size
    match measure:
        case PureDP(epsilon):
            return PureDP(k * epsilon)
        case ApproxDP(epsilon) | ProbabilisticDP(epsilon):
            return ApproxDP(k * epsilon, _delta(measure, k))
        case ZCDP(rho):
            return ZCDP(k * k * rho)
        case GaussianDP(mu):
            return GaussianDP(k * mu)
        case _:
            raise NotDerivable(f"no group rule is known for {NAMES[type(measure)]}")


SOURCE = "Dwork, Roth 2014, Thm 2.2; zCDP: Bun, Steinke 2016, Prop. 1.9; GDP: Dong, Roth, Su 2022, Thm 2.14"
group = Rule("group privacy", SOURCE, _conditions, _measure, lambda s: s.size, finite=all_finite)
