"""A journal as a trace: its creations, ticks, queries and halts, sent to one composition with the recorded seeds.

Rules: creations are admitted and derived again by `engine.admission`, because mechanisms are built from
definitions. The messages, their order and their seeds are read from the commits by code of this module, not of the
engine. Rows and seeds are private. This file plays nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np

from stream_dp.core.composition import Ask, Create, Halt
from stream_dp.core.messages import IntArray, Query, Update
from stream_dp.core.relation import Claim
from stream_dp.core.tick_grid import TickGrid
from stream_dp.engine.admission import Admission
from stream_dp.engine.made_series import MadeSeries
from stream_dp.engine.messages.answer_words import body_of
from stream_dp.engine.messages.asked_parameters import read_parameters
from stream_dp.engine.recovery.history import tick_of
from stream_dp.engine.registry import LiveSeries, Registry
from stream_dp.engine.series import Series
from stream_dp.errors import FailClosed, UsageError
from stream_dp.journal.answer_body import AnswerCut, places_in
from stream_dp.journal.commit import (
    Answer,
    Asked,
    Commit,
    Created,
    Halted,
    Release,
    Unwatched,
    Watched,
)
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.operate.run.series_claim import series_claim
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.routing.open_router import OpenRouter
from stream_dp.verify.games.trace import SeedUse, Sent

_ENOUGH = 16  # this many bytes identify a seed


@dataclass(frozen=True, slots=True, repr=False)
class AskedStep:
    """An analyst's query and the recorded answer to it."""

    asked: Asked
    told: Answer
    query: Query

    @property
    def parameters(self) -> Any:
        """The query's parameters; public."""
        return read_parameters(self.asked.parameters)

    def body(self, grid: TickGrid, series: Series, answer: IntArray, band: int | None) -> bytes:
        """Return the bytes of the answer body for `answer`, with its half-width `band`."""
        standing = AnswerCut.before(self.asked.at, grid)
        told = series.told(self.parameters, answer, band)
        places = places_in(self.told.body)
        return body_of(self.told.number, self.told.id, self.told.do, standing, told, places)


@dataclass(frozen=True, slots=True, repr=False)
class TraceStep:
    """A message of the trace. `release` is the recorded release of `live` at `tick` for its answer, if any.

    `row` is the whole row of the tick if the message brings a part of that row; `asked` is set for analysts'
    queries.
    """

    sent: Sent
    live: LiveSeries
    tick: int = -1
    release: Release | None = None
    row: IntArray | None = None
    asked: AskedStep | None = None


@dataclass(frozen=True, slots=True, repr=False)
class MadeStep:
    """A release without a message: `series` computes it from the earlier releases of the same tick."""

    series: MadeSeries
    release: Release


