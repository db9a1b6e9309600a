"""The ledger of a pipeline as `stream-dp ledger` shows it: what was charged, and what all of it guarantees.

Rules: everything shown is public; it is derived again from the pipeline file and compared. This file changes
nothing.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import UNSET

from stream_dp.accounting.amounts import exact, text
from stream_dp.accounting.filters.filter import Entry
from stream_dp.accounting.filters.linear import PURE
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.situations import Alive
from stream_dp.accounting.subledgers import MAIN
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import differential_privacy
from stream_dp.core.time import TickGrid
from stream_dp.core.wording import Progress, unseen
from stream_dp.engine.admission import Admission, charge_of
from stream_dp.engine.history import JournalSummary, read_summary, unsealed
from stream_dp.engine.proposals import recorded
from stream_dp.engine.series import Registry
from stream_dp.errors import FailClosed, NotDerivable
from stream_dp.journal.answer_body import RefusedMessage, read_answer
from stream_dp.journal.commit import Answer, Applied, Charge, Created, Halted, Header
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.operate.audit.journal_access import build_again, opened, sealed_commits
from stream_dp.operate.budget_view import budget_json, freed, freed_everywhere
from stream_dp.pipeline.budget import target
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.derivations import Part, heaviest_load, whole
from stream_dp.pipeline.promise import unit_words
from stream_dp.pipeline.report import condition_json, derivation_json
from stream_dp.pipeline.router import OpenRouter


def header_of(built: Built, summary: JournalSummary) -> Header:
    """Return the journal's header after checking that it fits this pipeline and its file, as it is now."""
    header = require_begun(built, summary)
    last = built.first_print if summary.applied is None else summary.applied.fingerprint
    if last != built.file_print:
        raise _another_file()
    return header


def require_begun(built: Built, summary: JournalSummary) -> Header:
    """Return the journal's header after checking that it fits this pipeline and its first charges."""
    if summary.header is None:
        raise FailClosed(
            f"the journal of {built.spec.name} is empty: this pipeline never ran. If there are "
            "releases of this pipeline, its journal was lost, and with it the record of the "
            "spent budget: restore the journal"
        )
    if summary.header.fingerprint != built.fingerprint:
        raise _another_file()
    if list(summary.first_charges) != [charge_of(entry) for entry in built.ledger.entries]:
        raise FailClosed("the journal's charges differ from what the pipeline file derives")
    return summary.header


def _another_file() -> FailClosed:
    return FailClosed(
        "the journal was written for another version of this pipeline file; use the one it was run with"
    )


def derived_again(
    built: Built, summary: JournalSummary
) -> tuple[Admission, Derivation, list[Part]]:
    """Return the admission after all recorded changes, the derivation of the total, and the parts of that total.

    Each charge is derived again and compared. The total is derived separately, from the mechanisms and the ticks at
    which each was alive. Raises FailClosed if a charge or the two totals differ. Where a checkpoint vouches for the
    first commits, the parts are what ran there and since, and no total of all.
    """
    config = built.run_config(0)
    planner = LiveSeriesPlanner(built.spec, OpenRouter(built.spec, config.origin, built.layout))
    admission = Admission(Registry(config.series, config.made), built.subledgers(), planner)
    if summary.series is not None:
        admission.load(summary.series)
    for commit in summary.changing:
        admission.replay(commit)
    parts = [*built.frozen, *_asked(planner, summary)]
    return admission, _total(built, admission.subledgers.main, parts), parts


def _total(built: Built, main: Ledger, parts: list[Part]) -> Derivation:
    """Return the guarantee of all parts, derived from mechanisms and ticks; compare it with the ledger.

    Loads are compared where all parts see every record: else both are bounds of a search, whose order may differ.
    """
    try:
        total = whole(built.spec.name, main.filter, parts, target(built.spec.privacy))
    except NotDerivable as refusal:
        raise FailClosed(
            f"the journal's ledger does not add up: {refusal}. Stop using this journal and report this"
        ) from None
    if main.filter.name == PURE and not any(part.seen.sides for part in parts):
        met = heaviest_load(main.filter, parts)
        if met > main.peak.amount:
            raise FailClosed(
                f"the journal's ledger says that at most {text(main.peak.amount)} is spent, but the mechanisms that "
                f"read one event add up to {text(met)}. Stop using this journal and report this"
            )
    return total


def _epsilon(part: Derivation) -> Fraction:
    return differential_privacy(part.guarantee.measure).epsilon


