"""The progress of a run on a terminal: ticks and releases, which are public, and nothing else."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from stream_dp.cli.progress_line import LOOK_S, Line
from stream_dp.core.how_many import how_many
from stream_dp.operate.run.running import Run


def ticks_shown(line: Line) -> Callable[[Run], AbstractAsyncContextManager[None]]:
    """Return a context that shows a run's ticks and releases, which are public, on `line`."""

    @asynccontextmanager
    async def shown(run: Run) -> AsyncIterator[None]:
        horizon = run.built.spec.clock.horizon
        of = f" of {horizon:,}" if horizon else ""
        told: list[str | None] = [None]

        async def tell() -> None:
            while True:
                runs = run.ready.is_set() and not run.catching_up
                said = f"{how_many(run.ticks, 'tick')}{of}, {how_many(run.releases, 'release')}"
                told[0] = said if runs else None
                await asyncio.sleep(LOOK_S)

        telling = asyncio.create_task(tell())
        line.follow(lambda: told[0])
        try:
            yield
        finally:
            telling.cancel()
            line.follow(lambda: None)
            line("")

    return shown
