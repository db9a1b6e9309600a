"""Concurrent composition in Gaussian DP: the squares of mu add up ([HSV] Cor 14.7; 14.8 if first-pair consistent).

Only with finite communication ([HSV] Def 14.4): finitely many queries and answers and a last step. Unbounded noise that
is not clamped, or a mechanism without a horizon, does not have it and is refused; zCDP has no such limit.
"""

from fractions import Fraction

from stream_dp.accounting.directed import Interval
from stream_dp.accounting.rules.fixed import fixed_before, paid
from stream_dp.accounting.rules.rule import Premises, Rule, measures, same_neighbors
from stream_dp.accounting.rules.sparse import first_pair_consistent, sparse, worst
from stream_dp.accounting.situations import Fixed, Parallel
from stream_dp.core.derivation import Condition
from stream_dp.core.guarantee import GaussianDP, Measure


def finite_communication(why: str) -> Condition:
    """The caller says why communication is finite."""
    return Condition(
        "finite communication",
        bool(why),
        why or "not declared: clamp the answers to a finite set and declare a horizon (Def 14.4)",
    )


def _gaussian(found: tuple[Measure, ...]) -> Condition:
    holds = all(isinstance(m, GaussianDP) for m in found)
    return Condition("GDP", holds, "every part is GDP" if holds else "a part is not GDP")


def _root(found: list[Measure]) -> Measure:
    squares = sum((m.mu**2 for m in found if isinstance(m, GaussianDP)), Fraction(0))
    if len(found) == 1 and isinstance(found[0], GaussianDP):
        return found[0]
    return GaussianDP(Interval.of(squares).sqrt().upper)


def _fixed(premises: Premises, situation: Fixed) -> tuple[Condition, ...]:
    return (
        fixed_before(premises, situation),
        _gaussian(paid(premises, situation)),
        finite_communication(situation.finite),
        same_neighbors(premises),
    )


def _sum(premises: Premises, situation: Fixed) -> Measure:
    return _root(list(paid(premises, situation)))


def _first_pair(premises: Premises, situation: Parallel) -> tuple[Condition, ...]:
    return (
        _gaussian(measures(premises)),
        sparse(premises, situation),
        finite_communication(situation.finite),
        first_pair_consistent(situation, "[HSV] Thm 5.2 as f-DP"),
        same_neighbors(premises),
    )


def _touched(premises: Premises, situation: Parallel) -> Measure:
    mus = [m.mu if isinstance(m, GaussianDP) else Fraction(0) for m in measures(premises)]
    return _root([GaussianDP(mu) for mu in worst(mus, situation)])


gaussian = Rule("concurrent composition in Gaussian DP", "[HSV] Cor 14.7", _fixed, _sum)
gaussian_first_pair = Rule(
    "first-pair consistent parallel composition in Gaussian DP", "[HSV] Cor 14.8", _first_pair, _touched
)  # fmt: skip
