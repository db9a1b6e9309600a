"""From `privacy:` to the filter that admits everything, and to the ledgers under it.

Rules: one filter, named in the file, admits the series of the first start and everything asked later. Budgets are
stated as (epsilon, delta); zCDP, RDP and GDP filters get the largest budget that implies it. This file knows no
mechanism.
"""

from collections.abc import Sequence

from stream_dp.accounting.conversions import renyi_budget, zcdp_budget
from stream_dp.accounting.filters.filter import Filter, Spend
from stream_dp.accounting.filters.linear import BASIC, PURE, BasicFilter, PureFilter, RenyiFilter
from stream_dp.accounting.filters.optimal import OptimalFilter
from stream_dp.accounting.filters.squares import GaussianFilter, TightApproximateFilter, ZCDPFilter
from stream_dp.accounting.gaussian_curve import gaussian_budget
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.rules.groups import event_steps
from stream_dp.accounting.rules.rule import DELTALESS
from stream_dp.accounting.subledgers import Subledgers
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import ApproxDP, Protected
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
            return RenyiFilter.of(renyi_budget(budget, privacy.order))
        case "gdp":
            return GaussianFilter.of(gaussian_budget(budget))


def target(privacy: Privacy) -> ApproxDP:
    return ApproxDP(privacy.epsilon, privacy.delta)


def opened(privacy: Privacy, protected: Protected | None = None) -> Subledgers:
    """Return the ledgers before the first series, with the analysts' paid; BudgetRefused: these need too much."""
    analysts = {analyst.name: PureFilter.of(analyst.epsilon) for analyst in privacy.analysts}
    return Subledgers.open(filter_of(privacy, protected), analysts, protected)


def charged_parts(
    ledger: Ledger, series: tuple[Derivation, ...], blocks: Sequence[Derivation]
) -> tuple[Derivation, tuple[Derivation, ...]]:
    """Return the first start's derivation, and the charged parts: the whole, its premises, or each of `series`.

    `blocks` derive the series together in several ways, tightest first. If sums are exact (pure, basic), the first
    block is charged as one. Other filters charge less for many small parts than for their sum; then the cheapest
    charge is taken. This is a choice by public numbers before anything runs, between charges that the same filter
    admits. A block derived in a measure without a delta is what the filter adds up itself, so it is not charged as
    one. Raises `BudgetRefused` if the filter has no theorem for any of these charges.
    """
    if ledger.filter.name in (PURE, BASIC):
        return blocks[0], (blocks[0],)
    fitting: list[tuple[bool, int, Derivation, tuple[Derivation, ...]]] = []
    refusals: list[BudgetRefused] = []
    for block in blocks:
        whole = () if isinstance(block.guarantee.measure, DELTALESS) else ((block,),)
        for parts in (series, block.premises, *whole):
            try:
                cost = sum((ledger.filter.cost(ledger.price(part)) for part in parts), Spend())
            except BudgetRefused as refusal:
                refusals.append(refusal)
            else:
                exceeds = not ledger.filter.admits(ledger.used, cost)
                amount = ledger.filter.reached(cost).amount
                fitting.append((exceeds, amount, block, parts))
    if not fitting:
        raise refusals[0]
    _, _, block, parts = min(fitting, key=lambda charge: charge[:2])
    return block, parts
