"""Access to a pipeline's journal from outside its engine, read only, also during a run; and its dead letters."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stream_dp.core.wording import Progress, percent, unseen
from stream_dp.engine.history import (
    GENESIS,
    read_checkpoint,
    read_summary,
    require_same,
    unsealed,
)
from stream_dp.engine.ports import closing
from stream_dp.engine.run_config import another_file
from stream_dp.errors import (
    FailClosed,
    Outage,
    StreamDPError,
    UnknownFormat,
    UsageError,
)
from stream_dp.files.sqlite import (
    add_sealed,
    bounds_of,
    check_file,
    checkpoints_in,
    read_sealed,
)
from stream_dp.journal.commit import Applied, Commit, DeadLetter, Header, decode, digest
from stream_dp.journal.keys import Sealer
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.log.journal import KafkaJournal
from stream_dp.kafka.log.lease import KafkaLease
from stream_dp.operate.keys import sealer_for
from stream_dp.operate.run.settings import settings_for, settled, source_there
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.fingerprints import (
    FORMER_ORDER,
    earlier,
    fingerprints,
    under_former_order,
    under_former_series,
    under_gone_filter,
)
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load
from stream_dp.records import endpoints
from stream_dp.records.endpoints import KafkaSourceSpec
from stream_dp.records.privacy import GONE_FILTER

_AT_ONCE = 16


async def has_begun(spec: PipelineSpec, settings: KafkaSettings) -> bool:
    """Return whether a run has made the journal, as far as this user may see; raise WorldError if no broker answers."""
    if isinstance(spec.journal, endpoints.SqliteJournalSpec):
        return spec.journal.path.exists()
    source = settled(spec.source, endpoints.KafkaSourceSpec)
    return await KafkaJournal(KafkaLease(settings, spec.name), source.topic).exists()


def check_pages(spec: PipelineSpec) -> None:
    """Read every page of a journal's file; raise FailClosed if one is damaged. A topic has none."""
    if isinstance(spec.journal, endpoints.SqliteJournalSpec):
        check_file(spec.journal.path)


class Sealed(NamedTuple):
    """The sealed commits of a journal from number `begin` on, oldest first."""

    begin: int
    commits: AsyncIterator[bytes]


async def sealed_commits(
    spec: PipelineSpec, progress: Progress = unseen, archive: Path | None = None
) -> Sealed:
    """Return the commits of the journal, after those in `archive`; raise UsageError if there is no journal yet, or if
    commits between the two were pruned.
    """
    if isinstance(spec.journal, endpoints.SqliteJournalSpec):
        here = await sealed_commits_of(spec.journal.path, progress)
    else:
        here = await _in_kafka(spec, progress)
    if archive is None:
        return here
    first, end = await asyncio.to_thread(bounds_of, archive)
    if here.begin > end:
        raise _gap(archive, end, here.begin)
    return Sealed(first, _after((await sealed_commits_of(archive, progress)).commits, here, end))


async def _after(before: AsyncIterator[bytes], here: Sealed, end: int) -> AsyncIterator[bytes]:
    """Yield what is archived, up to commit `end`, then the journal from there on."""
    async with closing(before) as commits:
        async for sealed in commits:
            yield sealed
    async for sealed in _from(here, end):
        yield sealed


async def _from(here: Sealed, begin: int) -> AsyncIterator[bytes]:
    number = here.begin
    async with closing(here.commits) as commits:
        async for sealed in commits:
            if number >= begin:
                yield sealed
            number += 1


async def _beyond(here: Sealed, archive: Path, begin: int, held: bytes) -> AsyncIterator[bytes]:
    """Yield the commits from number `begin` on, where the one before, if the journal holds it, is `held`."""
    known = held if begin > here.begin else b""
    async for sealed in _from(here, begin - bool(known)):
        if not known:
            yield sealed
        elif sealed != known:
            break
        known = b""
    if known:
        raise UsageError(
            f"{archive}: is not an archive of this journal, because the journal lacks the last "
            "commit of the archive. Name the journal's own archive, or a new file. If an older "
            "copy of the journal was restored, do not run that copy"
        )


def _gap(archive: Path, end: int, begin: int) -> UsageError:
    return UsageError(
        f"{archive}: holds the commits before number {end}, and the journal begins with number {begin}: those between "
        "were pruned before they were archived. Keep it as it is, name a new file for what follows, and archive more "
        "often than `journal: keep` says"
    )


async def archive_journal(
    pipeline: Path, to: Path, key_file: Path | None, tell: Callable[[str], None], progress: Progress = unseen
) -> tuple[int, int, int]:  # fmt: skip
    """Archive the journal of a pipeline file, as `archived` does."""
    spec, sealer = await opened(pipeline, key_file, tell)
    return await archived(spec, sealer, to, progress)


