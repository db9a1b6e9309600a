"""The page of a run, served beside the engine once the engine is ready."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from stream_dp.engine.ports import Spans, untold
from stream_dp.operate.run.running import Run
from stream_dp.server.server import PageServer


@asynccontextmanager
async def served(
    run: Run,
    port: int | None,
    opened: Callable[[str], None] = lambda url: None,
    host: str = "127.0.0.1",
    hosts: frozenset[str] = frozenset(),
    spans: Spans = untold,
) -> AsyncIterator[None]:
    """Serve the page on `port` (None: not at all) once the engine is ready; `opened` receives its address.

    `hosts` are further host names, without a port, that clients may use. `spans` traces requests.
    """
    if port is None:
        yield
        return
    page = PageServer(run.view(), hosts, spans=spans)

    async def serve() -> None:
        await run.ready.wait()
        await page.start(host, port)
        opened(page.url)

    def done(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            run.stop()

    starting = asyncio.create_task(serve())
    starting.add_done_callback(done)
    try:
        yield
    finally:
        starting.cancel()
        await asyncio.wait({starting})
        await page.stop()
    if not starting.cancelled():
        starting.result()
