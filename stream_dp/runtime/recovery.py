"""Recovery: from the journal to the engine's state, checked byte for byte.

Rules: state = last snapshot + the committed steps after it, from their recorded rows and seeds, never from the
source. Replayed releases must equal the recorded bytes. The journal must be whole, of this pipeline and key,
and not behind what is already public. Anything else is a fail-closed stop that says what to do.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec
import numpy as np

from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray
from stream_dp.errors import FailClosed
from stream_dp.mechanisms.states import STATES
from stream_dp.runtime.actor import step
from stream_dp.runtime.commit import FORMAT, Charge, Commit, Header, Release, decode, digest
from stream_dp.runtime.keys import Sealer
from stream_dp.runtime.ports import Journal, Sink, closing
from stream_dp.runtime.series import Grid, Series

NoiseMaker: TypeAlias = Callable[[bytes, int], Noise]
GENESIS = b""


class _Head(msgspec.Struct):
    sequence: int


@dataclass(slots=True, repr=False)
class Recovered:
    """Where the engine stands after the last durable commit; `replayed` ticks lie behind the last snapshot."""

    header: Header
    charges: tuple[Charge, ...]
    states: list[Any]
    previous: bytes
    next_commit: int
    next_tick: int = 0
    next_release: int = 1
    replayed: int = 0
    positions: dict[int, int] = field(default_factory=dict)
    marks: dict[int, int] = field(default_factory=dict)
    pending: dict[int, IntArray] = field(default_factory=dict)
    unpublished: list[Release] = field(default_factory=list)


@dataclass(slots=True, repr=False)
class History:
    """The journal as read: the first commit, those since the last snapshot, and the links of the chain."""

    first: Commit
    since: list[Commit]
    last: Commit
    previous: bytes
    charges: tuple[Charge, ...]
    after_head: list[Release]


async def unsealed(
    journal: AsyncIterator[bytes], sealer: Sealer, pipeline: str
) -> AsyncIterator[tuple[Commit, bytes]]:
    """Every commit of a journal with the digest of its sealed form, in order.

    Raises:
        FailClosed: a broken chain, a damaged commit, a wrong key or an unknown format.
    """
    sequence, previous = 0, GENESIS
    async with closing(journal) as blobs:
        async for sealed in blobs:
            plain = sealer.open(sequence, sealed)
            try:
                commit = decode(plain)
            except msgspec.MsgspecError:
                raise FailClosed(
                    f"commit {sequence} of the journal of {pipeline} has a format this version cannot read; "
                    "use the version that wrote it"
                ) from None
            if commit.version != FORMAT:
                raise FailClosed(
                    f"commit {sequence} of the journal of {pipeline} has format {commit.version}, this version "
                    f"reads {FORMAT}; use the version that wrote it"
                )
            if commit.sequence != sequence or commit.previous != previous:
                raise FailClosed(
                    f"the journal of {pipeline} is not one unbroken chain at commit {sequence}"
                )
            if sequence == 0 and commit.header is None:
                raise FailClosed(f"the journal of {pipeline} does not begin with its header")
            sequence, previous = sequence + 1, digest(sealed)
            yield commit, previous


async def _read_history(
    journal: Journal, sealer: Sealer, pipeline: str, head: bytes | None
) -> History | None:
    """Read and check the whole journal; None if it is empty.

    `head` is the last public release. Raises:
        FailClosed: as `unsealed`; or the journal is empty or older than what is public.
    """
    history: History | None = None
    number = _head_sequence(head)
    matched = head is None
    async for commit, link in unsealed(journal.read(), sealer, pipeline):
        if history is None:
            history = History(commit, [commit], commit, link, (), [])
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
        history.since = [commit]
    elif commit.sequence > 0:
        history.since.append(commit)
    history.last, history.previous = commit, link
    history.charges += commit.charges


def _header_of(history: History) -> Header:
    """The journal's header, which `unsealed` has made sure of."""
    if history.first.header is None:
        raise TypeError("a journal's first commit holds its header")
    return history.first.header


def _head_sequence(head: bytes | None) -> int:
    """The sequence number of a release body; 0 where nothing is public yet.

    Raises:
        FailClosed: `head` is not a release.
    """
    if head is None:
        return 0
    try:
        return msgspec.json.decode(head, type=_Head).sequence
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise FailClosed(
            "what comes last in the release topic or file is no release; bring it back as it was"
        ) from None


def _rebuild(
    history: History, series: Sequence[Series], grid: Grid, make_noise: NoiseMaker
) -> Recovered:
    """Replay the committed steps since the last snapshot and compare every release.

    Raises:
        FailClosed: a replayed release differs from the recorded one.
    """
    start = history.since[0]
    states = _start_states(start, series, make_noise)
    for commit in history.since:
        if commit is not start or commit.snapshot is None:
            states = _replay(commit, states, series, grid, make_noise)
    last = history.last
    recovered = Recovered(
        _header_of(history), history.charges, states, history.previous, last.sequence + 1,
        positions=dict(last.positions),
        marks=dict(last.marks),
        pending={t: np.array(r, dtype=np.int64) for t, r in last.pending.items()},
        unpublished=history.after_head,
    )  # fmt: skip
    recovered.replayed = sum(len(c.ticks) for c in history.since if c.snapshot is None)
    if last.ticks:
        recovered.next_tick = last.ticks[-1] + 1
        recovered.next_release = last.releases[-1].sequence + 1
    return recovered


def _start_states(start: Commit, series: Sequence[Series], make_noise: NoiseMaker) -> list[Any]:
    if start.snapshot is not None:
        return [
            STATES.decode(part) for part in msgspec.msgpack.decode(start.snapshot, type=list[bytes])
        ]
    return initial_states(series, start.seeds[0], make_noise)


def initial_states(series: Sequence[Series], seed: bytes, make_noise: NoiseMaker) -> list[Any]:
    """The states before the first tick, drawn from the seed the first commit records."""
    return [s.mechanism.init(make_noise(seed, i)) for i, s in enumerate(series)]


def _replay(
    commit: Commit, states: list[Any], series: Sequence[Series], grid: Grid, make_noise: NoiseMaker
) -> list[Any]:
    recorded = iter(commit.releases)
    for tick, row, seed in zip(commit.ticks, commit.rows, commit.seeds, strict=bool(commit.ticks)):
        whole = np.array(row, dtype=np.int64)
        for i, one in enumerate(series):
            release = next(recorded)
            states[i], body = step(
                one, grid, states[i], tick, release.sequence, whole, make_noise(seed, i)
            )
            if body != release.body:
                raise FailClosed(
                    f"replaying tick {tick} of series {one.name} does not give the recorded bytes: the journal was "
                    "written by another version of the code; go back to that version"
                )
    return states


async def recover(
    journal: Journal,
    sink: Sink,
    sealer: Sealer,
    pipeline: str,
    series: Sequence[Series],
    grid: Callable[[Header], Grid],
    make_noise: NoiseMaker,
) -> Recovered | None:
    """Fence, read, check and rebuild; None where journal and sink are both empty (a first start)."""
    await journal.open()
    await sink.open()
    history = await _read_history(journal, sealer, pipeline, await sink.last())
    await journal.verify({} if history is None else history.last.positions)
    if history is None:
        return None
    return _rebuild(history, series, grid(_header_of(history)), make_noise)
