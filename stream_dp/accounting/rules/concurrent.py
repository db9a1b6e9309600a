"""Concurrent composition of fixed mechanisms with fixed parameters ([HSV] Thm 4.10), pure case.

For pure mechanisms the optimal composition of fixed epsilons against an adversary that may see everything is
their sum: RR_(e1) x RR_(e2) attains it.
"""

from fractions import Fraction

from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.errors import NotDerivable


def concurrent_pure(subject: str, premises: tuple[Derivation, ...]) -> Derivation:
    """All `premises` run at once on the same stream: pure DP at the sum of their epsilons.

    Raises:
        NotDerivable: no premise, a premise that is not pure, or premises with different neighbours.
    """
    if not premises:
        raise NotDerivable(f"{subject}: nothing to compose; declare at least one series")
    relations = {p.guarantee.neighbors for p in premises}
    pure = all(isinstance(p.guarantee.measure, PureDP) for p in premises)
    conditions = (
        Condition("fixed", True, "mechanisms and parameters are fixed before the first event"),
        Condition("pure", pure, "every part is pure DP" if pure else "a part is not pure DP"),
        Condition(
            "same neighbours",
            len(relations) == 1,
            f"all parts protect under {', '.join(sorted(relations))}",
        ),
    )
    epsilon = sum((p.guarantee.measure.epsilon for p in premises), Fraction(0))
    guarantee = Guarantee(PureDP(epsilon), premises[0].guarantee.neighbors)
    return Derivation(
        subject, guarantee, "concurrent composition", "[HSV] Thm 4.10", conditions, premises
    )