class LiveCharge(NamedTuple):
    """A created series, its charge, the number of its commit (None: a checkpoint has it), and its end (None: runs)."""

    created: Created
    charge: Charge
    commit: int | None
    end: int | None


def live_charges(summary: JournalSummary) -> list[LiveCharge]:
    """Return the live series that ran where the journal begins, or were created since, ordered by number."""
    changes = [change for commit in summary.changing for change in commit.changes]
    ends = {change.number: change.end for change in changes if isinstance(change, Halted)}
    running = () if summary.series is None else summary.series.running
    made: list[tuple[Created, Charge, int | None]]
    made = [(one.created, one.charge, None) for one in running]
    for commit in summary.changing:
        created = [change for change in commit.changes if isinstance(change, Created)]
        made += [
            (c, charge, commit.sequence) for c, charge in zip(created, commit.charges, strict=True)
        ]
    return [LiveCharge(*one, ends.get(one[0].number)) for one in made]


def _asked(planner: LiveSeriesPlanner, summary: JournalSummary) -> list[Part]:
    """Return the live series that the main ledger paid for, with the ticks during which each is alive."""
    parts = []
    for created, charge, _, end in live_charges(summary):
        if charge.analyst == MAIN and (end is None or end > created.start):
            proposal = recorded(planner, created)
            alive = Alive(created.start, None if end is None else end - 1)
            parts.append(Part(proposal.derivation, alive, proposal.box))
    return parts


async def message_trail(
    pipeline: Path, key_file: Path | None, tell: Callable[[str], None], progress: Progress = unseen,
    archive: Path | None = None,
) -> AsyncIterator[dict[str, Any]]:  # fmt: skip
    """Yield all answered messages in order: who asked, what kind, and when; the engine may run meanwhile. Those of
    commits that were pruned are in the `archive` only.

    Only public facts are shown: ids, analysts, names of series, ticks and kinds of refusals, but no parameters and no
    answers. The journal is checked while it is read, and never held whole in memory.
    """
    spec, sealer = await opened(pipeline, key_file, tell)
    here = await sealed_commits(spec, progress, archive)
    async for commit, _ in unsealed(here.commits, sealer, spec.name, here.begin):
        for answer in commit.answers:
            yield _answer_json(commit.sequence, answer)


def _answer_json(commit: int, answer: Answer) -> dict[str, Any]:
    """Return the public entry of an answer; `records` counts the records that were not valid messages."""
    body = read_answer(answer.body)
    refused = body.refused.kind if isinstance(body.refused, RefusedMessage) else None
    records = {} if answer.id is not None or body.places is UNSET else {"records": body.records}
    return {
        "commit": commit, "number": answer.number, "id": answer.id, "analyst": answer.analyst, "do": answer.do,
        "series": answer.series, "tick": body.tick, "end": body.end, "refused": refused, **records,
    }  # fmt: skip


