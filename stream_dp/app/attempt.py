"""One attempt of a run: an engine on ports of its own; and the live series of whichever attempt is the current one.

Rules: a command goes to an engine that runs, once; while there is none, it is refused, and nothing was done.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stream_dp.accounting.subledgers import MAIN
from stream_dp.app.live_series import EngineLiveSeries
from stream_dp.errors import EngineEnded, Outage
from stream_dp.pipeline.live_series import LiveSeriesPlanner
from stream_dp.runtime.engine import Engine

CATCHING_UP = (
    "the engine has lost its brokers and is catching up; nothing was done, ask again when it runs"
)


@dataclass(frozen=True, slots=True)
class Attempt:
    """An engine, what understands the definitions of its live series, and these."""

    engine: Engine
    planner: LiveSeriesPlanner
    live_series: EngineLiveSeries


class CurrentLiveSeries:
    """The live series of the attempt that `shown` returns; while `catching_up`, what changes them is refused."""

    def __init__(self, shown: Callable[[], Attempt], catching_up: Callable[[], bool]) -> None:
        self._shown = shown
        self._catching_up = catching_up

    async def create(self, definition: bytes, analyst: str = MAIN) -> Mapping[str, Any]:
        """Create a series; see `EngineLiveSeries`.

        Raises:
            Outage: no engine runs now; nothing was done.
        """
        live_series = self._running()
        try:
            return await live_series.create(definition, analyst)
        except EngineEnded as ended:
            raise self._why(ended) from None

    async def halt(self, name: str) -> Mapping[str, Any]:
        """Halt a series; errors as of `create`."""
        live_series = self._running()
        try:
            return await live_series.halt(name)
        except EngineEnded as ended:
            raise self._why(ended) from None

    async def preview(self, definition: bytes, analyst: str = MAIN) -> Mapping[str, Any]:
        """Return what creating the series would do; errors as of `create`."""
        return await self._running().preview(definition, analyst)

    def queries(self) -> Sequence[Mapping[str, Any]]:
        """Return every series, as the engine that ran last knows them."""
        return self._shown().live_series.queries()

    def _running(self) -> EngineLiveSeries:
        if self._catching_up():
            raise Outage(CATCHING_UP)
        return self._shown().live_series

    def _why(self, ended: EngineEnded) -> EngineEnded | Outage:
        return Outage(CATCHING_UP) if self._catching_up() else ended
