"""One attempt of a run, an engine with its own ports, and the live series of the current attempt.

Rules: a command goes once to an engine that runs; while no engine runs, it is refused and nothing was done.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from stream_dp.accounting.subledgers import MAIN
from stream_dp.engine.engine import Engine
from stream_dp.errors import EngineEnded, Outage
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.operate.run.live_series import EngineLiveSeries
from stream_dp.server.live_series import BY_OPERATOR, Sender

_T = TypeVar("_T")
CATCHING_UP = (
    "the engine has lost its brokers and is catching up; nothing was done, ask again when it runs"
)


@dataclass(frozen=True, slots=True)
class Attempt:
    """An engine, the planner of its live series, and the live series."""

    engine: Engine
    planner: LiveSeriesPlanner
    live_series: EngineLiveSeries


class CurrentLiveSeries:
    """The live series of the attempt that `shown` returns; while `catching_up`, commands are refused."""

    def __init__(self, shown: Callable[[], Attempt], catching_up: Callable[[], bool]) -> None:
        self._shown = shown
        self._catching_up = catching_up

    async def create(
        self, definition: bytes, analyst: str = MAIN, sender: Sender = BY_OPERATOR
    ) -> Mapping[str, Any]:
        """Create a series; see `EngineLiveSeries`.

        Raises:
            Outage: no engine runs now; nothing was done.
        """
        return await self._done(self._running().create(definition, analyst, sender))

    async def halt(self, name: str, sender: Sender = BY_OPERATOR) -> Mapping[str, Any]:
        """Halt a series; raises as `create`."""
        return await self._done(self._running().halt(name, sender))

    async def preview(
        self, definition: bytes, analyst: str = MAIN, sender: Sender = BY_OPERATOR
    ) -> Mapping[str, Any]:
        """Return what creating the series would do; raises as `create`."""
        return await self._done(self._running().preview(definition, analyst, sender))

    async def message(self, text: bytes, signer: str) -> bytes:
        """Return the answer to a message; raises as `create`."""
        return await self._done(self._running().message(text, signer))

    async def ask(self, name: str, parameters: bytes, sender: Sender = BY_OPERATOR) -> bytes:
        """Return the answer of a series; raises as `create`."""
        return await self._done(self._running().ask(name, parameters, sender))

    def queries(self) -> Sequence[Mapping[str, Any]]:
        """Return all series as the last running engine knows them."""
        return self._shown().live_series.queries()

    def _running(self) -> EngineLiveSeries:
        if self._catching_up():
            raise Outage(CATCHING_UP)
        return self._shown().live_series

    async def _done(self, work: Awaitable[_T]) -> _T:
        try:
            return await work
        except EngineEnded as ended:
            raise self._why(ended) from None

    def _why(self, ended: EngineEnded) -> EngineEnded | Outage:
        return Outage(CATCHING_UP) if self._catching_up() else ended
