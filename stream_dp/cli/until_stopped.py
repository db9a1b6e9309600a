"""What long-lived commands share: the progress of a run, and work without an engine until a signal."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from stream_dp.cli.progress_line import Line
from stream_dp.core.wording import how_many
from stream_dp.operate.run.running import Run
from stream_dp.server.view import Behind


def ticks_shown(line: Line) -> Callable[[Run], AbstractAsyncContextManager[None]]:
    """Return a context that shows a run's ticks and releases, which are public, and nothing else on `line`."""

    @asynccontextmanager
    async def shown(run: Run) -> AsyncIterator[None]:
        horizon = run.built.spec.clock.horizon
        of = f" of {horizon:,}" if horizon else ""

        def status() -> str | None:
            if run.catching_up or not run.ready.is_set():
                return None
            told = f"{how_many(run.ticks, 'tick')}{of}, {how_many(run.releases, 'release')}"
            return told + behind_text(run.behind())

        line.follow(status)
        try:
            yield
        finally:
            line.follow(lambda: None)
            line("")

    return shown


def behind_text(behind: Behind | None) -> str:
    """Return how late public ticks are, as the end of a line.

    >>> behind_text(Behind(5400, 61)), behind_text(Behind(20, None)), behind_text(None)
    (', 1.5 h behind, there in 1 min', ', 20 s behind', '')
    """
    if behind is None:
        return ""
    there = "" if behind.caught_up_in is None else f", there in {_roughly(behind.caught_up_in)}"
    return f", {_roughly(behind.behind)} behind{there}"


def _roughly(seconds: int) -> str:
    units = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    size, unit = next(((size, unit) for size, unit in units if seconds >= size), (1, "s"))
    return f"{round(seconds / size, int(seconds < 10 * size and size > 60)):g} {unit}"


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


async def until_stopped(work: Coroutine[None, None, None]) -> None:
    """Do the work until its end or the first Ctrl-C or SIGTERM: return normally, so that the command exits with 0.

    A second signal has its default effect.
    """
    task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()

    def stop() -> None:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
        task.cancel()

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop)
    with suppress(asyncio.CancelledError):
        await task
