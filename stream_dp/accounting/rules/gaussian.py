"""Concurrent composition in Gaussian DP: the squares of mu add up ([HSV] Cor 14.7; 14.8 if first-pair consistent).

A part that is GDP itself must have finite communication ([HSV] Def 14.4: finitely many messages and answers, and a
last step). Unbounded noise without clamping, and a mechanism without a horizon, are refused; zCDP has no such limit. A
pure part does not need it: it is a post-processing of one randomized response ([HSV] Lemma 4.7), whose mu is
`pure_to_gaussian`.
"""

from fractions import Fraction

from stream_dp.accounting.amounts import Interval
from stream_dp.accounting.gaussian_curve import pure_to_gaussian
from stream_dp.accounting.rules.fixed import fixed_before, paid
from stream_dp.accounting.rules.parallel import (
    counted_finite,
    first_pair_consistent,
    sparse,
    worst,
)
from stream_dp.accounting.rules.rule import (
    Premises,
    Rule,
    all_finite,
    measures,
    pure_measures,
    same_neighbors,
)
from stream_dp.accounting.situations import Fixed, Parallel
from stream_dp.core.derivation import Condition
from stream_dp.core.guarantee import GaussianDP, Measure, PureDP, differential_privacy


def finite_communication(premises: Premises) -> Condition:
    others = [p for p in premises if not pure_measures(measures((p,)))]
    endless = [p.subject for p in others if not p.guarantee.finite]
    why = (
        f"not stated by {endless[0]}: clamp the answers to a finite set and declare a horizon (Def 14.4)"
        if endless
        else "every part that is GDP itself has a horizon, and messages and answers from finite sets"
    )
    return Condition("finite communication", not endless, why)


def _mu(measure: Measure) -> Fraction | None:
    if isinstance(measure, GaussianDP):
        return measure.mu
    if pure_measures((measure,)):
        return pure_to_gaussian(PureDP(differential_privacy(measure).epsilon)).mu
    return None


def _gaussian(found: tuple[Measure, ...]) -> Condition:
    known = all(isinstance(m, GaussianDP) or pure_measures((m,)) for m in found)
    some = any(isinstance(m, GaussianDP) for m in found)
    why = (
        "every part is GDP"
        if known and some
        else "no part is GDP"
        if known
        else "a part is neither GDP nor pure DP"
    )
    return Condition("GDP", known and some, why)


def _root(found: list[Fraction]) -> Measure:
    if len(found) == 1:
        return GaussianDP(found[0])
    squares = sum((mu**2 for mu in found), Fraction(0))
    return GaussianDP(Interval.of(squares).sqrt().upper)


def _mus(found: tuple[Measure, ...]) -> list[Fraction]:
    return [mu for measure in found if (mu := _mu(measure)) is not None]


def _fixed(premises: Premises, situation: Fixed) -> tuple[Condition, ...]:
    return (
        fixed_before(premises, situation),
        _gaussian(paid(premises, situation)),
        finite_communication(premises),
        same_neighbors(premises),
    )


def _sum(premises: Premises, situation: Fixed) -> Measure:
    return _root(_mus(paid(premises, situation)))


def _first_pair(premises: Premises, situation: Parallel) -> tuple[Condition, ...]:
    return (
        _gaussian(measures(premises)),
        sparse(premises, situation),
        finite_communication(premises),
        first_pair_consistent(situation, "[HSV] Thm 5.2 as f-DP"),
        same_neighbors(premises),
    )


def _touched(premises: Premises, situation: Parallel) -> Measure:
    return _root(worst(_mus(measures(premises)), situation))


gaussian = Rule(
    "concurrent composition in Gaussian DP", "[HSV] Cor 14.7", _fixed, _sum, finite=all_finite
)
gaussian_first_pair = Rule(
    "first-pair consistent parallel composition in Gaussian DP",
    "[HSV] Cor 14.8",
    _first_pair,
    _touched,
    finite=counted_finite,
)
