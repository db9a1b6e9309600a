"""What long-lived commands share: the progress of a run, and work without an engine until a signal."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from stream_dp.cli.progress_line import Line
from stream_dp.core.wording import how_many
from stream_dp.operate.published_bodies import behind_text
from stream_dp.operate.run.running import Run


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
