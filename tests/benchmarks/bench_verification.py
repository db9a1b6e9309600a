"""What verifying one message costs after 10^3 and after 10^6 messages, and what a re-scan of the history would cost.

Run: python tests/benchmarks/bench_verification.py. For each relation prints the median CPU time per message after a
short and a long history, in rounds that alternate, their ratio, and what judging the whole short history again costs
per message; fails if a ratio leaves [1/1.6, 1.6]. The states of compositions are trees with log_32(creations) levels.
"""

import gc
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from stream_dp.core.composition import Ask, ConcurrentComposition, Create
from stream_dp.core.guarantee import PureDP
from stream_dp.core.mechanism import IntArray, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.relation import Claim, Relation
from stream_dp.core.row_relations import Stream, event, user
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.verify.relations.pair_conditions import k_sparse, k_sparse_with_delta_budget

SHORT, LONG = 10**3, 10**6
ROUNDS, MESSAGES = 25, 1_000
LIMIT = 1.6
WIDTH, PERIOD = 8, 10  # of rows; one creation in so many messages
ADD, ONE = Neighbors.ADD_REMOVE, Fraction(1)
MANY = [(ONE, Fraction(0))] * LONG
COUNTER = Create(Counter(WIDTH, ONE, ADD, 1 << 20))
INNER = k_sparse(MANY)
BOX = Create(ConcurrentComposition(), Claim(PureDP(ONE), INNER))

Pair: TypeAlias = tuple[Any, Any]
Sequence: TypeAlias = Iterator[Pair]


def rows() -> list[IntArray]:
    """An equal pair of rows that are not one object, and one with an event more."""
    row = np.arange(WIDTH)
    more = row.copy()
    more[0] += 1
    return [row, row.copy(), more]


ROW, COPY, MORE = rows()


def streamed() -> Sequence:
    """One difference, then equal updates."""
    yield Update(ROW), Update(MORE)
    yield from itertools.repeat((Update(ROW), Update(COPY)))


def composed() -> Sequence:
    """A mechanism in every ten messages; all that exist are asked in turn, each new one gets one different pair."""
    for created in itertools.count(1):
        yield COUNTER, COUNTER
        yield Ask(created - 1, Update(ROW)), Ask(created - 1, Update(MORE))
        for i in range(PERIOD - 2):
            index = (created * 7919 + i * 104729) % created
            yield Ask(index, Update(ROW)), Ask(index, Update(COPY))


def nested() -> Sequence:
    """The same inside a composition that is inside one."""
    yield BOX, BOX
    yield from ((Ask(0, left), Ask(0, right)) for left, right in composed())


CASES: dict[str, tuple[Relation, Callable[[], Sequence]]] = {
    "event": (Stream(event(ADD, WIDTH)), streamed),
    "user in windows": (Stream(user(ADD, 3, 10)), streamed),
    "k-sparse": (k_sparse(MANY), composed),
    "delta budget": (k_sparse_with_delta_budget([ONE] * LONG, Fraction(1, 2)), composed),
    "nested": (k_sparse(MANY, truth=lambda _: True), nested),
}


def accepted(relation: Relation, pairs: Sequence, number: int) -> Relation:
    """The relation after so many pairs."""
    for left, right in itertools.islice(pairs, number):
        after = relation.accept(left, right)
        assert after is not None
        relation = after
    return relation


def timed(run: Callable[[], object]) -> float:
    """CPU seconds."""
    start = time.process_time()
    run()
    return time.process_time() - start


def measure(relation: Relation, make: Callable[[], Sequence]) -> tuple[float, float, float]:
    """Median seconds per message after the short and the long history; and per message by re-scan of the short one."""
    pairs = make()
    short = accepted(relation, pairs, SHORT)
    after_short = list(itertools.islice(pairs, MESSAGES))
    long = accepted(accepted(short, iter(after_short), MESSAGES), pairs, LONG - SHORT - MESSAGES)
    after_long = list(itertools.islice(pairs, MESSAGES))
    gc.collect()
    gc.freeze()  # a full collection walks the whole state, whoever triggers it
    found = [
        (
            timed(lambda: accepted(short, iter(after_short), MESSAGES)),
            timed(lambda: accepted(long, iter(after_long), MESSAGES)),
        )
        for _ in range(ROUNDS)
    ]
    gc.unfreeze()
    again = timed(lambda: accepted(relation, make(), SHORT))  # what one message costs by re-scan
    short_cost, long_cost = (statistics.median(column) for column in zip(*found, strict=True))
    return short_cost / MESSAGES, long_cost / MESSAGES, again


def main() -> int:
    """Print the table; 1 if a long history makes a message dearer."""
    worst = 1.0
    print(
        f"{'relation':18}{SHORT:>12,}{LONG:>12,}  ratio  {'re-scan of ' + format(SHORT, ','):>18}"
    )
    for name, (relation, make) in CASES.items():
        short, long, again = measure(relation, make)
        worst = max(worst, long / short, short / long)
        print(
            f"{name:18}{short * 1e6:10.2f}µs{long * 1e6:10.2f}µs  {long / short:5.2f}  "
            f"{again * 1e6:12,.0f}µs ({again / short:,.0f}x)"
        )
    return int(worst > LIMIT)


def test_a_message_costs_the_same_after_any_history() -> None:
    """For `make bench`."""
    assert main() == 0


if __name__ == "__main__":
    sys.exit(main())
