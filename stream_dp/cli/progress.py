"""How far a run has come, on a terminal: ticks and releases, which are public, and nothing else."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from rich.console import Console
from rich.status import Status

from stream_dp.app.running import Run

SECONDS = 0.2


def progress(console: Console) -> Callable[[Run], AbstractAsyncContextManager[None]]:
    """Show a run's progress while the context is open; nothing where `console` is no terminal."""

    @asynccontextmanager
    async def shown(run: Run) -> AsyncIterator[None]:
        if not console.is_terminal:
            yield
            return
        with console.status("starting") as status:
            showing = asyncio.create_task(_show(run, status))
            try:
                yield
            finally:
                showing.cancel()

    return shown


async def _show(run: Run, status: Status) -> None:
    horizon = run.built.spec.clock.horizon
    of = f" of {horizon}" if horizon else ""
    while True:
        status.update(f"{run.ticks} ticks{of}, {run.releases} releases")
        await asyncio.sleep(SECONDS)
