"""Adaptively chosen parameters through one filter ([HSV] Thm 12.4; Cor 13.8 for RDP and zCDP, Cor 14.10 for GDP).

The filter's promise holds for all that it admits. The filter must be proven for concurrent continual mechanisms,
and it must admit the parts: their costs fit into its capacity.
"""

from stream_dp.accounting.filters.concurrent import proven
from stream_dp.accounting.filters.filter import Filter, Spend
from stream_dp.accounting.rules.rule import Premises, Rule, same_neighbors
from stream_dp.accounting.situations import Filtered
from stream_dp.core.derivation import Condition
from stream_dp.core.guarantee import Measure
from stream_dp.errors import BudgetRefused, NotDerivable


def _standing(filter_: Filter) -> Condition:
    name = "proven for concurrent continual mechanisms"
    try:
        standing = proven(filter_)
    except NotDerivable as refusal:
        return Condition(name, False, str(refusal))
    limit = f", if {standing.condition}" if standing.condition else ""
    return Condition(name, True, f"{filter_.name} filter: {standing.source}{limit}")


def _admitted(premises: Premises, filter_: Filter) -> Condition:
    used = Spend()
    try:
        for part in premises:
            like = part.guarantee
            entry = filter_.entry(part.subject, like.measure, part.rule, finite=like.finite)
            used = used + filter_.cost(entry)
    except BudgetRefused as refusal:
        return Condition("admitted", False, str(refusal))
    holds = used.within(filter_.capacity)
    return Condition(
        "admitted",
        holds,
        f"the {len(premises)} part(s) {'fit into' if holds else 'exceed'} the filter's capacity",
    )


def _conditions(premises: Premises, situation: Filtered) -> tuple[Condition, ...]:
    one = situation.filter
    return _standing(one), _admitted(premises, one), same_neighbors(premises)


def _measure(_: Premises, situation: Filtered) -> Measure:
    return situation.filter.promise


filtered = Rule("filter composition", "[HSV] Thm 12.4", _conditions, _measure)
