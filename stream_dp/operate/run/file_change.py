"""What a changed pipeline file would do to a ledger that goes on, in prices; and the change that a start applies.

Rules: everything here is public: parameters, charges, and what a filter makes of them. The change is tried on a copy of
the ledger, derived again from the journal; nothing is written.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from stream_dp.accounting.amounts import text
from stream_dp.accounting.subledgers import MAIN
from stream_dp.core.progress import Progress, unseen
from stream_dp.engine.admission import Admission
from stream_dp.engine.history import JournalSummary, read_summary
from stream_dp.engine.run_config import FileChange
from stream_dp.errors import BudgetRefused, UsageError
from stream_dp.journal.commit import Applied
from stream_dp.journal.keys import Sealer
from stream_dp.operate.audit.journal_access import opened, sealed_commits
from stream_dp.operate.audit.ledger_view import derived_again, require_begun
from stream_dp.operate.budget_view import budget_json, fits
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.file_changes import Earlier, FileChanges, compared, earlier, text_of
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import canonical_series, load

RUNNING = "running"
_PLACE = re.compile(r"series, line \d+, column \d+: ")  # in a definition that nobody wrote


class Changing(NamedTuple):
    """A changed file beside what it would change: `shown` in words and prices, and the `change` (None: nothing).

    `built` is the pipeline as its journal goes on with the file. `why` is empty if the change can be applied.
    """

    built: Built
    shown: Mapping[str, Any]
    change: FileChange | None
    why: UsageError | BudgetRefused | None = None

    def require(self) -> None:
        if self.why is not None:
            raise self.why


async def against(
    pipeline: Path, old: str, key_file: Path | None, tell: Callable[[str], None], progress: Progress = unseen
) -> Changing:  # fmt: skip
    """Return what the pipeline file changes of its journal as it is now (`old` is `RUNNING`), or of the file `old`."""
    if old != RUNNING:
        return _tried(load(pipeline), _Known(Earlier.of(load(old))), old)
    spec, sealer = await opened(pipeline, key_file, tell)
    return await against_journal(spec, sealer, None, progress)


async def against_journal(
    spec: PipelineSpec, sealer: Sealer, was: Path | None, progress: Progress = unseen
) -> Changing:
    """Return what a pipeline file changes of its journal; `was` is the file of a journal that keeps none."""
    here = await sealed_commits(spec, progress)
    summary = await read_summary(here.commits, sealer, spec.name, begin=here.begin)
    progress("Deriving what its change would cost")
    return against_summary(spec, summary, None if was is None else load(was))


def against_summary(
    spec: PipelineSpec, summary: JournalSummary, was: PipelineSpec | None = None
) -> Changing:
    """Return what a pipeline file changes of a journal, as read; raise `UsageError` if it does not say its file."""
    header, applied = summary.header, summary.applied
    if header is None:
        raise UsageError(f"{spec.name} has not begun: its first start takes this file as it is")
    now = header.file if applied is None else applied.file
    if was is not None:
        before = Earlier.of(was)
    elif now:
        before = earlier(now, spec)
    else:
        raise UsageError(
            f"the journal of {spec.name} was begun by a version that did not keep its file: name the file that it runs "
            "with, too: `plan FILE --against OLD.yaml`, `run FILE --apply --was OLD.yaml`"
        )
    if applied is not None and fingerprint(before.spec) != applied.fingerprint:
        raise UsageError(f"this is not the file with which the journal of {spec.name} goes on")
    first = before if applied is None else earlier(applied.first, spec)
    return _tried(spec, _Known(before, first, applied, summary), RUNNING)


class _Known(NamedTuple):
    """The file of `before`, the first one (None: the same), the last change, and the journal, as read."""

    before: Earlier
    first: Earlier | None = None
    applied: Applied | None = None
    summary: JournalSummary = JournalSummary()


def _tried(spec: PipelineSpec, known: _Known, old: str) -> Changing:
    first = known.before if known.first is None else known.first
    changes = compared(known.before, spec)
    shown: dict[str, Any] = {
        "pipeline": spec.name, "against": old, "pending": not changes.equal, "added": [], "ended": [],
        "fields": [*changes.fields], "words": [*changes.worded], "refused": [*changes.refused],
    }  # fmt: skip
    if changes.refused:
        built = build(spec)
        return Changing(built, shown, None, _refused(changes.refused))
    built = build(spec, first.spec)
    if known.summary.past is not None:
        require_begun(built, known.summary)
    admission, _, _ = derived_again(built, known.summary)
    return _priced(built, known, changes, admission, shown)


def _priced(
    built: Built, known: _Known, changes: FileChanges, admission: Admission, shown: dict[str, Any]
) -> Changing:
    spec, first = built.file or built.spec, built.first or built.spec
    at, ledgers = known.summary.totals.ticks, admission.subledgers
    start = at + built.run_config(0).lead
    before = budget_json(spec, ledgers)
    own = {series.name for series in first.series}
    runs = {live.series.name for live in admission.registry.live}
    halted = tuple(s.name for s in changes.ended if s.name not in own and s.name in runs)
    for series in changes.ended:
        left = fits(ledgers.main)
        if series.name in halted:
            admission.halt(series.name, at)
        frees = text(max(0, fits(ledgers.main) - left))
        shown["ended"].append({"name": series.name, "end": at, "gives_back": frees})
    named = {series.name for series in spec.series}
    applied = Applied(
        at, fingerprint(spec), text_of(spec),
        text_of(first) if known.applied is None else known.applied.first,
        tuple(series.name for series in first.series if series.name not in named),
    )  # fmt: skip
    wrong = [] if applied.file and applied.first else ["the file cannot be kept in a journal"]
    short: BudgetRefused | None = None
    for series in changes.added:
        definition = canonical_series(series)
        try:
            proposal = admission.propose(definition, start)
            row = {"name": series.name, "epsilon": text(series.price), "start": start}
            shown["added"].append(row | {"noise": proposal.noise})
            admission.create(proposal, MAIN, start)
        except BudgetRefused as refusal:
            short = BudgetRefused(f"series {series.name}: {refusal}")
            break
        except UsageError as refusal:
            wrong.append(f"series {series.name}: {_PLACE.sub('', str(refusal))}")
    after = budget_json(spec, ledgers)
    shown |= {"refused": wrong, "tick": start, "before": _amounts(before), "after": _amounts(after)}
    change = FileChange(
        fingerprint(known.before.spec), applied, halted,
        tuple(canonical_series(series) for series in changes.added),
    )  # fmt: skip
    why = _refused(wrong) if wrong else short
    return Changing(built, shown, None if changes.equal else change, why)


def _amounts(budget: Mapping[str, Any]) -> dict[str, Any]:
    return {key: budget[key] for key in ("budget", "spent", "unit", "left")}


def _refused(reasons: Any) -> UsageError:
    return UsageError("this cannot be applied to a ledger that goes on:\n  " + "\n  ".join(reasons))
