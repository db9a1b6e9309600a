"""The ledger of a pipeline as `stream-dp ledger` shows it: what was charged, and what all of it guarantees.

Rules: everything shown is public; it is derived again from the pipeline file and compared. This file changes
nothing.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from msgspec import UNSET

from stream_dp.accounting.amounts import exact, text
from stream_dp.accounting.filters.filter import Entry
from stream_dp.accounting.filters.linear import PURE
from stream_dp.accounting.situations import Alive
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import differential_privacy
from stream_dp.core.time import TickGrid
from stream_dp.core.wording import Progress, unseen
from stream_dp.engine.admission import Admission
from stream_dp.engine.history import JournalSummary, read_summary, unsealed
from stream_dp.journal.answer_body import RefusedMessage, read_answer
from stream_dp.journal.commit import Answer, Applied, Charge
from stream_dp.operate.audit.journal_access import build_again, opened, sealed_commits
from stream_dp.operate.audit.ledger_check import derived_again, header_of, live_charges
from stream_dp.operate.budget_view import budget_json, freed, freed_everywhere
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.derivations import Part, heaviest_load
from stream_dp.pipeline.promise import unit_words
from stream_dp.pipeline.report import condition_json, derivation_json
from stream_dp.verify.odometers import FAILS, loss_bound


def _epsilon(part: Derivation) -> Fraction:
    return differential_privacy(part.guarantee.measure).epsilon


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
