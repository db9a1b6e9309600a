"""A pipeline with any series and privacy, in memory, which runs over given batches to the end."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from stream_dp.engine.engine import Engine
from stream_dp.engine.messages.answering import Requests
from stream_dp.engine.ports import Batch, Ports
from stream_dp.engine.recovery import NoiseMaker
from stream_dp.files.memory import MemoryJournal, MemorySink, MemorySource, MemoryStore
from stream_dp.journal.keys import Sealer
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.noise import NoiseStream
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.router import OpenRouter, memories_of
from stream_dp.pipeline.user_guard import guard_of
from stream_dp.testing.manual_clock import ManualClock

SEALER = Sealer(bytes(range(32)), "shop")


def engine_of(
    built: Built,
    source: MemorySource,
    store: MemoryStore,
    bodies: list[bytes],
    noise: NoiseMaker = NoiseStream,
    now: int = 0,
) -> Engine:
    config, key = built.run_config(0, private=noise is NoiseStream), SEALER.user_key()
    router = OpenRouter(built.spec, config.origin, built.layout, key)
    ports = Ports(source, MemoryJournal(store), MemorySink(bodies), ManualClock(now), SEALER)
    return Engine(
        config, router, ports, noise,
        requests=Requests(LiveSeriesPlanner(built.spec, router), built.subledgers()),
        guard=guard_of(built.spec, config.origin, key),
        memories=memories_of(built.layout, built.spec),
    )  # fmt: skip


def ran(
    built: Built, batches: Sequence[Batch], noise: NoiseMaker = NoiseStream, now: int = 0
) -> list[dict[str, Any]]:
    bodies: list[bytes] = []
    source = MemorySource(batches, partitions=(0,))
    asyncio.run(engine_of(built, source, MemoryStore(), bodies, noise, now).run())
    return [json.loads(body) for body in bodies]
