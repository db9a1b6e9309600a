"""How fast a batch becomes tick rows: µs per record by size of batch and number of conditions.

Run: python tests/benchmarks/bench_router.py [ROUNDS]. Prints medians of CPU time over interleaved rounds of 20,000
records: for each router what a record costs, decoding included; beside them bare msgspec, and the oracle of
tests/oracles, which counts the decoded records one by one (its decoding is not included).
"""

import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import msgspec
from oracles.tick_rows import Comparison, Counted, Named, tick_rows

from stream_dp.engine.ports import Batch
from stream_dp.pipeline.layout import RowLayout
from stream_dp.pipeline.router import Router
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load
from stream_dp.records.conditions import Test

FLIGHTS = Path(__file__).parents[2] / "examples" / "01_flights" / "pipeline.yaml"
RECORDS, PER_TICK = 20_000, 40
SIZES, CONDITIONS = (10, 500, 5_000), (0, 20, 100)
START = datetime(2013, 2, 1, tzinfo=UTC)


class Flight(msgspec.Struct, gc=False):
    time: str
    airline: str
    destination: str
    delay: int | None


def pipeline(conditions: int, *, wall: bool) -> PipelineSpec:
    data = load(FLIGHTS).model_dump(by_alias=True)
    data["privacy"]["expect"] = None  # its guesses are of series that are left out here
    data["series"] = [
        series
        for series in data["series"]
        if not series.get("where") and series["statistic"] != "ratio"
    ]
    data["series"] += [
        {"name": f"above_{at}", "statistic": "count", "epsilon": "0.001",
         "where": [{"field": "delay", "at_least": str(at - 20)}]}
        for at in range(conditions)
    ]  # fmt: skip
    if wall:
        data["clock"] = {"kind": "wall", "step": "1s"}
    return PipelineSpec.model_validate(data)


def payloads(spec: PipelineSpec) -> list[bytes]:
    rng, made = random.Random(1), []
    for number in range(RECORDS):
        when = START + timedelta(hours=number // PER_TICK)
        record = {
            "time": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "airline": rng.choice(spec.fields["airline"].domain),  # type: ignore[union-attr]
            "destination": rng.choice(spec.fields["destination"].domain),  # type: ignore[union-attr]
            "delay": rng.choice([None, *range(-20, 75)]),
        }
        made.append(msgspec.json.encode(record))
    return made


def one_by_one(spec: PipelineSpec, decoded: Sequence[Any]) -> Callable[[], object]:
    """The oracle on decoded records, all in one tick."""
    layout = RowLayout.of(spec)
    features = [
        Counted(
            slot.start,
            (Named(feature.by, slot.keys[:-1]),) if isinstance(feature.by, str) else (),
            tuple(
                Comparison(t.field, t.operator, tuple(t.values))
                for t in feature.where
                if isinstance(t, Test)
            ),
        )
        for feature, slot in layout.counted(spec)
    ]
    return lambda: tick_rows(decoded, [0] * len(decoded), features, layout.width)


def variants(raw: Sequence[bytes]) -> dict[str, tuple[int, Callable[[], object]]]:
    """What is measured by name: how many records, and the call."""
    decode = msgspec.json.Decoder(Flight).decode
    found: dict[str, tuple[int, Callable[[], object]]] = {
        "bare msgspec": (len(raw), lambda: [decode(payload) for payload in raw])
    }
    few = [msgspec.json.decode(payload) for payload in raw[:1000]]
    for conditions in CONDITIONS:
        spec = pipeline(conditions, wall=True)
        found[f"oracle, {conditions} conditions"] = (len(few), one_by_one(spec, few))
        for clock in ("wall", "replay"):
            spec = pipeline(conditions, wall=clock == "wall")
            router = Router(spec, spec.clock.start or 0)
            for size in SIZES:
                name = f"{clock}, {conditions} conditions, batches of {size}"
                batches = [raw[at : at + size] for at in range(0, len(raw), size)]
                found[name] = (len(raw), routing(router, batches, 1 if clock == "wall" else None))
    return found


def routing(
    router: Router, batches: Sequence[Sequence[bytes]], tick: int | None
) -> Callable[[], object]:
    labels = range(max(map(len, batches)))
    return lambda: [router.route(Batch(0, batch, labels, 0, tick=tick)) for batch in batches]


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    measured = variants(payloads(pipeline(0, wall=True)))
    times: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(rounds):
        for name, (records, run) in measured.items():
            start = time.process_time()
            run()
            times[name].append((time.process_time() - start) / records * 1e6)
    bare = statistics.median(times["bare msgspec"])
    for name, found in times.items():
        middle = statistics.median(found)
        print(f"{name:44} {middle:8.3f} µs/record {middle / bare:8.2f} x bare")


if __name__ == "__main__":
    main()
