"""Where questions are asked of a running engine: what the HTTP API may do with it, as plain public values.

Rules: every answer is public: names, ticks, times, amounts, derivations. Errors are those of the engine. One desk for
one run. A series sees the ticks from `start` on, up to and not including `end`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stream_dp.accounting.accounts import MAIN
from stream_dp.accounting.amounts import text
from stream_dp.accounting.situations import Alive
from stream_dp.cli.budget import fits, spent
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import differential_privacy
from stream_dp.pipeline.budget import target
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.derivations import whole
from stream_dp.pipeline.planner import derivation_json, series_json
from stream_dp.pipeline.questions import PipelineQuestions
from stream_dp.pipeline.series import Series as SeriesSpec
from stream_dp.runtime.engine import Engine
from stream_dp.runtime.questions import Question


class EngineDesk:
    """Creates, halts and lists the series of `engine`; `begins` says when a tick begins, where that is known."""

    def __init__(
        self,
        built: Built,
        engine: Engine,
        questions: PipelineQuestions,
        begins: Callable[[int], str | None],
    ) -> None:
        self._built = built
        self._engine = engine
        self._questions = questions
        self._begins = begins
        self._confidence = float(built.spec.confidence)

    async def create(self, definition: bytes, analyst: str = MAIN) -> Mapping[str, Any]:
        """Create a series; charged, durable and running on return.

        Raises:
            UsageError, BudgetRefused: nothing has changed; see `Engine.create`.
        """
        created = await self._engine.create(definition, analyst)
        asked = self._questions.asked[created.number]
        name = asked.name
        _, entry = self._engine.books.accounts.running[name]
        return {
            "name": name,
            **self._start(created.start),
            "epsilon": text(entry.epsilon),
            "rule": entry.rule,
            "left": self._left(analyst),
            **self._expected(asked),
        }

    async def halt(self, name: str) -> Mapping[str, Any]:
        """Halt a series that was created.

        Raises:
            UnknownMechanism: none of this name was created and runs.
        """
        analyst, _ = self._engine.books.accounts.running.get(name, (MAIN, None))
        halted = await self._engine.halt(name)
        return {"name": name, **self._end(halted.end), "left": self._left(analyst)}

    async def preview(self, definition: bytes, analyst: str = MAIN) -> Mapping[str, Any]:
        """What creating it would do; changes nothing.

        Raises:
            UsageError, BudgetRefused: see `Engine.create`; that it does not fit is an answer, and no error.
        """
        question, found = await self._engine.preview(definition, analyst)
        return {
            "name": question.name,
            "fits": found.fits,
            "asked": text(differential_privacy(question.derivation.guarantee.measure).epsilon),
            "spent": self._spent(analyst),
            "unit": self._engine.books.accounts.ledgers[analyst].filter.unit,
            "left": self._left(analyst),
            "largest": self._left(analyst),
            **self._expected(question),
            "derivation": derivation_json(question.derivation),
        }

    def queries(self) -> Sequence[Mapping[str, Any]]:
        """Every series, those of the file first, the halted ones last; `end` is None while it lives."""
        books = self._engine.books
        specs = {c.spec.name: c.spec for c in self._built.chosen}
        rows = []
        for seat in books.roster.live:
            asked = self._questions.asked.get(seat.number)
            series = specs[seat.series.name] if asked is None else asked.series
            analyst, _ = books.accounts.running.get(series.name, (MAIN, None))
            rows.append({**self._row(series, analyst, seat.start, None), "created": seat.created})
        halted = self._questions.halted
        rows += [
            {**self._row(halted[e.name], e.analyst, e.start, e.end), "created": True}
            for e in books.ended
        ]
        return rows

    def promise(self) -> Derivation:
        """What holds for everything, derived with the questions that run now."""
        books, built = self._engine.books, self._built
        mine = [
            (self._questions.asked[seat.number].derivation, Alive(seat.start, None))
            for seat in books.roster.live
            if seat.created and books.accounts.running[seat.series.name][0] == MAIN
        ]
        parts = [*built.frozen, *mine]
        return whole(built.spec.name, books.accounts.main.filter, parts, target(built.spec.privacy))

    def planned(self) -> list[dict[str, Any]]:
        """What `plan_json` says of each series of the file, for the questions that run; one predicted error each."""
        return [
            series_json(asked.chosen, [asked.predicted()], self._confidence)
            for asked in self._questions.asked.values()
        ]

    def _row(self, series: SeriesSpec, analyst: str, start: int, end: int | None) -> dict[str, Any]:
        return {
            "name": series.name, "statistic": series.statistic, "by": getattr(series, "by", None),
            "analyst": analyst, "epsilon": text(series.epsilon), **self._start(start), **self._end(end),
        }  # fmt: skip

    def _start(self, tick: int) -> dict[str, Any]:
        return {"start": tick, "start_time": self._begins(tick)}

    def _end(self, tick: int | None) -> dict[str, Any]:
        return {"end": tick, "end_time": None if tick is None else self._begins(tick)}

    def _expected(self, question: Question) -> dict[str, Any]:
        """The half-width to expect at the last tick, or the farthest that is predicted without a horizon."""
        tick, error = question.predicted()
        return {"error": error, "error_tick": tick, "confidence": self._confidence}

    def _spent(self, analyst: str) -> str:
        return spent(self._engine.books.accounts.ledgers[analyst])

    def _left(self, analyst: str) -> str:
        return text(fits(self._engine.books.accounts.ledgers[analyst]))
