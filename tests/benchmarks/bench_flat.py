"""Whether memory and disk stay flat: resident memory, bytes of the journal and speed after more and more ticks.

Each pipeline runs in a process of its own, as `stream-dp run` does with a file as its source, SQLite and a file of
releases, but for the source, which makes three events for each tick, and for the commits: one for each tick, as a
wall clock has them. "at once" lets up to 100 ticks share one, as catching up does. What is printed for a number of
ticks is the resident memory then, and what was written and how fast since the number before.
Run: PYTHONPATH=tests python tests/benchmarks/bench_flat.py [--ticks 10000 30000 100000] [PIPELINE...]
"""

import argparse
import asyncio
import gc
import json
import multiprocessing
import os
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from live_acts import create_series, halt_series

from stream_dp.engine.ports import NOTHING_BEHIND, Batch, Behinds, Positions
from stream_dp.journal.keys import Sealer
from stream_dp.operate.run.running import Run
from stream_dp.operate.run.wiring import PRODUCT, open_ports
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.yaml import load

TICKS = (10_000, 30_000, 100_000)
EVERY = 20
"""Ticks between two live series that come, where such come."""
START = datetime(2026, 1, 1, tzinfo=UTC)
KEYS = [f"k{at}" for at in range(50)]
BASE: dict[str, Any] = {
    "version": 1,
    "name": "flat",
    "source": {"kind": "file", "path": "events.jsonl"},
    "schema": {
        "time": {"type": "time"},
        "user": {"type": "text"},
        "amount": {"type": "integer"},
        "key": {"type": "category", "domain": KEYS},
    },
    "privacy": {"epsilon": 60},
    "clock": {"kind": "replay", "field": "time", "start": START, "step": "1s"},
}
_SCALARS = [
    {"name": "all", "statistic": "count", "epsilon": 1},
    {"name": "large", "statistic": "count", "epsilon": 1, "where": [{"field": "amount", "at_least": 5}]},
    {"name": "small", "statistic": "count", "epsilon": 1, "where": [{"field": "amount", "at_most": 2}]},
    {"name": "spent", "statistic": "sum", "of": "amount", "clamp": [0, 10], "epsilon": 1},
]  # fmt: skip
_WINDOWS = [
    {"name": "late", "statistic": "count", "epsilon": 1, "windows": ["1m", "1h", "ever"]},
    {"name": "by_key", "statistic": "histogram", "by": "key", "epsilon": 1},
    {"name": "hours", "statistic": "histogram", "by": "key", "epsilon": 1, "windows": ["1h"]},
]  # fmt: skip
_WATCHES = [
    {"name": "much", "where": [{"field": "amount", "at_least": 8}], "above": 500},
    {"name": "busy", "by": "key", "above": 200},
    {"name": "quiet", "where": [{"field": "key", "equals": "k1"}], "below": 2, "over": "1m"},
]
_ANN = {"epsilon": 60, "analysts": [{"name": "ann", "epsilon": 50}]}
_USERS = {"unit": "user", "user": "user", "max_events": 20, "per": "10m", "epsilon": 4}
PIPELINES: dict[str, dict[str, Any]] = {
    "four scalars": {"series": _SCALARS},
    "four at once": {"series": _SCALARS},
    "windows, histogram": {"series": _WINDOWS},
    "series that come and go": {"series": _SCALARS[:1], "privacy": _ANN},
    "monitor": {"series": [{"name": "m", "statistic": "monitor", "epsilon": 1, "touch": 3, "most": 100,
                            "watch": _WATCHES}]},
    "users": {"series": _SCALARS[:1], "privacy": _USERS},
}  # fmt: skip


