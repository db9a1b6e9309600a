"""What a tick costs of wide pipelines, and of many partitions: milliseconds of CPU of the whole engine.

The engine runs as `stream-dp run` does with SQLite and a file of releases, but for the source, which makes three events
for each tick and partition. A tick is timed from its events to its public release, over all threads of the process.
`most` is the slowest of the ticks; the first three, in which tables are made, are left out. A target of inf is none.
Run: python tests/benchmarks/bench_wide.py [--ticks N] [CASE...]
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from stream_dp.engine.ports import NOTHING_BEHIND, Batch, Behinds, Positions
from stream_dp.journal.keys import Sealer
from stream_dp.operate.run.running import Run
from stream_dp.operate.run.wiring import PRODUCT, open_ports
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.spec import PipelineSpec

START = datetime(2026, 1, 1, tzinfo=UTC)
WARM = 3
_TREE = [{"name": "bins", "statistic": "histogram", "by": "key", "method": "tree", "epsilon": "1"}]
_ALERTS = [{"name": "busy", "statistic": "alerts", "by": "key", "threshold": 100, "epsilon": "1"}]
_COUNTS = [
    {
        "name": f"c{at}",
        "statistic": "count",
        "epsilon": "1",
        "where": [{"field": "key", "equals": f"k{at:06}"}],
    }
    for at in range(1_000)
]


class Case(NamedTuple):
    """`keys` of the only field, the series over it, how values are told, the targets in ms, and how many partitions one
    process reads.
    """

    keys: int
    series: list[dict[str, Any]]
    values: str = "by_key"
    target: float = 8
    most: float | None = None
    partitions: int = 1


CASES = {
    "tree, 10^5 bins": Case(100_000, _TREE, most=40),
    "the same in arrays": Case(100_000, _TREE, "array", most=40),
    "alerts, 10^6 keys": Case(1_000_000, _ALERTS, target=50),
    "1,000 counts": Case(1_000, _COUNTS, target=10),
    **{
        f"{many:,} partitions": Case(2, _TREE, target=inf, partitions=many)
        for many in (100, 1_000, 10_000)
    },
}


class Made:
    """The `Source` port, with one batch of three events for each tick and partition, up to `limit`."""

    name, identity, grows = "events.jsonl", "", False

    def __init__(self, keys: int, partitions: int) -> None:
        self._keys, self._partitions = keys, range(partitions)
        self._limit = self._tick = 0
        self._moved = asyncio.Event()

    async def open(self, origin: int) -> tuple[int, ...]:
        return tuple(self._partitions)

    async def seek(self, positions: Positions, behind: Behinds = NOTHING_BEHIND) -> None: ...

    def go(self, limit: int) -> None:
        """Go on to this tick, without it."""
        self._limit = limit
        self._moved.set()

    async def read(self) -> Sequence[Batch]:
        while self._tick >= self._limit:
            self._moved.clear()
            await self._moved.wait()
        tick, self._tick = self._tick, self._tick + 1
        stamp = (START + timedelta(seconds=tick)).isoformat().encode()
        keys = [(tick * 7919 + at * 31) % self._keys for at in range(3)]
        payloads = [b'{"time":"%b","key":"k%06d"}' % (stamp, key) for key in keys]
        offsets, behind = range(4 * tick, 4 * tick + 3), 4 * (tick + 1)
        return [Batch(at, payloads, offsets, behind, mark=tick) for at in self._partitions]

    async def close(self) -> None: ...


def specification(case: Case, folder: Path) -> PipelineSpec:
    domain = [f"k{at:06}" for at in range(case.keys)]
    values = {} if case.values == "by_key" else {"values": case.values}
    path = {"path": str(folder / "wide.releases.jsonl")}
    document = {
        "version": 1,
        "name": "wide",
        "source": {"kind": "file", "path": "events.jsonl"},
        "schema": {"time": {"type": "time"}, "key": {"type": "category", "domain": domain}},
        "privacy": {"epsilon": "1"},
        "clock": {
            "kind": "replay",
            "field": "time",
            "start": "2026-01-01T00:00:00Z",
            "step": "1s",
            "horizon": 86_400,
        },
        "releases": path | values,
        "series": case.series,
    }
    return PipelineSpec.model_validate(document, context={"folder": folder})


async def timed(case: Case, ticks: int, folder: Path) -> list[float]:
    """Return the milliseconds of CPU of each tick."""
    spec = specification(case, folder)
    ports = open_ports(spec, Sealer(bytes(range(32)), spec.name), marks=folder / "marks")
    source, found = Made(case.keys, case.partitions), list[float]()
    ports = replace(ports, source=source)
    run = Run(build(spec), ports, replace(PRODUCT, group=1), keep=1)
    running = asyncio.create_task(run.until_end())
    await run.ready.wait()
    for tick in range(WARM + ticks):
        began = time.process_time()
        source.go(tick + 1)
        while run.engine._chain.settled <= tick and not running.done():  # noqa: ASYNC110
            await asyncio.sleep(0.0005)
        found.append(1_000 * (time.process_time() - began))
    run.stop()
    await running
    return found[WARM:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ticks", type=int, default=200)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    arguments = parser.parse_args()
    print(
        f"{'ms of CPU a tick':20} {'median':>8} {'mean':>8} {'target':>8} {'most':>8} {'target':>8}"
    )
    for name in arguments.cases:
        case = CASES[name]
        with tempfile.TemporaryDirectory() as folder:
            took = asyncio.run(timed(case, arguments.ticks, Path(folder)))
        limit = "" if case.most is None else f"{case.most:g}"
        print(
            f"{name:20} {statistics.median(took):8.1f} {statistics.fmean(took):8.1f} {case.target:8g} "
            f"{max(took):8.1f} {limit:>8}",
            flush=True,
        )


if __name__ == "__main__":
    main()
