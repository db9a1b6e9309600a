"""An engine and what it has published, and the signals that end it.

Rules: the first Ctrl-C (or SIGTERM) ends after the commit in flight; the second one leaves at once with 130. Nothing
here prints: `ticks` and `releases`, which are public, may be polled while it runs.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from stream_dp.app.public_view import public_view
from stream_dp.app.wiring import open_ports
from stream_dp.noise import NoiseStream
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.live_series import LiveSeriesPlanner
from stream_dp.pipeline.open_router import OpenRouter
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.runtime.engine import Engine
from stream_dp.runtime.keys import Sealer
from stream_dp.runtime.ports import Ports
from stream_dp.runtime.recovery import NoiseMaker
from stream_dp.runtime.run_config import GROUP
from stream_dp.serve.view import PublicView, ReleaseLog

INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Setup:
    """What a run is made of; only the test kit changes it, and then `private` is False.

    `group` is how many ticks share a private commit, about and at most, when the engine is behind.
    """

    make_noise: NoiseMaker = NoiseStream
    private: bool = True
    adapters: Callable[[PipelineSpec, Sealer, str], Ports] = open_ports
    group: int = GROUP


PRODUCT = Setup()


class Run:
    """An engine and what it has published; `keep` releases of each series stay in memory (all: None, for the page).

    `accepted` names a new guarantee on a source that was seen before.
    """

    def __init__(
        self,
        built: Built,
        ports: Ports,
        setup: Setup = PRODUCT,
        *,
        keep: int | None = None,
        accepted: str = "",
    ) -> None:
        self.built = built
        self.log = ReleaseLog(keep)
        config = built.run_config(ports.clock.now(), private=setup.private, accepted=accepted)
        self._token = ports.sealer.query_token()
        router = OpenRouter(built.spec, config.origin)
        self._planner = LiveSeriesPlanner(built.spec, router)
        self.engine = Engine(
            replace(config, group=setup.group), router, ports, setup.make_noise, self.log.append,
            planner=self._planner, subledgers=built.subledgers(),
        )  # fmt: skip
        self.stopped = asyncio.Event()

    def stop(self) -> None:
        """End after the commit in flight."""
        self.stopped.set()
        self.engine.stop()

    async def until_end(self) -> None:
        """Run the engine until its horizon, the end of its source, or `stop()`.

        Raises:
            FailClosed, WorldError: the engine stopped; what was published stays valid.
        """
        await self.engine.run()

    @property
    def ticks(self) -> int:
        """How many ticks are public."""
        return max((r.tick + 1 for r in self.log.latest().values()), default=0)

    @property
    def releases(self) -> int:
        """How many releases are public."""
        return max(0, self.log.last_sequence)

    def view(self) -> PublicView:
        """What may be seen of this run, for the page."""
        return public_view(self.built, self.engine, self._planner, self.log, self._token)


@asynccontextmanager
async def signals(run: Run) -> AsyncIterator[None]:
    """Hand the first Ctrl-C or SIGTERM to the run; leave at once with the second."""

    def on_signal() -> None:
        if run.stopped.is_set():
            os._exit(INTERRUPTED)
        run.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
