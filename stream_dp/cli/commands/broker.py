"""`stream-dp broker`: a real, local Apache Kafka until Ctrl-C.

Rules: the bootstrap address is the one line on stdout, everything else goes to stderr. The first Ctrl-C (or SIGTERM)
stops cleanly and exits 0, a second one kills and exits 130.
"""

import asyncio
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from stream_dp.broker.jars import local_dir, resolve_jars, state_dir
from stream_dp.broker.process import LocalKafka
from stream_dp.cli.progress_line import progress
from stream_dp.errors import UsageError

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
