"""A mark outside the journal of how far it has been: so that a lost or older journal is not taken for a first start.

The mark is a small file in the user's state folder, one for each pipeline and source. It may lag behind the journal
(it is a lower bound and is not synced), it is never ahead of it. Rules: a journal that is behind its mark is
refused, and so is one in another Kafka cluster; `accept` (a name for the new guarantee) lets an empty journal begin all
the same. This file knows no key and no content.
"""

import hashlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from stream_dp.errors import FailClosed, Unconfirmed, UnknownFormat, WorldError
from stream_dp.runtime.commit import Commit
from stream_dp.runtime.ports import Journal, Positions, closing

VERSION = 2
"""Version 1 knows no cluster."""
_AGREES = (0, 1)
"""By how many commits a journal may be ahead of its mark: a crash lies between a commit and its mark at most."""


class _Form(msgspec.Struct):
    version: int


class _Mark(msgspec.Struct, tag="high-water", tag_field="kind", forbid_unknown_fields=True):
    pipeline: str
    source: str
    commits: int
    cluster: str = ""
    version: int = VERSION


class HighWater:
    """`journal`, with a mark in `folder` for `pipeline` on `source`; `cluster` says where an open journal lies."""

    def __init__(
        self,
        journal: Journal,
        folder: Path,
        pipeline: str,
        source: str,
        accept: str = "",
        cluster: Callable[[], str] = lambda: "",
    ) -> None:
        self.marked = journal
        name = hashlib.sha256(f"{pipeline}\0{source}".encode()).hexdigest()[:32]
        self._path = folder / f"{name}.json"
        self._pipeline = pipeline
        self._source = source
        self._accept = accept
        self._cluster = cluster
        self._commits = 0

    @property
    def path(self) -> Path:
        """The file of the mark."""
        return self._path

    async def open(self) -> None:
        """Open the journal."""
        await self.marked.open()

    async def read(self) -> AsyncIterator[bytes]:
        """Read the journal, counting its commits."""
        self._commits = 0
        async with closing(self.marked.read()) as sealed:
            async for one in sealed:
                self._commits += 1
                yield one

    async def verify(self, positions: Positions) -> None:
        """Compare the journal with its mark as well.

        Raises:
            Unconfirmed: the journal's own record has expired; its mark agrees.
            FailClosed: it holds fewer commits than were seen, or none where some were, or lies in another cluster.
        """
        unconfirmed: Unconfirmed | None = None
        try:
            await self.marked.verify(positions)
        except Unconfirmed as expired:
            unconfirmed = expired
        mark = self._seen()
        anew = bool(self._accept) and self._commits == 0
        if mark is not None and not anew:
            self._require(mark)
        if unconfirmed is not None:
            if mark is None or self._commits - mark.commits not in _AGREES:
                raise FailClosed(str(unconfirmed))
            raise unconfirmed

    def _require(self, mark: "_Mark") -> None:
        here = self._cluster()
        if mark.cluster and here and mark.cluster != here:
            raise FailClosed(
                f"the pipeline {self._pipeline} has run on {self._source} of another Kafka cluster, and its journal is "
                "there: going on here would forget what was spent. Correct the address of the brokers; or, for an "
                "empty journal, start a new guarantee that adds to the old one with --accept-new-guarantee NAME"
            )
        if self._commits >= mark.commits:
            return
        what = "is empty" if self._commits == 0 else "is older than it was"
        raise FailClosed(
            f"the journal of {self._pipeline} {what}, but the pipeline has run on {self._source} before: going on "
            "would publish second versions of old facts and forget what was spent. Restore the newest journal; or, "
            "for an empty journal, start a new guarantee that adds to the old one with --accept-new-guarantee NAME"
        )

    async def append(self, commit: Commit, sealed: bytes) -> None:
        """Append, then move the mark."""
        await self.marked.append(commit, sealed)
        self._commits = commit.sequence + 1
        self._mark()

    async def close(self) -> None:
        """Close the journal."""
        await self.marked.close()

    def _seen(self) -> "_Mark | None":
        try:
            content = self._path.read_bytes()
            version = msgspec.json.decode(content, type=_Form).version
            if version in (1, VERSION):
                return msgspec.json.decode(content, type=_Mark)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            raise FailClosed(
                f"{self._path} should say how far the journal of {self._pipeline} has been, but cannot be read; "
                "delete it only if the journal is known to be the newest"
            ) from None
        what = f"{self._path}, which says how far the journal of {self._pipeline} has been,"
        raise UnknownFormat(what, f"version {version}", f"version {VERSION} and older ones")

    def _mark(self) -> None:
        mark = _Mark(self._pipeline, self._source, self._commits, self._cluster())
        content = msgspec.json.encode(mark)
        fresh = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_bytes(content)
            fresh.replace(self._path)
        except OSError as error:
            raise WorldError(f"{self._path}: cannot be written: {error.strerror}") from None
