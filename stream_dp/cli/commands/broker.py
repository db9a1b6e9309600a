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
            metavar="FILE",
            show_default=False,
            help="CSV or JSON lines, also as .gz. -: standard input.",
        ),
    ],
    *,
    topic: Annotated[
        str, Option(help="The topic to send to. Default: the topic of the pipeline file.")
    ] = "",
    bootstrap: Bootstrap = "",
    pipeline: Annotated[
        Path | None,
        Option(
            help="The pipeline file that declares the topic's brokers and the types of a CSV file's cells."
        ),
    ] = None,
    encoding: Encoding = "utf-8",
    skip_bad: Annotated[
        bool, Option("--skip-bad", help="Leave out lines that are not records.")
    ] = False,
) -> None:
    """Send the records of FILE (CSV or JSON lines; - is standard input) to a topic, whose brokers stamp them on
    arrival.

    The command ends when the brokers have acknowledged every record. Without a pipeline file, a cell of a CSV file
    becomes a number, true, false or a text, as it looks.
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
        Option(help="A pipeline file whose source declares the address of Kafka and the login."),
    ] = None,
    partitions: Annotated[int, Option(min=1, help="Number of partitions.")] = 1,
    stamped: Annotated[
        bool,
        Option(
            "--stamped/--no-stamped",
            help="Let the brokers stamp records on arrival (LogAppendTime). A wall clock needs this.",
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
        int | None, Option(help="Port of the first node. Default: any free port.")
    ] = None,
    data_dir: Annotated[
        Path | None,
        Option(
            help="Folder of the data. Default: a folder for this checkout, in your state folder."
        ),
    ] = None,
) -> None:
    """Start a real, local Apache Kafka. Neither Docker nor an installed Java is needed."""
    if nodes not in _DEFAULT_FOLDERS:
        raise UsageError(f"--nodes: a local Kafka has 1 or 3 nodes, not {nodes}")
    folder = data_dir or local_dir() / _DEFAULT_FOLDERS[nodes]
    shared = state_dir() / _DEFAULT_FOLDERS[nodes]
    if not folder.exists() and shared.exists():
        typer.echo(
            f"This is a new, empty Kafka. --data-dir {shared} continues the earlier one", err=True
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
