"""Access to a pipeline's journal from outside its engine, read only, also during a run; and its dead letters."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec

from stream_dp.core.progress import Progress, percent, unseen
from stream_dp.engine.history import require_same, unsealed
from stream_dp.engine.ports import closing
from stream_dp.errors import FailClosed, StreamDPError, UnknownFormat, UsageError
from stream_dp.files.sqlite import check_file, count_sealed, read_sealed
from stream_dp.journal.commit import DeadLetter, Header, decode
from stream_dp.journal.keys import Sealer
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.log.journal import KafkaJournal
from stream_dp.kafka.log.lease import KafkaLease
from stream_dp.operate.keys import sealer_for
from stream_dp.operate.run.settings import settings_for, settled, source_there
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.fingerprints import (
    FORMER_ORDER,
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


def sealed_commits(spec: PipelineSpec, progress: Progress = unseen) -> AsyncIterator[bytes]:
    """Yield the sealed commits of the journal, oldest first; raise UsageError if there is no journal yet."""
    if isinstance(spec.journal, endpoints.SqliteJournalSpec):
        return sealed_commits_of(spec.journal.path, progress)
    return _in_kafka(spec, progress)


async def _in_kafka(spec: PipelineSpec, progress: Progress) -> AsyncIterator[bytes]:
    if not isinstance(spec.source, endpoints.KafkaSourceSpec):
        raise UsageError("journal.kind: a kafka journal needs a kafka source")
    settings = settings_for(spec.source)
    journal = KafkaJournal(KafkaLease(settings, spec.name), spec.source.topic)
    if not await journal.exists():
        raise UsageError(
            f"{spec.name} has no journal at {settings.bootstrap}: it begins with the first run of its pipeline"
        )
    async with closing(journal.read(progress=progress)) as commits:
        async for sealed in commits:
            yield sealed


async def sealed_commits_of(path: Path, progress: Progress = unseen) -> AsyncIterator[bytes]:
    """Yield the sealed commits of an SQLite journal; raise UsageError if there is no file."""
    begin, total = 0, await asyncio.to_thread(count_sealed, path)
    while True:
        progress("Reading the journal", *percent(begin, total))
        chunk = await asyncio.to_thread(read_sealed, path, _AT_ONCE, begin)
        begin += len(chunk)
        for sealed in chunk:
            yield sealed
        if len(chunk) < _AT_ONCE:
            return


async def require_own(built: Built, sealer: Sealer, *, private: bool) -> bool:
    """Check that the journal belongs to this pipeline, and return whether there is no journal yet.

    The check comes before the lease is taken, so that a mistake does not stop an engine that runs well. An
    unreadable journal is left to the engine, which checks again.

    Raises:
        FailClosed: the journal belongs to another pipeline, was written with another key, or in a form that this
        version does not read.
    """
    try:
        sealed = await _first(built.spec)
    except UnknownFormat:
        raise
    except UsageError:
        return True
    except StreamDPError:
        return False
    header = None if sealed is None else _header(built.spec, sealer, sealed)
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
            f"the journal of {spec.name} was written under `filter: {GONE_FILTER}`, which this version lacks, and a "
            "ledger never changes its filter. Go on with the version that wrote it, or give the file a name of its "
            "own, which opens a second ledger: the two guarantees then add up"
        )


def _require_same_order(built: Built, header: Header) -> None:
    """Raise FailClosed if the journal's renyi filter had the former default order, and the file's has another."""
    written = header.parts.get("privacy")
    if written != built.parts["privacy"] and written == under_former_order(built.spec):
        raise FailClosed(
            f"the journal of {built.spec.name} was written under a renyi filter of order {FORMER_ORDER}, the default "
            f"then, and a ledger never changes its filter: write `order: {FORMER_ORDER}` under privacy to go on with it"
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
        f"the journal of {spec.name} was written when what the file says, or leaves out, had another "
        f"meaning, and a series never changes its mechanism: write {', '.join(lines)} to go on with it"
    )


async def partitions_at_first(spec: PipelineSpec, sealer: Sealer) -> int | None:
    """Return the source's number of partitions at the first start; None if no readable journal states it."""
    try:
        sealed = await _first(spec)
        header = None if sealed is None else _header(spec, sealer, sealed)
    except StreamDPError:
        return None
    return None if header is None else len(header.partitions)


async def _first(spec: PipelineSpec) -> bytes | None:
    """Return the first sealed commit of the journal, None if it is empty."""
    async with closing(sealed_commits(spec)) as commits:
        return await anext(commits, None)


def _header(spec: PipelineSpec, sealer: Sealer, sealed: bytes) -> Header | None:
    return decode(sealer.open(0, sealed), f"commit 0 of the journal of {spec.name}").header


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
    are kept, so memory does not grow with the journal.
    """
    spec, sealer = await opened(pipeline, key_file, tell)
    kinds: dict[tuple[int, str, str | None], _Kind] = {}
    records = late = capped = 0
    async for commit, _ in unsealed(sealed_commits(spec, progress=progress), sealer, spec.name):
        records, late = records + commit.records, late + commit.late
        capped += commit.capped
        for letter in commit.dead_letters:
            kind = letter.partition, letter.reason, letter.field
            kinds.setdefault(kind, _Kind()).take(letter)
    listed = [
        {"partition": partition, "reason": reason, "field": field, **kinds[partition, reason, field].shown}
        for partition, reason, field in sorted(kinds, key=lambda kind: (kind[0], kind[1], kind[2] or ""))
    ]  # fmt: skip
    return {
        "pipeline": spec.name, "private": False,
        "places": "offsets" if isinstance(spec.source, KafkaSourceSpec) else "lines",
        "records": records, "late": late, "capped": capped,
        "dead": sum(kind.records for kind in kinds.values()), "dead_letters": listed,
    }  # fmt: skip


class _Kind:
    """The dead letters of one partition, reason and field, in all commits so far."""

    def __init__(self) -> None:
        self.records = 0
        self._ranges: deque[tuple[int, int]] = deque(maxlen=RANGES)

    def take(self, letter: DeadLetter) -> None:
        self.records += letter.records
        for first, last in letter.ranges:
            follows = self._ranges and self._ranges[-1][1] + 1 == first
            self._ranges.append((self._ranges.pop()[0] if follows else first, last))

    @property
    def shown(self) -> dict[str, Any]:
        """The number of records, the listed ranges, and the number of records outside of these ranges."""
        inside = sum(last - first + 1 for first, last in self._ranges)
        ranges = [list(ends) for ends in self._ranges]
        return {"records": self.records, "ranges": ranges, "elsewhere": self.records - inside}
