"""The messages answered in a pipeline's journal, one by one: who asked, what kind, and when.

Rules: everything shown is public: ids, analysts, names of series, ticks and kinds of refusals. Parameters and
answers are not shown. The journal is checked while it is read, and never held whole in memory. This file changes
nothing.
"""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from msgspec import UNSET

from stream_dp.core.progress import Progress, unseen
from stream_dp.engine.recovery.history import unsealed
from stream_dp.journal.answer_body import RefusedMessage, read_answer
from stream_dp.journal.commit import Answer
from stream_dp.operate.audit.journal_access import sealed_commits
from stream_dp.operate.operator_key import sealer_for
from stream_dp.operate.run.awaited_brokers import source_there
from stream_dp.pipeline.file.yaml import load


async def message_trail(
    pipeline: Path, key_file: Path | None, tell: Callable[[str], None], progress: Progress = unseen
) -> AsyncIterator[dict[str, Any]]:
    """Yield all answered messages in order; the engine may run meanwhile.

    If the brokers do not answer yet, report that to `tell` and wait. `progress` receives how much was read.

    Raises:
        UsageError: there is no journal, or no key.
        FailClosed: the journal is damaged or belongs to another pipeline.
    """
    spec = load(pipeline)
    sealer = sealer_for(spec, key_file)
    await source_there(spec, tell)
    async for commit, _ in unsealed(sealed_commits(spec, progress=progress), sealer, spec.name):
        for answer in commit.answers:
            yield _told(commit.sequence, answer)


def _told(commit: int, answer: Answer) -> dict[str, Any]:
    """Return the public entry of an answer; `records` counts the records that were not valid messages."""
    said = read_answer(answer.body)
    refused = said.refused.kind if isinstance(said.refused, RefusedMessage) else None
    records = {} if answer.id is not None or said.places is UNSET else {"records": said.records}
    return {
        "commit": commit, "number": answer.number, "id": answer.id, "analyst": answer.analyst, "do": answer.do,
        "series": answer.series, "tick": said.tick, "end": said.end, "refused": refused, **records,
    }  # fmt: skip
