"""An instance: a composition small enough to play against every adaptive adversary, with the derivation for it.

`compare` compares the amount that a rule books with the exact worst case. Rules: a part's claim holds for its machine
(the tests check every claim exactly). This file knows no composition rule.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any, TypeAlias

from stream_dp.accounting.amounts import Interval
from stream_dp.accounting.gaussian_curve import gaussian_delta
from stream_dp.accounting.rules.rule import Premises, leaf
from stream_dp.accounting.situations import Situation
from stream_dp.core.composition import ConcurrentComposition, Create
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import (
    ZCDP,
    ApproxDP,
    GaussianDP,
    Guarantee,
    Measure,
    PureDP,
    RenyiCurve,
    RenyiDP,
    TruncatedZCDP,
    differential_privacy,
)
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.relation import Claim, Relation
from stream_dp.verify.exact.enumeration import Enumerated, Lawful, Verified, behind
from stream_dp.verify.exact.exact_delta import delta_bracket, exact_delta, exact_moment, worst_ratio
from stream_dp.verify.exact.finite import BIT_PAIRS, FiniteMachine, Pairs
from stream_dp.verify.exact.randomized_response import (
    ASK,
    InteractiveRandomizedResponse,
    RandomizedResponse,
)
from stream_dp.verify.relations.streams import StaticDataSet, single_pair

ADD = Neighbors.ADD_REMOVE
ZERO = Fraction(0)


@dataclass(frozen=True, slots=True)
class Instance:
    """A rule derives from `premises` in `situation`; the game plays `machine` with `pairs` for `rounds` messages.

    `words` describe the instance. `cut`: the machine's noise is cut off, so the exact figure is an interval.
    """

    words: str
    premises: Premises
    situation: Situation
    machine: FiniteMachine[Any, Any]
    pairs: Pairs
    rounds: int
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A finite machine with a true claim: a composition creates it, and a derivation starts from it.

    `queries` are the pairs that an adversary may want to send it.
    """

    name: str
    machine: FiniteMachine[Any, Any]
    measure: Measure
    relation: Relation
    queries: tuple[tuple[Any, Any], ...] = BIT_PAIRS

    @property
    def claim(self) -> Claim:
        return Claim(self.measure, self.relation, finite=True)

    @property
    def create(self) -> Create:
        """The part's creation query ([HSV] Def 4.1)."""
        machine: Any = Lawful(self.machine)
        return Create(machine, self.claim)

    @property
    def leaf(self) -> Derivation:
        return leaf(self.name, Guarantee(self.measure, ADD, finite=True), "verify.exact_checks")

    def claiming(self, measure: Measure) -> "Part":
        """Return this part with another claim, which must be true."""
        return replace(self, measure=measure)


def logarithm(odds: Fraction) -> Fraction:
    """Return ln(odds), rounded up; 0 for odds of 1."""
    return Interval.of(odds).ln().upper if odds > 1 else ZERO


def private(odds: Fraction, delta: Fraction = ZERO) -> Measure:
    """Return (ln odds, delta)-DP."""
    return ApproxDP(logarithm(odds), delta) if delta else PureDP(logarithm(odds))


def related(left: object, right: object) -> bool:
    """Say that any two data sets are related: the bits 0 and 1."""
    return left in (0, 1) and right in (0, 1)


def rr(odds: Fraction, delta: Fraction = ZERO) -> Part:
    """Return RR_(ln odds, delta): one pair of bits, one answer."""
    return Part("RR", RandomizedResponse(odds, delta), private(odds, delta), single_pair(related))


def irr(odds: Fraction, delta: Fraction = ZERO) -> Part:
    """Return IRR_(ln odds, delta): a pair of bits first, then q*; the first pair decides all."""
    machine = InteractiveRandomizedResponse(odds, delta)
    static = StaticDataSet(related)
    return Part("IRR", machine, private(odds, delta), static, (*BIT_PAIRS, (ASK, ASK)))


def composed() -> Enumerated:
    """Return the product's concurrent composition with all outcomes of each step enumerated."""
    return Enumerated(ConcurrentComposition())


def sent(relation: Relation, parts: Sequence[Part], indices: int) -> Verified:
    """Return the moves against a composition behind V[relation]; queries go to the first `indices` mechanisms."""
    queries = dict.fromkeys(pair for part in parts for pair in part.queries)
    creations = dict.fromkeys(part.create for part in parts)
    return behind(relation, creations, queries, indices)


def known(create: Create) -> bool:
    """Say that the parts' claims are true ([HSV] Def 4.5 iv); the tests check every claim exactly."""
    return isinstance(create.mechanism, Lawful)


@dataclass(frozen=True, slots=True)
class OneBitDiffers:
    """Any number of pairs of bits, of which one may differ ([HSV] Def 3.3 for streams of bits)."""

    left: int = 1

    @property
    def first_pair_consistent(self) -> bool:
        return False

    def accept(self, left: Any, right: Any) -> "OneBitDiffers | None":
        if not related(left, right) or left == right:
            return self if related(left, right) else None
        return OneBitDiffers(self.left - 1) if self.left else None


Amount: TypeAlias = Fraction | float  # inf where there is no bound

DIGITS = 10**30
ROUNDING = Fraction(1, 10**25)
TIGHT = Fraction(1, 10**9)  # smaller differences count as equal
ORDERS = (2, 3, 5)
EPSILONS = (Fraction(1, 2), Fraction(1), Fraction(3, 2), Fraction(2))


class Verdict(StrEnum):
    """The exact worst case beside the booked amount; VIOLATED only where it is certainly above (`ROUNDING`)."""

    EQUAL = "equal"
    WITHIN = "within"
    CUT = "within the cut"  # the noise left out could hide at most the exact figure shown
    VIOLATED = "VIOLATED"


@dataclass(frozen=True, slots=True)
class Comparison:
    """`quantity` (epsilon or delta), booked and exact.

    Where a measure promises several amounts, this is the worst comparison; `at` names it, such as "order 2".
    """

    quantity: str
    at: str
    booked: Fraction
    exact: Amount
    verdict: Verdict


def compare(measure: Measure, instance: Instance) -> Comparison:
    """Compare `measure`, booked for `instance`, with the exact worst case over all adaptive adversaries.

    | booked | compared with |
    |---|---|
    | epsilon-DP | ln of the largest ratio of a transcript (`worst_ratio`) |
    | (epsilon, delta)-DP | `exact_delta` at epsilon |
    | (alpha, epsilon)-RDP, curves; rho-zCDP and tCDP at some whole orders | `exact_moment` |
    | mu-GDP | its delta at some epsilons, each with `exact_delta` |
    """
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
    """Compare a machine with cut noise: delta lies between two bounds; VIOLATED if the lower bound is above."""
    stated = differential_privacy(measure)
    machine, pairs, rounds = instance.machine, instance.pairs, instance.rounds
    found = delta_bracket(machine, pairs, ratio(stated.epsilon), rounds)
    if found.lower > stated.delta + ROUNDING:
        verdict, exact = Verdict.VIOLATED, found.lower
    else:
        verdict, exact = Verdict.CUT, found.upper
    return Comparison("delta", "", stated.delta, exact, verdict)
