"""The class of rules, and side conditions that many rules share.

Rules: a rule first checks its conditions on the evidence of the situation, and computes only where all hold;
otherwise it refuses and names the conditions that fail. This file knows no theorem.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Generic, TypeAlias, TypeVar

from stream_dp.accounting.amounts import text
from stream_dp.accounting.conversions import renyi_epsilon, truncated_epsilon, zcdp_epsilon
from stream_dp.accounting.gaussian_curve import gaussian_to_approx
from stream_dp.accounting.situations import Composite, Situation
from stream_dp.core.derivation import Condition, Derivation, require
from stream_dp.core.guarantee import (
    NAMES,
    ZCDP,
    ApproxDP,
    GaussianDP,
    Guarantee,
    Measure,
    ProbabilisticDP,
    PureDP,
    RenyiCurve,
    RenyiDP,
    TruncatedZCDP,
    differential_privacy,
    is_pure,
)
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.errors import NotDerivable

DISCRETE = Condition("discrete answers", True, "arrays of integers; checked by tests/conformance")


def leaf(
    subject: str,
    guarantee: Guarantee,
    source: str,
    conditions: tuple[Condition, ...] = (),
) -> Derivation:
    """Return a derivation of a mechanism with its own proof, `source`: it states `guarantee` for `subject`.

    All composition theorems of [HSV] require discrete answers (sections 4, 5); answers here are arrays of integers.
    """
    return Derivation(subject, guarantee, "proven mechanism", source, (*conditions, DISCRETE))


Premises: TypeAlias = tuple[Derivation, ...]
S = TypeVar("S", bound=Situation)


@dataclass(frozen=True, slots=True)
class Rule(Generic[S]):
    """A theorem: `conditions` on premises and situation, and the `measure` it gives where they hold.

    `members`: how many steps of the premises' neighbours the result covers. `relation` and `users`: the neighbours
    of the result, where they are not the premises'. `finite`: whether the result has finite communication, as far
    as the rule's theorem preserves it; by default it does not, as for parts that are created without bound.

    The result is fresh (`Guarantee.fresh`) where all premises are: after a history of equal pairs, a rule's parts are
    parts of the same measures in the same situation, so the rule holds for the rest.
    """

    name: str
    source: str
    conditions: Callable[[Premises, S], tuple[Condition, ...]]
    measure: Callable[[Premises, S], Measure]
    members: Callable[[S], int] = lambda _: 1
    relation: Neighbors | None = None
    finite: Callable[[Premises, S], bool] = lambda *_: False
    users: Callable[[S], Users | None] = lambda _: None

    def __call__(self, premises: Premises, situation: S) -> Derivation:
        """Derive the guarantee of the premises in this situation by this theorem.

        Raises:
            NotDerivable: there is no premise, or a condition does not hold; the message names it.
        """
        if not premises:
            raise NotDerivable(
                f"{situation.subject}: nothing to compose; declare at least one series"
            )
        conditions = self.conditions(premises, situation)
        require(situation.subject, self.name, self.source, conditions)
        like = premises[0].guarantee
        measure, members = self.measure(premises, situation), self.members(situation)
        guarantee = Guarantee(
            measure,
            self.relation or like.neighbors,
            like.group * members,
            self.finite(premises, situation),
            self.users(situation) or like.users,
            all(premise.guarantee.fresh for premise in premises),
        )
        return Derivation(
            situation.subject, guarantee, self.name, self.source, conditions, premises
        )


def all_finite(premises: Premises, _: object) -> bool:
    """Say whether each part has finite communication; then finitely many parts together have it too."""
    return all(premise.guarantee.finite for premise in premises)


def measures(premises: Premises) -> tuple[Measure, ...]:
    return tuple(premise.guarantee.measure for premise in premises)


def pure_measures(found: tuple[Measure, ...]) -> bool:
    return all(map(is_pure, found))


def pure(premises: Premises, otherwise: str = "a part is not pure DP") -> Condition:
    holds = pure_measures(measures(premises))
    return Condition("pure", holds, "every part is pure DP" if holds else otherwise)


def stated(found: tuple[Measure, ...]) -> Condition:
    if pure_measures(found):
        return Condition("pure", True, "every part is pure DP")
    others = sorted(
        {NAMES[type(m)] for m in found if not isinstance(m, PureDP | ApproxDP | ProbabilisticDP)}
    )
    why = f"a part is {', '.join(others)}" if others else "every part is (epsilon, delta)-DP"
    return Condition("(epsilon, delta)", not others, why)


def same_neighbors(premises: Premises) -> Condition:
    """Check that all parts protect against the same relation: the same users, and groups of the same size."""
    found = [p.guarantee for p in premises]
    relations = {(g.neighbors, g.group, g.users) for g in found}
    names = sorted({", ".join(filter(None, (str(g.neighbors), g.unit))) for g in found})
    return Condition(
        "same neighbours", len(relations) == 1, f"all parts protect under {' and under '.join(names)}"
    )  # fmt: skip


def within(deltas: Fraction, granted: Fraction) -> Condition:
    holds = deltas <= granted
    why = (
        f"the parts' deltas come to {text(deltas)}, {text(granted)} is granted"
        if deltas or granted
        else "no part has one"
    )
    return Condition("delta", holds, why)


def epsilon_of(measure: Measure) -> Fraction:
    return differential_privacy(measure).epsilon


def delta_of(measure: Measure) -> Fraction:
    return differential_privacy(measure).delta


def dp(epsilon: Fraction, delta: Fraction) -> Measure:
    """Return (epsilon, delta)-DP, as pure DP where delta is 0 (NotDerivable: delta reaches 1)."""
    if delta >= 1:
        raise NotDerivable("delta reaches 1: nothing would be promised")
    return ApproxDP(epsilon, delta) if delta else PureDP(epsilon)


def rests_on(derivation: Derivation, rule: str) -> bool:
    """Say whether the whole derivation rests on the rule of this name."""
    if derivation.rule == rule:
        return True
    return bool(derivation.premises) and all(rests_on(each, rule) for each in derivation.premises)


def one_event_each(name: str, premises: Premises) -> Condition:
    """Check that the premises are for one event under add_remove, each step in its own tick."""
    protected = {(p.guarantee.neighbors, p.guarantee.unit) for p in premises}
    holds = protected == {(Neighbors.ADD_REMOVE, "")}
    return Condition(name, holds, "each is a step under add_remove, in a tick of its own")


# Composites ([HSV] Thm 6.1, Cor 6.6). The three properties of [HSV] 6.3 are properties of code: the suite that the
# situation names checks taint (destination, response) and two copies on neighbouring inputs (f to f').


def _conditions(premises: Premises, situation: Composite) -> tuple[Condition, ...]:
    checked = f"; checked by {situation.suite}" if situation.suite else ""
    named = bool(situation.suite)
    return (
        Condition("one composition", len(premises) == 1, "all sub-mechanisms are derived together"),
        Condition(
            "destination and response",
            named and bool(situation.destination),
            (situation.destination or "no reason given") + (checked or "; no test suite is named"),
        ),
        Condition(
            "f to f'",
            named and bool(situation.relation),
            (situation.relation or "no reason given") + (checked or "; no test suite is named"),
        ),
    )


def _measure(premises: Premises, _: Composite) -> Measure:
    return measures(premises)[0]


composite = Rule("composite mechanism", "[HSV] Thm 6.1, Cor 6.6", _conditions, _measure)


DELTALESS = (ZCDP, TruncatedZCDP, RenyiDP, RenyiCurve, GaussianDP)
RENYI, GAUSSIAN = "Canonne, Kamath, Steinke 2020, Prop. 12", "Dong, Roth, Su 2022, Cor. 2.13"


def price(measure: Measure, delta: Fraction) -> Fraction | None:
    """Return the epsilon of the measure at this delta, rounded up; None where it has no epsilon there.

    zCDP, tCDP and RDP: Canonne, Kamath, Steinke 2020 (arXiv 2004.00010), Prop. 12, at the best order; a curve holds
    at each of its orders. GDP: Dong, Roth, Su 2022, Cor. 2.13.
    """
    if isinstance(measure, DELTALESS) and delta == 0:
        return None
    match measure:
        case ZCDP():
            return zcdp_epsilon(measure, delta)
        case TruncatedZCDP():
            return truncated_epsilon(measure, delta)
        case RenyiDP():
            return renyi_epsilon(measure, delta)
        case RenyiCurve(points):
            return min(renyi_epsilon(point, delta) for point in points)
        case GaussianDP():
            return gaussian_to_approx(measure, delta).epsilon
        case _:
            stated = differential_privacy(measure)
            return stated.epsilon if stated.delta <= delta else None


def at_delta(premise: Derivation, delta: Fraction) -> Derivation:
    """Return `premise` as (epsilon, delta)-DP; unchanged where it states an epsilon already.

    Raises:
        NotDerivable: the premise has no epsilon at this delta.
    """
    measure = premise.guarantee.measure
    if not isinstance(measure, DELTALESS):
        return premise
    epsilon = price(measure, delta)
    granted = Condition(
        "delta", epsilon is not None, f"{text(delta)} is granted" if delta else "none is granted"
    )
    like = premise.guarantee
    return Derivation(
        premise.subject,
        replace(like, measure=ApproxDP(epsilon or Fraction(0), delta)),
        f"{NAMES[type(measure)]} at a delta",
        GAUSSIAN if isinstance(measure, GaussianDP) else RENYI,
        (granted,),
        (premise,),
    )
