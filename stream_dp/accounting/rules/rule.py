"""The class of rules, and side conditions that many rules share.

Rules: a rule first checks its conditions on the evidence of the situation, and computes only where all hold;
otherwise it refuses and names the conditions that fail. This file knows no theorem.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeAlias, TypeVar

from stream_dp.accounting.amounts import text
from stream_dp.accounting.situations import Situation
from stream_dp.core.derivation import Condition, Derivation, require
from stream_dp.core.guarantee import (
    NAMES,
    ApproxDP,
    Guarantee,
    Measure,
    ProbabilisticDP,
    PureDP,
    differential_privacy,
)
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.users import Users
from stream_dp.errors import NotDerivable

Premises: TypeAlias = tuple[Derivation, ...]
S = TypeVar("S", bound=Situation)


@dataclass(frozen=True, slots=True)
class Rule(Generic[S]):
    """A theorem: `conditions` on premises and situation, and the `measure` it gives where they hold.

    `members`: how many steps of the premises' neighbours the result covers. `relation` and `users`: the neighbours
    of the result, where they are not the premises'. `finite`: whether the result has finite communication, as far
    as the rule's theorem preserves it; by default it does not, as for parts that are created without bound.
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
        )
        return Derivation(
            situation.subject, guarantee, self.name, self.source, conditions, premises
        )


def all_finite(premises: Premises, _: object) -> bool:
    """Say whether each part has finite communication; then finitely many parts together have it too."""
    return all(premise.guarantee.finite for premise in premises)


def measures(premises: Premises) -> tuple[Measure, ...]:
    """Return the measures of the premises."""
    return tuple(premise.guarantee.measure for premise in premises)


def pure_measures(found: tuple[Measure, ...]) -> bool:
    """Say whether all measures are pure DP; (epsilon, 0)-DP counts."""
    return all(isinstance(m, PureDP | ApproxDP | ProbabilisticDP) and m.delta == 0 for m in found)


def pure(premises: Premises, otherwise: str = "a part is not pure DP") -> Condition:
    """Check that every part is pure DP."""
    holds = pure_measures(measures(premises))
    return Condition("pure", holds, "every part is pure DP" if holds else otherwise)


def stated(found: tuple[Measure, ...]) -> Condition:
    """Check that every part states an epsilon and a delta."""
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
    """Check that the parts' own deltas fit into the granted delta."""
    holds = deltas <= granted
    why = (
        f"the parts' deltas come to {text(deltas)}, {text(granted)} is granted"
        if deltas or granted
        else "no part has one"
    )
    return Condition("delta", holds, why)


def epsilon_of(measure: Measure) -> Fraction:
    """Return the measure's epsilon, as (epsilon, delta)-DP."""
    return differential_privacy(measure).epsilon


def delta_of(measure: Measure) -> Fraction:
    """Return the measure's delta, as (epsilon, delta)-DP."""
    return differential_privacy(measure).delta


def dp(epsilon: Fraction, delta: Fraction) -> Measure:
    """Return (epsilon, delta)-DP, as pure DP where delta is 0.

    Raises:
        NotDerivable: delta reaches 1, so nothing is promised.
    """
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
