"""A pipeline file, run until it is stopped: what `stream-dp run` and an embedding program call."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from stream_dp.adapters.kafka_lease import Holder
from stream_dp.app.journal_access import require_own
from stream_dp.app.operator_key import sealer_for
from stream_dp.app.page import served
from stream_dp.app.running import PRODUCT, Run, Setup, signals
from stream_dp.app.standby import presence_of, standing_by
from stream_dp.errors import UsageError
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.yaml import load
from stream_dp.runtime.ports import Ports

KEPT_RELEASES = 10_000  # of each series, in memory, for the page


@asynccontextmanager
async def nothing(_: Run) -> AsyncIterator[None]:
    """Do nothing beside the engine."""
    yield


async def run_pipeline(
    pipeline: Path,
    until_end: bool,
    port: int | None,
    key_file: Path | None,
    setup: Setup = PRODUCT,
    *,
    accepted: str = "",
    standby: bool = False,
    waits: Callable[[], None] = lambda: None,
    opened: Callable[[str], None] = lambda url: None,
    beside: Callable[[Run], AbstractAsyncContextManager[None]] = nothing,
) -> Run:
    """Load, build and run; return the run after its end.

    Without `until_end` it goes on after the horizon, for the page, until a signal comes. The page is served on `port`
    (None: not at all), and `opened` learns its address; `beside` is entered while the engine runs. A `standby` begins
    once no other engine of the pipeline is there; `waits` learns that it is ready for that.

    Raises:
        UsageError, NotDerivable, BudgetRefused: nothing was started.
        FailClosed, WorldError: the engine stopped; what was published stays valid.
    """
    spec = load(pipeline)
    if until_end and spec.clock.horizon is None:
        raise UsageError("--until-end: this clock has no horizon, so there is no end")
    built, sealer = build(spec), sealer_for(spec, key_file)
    await require_own(built, sealer, private=setup.private)
    holder = Holder()

    def ports() -> Ports:
        return setup.adapters(spec, sealer, accepted, holder)

    keep = 1 if port is None else KEPT_RELEASES
    this = Run(built, ports(), setup, keep=keep, accepted=accepted, again=ports, patient=standby)
    async with (
        signals(this),
        standing_by(presence_of(spec), this.stopped, waits if standby else None) as to_run,
        served(this, port, opened),
    ):
        if not to_run:
            return this
        async with beside(this):
            await this.until_end()
        if not until_end:
            await this.stopped.wait()
    return this
