"""The unusable records in a pipeline's journal, for the operator alone.

Rules: counts and places are exact and NOT PRIVATE; they go to the operator's own terminal. The journal is read
commit by commit, and only the newest ranges of each kind are kept, so memory does not grow with the journal. This
file changes nothing.
"""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stream_dp.core.progress import Progress, unseen
from stream_dp.engine.recovery.history import unsealed
from stream_dp.journal.commit import DeadLetter
from stream_dp.operate.audit.journal_access import sealed_commits
from stream_dp.operate.operator_key import sealer_for
from stream_dp.operate.run.awaited_brokers import source_there
from stream_dp.pipeline.file.yaml import load
from stream_dp.records.endpoints import KafkaSourceSpec

RANGES = 100
"""The newest this many ranges of each partition, reason and field are listed."""


async def read_dead_letters(
    pipeline: Path, key_file: Path | None, tell: Callable[[str], None], progress: Progress = unseen
) -> dict[str, Any]:
    """Read the pipeline's journal from end to end and add up its dead letters; the engine may run meanwhile.

    If the brokers do not answer yet, report that to `tell` and wait. `progress` receives how much was read.

    Raises:
        UsageError: there is no journal, or no key.
        FailClosed: the journal is damaged, or belongs to another pipeline.
    """
    spec = load(pipeline)
    sealer = sealer_for(spec, key_file)
    await source_there(spec, tell)
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
        "pipeline": spec.name,
        "private": False,
        "places": "offsets" if isinstance(spec.source, KafkaSourceSpec) else "lines",
        "records": records,
        "late": late,
        "capped": capped,
        "dead": sum(kind.records for kind in kinds.values()),
        "dead_letters": listed,
    }


class _Kind:
    """The dead letters of one partition, reason and field, in all commits so far."""

    def __init__(self) -> None:
        self.records = 0
        self._ranges: deque[tuple[int, int]] = deque(maxlen=RANGES)

    def take(self, letter: DeadLetter) -> None:
        """Add the records of one dead letter."""
        self.records += letter.records
        for first, last in letter.ranges:
            follows = self._ranges and self._ranges[-1][1] + 1 == first
            self._ranges.append((self._ranges.pop()[0] if follows else first, last))

    @property
    def shown(self) -> dict[str, Any]:
        """The number of records, the listed ranges, and the number of records outside of these ranges."""
        inside = sum(last - first + 1 for first, last in self._ranges)
        ranges = [list(each) for each in self._ranges]
        return {"records": self.records, "ranges": ranges, "elsewhere": self.records - inside}
