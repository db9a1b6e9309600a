"""The class of rules, and side conditions that many rules share.

Rules: a rule first checks its conditions on the evidence of the situation, and computes only where all hold;
otherwise it refuses and names the conditions that fail. This file knows no theorem.
"""

from collections.abc import Callable, Iterable
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
    Protected,
    PureDP,
    RenyiCurve,
    RenyiDP,
    TruncatedZCDP,
    differential_privacy,
    is_pure,
)
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.errors import NotDerivable

DISCRETE = Condition(
    "discrete answers", True, "the answers are arrays of integers; checked by tests/conformance"
)


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
    of the result, where they are not the premises'. `finite`: whether the result has finite communication, as far as
    the rule's theorem preserves it; by default it does not, as for parts that are created without bound. `currency` as
    in `Derivation`.

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
    currency: Callable[[S], str] = lambda _: ""

    def __call__(self, premises: Premises, situation: S) -> Derivation:
        """Derive the guarantee of the premises in this situation by this theorem.

        Raises:
            NotDerivable: there is no premise, or a condition does not hold; the message names it.
        """
        subject = situation.subject
        if not premises:
            raise NotDerivable(
                f"{subject}: there is nothing to compose; declare at least one series"
            )
        conditions = self.conditions(premises, situation)
        require(subject, self.name, self.source, conditions)
        like = premises[0].guarantee
        guarantee = Guarantee(
            self.measure(premises, situation),
            self.relation or like.neighbors,
            like.group * self.members(situation),
            self.finite(premises, situation),
            self.users(situation) or like.users,
            all(premise.guarantee.fresh for premise in premises),
        )
        return Derivation(
            subject, guarantee, self.name, self.source, conditions, premises,
            currency=self.currency(situation),
        )  # fmt: skip


def all_finite(premises: Premises, _: object) -> bool:
    """Say whether each part has finite communication; then finitely many parts together have it too."""
    return all(premise.guarantee.finite for premise in premises)


def measures(premises: Premises) -> tuple[Measure, ...]:
    return tuple(premise.guarantee.measure for premise in premises)


def total(amounts: Iterable[Fraction]) -> Fraction:
    return sum(amounts, Fraction(0))


DP = (PureDP, ApproxDP, ProbabilisticDP)


def pure_measures(parts: tuple[Measure, ...]) -> bool:
    return all(map(is_pure, parts))


def pure(premises: Premises, otherwise: str = "a part is not pure DP") -> Condition:
    holds = pure_measures(measures(premises))
    return Condition("pure", holds, "every part is pure DP" if holds else otherwise)


def stated(parts: tuple[Measure, ...]) -> Condition:
    if pure_measures(parts):
        return Condition("pure", True, "every part is pure DP")
    others = ", ".join(sorted({NAMES[type(m)] for m in parts if not isinstance(m, DP)}))
    why = f"a part is {others}" if others else "every part is (epsilon, delta)-DP"
    return Condition("(epsilon, delta)", not others, why)


def same_neighbors(premises: Premises) -> Condition:
    """Check that all parts protect against the same relation: the same users, and groups of the same size."""
    protected = {p.guarantee.protected for p in premises}
    why = f"all parts protect under {' and under '.join(sorted(map(str, protected)))}"
    return Condition("same neighbours", len(protected) == 1, why)


def within(deltas: Fraction, granted: Fraction) -> Condition:
    why = (
        f"the parts' deltas add up to {text(deltas)}, and a delta of {text(granted)} is granted"
        if deltas or granted
        else "no part has a delta"
    )
    return Condition("delta", deltas <= granted, why)


def epsilon_of(measure: Measure) -> Fraction:
    return differential_privacy(measure).epsilon


def delta_of(measure: Measure) -> Fraction:
    return differential_privacy(measure).delta


def dp(epsilon: Fraction, delta: Fraction) -> Measure:
    """Return (epsilon, delta)-DP, as pure DP where delta is 0 (NotDerivable: delta reaches 1)."""
    if delta >= 1:
        raise NotDerivable("delta reaches 1, which guarantees nothing")
    return ApproxDP(epsilon, delta) if delta else PureDP(epsilon)


def rests_on(derivation: Derivation, rule: str) -> bool:
    """Say whether the whole derivation rests on the rule of this name."""
    premises = derivation.premises
    return derivation.rule == rule or (
        bool(premises) and all(rests_on(premise, rule) for premise in premises)
    )


def one_event_each(name: str, premises: Premises) -> Condition:
    """Check that the premises are for one event under add_remove, each step in its own tick."""
    holds = {p.guarantee.protected for p in premises} == {Protected(Neighbors.ADD_REMOVE)}
    return Condition(
        name, holds, "each event more is one step under add_remove, in a tick of its own"
    )


# Composites ([HSV] Thm 6.1, Cor 6.6). The three properties of [HSV] 6.3 are properties of code: the suite that the
# situation names checks taint (destination, response) and two copies on neighbouring inputs (f to f').
def _composite(premises: Premises, situation: Composite) -> tuple[Condition, ...]:
    suite = situation.suite
    checked = f"; checked by {suite}" if suite else "; no test suite is named"
    reasons = {"destination and response": situation.destination, "f to f'": situation.relation}
    return (
        Condition(
            "one composition",
            len(premises) == 1,
            "all sub-mechanisms are derived in one composition",
        ),
        *(
            Condition(name, bool(suite and why), (why or "no reason given") + checked)
            for name, why in reasons.items()
        ),
    )


composite: Rule[Composite] = Rule(
    "composite mechanism",
    "[HSV] Thm 6.1, Cor 6.6",
    _composite,
    lambda premises, _: premises[0].guarantee.measure,
)


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
            return measure.epsilon if measure.delta <= delta else None


def at_delta(premise: Derivation, delta: Fraction) -> Derivation:
    """Return `premise` as (epsilon, delta)-DP; unchanged where it states an epsilon already.

    Raises:
        NotDerivable: the premise has no epsilon at this delta.
    """
    like = premise.guarantee
    if not isinstance(like.measure, DELTALESS):
        return premise
    epsilon = price(like.measure, delta)
    why = f"{text(delta)} is granted" if delta else "none is granted"
    return Derivation(
        premise.subject,
        replace(like, measure=ApproxDP(epsilon or Fraction(0), delta)),
        f"{NAMES[type(like.measure)]} at a delta",
        GAUSSIAN if isinstance(like.measure, GaussianDP) else RENYI,
        (Condition("delta", epsilon is not None, why),),
        (premise,),
    )
