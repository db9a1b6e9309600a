"""Whether memory, disk and starts stay flat: what a pipeline and its commands take after more and more ticks.

Each pipeline runs in a process of its own, as `stream-dp run` does with a file as its source, SQLite and a file of
releases, but for the source, which makes three events for each tick, and for the commits: one for each tick, as a
wall clock has them. "at once" lets up to 100 ticks share one, as catching up does. Two lines are printed for a number
of ticks. The first: resident memory then, what was written and how fast since the number before, and how many objects
that may refer to others the process holds, which shows a leak before memory does. The second, each in a process of its
own on a copy of the folder: CPU of a start until the engine runs, and its most memory; what the page takes to show
everything; CPU and most memory of `ledger` and of an export into CSV.
Run: PYTHONPATH=tests python tests/benchmarks/bench_flat.py [PIPELINE...] [--ticks 10000 100000 1000000]
"""

import argparse
import asyncio
import gc
import json
import multiprocessing
import os
import shutil
import sqlite3
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from live_acts import create_series, halt_series

from stream_dp.engine.ports import NOTHING_BEHIND, Batch, Behinds, Positions
from stream_dp.journal.keys import Sealer
from stream_dp.operate.audit.ledger_view import read_ledger
from stream_dp.operate.exporting import export_releases
from stream_dp.operate.run.run_pipeline import served
from stream_dp.operate.run.running import Run
from stream_dp.operate.run.wiring import PRODUCT, open_ports
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.yaml import load

TICKS = (1_000, 10_000)
EVERY = 20
"""Ticks between two live series that come, where such come."""
ALIVE = {"series that come and go": 2, "100 live series": 100, "1,000 live series": 1_000}
"""How many of them live at once."""
KEPT = 10_000
"""Releases of each series that a started engine keeps for the page, as `stream-dp run` does."""
KEY = bytes(range(32))
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
    "four scalars, an hour kept": {"series": _SCALARS,
                                   "journal": {"kind": "sqlite", "path": "flat.journal", "keep": "1h"}},
    "four at once": {"series": _SCALARS},
    "windows, histogram": {"series": _WINDOWS},
    "series that come and go": {"series": _SCALARS[:1], "privacy": _ANN},
    "100 live series": {"series": _SCALARS[:1], "privacy": _ANN,
                        "queries": {"series": 101, "total_series": 1_000}},
    "1,000 live series": {"series": _SCALARS[:1], "privacy": _ANN,
                          "queries": {"series": 1_001, "total_series": 10_000}},
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


def opened(folder: Path, source: Made, together: int, keep: int) -> Run:
    spec = load(folder / "flat.yaml")
    ports = open_ports(spec, Sealer(KEY, spec.name), marks=folder / "marks")
    setup = replace(PRODUCT, group=together)
    return Run(build(spec), replace(ports, source=source), setup, keep=keep)


async def told(name: str, ticks: Sequence[int], folder: Path) -> None:
    """Run one of the pipelines and print two lines for each number of ticks."""
    document = BASE | PIPELINES[name]
    document["clock"] = {**BASE["clock"], "horizon": 365 * 86_400}
    (folder / "flat.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(document, default=str))))
    (folder / "key").touch(mode=0o600)
    (folder / "key").write_bytes(KEY)
    source, alive = Made(), ALIVE.get(name, 0)
    run = opened(folder, source, 100 if "at once" in name else 1, keep=1)
    running = asyncio.create_task(run.until_end())
    await run.ready.wait()
    done, size, held, came = 0, (0, 0), 0.0, 0
    for stop in ticks:
        began = time.perf_counter()
        for limit in range(done + EVERY, stop + 1, EVERY) if alive else (stop,):
            source.go(limit)
            await settled(run, running, limit)
            while alive and came < max(alive, limit // EVERY):
                definition = {**_SCALARS[1], "name": f"s{came}", "epsilon": "0.001"}
                await create_series(run.engine, json.dumps(definition).encode(), "ann")
                if came >= alive:
                    await halt_series(run.engine, f"s{came - alive}")
                came += 1
        took, now = time.perf_counter() - began, journal(folder)
        sealed, file = ((new - old) / (stop - done) for new, old in zip(now, size, strict=True))
        held = held or resident()
        print(
            f"{name:24} {stop:9,} {resident():6.1f} MB {resident() / held:5.2f} {sealed:7,.0f} {file:7,.0f} B a tick "
            f"{(stop - done) / took:6,.0f} ticks/s {len(gc.get_objects()):9,} objects",
            flush=True,
        )
        print(f"{'':34} {measured(folder)}", flush=True)
        done, size = stop, now
    run.stop()
    await running


def measured(folder: Path) -> str:
    """What a start and the commands take on a copy of the folder, which nobody writes to meanwhile."""
    told = []
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        copy = Path(made) / "copy"
        shutil.copytree(folder, copy)
        for work in (started, ledger, export):
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as one:
                told.append(one.submit(work, copy).result())
    return "; ".join(told)


def most(what: str, began: float) -> str:
    """CPU since then and the most memory: not `ru_maxrss`, which begins with what the parent process held."""
    status = Path("/proc/self/status").read_text()
    memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return f"{what} {time.process_time() - began:.2f} s, {memory / 1024:.0f} MB"


def started(folder: Path) -> str:
    return asyncio.run(start(folder))


async def start(folder: Path) -> str:
    began, addresses = time.process_time(), asyncio.Queue[str]()
    run = opened(folder, Made(), 1, KEPT)
    async with served(run, 0, addresses.put_nowait):
        running = asyncio.create_task(run.until_end())
        await run.ready.wait()
        told = most("start", began)
        page = await asyncio.to_thread(loaded, await addresses.get())
        run.stop()
        await running
    return f"{told}; page {page:.2f} s"


def loaded(address: str) -> float:
    """The seconds until all is there that the page shows at first."""

    def got(path: str) -> Any:
        with urllib.request.urlopen(f"{address.rstrip('/')}/api/{path}") as answer:  # noqa: S310 - a server of ours
            return json.load(answer)

    began = time.perf_counter()
    for name in ("pipeline", "plan", "budget", "queries"):
        got(name)
    for series in got("series")["series"]:
        got(f"series/{series['name']}")
    return time.perf_counter() - began


def ledger(folder: Path) -> str:
    began = time.process_time()
    asyncio.run(read_ledger(folder / "flat.yaml", folder / "key", print))
    return most("ledger", began)


def export(folder: Path) -> str:
    began = time.process_time()
    asyncio.run(export_releases(folder / "flat.yaml", f"csv:{folder}"))
    return most("export", began)


def alone(name: str, ticks: Sequence[int]) -> None:
    """Run one of the pipelines in this process."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "flat"
        place.mkdir()
        asyncio.run(told(name, ticks, place))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ticks", type=int, nargs="+", default=TICKS)
    parser.add_argument("pipelines", nargs="*", default=list(PIPELINES))
    arguments = parser.parse_args()
    print(f"{'':24} {'ticks':>9} {'RSS':>9} growth  sealed    file", flush=True)
    spawn = multiprocessing.get_context("spawn")
    for name in arguments.pipelines:
        process = spawn.Process(target=alone, args=(name, arguments.ticks))
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit(f"{name}: exit code {process.exitcode}")


if __name__ == "__main__":
    main()
