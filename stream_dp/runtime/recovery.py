"""Recovery: from the journal to the engine's state, checked byte for byte.

Rules: state = last snapshot + the committed steps after it, from their recorded rows and seeds, never from the
source. Replayed releases must equal the recorded bytes. The journal must be whole, of this pipeline and key,
and not behind what is already public. Anything else is a fail-closed stop that says what to do.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from stream_dp.core.mechanism import Noise
from stream_dp.core.tick_grid import TickGrid
from stream_dp.errors import FailClosed, Unconfirmed
from stream_dp.mechanisms.states import STATES
from stream_dp.runtime.actor import step
from stream_dp.runtime.admission import Admission
from stream_dp.runtime.commit import (
    Asked,
    Change,
    Charge,
    Commit,
    Created,
    Halted,
    Header,
    Release,
    decode,
    digest,
)
from stream_dp.runtime.keys import Sealer
from stream_dp.runtime.ports import Journal, Sink, closing
from stream_dp.runtime.registry import LiveSeries
from stream_dp.runtime.release import read_head
from stream_dp.runtime.tick_assembler import Cut

NoiseMaker: TypeAlias = Callable[[bytes, int], Noise]
GENESIS = b""


@dataclass(slots=True, repr=False)
class Recovered:
    """Where the engine stands after the last durable commit; `replayed` ticks lie behind the last snapshot.

    `charges` are those of the first start; `states` has one for each live series, by its number; `partitions` are those
    that were read until then.
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


@dataclass(slots=True, repr=False)
class History:
    """The journal as read: the first commit, those since the last snapshot, and the links of the chain.

    `changing` are the commits before `since` that created or halted; `ticked` is the last one with ticks.
    """

    first: Commit
    since: list[Commit]
    last: Commit
    previous: bytes
    after_head: list[Release]
    changing: list[Commit] = field(default_factory=list)
    ticked: Commit | None = None
    partitions: tuple[int, ...] = ()


async def unsealed(
    journal: AsyncIterator[bytes], sealer: Sealer, pipeline: str
) -> AsyncIterator[tuple[Commit, bytes]]:
    """Every commit of a journal with the digest of its sealed form, in order.

    Raises:
        FailClosed: a broken chain, a damaged commit, a wrong key or an unknown version; or a change that names another
            tick than the one at which it lies.
    """
    sequence, previous, next_tick = 0, GENESIS, 0
    async with closing(journal) as blobs:
        async for sealed in blobs:
            plain = sealer.open(sequence, sealed)
            commit = decode(plain, f"commit {sequence} of the journal of {pipeline}")
            if commit.sequence != sequence or commit.previous != previous:
                raise FailClosed(
                    f"the journal of {pipeline} is not one unbroken chain at commit {sequence}"
                )
            if sequence == 0 and commit.header is None:
                raise FailClosed(f"the journal of {pipeline} does not begin with its header")
            if any(_tick_of(change) != next_tick for change in commit.changes):
                raise FailClosed(
                    f"the ledger in the journal of {pipeline} does not add up at commit {sequence}: what it "
                    "creates or halts names another tick than the one at which it lies. Restore the journal, or run "
                    "the version of the code that wrote it"
                )
            next_tick = commit.ticks[-1] + 1 if commit.ticks else next_tick
            sequence, previous = sequence + 1, digest(sealed)
            yield commit, previous


def _tick_of(change: Change) -> int:
    """The first tick that a change changes."""
    match change:
        case Created(start=tick) | Halted(end=tick) | Asked(at=tick):
            return tick


async def _read_history(
    journal: Journal, sealer: Sealer, pipeline: str, head: bytes | None
) -> History | None:
    """Read and check the whole journal; None if it is empty.

    `head` is the last public release. Raises:
        FailClosed: as `unsealed`; or `head` is no release, or the journal is empty or older than what is public.
    """
    history: History | None = None
    number = 0
    if head is not None:
        number = read_head(head, "what comes last in the release topic or file").sequence
    matched = head is None
    async for commit, link in unsealed(journal.read(), sealer, pipeline):
        if history is None:
            history = History(commit, [commit], commit, link, [])
        _extend(history, commit, link)
        for release in commit.releases:
            if release.sequence > number:
                history.after_head.append(release)
            matched = matched or (release.sequence == number and release.body == head)
    if not matched:
        raise FailClosed(
            f"the journal of {pipeline} is older than, or differs from, what its release topic or file already "
            "shows; going on would publish second versions. Restore the newest journal"
        )
    return history


