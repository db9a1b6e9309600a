"""A mark outside the journal of its length, so that a lost or older journal is not taken for a first start.

The mark is a small file in the user's state folder: one for each pipeline and source, and for a file source one for
each place of the file. It is a lower bound: it may lag behind the journal and is never ahead. It is synced only before
commits are deleted.

Rules: a journal that is behind its mark is refused, and so is one that holds another commit where the mark was made, or
that lies in another Kafka cluster; `accept` (a name for the
new guarantee) lets an empty journal begin all the same. If a place has no mark yet, a mark of the same names at another
place counts if it was made under the same key, because the data may have been moved; one that was made under a wrapped
key always counts, because the operator's key may have been exchanged.
"""

import hashlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import msgspec

from stream_dp.engine.ports import Journal, Positions, closing
from stream_dp.errors import FailClosed, Unconfirmed, UnknownFormat, WorldError
from stream_dp.files.threads import sync_folder
from stream_dp.journal.commit import Commit, digest

VERSION = 4  # version 1 has no cluster, version 2 no place and no key, version 3 no digest
_PLACED = 3
_AGREES = (0, 1)  # leads of a journal over its mark, in commits: a crash may come between the two


class _Form(msgspec.Struct):
    version: int


class _Mark(msgspec.Struct, tag="high-water", tag_field="kind", forbid_unknown_fields=True):
    pipeline: str
    source: str
    commits: int
    cluster: str = ""
    place: str = ""
    key: str = ""
    digest: str = ""
    version: int = VERSION


