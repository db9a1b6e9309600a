"""What a start costs after many ticks: from the newest checkpoint, and from the first commit on, as before checkpoints.

A file pipeline of four scalars writes an embedded journal and a file of releases; then a process of its own starts the
engine on it, once each way, and stops it as soon as it runs. Printed: CPU seconds and peak memory of that process from
the moment its imports are done, and what lies on disk. With `--users N`, N people have an event each in the open window
of their cap.
Run: python tests/benchmarks/bench_start.py [--ticks 10000 100000] [--users N]
"""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from stream_dp.core.time import TickGrid
from stream_dp.engine.ports import Journal
from stream_dp.operate.keys import sealer_for
from stream_dp.operate.run.running import Run
from stream_dp.operate.run.wiring import Setup, open_ports
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.yaml import load

START = "2020-01-01T00:00:00Z"
STEP_MS = 1000
EVERY = 50  # ticks between two records
KEPT = 10_000  # releases of each series for the page, as `stream-dp run` keeps


class FirstCommitOn:
    """A journal that names no checkpoint."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def checkpoints(self) -> Sequence[int]:
        return ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


def prepare(folder: Path, ticks: int, users: int) -> None:
    """Write the pipeline and its events: one each `EVERY` ticks, and all users in the last tick before the end."""
    unit = {"unit": "user", "user": "name", "max_events": 20, "per": "400d"} if users else {}
    document = {
        "version": 1,
        "name": "long-lived",
        "source": {"kind": "file", "path": "events.csv"},
        "schema": {"time": {"type": "time"}, "name": {"type": "text"}},
        "privacy": {"unit": "event", "epsilon": 4, **unit},
        "clock": {"kind": "replay", "field": "time", "start": START, "step": "1s", "horizon": 2 * ticks},
        "journal": {"kind": "sqlite", "path": "journal"},
        "releases": {"path": "releases.jsonl"},
        "series": [{"name": f"count_{n}", "statistic": "count", "epsilon": 1} for n in range(4)],
    }  # fmt: skip
    (folder / "pipeline.yaml").write_text(json.dumps(document))
    grid = TickGrid(1_577_836_800_000, STEP_MS, 2 * ticks)
    people = [(ticks // 2, f"user {n}") for n in range(users)]
    rows = sorted([*((tick, "someone") for tick in range(0, 2 * ticks, EVERY)), *people])
    lines = ["time,name", *(f"{grid.start_text(tick)},{name}" for tick, name in rows)]
    (folder / "events.csv").write_text("\n".join(lines) + "\n")
    key = folder / "key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(32))


async def play(folder: Path, until: int | None, *, first: bool = False) -> None:
    """Run the pipeline until a tick is durable, or (None) until the engine runs."""
    spec = load(folder / "pipeline.yaml")
    ports = open_ports(spec, sealer_for(spec, folder / "key"), marks=folder / "marks")
    if first:
        ports = replace(ports, journal=FirstCommitOn(ports.journal))
    one_by_one = Setup(group=1)  # a commit for each tick, as when ticks come by the clock
    run = Run(build(spec), ports, one_by_one, keep=KEPT)
    running = asyncio.create_task(run.engine.run())
    await run.engine.ready.wait()
    if until is not None:
        while run.engine._chain.settled <= until and not running.done():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    run.stop()
    with suppress(asyncio.CancelledError):
        await running


def measured(folder: Path, *ways: str) -> tuple[float, float]:
    """CPU seconds and peak MiB of a start in a process of its own."""
    command = [sys.executable, __file__, "--start", str(folder), *ways]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    cpu, rss = map(float, shown.split())
    return cpu, rss


def started(folder: Path, *, first: bool) -> None:
    before = time.process_time()
    asyncio.run(play(folder, None, first=first))
    print(time.process_time() - before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ticks", type=int, nargs="*", default=[1_000, 10_000])
    parser.add_argument("--users", type=int, default=0)
    parser.add_argument("--start", type=Path)
    parser.add_argument("--first", action="store_true")
    chosen = parser.parse_args()
    if chosen.start is not None:
        return started(chosen.start, first=chosen.first)
    print(
        "  ticks | checkpoint: CPU s   MiB | first commit: CPU s   MiB | journal B/tick | releases B/tick"
    )
    for ticks in chosen.ticks:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            prepare(folder, ticks, chosen.users)
            asyncio.run(play(folder, ticks))
            on, whole = measured(folder), measured(folder, "--first")
            sizes = [
                (folder / name).stat().st_size / ticks for name in ("journal", "releases.jsonl")
            ]
            print(
                f"{ticks:>7,} | {on[0]:17.2f} {on[1]:5.0f} | {whole[0]:19.2f} {whole[1]:5.0f} | "
                f"{sizes[0]:14,.0f} | {sizes[1]:15,.0f}"
            )
    return None


if __name__ == "__main__":
    main()
