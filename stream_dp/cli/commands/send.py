"""`stream-dp send`: records into a topic, to try a pipeline out."""

import asyncio
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from stream_dp.cli.options import Bootstrap, Encoding, say_on_stderr
from stream_dp.cli.progress_line import progress
from stream_dp.core.wording import how_many
from stream_dp.operate.sending import send_file


def send(
    file: Annotated[
        str,
        Argument(
            metavar="FILE", show_default=False, help="CSV or JSON lines, .gz or not; -: stdin."
        ),
    ],
    *,
    topic: Annotated[
        str, Option(help="The topic to write. Default: the topic of the pipeline file.")
    ] = "",
    bootstrap: Bootstrap = "",
    pipeline: Annotated[
        Path | None,
        Option(help="A pipeline file: where its source is, and the types of the cells of a CSV."),
    ] = None,
    encoding: Encoding = "utf-8",
    skip_bad: Annotated[
        bool, Option("--skip-bad", help="Leave out lines that are not records.")
    ] = False,
) -> None:
    """Send the records of FILE (CSV or JSON lines, - for standard input) into a topic, which stamps them as they come.

    Each is acknowledged by the brokers before this ends. Without a pipeline file the cells of a CSV become what they
    look like: numbers, true, false, or texts.
    """
    with progress(f"Reading {pipeline or file}") as line:
        to = (topic, bootstrap, pipeline, line.say)
        done = asyncio.run(send_file(file, *to, skip_bad, encoding, progress=line))
    left_out = f", {how_many(done.skipped, 'line')} left out" if done.skipped else ""
    say_on_stderr(f"NOT PRIVATE: {how_many(done.sent, 'record')} sent and acknowledged{left_out}")
