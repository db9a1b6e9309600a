"""What a journal says when read on its own: charges, and exact totals for the operator.

Rules: totals are exact and private; only the operator's commands and sources declared public may show them. This
file runs nothing and changes nothing.
"""

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import numpy as np

from stream_dp.core.messages import IntArray
from stream_dp.engine.recovery.history import unsealed
from stream_dp.journal.answer_body import RefusedMessage, read_answer
from stream_dp.journal.commit import Charge, Commit, Header
from stream_dp.journal.keys import Sealer


@dataclass(slots=True, repr=False)
class JournalSummary:
    """The journal's header, charges (with the commit each came with) and changes, and its exact totals (private).

    `messages` counts the answers by analyst, requested action, and whether it was refused (public). `changing`
    holds the changes and charges of commits, without rows and releases.
    """

    header: Header | None = None
    charges: list[tuple[int, Charge]] = field(default_factory=list)
    changing: list[Commit] = field(default_factory=list)
    messages: Counter[tuple[str, str, bool]] = field(default_factory=Counter)
    ticks: int = 0
    releases: int = 0
    events: int = 0
    dead_letters: int = 0
    late: int = 0
    capped: int = 0
    rows: IntArray | None = None


async def read_summary(
    journal: AsyncIterator[bytes], sealer: Sealer, pipeline: str, through: int | None = None
) -> JournalSummary:
    """Read and check a whole journal; `ticks`, `releases` and `rows` count ticks up to `through` only.

    Raises:
        FailClosed: the journal is damaged, of another pipeline, or written with another key.
    """
    summary = JournalSummary()
    async for commit, _ in unsealed(journal, sealer, pipeline):
        summary.header = summary.header or commit.header
        summary.charges += [(commit.sequence, charge) for charge in commit.charges]
        if commit.changes:
            summary.changing.append(
                Commit(commit.sequence, b"", charges=commit.charges, changes=commit.changes)
            )
        for answer in commit.answers:
            refused = isinstance(read_answer(answer.body).refused, RefusedMessage)
            summary.messages[answer.analyst, answer.do, refused] += 1
        ticks = [t for t in commit.ticks if through is None or t <= through]
        summary.ticks += len(ticks)
        summary.releases += sum(through is None or r.tick <= through for r in commit.releases)
        summary.events += commit.records
        summary.dead_letters += sum(letter.records for letter in commit.dead_letters)
        summary.late += commit.late
        summary.capped += commit.capped
        if ticks:
            rows = np.array(commit.rows[: len(ticks)], dtype=np.int64).sum(axis=0)
            summary.rows = _added(summary.rows, rows)
    return summary


def _added(total: IntArray | None, rows: IntArray) -> IntArray:
    """Return the sum; rows are longer while live series count on columns of their own."""
    if total is None:
        return rows
    wide = np.zeros(max(len(total), len(rows)), dtype=np.int64)
    wide[: len(total)] += total
    wide[: len(rows)] += rows
    return wide
