"""A journal checked against the theory: its trace, played through the concurrent composition, gives the same bytes.

The trace is the commits read as the messages of a concurrent composition, with the recorded seeds. `Neighbourhood`
compares it with its neighbours: with one event more, the verifier of the claimed relation accepts it; with two events
more in two ticks, the verifier refuses it. Where users are protected, the first neighbour has as many events more as
count of one user, and the second has one more than that.

Rules: the messages, their order and their seeds are read by code of this file, not of the engine; only creations are
admitted and derived again by `engine.admission`, because mechanisms are built from definitions. Rows and seeds are
private: no content of a journal is shown, only how much was compared, which follows from ticks and series.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, assert_never

import numpy as np

from stream_dp.core.composition import Ask, CompositionMessage, Create, Halt
from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Users
from stream_dp.core.relation import Claim
from stream_dp.core.time import TickGrid
from stream_dp.core.wording import Progress, unseen
from stream_dp.engine.admission import Admission
from stream_dp.engine.history import require_same, tick_of, unsealed
from stream_dp.engine.messages.addressed import read_parameters
from stream_dp.engine.messages.conversation import body_of
from stream_dp.engine.series import LiveSeries, MadeSeries, Registry, Series
from stream_dp.errors import FailClosed, RejectedMessage, UsageError
from stream_dp.journal.answer_body import AnswerCut, places_in
from stream_dp.journal.commit import (
    Answer,
    Applied,
    Asked,
    Commit,
    Created,
    Halted,
    Header,
    Release,
    Unwatched,
    Watched,
)
from stream_dp.journal.keys import Sealer
from stream_dp.journal.release import is_recorded
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.mechanisms.serving import changes_of
from stream_dp.mechanisms.states import STATES, same_states
from stream_dp.noise import NoiseStream
from stream_dp.operate.audit.journal_access import (
    Sealed,
    archived,
    built_of,
    sealed_commits,
    sealed_commits_of,
)
from stream_dp.operate.keys import sealer_for
from stream_dp.operate.run.live_series import series_claim
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.yaml import load
from stream_dp.verify.game import SeedUse, Sent, TraceCounts, TracePlayer, Verifier, same_tick
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
            yield from self._coming
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


_SQLITE = b"SQLite format 3\0"
_ADVICE = (
    "The journal was altered, or written by another version of the code: run the version that wrote it, or stop using "
    "it and report this"
)


@dataclass(slots=True)
class TraceReport:
    """How much was compared, all equal. `apart`: whether the verifier refused two events (None: too few ticks).

    With `users`, `apart` says whether one event more than count of one user was refused. `made` is the number of
    releases that were computed again from the bytes of other releases alone.
    """

    pipeline: str
    relation: str
    users: Users | None = None
    counts: TraceCounts = field(default_factory=TraceCounts)
    ticks: int = 0
    releases: int = 0
    made: int = 0
    answers: int = 0
    snapshots: int = 0
    apart: bool | None = None

    def json(self) -> dict[str, Any]:
        neighbours: dict[str, Any]
        if self.users is None:
            neighbours = {"one_event_passes": self.ticks > 0, "two_events_are_refused": self.apart}
        else:
            neighbours = {
                "users": str(self.users),
                "events_of_one_user_pass": self.ticks > 0,
                "one_more_is_refused": self.apart,
            }
        return {
            "pipeline": self.pipeline, "neighbors": self.relation, "ticks": self.ticks,
            "creations": self.counts.creations, "asks": self.counts.asks, "halts": self.counts.halts,
            "releases": self.releases, "answers": self.answers, "snapshots": self.snapshots, "equal": True,
            **({"made_of_releases": self.made} if self.made else {}),
            **neighbours,
        }  # fmt: skip


async def check_trace(
    pipeline: Path | None,
    trace: Path,
    key_file: Path | None,
    copy: Path | None = None,
    progress: Progress = unseen,
) -> TraceReport:
    """Play the journal `trace` of `pipeline`, or the journal of the pipeline file `trace`, and compare it.

    The engine may run meanwhile. With `copy`, the journal of a pipeline file is first copied to that file, which is
    then read: for inquiries and checks elsewhere, no engine may ever run on it (docs/operations.md); it is deleted if
    the check fails. Raises FailClosed if the journal is damaged or belongs to
    another pipeline, or its trace differs from the composition's.
    """
    if pipeline is None and _is_sqlite(trace):
        raise UsageError(
            f"--trace: {trace.name} is a journal, so name its pipeline file too: "
            f"stream-dp audit PIPELINE.yaml --trace {trace.name}"
        )
    spec = load(trace if pipeline is None else pipeline)
    if pipeline is not None and _is_sqlite(trace) is False:
        raise UsageError(f"--trace: {trace.name} is not a journal (an SQLite file)")
    if pipeline is not None and copy is not None:
        raise UsageError(
            f"--copy: copies the journal of a pipeline file, but {trace.name} is itself a "
            f"journal. Write --trace {pipeline.name}, and name no other file"
        )
    sealer = sealer_for(spec, key_file)
    if copy is not None and await asyncio.to_thread(copy.exists):
        raise UsageError(f"--copy: {copy} is there already; name a new file")
    try:
        if copy is not None:
            await archived(spec, sealer, copy, progress)
        file = copy if pipeline is None else trace

        async def journal() -> Sealed:
            if file is None:
                return await sealed_commits(spec, progress)
            return await sealed_commits_of(file, progress)

        here = await journal()
        _require_all(here.begin, spec.name)
        built, _ = await built_of(spec, sealer, journal)
        return await compared(built, sealer, here.commits)
    except BaseException:
        if copy is not None:
            await asyncio.to_thread(copy.unlink, missing_ok=True)
        raise


def _require_all(begin: int, name: str) -> None:
    if begin:
        raise UsageError(
            f"--trace: {name} begins with commit {begin}, because earlier commits were pruned, "
            "but the check needs all commits. As FILE, name an archive of this journal that "
            "`stream-dp journal archive` made before"
        )


async def compared(built: Built, sealer: Sealer, blobs: AsyncIterator[bytes]) -> TraceReport:
    """Play the trace of all sealed commits of a journal of `built` and compare it."""
    check: TraceCheck | None = None
    async for commit, _ in unsealed(blobs, sealer, built.spec.name):
        if commit.header is not None:
            check = TraceCheck(built, commit.header, sealer.key_id)
        if check is not None:
            check.take(commit)
    if check is None:
        raise FailClosed(f"the journal of {built.spec.name} is empty: this pipeline never ran")
    return check.report


def _is_sqlite(path: Path) -> bool | None:
    """Return whether the file is an SQLite file; None if there is no file."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


