"""What a charge costs when a ledger holds 10^5 and 10^6 entries: the same, under every filter; and OpenDP's filter.

Run: python tests/benchmarks/bench_filter.py. Prints the median CPU time per charge over rounds of 2,000 charges at
either length, interleaved, and fails if their ratio leaves [1/1.5, 1.5]. In the same run: a charge with the odometer
read after it, and OpenDP's privacy filter over its fully adaptive odometer at 500 and 4,000 queries, per query and as
a multiple of a charge of our pure filter; a query there also samples a discrete Laplace of scale 10^6, shown apart.
"""

import gc
import statistics
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from importlib.metadata import version

import opendp.prelude as dp

from stream_dp.accounting.filters.filter import Filter
from stream_dp.accounting.filters.linear import PureFilter, RenyiFilter
from stream_dp.accounting.filters.squares import TightApproximateFilter, ZCDPFilter
from stream_dp.accounting.ledger import Entry, Ledger
from stream_dp.accounting.ledger import truncated_odometer as bound
from stream_dp.core.guarantee import PureDP, RenyiDP

SHORT, LONG = 10**5, 10**6
ROUNDS, CHARGES = 25, 2_000
LIMIT = 1.5
THEIR_LENGTHS, THEIR_QUERIES = (500, 4_000), 50
BUDGET, SLACK = Fraction(1000), Fraction(1, 10**6)
FILTERS: tuple[Filter, ...] = (
    PureFilter.of(BUDGET),
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


def per_look(filter_: Filter) -> float:
    """Median CPU seconds of a charge and a look at the odometer, over a ledger with entries."""
    entry = filter_.entry("m", PureDP(Fraction(1, 10**6)), "r")
    ledger, found = filled(Ledger.under(filter_), entry, 1000), []
    for _ in range(200):
        start = time.process_time()
        ledger = ledger.charge(entry)
        bound(filter_, ledger.used)
        found.append(time.process_time() - start)
    return statistics.median(found)


def timed(ask: Callable[[], object], number: int) -> float:
    """Median wall seconds of one call."""
    found = []
    for _ in range(number):
        start = time.perf_counter()
        ask()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def theirs() -> tuple[float, list[float]]:
    """Seconds of sampling alone, and per query of OpenDP's filter at each of `THEIR_LENGTHS`."""
    dp.enable_features("contrib", "honest-but-curious")
    space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    laplace = dp.m.make_laplace(*space, scale=1e6)
    odometer = dp.c.make_fully_adaptive_composition(*space, output_measure=dp.max_divergence())
    asked = dp.c.make_privacy_filter(odometer, d_in=1, d_out=float(BUDGET))(0)
    sampling = timed(lambda: laplace(0), 200)
    found, length = [], 0
    for wanted in THEIR_LENGTHS:
        for _ in range(wanted - length):
            asked(laplace)
        found.append(timed(lambda: asked(laplace), THEIR_QUERIES))
        length = wanted + THEIR_QUERIES
    return sampling, found


def main() -> int:
    """Print the tables; 1 if a long ledger is slower, or OpenDP's filter is no slower than ours."""
    worst, pure = 1.0, 0.0
    print(f"{'filter':20}{SHORT:>14,}{LONG:>14,}  ratio  with odometer   (µs per charge)")
    for filter_ in FILTERS:
        short, long = measure(filter_)
        worst = max(worst, long / short, short / long)
        pure = pure or long
        look = per_look(filter_) * 1e6
        print(
            f"{filter_.name:20}{short * 1e6:14.2f}{long * 1e6:14.2f}  {long / short:.2f}{look:14.1f}"
        )
    sampling, queries = theirs()
    print(f"OpenDP {version('opendp')} privacy filter, µs per query")
    print(f"{'sampling alone':20}{sampling * 1e6:14.0f}")
    for length, seconds in zip(THEIR_LENGTHS, queries, strict=True):
        print(
            f"{f'{length:,} queries':20}{seconds * 1e6:14.0f}  {seconds / pure:,.0f} times our pure charge at {LONG:,}"
        )
    return int(worst > LIMIT or min(queries) < pure)


def test_charges_cost_the_same_at_any_length() -> None:
    """For `make bench`."""
    assert main() == 0


if __name__ == "__main__":
    sys.exit(main())