class HighWater:
    """`journal`, with a mark in `folder` for `pipeline` on `source`; `cluster` returns an open journal's cluster.

    `place` is where a file's data lie, empty for a topic. `key` are the ids of the data key and
    of the operator's key that wraps it, or the one id, or empty.
    """

    def __init__(
        self,
        journal: Journal,
        folder: Path,
        pipeline: str,
        source: str,
        accept: str = "",
        cluster: Callable[[], str] = lambda: "",
        place: str = "",
        key: str = "",
    ) -> None:
        self.marked = journal
        name = _short(f"{pipeline}\0{source}")
        self._older = folder / f"{name}.json"
        self._path = folder / f"{name}-{_short(place)}.json" if place else self._older
        self._elsewhere = f"{name}-*.json"
        self._pipeline, self._source, self._place, self._key = pipeline, source, place, key
        self._accept, self._cluster = accept, cluster
        self._commits = 0
        self._last = b""
        self._met = ""  # the digest of the commit at which the mark was made
        self._adopted = False

    @property
    def path(self) -> Path:
        """The file of the mark; a file of an older version if there is no other."""
        return self._path if self._path.exists() or not self._older.exists() else self._older

    @property
    def has_run(self) -> bool:
        """Whether this machine has seen the pipeline run. Raises `FailClosed` for a mark that cannot be read."""
        return bool(self._seen(self._read(self._path)))

    async def open(self) -> None:
        await self.marked.open()

    @property
    def begin(self) -> int:
        return self.marked.begin

    def checkpoints(self) -> Sequence[int]:
        return self.marked.checkpoints()

    async def read(self, begin: int = 0) -> AsyncIterator[bytes]:
        mark = self._read(self._path)
        count = begin or self.begin
        async with closing(self.marked.read(begin)) as commits:
            async for sealed in commits:
                count += 1
                if count > self._commits:
                    self._commits, self._last = count, sealed
                if mark is not None and count == mark.commits:
                    self._met = _link(sealed)
                yield sealed

    async def verify(self, positions: Positions) -> None:
        """Verify the journal, and compare it with its mark.

        Raises `Unconfirmed` if the journal's own record has expired and its mark agrees, `FailClosed` if the journal
        holds fewer commits than the mark, or lies in another cluster.
        """
        unconfirmed: Unconfirmed | None = None
        try:
            await self.marked.verify(positions)
        except Unconfirmed as expired:
            unconfirmed = expired
        mark = self._read(self._path)
        anew = bool(self._accept) and self._commits == 0
        for seen in () if anew else self._seen(mark):
            self._require(seen)
        if mark is not None and mark.digest and self._met not in ("", mark.digest):
            raise FailClosed(
                f"the journal of {self._pipeline} holds another commit {mark.commits - 1} than this "
                "machine has seen. The journal was set back and went on elsewhere, so two versions "
                "of a release may be public. Restore the journal that belongs to the published "
                f"releases; delete {self._path} only if this journal is the right one"
            )
        if unconfirmed is not None:
            if mark is None or self._commits - mark.commits not in _AGREES:
                raise FailClosed(str(unconfirmed))
            raise unconfirmed

    def _require(self, mark: "_Mark") -> None:
        here = self._cluster()
        if mark.cluster and here and mark.cluster != here:
            raise FailClosed(
                f"the pipeline {self._pipeline} has already run on {self._source} of another Kafka "
                "cluster, and its journal is there. To go on here would forget the spent budget. "
                "Correct the address of the brokers. To begin here with an empty "
                "journal, use --accept-new-guarantee NAME: it starts a new guarantee, whose privacy loss "
                "adds to that of the old one"
            )
        if self._commits >= mark.commits:
            return
        what = "is empty" if self._commits == 0 else "is older than it was"
        where = f", at {mark.place}" if mark.place else ""
        another = "" if not self._place else " If this is another pipeline, give it another name."
        raise FailClosed(
            f"the journal of {self._pipeline} {what}, but the pipeline has run on {self._source} before{where}: going "
            "on would publish second versions of old facts and forget what was spent. Restore the newest journal; or, "
            "for an empty journal, start a new guarantee that adds to the old one with --accept-new-guarantee NAME."
            f"{another}"
        )

    async def append(self, commit: Commit, sealed: bytes) -> None:
        await self.marked.append(commit, sealed)
        self._commits, self._last = commit.sequence + 1, sealed
        self._write()
        if self._path != self._older and not self._adopted:
            older = self._read(self._older)
            if older is not None and older.version < _PLACED:
                self._older.unlink(missing_ok=True)  # it has no place, and this journal is as new
            self._adopted = True

    async def prune(self, before: int) -> None:
        """Sync the mark first: what is deleted can tell no more that an older copy of the journal is one."""
        self._write(synced=True)
        await self.marked.prune(before)

    async def close(self) -> None:
        await self.marked.close()

    def _seen(self, mine: "_Mark | None") -> "list[_Mark]":
        """Return the marks that this journal must not be behind: its own, else its possible ones elsewhere."""
        if mine is not None:
            return [mine]
        if not self._place:
            return []
        older, others = self._read(self._older), sorted(self._path.parent.glob(self._elsewhere))
        marks = [mark for mark in map(self._read, others) if mark is not None]
        moved = [mark for mark in marks if self._is_ours(mark)]
        return [*moved, older] if older is not None and older.version < _PLACED else moved

    def _is_ours(self, mark: _Mark) -> bool:
        """Return whether the journal of a mark elsewhere may be this one."""
        ours, others = self._key.split(), mark.key.split()
        return bool(ours) and (len(others) > 1 or not set(ours).isdisjoint(others))

    def _read(self, path: Path) -> "_Mark | None":
        try:
            content = path.read_bytes()
            version = msgspec.json.decode(content, type=_Form).version
            if 1 <= version <= VERSION:
                return msgspec.json.decode(content, type=_Mark)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            raise FailClosed(
                f"{path} should state how far the journal of {self._pipeline} has come, but cannot "
                "be read. Delete it only if you know that the journal is the newest"
            ) from None
        what = f"{path}, which says how far the journal of {self._pipeline} has been,"
        raise UnknownFormat(what, f"version {version}", f"version {VERSION} and older versions")

    def _write(self, *, synced: bool = False) -> None:
        mark = _Mark(
            self._pipeline, self._source, self._commits, self._cluster(), self._place, self._key, _link(self._last)
        )  # fmt: skip
        fresh = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with fresh.open("wb") as file:
                file.write(msgspec.json.encode(mark))
                if synced:
                    file.flush()
                    os.fsync(file.fileno())
            fresh.replace(self._path)
            if synced:
                sync_folder(self._path.parent)
        except OSError as error:
            raise WorldError(f"{self._path}: cannot be written: {error.strerror}") from None


def _link(sealed: bytes) -> str:
    return digest(sealed).hex()


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
