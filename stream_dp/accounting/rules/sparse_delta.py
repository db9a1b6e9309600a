"""k-sparse parallel composition with a delta budget ([HSV] Def 5.3, Thm 5.4).

A part may fail with its delta without being touched, so delta' = 1 - prod(1 - delta_j) runs over EVERY creation;
the epsilons count for the k touched ones only. The two combine as 1 - (1 - delta)(1 - delta'), as the proof has it
(the theorem as printed says delta + delta'). Without a bound on the creations delta' is 1, and the rule refuses
(Thm 5.2).
"""

import math
from fractions import Fraction

from stream_dp.accounting.rules.best_fixed import optimum
from stream_dp.accounting.rules.rule import (
    Premises,
    Rule,
    delta_of,
    epsilon_of,
    measures,
    same_neighbors,
    stated,
    within,
)
from stream_dp.accounting.rules.sparse import counted_finite, sparse, worst
from stream_dp.accounting.situations import Parallel
from stream_dp.core.derivation import Condition
from stream_dp.core.guarantee import Measure


def created(premises: Premises, situation: Parallel) -> Fraction:
    """Return delta' over every creation; kinds without a delta may be created without bound."""
    kinds = zip(measures(premises), situation.creations, strict=True)
    return 1 - math.prod(
        ((1 - delta_of(m)) ** n for m, n in kinds if n is not None), start=Fraction(1)
    )


def _conditions(premises: Premises, situation: Parallel) -> tuple[Condition, ...]:
    known, counted = stated(measures(premises)), sparse(premises, situation)
    if not known.holds or not counted.holds:
        return known, counted
    kinds = zip(measures(premises), situation.creations, strict=True)
    endless = any(n is None and delta_of(m) > 0 for m, n in kinds)
    why = (
        "a kind with delta > 0 is created without bound, so 1 - prod(1 - delta_j) reaches 1 ([HSV] Thm 5.2)"
        if endless
        else "every creation is counted, touched or not"
    )
    every = within(created(premises, situation), situation.delta)
    return (
        known,
        counted,
        Condition("delta budget", not endless, why),
        every,
        same_neighbors(premises),
    )


def _measure(premises: Premises, situation: Parallel) -> Measure:
    touched = worst([epsilon_of(m) for m in measures(premises)], situation)
    return optimum(touched, created(premises, situation), situation.delta)


sparse_delta = Rule(
    "sparse parallel composition with a delta budget",
    "[HSV] Thm 5.4",
    _conditions,
    _measure,
    finite=counted_finite,
)