async def archived(
    spec: PipelineSpec, sealer: Sealer, to: Path, progress: Progress = unseen
) -> tuple[int, int, int]:
    """Add to the SQLite file `to` what the journal holds beyond it; the engine may run meanwhile. Makes the file with
    mode 0600 if there is none; it then begins where the journal begins. Return the numbers of the first commit there,
    of the first new one, and of the next one.

    Raises FailClosed if a commit does not follow from the one before, UsageError if commits are missing in between.
    """
    here, some, read = await sealed_commits(spec, progress), list[bytes](), list[bytes]()
    first, begin, last, held = here.begin, here.begin, GENESIS, b""
    if await asyncio.to_thread(to.exists):
        first, begin = await asyncio.to_thread(bounds_of, to)
        (held,) = await asyncio.to_thread(read_sealed, to, 1, begin - 1)
        last = digest(held)
    if here.begin > begin:
        raise _gap(to, begin, here.begin)

    async def noted() -> AsyncIterator[bytes]:
        async for sealed in _beyond(here, to, begin, held):
            read.append(sealed)
            yield sealed

    end = begin
    async for commit, link in unsealed(noted(), sealer, spec.name, begin):
        if last and commit.previous != last:
            raise FailClosed(
                f"{to}: commit {end} of the journal of {spec.name} does not follow the last commit "
                "of this archive"
            )
        last, end = link, end + 1
        some.append(read.pop())
        if len(some) == _AT_ONCE:
            await asyncio.to_thread(add_sealed, to, end - len(some), some)
            some = []
    if some:
        await asyncio.to_thread(add_sealed, to, end - len(some), some)
    return first, begin, end


async def _in_kafka(spec: PipelineSpec, progress: Progress) -> Sealed:
    if not isinstance(spec.source, endpoints.KafkaSourceSpec):
        raise UsageError("journal.kind: a kafka journal needs a kafka source")
    settings = settings_for(spec.source)
    journal = KafkaJournal(KafkaLease(settings, spec.name), spec.source.topic)
    if not await journal.exists():
        raise UsageError(
            f"{spec.name} has no journal at {settings.bootstrap}: the first run of its pipeline "
            "creates the journal"
        )
    begin, _ = await journal.bounds()
    here = Sealed(begin, journal.read(progress=progress))
    return Sealed(begin, _unpruned(here, spec.name, journal.bounds))


async def sealed_commits_of(path: Path, progress: Progress = unseen, start: int = 0) -> Sealed:
    """Return the commits of an SQLite journal, from `start` on; raise UsageError if there is no file."""
    begin, end = await asyncio.to_thread(bounds_of, path)
    begin = max(begin, start)
    here = Sealed(begin, _in_file(path, begin, end, progress))
    return Sealed(begin, _unpruned(here, str(path), lambda: asyncio.to_thread(bounds_of, path)))


async def _unpruned(
    here: Sealed, name: str, bounds: Callable[[], Awaitable[tuple[int, int]]]
) -> AsyncIterator[bytes]:
    """Yield the commits; raise Outage, and not that they are damaged, if the engine prunes them meanwhile."""
    number = here.begin
    try:
        async with closing(here.commits) as commits:
            async for sealed in commits:
                yield sealed
                number += 1
    except FailClosed:
        if (await bounds())[0] <= number:
            raise
        raise Outage(
            f"the engine pruned commits of the journal of {name} while this command read the "
            "journal: try again"
        ) from None


async def _in_file(path: Path, begin: int, end: int, progress: Progress) -> AsyncIterator[bytes]:
    chunk = [b""]
    while chunk:
        progress("Reading the journal", *percent(begin, end))
        chunk = await asyncio.to_thread(read_sealed, path, _AT_ONCE, begin)
        begin += len(chunk)
        for sealed in chunk:
            yield sealed


class GoingOn(NamedTuple):
    """The pipeline of a file as its journal goes on; `same`: with this file, as far as was looked."""

    built: Built
    same: bool

    def require(self) -> None:
        """Raise `FailClosed` if a changed file was applied, and it is not this one."""
        if not self.same and self.built.file is not None:
            raise another_file(self.built.spec.name)


async def built_of(
    spec: PipelineSpec,
    sealer: Sealer | None,
    opened: Callable[[], Awaitable[Sealed]] | None = None,
    *,
    sure: bool = False,
) -> GoingOn:
    """Build the pipeline of a file as its journal goes on, which may have begun with an earlier file. `opened` opens
    the journal, if it is elsewhere. What is wrong with it is left to who reads it next. `sure`: look also whether the
    first file was changed since, which the engine does at its start. Without a `sealer` no journal is looked at.

    Raises what `build` raises, `FailClosed` where the earlier file cannot be read, and `Outage` where
    nobody answers.
    """
    if sealer is None:
        return GoingOn(build(spec), same=True)
    header, applied = None, None
    journal = partial(sealed_commits, spec) if opened is None else opened
    prints = fingerprints(spec)
    with _left():
        header = await _header(spec, sealer, journal)
    same = header is None or {**header.parts, "mechanisms": ""} == {
        **prints.parts,
        "mechanisms": "",
    }
    if header is not None and (sure or not same):
        with _left():
            applied = await _last_applied(spec, sealer, opened)
    if applied is not None:
        same = applied.fingerprint == prints.whole
    return GoingOn(build_again(spec, header, applied), same)


