"""What a charge costs when a ledger holds 10^5 and 10^6 entries: the same, under every filter.

Run: python tests/benchmarks/bench_filter.py. Prints the median CPU time per charge over rounds of 2,000 charges at
either length, interleaved, and fails if their ratio leaves [1/1.5, 1.5].
"""

import gc
import statistics
import sys
import time
from fractions import Fraction

from stream_dp.accounting.filters.approximate import ApproximateFilter, TightApproximateFilter
from stream_dp.accounting.filters.base import Filter
from stream_dp.accounting.filters.pure import PureFilter
from stream_dp.accounting.filters.renyi import RenyiFilter
from stream_dp.accounting.filters.zcdp import ZCDPFilter
from stream_dp.accounting.ledger import Entry, Ledger
from stream_dp.core.guarantee import PureDP, RenyiDP

SHORT, LONG = 10**5, 10**6
ROUNDS, CHARGES = 25, 2_000
LIMIT = 1.5
BUDGET, SLACK = Fraction(1000), Fraction(1, 10**6)
FILTERS: tuple[Filter, ...] = (
    PureFilter.of(BUDGET),
    ApproximateFilter.of(BUDGET, SLACK, Fraction(0)),
    TightApproximateFilter.of(BUDGET, SLACK, Fraction(0)),
    ZCDPFilter.of(BUDGET),
    RenyiFilter.of(RenyiDP(Fraction(8), BUDGET)),
)


def filled(ledger: Ledger, entry: Entry, number: int) -> Ledger:
    """The ledger with so many more entries."""
    for _ in range(number):
        ledger = ledger.charge(entry)
    return ledger


def per_charge(ledger: Ledger, entry: Entry) -> float:
    """CPU seconds per charge."""
    start = time.process_time()
    filled(ledger, entry, CHARGES)
    return (time.process_time() - start) / CHARGES


def measure(filter_: Filter) -> tuple[float, float]:
    """Median seconds per charge at the short and the long ledger."""
    entry = filter_.entry("m", PureDP(Fraction(1, 10**6)), "r")
    short = filled(Ledger.under(filter_), entry, SHORT)
    long = filled(short, entry, LONG - SHORT)
    gc.collect()
    gc.freeze()  # a full collection walks all entries, whoever triggers it: not a charge's cost
    pairs = [(per_charge(short, entry), per_charge(long, entry)) for _ in range(ROUNDS)]
    gc.unfreeze()
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def main() -> int:
    """Print the table; 1 if a long ledger is slower."""
    worst = 1.0
    print(f"{'filter':20}{SHORT:>14,}{LONG:>14,}  ratio   (µs per charge)")
    for filter_ in FILTERS:
        short, long = measure(filter_)
        worst = max(worst, long / short, short / long)
        print(f"{filter_.name:20}{short * 1e6:14.2f}{long * 1e6:14.2f}  {long / short:.2f}")
    return int(worst > LIMIT)


def test_charges_cost_the_same_at_any_length() -> None:
    """For `make bench`."""
    assert main() == 0


if __name__ == "__main__":
    sys.exit(main())
