"""From `privacy:` to the filter that admits everything, and to the ledgers under it.

Rules: one filter, named in the file, admits the series of the first start and everything asked later. Budgets are
stated as (epsilon, delta); zCDP, RDP and GDP filters get the largest budget that implies it. This file knows no
mechanism.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias, cast

from stream_dp.accounting.conversions import renyi_budget, zcdp_budget
from stream_dp.accounting.filters.filter import Filter
from stream_dp.accounting.filters.linear import (
    BASIC,
    OPTIMAL,
    PURE,
    BasicFilter,
    PureFilter,
    RenyiFilter,
)
from stream_dp.accounting.filters.optimal import OptimalFilter
from stream_dp.accounting.filters.squares import GaussianFilter, TightApproximateFilter, ZCDPFilter
from stream_dp.accounting.gaussian_curve import gaussian_budget
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.rules.groups import event_steps
from stream_dp.accounting.rules.rule import DELTALESS
from stream_dp.accounting.subledgers import ALL, Subledgers
from stream_dp.core.box import EVERYTHING, Box
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import ApproxDP, Protected, PureDP
from stream_dp.errors import BudgetRefused
from stream_dp.records.privacy import Privacy


def filter_of(privacy: Privacy, protected: Protected | None = None) -> Filter:
    """Return the filter that the pipeline file names, with the part of delta reserved for series' own deltas.

    `protected`: the neighbours, who may be several steps of one event apart.
    """
    budget, epsilon = target(privacy), privacy.epsilon
    own = privacy.admitted_delta
    slack = privacy.delta - own
    match privacy.filter:
        case "pure":
            return PureFilter.of(epsilon)
        case "optimal":
            return OptimalFilter.of(epsilon, privacy.delta, event_steps(protected))
        case "basic":
            return BasicFilter.of(epsilon, privacy.delta)
        case "tight_approximate":
            return TightApproximateFilter.of(epsilon, slack, own)
        case "zcdp":
            return ZCDPFilter.of(zcdp_budget(budget))
        case "renyi":
            order = cast("Fraction", privacy.order)  # a renyi filter always has one
            return RenyiFilter.of(renyi_budget(budget, order))
        case "gdp":
            return GaussianFilter.of(gaussian_budget(budget))


def target(privacy: Privacy) -> ApproxDP:
    return ApproxDP(privacy.epsilon, privacy.delta)


def opened(
    privacy: Privacy, protected: Protected | None = None, partitions: Mapping[str, Box] = ALL
) -> Subledgers:
    """Return the ledgers before the first series, with the analysts' paid; BudgetRefused: these need too much.

    `partitions`: what records the series of an analyst may see; all, of those not named.
    """
    analysts = {analyst.name: PureFilter.of(analyst.epsilon) for analyst in privacy.analysts}
    shares = bool(privacy.shared)
    return Subledgers.open(
        filter_of(privacy, protected), analysts, protected, partitions, shares=shares
    )


Seen: TypeAlias = tuple[Derivation, Box]
"""A derivation, and the box of the records that its mechanism sees."""


def charged_parts(
    ledger: Ledger, series: Sequence[Seen], blocks: Sequence[Derivation]
) -> tuple[Derivation, tuple[Seen, ...]]:
    """Return the first start's derivation, and the parts that the ledger adds up: the whole, its premises, or `series`.

    `blocks` derive the series together in several ways, tightest first. If sums are exact (pure, basic), the first
    block is the part; or, where some do not see every record and no delta is granted to the block, each series, if they
    fit. Other filters charge less for many small parts than for their sum; then those parts are taken that use least.
    The optimal filter composes all parts anew at each charge, and a block at a delta would leave it none: it takes the
    first that it has a theorem for, each series where it can.
    All this is a choice by public numbers before anything runs, between charges that the same filter admits. A block
    derived in a measure without a delta is what these filters add up themselves, so it is no part. Raises
    `BudgetRefused` if the filter has no theorem for any of these charges.
    """
    if ledger.filter.name in (PURE, BASIC):
        block, parts = blocks[0], tuple(series)
        pure = isinstance(block.guarantee.measure, PureDP)
        if pure and any(box.sides for _, box in parts) and uses(ledger, parts)[0]:
            return block, parts
        return block, _everywhere([block])
    fitting: list[tuple[bool, int, Derivation, tuple[Seen, ...]]] = []
    refusals: list[BudgetRefused] = []
    for block in blocks:
        whole = () if isinstance(block.guarantee.measure, DELTALESS) else (_everywhere([block]),)
        for parts in (tuple(series), _everywhere(block.premises), *whole):
            try:
                fits, amount = uses(ledger, parts)
            except BudgetRefused as refusal:
                refusals.append(refusal)
            else:
                if ledger.filter.name == OPTIMAL:
                    return block, parts
                fitting.append((not fits, amount, block, parts))
    if not fitting:
        raise refusals[0]
    _, _, block, parts = min(fitting, key=lambda charge: charge[:2])
    return block, parts


def _everywhere(parts: Sequence[Derivation]) -> tuple[Seen, ...]:
    return tuple((part, EVERYTHING) for part in parts)


def uses(ledger: Ledger, parts: Sequence[Seen]) -> tuple[bool, int]:
    """Return whether the filter admits these parts, and the most that one event would then have used of it."""
    loads, most, fits = ledger.loads, 0, True
    for part, box in parts:
        entry = ledger.price(part, box)
        around, cost = loads.around(entry), ledger.filter.cost(entry)
        fits = fits and ledger.filter.admits(around, cost)
        most = max(most, ledger.filter.reached(around + cost).amount)
        loads = loads.plus(entry)
    return fits, most


def charged(ledger: Ledger, block: Derivation, parts: Sequence[Seen]) -> Ledger:
    """Return the ledger after the charges for the series of the file.

    Where the epsilons of all series are one charge, it is the same whatever they see, so that a journal's first charge
    stays the price of its file.
    """
    entries = [ledger.price(part, box) for part, box in parts]
    if ledger.filter.name in (PURE, BASIC):
        return ledger.charge(ledger.price(block), parts=entries)
    for entry in entries:
        ledger = ledger.charge(entry)
    return ledger
