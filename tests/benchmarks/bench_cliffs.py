"""Ordinary records and files that were far slower than plain ones: CPU seconds of each, beside another tree's.

Cases: `kafka` (300,000 values of 2 KB; µs each), `zone` (times of a named zone; µs each), `list` (lists of 20; µs
each), `plan` (200 series, counts and windows and histograms; s), `trace` (`audit --trace` of 2,000 ticks of the flights
example, whose journal this tree writes; µs a tick).
Each is measured in a process of its own, in turn in this tree and in the other one, so that both meet the same machine.

Run: PYTHONPATH=. python tests/benchmarks/bench_cliffs.py [--against TREE] [--rounds N] [CASE ...]
"""

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import fields
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

HERE = Path(__file__).parents[2]
VALUES, TIMES, LISTS, SERIES, TICKS = 300_000, 200_000, 40_000, 200, 2_000
FETCHED = 4_000  # lists in a megabyte
PARTITIONS, PER_BATCH = 4, 100
START = datetime(2024, 1, 1)  # noqa: DTZ001 - a local time
PIPELINE: dict[str, Any] = {
    "version": 1,
    "name": "cliffs",
    "privacy": {"epsilon": "100"},
    "clock": {"kind": "wall", "step": "1s"},
}


def spec(schema: dict[str, Any], series: list[dict[str, Any]], **other: Any) -> Any:
    """A pipeline over a topic, unless `other` says something else."""
    from stream_dp.pipeline.spec import PipelineSpec

    source = {"kind": "kafka", "bootstrap": "localhost:9092", "topic": "t"}
    whole = PIPELINE | {"source": source, "schema": schema, "series": series} | other
    return PipelineSpec.model_validate(whole)


