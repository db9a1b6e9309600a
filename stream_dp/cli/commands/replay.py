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
    topic: Annotated[str, Option("--topic", help="The topic to write.")],
    pipeline: Annotated[
        Path, Option("--pipeline", help="The pipeline file with schema, clock and broker.")
    ] = Path("pipeline.yaml"),
    speed: Annotated[
        float | None, Option(help="Ticks per second; as fast as possible if not given.")
    ] = None,
    create: Annotated[
        int,
        Option(
            min=0,
            help="Number of partitions with which to create a missing topic; 0: do not create it.",
        ),
    ] = 0,
    encoding: Encoding = "utf-8",
    skip_bad: Annotated[
        bool, Option("--skip-bad", help="Leave out the records that the pipeline cannot use.")
    ] = False,
    key_file: KeyFile = None,
) -> None:
    """Send FILE (CSV, JSON lines or Parquet, .gz or not) to a topic, by time, with a mark for each tick.

    All records are examined first: what the pipeline cannot use is listed (NOT PRIVATE), and nothing is sent. The marks
    are signed with the operator's key. A replay that was interrupted goes on after its last complete tick; no record
    is sent twice. A topic with any other records is refused.
    """
    if speed is not None and not 0 < speed < math.inf:
        raise UsageError("--speed: must be more than 0 ticks per second, and finite")
    with progress(f"Reading {pipeline}") as line:
        to = Feed(topic, None if speed is None else (lambda _: speed), create, encoding)
        feeding = replay_file(pipeline, file, to, key_file, line.say, skip_bad, progress=line)
        fed = asyncio.run(feeding)
    say_on_stderr(f"{topic}: fed up to the end of the declared range. NOT PRIVATE: {_told(fed)}")


def _told(fed: Fed) -> str:
    """Return how many records were sent, were there already, or were skipped.

    >>> _told(Fed(1200, 0)), _told(Fed(0, 1200, 3))
    ('1,200 records sent', '0 records sent, 1,200 there already from an earlier run, 3 skipped')
    """
    before = f", {fed.before:,} there already from an earlier run" if fed.before else ""
    skipped = f", {fed.skipped:,} skipped" if fed.skipped else ""
    return f"{how_many(fed.sent, 'record')} sent{before}{skipped}"
