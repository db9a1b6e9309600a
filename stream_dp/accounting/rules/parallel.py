"""k-sparse parallel composition of pure continual mechanisms ([HSV] Def 5.1, Cor 5.5).

Any number of pure epsilon-DP mechanisms may be created; where the two streams differ for at most k of them,
the whole is k * epsilon-DP. For (epsilon, delta) this is false with the largest delta ([HSV] Thm 5.2), so this rule
takes pure premises only.
"""

from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Guarantee, PureDP


def parallel_pure(subject: str, premise: Derivation, k: int, why: str) -> Derivation:
    """Copies of `premise`, at most `k` of which one event can touch (`why` says so): k times its epsilon.

    Raises:
        NotDerivable: the premise is not pure, or k < 1.
    """
    pure = isinstance(premise.guarantee.measure, PureDP)
    conditions = (
        Condition(
            "pure", pure, "every copy is pure DP" if pure else "[HSV] Thm 5.2 forbids delta > 0"
        ),
        Condition(f"{k}-sparse", k >= 1, why),
    )
    epsilon = premise.guarantee.measure.epsilon * max(k, 0)
    guarantee = Guarantee(PureDP(epsilon), premise.guarantee.neighbors)
    return Derivation(
        subject,
        guarantee,
        f"{k}-sparse parallel composition",
        "[HSV] Cor 5.5",
        conditions,
        (premise,),
    )
