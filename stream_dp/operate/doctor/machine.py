"""Checks of this machine: the operator's key, the journal's owner, folders, space, the high-water mark."""

import os
import shutil
from pathlib import Path

from stream_dp.broker.places import state_dir
from stream_dp.engine.recovery.journal_summary import read_summary
from stream_dp.errors import FailClosed, StreamDPError, UsageError
from stream_dp.files.highwater import HighWater
from stream_dp.journal.keys import Sealer
from stream_dp.operate.audit.journal_access import partitions_at_first, require_own, sealed_commits
from stream_dp.operate.doctor.observation import (
    Observation,
    closed,
    denied,
    fine,
    unchecked,
    warning,
)
from stream_dp.operate.observe.operator_figures import FEWEST
from stream_dp.operate.operator_key import sealer_for
from stream_dp.operate.run.wiring import open_ports
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.pipeline.routing.user_homes import grown
from stream_dp.records.endpoints import ReleasesFile, SqliteJournalSpec

_LITTLE, _FULL = 1 << 30, 100 << 20


def check_key(spec: PipelineSpec, key_file: Path | None) -> tuple[Sealer | None, list[Observation]]:
    """Return the sealer and a finding on the operator's key; never make a key."""
    about = "operator's key"
    if key_file is None and not os.environ.get("STREAM_DP_KEY_FILE") and spec.public_data:
        return None, [fine(about, "is made at the first run, for public data")]
    try:
        sealer = sealer_for(spec, key_file)
    except UsageError as error:
        return None, [closed(about, "cannot be used", str(error))]
    return sealer, [fine(about, "is there, and no one else may read it")]


async def check_owner(built: Built, sealer: Sealer) -> list[Observation]:
    """Return a finding on whether this file and key began the journal, if there is one."""
    try:
        await require_own(built, sealer, private=True)
    except FailClosed as error:
        return [closed("journal", "does not belong to this file and key", str(error))]
    return [fine("journal", "does not exist yet, or belongs to this file and key")]


async def check_records(spec: PipelineSpec, sealer: Sealer, pipeline: Path) -> list[Observation]:
    """Return a finding on whether more than the declared share of the journal's records is dead or late.

    The finding names no count. Return nothing if there is no journal.
    """
    about = "records"
    try:
        met = await read_summary(sealed_commits(spec), sealer, spec.name)
    except UsageError:
        return []
    except StreamDPError as error:
        return [unchecked(about, str(error), "mend what is named above")]
    every = met.events + met.dead_letters
    if every < FEWEST or met.dead_letters + met.late <= spec.source.warn_dead * every:
        return [fine(about, "could be used, but for a share that `warn_dead` allows")]
    kinds = {"dead letters": met.dead_letters, "late": met.late}
    named = " or ".join(kind for kind, number in kinds.items() if number)
    says = f"more of them than `warn_dead` allows are {named}"
    mend = f"`stream-dp dead-letters {pipeline}` lists them"
    if met.late:
        mend += "; late ones: set the clocks of brokers and this machine by NTP"
    return [warning(about, says, mend)]


async def check_partitions(spec: PipelineSpec, sealer: Sealer, now: int) -> list[Observation]:
    """Return a finding on whether the source has as many partitions as at the first start.

    Return nothing unless users are protected and the first start has happened.
    """
    about = "partitions of the source"
    first = await partitions_at_first(spec, sealer) if spec.privacy.unit == "user" else None
    if first is None:
        return []
    if now == first:
        return [fine(about, "are those of the first start")]
    return [warning(about, grown(first, now), "")]


def check_folders(spec: PipelineSpec) -> list[Observation]:
    """Return findings on the folders into which an engine writes."""
    folders = {state_dir() / "high-water"}
    if isinstance(spec.journal, SqliteJournalSpec):
        folders.add(spec.journal.path.parent)
    if isinstance(spec.releases, ReleasesFile):
        folders.add(spec.releases.path.parent)
    return [_folder(folder.absolute()) for folder in sorted(folders)]


def has_journal(spec: PipelineSpec) -> bool:
    """Return whether the journal is a file that exists."""
    return isinstance(spec.journal, SqliteJournalSpec) and spec.journal.path.exists()


def check_mark(spec: PipelineSpec, sealer: Sealer, *, begun: bool) -> list[Observation]:
    """Return a finding on the high-water mark of a journal that has begun."""
    about, journal = "high-water mark", open_ports(spec, sealer).journal
    if not begun or not isinstance(journal, HighWater):
        return []
    if journal.path.exists():
        return [fine(about, "is there, so a journal that vanishes would be noticed here")]
    says = "is missing on this machine: a lost or older journal would not be noticed here"
    return [warning(about, says, f"copy {journal.path} from where the engine ran, or run it here")]


def _folder(folder: Path) -> Observation:
    about = f"folder {folder}"
    there = next(one for one in (folder, *folder.parents) if one.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        return denied(about, "may not be written", f"make {there} writable for this user")
    free = shutil.disk_usage(there).free
    if free < _FULL:
        return denied(about, "has less than 100 MiB free", "free some space there")
    if free < _LITTLE:
        return warning(about, "has less than 1 GiB free", "free some space there")
    return fine(about, "may be written, and has space")
