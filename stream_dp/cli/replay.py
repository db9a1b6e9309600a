"""`stream-dp replay`: feed a file into a topic, with tick marks."""

import asyncio
import math
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from stream_dp.adapters.records import load_records, ticked
from stream_dp.app.replay_feed import feed
from stream_dp.app.wiring import fields_of, settings_for
from stream_dp.broker.topics import create_topic
from stream_dp.errors import UsageError
from stream_dp.pipeline.spec import KafkaSource, PipelineSpec, ReplayClock
from stream_dp.pipeline.yaml import load


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False)],
    *,
    topic: Annotated[str, typer.Option("--topic", help="The topic to write.")],
    pipeline: Annotated[
        Path, typer.Option("--pipeline", help="The pipeline file with schema, clock and broker.")
    ] = Path("pipeline.yaml"),
    speed: Annotated[
        float | None, typer.Option(help="Ticks per second; as fast as it goes if not given.")
    ] = None,
    create: Annotated[
        int,
        typer.Option(
            min=0,
            help="Create the topic with so many partitions if it is missing; 0: do not create it.",
        ),
    ] = 0,
) -> None:
    """Feed FILE (CSV, JSON lines or Parquet, .gz or not) into a topic, sorted by time, with tick marks.

    A topic that was fed before is continued after its last complete tick; no record is sent twice.
    """
    if speed is not None and not 0 < speed < math.inf:
        raise UsageError("--speed: must be more than 0 ticks per second, and finite")
    asyncio.run(_replay(load(pipeline), file, topic, speed, create))
    Console(stderr=True).print(f"{topic}: fed up to the end of the declared range")


async def _replay(
    spec: PipelineSpec, file: Path, topic: str, speed: float | None, create: int
) -> None:
    clock, source = spec.clock, spec.source
    if not isinstance(clock, ReplayClock):
        raise UsageError("replay needs a pipeline with `clock: {kind: replay, ...}`")
    if not isinstance(source, KafkaSource):
        raise UsageError("replay needs a pipeline with `source: {kind: kafka, ...}`: it says where")
    if topic != source.topic:
        Console(stderr=True).print(
            f"Warning: {spec.name} reads topic {source.topic}, not {topic}", markup=False
        )
    records = await asyncio.to_thread(load_records, file, fields_of(spec), clock.field)
    ticks = ticked(records, clock.grid)
    if create:
        client = settings_for(source).client()
        await create_topic(source.bootstrap, topic, create, client=client)
    await feed(settings_for(source), topic, ticks, speed)
