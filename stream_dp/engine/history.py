"""The journal of a pipeline, read on its own: one chain, checked against the last public bodies; and its totals.

Rules: the journal must be whole, of this pipeline and key, and not behind what is already public. Memories are replayed
while it is read, because they need every commit, or what a checkpoint holds in place of the commits before it. A start
begins at the newest checkpoint before which every release and answer is public, else at the first commit. Totals are
exact and private: only the operator's commands and sources declared public may show them. This file knows no mechanism
or state and changes nothing.
"""

from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Generic, NamedTuple, Protocol

import numpy as np

from stream_dp.core.mechanism import IntArray
from stream_dp.engine.ports import Journal, closing
from stream_dp.errors import FailClosed
from stream_dp.journal.checkpoint import (
    Checkpoint,
    Piece,
    Places,
    Standing,
    Totals,
    checkpoint_of,
    only_changes,
    piece_in,
)
from stream_dp.journal.commit import (
    Answer,
    Applied,
    Asked,
    Change,
    Charge,
    Commit,
    Created,
    Halted,
    Header,
    Release,
    Unwatched,
    Watched,
    decode,
    digest,
)
from stream_dp.journal.keys import Sealer
from stream_dp.journal.public_sequence import ANSWERS, RELEASES, P, PublicSequence

GENESIS = b""
_FIELDS = {
    "private": "whether its noise is private",
    "pipeline": "the pipeline's name",
    "source": "the source",
}


RUNS = 1_000
"""Most runs of ticks with equally many releases whose numbers are kept."""


