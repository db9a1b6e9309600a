"""k-sparse parallel composition of pure continual mechanisms ([HSV] Def 5.1, Cor 5.5).

Any number of pure mechanisms may be created; where the two runs differ for at most k of them, the composition costs
what the k most expensive mechanisms cost together: the sum at delta 0, the optimum of RR_(e1,0) x ... x RR_(ek,0)
at a granted delta.
"""

from fractions import Fraction

from stream_dp.accounting.rules.best_fixed import optimum
from stream_dp.accounting.rules.rule import (
    Premises,
    Rule,
    epsilon_of,
    measures,
    pure,
    same_neighbors,
)
from stream_dp.accounting.rules.sparse import counted_finite, sparse, worst
from stream_dp.accounting.situations import Parallel
from stream_dp.core.derivation import Condition
from stream_dp.core.guarantee import Measure


def _conditions(premises: Premises, situation: Parallel) -> tuple[Condition, ...]:
    forbidden = "a part is not pure DP, and [HSV] Thm 5.2 forbids delta > 0 here"
    return pure(premises, forbidden), sparse(premises, situation), same_neighbors(premises)


def _measure(premises: Premises, situation: Parallel) -> Measure:
    touched = worst([epsilon_of(m) for m in measures(premises)], situation)
    return optimum(touched, Fraction(0), situation.delta)


sparse_pure = Rule(
    "sparse parallel composition", "[HSV] Cor 5.5", _conditions, _measure, finite=counted_finite
)
