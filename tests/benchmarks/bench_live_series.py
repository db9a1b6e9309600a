"""What the most that one analyst may have at once costs: ms of CPU and bytes a tick (docs/live_series.md).

A replay of a file with one event a tick into SQLite and a file of releases, with one analyst: her room is the default,
100 series and 50,000 entries. The time is that of the whole engine, the bytes are those of the releases and commits.
Run: python tests/benchmarks/bench_live_series.py [TICKS]
"""

import asyncio
import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from live_acts import create_series

from stream_dp.engine.ports import Batch, Source
from stream_dp.files.memory import WrappedSource
from stream_dp.journal.keys import Sealer
from stream_dp.operate.run.running import Run
from stream_dp.operate.run.wiring import open_ports
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.yaml import load

FILE = """\
version: 1
name: cost
source: {{kind: file, path: events.jsonl}}
schema:
  time: {{type: time}}
  amount: {{type: integer}}
  share: {{type: number}}
  weight: {{type: number}}
  few: {{type: category, domain: [{few}]}}
  many: {{type: category, domain: [{many}]}}
privacy: {{epsilon: 60, analysts: [{{name: ann, epsilon: 50}}]}}
clock: {{kind: replay, field: time, start: 2026-01-01T00:00:00Z, step: 1m, horizon: {ticks}}}
series: [{{name: all, statistic: count, epsilon: 1}}]
"""
WINDOWS = [f"{minutes}m" for minutes in (2, 3, 5, 10, 20, 30, 45, 60)]
"""As many as a series may have; each is told, and the single tick."""
Definition = Mapping[str, Any]


class Held(WrappedSource):
    """Gives nothing before `go` is set."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.go = asyncio.Event()

    async def read(self) -> Sequence[Batch]:
        """Wait, then read."""
        await self.go.wait()
        return await super().read()


def alike(number: int, **more: Any) -> list[Definition]:
    """So many series, each with a condition of its own."""
    return [
        {
            "name": f"s{at}",
            "epsilon": "0.001",
            "where": [{"field": "amount", "at_least": at}],
            **more,
        }
        for at in range(number)
    ]


def sets() -> Iterator[tuple[str, list[Definition]]]:
    """What an analyst may ask for."""
    yield "nothing", []
    yield "100 counts", alike(100, statistic="count")
    yield "100 counts over 8 windows", alike(100, statistic="count", windows=WINDOWS)
    yield "100 histograms of 500 keys", alike(100, statistic="histogram", by="few")
    yield "one of 49,999 keys", alike(1, statistic="histogram", by="many")
    yield "11 of 500 over 8 windows", alike(11, statistic="histogram", by="few", windows=WINDOWS)
    quiet = {"name": "w", "by": "many", "above": 10**9}
    yield "a monitor of 49,999, silent", alike(1, statistic="monitor", most=50_000, watch=[quiet])
    edges = [f"{at}.{7 * at + 10**28}e-70" for at in range(1, 69)]
    long = [{"field": "share", "edges": edges}, {"field": "weight", "edges": edges}]
    yield "one of 4,900 keys of 400 letters", alike(1, statistic="histogram", by=long)


async def measured(folder: Path, definitions: Sequence[Definition], ticks: int) -> list[float]:
    """Ms of CPU, bytes released and bytes in the journal, per tick."""
    times = [f"2026-01-01T{at // 60:02}:{at % 60:02}:30Z" for at in range(ticks)]
    lines = [json.dumps({"time": each, "amount": 5, "share": 0.5, "few": "k1"}) for each in times]
    (folder / "events.jsonl").write_text("\n".join(lines) + "\n")
    few, many = (", ".join(f"k{at}" for at in range(size)) for size in (499, 49_998))
    path = folder / "cost.yaml"
    path.write_text(FILE.format(few=few, many=many, ticks=ticks))
    spec = load(path)
    ports = open_ports(spec, Sealer(bytes(range(32)), "cost"), marks=folder / "marks")
    source = Held(ports.source)
    run = Run(build(spec), replace(ports, source=source))
    running = asyncio.create_task(run.until_end())
    await run.ready.wait()
    for definition in definitions:
        await create_series(run.engine, json.dumps(definition).encode(), "ann")
    began = time.process_time()
    source.go.set()
    await running
    cpu = time.process_time() - began
    return [1000 * cpu / ticks, released(folder) / ticks, sealed(folder, len(definitions)) / ticks]


def released(folder: Path) -> int:
    """The bytes of all releases."""
    return (folder / "cost.releases.jsonl").stat().st_size


def sealed(folder: Path, created: int) -> int:
    """The bytes of the commits behind those of the start and of what was created."""
    with closing(sqlite3.connect(folder / "cost.journal")) as journal:
        asked = "SELECT sum(length(sealed)) FROM commits WHERE sequence > ?"
        return int(journal.execute(asked, (created,)).fetchone()[0])


def main() -> None:
    """Print a table."""
    ticks = int(sys.argv[1]) if len(sys.argv) > 1 else 240
    print(f"{'':34} {'ms':>8} {'released':>12} {'journal':>12}   a tick")
    for name, definitions in sets():
        with tempfile.TemporaryDirectory() as folder:
            cpu, public, private = asyncio.run(measured(Path(folder), definitions, ticks))
        print(f"{name:34} {cpu:8.1f} {public:12,.0f} {private:12,.0f}", flush=True)


if __name__ == "__main__":
    main()