class ReleaseNumbers:
    """The number of the first release of each tick; all ticks have equally many until a series comes or goes. At `RUNS`
    such runs of ticks every second one of the older half is joined to the one before, in which numbers are then those
    of its first tick.
    """

    def __init__(self, runs: Sequence[tuple[int, int, int]] = ()) -> None:
        # first tick, number of its first release, releases of each tick
        self._runs = list(runs)

    @property
    def runs(self) -> tuple[tuple[int, int, int], ...]:
        """What a checkpoint holds of them."""
        return tuple(self._runs)

    def replay(self, commit: Commit) -> None:
        per_tick = len(commit.releases) // len(commit.ticks) if commit.ticks else 0
        if per_tick and (not self._runs or self._runs[-1][2] != per_tick):
            self._runs.append((commit.ticks[0], commit.releases[0].sequence, per_tick))
        if len(self._runs) > RUNS:
            older = self._runs[: RUNS // 2 : 2]
            self._runs[: RUNS // 2] = [(first, number, 0) for first, number, _ in older]

    def before(self, tick: int) -> int:
        """Return the number of the last release before this tick, or an earlier one; -1 if there is none."""
        if tick <= 0 or not self._runs:
            return -1
        begin = bisect_right(self._runs, tick, key=itemgetter(0)) - 1
        first, number, per_tick = self._runs[begin]
        return number + (tick - first) * per_tick - 1


@dataclass(slots=True, repr=False)
class Past:
    """What is kept of all commits for the next checkpoint: the first one, the numbers of releases, the last answer, its
    number and SHA-256, totals, and where the journal may begin. Of commits only what a `Checkpoint` holds is kept.
    """

    first: Commit
    numbers: ReleaseNumbers = field(default_factory=ReleaseNumbers)
    answer: tuple[int, bytes] = (0, b"")
    totals: Totals = Totals()  # noqa: RUF009 - it never changes
    places: Places = Places()  # noqa: RUF009

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> "Past":
        numbers, answer = ReleaseNumbers(checkpoint.numbers), checkpoint.answer
        return cls(checkpoint.first, numbers, answer, checkpoint.totals, checkpoint.places)

    @classmethod
    def beginning(cls, first: Commit) -> "Past":
        return cls(Commit(first.sequence, b"", first.header, first.charges))

    @property
    def header(self) -> Header:
        if self.first.header is None:
            raise TypeError("a journal's first commit holds its header")
        return self.first.header

    def add(self, commit: Commit, through: int | None = None) -> None:
        """Add the next commit; of its ticks and releases, those up to tick `through` count in the totals."""
        self.numbers.replay(commit)
        self.totals, self.places = self.totals.plus(commit, through), self.places.plus(commit)
        if commit.answers:
            last = commit.answers[-1]
            self.answer = (last.number, digest(last.body))

    def checkpoint(
        self, partitions: tuple[int, ...], series: Standing, memories: dict[str, bytes]
    ) -> Checkpoint:
        """Return the checkpoint after the next commit, at which `memories` stand; `partitions` are those of now."""
        return Checkpoint(
            self.first, series, partitions, self.numbers.runs, memories, self.answer, self.totals, self.places
        )  # fmt: skip


@dataclass(slots=True, repr=False)
class History:
    """The journal as read: its `past`, the commits since the last snapshot, and the end of the chain. `series` are
    those of the checkpoint at which it begins (None: at the first commit), `changing` the commits with changes from
    there to the last snapshot, without their releases and rows. `ticked` is the last commit with ticks, `owed` are the
    bytes that are still to be committed before the next checkpoint.
    """

    past: Past
    since: list[Commit]
    last: Commit
    previous: bytes
    after_head: list[Release] = field(default_factory=list)
    unanswered: list[Answer] = field(default_factory=list)
    ticked: Commit | None = None
    partitions: tuple[int, ...] = ()
    owed: int = 0
    series: Standing | None = None
    changing: list[Commit] = field(default_factory=list)

    @property
    def header(self) -> Header:
        return self.past.header

    def extend(self, commit: Commit, link: bytes) -> None:
        """Add the next commit, whose sealed form has the digest `link`."""
        self.past.add(commit)
        if commit.snapshot is not None:
            self.changing += [only_changes(earlier) for earlier in self.since if earlier.changes]
            self.since = [commit]
        elif commit.sequence > 0:
            self.since.append(commit)
        if commit.header is not None:
            self.partitions = commit.header.partitions
        self.partitions += commit.admitted
        self.last, self.previous = commit, link
        if commit.ticks:
            self.ticked = commit


class Remembering(Protocol):
    """An object that needs every commit of a journal that is read, not only its last states."""

    def replay(self, commit: Commit) -> None:
        """Add the next commit; raise `FailClosed` if it holds what this version has not written."""


class Restored(Remembering, Protocol):
    """An object that a checkpoint restores, in place of the commits before it."""

    def load(self, saved: Mapping[str, bytes], commit: Commit) -> None:
        """Become, from an empty state, what it was after this commit; raise `FailClosed` as `replay`."""


async def unsealed(
    journal: AsyncIterator[bytes], sealer: Sealer, pipeline: str, begin: int = 0
) -> AsyncGenerator[tuple[Commit, bytes]]:
    """Yield every commit of `journal`, which begins with number `begin`, with the digest of its sealed form, in order.
    Raises `FailClosed`: a broken chain, a damaged commit, a wrong key or version, or a change that names a wrong tick.
    """
    sequence, previous, coming = begin, GENESIS, set[int]()
    next_tick = 0 if begin == 0 else None  # a commit of ticks says it
    async with closing(journal) as blobs:
        async for sealed in blobs:
            plain = sealer.open(sequence, sealed)
            commit = decode(plain, f"commit {sequence} of the journal of {pipeline}")
            linked = commit.previous == previous or sequence == begin > 0
            if commit.sequence != sequence or not linked:
                raise FailClosed(
                    f"the journal of {pipeline} is not one unbroken chain at commit {sequence}"
                )
            if sequence == 0 and commit.header is None:
                raise FailClosed(f"the journal of {pipeline} does not begin with its header")
            if next_tick is not None and not all(
                _lies(change, next_tick, coming) for change in commit.changes
            ):
                raise FailClosed(
                    f"the ledger in the journal of {pipeline} does not add up at commit {sequence}: a charge or "
                    "a halt names another tick than the tick of its commit. Restore the journal, or run "
                    "the version of the code that wrote it"
                )
            if commit.ticks:
                next_tick = commit.ticks[-1] + 1
                coming.clear()
            sequence, previous = sequence + 1, digest(sealed)
            yield commit, previous


def tick_of(change: Change) -> int:
    match change:
        case Created(start=tick) | Halted(end=tick):
            return tick
        case Asked(at=tick) | Watched(at=tick) | Unwatched(at=tick) | Applied(at=tick):
            return tick


def _lies(change: Change, cut: int, coming: set[int]) -> bool:
    """Return whether a change takes effect at tick `cut` or, where nothing is read again, one tick later.

    `coming` collects the series created to begin one tick later; only these may be halted one tick later, before
    they have begun.
    """
    later = tick_of(change) - cut
    if isinstance(change, Created) and later == 1:
        coming.add(change.number)
    match change:
        case Halted(number=number):
            return later == (number in coming)
        case Asked() | Applied():
            return later == 0
    return later in (0, 1)


async def read_history(
    journal: Journal, sealer: Sealer, pipeline: str, heads: "Heads", memory: Restored, seen: Remembering
) -> History | None:  # fmt: skip
    """Read and check the journal, from a checkpoint or from its first commit on, and restore `memory` from it; `seen`
    gets each commit that is read. None if it is empty. Raises `FailClosed` as `unsealed`, if the journal is older
    than what is public, or if commits are missing that it does not call pruned.
    """
    begin, history = await _restored(journal, sealer, pipeline, heads, memory)
    blobs, size, owed = _Counted(journal.read(begin)), 0, 0
    async with aclosing(unsealed(blobs.read(), sealer, pipeline, begin)) as commits:
        async for commit, link in commits:
            if history is None:
                history = History(Past.beginning(commit), [commit], commit, link)
            history.extend(commit, link)
            for each in (memory, seen) if commit.sequence > begin or not begin else ():
                each.replay(commit)
            history.after_head += heads.releases.beyond(commit.releases)
            history.unanswered += heads.answers.beyond(commit.answers)
            if (piece := piece_in(commit)) is not None:
                size = len(piece.content) + (size if piece.number else 0)
                owed = blobs.bytes + size if piece.is_last else owed
            history.owed = owed - blobs.bytes
    require_begin(journal.begin, None if history is None else history.past, pipeline)
    for head in (heads.releases, heads.answers):
        if not head.met:
            raise FailClosed(
                f"the journal of {pipeline} is older than, or differs from, what its {head.place} already "
                "shows. To go on would publish second versions. Restore the newest journal"
            )
    return history


class _Counted:
    """The sealed commits that are read, and how many bytes they have had."""

    def __init__(self, blobs: AsyncIterator[bytes]) -> None:
        self._blobs, self.bytes = blobs, 0

    async def read(self) -> AsyncGenerator[bytes]:
        async with closing(self._blobs) as blobs:
            async for sealed in blobs:
                self.bytes += len(sealed)
                yield sealed


async def _restored(
    journal: Journal, sealer: Sealer, pipeline: str, heads: "Heads", memory: Restored
) -> tuple[int, History | None]:  # fmt: skip
    """Restore `memory` from the newest checkpoint that can be read and before which all is public; return the number of
    the commit after which it stands, and the history before. Without one, return where the journal begins.

    Raises `FailClosed` if there is none, and the journal does not begin with its first commit.
    """
    begins = dict.fromkeys((*journal.checkpoints(), journal.begin))
    for begin in filter(None, begins):
        async with aclosing(unsealed(journal.read(begin), sealer, pipeline, begin)) as commits:
            read, checkpoint = await read_checkpoint(commits)
        if checkpoint is not None and heads.reach(read[0], checkpoint):
            memory.load(checkpoint.memories, read[0])
            parts, series = checkpoint.partitions, checkpoint.series
            history = History(
                Past.of(checkpoint), [], read[0], b"", partitions=parts, series=series
            )
            return begin, history
    if journal.begin:
        raise FailClosed(
            f"the journal of {pipeline} begins with commit {journal.begin}, but no checkpoint "
            "restores the state before that commit, or the published releases end before it. So "
            "commits are missing, or published releases were removed. Restore the newest "
            "journal and its published releases"
        )
    return 0, None


async def read_checkpoint(
    commits: AsyncIterator[tuple[Commit, bytes]],
) -> tuple[list[Commit], Checkpoint | None]:
    """Read the commits that hold the checkpoint after the first one; return them, and it (None: they hold none)."""
    read, pieces = list[Commit](), list[Piece]()
    async for commit, _ in commits:
        read.append(commit)
        piece = piece_in(commit)
        pieces += [] if piece is None else [piece]
        if not pieces or pieces[-1].is_last:
            break
    checkpoint = checkpoint_of(pieces, read[0].sequence) if read else None
    return read, None if checkpoint is None or read[0].snapshot is None else checkpoint


def require_begin(begin: int, past: Past | None, pipeline: str) -> None:
    """Raise `FailClosed` unless a journal may begin with commit `begin`, as its own commits say."""
    if past is not None and not past.places.allow(begin):
        raise FailClosed(
            f"the journal of {pipeline} begins with commit {begin}, but does not record that "
            "stream_dp pruned the earlier commits: something else deleted them. Restore the "
            "journal"
        )


class PublicHead(Generic[P]):
    """The last public `body` of a sequence (None: nothing is public); `met` once the journal has shown it."""

    def __init__(self, sequence: PublicSequence[P], place: str, body: bytes | None) -> None:
        self.place = place
        self._number_of = sequence.number
        self._body = body
        self._number = (
            0 if body is None else sequence.number_of(body, f"what comes last in the {place}")
        )
        self.met = body is None

    def reaches(self, number: int) -> bool:
        """Return whether there is a body, with this number or a later one."""
        return self._body is not None and self._number >= number

    def agrees(self, number: int, link: bytes) -> bool:
        """Return whether the body is a later one than `number`, or that one: `link` is its SHA-256."""
        if self._body is not None and self._number == number:
            self.met = digest(self._body) == link
            return self.met
        return not number or self.reaches(number)

    def beyond(self, entries: Sequence[P]) -> list[P]:
        """Return the entries of a commit that come after the body, and note whether the body is one of them."""
        numbered = [(self._number_of(entry), entry) for entry in entries]
        self.met |= any((number, e.body) == (self._number, self._body) for number, e in numbered)
        return [entry for number, entry in numbered if number > self._number]


class Heads(NamedTuple):
    """The last public release and the last public answer."""

    releases: PublicHead[Release]
    answers: PublicHead[Answer]

    @classmethod
    def of(cls, release: bytes | None, answer: bytes | None) -> "Heads":
        """Return the heads with these bodies (None: nothing is public); raises `FailClosed` if a body is foreign."""
        return cls(
            PublicHead(RELEASES, "release topic or file", release),
            PublicHead(ANSWERS, "answer topic or file", answer),
        )

    def reach(self, commit: Commit, checkpoint: Checkpoint) -> bool:
        """Return whether all that lies before this commit, after which the checkpoint stands, is public."""
        releases = commit.releases[:1]
        reached = any(self.releases.reaches(first.sequence) for first in releases)
        return reached and self.answers.agrees(*checkpoint.answer)


def last_of(commit: Commit) -> dict[str, bytes]:
    """Return the release bodies of a commit's last tick, by series; the commit must have ticks."""
    return {
        release.series: release.body
        for release in commit.releases
        if release.tick == commit.ticks[-1]
    }


def require_same(journal: Header, now: Header, *, grows: bool = False) -> None:
    """Raise `FailClosed`, naming what differs, if a journal was written for something else than `now`. If the source
    `grows`, it may have more partitions now.
    """
    differing = [
        f"{what}: then {getattr(journal, name)!r}, now {getattr(now, name)!r}"
        for name, what in _FIELDS.items()
        if getattr(journal, name) != getattr(now, name)
    ]
    gone = not set(journal.partitions) <= set(now.partitions)
    if gone or (len(journal.partitions) != len(now.partitions) and not grows):
        differing.append(
            f"the source's partitions: then {journal.partitions!r}, now {now.partitions!r}"
        )
    if journal.identity and now.identity and journal.identity != now.identity:
        raise FailClosed(
            f"the source {now.source!r} was changed, or deleted and created again, since the "
            "first start. The journal knows the counted records by their offsets, and other "
            "records have those offsets now. Bring the old source back, or give the pipeline "
            "another name. A new name opens a second ledger, and the two guarantees add up"
        )
    if journal.fingerprint != now.fingerprint:
        names = sorted(journal.parts.keys() | now.parts.keys())
        changed = [name for name in names if journal.parts.get(name) != now.parts.get(name)]
        differing.append(
            "the mechanisms that this version of stream_dp runs for the same file: use the version that wrote it"
            if changed == ["mechanisms"]
            else f"in the pipeline file: {', '.join(changed) or 'its meaning'}"
        )
    if differing:
        raise FailClosed(
            "the journal was written for another pipeline file (changed: "
            f"{'; '.join(differing)}). Use the file that wrote it. `stream-dp plan FILE "
            "--against running` says what a changed file would do, and `run FILE --apply` "
            "applies it. Any other change needs a new pipeline name, which opens a second "
            "ledger, and the two guarantees add up"
        )


@dataclass(slots=True, repr=False)
class JournalSummary:
    """What a journal says as a whole (private): its `past`, and the sum of its `rows` up to tick `through`.

    `changing` are its commits with changes, without rows and releases. Of commits before number `begin` a checkpoint
    vouches, which holds the `series` that there were; `changing` and rows do not count them.
    """

    past: Past | None = None
    begin: int = 0
    through: int | None = None
    rows: IntArray | None = None
    changing: list[Commit] = field(default_factory=list)
    series: Standing | None = None

    @property
    def header(self) -> Header | None:
        return None if self.past is None else self.past.header

    @property
    def applied(self) -> Applied | None:
        """The last change of the pipeline file."""
        changes = (change for commit in reversed(self.changing) for change in commit.changes)
        before = None if self.series is None else self.series.applied
        return next((change for change in changes if isinstance(change, Applied)), before)

    @property
    def totals(self) -> Totals:
        return Totals() if self.past is None else self.past.totals

    @property
    def first_charges(self) -> tuple[Charge, ...]:
        return () if self.past is None else self.past.first.charges

    @property
    def dead_letters(self) -> int:
        return sum(self.totals.dead.values())

    def add(self, commit: Commit) -> None:
        self.past = self.past or Past.beginning(commit)
        self.past.add(commit, self.through)
        if commit.changes:
            self.changing.append(only_changes(commit))
        ticks = sum(self.through is None or tick <= self.through for tick in commit.ticks)
        if ticks:
            rows: IntArray = np.array(commit.rows[:ticks], dtype=np.int64).sum(axis=0)
            known = rows[:0] if self.rows is None else self.rows
            self.rows = np.zeros(max(len(rows), len(known)), dtype=np.int64)  # series come and go
            self.rows[: len(rows)] += rows
            self.rows[: len(known)] += known


async def read_summary(
    journal: AsyncIterator[bytes], sealer: Sealer, pipeline: str, through: int | None = None, *,
    begin: int = 0, seen: Callable[[Commit], None] = lambda commit: None,
) -> JournalSummary:  # fmt: skip
    """Read and check a whole journal, which begins with commit `begin`; ticks, releases and rows count up to tick
    `through` only. `seen` gets each commit that is read.

    Raises `FailClosed` as `unsealed` and `require_begin`, or if it has no checkpoint where it begins.
    """
    summary = JournalSummary(begin=begin, through=through)
    async with aclosing(unsealed(journal, sealer, pipeline, begin)) as commits:
        if begin:
            first, checkpoint = await read_checkpoint(commits)
            if checkpoint is None:
                raise FailClosed(
                    f"the journal of {pipeline} begins with commit {begin}, but holds no checkpoint for "
                    "that commit that this version can read: commits are missing. Restore the journal"
                )
            summary.past, summary.series = Past.of(checkpoint), checkpoint.series
            for commit in first:
                summary.add(commit)
                seen(commit)
        async for commit, _ in commits:
            summary.add(commit)
            seen(commit)
    require_begin(begin, summary.past, pipeline)
    return summary
