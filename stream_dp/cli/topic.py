"""`stream-dp topic`: create a topic that events can be sent to.

Rules: a topic that exists is left as it is. Stamped means that its brokers stamp each record on arrival, which
is what a wall clock needs; a replay clock takes either.
"""

import asyncio
import re
from typing import Annotated

import typer

from stream_dp.broker.topics import create_topic
from stream_dp.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_KEPT = {"cleanup.policy": "delete"}
_STAMPED = {"message.timestamp.type": "LogAppendTime"}


def topic(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    *,
    bootstrap: Annotated[
        str, typer.Option(help="Address of Kafka (host:port), as `stream-dp broker` prints it.")
    ],
    partitions: Annotated[int, typer.Option(min=1, help="Number of partitions.")] = 1,
    stamped: Annotated[
        bool,
        typer.Option(
            "--stamped/--no-stamped",
            help="Let the brokers stamp records on arrival (LogAppendTime); a wall clock needs it.",
        ),
    ] = True,
) -> None:
    """Create topic NAME, ready for the events of a pipeline."""
    if _NAME.fullmatch(name) is None or name in {".", ".."}:
        raise UsageError("NAME: a topic's name has 1 to 249 letters, digits, dots, _ or -")
    config = _KEPT | (_STAMPED if stamped else {})
    if not asyncio.run(create_topic(bootstrap, name, partitions, config)):
        typer.echo(f"{name}: exists already and was left as it is")
        return
    parts = "1 partition" if partitions == 1 else f"{partitions} partitions"
    how = "stamped on arrival" if stamped else "stamped by its producers"
    typer.echo(f"{name}: created, {parts}, records are {how}")
