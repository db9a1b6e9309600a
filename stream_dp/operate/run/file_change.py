"""What a changed pipeline file would do to a ledger that goes on, in prices; and the change that a start applies.

Rules: everything here is public: parameters, charges, and what a filter makes of them. The change is tried on a copy of
the ledger, derived again from the journal; nothing is written.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stream_dp.accounting.amounts import text
from stream_dp.accounting.subledgers import MAIN
from stream_dp.core.wording import Progress, unseen
from stream_dp.engine.admission import Admission
from stream_dp.engine.history import JournalSummary, read_summary
from stream_dp.engine.run_config import FileChange
from stream_dp.engine.series import Registry
from stream_dp.errors import BudgetRefused, FailClosed, UsageError
from stream_dp.journal.commit import Applied
from stream_dp.journal.keys import Sealer
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.operate.audit.journal_access import built_of, mechanisms_in, opened, sealed_commits
from stream_dp.operate.audit.ledger_check import derived_again, require_begun
from stream_dp.operate.budget_view import budget_json, fits
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.fingerprints import (
    FileChanges,
    Said,
    compared,
    earlier,
    fingerprint,
    heard,
    text_of,
)
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import canonical_series, load

RUNNING = "running"
_STAYS = (
    "series: one of those that run must stay as it is, because each tick must have a release. First apply a file that "
    "adds another series; when the other series has a release, apply this file with it"
)
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
        return _tried(load(pipeline), _Known(Said.of(load(old))), JournalSummary(), old)
    spec, sealer = await opened(pipeline, key_file, tell)
    return await against_journal(spec, sealer, None, progress)


async def going_on(
    spec: PipelineSpec, sealer: Sealer, was: Path | None,
    applies: Callable[[Mapping[str, Any]], None] | None, progress: Progress = unseen,
) -> tuple[Built, FileChange | None]:  # fmt: skip
    """Return the pipeline of a file as its journal goes on, and what it is to change there if it is applied.

    `applies` receives what that is; None: it is not applied. Raises `FailClosed` where an earlier file was applied.
    """
    going = await built_of(spec, sealer, sure=applies is not None)
    if applies is None or going.same:
        going.require()
        return going.built, None
    changing = await against_journal(spec, sealer, was, progress)
    applies(changing.shown)
    changing.require()
    return changing.built, changing.change


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
        raise UsageError(f"{spec.name} has never run, so its first start uses this file as it is")
    now = header.file if applied is None else applied.file
    if was is not None:
        before = Said.of(was)
    elif now:
        before = earlier(now, spec)
    else:
        raise UsageError(
            f"a version that did not store the pipeline file began the journal of {spec.name}. "
            "Name the file of the last run, too: `plan FILE --against OLD.yaml`, `run FILE "
            "--apply --was OLD.yaml`"
        )
    if applied is not None and fingerprint(before.spec) != applied.fingerprint:
        raise UsageError(f"this is not the pipeline file of the last run of {spec.name}")
    first = before if applied is None else earlier(applied.first, spec)
    known = _Known(before, first, applied, summary.totals.ticks)
    return _tried(spec, known, summary, RUNNING)


class _Known(NamedTuple):
    """What the file of `before` said, and the first one (None: the same); the last change, and the next tick `at`."""

    before: Said
    first: Said | None = None
    applied: Applied | None = None
    at: int = 0

    def change(
        self, now: PipelineSpec, changes: FileChanges, halted: tuple[str, ...], versions: Mapping[str, int]
    ) -> FileChange:  # fmt: skip
        """Return what a journal records of the change to a file; `versions` are those of the series that change."""
        first = (self.first or self.before).spec
        ended = {*versions, *(() if self.applied is None else self.applied.ended)}
        stays = {series.name for series in now.series} - ended
        applied = Applied(
            self.at, fingerprint(now), text_of(now),
            text_of(first) if self.applied is None else self.applied.first,
            tuple(series.name for series in first.series if series.name not in stays),
        )  # fmt: skip
        created = tuple(canonical_series(series) for series in changes.added)
        changed = tuple(
            (canonical_series(own), versions.get(own.name, 1)) for own in changes.changed
        )
        return FileChange(fingerprint(self.before.spec), applied, halted, created, changed)


def _compared(known: _Known, now: Said, old: str) -> tuple[FileChanges, dict[str, Any]]:
    """Return what changes, and it in words, without prices."""
    changes = compared(known.before, now)
    return changes, {
        "pipeline": now.spec.name, "against": old, "pending": not changes.equal, "added": [], "ended": [],
        "changed": [],
        "fields": [*changes.fields], "words": [*changes.worded], "refused": [*changes.refused],
        "schemas": [{"id": int(number), "start": known.at} for number in changes.schemas],
    }  # fmt: skip


def _tried(spec: PipelineSpec, known: _Known, summary: JournalSummary, old: str) -> Changing:
    changes, shown = _compared(known, Said.of(spec), old)
    if changes.refused:
        return Changing(build(spec), shown, None, _refused(changes.refused))
    first = (known.first or known.before).spec
    built = build(spec, first, mechanisms_in(summary.header))
    if summary.past is not None:
        require_begun(built, summary)
    admission, _, _ = derived_again(built, summary)
    why, change = _priced(spec, built, known, changes, admission, shown)
    return Changing(built, shown, change, why)


def _priced(
    spec: PipelineSpec, built: Built, known: _Known, changes: FileChanges, admission: Admission, shown: dict[str, Any]
) -> tuple[UsageError | BudgetRefused | None, FileChange | None]:  # fmt: skip
    """Make the change on an admission that is thrown away, add its prices to what is shown, and return why it does not
    fit, and it (None: there is none).
    """
    ledgers, at, registry = admission.subledgers, known.at, admission.registry
    start, before = at + built.run_config(0).lead, budget_json(spec, ledgers)
    runs, stays = {live.series.name: live for live in registry.live}, admission.stays(at)
    changed = [own.name for own in changes.changed]
    gone = [*(own.name for own in changes.ended), *changed]
    halted = tuple(name for name in gone if name in runs and runs[name].created)
    backs = dict[str, str]()
    for name in gone:
        left = fits(ledgers.main)
        if name in halted:
            admission.halt(name, at, by_file=True)
        backs[name] = text(max(0, fits(ledgers.main) - left))
    shown["ended"] += [
        {"name": own.name, "end": at, "gives_back": backs[own.name]} for own in changes.ended
    ]
    named = {series.name for series in spec.series}
    begins = {series.name for series in (*changes.added, *changes.changed)}
    shown["halted"] = sorted(named - begins - {series.name for series in registry.releasing})
    versions = {name: runs[name].series.version + 1 for name in changed if name in runs}
    change = known.change(spec, changes, halted, versions)
    kept = change.applied.file and change.applied.first
    wrong = [] if kept else ["the file cannot be kept in a journal"]
    wrong += [] if stays & named - {*changed} else [_STAYS]
    admission.apply(change.applied)
    short: BudgetRefused | None = None
    for series in (*changes.added, *changes.changed):
        name, version = series.name, versions.get(series.name, 1)
        try:
            proposal = admission.propose(canonical_series(series), start, version)
            row = {"name": name, "epsilon": text(series.price), "start": start}
            row |= {"noise": proposal.noise}
            if version > 1:
                row |= {"version": version, "end": at, "gives_back": backs[name]}
            shown["added" if version == 1 else "changed"].append(row)
            admission.create(proposal, MAIN, start, version)
        except BudgetRefused as refusal:
            short = BudgetRefused(f"series {name}: {refusal}")
            break
        except UsageError as refusal:
            wrong.append(f"series {name}: {_PLACE.sub('', str(refusal))}")
    after = budget_json(spec, ledgers)
    shown |= {"refused": wrong, "before": _amounts(before), "after": _amounts(after)}
    return _refused(wrong) if wrong else short, None if changes.equal else change


def changed_now(
    built: Built, admission: Admission, text: bytes, at: int
) -> tuple[FileChange | None, Mapping[str, Any]]:
    """Return the change to a file, of which `told` wrote this text, of a pipeline that runs, and it in words and
    prices; `at` is the next tick. Changes nothing; raises `UsageError` or `BudgetRefused` if it cannot be applied.
    """
    running, applied = built.file or built.spec, admission.applied
    first = Said.of(built.first or built.spec)
    try:
        now = heard(text, running)
    except FailClosed:
        raise UsageError(
            "the field `file` does not have the form that this version of `stream-dp apply` sends"
        ) from None
    before = Said.of(running) if applied is None else earlier(applied.file, running)
    known = _Known(before, first, applied, at)
    changes, shown = _compared(known, now, RUNNING)
    refused = [*changes.refused]
    for key, what, names in (
        ("schema", "field", changes.fields),
        ("source.values", "schema", changes.schemas),
    ):
        if names:
            refused.append(
                f"{key} ({', '.join(names)}): a {what} comes with a start: `run FILE --apply`"
            )
    if refused:
        raise _refused(refused)
    config = built.run_config(0)
    planner = LiveSeriesPlanner(built.spec, OpenRouter(built.spec, config.origin, built.layout))
    trial = Admission(Registry(config.series, config.made), built.subledgers(), planner)
    trial.load(admission.save())
    why, change = _priced(now.spec, built, known, changes, trial, shown)
    if why is not None:
        raise why
    return change, shown


def _amounts(budget: Mapping[str, Any]) -> dict[str, Any]:
    return {key: budget[key] for key in ("budget", "spent", "unit", "left")}


def _refused(reasons: Sequence[str]) -> UsageError:
    return UsageError("this cannot be applied to a ledger that goes on:\n  " + "\n  ".join(reasons))
