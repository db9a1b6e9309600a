"""CPU seconds a million records: `stream-dp worker` against lanes that a PyFlink job hosts, pair by pair.

Both wait for their engine first, so start-up is not counted; the JVM of the job is. Needs `.venv-flink`
(`make flink`). Run: PYTHONPATH=tests python tests/benchmarks/bench_flink.py [--records N] [--pairs N]
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.bench_engine import AIRLINES, DESTINATIONS, PARTITIONS, TOPIC, Load, cpu_of, produce
from faults.cases import Case, make_key
from faults.checker import Expected
from faults.kafka_evidence import over_kafka
from kafka.test_flink import job, processes
from kafka.test_workers import working

from stream_dp.broker import LocalKafka, create_topic

FILE = """
version: 1
name: {name}
source: {{kind: kafka, topic: {topic}, bootstrap: "{kafka}", workers: {{lanes: {lanes}}}}}
schema:
  airline: {{type: category, domain: {airlines}}}
  destination: {{type: category, domain: {destinations}}}
  delay: {{type: integer, nullable: true}}
privacy: {{unit: event, epsilon: 4}}
clock: {{kind: wall, step: 1s, delay: 1s, start: "{start}"}}
series:
  - {{name: total, statistic: count, epsilon: 1}}
  - {{name: by_destination, statistic: histogram, by: destination, epsilon: 1}}
  - {{name: late, statistic: histogram, by: airline, where: [{{field: delay, at_least: 60}}], epsilon: 1}}
"""
SETTLED_S, STARTED = 5.0, 0.5


async def cost(
    case: Case,
    kafka: str,
    records: int,
    start: Callable[[], AbstractContextManager[Any]],
    times: Callable[[Any], Mapping[int, float]],
) -> float:
    """The CPU seconds a million records of what reads lanes, from when its engine starts."""
    with start() as reader:
        await asyncio.sleep(SETTLED_S)
        last, before = -1.0, times(reader)
        while (
            now := sum(before.values())
        ) - last > STARTED:  # it takes little now: all has started
            last = now
            await asyncio.sleep(SETTLED_S)
            before = times(reader)
        run = case.start("--zero-noise")
        try:
            while (seen := await counted(kafka, case)) < records:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(1)
            if seen != records:
                raise SystemExit(f"the engine counted {seen} of {records} records")
            after = times(reader)
        finally:
            run.kill()
            run.communicate()
    return 1e6 * sum(at - before.get(pid, 0) for pid, at in after.items()) / records


async def counted(kafka: str, case: Case) -> int:
    try:
        commits = (await over_kafka(kafka, case.expected.pipeline, case.key)).commits
    except Exception:  # noqa: BLE001 - it has not begun
        return 0
    return sum(commit["records"] for commit in commits)


def case_of(folder: Path, kafka: str, start: int, name: str) -> Case:
    (folder / name).mkdir()
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start // 1000))
    text = FILE.format(
        name=name, topic=TOPIC, kafka=kafka, lanes=PARTITIONS, airlines=AIRLINES,
        destinations=DESTINATIONS, start=moment,
    )  # fmt: skip
    (folder / name / "pipeline.yaml").write_text(text)
    make_key(folder / name)
    return Case(folder / name, Expected(name, 0, 1000, 1, {}, (), ()), ())


async def compare(records: int, pairs: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with LocalKafka(folder) as kafka:
            stamping = {"message.timestamp.type": "LogAppendTime"}
            await create_topic(kafka.bootstrap, TOPIC, PARTITIONS, stamping)
            begin, _ = await produce(kafka.bootstrap, Load(records=records))
            ratios = []
            for pair in range(pairs):
                case = case_of(folder, kafka.bootstrap, begin, f"worker{pair}")
                alone = await cost(
                    case, kafka.bootstrap, records, partial(working, case),
                    lambda run: {run.pid: cpu_of(run.pid)},
                )  # fmt: skip
                case = case_of(folder, kafka.bootstrap, begin, f"flink{pair}")
                hosted = await cost(
                    case, kafka.bootstrap, records, partial(job, case),
                    lambda run: {pid: cpu_of(pid) for pid in processes(run)},
                )  # fmt: skip
                ratios.append(hosted / alone)
                print(
                    f"CPU s/M: worker {alone:.2f}  Flink {hosted:.2f}  ratio {ratios[-1]:.2f}",
                    flush=True,
                )
            print(f"median ratio of {pairs}: {statistics.median(ratios):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--pairs", type=int, default=3)
    given = parser.parse_args()
    asyncio.run(compare(given.records, given.pairs))


if __name__ == "__main__":
    main()
