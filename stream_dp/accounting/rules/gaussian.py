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
from stream_dp.accounting.rules.parallel import counted_finite, data_first, worst
from stream_dp.accounting.rules.rule import (
    Premises,
    Rule,
    all_finite,
    epsilon_of,
    measures,
    pure_measures,
    same_neighbors,
    total,
)
from stream_dp.accounting.situations import Fixed, Parallel
from stream_dp.core.derivation import Condition
from stream_dp.core.guarantee import GaussianDP, Measure, PureDP


def finite_communication(premises: Premises) -> Condition:
    others = [p for p in premises if not pure_measures(measures((p,)))]
    endless = [p.subject for p in others if not p.guarantee.finite]
    why = (
        f"not stated by {endless[0]}: clamp the answers to a finite set and declare a horizon (Def 14.4)"
        if endless
        else "every part that is itself GDP has a horizon, and its messages and answers come from finite sets"
    )
    return Condition("finite communication", not endless, why)


def _gaussian(parts: tuple[Measure, ...]) -> Condition:
    others = tuple(m for m in parts if not isinstance(m, GaussianDP))
    if not pure_measures(others):
        return Condition("GDP", False, "a part is neither GDP nor pure DP")
    some = len(others) < len(parts)
    return Condition("GDP", some, "every part is GDP" if some else "no part is GDP")


def _mus(parts: tuple[Measure, ...]) -> list[Fraction]:
    return [
        m.mu if isinstance(m, GaussianDP) else pure_to_gaussian(PureDP(epsilon_of(m))).mu
        for m in parts
    ]


def _root(mus: list[Fraction]) -> Measure:
    if len(mus) == 1:
        return GaussianDP(mus[0])
    return GaussianDP(Interval.of(total(mu**2 for mu in mus)).sqrt().upper)


gaussian: Rule[Fixed] = Rule(
    "concurrent composition in Gaussian DP",
    "[HSV] Cor 14.7",
    lambda premises, situation: (
        fixed_before(premises, situation),
        _gaussian(paid(premises, situation)),
        finite_communication(premises),
        same_neighbors(premises),
    ),
    lambda premises, situation: _root(_mus(paid(premises, situation))),
    finite=all_finite,
)
gaussian_first_pair: Rule[Parallel] = Rule(
    "first-pair consistent parallel composition in Gaussian DP",
    "[HSV] Cor 14.8",
    lambda premises, situation: data_first(
        premises,
        situation,
        _gaussian(measures(premises)),
        "[HSV] Thm 5.2 as f-DP",
        finite_communication(premises),
    ),
    lambda premises, situation: _root(worst(_mus(measures(premises)), situation)),
    finite=counted_finite,
)
