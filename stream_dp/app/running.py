"""One engine run on a terminal: signals, progress, the page.

Rules: the first Ctrl-C (or SIGTERM) ends after the commit in flight, exit 0; the second one exits 130 at once.
Progress shows ticks and releases, which are public, and nothing else.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from fractions import Fraction
from typing import Any

from rich.console import Console
from rich.status import Status

from stream_dp.app.budget_view import api_budget
from stream_dp.app.live_series import EngineLiveSeries
from stream_dp.app.tick_times import TickTimes
from stream_dp.core.moments import moment_text
from stream_dp.noise import NoiseStream
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.layout import keys_of
from stream_dp.pipeline.live_series import LiveSeriesPlanner
from stream_dp.pipeline.open_router import OpenRouter
from stream_dp.pipeline.report import plan_json, promise_json
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.statistics import Series
from stream_dp.runtime.engine import Engine
from stream_dp.runtime.ports import Ports
from stream_dp.runtime.recovery import NoiseMaker
from stream_dp.serve.server import PageServer
from stream_dp.serve.view import PublicView, ReleaseLog

INTERRUPTED = 130


class Run:
    """An engine and what it has published; `make_noise` and `private` differ in the test kit only.

    `keep` releases of each series stay in memory (all: None, for the page).
    """

    def __init__(
        self,
        built: Built,
        ports: Ports,
        make_noise: NoiseMaker = NoiseStream,
        *,
        private: bool = True,
        keep: int | None = None,
        accepted: str = "",
    ) -> None:
        self.built = built
        self.log = ReleaseLog(keep)
        config = built.run_config(ports.clock.now(), private=private, accepted=accepted)
        self._token = ports.sealer.query_token()
        router = OpenRouter(built.spec, config.origin)
        self._planner = LiveSeriesPlanner(built.spec, router)
        self.engine = Engine(
            config, router, ports, make_noise, self.log.append,
            planner=self._planner, subledgers=built.subledgers(),
        )  # fmt: skip
        self.stopped = asyncio.Event()

    def stop(self) -> None:
        """End after the commit in flight."""
        self.stopped.set()
        self.engine.stop()

    async def until_end(self, console: Console) -> None:
        """Run the engine; show progress on a terminal."""
        horizon = self.built.spec.clock.horizon
        if not console.is_terminal:
            await self.engine.run()
            return
        with console.status("starting") as status:
            showing = asyncio.create_task(self._show(status, horizon))
            try:
                await self.engine.run()
            finally:
                showing.cancel()

    async def _show(self, status: Status, horizon: int | None) -> None:
        of = f" of {horizon}" if horizon else ""
        while True:
            status.update(f"{self.ticks} ticks{of}, {self.releases} releases")
            await asyncio.sleep(0.2)

    @property
    def ticks(self) -> int:
        """How many ticks are public."""
        return max((r.tick + 1 for r in self.log.latest().values()), default=0)

    @property
    def releases(self) -> int:
        """How many releases are public."""
        return max(0, self.log.last_sequence)

    def view(self) -> PublicView:
        """The public face of this run, for the page."""
        planned = plan_json(self.built)
        begins = TickTimes(self.built.spec, self.log)
        live_series = EngineLiveSeries(self.built, self.engine, self._planner, begins)
        return PublicView(
            pipeline=lambda: pipeline_json(self.built, self._planner),
            plan=lambda: {
                **planned,
                "series": [*planned["series"], *live_series.planned()],
                "promise": promise_json(self.built, live_series.promise()),
            },
            budget=lambda: api_budget(
                self.built.spec, self.engine.admission.subledgers, self._prices()
            ),
            log=self.log,
            live_series=live_series,
            token=self._token,
        )

    def _prices(self) -> list[tuple[str, Fraction]]:
        every = running_series(self.built, self._planner)
        return [(series.name, series.epsilon) for series in every]


def running_series(built: Built, planner: LiveSeriesPlanner) -> list[Series]:
    """The series of the file, then the questions that run."""
    asked = (proposal.series for proposal in planner.running.values())
    return [*(chosen.spec for chosen in built.chosen), *asked]


def pipeline_json(built: Built, planner: LiveSeriesPlanner) -> dict[str, Any]:
    """The public configuration and the questions that run, for `GET /api/pipeline`."""
    spec = built.spec
    return {
        "name": spec.name,
        "public_data": spec.public_data,
        "unit": spec.privacy.unit,
        "neighbors": str(spec.relation),
        "fingerprint": built.fingerprint,
        "clock": {
            "kind": spec.clock.kind,
            "start": None if spec.clock.start is None else moment_text(spec.clock.start),
            "step": spec.clock.step / 1000,
            "horizon": spec.clock.horizon,
        },
        "series": [_series_json(spec, series) for series in running_series(built, planner)],
    }


def _series_json(spec: PipelineSpec, series: Series) -> dict[str, Any]:
    by = series.grouped_by
    domain = {} if by is None else {"domain": list(keys_of(spec, by))}
    return {**series.described(), **domain}


@asynccontextmanager
async def served(
    run: Run, port: int | None, opened: Callable[[str], None] = lambda url: None
) -> AsyncIterator[None]:
    """Serve the page on `port` (None: not at all) once the engine is ready; `opened` learns its address."""
    if port is None:
        yield
        return
    page = PageServer(run.view())

    async def serve() -> None:
        await run.engine.ready.wait()
        await page.start(port=port)
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
