"""From `privacy:` to the filter that admits everything, and to the ledgers under it.

Rules: one filter, named in the file, for the series of the first start and for all that is asked later. Budgets are
stated as (epsilon, delta); zCDP and RDP filters get the largest budget that implies it. This file knows no mechanism.
"""

from collections.abc import Iterator

from stream_dp.accounting.conversions import renyi_budget, zcdp_budget
from stream_dp.accounting.entry import Entry
from stream_dp.accounting.filters.approximate import ApproximateFilter, TightApproximateFilter
from stream_dp.accounting.filters.filter import Filter
from stream_dp.accounting.filters.pure import PURE, PureFilter
from stream_dp.accounting.filters.renyi import RenyiFilter
from stream_dp.accounting.filters.zcdp import ZCDPFilter
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.subledgers import Subledgers
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import ApproxDP
from stream_dp.pipeline.spec import Privacy


def filter_of(privacy: Privacy) -> Filter:
    """The filter that the pipeline file names. All its delta is the theorem's: our mechanisms have none."""
    budget = target(privacy)
    match privacy.filter:
        case "pure":
            return PureFilter.of(privacy.epsilon)
        case "approximate":
            return ApproximateFilter.of(privacy.epsilon, privacy.delta, privacy.delta * 0)
        case "tight_approximate":
            return TightApproximateFilter.of(privacy.epsilon, privacy.delta, privacy.delta * 0)
        case "zcdp":
            return ZCDPFilter.of(zcdp_budget(budget))
        case "renyi":
            return RenyiFilter.of(renyi_budget(budget, privacy.order))


def target(privacy: Privacy) -> ApproxDP:
    """Return what the file promises, as (epsilon, delta)-DP."""
    return ApproxDP(privacy.epsilon, privacy.delta)


def opened(privacy: Privacy) -> Subledgers:
    """Return the ledgers before the first series: those of the analysts are paid for.

    Raises:
        BudgetRefused: they alone need more than the budget.
    """
    analysts = {each.name: PureFilter.of(each.epsilon) for each in privacy.analysts}
    return Subledgers.open(filter_of(privacy), analysts)


def frozen_charges(ledger: Ledger, block: Derivation) -> Iterator[Entry]:
    """The entries of the first start: the block as one under the pure filter, where sums are exact; else one for each
    series, for the other filters charge less for many small parts than for their sum.
    """
    if ledger.filter.name == PURE:
        yield ledger.price(block)
    else:
        yield from map(ledger.price, block.premises)