async def read_ledger(
    pipeline: Path, key_file: Path | None, tell: Callable[[str], None], progress: Progress = unseen,
    archive: Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Read the pipeline's journal from end to end and check it; the engine may run meanwhile. What was pruned is in the
    `archive`; without it, the checkpoint at which the journal begins says what came before.
    """
    spec, sealer = await opened(pipeline, key_file, tell)
    here = await sealed_commits(spec, progress, archive)
    summary = await read_summary(here.commits, sealer, spec.name, begin=here.begin)
    progress("Deriving its charges again")
    return ledger_json(build_again(spec, summary.header, summary.applied), summary)


def ledger_json(built: Built, summary: JournalSummary) -> dict[str, Any]:
    """Return the journal's ledger, derived again and compared; raises as `header_of` and `derived_again`."""
    header = header_of(built, summary)
    admission, total, parts = derived_again(built, summary)
    grid = TickGrid(header.origin, built.spec.clock.step)
    proof = {**loss_json(built, parts), "derivation": derivation_json(total)}
    return {
        "pipeline": built.spec.name,
        "private": header.private,
        "accepted": header.accepted,
        "protects": unit_words(built.spec),
        "neighbors": str(built.spec.relation),
        **condition_json(built.spec),
        **budget_json(built.spec, admission.subledgers),
        **(proof if summary.series is None else {}),
        **_file(summary.applied, grid),
        "charges": _charges(summary, grid.start_text, _halts(summary, admission)),
        "messages": _messages(summary),
        "ticks": summary.totals.ticks,
        "releases": summary.totals.releases,
        "journal": "whole",
        "verified_from_commit": summary.begin,
    }


def _file(applied: Applied | None, grid: TickGrid) -> dict[str, Any]:
    """Return from which tick on the journal goes on with its present file, and what has ended of the first one."""
    if applied is None:
        return {}
    begins = grid.start_text(applied.at)
    return {"file": {"start": applied.at, "start_time": begins, "ended": [*applied.ended]}}


def loss_json(built: Built, parts: Sequence[Part]) -> dict[str, Any]:
    """Return the odometer of [WRRW] for the series that run at once, under `loss`; empty unless all parts are pure.

    An event whose replacement may lie in another tick is in two ticks, so the series alive at either tick count. A
    user's events lie in one public window, so the series alive anywhere in that window count; without windows, all
    series count. What one event meets bounds the loss with certainty, so the result never exceeds it.
    """
    if built.ledger.filter.name != PURE:
        return {}
    from stream_dp.verify.odometers import (  # a run tries changes, and shows no loss
        FAILS,
        loss_bound,
    )

    series = [
        (_epsilon(single), alive)
        for part, alive, _ in parts
        for single in (part.premises if part is built.block else (part,))
    ]
    reached = _reached(built, [alive for _, alive in series])
    likely = loss_bound([epsilon for epsilon, _ in series], reached)
    bound = min(likely, exact(heaviest_load(built.ledger.filter, parts)))
    claim = "the privacy loss of everything that was released exceeds this, at any time, with probability delta at most"
    return {"loss": {"bound": text(bound), "delta": text(FAILS), "claim": claim}}


def _reached(built: Built, times: Sequence[Alive]) -> Sequence[Alive] | None:
    """Return, for each span of life, the ticks at which an event, or all events of a user, can reach that series.

    Return None if one event may be in two ticks.
    """
    protection = built.spec.protection
    if (users := protection.users) is not None:
        return [Alive(*users.rounded(time.first, time.last)) for time in times]
    return times if protection.steps == 1 else None


def _halts(summary: JournalSummary, admission: Admission) -> dict[str, dict[str, Any]]:
    """Return, by name of a running live series, what its halt after the last tick would give back, and from when."""
    known: dict[tuple[str, Entry], dict[str, Any]] = {}
    halts = {}
    for live in admission.registry.live:
        if not live.created:
            continue
        halting = admission.halting(live.series.name, summary.totals.ticks)
        ledger, alike = halting.ledger, replace(halting.entry, name="", rule="")
        if (halting.analyst, alike) not in known:
            back = freed(ledger, alike)
            back["freed_everywhere"] = freed_everywhere(ledger, back["left"])
            known[halting.analyst, alike] = back
        halts[halting.name] = {"end": halting.end, **known[halting.analyst, alike]}
    return halts


def _charges(
    summary: JournalSummary, begins: Callable[[int], str], halts: Mapping[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return all charges but those of series that ended before the journal begins. `start` is the first tick of the
    paid series, `end` the first after it (None: runs).

    `halt` says of a live series that runs what its halt would give back, from its own `end` on.
    """
    charged: list[tuple[int | None, Charge, int, int | None, int]]
    charged = [(0, charge, 0, None, 1) for charge in summary.first_charges]
    charged += [
        (live.commit, live.charge, live.created.start, live.end, live.created.version)
        for live in live_charges(summary)
    ]
    return [
        {
            "commit": n, "name": c.name, "analyst": c.analyst, "epsilon": text(c.epsilon), "delta": text(c.delta),
            "measure": c.measure, "rule": c.rule, "start": start, "start_time": begins(start),
            "end": end, "end_time": None if end is None else begins(end),
            **({"version": version} if version > 1 else {}),
            **_halt(halts.get(c.name) if end is None else None, begins),
        }
        for n, c, start, end, version in charged
    ]  # fmt: skip


def _halt(halt: Mapping[str, Any] | None, begins: Callable[[int], str]) -> dict[str, Any]:
    return {} if halt is None else {"halt": {**halt, "end_time": begins(halt["end"])}}


def _messages(summary: JournalSummary) -> list[dict[str, Any]]:
    counts = summary.totals.messages
    return [
        {
            "analyst": analyst, "do": do,
            "answered": counts.get((analyst, do, False), 0), "refused": counts.get((analyst, do, True), 0),
        }
        for analyst, do in sorted({(analyst, do) for analyst, do, _ in counts})
    ]  # fmt: skip
