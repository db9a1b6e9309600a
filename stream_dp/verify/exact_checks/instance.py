"""An instance: a composition small enough to play against every adaptive adversary, with the derivation for it.

`compare` compares the amount that a rule books with the exact worst case. Rules: a part's claim holds for its machine
(the tests check every claim exactly). This file knows no composition rule.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any, ClassVar

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
from stream_dp.verify.exact.exact_delta import (
    Amount,
    delta_bracket,
    exact_delta,
    exact_moment,
    worst_ratio,
)
from stream_dp.verify.exact.finite import BIT_PAIRS, FiniteMachine, Pairs
from stream_dp.verify.exact.randomized_response import (
    ASK,
    InteractiveRandomizedResponse,
    RandomizedResponse,
)
from stream_dp.verify.relations import StaticDataSet, single_pair

ADD = Neighbors.ADD_REMOVE
ZERO = Fraction(0)


def claimed(
    name: str,
    measure: Measure,
    relation: Neighbors = ADD,
    *,
    finite: bool = False,
    fresh: bool = False,
) -> Derivation:
    """Return a part with a claim that holds for it."""
    guarantee = Guarantee(measure, relation, finite=finite, fresh=fresh)
    return leaf(name, guarantee, "verify.exact_checks")


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
        return claimed(self.name, self.measure, finite=True)

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
    return behind(relation, dict.fromkeys(part.create for part in parts), queries, indices)


def game(
    words: str,
    situation: Situation,
    relation: Relation,
    parts: Sequence[Part],
    indices: int,
    rounds: int,
    premises: Sequence[Part] | None = None,
) -> Instance:
    """Return an instance that plays the product's composition, `parts` and `indices` as in `sent`.

    The rule prices `premises`, by default the parts.
    """
    leaves = tuple(part.leaf for part in premises or parts)
    pairs = sent(relation, parts, indices)
    return Instance(words, leaves, situation, composed(), pairs, rounds)


def known(create: Create) -> bool:
    """Say that the parts' claims are true ([HSV] Def 4.5 iv); the tests check every claim exactly."""
    return isinstance(create.mechanism, Lawful)


@dataclass(frozen=True, slots=True)
class OneBitDiffers:
    """Any number of pairs of bits, of which one may differ ([HSV] Def 3.3 for streams of bits)."""

    first_pair_consistent: ClassVar[bool] = False
    left: int = 1

    def accept(self, left: Any, right: Any) -> "OneBitDiffers | None":
        if not related(left, right) or left == right:
            return self if related(left, right) else None
        return OneBitDiffers(self.left - 1) if self.left else None


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
    if points := _points(measure):
        return worst_comparison([_renyi(point, instance) for point in points])
    if isinstance(measure, GaussianDP):
        return worst_comparison(
            [
                _delta(e, gaussian_delta(measure, e), instance, f"epsilon {float(e):g}")
                for e in EPSILONS
            ]
        )
    stated = differential_privacy(measure)
    if instance.cut or stated.delta:
        return _delta(stated.epsilon, stated.delta, instance)
    exact = _logarithm(worst_ratio(instance.machine, instance.pairs, instance.rounds))
    return _comparison("epsilon", "", stated.epsilon, exact)


def _points(measure: Measure) -> Sequence[RenyiDP]:
    """Return the orders at which the measure is compared, with its epsilon there; none for (epsilon, delta) and GDP."""
    match measure:
        case RenyiDP():
            return (measure,)
        case RenyiCurve(points):
            return points
        case ZCDP(rho):
            return [RenyiDP(Fraction(a), rho * a) for a in ORDERS]
        case TruncatedZCDP(rho, omega):
            return [RenyiDP(Fraction(a), rho * a) for a in ORDERS if a < omega]
        case _:
            return ()


def ratio(epsilon: Fraction) -> Fraction:
    """Return e^epsilon, rounded down to 30 digits; the exact delta changes by less than that."""
    exact = Interval.of(epsilon).exp().lower
    return max(Fraction(math.floor(exact * DIGITS), DIGITS), Fraction(1))


def _logarithm(value: Amount) -> Amount:
    return math.inf if isinstance(value, float) else Interval.of(value).ln().lower


def _comparison(quantity: str, at: str, booked: Fraction, exact: Amount) -> Comparison:
    tight = Verdict.EQUAL if exact > booked - TIGHT else Verdict.WITHIN
    verdict = Verdict.VIOLATED if exact > booked + ROUNDING else tight
    return Comparison(quantity, at, booked, exact, verdict)


def _delta(epsilon: Fraction, booked: Fraction, instance: Instance, at: str = "") -> Comparison:
    """Compare a delta at an epsilon; where noise is cut, it is VIOLATED if the exact lower bound is above."""
    played = instance.machine, instance.pairs, ratio(epsilon), instance.rounds
    if not instance.cut:
        return _comparison("delta", at, booked, exact_delta(*played))
    bracket = delta_bracket(*played)
    if bracket.lower > booked + ROUNDING:
        return Comparison("delta", at, booked, bracket.lower, Verdict.VIOLATED)
    return Comparison("delta", at, booked, bracket.upper, Verdict.CUT)


def _renyi(point: RenyiDP, instance: Instance) -> Comparison:
    order = int(point.alpha)
    if order != point.alpha:
        raise ValueError(f"order {point.alpha}: only whole orders can be compared")
    moment = exact_moment(instance.machine, instance.pairs, order, instance.rounds)
    return _comparison("epsilon", f"order {order}", point.epsilon, _logarithm(moment) / (order - 1))


def worst_comparison(comparisons: list[Comparison]) -> Comparison:
    """Return the comparison that is violated, or whose exact figure is nearest to the booked amount."""

    def badness(comparison: Comparison) -> tuple[bool, float]:
        exact, booked = float(comparison.exact), float(comparison.booked)
        return comparison.verdict is Verdict.VIOLATED, exact / booked if booked else exact

    return max(comparisons, key=badness)
