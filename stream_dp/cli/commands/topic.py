"""`stream-dp topic`: create a topic that events can be sent to.

Rules: an existing topic stays as it is. "Stamped": the brokers stamp each record on arrival, which a wall clock needs;
a replay clock accepts both. The login comes from a pipeline file or from the environment.
"""

import asyncio
import re
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from stream_dp.cli.options import Bootstrap
from stream_dp.cli.progress_line import progress
from stream_dp.core.wording import how_many
from stream_dp.errors import UsageError
from stream_dp.operate.run.settings import settings_at
from stream_dp.operate.sending import make_topic

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


def topic(
    name: Annotated[str, Argument(metavar="NAME", show_default=False)],
    *,
    bootstrap: Bootstrap = "",
    pipeline: Annotated[
        Path | None,
        Option(help="A pipeline file: its source says where Kafka is, and how to log in."),
    ] = None,
    partitions: Annotated[int, Option(min=1, help="Number of partitions.")] = 1,
    stamped: Annotated[
        bool,
        Option(
            "--stamped/--no-stamped",
            help="Let the brokers stamp records on arrival (LogAppendTime); a wall clock needs it.",
        ),
    ] = True,
) -> None:
    """Create topic NAME, ready for the events of a pipeline."""
    if _NAME.fullmatch(name) is None or name in {".", ".."}:
        raise UsageError("NAME: a topic's name has 1 to 249 letters, digits, dots, _ or -")
    settings = settings_at(bootstrap, pipeline)
    with progress(f"Creating {name}") as line:
        made = asyncio.run(make_topic(settings, name, partitions, stamped=stamped, tell=line.say))
    if not made:
        typer.echo(f"{name}: exists already and was left as it is")
        return
    parts = how_many(partitions, "partition")
    how = "stamped on arrival" if stamped else "stamped by its producers"
    typer.echo(f"{name}: created, {parts}, records are {how}")
