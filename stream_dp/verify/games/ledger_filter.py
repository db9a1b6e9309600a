"""A ledger as the filter of a verification function ([HSV] Def 12.2): f^Filt admits a creation if its charge fits."""

from dataclasses import dataclass

from stream_dp.accounting.ledger import Ledger
from stream_dp.core.guarantee import Measure
from stream_dp.errors import BudgetRefused, InvalidCost


@dataclass(frozen=True, slots=True)
class LedgerFilter:
    """The filter of `ledger`, after the charges it holds; for `verify.relations.compositions.filtered`.

    `finite`: all mechanisms of the game have finite communication, where their measures need it.
    """

    ledger: Ledger
    finite: bool = False

    def charge(self, measure: Measure) -> "LedgerFilter | None":
        """Return the filter after one more mechanism; None where the ledger refuses it, also for a cost of 0."""
        try:
            entry = self.ledger.ask("created", measure, "[HSV] Def 12.2", finite=self.finite)
            return LedgerFilter(self.ledger.charge(entry), self.finite)
        except (BudgetRefused, InvalidCost):
            return None
