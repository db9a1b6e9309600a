"""How long a tick takes of a monitor with many watches: ms of CPU, decoding apart.

Run: python tests/benchmarks/bench_monitor.py [ROUNDS [WATCHES]]. Prints medians over rounds, each a tick of one block:
the mechanism alone (row, then the comparison of every watch), the tick as an actor takes it (with the body of its
release), a threshold that is asked between two ticks, and what a batch of 1,000 records costs to count for as many
watches that each ask for another value of one field (the decoder's part is not included).

Or: ... bench_monitor.py files [WATCHES]. Prints what it takes to read a file of so many watches written one by one, to
plan and to start it, and to add one by message, on a thread and on the event loop: s of CPU, once, and how many times
what reading the file takes.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from stream_dp.core.mechanism import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.time import TickGrid
from stream_dp.engine.ports import Batch
from stream_dp.engine.series import LiveSeries, Series
from stream_dp.journal.release import Shape
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.mechanisms.watches.block import ThresholdQuery, WatchTerms
from stream_dp.mechanisms.watches.kinds import Monitor
from stream_dp.noise import NoiseStream, fresh_seed
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.feature_counts import FeatureCounts
from stream_dp.pipeline.layout import Feature, Slot
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.yaml import load
from stream_dp.records.conditions import Test
from stream_dp.records.decoder import Decoded
from stream_dp.records.schema import TextField

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
        drawn = noise()
        self.state, _ = self.monitor.step(self.state, Update(self.row), drawn)
        self.state, _ = self.monitor.step(self.state, Query(), drawn)

    def whole(self) -> None:
        self.state, _ = self.series.step(GRID, self.state, 1, 1, self.row, noise())

    def asked(self) -> None:
        self.state, _ = self.monitor.step(self.state, ThresholdQuery(10**6, place=17), noise())


class Record:
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
    counts = FeatureCounts(features, {"text": TextField()}, lambda name: name, GRID)
    rng = np.random.default_rng(2)
    records = [Record(f"t{at}") for at in rng.integers(0, watches, RECORDS)]
    numbers = np.array([RECORDS], dtype=np.int64)
    decoded = Decoded(records, range(RECORDS), [])
    return lambda: counts.write(np.zeros((1, watches), np.int64), decoded, numbers, [0])


FILE = """\
version: 1
name: many
source: {{kind: file, path: flights.jsonl}}
schema: {{time: {{type: time}}, tail: {{type: text}}, delay: {{type: integer}}}}
privacy: {{epsilon: 2}}
clock: {{kind: replay, field: time, start: "2026-01-01T00:00:00Z", step: 1h, horizon: 8760}}
series:
  - name: m
    statistic: monitor
    epsilon: 0.2
    touch: 5
    most: {most}
    watch:
"""
MORE: dict[str, dict[str, Any]] = {
    "of the same field": {"field": "tail", "equals": "t7"},
    "of another field": {"field": "delay", "at_least": 60},
}


def timed(name: str, work: Callable[[], Any], once: float = 0.0) -> tuple[Any, float]:
    """What the work returns and its CPU time, which is printed; `once` is that of reading the file."""
    before = time.process_time()
    made = work()
    spent = time.process_time() - before
    print(f"{name:52} {spent:8.3f} s {spent / (once or spent):8.4f}", flush=True)
    return made, spent


def files(watches: int) -> None:
    """Print what a file costs, step by step."""
    lines = [
        f"      - {{name: w{at}, where: [{{field: tail, equals: t{at}}}], above: {50 + at % 7}}}\n"
        for at in range(watches)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "many.yaml"
        path.write_text(FILE.format(most=watches + 100) + "".join(lines))
        spec, once = timed("the file is read and checked", lambda: load(path))
    built, _ = timed("plan: build", lambda: build(spec), once)
    config, _ = timed("start: what runs, with its fingerprints", lambda: built.run_config(0), once)
    router, _ = timed(
        "start: the router", lambda: OpenRouter(spec, config.origin, built.layout), once
    )
    planner, live = LiveSeriesPlanner(spec, router), LiveSeries(0, config.series[0])
    payloads = [
        json.dumps({"time": "2026-01-01T00:00:00Z", "tail": f"t{at}", "delay": 70}).encode()
        for at in range(RECORDS)
    ]
    for name, where in MORE.items():
        for turn in ("first", "next"):
            said = {"name": f"{where['field']}-{turn}", "where": [where], "above": 20}
            text = json.dumps(said).encode()
            watch, _ = timed(
                f"a watch {name}, {turn}: on a thread", partial(planner.watch, live, text), once
            )
            live = replace(live, series=watch.series)

            def loop(watch: Any = watch) -> None:
                watch.take()
                router.route(Batch(0, payloads, range(RECORDS), 1))

            timed(f"a watch {name}, {turn}: on the loop", loop, once)


def main() -> None:
    if sys.argv[1:2] == ["files"]:
        return files(int(sys.argv[2]) if len(sys.argv) > 2 else 100_000)
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 21
    watches = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
    print(f"{watches:,} watches, medians of {rounds} rounds, ms of CPU")
    for name, terms in KINDS.items():
        tick = Tick(terms, watches, Fraction(1, 10) if "count" in name else Fraction(0))
        tick.whole()
        alone, whole, asked = (cpu(work, rounds) for work in (tick.alone, tick.whole, tick.asked))
        print(f"{name:32} mechanism {alone:6.1f}   tick {whole:6.1f}   threshold {asked:6.2f}")
    print(f"{'a batch of 1,000 records':32} counted   {cpu(counting(watches), rounds):6.1f}")
    return None


if __name__ == "__main__":
    main()
