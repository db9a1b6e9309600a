"""What 300 live series cost the ledger, created one by one in boxes of up to three fields: ms of CPU.

Before its cut each is priced on a thread (`Ledger.foresee`), beside all that run; at the cut it is charged.
Run: python tests/benchmarks/bench_ledger.py
"""

import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial

from stream_dp.accounting.filters.filter import Filter
from stream_dp.accounting.filters.linear import PureFilter
from stream_dp.accounting.filters.optimal import OptimalFilter
from stream_dp.accounting.ledger import Ledger
from stream_dp.core.box import Box, Side, Stretch
from stream_dp.core.guarantee import PureDP
from stream_dp.errors import BudgetRefused

CREATIONS = 300
FILTERS: dict[str, Filter] = {
    "pure 2, which fills up": PureFilter.of(Fraction(2)),
    "pure 8, which does not": PureFilter.of(Fraction(8)),
    "optimal (2, 1e-6)": OptimalFilter.of(Fraction(2), Fraction(1, 10**6)),
}
CATEGORIES = {"country": 50, "shop": 20, "kind": 8, "day": 4}
EPSILONS = {"of 0.05": ["0.05"], "of 0.02 to 0.5": ["0.02", "0.05", "0.1", "0.2", "0.5"]}


def some_box(rng: random.Random) -> Box:
    sides: list[tuple[str, Side]] = [
        (name, frozenset([rng.randrange(values)]))
        for name, values in CATEGORIES.items()
        if rng.random() < 0.25
    ]
    for name in ("amount", "delay"):
        if rng.random() < 0.25:
            low = rng.randrange(100)
            sides.append((name, Stretch(low, low + rng.randrange(1, 60))))
    return Box(tuple(sorted(sides[:3])))


def timed(work: Callable[[], object]) -> float:
    begin = time.process_time()
    with suppress(BudgetRefused):
        work()
    return (time.process_time() - begin) * 1e3


def created(filter_: Filter, epsilons: list[str]) -> str:
    rng, ledger = random.Random(3), Ledger.under(filter_)
    before, cuts = list[float](), list[float]()
    for number in range(CREATIONS):
        entry = ledger.ask(f"s{number}", PureDP(Fraction(rng.choice(epsilons))), "rule")
        entry = replace(entry, box=some_box(rng))
        before.append(timed(partial(ledger.foresee, entry)))
        cuts.append(timed(partial(ledger.charge, entry)))
        with suppress(BudgetRefused):
            ledger = ledger.charge(entry)
    return (
        f"{ledger.count:4} fit; before the cut {sum(before) / CREATIONS:5.1f}, at most {max(before):4.0f}; "
        f"at the cut {sum(cuts) / CREATIONS:6.2f}, at most {max(cuts):5.2f}"
    )


if __name__ == "__main__":
    import dp_accounting  # noqa: F401 - the first composition of several epsilons in a process waits for it

    for name, filter_ in FILTERS.items():
        for sizes, epsilons in EPSILONS.items():
            print(f"{name:24} {sizes:16} {created(filter_, epsilons)}")
