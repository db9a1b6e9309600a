"""Recovery: from a journal back to the engine's state, byte for byte, or a refusal that says why.

Rules: state = last snapshot + the committed steps and queries after it, from their recorded rows, parameters and seeds,
never from the source. Replayed releases and answers must equal the recorded bytes. If anything differs, the start stops
(`FailClosed`) and says what to do. `history` reads the journal.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec
import numpy as np

from stream_dp.core.mechanism import Noise, Query
from stream_dp.core.time import TickGrid
from stream_dp.core.wording import Progress, percent
from stream_dp.engine.admission import Admission
from stream_dp.engine.history import (
    Heads,
    History,
    Past,
    Restored,
    last_of,
    read_checkpoint,
    read_history,
    require_same,
    tick_of,
    unsealed,
)
from stream_dp.engine.memories import Memories, same_memories
from stream_dp.engine.messages.addressed import read_parameters
from stream_dp.engine.messages.conversation import body_of
from stream_dp.engine.ports import Ports
from stream_dp.engine.run_config import RunConfig
from stream_dp.engine.series import LiveSeries, Series
from stream_dp.engine.tick_assembler import Cut
from stream_dp.errors import FailClosed, RejectedMessage, Unconfirmed, UsageError
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
from stream_dp.journal.release import is_recorded, release_of
from stream_dp.mechanisms.states import STATES, same_states

NoiseMaker: TypeAlias = Callable[[bytes, int], Noise]
OPENING, READING = "Opening the journal", "Reading the journal"
REPLAYING = "Replaying the ticks since its last snapshot"


@dataclass(frozen=True, slots=True, repr=False)
class Coming:
    """A change that was made at the cut and takes effect one tick later, after the open tick.

    Either a series begins, and its first state is drawn from `seed`; or `query` begins or ends a watch, and until then
    the series is served in the form `until`. Earlier records never count in the columns `fresh`.
    """

    number: int
    fresh: slice
    seed: bytes
    query: Query | None = None
    until: Series | None = None


def served_until(coming: Sequence[Coming]) -> dict[int, Series]:
    """Return the series, by number, that are served in another form until their change takes effect."""
    return {change.number: change.until for change in reversed(coming) if change.until is not None}


@dataclass(slots=True, repr=False)
class Recovered:
    """Where the engine stands after the last durable commit; `replayed` ticks lie behind the last snapshot.

    `past` is what the next checkpoint holds of all commits, `states` are those of the live series by number,
    `partitions` those read until then, `latest` the bodies of the last public releases by series, `unanswered` durable
    answers that are not public, `owed` how many bytes are still to be committed before the next checkpoint.
    """

    past: Past
    states: dict[int, Any]
    previous: bytes
    next_commit: int
    cut: Cut = field(default_factory=Cut)
    next_release: int = 1
    replayed: int = 0
    partitions: tuple[int, ...] = ()
    unpublished: list[Release] = field(default_factory=list)
    latest: dict[str, bytes] = field(default_factory=dict)
    unanswered: list[Answer] = field(default_factory=list)
    coming: list[Coming] = field(default_factory=list)
    owed: int = 0

    @classmethod
    def beginning(
        cls, first: Commit, header: Header, states: dict[int, Any], link: bytes
    ) -> "Recovered":
        """Return where an engine stands after its first commit, whose sealed form has the digest `link`."""
        past, partitions = Past.beginning(first), header.partitions
        return cls(past, states, link, next_commit=1, partitions=partitions)

    @property
    def header(self) -> Header:
        return self.past.header

    @property
    def shown(self) -> int:
        """The first tick with a release that is not public yet."""
        return self.unpublished[0].tick if self.unpublished else self.cut.next_tick

    def require_same(self, now: Header, *, grows: bool) -> None:
        """Raise `FailClosed` if the journal, with the partitions read until then, is of something else than `now`."""
        journal = msgspec.structs.replace(self.header, partitions=self.partitions)
        require_same(journal, now, grows=grows)


class _ReadSoFar:
    """Reports how far a journal has been read, relative to the last public tick."""

    def __init__(self, progress: Progress, head: bytes | None) -> None:
        self._progress, self._far = progress, 0 if head is None else release_of(head).tick

    def replay(self, commit: Commit) -> None:
        if commit.ticks:
            self._progress(READING, *percent(commit.ticks[-1], self._far))


class _Replay:
    """The states of the series while commits are replayed, and changes in `coming` that begin after the open tick.
    Raises `FailClosed` where a release or an answer differs from the recorded one, or a change does not add up.
    """

    def __init__(
        self, start: Commit, admission: Admission, grid: TickGrid, make_noise: NoiseMaker
    ) -> None:
        self._admission, self._registry = admission, admission.registry
        self._grid, self._make_noise = grid, make_noise
        self.coming: list[Coming] = []
        self.next_tick = 0
        if start.snapshot is None:
            self.states = initial_states(self._registry.live, start.seeds[0], make_noise)
            return
        states = start.snapshot.states
        if states.keys() != {live.number for live in self._registry.live}:
            raise FailClosed(
                f"the snapshot in commit {start.sequence} of the journal does not match the series "
                "that ran at that commit. Restore the journal, or run the version of the code that "
                "wrote it"
            )
        self.states = {number: STATES.decode(state) for number, state in states.items()}

    def commit(self, commit: Commit, *, held: bool = False) -> None:
        """Repeat the changes, or the steps, of the next commit."""
        if commit.changes:
            self.change(commit, held=held)
        else:
            self.steps(commit)

    def change(self, commit: Commit, *, held: bool) -> None:
        """Repeat the changes of a commit, each with its recorded seed. `held`: the engine continues at this cut, so
        changes that begin later do not count yet.
        """
        drawn = [change for change in commit.changes if not isinstance(change, Halted | Applied)]
        if len(drawn) != len(commit.seeds):
            raise _other_version(
                f"commit {commit.sequence} of the journal must hold one seed for each of its changes "
                "that draw noise, and does not"
            )
        first = dict[int, bytes]()
        if held and any(tick_of(change) > self.next_tick for change in drawn):
            self._admission.hold()
        for change, seed in zip(drawn, commit.seeds, strict=True):
            match change:
                case Asked():
                    self._ask(change, commit, self._make_noise(seed, change.number))
                case Watched() | Unwatched():
                    self._watch(change, commit, seed)
                case Created(number=number):
                    first[number] = seed
        for live, fresh in self._admission.replay(commit):
            self.states |= initial_states((live,), first[live.number], self._make_noise)
            if live.start > self.next_tick:
                self.coming.append(Coming(live.number, fresh, first[live.number]))
        for number in self.states.keys() - {live.number for live in self._registry.live}:
            del self.states[number]

    def _ask(self, asked: Asked, commit: Commit, noise: Noise) -> None:
        """Ask a mechanism as the commit did, and compare its answer."""
        number, live = asked.number, self._registry.numbered(asked.number)
        answer = next((entry for entry in commit.answers if entry.number == asked.answer), None)
        if live is None or live.series.asking is None or answer is None or answer.id is None:
            raise _other_version(
                f"commit {commit.sequence} of the journal queries a series that takes no queries, or "
                "holds no answer to a query"
            )
        try:
            parameters = read_parameters(asked.parameters)
            query = live.series.asking.query(parameters)
            band = live.series.ask_band(asked.at, query, self.states[number])
            self.states[number], reply = live.series.ask(self.states[number], query, noise)
            content = live.series.reply(parameters, reply, band)
            standing, places = AnswerCut.before(asked.at, self._grid), places_in(answer.body)
            body = body_of(asked.answer, answer.id, answer.do, standing, content, places)
        except (UsageError, RejectedMessage):
            body = b""
        if body != answer.body:
            raise _other_version(
                f"a replay of the query to series {live.series.name} in commit {commit.sequence} "
                "gives other bytes than the recorded answer"
            )

    def _watch(self, change: Watched | Unwatched, commit: Commit, seed: bytes) -> None:
        """Begin or end a watch as the commit did, now or a tick later."""
        number, live = change.number, self._registry.numbered(change.number)
        try:
            proposal = self._admission.watched_again(change)
        except UsageError as refusal:
            raise _no_watch(commit, refusal) from None
        if change.at > self.next_tick:
            until = None if live is None else live.series
            self.coming.append(Coming(number, proposal.columns, seed, proposal.query, until))
        else:
            self._begin(commit, proposal.series, number, proposal.query, seed)

    def _begin(
        self, commit: Commit, series: Series, number: int, query: Query, seed: bytes
    ) -> None:
        noise = self._make_noise(seed, number)
        try:
            self.states[number], _ = series.ask(self.states[number], query, noise)
        except RejectedMessage as refusal:
            raise _no_watch(commit, refusal) from None

    def steps(self, commit: Commit) -> None:
        """Step every series as the commit did; after its first tick, the changes in `coming` take effect."""
        recorded, ticks = iter(commit.releases), bool(commit.ticks)
        for tick, row, seed in zip(commit.ticks, commit.rows, commit.seeds, strict=ticks):
            whole, bodies = np.array(row, dtype=np.int64), dict[str, bytes]()
            until = served_until(self.coming)
            for live in self._registry.at(tick):
                number, name = live.number, live.series.name
                release = _recorded(recorded, name, tick)
                series, noise = until.get(number, live.series), self._make_noise(seed, number)
                self.states[number], body = series.step(
                    self._grid, self.states[number], tick, release.sequence, whole, noise
                )
                bodies[name] = _as_recorded(body, release, name, tick)
            for made in self._registry.made:
                release = _recorded(recorded, made.name, tick)
                if not made.gives(release.body, self._grid, release.sequence, tick, bodies):
                    raise _other_bytes(made.name, tick)
            for change in self.coming:
                now = self._registry.numbered(change.number)
                if now is not None and change.query is not None:
                    self._begin(commit, now.series, change.number, change.query, change.seed)
            self.coming.clear()
        if commit.ticks:
            self.next_tick = commit.ticks[-1] + 1


async def _rebuild(
    history: History, admission: Admission, grid: TickGrid, make_noise: NoiseMaker, progress: Progress
) -> Recovered:  # fmt: skip
    """Replay the committed steps since the last snapshot and compare every release; let other tasks run meanwhile."""
    if history.series is not None:
        admission.load(history.series)
    for commit in history.changing:
        await asyncio.sleep(0)
        admission.replay(commit)
    start, last, ticked = history.since[0], history.last, history.ticked
    replay = _Replay(start, admission, grid, make_noise)
    for done, commit in enumerate(history.since):
        await asyncio.sleep(0)
        progress(REPLAYING, *percent(done, len(history.since)))
        if commit is start and commit.snapshot is not None:
            replay.next_tick = commit.ticks[-1] + 1
        else:
            replay.commit(commit, held=ticked is None or commit.sequence > ticked.sequence)
    recovered = Recovered(
        history.past, replay.states, history.previous, last.sequence + 1,
        Cut.of(replay.next_tick, last.positions, last.marks, last.pending, last.behind),
        replayed=sum(len(commit.ticks) for commit in history.since if commit.snapshot is None),
        partitions=history.partitions,
        unpublished=history.after_head,
        unanswered=history.unanswered,
        coming=replay.coming,
        owed=history.owed,
    )  # fmt: skip
    if ticked is not None:
        recovered.next_release = ticked.releases[-1].sequence + 1
        recovered.latest = {} if history.after_head else last_of(ticked)
    return recovered


async def require_same_start(
    ports: Ports, config: RunConfig, admission: Admission, make_noise: NoiseMaker, memories: Memories,
    between: tuple[int, int],
) -> None:  # fmt: skip
    """Raise `FailClosed` unless a start from the checkpoint after the first commit of `between`, replayed up to the
    second one, restores what the checkpoint and the snapshot there hold.

    `admission` and `memories` are as at a first start. The work is done on threads, so that ticks go on.
    """
    older, newer = between
    async with aclosing(
        unsealed(ports.journal.read(older), ports.sealer, config.pipeline, older)
    ) as commits:
        (start, *others), checkpoint = await read_checkpoint(commits)
        if checkpoint is None or start.snapshot is None:
            raise _no_checkpoint(config.pipeline, older)
        past, partitions = Past.of(checkpoint), checkpoint.partitions + start.admitted
        await asyncio.to_thread(memories.load, checkpoint.memories, start)
        await asyncio.to_thread(admission.load, checkpoint.series)
        past.add(start)
        replay = _Replay(start, admission, config.grid(past.header.origin), make_noise)
        replay.next_tick = start.ticks[-1] + 1
        async for commit, _ in (later := _chained(others, commits)):
            await asyncio.to_thread(replay.commit, commit)
            await asyncio.to_thread(memories.replay, commit)
            if commit.sequence == newer:
                break
            past.add(commit)
            partitions += commit.admitted
        _, stands = await read_checkpoint(_chained([commit], later))
    if stands is None or commit.snapshot is None:
        raise _no_checkpoint(config.pipeline, newer)
    saved = await asyncio.to_thread(memories.save)
    restored = past.checkpoint(partitions, admission.save(), saved)
    states = {number: STATES.encode(state) for number, state in replay.states.items()}
    plain = [msgspec.structs.replace(each, memories={}) for each in (restored, stands)]
    same = same_states(states, commit.snapshot.states) and plain[0] == plain[1]
    if not (same and await asyncio.to_thread(same_memories, saved, stands.memories)):
        raise FailClosed(
            f"the journal of {config.pipeline}: the checkpoint after commit {newer} differs from "
            f"the state that a start from the checkpoint after commit {older} restores, so "
            "nothing was deleted. Report this before you start this journal again"
        )


async def _chained(
    first: Sequence[Commit], rest: AsyncIterator[tuple[Commit, bytes]]
) -> AsyncGenerator[tuple[Commit, bytes]]:
    for commit in first:
        yield commit, b""
    async for commit, link in rest:
        yield commit, link


def _no_checkpoint(pipeline: str, after: int) -> FailClosed:
    return FailClosed(
        f"the journal of {pipeline}: the checkpoint after commit {after} cannot be read back, so nothing was deleted. "
        "Restore the journal"
    )


def initial_states(
    series: Sequence[LiveSeries], seed: bytes, make_noise: NoiseMaker
) -> dict[int, Any]:
    """Return the states before the first tick, drawn from the seed that their commit records."""
    return {
        live.number: live.series.mechanism.init(make_noise(seed, live.number)) for live in series
    }


def _other_version(what: str) -> FailClosed:
    return FailClosed(
        f"{what}: the journal was written by another version of the code; go back to that version"
    )


def _no_watch(commit: Commit, refusal: Exception) -> FailClosed:
    return _other_version(
        f"commit {commit.sequence} of the journal begins or ends a watch that there is not ({refusal})"
    )


def _recorded(releases: Iterator[Release], name: str, tick: int) -> Release:
    release = next(releases, None)
    if release is None:
        raise _other_bytes(name, tick)
    return release


def _as_recorded(body: bytes, release: Release, name: str, tick: int) -> bytes:
    """Return the recorded body, if this version or a former one writes the replayed body so."""
    if not is_recorded(release.body, body):
        raise _other_bytes(name, tick)
    return release.body


def _other_bytes(name: str, tick: int) -> FailClosed:
    return _other_version(
        f"replaying tick {tick} of series {name} does not give the recorded bytes"
    )


async def recover(
    ports: Ports,
    config: RunConfig,
    admission: Admission,
    make_noise: NoiseMaker,
    memory: Restored,
    now: int,
) -> Recovered | None:
    """Fence, read, check and rebuild; None if journal and sink are both empty (a first start). `memory` is empty, and
    the journal is replayed into it. The engine was started at the moment `now`.
    """
    journal, sink, answers = ports.journal, ports.sink, ports.answers
    ports.progress(OPENING)
    with ports.spans("lease"):
        await journal.open()
    await sink.open()
    head, answer = await sink.last(), None
    if answers is not None:
        await answers.open()
        answer = await answers.last()
    ports.progress(READING)
    heads, seen = Heads.of(head, answer), _ReadSoFar(ports.progress, head)
    history = await read_history(journal, ports.sealer, config.pipeline, heads, memory, seen)
    try:
        await journal.verify({} if history is None else history.last.positions)
    except Unconfirmed:
        if history is None or head is None:
            raise
        blocks = config.blocks(config.grid(history.header.origin), now)
        ticks = [release.tick for release in history.after_head]
        if blocks.ends(ticks, lambda: admission.registry.releasing):
            raise  # more should be public
    if history is None:
        return None
    begun = history.header
    require_same(
        begun, config.header(begun.source, begun.partitions, begun.origin, ports.sealer.key_id)
    )
    grid = config.grid(begun.origin)
    return await _rebuild(history, admission, grid, make_noise, ports.progress)
