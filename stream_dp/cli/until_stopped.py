"""Work without an engine that goes on until a signal: the page from releases, an export that follows.

Rules: the first Ctrl-C or SIGTERM ends the work well, and the command with 0; a second signal has its default
effect.
"""

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


async def until_stopped(work: Coroutine[None, None, None]) -> None:
    """Do the work until its end or the first signal."""
    task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()

    def stop() -> None:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
        task.cancel()

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop)
    with suppress(asyncio.CancelledError):
        await task
