"""How fast a year of hours with 1,000 bins is exported, and how that compares with a bare COPY of the same rows.

Run: python tests/benchmarks/bench_export.py [TICKS [postgresql://USER@HOST/DATABASE]] (8760 ticks: 8.76 million rows,
minutes, 2 GB of disk). The table of releases of that database is dropped. Each export has a process of its own.
"""

import asyncio
import resource
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from stream_dp.client.frames import COLUMNS, TABLE
from stream_dp.files.files import FileSink
from stream_dp.journal.release import Released, Shape, content, release_of, write
from stream_dp.operate.exporting import PostgresqlTable, export_releases

BINS = 1_000
KEYS = [f"k{number:04d}" for number in range(BINS)]
START = datetime(2024, 1, 1, tzinfo=UTC)
PIPELINE = """\
version: 1
name: year
source: {kind: file, path: orders.jsonl}
schema: {time: {type: time}, country: {type: category, domain: [AT, DE]}}
privacy: {epsilon: 1}
clock: {kind: replay, field: time, start: 2024-01-01T00:00:00Z, step: 1h, horizon: 8760}
series: [{name: orders, statistic: histogram, by: country, epsilon: 0.5}]
"""


def body(tick: int, totals: np.ndarray) -> bytes:
    end = (START + timedelta(hours=tick + 1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    told = content(Shape.HISTOGRAM, KEYS, totals) | {"band": 137, "confidence": 0.95}
    return write(Released(v=1, sequence=tick, series="orders", tick=tick, end=end, **told))


async def made(folder: Path, ticks: int) -> Path:
    """A pipeline's file with so many releases beside it, as the engine writes them."""
    (folder / "year.yaml").write_text(PIPELINE)
    sink = FileSink(folder / "year.releases.jsonl")
    await sink.open()
    drawn, totals = np.random.default_rng(1), np.zeros(BINS, dtype=np.int64)
    for first in range(0, ticks, 100):
        some = []
        for tick in range(first, min(ticks, first + 100)):
            totals += drawn.integers(0, 100, BINS)
            some.append(release_of(body(tick, totals)))
        await sink.publish(some)
    await sink.close()
    return folder / "year.yaml"


def exported(pipeline: Path, address: str) -> tuple[float, float]:
    """The seconds that an export takes, and the most memory of its process in MB."""
    began = time.perf_counter()
    asyncio.run(export_releases(pipeline, address))
    took = time.perf_counter() - began
    return took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def dropped(address: str) -> None:
    import asyncpg

    client = await asyncpg.connect(address)
    await client.execute(f"drop table if exists {TABLE}")
    await client.close()


async def copied(address: str, file: Path) -> float:
    """The seconds that PostgreSQL takes for the rows of a CSV, into the same table with the same indexes."""
    import asyncpg

    table = PostgresqlTable(address, "year")
    await table.open()
    await table.close()
    client = await asyncpg.connect(address)
    began = time.perf_counter()
    await client.copy_to_table(
        TABLE, source=file, columns=COLUMNS, format="csv", header=True,
        force_not_null=["time_window", "key"], timeout=None,
    )  # fmt: skip
    took = time.perf_counter() - began
    await client.close()
    return took


def main() -> None:
    ticks = int(sys.argv[1]) if len(sys.argv) > 1 else 8760
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pipeline = asyncio.run(made(folder, ticks))
        postgresql = sys.argv[2:3]
        targets = [f"csv:{folder}", f"parquet:{folder}", f"duckdb:{folder}/year.duckdb"]
        took = 0.0
        for address in [*targets, *postgresql]:
            if address in postgresql:
                asyncio.run(dropped(address))
            with ProcessPoolExecutor(1, get_context("spawn")) as one:
                took, most = one.submit(exported, pipeline, address).result()
            rate = ticks * BINS / took
            print(
                f"{address.partition(':')[0]:10} {took:7.1f} s {rate:9,.0f} rows/s {most:5.0f} MB"
            )
        for address in postgresql:
            asyncio.run(dropped(address))
            bare = asyncio.run(copied(address, folder / "year.csv"))
            asyncio.run(dropped(address))
            print(
                f"bare COPY  {bare:7.1f} s {ticks * BINS / bare:9,.0f} rows/s; export {took / bare:.2f} times that"
            )


if __name__ == "__main__":
    main()