async def fill(bootstrap: str) -> None:
    """A topic of 2 KB values in batches of 200 KB."""
    from aiokafka import AIOKafkaProducer

    from stream_dp.broker import create_topic

    await create_topic(bootstrap, "big", PARTITIONS, {"message.timestamp.type": "LogAppendTime"})
    value = msgspec.json.encode({"kind": "k", "text": "x" * 2_000})
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, max_batch_size=256 * 1024)
    await producer.start()
    for first in range(0, VALUES, PER_BATCH):
        batch = producer.create_batch()
        for _ in range(PER_BATCH):
            batch.append(key=None, value=value, timestamp=None)
        batch.close()
        await producer.send_batch(batch, "big", partition=first // PER_BATCH % PARTITIONS)
    await producer.stop()


def address(place: str, told: str | None = None) -> str:
    """The broker's address, kept in a file of the folder `place`."""
    file = Path(place, "bootstrap")
    if told is not None:
        file.write_text(told)
    return file.read_text()


async def kafka(place: str) -> float:
    """Read and route the topic of the broker whose address is kept in `place`."""
    from stream_dp.files.system_clock import SystemClock
    from stream_dp.kafka.client.clients import KafkaSettings
    from stream_dp.kafka.source.source import KafkaSource, StampTicks
    from stream_dp.pipeline.router import Router

    clock = SystemClock()
    origin = clock.now() // 1000 * 1000 - 3_600_000
    by = [{"name": "a", "statistic": "histogram", "by": "kind", "epsilon": "1"}]
    router = Router(spec({"kind": {"type": "category", "domain": ["k"]}}, by), origin)
    settings = KafkaSettings(address(place))
    parts: tuple[Any, ...] = (1000, 100, "big.private.clock")[
        : len(fields(StampTicks))
    ]  # once without a clock
    source = KafkaSource(settings, "big", clock, StampTicks(*parts))
    await source.open(origin)
    await source.seek(dict.fromkeys(range(PARTITIONS), 0))
    began, seen = time.process_time(), 0
    while seen < VALUES:
        for batch in await source.read():
            seen += len(batch.payloads)
            router.route(batch)
    took = time.process_time() - began
    await source.close()
    return took / VALUES * 1e6


async def zone(_: str) -> float:
    """Find the ticks of times to the millisecond, in any order."""
    from stream_dp.core.time import TickGrid, TimeForm
    from stream_dp.records.decoder import OwnTicks

    choose = random.Random(1)
    times = [
        (START + timedelta(milliseconds=choose.randrange(31_536_000_000))).isoformat(
            timespec="milliseconds"
        )
        for _ in range(TIMES)
    ]
    grid = TickGrid(1_704_000_000_000, 3_600_000, 9_000)
    ticks = OwnTicks(grid, TimeForm(zone=ZoneInfo("Europe/Paris")))
    began = time.process_time()
    for first in range(0, TIMES, 1000):
        ticks.of(times[first : first + 1000], 1000)
    return (time.process_time() - began) / TIMES * 1e6


async def lists(_: str) -> float:
    """Route lists of 20 entries, a tenth of them outside of the domain."""
    from stream_dp.engine.ports import Batch
    from stream_dp.pipeline.router import Router

    names = [f"tag{number:03}" for number in range(220)]
    field = {"type": "list", "domain": names[:200], "most": 20}
    by = [{"name": "a", "statistic": "histogram", "by": "tags", "epsilon": "1"}]
    router, choose = Router(spec({"tags": field}, by), 0), random.Random(1)
    made = [msgspec.json.encode({"tags": choose.choices(names, k=20)}) for _ in range(LISTS)]
    batches = [made[first : first + FETCHED] for first in range(0, LISTS, FETCHED)]
    router.route(Batch(0, batches[0], range(FETCHED), 0, tick=0))  # what the first one imports
    began = time.process_time()
    for batch in batches:
        router.route(Batch(0, batch, range(FETCHED), 0, tick=0))
    return (time.process_time() - began) / LISTS * 1e6


def write(file: Path, text: str) -> None:
    file.write_text(text)


async def plan(place: str) -> float:
    import yaml

    from stream_dp.operate.budget_view import PlanView

    took = 0.0
    kinds = ({"statistic": "count"}, {"statistic": "count", "windows": ["1h"]},
             {"statistic": "histogram", "by": "kind"})  # fmt: skip
    for kind in kinds:
        series = [
            {"name": f"s{at}", "epsilon": "0.1", "where": [{"field": "delay", "at_least": at}]}
            | kind
            for at in range(SERIES)
        ]
        fields = {
            "kind": {"type": "category", "domain": ["a", "b", "c"]},
            "delay": {"type": "integer"},
        }
        source = {"kind": "kafka", "bootstrap": "localhost:9092", "topic": "t"}
        file = Path(place, "plan.yaml")
        whole = PIPELINE | {"source": source, "schema": fields, "series": series}
        write(file, yaml.safe_dump(whole, default_flow_style=None))
        began = time.process_time()
        PlanView(file).shown()
        took += time.process_time() - began
    return took


def written_journal(place: Path) -> Path:
    """The flights example with its journal beside it, which is written where there is none."""
    folder, pipeline = HERE / "examples" / "01_flights", place / "trace.yaml"
    if not (place / "trace.db").exists():
        text = (folder / "pipeline.yaml").read_text()
        source = f"source: {{kind: file, path: {folder / 'flights.csv.gz'}}}\n"
        text = text[: text.index("source:")] + source + text[text.index("schema:") :]
        text = text.replace("{kind: kafka}", "{kind: sqlite, path: trace.db}")
        write(pipeline, text.replace("horizon: 8760", f"horizon: {TICKS}"))
        for told in (
            ["key", "trace.key"],
            ["run", "trace.yaml", "--until-end", "--key-file", "trace.key"],
        ):
            subprocess.run(
                [sys.executable, "-m", "stream_dp", *told],
                env=os.environ | {"STREAM_DP_HOME": str(place)}, cwd=place, check=True, capture_output=True,
            )  # fmt: skip
    return pipeline


async def trace(place: str) -> float:
    """Play the trace of a journal and compare."""
    from stream_dp.operate.audit.trace_check import check_trace

    pipeline = await asyncio.to_thread(written_journal, Path(place))
    began = time.process_time()
    report = await check_trace(None, pipeline, Path(place, "trace.key"))
    return (time.process_time() - began) / report.ticks * 1e6


CASES: dict[str, Callable[[str], Coroutine[Any, Any, float]]] = {
    "kafka": kafka,
    "zone": zone,
    "list": lists,
    "plan": plan,
    "trace": trace,
}


def measured(case: str, tree: Path, place: str) -> float:
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = os.pathsep.join(
        [str(tree), *(each for each in own if Path(each or ".").resolve() != HERE)]
    )
    said = subprocess.run(
        [sys.executable, __file__, "--one", case, "--place", place],
        env=os.environ | {"PYTHONPATH": path}, cwd=place, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return float(said.stdout.split()[-1])


async def compared(cases: list[str], trees: list[Path], rounds: int) -> None:
    """Measure all cases in turn in all trees and print medians."""
    from stream_dp.broker import LocalKafka

    with tempfile.TemporaryDirectory() as place:
        broker = LocalKafka(Path(place, "kafka")) if "kafka" in cases else None
        if broker is not None:
            await broker.start()
            await fill(address(place, broker.bootstrap))
        for case in cases:
            rows = [
                [await asyncio.to_thread(measured, case, tree, place) for tree in trees]
                for _ in range(rounds)
            ]
            middle = [statistics.median(column) for column in zip(*rows, strict=True)]
            shares = [row[0] / row[-1] for row in rows]
            print(
                f"{case:6} {'  '.join(f'{each:8.3f}' for each in middle)}   this / other, by pair: "
                f"{statistics.median(shares):.2f} ({min(shares):.2f} to {max(shares):.2f})"
            )
        if broker is not None:
            await broker.stop()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="CASE")
    parser.add_argument("--against", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one", choices=list(CASES))
    parser.add_argument("--place", default="")
    given = parser.parse_args()
    if given.one:
        print(asyncio.run(CASES[given.one](given.place)))
        return
    trees = [HERE] if given.against is None else [HERE, given.against.resolve()]
    asyncio.run(compared(given.cases, trees, given.rounds))


if __name__ == "__main__":
    main()
