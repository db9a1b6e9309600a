"""`stream-dp broker`, `topic`, `send` and `replay`: a local Apache Kafka, a topic in it, and records sent into it.

Rules: `broker` prints its bootstrap address alone on stdout, everything else goes to stderr. The first Ctrl-C (or
SIGTERM) stops it cleanly with exit code 0, a second one kills it with 130. `topic` leaves an existing topic as it is;
"stamped" means that the brokers stamp each record on arrival, which a wall clock needs and a replay clock accepts.
The login comes from a pipeline file or from the environment.
"""

import asyncio
import math
import re
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from stream_dp.broker.jars import local_dir, resolve_jars, state_dir
from stream_dp.broker.process import LocalKafka
from stream_dp.cli.options import Bootstrap, Encoding, KeyFile, say_on_stderr
from stream_dp.cli.progress_line import progress
from stream_dp.core.wording import how_many
from stream_dp.errors import UsageError
from stream_dp.operate.replay_feed import Fed, Feed, replay_file
from stream_dp.operate.run.settings import settings_at
from stream_dp.operate.sending import make_topic, send_file


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


_INTERRUPTED = 130
_DEFAULT_FOLDERS = {1: "broker", 3: "broker-3"}


def broker(
    nodes: Annotated[int, Option(help="Number of Kafka nodes: 1 or 3.")] = 1,
    port: Annotated[
        int | None, Option(help="Port of the first node. Default: any free one.")
    ] = None,
    data_dir: Annotated[
        Path | None,
        Option(help="Folder of the data. Default: in your state folder, one for each checkout."),
    ] = None,
) -> None:
    """Start a real, local Apache Kafka; needs neither Docker nor an installed Java."""
    if nodes not in _DEFAULT_FOLDERS:
        raise UsageError(f"--nodes: a local Kafka has 1 or 3 nodes, not {nodes}")
    folder = data_dir or local_dir() / _DEFAULT_FOLDERS[nodes]
    shared = state_dir() / _DEFAULT_FOLDERS[nodes]
    if not folder.exists() and shared.exists():
        typer.echo(
            f"A new, empty Kafka; --data-dir {shared} goes on with the one of before", err=True
        )
    kafka = LocalKafka(folder, nodes=nodes, port=port)
    try:
        with progress("Looking for Apache Kafka") as line:
            resolve_jars(line)
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None
    if not asyncio.run(_serve(kafka)):
        raise typer.Exit(_INTERRUPTED)


async def _serve(kafka: LocalKafka) -> bool:
    """Run until a signal; return False if a second signal came before the clean end."""
    first, second = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (second if first.is_set() else first).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    await _unless(first, _run(kafka))
    typer.echo("Stopping Kafka", err=True)
    with progress("Stopping Kafka"):
        return await _unless(second, kafka.stop())


async def _run(kafka: LocalKafka) -> None:
    with progress("Starting Kafka"):
        await kafka.start()
    typer.echo(kafka.bootstrap)
    typer.echo("Kafka is ready; Ctrl-C stops it", err=True)
    try:
        await kafka.watch()
    except Exception:
        await kafka.stop()
        raise


async def _unless(event: asyncio.Event, work: Coroutine[None, None, None]) -> bool:
    """Do the work, or cancel it if the event comes first; return whether it was done."""
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work)
            waiter = group.create_task(event.wait())
            await asyncio.wait({task, waiter}, return_when=asyncio.FIRST_COMPLETED)
            done = task.done()
            task.cancel()
            waiter.cancel()
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None  # only the work can fail
    return done


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
