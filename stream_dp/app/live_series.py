"""The live series of a running engine: what the HTTP API may preview, create, halt and list, as plain public values.

Rules: every answer is public: names, ticks, times, amounts, derivations. Errors are those of the engine. One for a
run. A series sees the ticks from `start` on, up to and not including `end`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stream_dp.accounting.amounts import text
from stream_dp.accounting.situations import Alive
from stream_dp.accounting.subledgers import MAIN
from stream_dp.app.budget_view import fits, spent
from stream_dp.core.derivation import Derivation
from stream_dp.pipeline.budget import target
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.derivations import dp_at, whole
from stream_dp.pipeline.live_series import LiveSeriesPlanner
from stream_dp.pipeline.report import derivation_json, series_json
from stream_dp.pipeline.statistics import Series as SeriesSpec
from stream_dp.runtime.engine import Engine
from stream_dp.runtime.proposals import Proposal


class EngineLiveSeries:
    """Creates, halts and lists the series of `engine`; `begins` says when a tick begins, where that is known."""

    def __init__(
        self,
        built: Built,
        engine: Engine,
        planner: LiveSeriesPlanner,
        begins: Callable[[int], str | None],
    ) -> None:
        self._built = built
        self._engine = engine
        self._planner = planner
        self._begins = begins
        self._confidence = float(built.spec.confidence)

    async def create(self, definition: bytes, analyst: str = MAIN) -> Mapping[str, Any]:
        """Create a series; charged, durable and running on return.

        Raises:
            UsageError, BudgetRefused: nothing has changed; see `Engine.create`.
        """
        created = await self._engine.create(definition, analyst)
        planned = self._planner.running[created.number]
        name = planned.name
        _, entry = self._engine.admission.subledgers.running[name]
        return {
            "name": name,
            **self._start(created.start),
            "epsilon": text(entry.epsilon),
            "rule": entry.rule,
            "left": self._left(analyst),
            **self._expected(planned),
        }

    async def halt(self, name: str) -> Mapping[str, Any]:
        """Halt a series that was created.

        Raises:
            UnknownMechanism: none of this name was created and runs.
        """
        analyst, _ = self._engine.admission.subledgers.running.get(name, (MAIN, None))
        halted = await self._engine.halt(name)
        return {"name": name, **self._end(halted.end), "left": self._left(analyst)}

    async def preview(self, definition: bytes, analyst: str = MAIN) -> Mapping[str, Any]:
        """Return what creating the series would do; changes nothing.

        Raises:
            UsageError, BudgetRefused: see `Engine.create`; that it does not fit is an answer, and no error.
        """
        proposal, found = await self._engine.preview(definition, analyst)
        return {
            "name": proposal.name,
            "fits": found.fits,
            "asked": text(dp_at(proposal.derivation, self._built.spec.privacy.delta).epsilon),
            "spent": self._spent(analyst),
            "unit": self._engine.admission.subledgers.ledgers[analyst].filter.unit,
            "left": self._left(analyst),
            "largest": self._left(analyst),
            **self._expected(proposal),
            "derivation": derivation_json(proposal.derivation),
        }

    def queries(self) -> Sequence[Mapping[str, Any]]:
        """Return every series, those of the file first, the halted ones last; `end` is None while it lives."""
        admission = self._engine.admission
        specs = {c.spec.name: c.spec for c in self._built.chosen}
        rows = []
        for live in admission.registry.live:
            planned = self._planner.running.get(live.number)
            series = specs[live.series.name] if planned is None else planned.series
            analyst, _ = admission.subledgers.running.get(series.name, (MAIN, None))
            rows.append({**self._row(series, analyst, live.start, None), "created": live.created})
        halted = self._planner.halted
        rows += [
            {**self._row(halted[e.name], e.analyst, e.start, e.end), "created": True}
            for e in admission.ended
        ]
        return rows

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

    def _row(self, series: SeriesSpec, analyst: str, start: int, end: int | None) -> dict[str, Any]:
        return {
            "name": series.name, "statistic": series.statistic, "by": series.grouped_by,
            "analyst": analyst, "epsilon": text(series.epsilon), **self._start(start), **self._end(end),
        }  # fmt: skip

    def _start(self, tick: int) -> dict[str, Any]:
        return {"start": tick, "start_time": self._begins(tick)}

    def _end(self, tick: int | None) -> dict[str, Any]:
        return {"end": tick, "end_time": None if tick is None else self._begins(tick)}

    def _expected(self, proposal: Proposal) -> dict[str, Any]:
        """The half-width to expect at the last tick, or the farthest that is predicted without a horizon."""
        tick, error = proposal.predicted()
        return {"error": error, "error_tick": tick, "confidence": self._confidence}

    def _spent(self, analyst: str) -> str:
        return spent(self._engine.admission.subledgers.ledgers[analyst])

    def _left(self, analyst: str) -> str:
        return text(fits(self._engine.admission.subledgers.ledgers[analyst]))