class TraceCheck:
    """Plays the trace of one journal, commit by commit, and compares the results with the recorded ones."""

    def __init__(self, built: Built, header: Header, key_id: str) -> None:
        config = built.run_config(0)
        require_same(header, config.header(header.source, header.partitions, header.origin, key_id))
        self._grid: TickGrid = config.grid(header.origin)
        self._trace = JournalTrace(built)
        self._player = TracePlayer(NoiseStream)
        protection = built.spec.protection
        self._bodies: dict[str, bytes] = {}
        self._beside = Neighbourhood(self._trace)
        self.report = TraceReport(built.spec.name, str(protection.relation), protection.users)

    def take(self, commit: Commit) -> None:
        """Play the next commit; raise FailClosed if a release or a state differs, or a message is not accepted."""
        for step in self._trace.steps(commit):
            if isinstance(step, MadeStep):
                self._make(step)
                continue
            self.report.counts.add(step.sent.message)
            self._play(step)
            self._beside.take(step)
        self.report.ticks += len(commit.ticks)
        self.report.apart = self._beside.apart
        if commit.snapshot is not None:
            self._snapshot(commit.snapshot.states, commit.sequence)

    def _play(self, step: TraceStep) -> None:
        band = self._band(step)
        try:
            answer = self._player.play(step.sent)
        except RejectedMessage:
            raise self._differs(
                step, "a mechanism refuses a message that the engine sent it"
            ) from None
        if step.release is None and step.asked is None:
            return
        if answer is None:
            raise self._differs(step, "a question has no answer")
        if step.asked is not None:
            again = step.asked.body(self._grid, step.live.series, answer, band)
            if again != step.asked.recorded.body:
                raise self._differs(
                    step, "the composition gives other bytes than the recorded answer"
                )
            self.report.answers += 1
            return
        state = self._player.state(step.live.number)
        body = step.live.series.body(self._grid, self.report.releases + 1, step.tick, state, answer)
        if step.release is None or not is_recorded(step.release.body, body):
            raise self._differs(step, "the composition gives other bytes than the recorded release")
        self.report.releases += 1
        self._bodies[step.release.series] = step.release.body

    def _make(self, step: MadeStep) -> None:
        """Compute a release from the bytes of the same tick's other releases, and compare it."""
        release, number = step.release, self.report.releases + 1
        if not step.series.gives(release.body, self._grid, number, release.tick, self._bodies):
            raise FailClosed(
                f"the trace of {self.report.pipeline}, series {step.series.name}, tick {release.tick}: the releases of "
                f"{' and '.join(step.series.inputs)} give other bytes than the recorded release. {_ADVICE}"
            )
        self.report.releases += 1
        self.report.made += 1

    def _band(self, step: TraceStep) -> int | None:
        """Return the half-width of an analyst's query, from the state before it."""
        if step.asked is None:
            return None
        state = self._player.state(step.live.number)
        return step.live.series.ask_band(step.asked.asked.at, step.asked.query, state)

    def _snapshot(self, states: dict[int, bytes], sequence: int) -> None:
        played = {index: STATES.encode(self._player.state(index)) for index in self._player.live}
        if not same_states(played, states):
            raise FailClosed(
                f"the trace of {self.report.pipeline}: the state of the composition differs from the "
                f"snapshot in commit {sequence} of the journal. {_ADVICE}"
            )
        self.report.snapshots += 1

    def _differs(self, step: TraceStep, what: str) -> FailClosed:
        where = f"series {step.live.series.name}" + (
            f", tick {step.tick}" if step.tick >= 0 else ""
        )
        return FailClosed(f"the trace of {self.report.pipeline}, {where}: {what}. {_ADVICE}")
