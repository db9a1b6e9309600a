"""Filters ([HSV] Thm 12.4, Cor 13.8): creations chosen adaptively, through the product's own ledger (Def 12.2)."""

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

from stream_dp.accounting.amounts import cost_units, exact
from stream_dp.accounting.conversions import pure_to_renyi
from stream_dp.accounting.filters.approximate import TightApproximateFilter
from stream_dp.accounting.filters.basic import BasicFilter
from stream_dp.accounting.filters.filter import Filter
from stream_dp.accounting.filters.gaussian import GaussianFilter
from stream_dp.accounting.filters.pure import PureFilter
from stream_dp.accounting.filters.renyi import RenyiFilter
from stream_dp.accounting.filters.zcdp import ZCDPFilter
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.situations import Filtered
from stream_dp.core.guarantee import PureDP, RenyiDP
from stream_dp.verify.exact_checks.instance import (
    ZERO,
    Instance,
    Part,
    composed,
    known,
    logarithm,
    rr,
    sent,
)
from stream_dp.verify.games.ledger_filter import LedgerFilter
from stream_dp.verify.relations.compositions import filtered

TWO, THREE, TENTH = Fraction(2), Fraction(3), Fraction(1, 10)
ORDER, SLACK = Fraction(2), Fraction(2, 5)
MORE = 2
Kind: TypeAlias = Fraction | tuple[Fraction, Fraction]  # odds, and a delta where there is one


def behind_ledger(
    words: str, filter_: Filter, kinds: Sequence[Kind], admitted: Sequence[Kind]
) -> Instance:
    """Return RR of these odds and deltas, as many as the ledger admits; `admitted` is a longest sequence of them.

    The game allows `MORE` creations than that, so that a ledger that admits too many would be detected.
    """
    parts = tuple(_part(kind) for kind in kinds)
    relation = filtered(LedgerFilter(Ledger.under(filter_)), truth=known)
    most = len(admitted) + MORE
    return Instance(
        words,
        tuple(_part(kind).leaf for kind in admitted),
        Filtered("asked for", filter_),
        composed(),
        sent(relation, parts, most),
        2 * most,
    )


def _part(kind: Kind) -> Part:
    return rr(*kind) if isinstance(kind, tuple) else rr(kind)


def admitted() -> tuple[Instance, ...]:
    """Return the instances of the filter rule: filters that take DP, proven for concurrent mechanisms."""
    both = exact(cost_units(logarithm(THREE)) + cost_units(logarithm(TWO)))
    at_order = pure_to_renyi(PureDP(logarithm(THREE)), ORDER)
    twice = RenyiDP(ORDER, 2 * exact(cost_units(at_order.epsilon)))
    return (
        behind_ledger(
            "pure filter of ln 6; RR of ln 2 or ln 3, by past answers",
            PureFilter.of(both), (THREE, TWO), (THREE, TWO),
        ),
        behind_ledger(
            "basic filter of ln 6, delta 0.1; RR of ln 2 or (ln 3, 0.1), by past answers",
            BasicFilter.of(both, TENTH), ((THREE, TENTH), TWO), ((THREE, TENTH), TWO),
        ),
        behind_ledger(
            "tight approximate filter of 1, delta 0.4; RR of ln 2 or ln 3",
            TightApproximateFilter.of(Fraction(1), SLACK, ZERO), (TWO, THREE), (TWO,) * 3,
        ),
        behind_ledger(
            "zCDP filter of 0.6; RR of ln 2 or ln 3",
            ZCDPFilter.of(Fraction(3, 5)), (TWO, THREE), (TWO,) * 2,
        ),
        behind_ledger(
            "GDP filter of 1.5; RR of ln 2 or ln 3, each at its mu",
            GaussianFilter.of(Fraction(3, 2)), (TWO, THREE), (TWO,) * 3,
        ),
        behind_ledger(
            "RDP filter at order 2, two of RR(ln 3)", RenyiFilter.of(twice), (THREE, TWO), (THREE,) * 2,
        ),
    )  # fmt: skip
