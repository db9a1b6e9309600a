"""How fast a batch becomes tick rows: µs per record, and against bare msgspec decoding.

Run: python tests/benchmarks/bench_router.py [ROUNDS]. Prints medians of CPU time
over interleaved rounds of 200 batches.
"""

import random
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from stream_dp.pipeline.router import Router
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load
from stream_dp.runtime.ports import Batch

FLIGHTS = Path(__file__).parents[2] / "examples" / "01_flights" / "pipeline.yaml"
BATCHES, SIZE, PER_TICK = 200, 500, 40
START = datetime(2013, 2, 1, tzinfo=UTC)


class Flight(msgspec.Struct, gc=False):
    """What the bare decoder reads."""

    time: str
    airline: str
    destination: str
    delay: int | None


def wall(spec: PipelineSpec) -> PipelineSpec:
    """The same pipeline on the broker's clock."""
    data = spec.model_dump(by_alias=True)
    return PipelineSpec.model_validate(data | {"clock": {"kind": "wall", "step": "1s"}})


def payloads(spec: PipelineSpec, resolution: int) -> list[list[bytes]]:
    """Flight-like records, 40 per hour, their times rounded down to `resolution` ms."""
    rng, number = random.Random(1), 0
    made = []
    for _ in range(BATCHES):
        batch = []
        for _ in range(SIZE):
            hour, number = number // PER_TICK, number + 1
            rest = rng.randrange(3_600_000) // resolution * resolution
            when = START + timedelta(hours=hour, milliseconds=rest)
            record = {
                "time": when.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                "airline": rng.choice(spec.fields["airline"].domain),  # type: ignore[union-attr]
                "destination": rng.choice(spec.fields["destination"].domain),  # type: ignore[union-attr]
                "delay": rng.choice([None, *range(-20, 75)]),
            }
            batch.append(msgspec.json.encode(record))
        made.append(batch)
    return made


def per_record(run: Callable[[], object]) -> float:
    """CPU time per record of one round, in µs."""
    start = time.process_time()
    run()
    return (time.process_time() - start) / (BATCHES * SIZE) * 1e6


def main() -> None:
    """Measure all variants in turn and print their medians."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    spec = load(FLIGHTS)
    raw, fine, labels = payloads(spec, 3_600_000), payloads(spec, 1), range(SIZE)
    decode = msgspec.json.Decoder(Flight).decode
    replay, live = Router(spec, spec.clock.start or 0), Router(wall(spec), 0)
    variants: dict[str, Callable[[], object]] = {
        "bare msgspec": lambda: [[decode(p) for p in batch] for batch in raw],
        "one tick per batch": lambda: [live.route(Batch(0, b, labels, 0, tick=1)) for b in raw],
        "own hours, 40 per tick": lambda: [replay.route(Batch(0, b, labels, 0)) for b in raw],
        "own ms, 40 per tick": lambda: [replay.route(Batch(0, b, labels, 0)) for b in fine],
    }
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, run in variants.items():
            times[name].append(per_record(run))
    bare = statistics.median(times["bare msgspec"])
    for name, found in times.items():
        middle = statistics.median(found)
        print(f"{name:24} {middle:6.3f} µs/record   {middle / bare:5.2f} x bare")


if __name__ == "__main__":
    main()
