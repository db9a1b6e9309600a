"""How long a tick takes of a monitor with many watches: ms of CPU, decoding apart.

Run: python tests/benchmarks/bench_monitor.py [ROUNDS [WATCHES]]. Prints medians over rounds, each a tick of one block:
the mechanism alone (row, then the comparison of every watch), the tick as an actor takes it (with the body of its
release), a threshold that is asked between two ticks, and what a batch of 1,000 records costs to count for as many
watches that each ask for another value of one field (the decoder's part is not included).
"""

import statistics
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from stream_dp.core.messages import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.tick_grid import TickGrid
from stream_dp.mechanisms.monitor import Monitor
from stream_dp.mechanisms.watch_messages import ThresholdQuery, WatchTerms
from stream_dp.noise import NoiseStream, fresh_seed
from stream_dp.pipeline.conditions import Test
from stream_dp.pipeline.feature_counts import FeatureCounts
from stream_dp.pipeline.layout import Feature, Slot
from stream_dp.pipeline.schema import TextField
from stream_dp.runtime.actor import step
from stream_dp.runtime.release import Shape
from stream_dp.runtime.series import Series

RECORDS = 1_000
GRID = TickGrid(0, 60_000)
KINDS = {
    "since a firing": WatchTerms(400),
    "since a firing, with its count": WatchTerms(400),
    "single ticks": WatchTerms(200, tick=True),
}


def cpu(work: Callable[[], Any], rounds: int) -> float:
    """The median CPU time of a round, in ms."""
    times = []
    for _ in range(rounds):
        before = time.process_time()
        work()
        times.append(1e3 * (time.process_time() - before))
    return statistics.median(times)


def noise() -> NoiseStream:
    """The product's noise, as for one committed step."""
    return NoiseStream(fresh_seed(), 0)


class Tick:
    """A monitor of equal watches, a tick further at each call."""

    def __init__(self, terms: WatchTerms, watches: int, value: Fraction) -> None:
        watching = (WatchTerms(terms.threshold, watches, terms.tick),)
        self.monitor = Monitor(
            watches + 100, Fraction(1, 5), Neighbors.ADD_REMOVE, watching, 3, value
        )
        rng = np.random.default_rng(1)
        self.row = rng.poisson(2, watches + 100).astype(np.int64)
        self.state: Any = self.monitor.init(noise())
        names = tuple(f"watch-{at}" for at in range(watches)) + ("",) * 100
        width = self.monitor.width
        band = 37 if value else None
        self.series = Series(
            "m",
            self.monitor,
            slice(0, width),
            names,
            Shape.FLAGS,
            lambda *_: 37,
            0.95,
            counts_band=band,
        )

    def alone(self) -> None:
        """The mechanism."""
        drawn = noise()
        self.state, _ = self.monitor.step(self.state, Update(self.row), drawn)
        self.state, _ = self.monitor.step(self.state, Query(), drawn)

    def whole(self) -> None:
        """As an actor takes it."""
        self.state, _ = step(self.series, GRID, self.state, 1, 1, self.row, noise())

    def asked(self) -> None:
        """A threshold between two ticks."""
        self.state, _ = self.monitor.step(self.state, ThresholdQuery(10**6, place=17), noise())


class Record:
    """What a decoder makes."""

    def __init__(self, text: str) -> None:
        self.text = text


def counting(watches: int) -> Callable[[], Any]:
    """Counts one batch of records in features that differ in one value."""
    features = [
        (
            Feature(None, frozenset([Test("text", "equals", frozenset([f"t{at}"]))])),
            Slot(at, ("w",)),
        )
        for at in range(watches)
    ]
    counts = FeatureCounts(features, watches, {"text": TextField()}, lambda name: name, GRID)
    rng = np.random.default_rng(2)
    records = [Record(f"t{at}") for at in rng.integers(0, watches, RECORDS)]
    numbers = np.array([RECORDS], dtype=np.int64)
    return lambda: counts(records, numbers, [0])


def main() -> None:
    """Print a table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 21
    watches = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
    print(f"{watches:,} watches, medians of {rounds} rounds, ms of CPU")
    for name, terms in KINDS.items():
        tick = Tick(terms, watches, Fraction(1, 10) if "count" in name else Fraction(0))
        tick.whole()
        alone, whole, asked = (cpu(work, rounds) for work in (tick.alone, tick.whole, tick.asked))
        print(f"{name:32} mechanism {alone:6.1f}   tick {whole:6.1f}   threshold {asked:6.2f}")
    print(f"{'a batch of 1,000 records':32} counted   {cpu(counting(watches), rounds):6.1f}")


if __name__ == "__main__":
    main()
