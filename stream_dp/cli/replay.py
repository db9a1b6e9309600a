"""`stream-dp replay`: feed a file into a topic, with tick marks."""

import asyncio
import math
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from stream_dp.app.replay_feed import replay_file
from stream_dp.cli.options import KeyFile
from stream_dp.errors import UsageError


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
    key_file: KeyFile = None,
) -> None:
    """Feed FILE (CSV, JSON lines or Parquet, .gz or not) into a topic, sorted by time, with tick marks.

    The marks are signed with the operator's key. A topic that was fed before is continued after its last complete
    tick; no record is sent twice.
    """
    if speed is not None and not 0 < speed < math.inf:
        raise UsageError("--speed: must be more than 0 ticks per second, and finite")
    console = Console(stderr=True)

    def warn(text: str) -> None:
        console.print(text, markup=False)

    asyncio.run(replay_file(pipeline, file, topic, speed, create, key_file, warn))
    console.print(f"{topic}: fed up to the end of the declared range")
