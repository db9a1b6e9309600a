"""Composite mechanisms: the guarantee of the sub-mechanisms is the guarantee of the whole ([HSV] Thm 6.1, Cor 6.6).

The three properties of [HSV] 6.3 are properties of code: taint (destination, response) and two copies on
neighbouring inputs (f to f') are checked by the test suite that the situation names.
"""

from stream_dp.accounting.rules.rule import Premises, Rule, measures
from stream_dp.accounting.situations import Composite
from stream_dp.core.derivation import Condition
from stream_dp.core.guarantee import Measure


def _conditions(premises: Premises, situation: Composite) -> tuple[Condition, ...]:
    checked = f"; checked by {situation.suite}" if situation.suite else ""
    named = bool(situation.suite)
    return (
        Condition("one composition", len(premises) == 1, "all sub-mechanisms are derived together"),
        Condition(
            "destination and response",
            named and bool(situation.destination),
            (situation.destination or "no reason given") + (checked or "; no test suite is named"),
        ),
        Condition(
            "f to f'",
            named and bool(situation.relation),
            (situation.relation or "no reason given") + (checked or "; no test suite is named"),
        ),
    )


def _measure(premises: Premises, _: Composite) -> Measure:
    return measures(premises)[0]


composite = Rule("composite mechanism", "[HSV] Thm 6.1, Cor 6.6", _conditions, _measure)