class JournalTrace:
    """Reads the commits of a journal of `built` in order and yields their messages.

    `claims` holds a claim for each creation so far; None stands for the mechanism's own guarantee.
    """

    def __init__(self, built: Built) -> None:
        config = built.run_config(0)
        self._built = built
        self._planner = LiveSeriesPlanner(
            built.spec, OpenRouter(built.spec, config.origin, built.layout)
        )
        registry = Registry(config.series, config.made)
        self._admission = Admission(registry, built.subledgers(), self._planner)
        self._drawn: set[bytes] = set()
        self._next = 0
        self._coming: list[TraceStep] = []
        self._until: dict[int, LiveSeries] = {}
        self.claims: list[Claim | None] = []

    @property
    def live(self) -> tuple[LiveSeries, ...]:
        """The series that run after the commits read so far, ordered by number."""
        return self._admission.registry.live

    def steps(self, commit: Commit) -> Iterator[TraceStep | MadeStep]:
        """Yield the messages of the next commit.

        Raises:
            FailClosed: the commit creates or halts a series that its ledger does not admit, lacks a seed or a
            release, or contains a seed that an earlier draw used.
        """
        self._first_draws(commit)
        if commit.header is not None:
            for live, chosen in zip(self.live, self._built.chosen, strict=True):
                yield self._create(live, commit.seeds[0], series_claim(chosen))
        if commit.changes:
            yield from self._changes(commit)
        ticks = len(commit.ticks)
        if len(commit.rows) != ticks or (ticks and len(commit.seeds) != ticks):
            raise FailClosed(
                f"commit {commit.sequence} of the journal does not hold one row and one seed for each of its ticks"
            )
        releases = iter(commit.releases)
        for tick, row, seed in zip(commit.ticks, commit.rows, commit.seeds, strict=False):
            whole = np.array(row, dtype=np.int64)
            for live in self._admission.registry.at(tick):
                served = self._until.get(live.number, live)
                yield from self._tick(served, tick, whole, seed, next(releases, None))
            for made in self._admission.registry.made:
                yield MadeStep(made, _released(next(releases, None), made.name, tick))
            yield from self._coming
            self._coming, self._until, self._next = [], {}, tick + 1
        if next(releases, None) is not None:
            raise FailClosed(
                f"commit {commit.sequence} of the journal holds a release that no message of its trace answers"
            )

    def _first_draws(self, commit: Commit) -> None:
        """Remember the seeds of a commit and refuse a repeated one: the theorems need noise drawn once."""
        for seed in commit.seeds:
            if seed[:_ENOUGH] in self._drawn:
                raise FailClosed(
                    f"commit {commit.sequence} of the journal holds a seed that was drawn from before: the same noise "
                    "on two inputs protects neither. Stop using this journal and report this"
                )
            self._drawn.add(seed[:_ENOUGH])

    def _changes(self, commit: Commit) -> Iterator[TraceStep]:
        """Yield the creations, queries and halts of this cut in order; defer those that begin a tick later."""
        running = {live.number: live for live in self.live}
        watches = [each for each in commit.changes if isinstance(each, Watched | Unwatched)]
        queries = {each: self._watch(commit, each) for each in watches}
        for each in watches:
            if each.at > self._next:
                self._until.setdefault(each.number, running[each.number])
        running |= {live.number: live for live in self._admission.replay(commit)}
        seeds = iter(commit.seeds)
        for change in commit.changes:
            match change:
                case Created(number=number):
                    chosen = self._planner.running[number].chosen
                    step = self._create(
                        running[number], next(seeds), series_claim(chosen, change.start)
                    )
                case Asked(number=number):
                    step = self._ask(running[number], change, next(seeds), commit)
                case Watched(number=number) | Unwatched(number=number):
                    sent = Sent(Ask(number, queries[change]), SeedUse(next(seeds), number))
                    step = TraceStep(sent, running[number])
                case Halted(number=number):
                    step = TraceStep(Sent(Halt(number)), running[number])
                case _:
                    assert_never(change)
            if tick_of(change) > self._next:
                self._coming.append(step)
            else:
                yield step

    def _ask(self, live: LiveSeries, asked: Asked, seed: bytes, commit: Commit) -> TraceStep:
        """Return the step of an analyst's query at this cut."""
        told = next((each for each in commit.answers if each.number == asked.answer), None)
        if live.series.asking is None or told is None:
            raise FailClosed(
                f"commit {commit.sequence} of the journal asks series {live.series.name}, which takes no queries, or "
                "holds no answer to one"
            )
        try:
            query = live.series.asking.query(read_parameters(asked.parameters))
        except UsageError as error:
            raise FailClosed(
                f"commit {commit.sequence} of the journal asks series {live.series.name} what it does not take: {error}"
            ) from None
        sent = Sent(Ask(live.number, query), SeedUse(seed, live.number))
        return TraceStep(sent, live, asked=AskedStep(asked, told, query))

    def _watch(self, commit: Commit, change: Watched | Unwatched) -> Query:
        """Return the query that begins or ends a watch in its mechanism, before the change is admitted."""
        try:
            return self._admission.watched_again(change).query
        except UsageError as error:
            raise FailClosed(
                f"commit {commit.sequence} of the journal begins or ends a watch that there is not: {error}"
            ) from None

    def _create(self, live: LiveSeries, seed: bytes, claim: Claim | None) -> TraceStep:
        """Return the step that creates the series' mechanism; its first state uses its number's noise stream."""
        self.claims.append(claim)
        sent = Sent(Create(live.series.mechanism, claim), SeedUse(seed, live.number))
        return TraceStep(sent, live)

    def _tick(
        self, live: LiveSeries, tick: int, row: IntArray, seed: bytes, release: Release | None
    ) -> Iterator[TraceStep]:
        """Yield the tick's update and the query after it; both use one noise stream of the tick's seed."""
        draw, release = SeedUse(seed, live.number), _released(release, live.series.name, tick)
        update = Ask(live.number, Update(row[live.series.rows]))
        yield TraceStep(Sent(update, draw), live, tick, row=row)
        yield TraceStep(Sent(Ask(live.number, Query()), draw), live, tick, release)


def _released(release: Release | None, name: str, tick: int) -> Release:
    """Return the next release of a commit.

    Raises:
        FailClosed: the release is missing, or belongs to another series or tick.
    """
    if release is None or (release.series, release.tick) != (name, tick):
        raise FailClosed(
            f"the journal holds no release of series {name} where that of tick {tick} should be"
        )
    return release