class Made:
    """The `Source` port, with one batch of three events for each tick, up to `limit`."""

    name, identity, grows = "events.jsonl", "", False

    def __init__(self) -> None:
        self.limit = 0
        self._tick = 0
        self._moved = asyncio.Event()

    async def open(self, origin: int) -> tuple[int, ...]:
        return (0,)

    async def seek(self, positions: Positions, behind: Behinds = NOTHING_BEHIND) -> None:
        self._tick = positions.get(0, 0) // 4

    def go(self, limit: int) -> None:
        """Go on to this tick, without it."""
        self.limit = limit
        self._moved.set()

    async def read(self) -> Sequence[Batch]:
        await asyncio.sleep(0)
        while self._tick >= self.limit:
            self._moved.clear()
            await self._moved.wait()
        tick = self._tick
        self._tick += 1
        stamp = (START + timedelta(seconds=tick)).isoformat()
        payloads = [
            b'{"time":"%b","user":"u%d","amount":%d,"key":"k%d"}'
            % (stamp.encode(), tick * 7919 % 400 + at, (tick + at) % 11, tick * at % 50)
            for at in range(3)
        ]
        return [Batch(0, payloads, range(4 * tick, 4 * tick + 3), 4 * (tick + 1), mark=tick)]

    async def close(self) -> None: ...


async def settled(run: Run, running: "asyncio.Task[None]", ticks: int) -> None:
    """Wait until so many ticks are durable."""
    while run.engine._chain.settled < ticks and not running.done():  # noqa: ASYNC110
        await asyncio.sleep(0.002)
    if running.done():
        running.result()


def resident() -> float:
    """The resident memory of this process now, in MB."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def journal(folder: Path) -> tuple[int, int]:
    """The bytes of the sealed commits and those of the file."""
    path = folder / "flat.journal"
    with closing(sqlite3.connect(path)) as database:
        (sealed,) = database.execute("SELECT sum(length(sealed)) FROM commits").fetchone()
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        (size,) = database.execute("PRAGMA page_size").fetchone()
    return int(sealed), int(pages) * int(size)


async def told(name: str, ticks: Sequence[int], folder: Path) -> None:
    """Run one of the pipelines and print a line for each number of ticks."""
    document = BASE | PIPELINES[name]
    document["clock"] = {**BASE["clock"], "horizon": 365 * 86_400}
    (folder / "flat.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(document, default=str))))
    spec = load(folder / "flat.yaml")
    ports = open_ports(spec, Sealer(bytes(range(32)), spec.name), marks=folder / "marks")
    source, together = Made(), 100 if "at once" in name else 1
    run = Run(build(spec), replace(ports, source=source), replace(PRODUCT, group=together), keep=1)
    running = asyncio.create_task(run.until_end())
    await run.ready.wait()
    done, size, held = 0, (0, 0), 0.0
    for stop in ticks:
        began = time.perf_counter()
        for limit in range(done + EVERY, stop + 1, EVERY) if "come and go" in name else (stop,):
            source.go(limit)
            await settled(run, running, limit)
            if "come and go" in name:
                definition = {**_SCALARS[1], "name": f"s{limit}", "epsilon": "0.001"}
                await create_series(run.engine, json.dumps(definition).encode(), "ann")
                if limit > 2 * EVERY:
                    await halt_series(run.engine, f"s{limit - 2 * EVERY}")
        took, now = time.perf_counter() - began, journal(folder)
        sealed, file = ((new - old) / (stop - done) for new, old in zip(now, size, strict=True))
        held = held or resident()
        print(
            f"{name:24} {stop:9,} {resident():8.1f} {resident() / held:6.2f} {sealed:9,.0f} {file:9,.0f} "
            f"{(stop - done) / took:8,.0f}",
            flush=True,
        )
        done, size = stop, now
    run.stop()
    await running


def alone(name: str, ticks: Sequence[int]) -> None:
    """Run one of the pipelines in this process."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(told(name, ticks, Path(folder)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ticks", type=int, nargs="+", default=TICKS)
    parser.add_argument("pipelines", nargs="*", default=list(PIPELINES))
    arguments = parser.parse_args()
    print(
        f"{'':24} {'ticks':>9} {'RSS MB':>8} {'growth':>6} {'sealed':>9} {'file':>9} {'ticks/s':>8}"
    )
    print(f"{'':24} {'':9} {'':8} {'':6} {'B a tick':>9} {'B a tick':>9}", flush=True)
    spawn = multiprocessing.get_context("spawn")
    for name in arguments.pipelines:
        process = spawn.Process(target=alone, args=(name, arguments.ticks))
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit(f"{name}: exit code {process.exitcode}")


if __name__ == "__main__":
    main()
