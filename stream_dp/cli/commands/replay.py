"""`stream-dp replay`: feed a file into a topic, with tick marks."""

import asyncio
import math
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from stream_dp.cli.options import Encoding, KeyFile, say_on_stderr
from stream_dp.cli.progress_line import progress
from stream_dp.core.wording import how_many
from stream_dp.errors import UsageError
from stream_dp.operate.replay_feed import Fed, Feed, replay_file


def replay(
    file: Annotated[Path, Argument(metavar="FILE", show_default=False)],
    *,
    topic: Annotated[str, Option("--topic", help="The topic to send to.")],
    pipeline: Annotated[
        Path,
        Option("--pipeline", help="The pipeline file, which declares schema, clock and broker."),
    ] = Path("pipeline.yaml"),
    speed: Annotated[
        float | None, Option(help="Ticks per second. Default: as fast as possible.")
    ] = None,
    create: Annotated[
        int,
        Option(
            min=0,
            help="If the topic does not exist, create it with this number of partitions. 0: do not create it.",
        ),
    ] = 0,
    encoding: Encoding = "utf-8",
    skip_bad: Annotated[
        bool, Option("--skip-bad", help="Leave out the records that the pipeline cannot use.")
    ] = False,
    key_file: KeyFile = None,
) -> None:
    """Send the records of FILE (CSV, JSON lines or Parquet) to a topic in order of time, and mark the end of each tick.

    All records are examined before the first is sent. If the pipeline cannot use some of them, they are listed (NOT
    PRIVATE) and nothing is sent. The marks are signed with the operator's key. A replay that was interrupted continues
    after its last complete tick, and sends no record twice. A topic that holds any other records is refused.
    """
    if speed is not None and not 0 < speed < math.inf:
        raise UsageError("--speed: must be more than 0 ticks per second, and finite")
    with progress(f"Reading {pipeline}") as line:
        to = Feed(topic, None if speed is None else (lambda _: speed), create, encoding)
        feeding = replay_file(pipeline, file, to, key_file, line.say, skip_bad, progress=line)
        fed = asyncio.run(feeding)
    say_on_stderr(f"{topic}: all ticks of the clock are sent. NOT PRIVATE: {_told(fed)}")


def _told(fed: Fed) -> str:
    """Return how many records were sent, were there already, or were skipped.

    >>> _told(Fed(1200, 0)), _told(Fed(0, 1200, 3))
    ('1,200 records sent', '0 records sent, 1,200 sent already by an earlier run, 3 left out')
    """
    before = f", {fed.before:,} sent already by an earlier run" if fed.before else ""
    skipped = f", {fed.skipped:,} left out" if fed.skipped else ""
    return f"{how_many(fed.sent, 'record')} sent{before}{skipped}"