@contextmanager
def _left() -> Iterator[None]:
    """Leave what is wrong with a journal to who reads it next, but not that nobody answers."""
    try:
        yield
    except Outage:
        raise
    except StreamDPError:
        pass


def build_again(spec: PipelineSpec, header: Header | None, applied: Applied | None) -> Built:
    """Build a pipeline whose journal has this header, and says that this was the last change of its file."""
    first = None if applied is None else earlier(applied.first, spec).spec
    return build(spec, first, mechanisms_in(header))


def mechanisms_in(header: Header | None) -> str:
    """Return the digest of the mechanisms with which a journal goes on; empty where it does not say."""
    return "" if header is None else header.parts.get("mechanisms", "")


async def _last_applied(
    spec: PipelineSpec, sealer: Sealer, opened: Callable[[], Awaitable[Sealed]] | None
) -> Applied | None:
    """Return the last change of the pipeline file that a journal records: in a file from its last checkpoint on."""
    if opened is None and isinstance(spec.journal, endpoints.SqliteJournalSpec):
        path = spec.journal.path
        for begin in await asyncio.to_thread(checkpoints_in, path):
            here = await sealed_commits_of(path, start=begin)
            with suppress(FailClosed):
                return await _applied_in(here, sealer, spec.name)
    here = await (sealed_commits(spec) if opened is None else opened())
    return await _applied_in(here, sealer, spec.name)


async def _applied_in(here: Sealed, sealer: Sealer, pipeline: str) -> Applied | None:
    applied, first = None, list[Commit]()
    async with aclosing(unsealed(here.commits, sealer, pipeline, here.begin)) as commits:
        if here.begin:
            first, checkpoint = await read_checkpoint(commits)
            if checkpoint is None:
                raise FailClosed(f"the journal of {pipeline} has no checkpoint at its first commit")
            applied = checkpoint.series.applied
        changes = [change for commit in first for change in commit.changes]
        changes += [change async for commit, _ in commits for change in commit.changes]
    return next((change for change in reversed(changes) if isinstance(change, Applied)), applied)


async def require_own(built: Built, sealer: Sealer, *, private: bool) -> bool:
    """Check that the journal belongs to this pipeline, and return whether there is no journal yet.

    The check comes before the lease is taken, so that a mistake does not stop an engine that runs well. An
    unreadable journal is left to the engine, which checks again.

    Raises:
        FailClosed: the journal belongs to another pipeline, was written with another key, or in a form that this
        version does not read.
        Outage: nobody answers.
    """
    try:
        _, sealed = await first_sealed(await sealed_commits(built.spec))
    except (UnknownFormat, Outage):
        raise
    except UsageError:
        return True
    except StreamDPError:
        return False
    header = await _header(built.spec, sealer, partial(sealed_commits, built.spec))
    if header is not None:
        _require_known_filter(built.spec, header)
        _require_same_order(built, header)
        _require_same_defaults(built, header)
        mine = {"fingerprint": built.fingerprint, "parts": built.parts, "private": private}
        require_same(header, msgspec.structs.replace(header, **mine))
    return sealed is None


def _require_known_filter(spec: PipelineSpec, header: Header) -> None:
    """Raise FailClosed if the journal was written under `GONE_FILTER` and the file now names `tight_approximate`."""
    if header.parts.get("privacy") == under_gone_filter(spec):
        raise FailClosed(
            f"the journal of {spec.name} was written under `filter: {GONE_FILTER}`, which this "
            "version does not have, and a ledger never changes its filter. Go on with the "
            "version that wrote the journal, or give the pipeline a new name. A new name begins "
            "a second ledger, and the guarantees of the two ledgers add up"
        )


def _require_same_order(built: Built, header: Header) -> None:
    """Raise FailClosed if the journal's renyi filter had the former default order, and the file's has another."""
    written = header.parts.get("privacy")
    if written != built.parts["privacy"] and written == under_former_order(built.spec):
        raise FailClosed(
            f"the journal of {built.spec.name} was written under a renyi filter of order "
            f"{FORMER_ORDER}, which was the default then, and a ledger never changes its filter. "
            f"To go on, write `order: {FORMER_ORDER}` under privacy"
        )


