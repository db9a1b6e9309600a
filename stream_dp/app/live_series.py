"""The live series of a running engine: what the HTTP API may preview, create, halt and list, as plain public values.

Rules: every answer is public: names, ticks, times, amounts, derivations. Errors are those of the engine. One for a
run. A series sees the ticks from `start` on, up to and not including `end`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from stream_dp.accounting.situations import Alive
from stream_dp.accounting.subledgers import MAIN
from stream_dp.app.series_words import SeriesWords
from stream_dp.core.derivation import Derivation
from stream_dp.pipeline.budget import target
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.derivations import whole
from stream_dp.pipeline.live_series import LiveSeriesPlanner
from stream_dp.pipeline.report import series_json
from stream_dp.runtime.engine import Engine


class EngineLiveSeries:
    """Creates, halts, lists and asks the series of `engine`; `words` says what is answered."""

    def __init__(
        self, built: Built, engine: Engine, planner: LiveSeriesPlanner, words: SeriesWords
    ) -> None:
        self._built = built
        self._engine = engine
        self._planner = planner
        self._words = words
        self._confidence = float(built.spec.confidence)

    async def message(self, text: bytes, signer: str) -> bytes:
        """Return the exact bytes of the answer to a message; `signer` is whose token was shown.

        Raises:
            NotAccepted, UsageError: nothing has changed; see `Engine.tell`.
        """
        return await self._engine.tell(text, signer)

    async def create(self, definition: bytes, analyst: str = MAIN) -> Mapping[str, Any]:
        """Create a series; charged, durable and running on return.

        Raises:
            UsageError, BudgetRefused: nothing has changed; see `Engine.create`.
        """
        created = await self._engine.create(definition, analyst)
        return self._words.created(self._engine.admission, created, analyst)

    async def halt(self, name: str) -> Mapping[str, Any]:
        """Halt a series that was created.

        Raises:
            UnknownMechanism: none of this name was created and runs.
        """
        admission = self._engine.admission
        analyst, _ = admission.subledgers.running.get(name, (MAIN, None))
        return self._words.halted(admission, name, await self._engine.halt(name), analyst)

    async def preview(self, definition: bytes, analyst: str = MAIN) -> Mapping[str, Any]:
        """Return what creating the series would do; changes nothing.

        Raises:
            UsageError, BudgetRefused: see `Engine.create`; that it does not fit is an answer, and no error.
        """
        proposal, found = await self._engine.preview(definition, analyst)
        return self._words.previewed(self._engine.admission, proposal, found, analyst)

    def queries(self) -> Sequence[Mapping[str, Any]]:
        """Return every series, those of the file first, the halted ones last; `end` is None while it lives."""
        return self._words.listed(self._engine.admission)

    def promise(self) -> Derivation:
        """Return what holds for everything, derived with the live series that run now."""
        admission, built = self._engine.admission, self._built
        mine = [
            (self._planner.running[live.number].derivation, Alive(live.start, None))
            for live in admission.registry.live
            if live.created and admission.subledgers.running[live.series.name][0] == MAIN
        ]
        parts = [*built.frozen, *mine]
        return whole(
            built.spec.name, admission.subledgers.main.filter, parts, target(built.spec.privacy)
        )

    def planned(self) -> list[dict[str, Any]]:
        """Return for each live series that runs what `plan_json` says of one of the file, with one predicted error."""
        return [
            series_json(planned.chosen, [planned.predicted()], self._confidence)
            for planned in self._planner.running.values()
        ]
