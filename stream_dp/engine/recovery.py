"""Recovery: from a journal back to the engine's state, byte for byte, or a refusal that says why.

Rules: state = last snapshot + the committed steps and queries after it, from their recorded rows, parameters and seeds,
never from the source. Replayed releases and answers must equal the recorded bytes. If anything differs, the start stops
(`FailClosed`) and says what to do. `history` reads the journal.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from stream_dp.core.mechanism import Noise, Query
from stream_dp.core.progress import Progress, percent
from stream_dp.core.time import TickGrid
from stream_dp.engine.actor import ask, step
from stream_dp.engine.admission import Admission
from stream_dp.engine.history import (
    Heads,
    History,
    ReleaseNumbers,
    Remembering,
    header_in,
    last_of,
    read_history,
    tick_of,
)
from stream_dp.engine.messages.addressed import read_parameters
from stream_dp.engine.messages.conversation import body_of
from stream_dp.engine.ports import Answers, Ports
from stream_dp.engine.series import LiveSeries, Series
from stream_dp.engine.tick_assembler import Cut
from stream_dp.errors import FailClosed, RejectedMessage, Unconfirmed, UsageError
from stream_dp.journal.answer_body import AnswerCut, places_in
from stream_dp.journal.commit import (
    Answer,
    Asked,
    Charge,
    Commit,
    Created,
    Halted,
    Header,
    Release,
    Unwatched,
    Watched,
)
from stream_dp.journal.release import is_recorded, release_of
from stream_dp.mechanisms.states import STATES

NoiseMaker: TypeAlias = Callable[[bytes, int], Noise]
OPENING, READING = "Opening the journal", "Reading the journal"
REPLAYING = "Replaying the ticks since its last snapshot"


@dataclass(frozen=True, slots=True, repr=False)
class Coming:
    """A change that was made at the cut and takes effect one tick later, after the open tick.

    Either a series begins, and its first state is drawn from `seed`. Or `query` begins or ends a watch in its
    mechanism, and until then the series is served in the form `until`. Earlier records never count in the columns
    `fresh`.
    """

    number: int
    fresh: slice
    seed: bytes
    query: Query | None = None
    until: Series | None = None


def served_until(coming: Sequence[Coming]) -> dict[int, Series]:
    """Return the series, by number, that are served in another form until their change takes effect."""
    return {each.number: each.until for each in reversed(coming) if each.until is not None}


@dataclass(slots=True, repr=False)
class Recovered:
    """Where the engine stands after the last durable commit; `replayed` ticks lie behind the last snapshot.

    `charges` are those of the first start; `states` has one state for each live series, by its number; `partitions` are
    those read until then. `latest` are the bodies of the last public releases, by series; `unanswered` are durable
    answers that are not public.
    """

    header: Header
    charges: tuple[Charge, ...]
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
    numbers: ReleaseNumbers = field(default_factory=ReleaseNumbers)

    @property
    def shown(self) -> int:
        """The first tick with a release that is not public yet."""
        return self.unpublished[0].tick if self.unpublished else self.cut.next_tick


class _ReadSoFar:
    """Reports how far a journal has been read, relative to the last public tick."""

    def __init__(self, progress: Progress, head: bytes | None) -> None:
        self._progress, self._far = progress, 0 if head is None else release_of(head).tick

    def replay(self, commit: Commit) -> None:
        if commit.ticks:
            self._progress(READING, *percent(commit.ticks[-1], self._far))


async def _rebuild(
    history: History,
    admission: Admission,
    grid: TickGrid,
    make_noise: NoiseMaker,
    progress: Progress,
) -> Recovered:
    """Replay the committed steps since the last snapshot and compare every release; let other tasks run meanwhile."""
    for commit in history.changing:
        admission.replay(commit)
    start = history.since[0]
    states, coming = _start_states(start, admission, make_noise), list[Coming]()
    last, ticked, next_tick = history.last, history.ticked, 0
    for done, commit in enumerate(history.since):
        await asyncio.sleep(0)
        progress(REPLAYING, *percent(done, len(history.since)))
        if commit.changes:
            held = ticked is None or commit.sequence > ticked.sequence
            coming += _change(commit, admission, states, grid, make_noise, next_tick, held=held)
        elif commit is not start or commit.snapshot is None:
            _replay(commit, admission, states, grid, make_noise, coming)
        next_tick = commit.ticks[-1] + 1 if commit.ticks else next_tick
    recovered = Recovered(
        header_in(history), history.first.charges, states, history.previous, last.sequence + 1,
        Cut.of(next_tick, last.positions, last.marks, last.pending, last.behind),
        partitions=history.partitions,
        unpublished=history.after_head,
        unanswered=history.unanswered,
        coming=coming,
    )  # fmt: skip
    recovered.replayed = sum(len(c.ticks) for c in history.since if c.snapshot is None)
    if ticked is not None:
        recovered.next_release = ticked.releases[-1].sequence + 1
        recovered.latest = {} if history.after_head else last_of(ticked)
    return recovered


def _start_states(start: Commit, admission: Admission, make_noise: NoiseMaker) -> dict[int, Any]:
    if start.snapshot is None:
        return initial_states(admission.registry.live, start.seeds[0], make_noise)
    states = start.snapshot.states
    if states.keys() != {live.number for live in admission.registry.live}:
        raise FailClosed(
            f"the snapshot in commit {start.sequence} of the journal is not one of the series that lived then; restore "
            "the journal, or run the version of the code that wrote it"
        )
    return {number: STATES.decode(state) for number, state in states.items()}


def initial_states(
    series: Sequence[LiveSeries], seed: bytes, make_noise: NoiseMaker
) -> dict[int, Any]:
    """Return the states before the first tick, drawn from the seed that their commit records."""
    return {
        each.number: each.series.mechanism.init(make_noise(seed, each.number)) for each in series
    }


def _change(
    commit: Commit,
    admission: Admission,
    states: dict[int, Any],
    grid: TickGrid,
    make_noise: NoiseMaker,
    next_tick: int,
    *,
    held: bool,
) -> list[Coming]:
    """Repeat the changes of a commit, each with its recorded seed; return the changes that begin a tick later.

    `held`: the engine continues at this cut, so changes that begin later do not count yet.
    """
    drawn = [each for each in commit.changes if not isinstance(each, Halted)]
    if len(drawn) != len(commit.seeds):
        raise FailClosed(
            f"commit {commit.sequence} of the journal does not hold one seed for each of its changes that draws: it was"
            " written by another version of the code; go back to that version"
        )
    coming, first = list[Coming](), dict[int, bytes]()
    later = [each for each in drawn if tick_of(each) > next_tick]
    if later and held:
        admission.hold()
    for change, seed in zip(drawn, commit.seeds, strict=True):
        match change:
            case Asked(number=number):
                _ask_again(change, commit, admission, states, grid, make_noise(seed, number))
            case Watched(number=number) | Unwatched(number=number):
                noise = None if change in later else make_noise(seed, number)
                coming += _watch_again(change, commit, admission, states, seed, noise)
            case Created(number=number):
                first[number] = seed
    for live in admission.replay(commit):
        states |= initial_states((live,), first[live.number], make_noise)
        if live.start > next_tick:
            fresh = admission.fresh_columns(live)
            coming.append(Coming(live.number, fresh, first[live.number]))
    for number in states.keys() - {live.number for live in admission.registry.live}:
        del states[number]
    return coming


def _ask_again(
    asked: Asked,
    commit: Commit,
    admission: Admission,
    states: dict[int, Any],
    grid: TickGrid,
    noise: Noise,
) -> None:
    """Ask a mechanism as the commit did, and compare its answer."""
    live = admission.registry.numbered(asked.number)
    told = next((each for each in commit.answers if each.number == asked.answer), None)
    if live is None or live.series.asking is None or told is None or told.id is None:
        raise FailClosed(
            f"commit {commit.sequence} of the journal asks a series that takes no queries, or holds no answer to one: "
            "it was written by another version of the code; go back to that version"
        )
    try:
        parameters = read_parameters(asked.parameters)
        query = live.series.asking.query(parameters)
        band = live.series.ask_band(asked.at, query, states[asked.number])
        states[asked.number], found = ask(live.series, states[asked.number], query, noise)
        content = live.series.told(parameters, found, band)
        standing = AnswerCut.before(asked.at, grid)
        body = body_of(asked.answer, told.id, told.do, standing, content, places_in(told.body))
    except (UsageError, RejectedMessage):
        body = b""
    if body != told.body:
        raise FailClosed(
            f"asking series {live.series.name} again as in commit {commit.sequence} does not give the recorded bytes: "
            "the journal was written by another version of the code; go back to that version"
        )


def _watch_again(
    change: Watched | Unwatched,
    commit: Commit,
    admission: Admission,
    states: dict[int, Any],
    seed: bytes,
    noise: Noise | None,
) -> list[Coming]:
    """Begin or end a watch as the commit did; without `noise` return it as a change that begins a tick later."""
    live = admission.registry.numbered(change.number)
    try:
        proposal = admission.watched_again(change)
    except UsageError as refusal:
        raise _no_watch(commit, refusal) from None
    if noise is None:
        until = None if live is None else live.series
        return [Coming(change.number, proposal.columns, seed, proposal.query, until)]
    _begin(commit, proposal.series, states, change.number, proposal.query, noise)
    return []


def _begin(
    commit: Commit,
    series: Series,
    states: dict[int, Any],
    number: int,
    query: Query,
    noise: Noise,
) -> None:
    try:
        states[number], _ = ask(series, states[number], query, noise)
    except RejectedMessage as refusal:
        raise _no_watch(commit, refusal) from None


def _no_watch(commit: Commit, refusal: Exception) -> FailClosed:
    return FailClosed(
        f"commit {commit.sequence} of the journal begins or ends a watch that there is not: {refusal}. The journal "
        "was written by another version of the code; go back to that version"
    )


def _replay(
    commit: Commit,
    admission: Admission,
    states: dict[int, Any],
    grid: TickGrid,
    make_noise: NoiseMaker,
    coming: list[Coming],
) -> None:
    """Step every series as the commit did; after its first tick, the changes in `coming` take effect."""
    recorded = iter(commit.releases)
    for tick, row, seed in zip(commit.ticks, commit.rows, commit.seeds, strict=bool(commit.ticks)):
        whole, told = np.array(row, dtype=np.int64), dict[str, bytes]()
        until = served_until(coming)
        for live in admission.registry.at(tick):
            release = next(recorded)
            states[live.number], body = step(
                until.get(live.number, live.series), grid, states[live.number], tick, release.sequence, whole,
                make_noise(seed, live.number),
            )  # fmt: skip
            told[live.series.name] = _as_recorded(body, release, live.series.name, tick)
        for made in admission.registry.made:
            release = next(recorded)
            if not made.gives(release.body, grid, release.sequence, tick, told):
                raise _other_bytes(made.name, tick)
        for each in coming:
            now = admission.registry.numbered(each.number)
            if now is not None and each.query is not None:
                noise = make_noise(each.seed, each.number)
                _begin(commit, now.series, states, each.number, each.query, noise)
        coming.clear()


def _as_recorded(body: bytes, release: Release, name: str, tick: int) -> bytes:
    """Return the recorded body, if this version or a former one writes the replayed body so."""
    if not is_recorded(release.body, body):
        raise _other_bytes(name, tick)
    return release.body


def _other_bytes(name: str, tick: int) -> FailClosed:
    return FailClosed(
        f"replaying tick {tick} of series {name} does not give the recorded bytes: "
        "the journal was written by another version of the code; go back to that version"
    )


async def recover(
    ports: Ports,
    pipeline: str,
    admission: Admission,
    grid: Callable[[Header], TickGrid],
    make_noise: NoiseMaker,
    memory: Remembering,
    due: Callable[[Sequence[Release]], bool] = bool,
) -> Recovered | None:
    """Fence, read, check and rebuild; None if journal and sink are both empty (a first start).

    `memory` is empty, and the journal is replayed into it. `due` says whether releases that are not public should be.
    """
    journal, sink, numbers = ports.journal, ports.sink, ReleaseNumbers()
    ports.progress(OPENING)
    with ports.spans("lease"):
        await journal.open()
    await sink.open()
    head = await sink.last()
    heads = Heads.of(head, None if ports.answers is None else await _last(ports.answers))
    memories = (memory, numbers, _ReadSoFar(ports.progress, head))
    ports.progress(READING)
    history = await read_history(journal, ports.sealer, pipeline, heads, memories)
    try:
        await journal.verify({} if history is None else history.last.positions)
    except Unconfirmed:
        if history is None or head is None or due(history.after_head):
            raise
    if history is None:
        return None
    begun = grid(header_in(history))
    recovered = await _rebuild(history, admission, begun, make_noise, ports.progress)
    recovered.numbers = numbers
    return recovered


async def _last(answers: Answers) -> bytes | None:
    await answers.open()
    return await answers.last()