def _require_same_defaults(built: Built, header: Header) -> None:
    """Raise FailClosed if keys that the journal's series leave out or name had another meaning then."""
    written, spec = header.parts.get("series"), built.spec
    if written == built.parts["series"] or written != under_former_series(spec):
        return
    lines = [
        f"`{key}: {value}` in {series.name}"
        for series in spec.series
        for key, value in series.former_keys.items()
    ]
    raise FailClosed(
        f"the journal of {spec.name} was written by a version in which some keys of the "
        "file, or their defaults, had another meaning. A series never changes its "
        f"mechanism. To go on with this journal, write {', '.join(lines)}"
    )


async def partitions_at_first(spec: PipelineSpec, sealer: Sealer) -> int | None:
    """Return the source's number of partitions at the first start; None if no readable journal states it."""
    try:
        header = await _header(spec, sealer, partial(sealed_commits, spec))
    except StreamDPError:
        return None
    return None if header is None else len(header.partitions)


async def first_sealed(here: Sealed) -> tuple[int, bytes | None]:
    """Return the number of the first commit of a journal, and it, sealed; None if the journal is empty."""
    async with closing(here.commits) as commits:
        return here.begin, await anext(commits, None)


async def _header(
    spec: PipelineSpec, sealer: Sealer, opened: Callable[[], Awaitable[Sealed]]
) -> Header | None:
    """Return the header, from the first commit, or the checkpoint there; None if the journal is empty, or the engine
    must tell what is wrong.
    """
    begin, sealed = await first_sealed(await opened())
    if sealed is None:
        return None
    first = decode(sealer.open(begin, sealed), f"commit {begin} of the journal of {spec.name}")
    if begin == 0:
        return first.header
    here = await opened()
    async with aclosing(unsealed(here.commits, sealer, spec.name, here.begin)) as commits:
        _, checkpoint = await read_checkpoint(commits)
    return None if checkpoint is None else checkpoint.first.header


RANGES = 100
"""At most this many ranges of each partition, reason and field are listed: the newest."""


async def opened(
    pipeline: Path, key_file: Path | None, tell: Callable[[str], None]
) -> tuple[PipelineSpec, Sealer]:
    """Return the pipeline's specification and sealer once its brokers answer; `tell` while they do not yet."""
    spec = load(pipeline)
    sealer = sealer_for(spec, key_file)
    await source_there(spec, tell)
    return spec, sealer


async def read_dead_letters(
    pipeline: Path, key_file: Path | None, tell: Callable[[str], None], progress: Progress = unseen
) -> dict[str, Any]:
    """Read the pipeline's journal from end to end and add up its dead letters; the engine may run meanwhile.

    Counts and places are exact and NOT PRIVATE, for the operator's own terminal. Only the newest ranges of each kind
    are kept, so memory does not grow with the journal. Of commits that were pruned, there are counts and no places.
    """
    spec, sealer = await opened(pipeline, key_file, tell)
    kinds: dict[tuple[int, str, str | None], _Kind] = {}

    def take(commit: Commit) -> None:
        for letter in commit.dead_letters:
            kind = letter.partition, letter.reason, letter.field
            kinds.setdefault(kind, _Kind()).take(letter)

    here = await sealed_commits(spec, progress)
    summary = await read_summary(here.commits, sealer, spec.name, begin=here.begin, seen=take)
    totals = summary.totals
    listed = [
        {"partition": partition, "reason": reason, "field": field, **kinds.get(kind, _Kind()).shown(totals.dead[kind])}
        for kind in sorted(totals.dead, key=lambda kind: (kind[0], kind[1], kind[2] or ""))
        for partition, reason, field in (kind,)
    ]  # fmt: skip
    return {
        "pipeline": spec.name, "private": False,
        "places": "offsets" if isinstance(spec.source, KafkaSourceSpec) else "lines",
        "records": totals.records, "late": totals.late, "capped": totals.capped,
        "dead": summary.dead_letters, "dead_letters": listed,
    }  # fmt: skip


class _Kind:
    """The places of the dead letters of one partition, reason and field, in the commits that are read."""

    def __init__(self) -> None:
        self._ranges: deque[tuple[int, int]] = deque(maxlen=RANGES)

    def take(self, letter: DeadLetter) -> None:
        for first, last in letter.ranges:
            follows = self._ranges and self._ranges[-1][1] + 1 == first
            self._ranges.append((self._ranges.pop()[0] if follows else first, last))

    def shown(self, records: int) -> dict[str, Any]:
        """Return the number of records, the listed ranges, and the number of records outside of these ranges."""
        inside = sum(last - first + 1 for first, last in self._ranges)
        ranges = [list(ends) for ends in self._ranges]
        return {"records": records, "ranges": ranges, "elsewhere": records - inside}
