"""What a topic of given values is to the engine, and what a pipeline without noise releases of it."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from unit.pipeline.routing.planned_worlds import ran

from stream_dp.core.time import TickGrid
from stream_dp.engine.ports import Batch
from stream_dp.kafka.source.record_batches import Kind, RecordBatch
from stream_dp.kafka.source.ticks import Place, Room, StampedTicks
from stream_dp.kafka.source.unpacker import Unpacker
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.records.endpoints import KafkaSourceSpec
from stream_dp.testing.noise import ZeroNoise


def packed(values: Sequence[bytes], base: int, stamp: int) -> RecordBatch:
    offsets = range(base, base + len(values))
    content = [SimpleNamespace(value=value, offset=base + at) for at, value in enumerate(values)]
    return RecordBatch(
        Kind.DATA, base, offsets.stop, stamp, 0, None, len(values), memoryview(b""), content
    )


def as_read(spec: PipelineSpec, values: Sequence[bytes]) -> list[Batch]:
    """What a topic of these values gives, in three ticks, as the engine's source reads it."""
    assert isinstance(spec.source, KafkaSourceSpec)
    assert spec.clock.start is not None
    grid, out = TickGrid(spec.clock.start, 1000, 3), list[Batch]()
    unpacker = Unpacker(marks=False, read=spec.source.read(spec.fields))
    ticks = StampedTicks(Place(0, 0), unpacker, Room(), out, grid, 0)
    for tick in range(3):
        some = range(tick * len(values) // 3, (tick + 1) * len(values) // 3)
        ticks.take(packed([values[at] for at in some], some.start, grid.start(tick)))
    ticks.mark(2)
    return out


def released(spec: PipelineSpec, values: Sequence[bytes]) -> list[dict[str, Any]]:
    return ran(build(spec), as_read(spec, values), lambda *_: ZeroNoise(), now=60_000)
