"""The engine as a service of a Faust app.

Rules: it begins on the app's leader, and then stays with its worker: a rebalance that elects another leader moves no
engine. Every further leader stands by, and takes over once no engine is there; the lease, not Faust, makes it one.
It ends with the app, after the commit in flight; no signal handler is set, for the worker has its own. An error ends
the app.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from faust import App
from mode import Service

from stream_dp.integrations.faust.stopping import stop_app
from stream_dp.operate.run.run_pipeline import RunOptions, run_pipeline
from stream_dp.operate.run.running import PRODUCT, Run, Setup

_LOOK_S = 0.25


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How the engine runs: what `stream-dp run` takes by flags of the same names."""

    pipeline: Path
    run: RunOptions
    setup: Setup = PRODUCT


class EngineService(Service):
    """One worker's engine, or its standby."""

    options: ClassVar[EngineOptions]
    close: Callable[[], Awaitable[None]]
    app: ClassVar[App]
    running: Run | None = None
    _work: "asyncio.Task[None] | None" = None

    async def on_stop(self) -> None:
        """End the engine after the commit in flight, then give back what others of the app have opened."""
        if self._work is not None:
            if self.running is not None:
                self.running.stop()
            else:
                self._work.cancel()  # nothing is in flight
            await asyncio.wait({self._work})
        await self.close()

    async def on_start(self) -> None:
        """Begin, once the worker is the leader."""
        self._work = asyncio.create_task(self._until_stopped())

    async def _until_stopped(self) -> None:
        try:
            await self._run()
        except asyncio.CancelledError:
            raise
        except Exception as found:  # noqa: BLE001 - whatever it is, the app must not go on without its engine
            error = found
        else:
            return
        await stop_app(self, error)

    async def _run(self) -> None:
        while not self.app.is_leader():
            await self.sleep(_LOOK_S)
            if self.should_stop:
                return
        options = self.options
        await run_pipeline(options.pipeline, options.run, options.setup, ending=self._ending)

    @asynccontextmanager
    async def _ending(self, run: Run) -> AsyncIterator[None]:
        """What ends the run: the app's own end."""
        self.running = run
        if self.should_stop:
            run.stop()
        try:
            yield
        finally:
            self.running = None


def engine_service(
    app: App, options: EngineOptions, close: Callable[[], Awaitable[None]]
) -> type[Service]:
    """Return the service of this app that runs this engine; `close` is called at its end."""
    named = {"options": options, "app": app, "close": staticmethod(close)}
    return type("StreamDPEngine", (EngineService,), named)
