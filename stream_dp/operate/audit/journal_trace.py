"""The trace of a journal: its commits read as the messages of a concurrent composition, with the recorded seeds.

`Neighbourhood` compares it with its neighbours: with one event more, the verifier of the claimed relation accepts it;
with two events more in two ticks, the verifier refuses it. Where users are protected, the first neighbour has as many
events more as count of one user, and the second has one more than that.

Rules: the messages, their order and their seeds are read by code of this file, not of the engine; only creations are
admitted and derived again by `engine.admission`, because mechanisms are built from definitions. Rows and seeds are
private; errors name ticks and series.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np

from stream_dp.core.composition import Ask, CompositionMessage, Create, Halt
from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.relation import Claim
from stream_dp.core.time import TickGrid
from stream_dp.engine.admission import Admission
from stream_dp.engine.history import tick_of
from stream_dp.engine.messages.addressed import read_parameters
from stream_dp.engine.messages.conversation import body_of
from stream_dp.engine.series import LiveSeries, MadeSeries, Registry, Series
from stream_dp.errors import FailClosed, UsageError
from stream_dp.journal.answer_body import AnswerCut, places_in
from stream_dp.journal.commit import (
    Answer,
    Applied,
    Asked,
    Commit,
    Created,
    Halted,
    Release,
    Unwatched,
    Watched,
)
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.mechanisms.serving import changes_of
from stream_dp.operate.run.live_series import series_claim
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.router import OpenRouter
from stream_dp.verify.game import SeedUse, Sent, Verifier, same_tick
from stream_dp.verify.relations import engine_relation, own_or

_ENOUGH = 16  # this many bytes identify a seed


@dataclass(frozen=True, slots=True, repr=False)
class AskedStep:
    asked: Asked
    recorded: Answer
    query: Query

    def body(self, grid: TickGrid, series: Series, answer: IntArray, band: int | None) -> bytes:
        """Return the bytes of the answer body for `answer`, with its half-width `band`."""
        standing = AnswerCut.before(self.asked.at, grid)
        content = series.reply(read_parameters(self.asked.parameters), answer, band)
        recorded, places = self.recorded, places_in(self.recorded.body)
        return body_of(recorded.number, recorded.id, recorded.do, standing, content, places)


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
    """Reads the commits of a journal of `built` in order and yields their messages, with the recorded seeds.

    Creations are admitted and derived again by `engine.admission`, because mechanisms are built from definitions. The
    messages, their order and their seeds are read from the commits by code of this file, not of the engine. Rows and
    seeds are private. `claims` holds a claim for each creation so far; None: the mechanism's own guarantee holds.
    """

    def __init__(self, built: Built) -> None:
        config = built.run_config(0)
        self.built = built
        self._planner = LiveSeriesPlanner(
            built.spec, OpenRouter(built.spec, config.origin, built.layout)
        )
        self._registry = Registry(config.series, config.made)
        self._admission = Admission(self._registry, built.subledgers(), self._planner)
        self._drawn: set[bytes] = set()
        self._next = 0
        self._coming: list[TraceStep] = []
        self._until: dict[int, LiveSeries] = {}
        self.claims: list[Claim | None] = []

    def steps(self, commit: Commit) -> Iterator[TraceStep | MadeStep]:
        """Yield the messages of the next commit.

        Raises FailClosed if the commit creates or halts a series that its ledger does not admit, lacks a seed or a
        release, or contains a seed that an earlier draw used.
        """
        self._first_draws(commit)
        if commit.header is not None:
            for live, chosen in zip(self._registry.live, self.built.chosen, strict=True):
                yield self._create(live, commit.seeds[0], series_claim(chosen))
        if commit.changes:
            yield from self._changes(commit)
        ticks = len(commit.ticks)
        if len(commit.rows) != ticks or (ticks and len(commit.seeds) != ticks):
            raise _wrong(
                commit, "must hold one row and one seed for each of its ticks, and does not"
            )
        releases = iter(commit.releases)
        for tick, row, seed in zip(commit.ticks, commit.rows, commit.seeds, strict=False):
            whole = np.array(row, dtype=np.int64)
            for live in self._registry.at(tick):
                served = self._until.get(live.number, live)
                yield from self._tick(served, tick, whole, seed, next(releases, None))
            for made in self._registry.made:
                yield MadeStep(made, _released(next(releases, None), made.name, tick))
            yield from filter(self._begins, self._coming)
            self._coming, self._until, self._next = [], {}, tick + 1
        if next(releases, None) is not None:
            raise _wrong(commit, "holds a release that answers no message of the trace")

    def _first_draws(self, commit: Commit) -> None:
        """Remember the seeds of a commit and refuse a repeated one: the theorems need noise drawn once."""
        for seed in commit.seeds:
            if seed[:_ENOUGH] in self._drawn:
                raise _wrong(
                    commit,
                    "uses a seed a second time: the same noise on two inputs protects neither input. Stop "
                    "using this journal and report this",
                )
            self._drawn.add(seed[:_ENOUGH])

    def _changes(self, commit: Commit) -> Iterator[TraceStep]:
        """Yield the creations, queries and halts of this cut in order; defer those that begin a tick later."""
        running = {live.number: live for live in self._registry.live}
        watches = [change for change in commit.changes if isinstance(change, Watched | Unwatched)]
        queries = {watch: self._watch(commit, watch) for watch in watches}
        for watch in watches:
            if watch.at > self._next:
                self._until.setdefault(watch.number, running[watch.number])
        running |= {live.number: live for live, _ in self._admission.replay(commit)}
        seeds, now = iter(commit.seeds), list[TraceStep]()
        for change in commit.changes:
            if isinstance(change, Applied):
                now += self._ended(running.values())
                continue
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
            steps = self._coming if tick_of(change) > self._next else now
            steps.append(step)
        yield from now

    def _begins(self, step: TraceStep) -> bool:
        """Say whether the step of a change that begins after the open tick is sent: a watch of what ended is not."""
        ended = self._registry.numbered(step.live.number) is None
        return not (ended and isinstance(step.sent.message, Ask))

    def _ended(self, before: Iterable[LiveSeries]) -> Iterator[TraceStep]:
        """Yield the halts of the series of the first file that a changed file has ended."""
        for live in before:
            if not live.created and self._registry.numbered(live.number) is None:
                yield TraceStep(Sent(Halt(live.number)), live)

    def _ask(self, live: LiveSeries, asked: Asked, seed: bytes, commit: Commit) -> TraceStep:
        answer = next((given for given in commit.answers if given.number == asked.answer), None)
        if live.series.asking is None or answer is None:
            says = (
                f"asks series {live.series.name}, which takes no queries, or holds no answer to one"
            )
            raise _wrong(commit, says)
        try:
            query = live.series.asking.query(read_parameters(asked.parameters))
        except UsageError as error:
            says = f"asks series {live.series.name} what it does not take: {error}"
            raise _wrong(commit, says) from None
        sent = Sent(Ask(live.number, query), SeedUse(seed, live.number))
        return TraceStep(sent, live, asked=AskedStep(asked, answer, query))

    def _watch(self, commit: Commit, change: Watched | Unwatched) -> Query:
        """Return the query that begins or ends a watch, before the change is admitted."""
        try:
            return self._admission.watched_again(change).query
        except UsageError as error:
            says = f"begins or ends a watch that there is not: {error}"
            raise _wrong(commit, says) from None

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


def _wrong(commit: Commit, says: str) -> FailClosed:
    return FailClosed(f"commit {commit.sequence} of the journal {says}")


def _released(release: Release | None, name: str, tick: int) -> Release:
    """Return the next release of a commit; raise FailClosed if it is missing or of another series or tick."""
    if release is None or (release.series, release.tick) != (name, tick):
        raise FailClosed(f"the journal lacks the release of series {name} at tick {tick}")
    return release


class Neighbourhood:
    """The trace compared with its neighbours.

    Everywhere else a neighbour is the trace itself, so the verifier accepts that, too.
    The event counts once in every series, in its first entry, at the first ticks of the trace. Where users are
    protected, all counting events of one user are in the first tick, and one more is in the second.
    """

    def __init__(self, trace: JournalTrace) -> None:
        protection = trace.built.spec.protection
        users = protection.users
        function = engine_relation(protection.relation, own_or(trace.claims), users)
        self._events = 1 if users is None else users.cap
        self._one = self._two = Verifier(function)
        self._ticks: list[int] = []

    @property
    def apart(self) -> bool | None:
        return self._two.halted if len(self._ticks) > 1 else None

    def take(self, step: TraceStep) -> None:
        """Take the next message; raise FailClosed if the verifier refuses the trace or a neighbour of it."""
        message = step.sent.message
        if step.row is not None and step.tick not in self._ticks and len(self._ticks) < 2:
            self._ticks.append(step.tick)
        self._one = self._one.verify((message, self._changed(step, self._ticks[:1])))
        if not self._two.halted:
            self._two = self._two.verify((message, self._changed(step, self._ticks)))
        if self._one.halted:
            raise FailClosed(
                "the verifier of the claimed neighbour relation refuses the trace, or the trace "
                f"with one more event, at series {step.live.series.name}, tick {step.tick}. Report "
                "this"
            )

    def _changed(self, step: TraceStep, ticks: list[int]) -> CompositionMessage:
        """Return the message, with one event more if it brings the row of one of `ticks`."""
        if step.row is None or step.tick not in ticks:
            return step.sent.message
        row: IntArray = step.row[step.live.series.rows].copy()
        mechanism: Any = step.live.series.mechanism
        units = changes_of(mechanism, self._events)
        # where caps say how a user's events lie, one tick has not room for all that count
        beyond = 1 if getattr(mechanism.rows, "shape", None) is None else self._events
        row[0] += units if step.tick == self._ticks[0] else beyond
        return same_tick(step.sent.message, row)
