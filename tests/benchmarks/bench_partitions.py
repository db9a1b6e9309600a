"""What a tick costs of a topic with many partitions: milliseconds of CPU of the whole engine, by partitions.

The engine runs as `stream-dp run` does with SQLite and a file of releases, but for the source, which makes one record
and the end of the tick in each partition. So it is a topic of many partitions that are all read by one process.
Run: python tests/benchmarks/bench_partitions.py [--ticks N] [PARTITIONS...]
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from stream_dp.engine.ports import NOTHING_BEHIND, Batch, Behinds, Positions
from stream_dp.journal.keys import Sealer
from stream_dp.operate.run.running import Run
from stream_dp.operate.run.wiring import PRODUCT, open_ports
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.spec import PipelineSpec

START = datetime(2026, 1, 1, tzinfo=UTC)
WARM = 2


class Made:
    """The `Source` port with so many partitions, and a record in each for each tick, up to `limit`."""

    name, identity, grows = "events.jsonl", "", False

    def __init__(self, partitions: int) -> None:
        self._partitions, self._limit, self._tick = partitions, 0, 0
        self._moved = asyncio.Event()

    async def open(self, origin: int) -> tuple[int, ...]:
        return tuple(range(self._partitions))

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
        value = b'{"time":"%b","key":"a"}' % stamp
        return [
            Batch(at, [value], range(2 * tick, 2 * tick + 1), 2 * (tick + 1), mark=tick)
            for at in range(self._partitions)
        ]

    async def close(self) -> None: ...


def specification(folder: Path) -> PipelineSpec:
    document = {
        "version": 1,
        "name": "many",
        "source": {"kind": "file", "path": "events.jsonl"},
        "schema": {"time": {"type": "time"}, "key": {"type": "category", "domain": ["a", "b"]}},
        "privacy": {"epsilon": "1"},
        "clock": {
            "kind": "replay",
            "field": "time",
            "start": "2026-01-01T00:00:00Z",
            "step": "1s",
            "horizon": 86_400,
        },
        "releases": {"path": str(folder / "many.releases.jsonl")},
        "series": [{"name": "keys", "statistic": "histogram", "by": "key", "epsilon": "1"}],
    }
    return PipelineSpec.model_validate(document, context={"folder": folder})


async def timed(partitions: int, ticks: int, folder: Path) -> list[float]:
    """Return the milliseconds of CPU of each tick."""
    spec = specification(folder)
    ports = open_ports(spec, Sealer(bytes(range(32)), spec.name), marks=folder / "marks")
    source, found = Made(partitions), list[float]()
    run = Run(build(spec), replace(ports, source=source), replace(PRODUCT, group=1), keep=1)
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
    parser.add_argument("--ticks", type=int, default=20)
    parser.add_argument("partitions", nargs="*", type=int, default=[1, 100, 1_000, 10_000])
    arguments = parser.parse_args()
    for partitions in arguments.partitions:
        with tempfile.TemporaryDirectory() as folder:
            took = asyncio.run(timed(partitions, arguments.ticks, Path(folder)))
        ms = statistics.median(took)
        print(
            f"{partitions:6} partitions: {ms:8.1f} ms a tick, {1_000 * ms / partitions:6.1f} us a partition",
            flush=True,
        )


if __name__ == "__main__":
    main()