def _extend(history: History, commit: Commit, link: bytes) -> None:
    if commit.snapshot is not None:
        history.changing += [each for each in history.since if each.changes]
        history.since = [commit]
    elif commit.sequence > 0:
        history.since.append(commit)
    if commit.header is not None:
        history.partitions = commit.header.partitions
    history.partitions += commit.admitted
    history.last, history.previous = commit, link
    if commit.ticks:
        history.ticked = commit


def _header_of(history: History) -> Header:
    """The journal's header, which `unsealed` has made sure of."""
    if history.first.header is None:
        raise TypeError("a journal's first commit holds its header")
    return history.first.header


async def _rebuild(
    history: History, admission: Admission, grid: TickGrid, make_noise: NoiseMaker
) -> Recovered:
    """Replay the committed steps since the last snapshot and compare every release; others run in between.

    Raises:
        FailClosed: a replayed release differs from the recorded one, or a change does not add up.
    """
    for commit in history.changing:
        admission.replay(commit)
    start = history.since[0]
    states = _start_states(start, admission, make_noise)
    for commit in history.since:
        await asyncio.sleep(0)
        if commit.changes:
            _change(commit, admission, states, make_noise)
        elif commit is not start or commit.snapshot is None:
            _replay(commit, admission, states, grid, make_noise)
    last, ticked = history.last, history.ticked
    next_tick = 0 if ticked is None else ticked.ticks[-1] + 1
    recovered = Recovered(
        _header_of(history), history.first.charges, states, history.previous, last.sequence + 1,
        Cut.of(next_tick, last.positions, last.marks, last.pending, last.behind),
        partitions=history.partitions,
        unpublished=history.after_head,
    )  # fmt: skip
    recovered.replayed = sum(len(c.ticks) for c in history.since if c.snapshot is None)
    if ticked is not None:
        recovered.next_release = ticked.releases[-1].sequence + 1
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
    """The states before the first tick, drawn from the seed that their commit records."""
    return {
        each.number: each.series.mechanism.init(make_noise(seed, each.number)) for each in series
    }


def _change(
    commit: Commit, admission: Admission, states: dict[int, Any], make_noise: NoiseMaker
) -> None:
    """Create and halt what the commit did."""
    created = admission.replay(commit)
    if created:
        states |= initial_states(created, commit.seeds[0], make_noise)
    for number in states.keys() - {live.number for live in admission.registry.live}:
        del states[number]


def _replay(
    commit: Commit,
    admission: Admission,
    states: dict[int, Any],
    grid: TickGrid,
    make_noise: NoiseMaker,
) -> None:
    recorded = iter(commit.releases)
    for tick, row, seed in zip(commit.ticks, commit.rows, commit.seeds, strict=bool(commit.ticks)):
        whole = np.array(row, dtype=np.int64)
        for live in admission.registry.live:
            release = next(recorded)
            states[live.number], body = step(
                live.series, grid, states[live.number], tick, release.sequence, whole,
                make_noise(seed, live.number),
            )  # fmt: skip
            if body != release.body:
                raise FailClosed(
                    f"replaying tick {tick} of series {live.series.name} does not give the recorded bytes: "
                    "the journal was written by another version of the code; go back to that version"
                )


async def recover(
    journal: Journal,
    sink: Sink,
    sealer: Sealer,
    pipeline: str,
    admission: Admission,
    grid: Callable[[Header], TickGrid],
    make_noise: NoiseMaker,
    due: Callable[[Sequence[Release]], bool] = bool,
) -> Recovered | None:
    """Fence, read, check and rebuild; None where journal and sink are both empty (a first start).

    `due` says of durable releases that are not public whether they should be.
    """
    await journal.open()
    await sink.open()
    head = await sink.last()
    history = await _read_history(journal, sealer, pipeline, head)
    try:
        await journal.verify({} if history is None else history.last.positions)
    except Unconfirmed:
        if history is None or head is None or due(history.after_head):
            raise
    if history is None:
        return None
    return await _rebuild(history, admission, grid(_header_of(history)), make_noise)
