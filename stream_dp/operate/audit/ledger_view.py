"""The ledger of a pipeline as `stream-dp ledger` shows it: what was charged, and what all of it guarantees.

Rules: everything shown is public; it is derived again from the pipeline file and compared. This file changes
nothing.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from msgspec import UNSET

from stream_dp.accounting.amounts import cost_units, text
from stream_dp.accounting.filters.linear import PURE
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.situations import Alive
from stream_dp.accounting.subledgers import MAIN
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import differential_privacy
from stream_dp.core.progress import Progress, unseen
from stream_dp.core.time import TickGrid
from stream_dp.engine.admission import Admission, charge_of
from stream_dp.engine.history import JournalSummary, read_summary, unsealed
from stream_dp.engine.series import Registry
from stream_dp.errors import FailClosed, NotDerivable
from stream_dp.journal.answer_body import RefusedMessage, read_answer
from stream_dp.journal.commit import Answer, Created, Halted, Header
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.operate.audit.journal_access import sealed_commits
from stream_dp.operate.budget_view import budget_json
from stream_dp.operate.keys import sealer_for
from stream_dp.operate.run.settings import source_there
from stream_dp.pipeline.budget import target
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.derivations import whole
from stream_dp.pipeline.promise import unit_words
from stream_dp.pipeline.report import condition_json, derivation_json
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.yaml import load
from stream_dp.verify.odometers import FAILS, loss_bound


def header_of(built: Built, summary: JournalSummary) -> Header:
    """Return the journal's header after checking that it fits this pipeline and its file's charges.

    Raises:
        FailClosed: the journal is empty, belongs to another pipeline, or begins with other charges.
    """
    if summary.header is None:
        raise FailClosed(
            f"the journal of {built.spec.name} is empty: it never ran. If it has releases all the same, the journal "
            "was lost, and what was spent with it: restore it"
        )
    if summary.header.fingerprint != built.fingerprint:
        raise FailClosed(
            "the journal was written for another version of this pipeline file; use the one it was run with"
        )
    first = [charge for commit, charge in summary.charges if commit == 0]
    if first != [charge_of(entry) for entry in built.ledger.entries]:
        raise FailClosed("the journal's charges differ from what the pipeline file derives")
    return summary.header


def derived_again(
    built: Built, summary: JournalSummary
) -> tuple[Admission, Derivation, list[tuple[Derivation, Alive]]]:
    """Return the admission after all recorded changes, the derivation of the total, and the parts of that total.

    Each charge is derived again and compared. The total is derived separately, from the mechanisms and the ticks at
    which each was alive.

    Raises:
        FailClosed: a charge differs from its derivation or would be refused, or the two totals differ.
    """
    config = built.run_config(0)
    planner = LiveSeriesPlanner(built.spec, OpenRouter(built.spec, config.origin, built.layout))
    admission = Admission(Registry(config.series, config.made), built.subledgers(), planner)
    for commit in summary.changing:
        admission.replay(commit)
    parts = [*built.frozen, *_asked(planner, summary)]
    return admission, _total(built, admission.subledgers.main, parts), parts


def _total(built: Built, main: Ledger, parts: list[tuple[Derivation, Alive]]) -> Derivation:
    """Return the guarantee of all parts, derived from mechanisms and ticks; compare it with the ledger."""
    try:
        total = whole(built.spec.name, main.filter, parts, target(built.spec.privacy))
    except NotDerivable as refusal:
        raise FailClosed(
            f"the journal's ledger does not add up: {refusal}. Stop using this journal and report this"
        ) from None
    if main.filter.name == PURE:
        alive = sum((_epsilon(part) for part in total.premises), Fraction(0))
        if cost_units(alive) > main.peak.amount:
            raise FailClosed(
                f"the journal's ledger says {text(main.peak.amount)} at most, but the mechanisms alive at one tick add "
                f"up to {text(alive)}; stop using this journal and report this"
            )
    return total


def _epsilon(part: Derivation) -> Fraction:
    return differential_privacy(part.guarantee.measure).epsilon


def spans(summary: JournalSummary) -> dict[int, tuple[int, int | None]]:
    """Return, by number of a live series, its first tick and the first tick after its end (None: it still runs)."""
    changes = [change for commit in summary.changing for change in commit.changes]
    ends = {change.number: change.end for change in changes if isinstance(change, Halted)}
    return {c.number: (c.start, ends.get(c.number)) for c in changes if isinstance(c, Created)}


def _asked(planner: LiveSeriesPlanner, summary: JournalSummary) -> list[tuple[Derivation, Alive]]:
    """Return the live series that the main ledger paid for, with the ticks during which each is alive."""
    found, span = [], spans(summary)
    for commit in summary.changing:
        created = [change for change in commit.changes if isinstance(change, Created)]
        for one, charge in zip(created, commit.charges, strict=True):
            start, end = span[one.number]
            if charge.analyst == MAIN and (end is None or end > start):
                proposal = planner.propose(one.definition, one.start)
                found.append((proposal.derivation, Alive(start, None if end is None else end - 1)))
    return found


async def message_trail(
    pipeline: Path, key_file: Path | None, tell: Callable[[str], None], progress: Progress = unseen
) -> AsyncIterator[dict[str, Any]]:
    """Yield all answered messages in order: who asked, what kind, and when; the engine may run meanwhile.

    Only public facts are shown: ids, analysts, names of series, ticks and kinds of refusals, but no parameters and no
    answers. The journal is checked while it is read, and never held whole in memory. If the brokers do not answer
    yet, report that to `tell` and wait. `progress` receives how much was read.

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


async def read_ledger(
    pipeline: Path, key_file: Path | None, tell: Callable[[str], None], progress: Progress = unseen
) -> dict[str, Any]:
    """Read the pipeline's journal from end to end and check it; the engine may run meanwhile.

    If the brokers do not answer yet, report that to `tell` and wait. `progress` receives how much was read.

    Raises:
        UsageError: there is no journal, or no key.
        FailClosed: the journal is damaged, belongs to another pipeline, or does not add up.
    """
    spec = load(pipeline)
    sealer = sealer_for(spec, key_file)
    await source_there(spec, tell)
    summary = await read_summary(sealed_commits(spec, progress=progress), sealer, spec.name)
    progress("Deriving its charges again")
    return ledger_json(build(spec), summary)


def ledger_json(built: Built, summary: JournalSummary) -> dict[str, Any]:
    """Return the journal's ledger, derived again and compared; raises as `header_of` and `derived_again`."""
    header = header_of(built, summary)
    admission, total, parts = derived_again(built, summary)
    return {
        "pipeline": built.spec.name,
        "private": header.private,
        "accepted": header.accepted,
        "protects": unit_words(built.spec),
        "neighbors": str(built.spec.relation),
        **condition_json(built.spec),
        **budget_json(built.spec, admission.subledgers),
        **loss_json(built, parts, total),
        "derivation": derivation_json(total),
        "charges": _charges(summary, TickGrid(header.origin, built.spec.clock.step).start_text),
        "messages": _messages(summary),
        "ticks": summary.ticks,
        "releases": summary.releases,
        "journal": "whole",
    }


def loss_json(
    built: Built, parts: Sequence[tuple[Derivation, Alive]], total: Derivation
) -> dict[str, Any]:
    """Return the odometer of [WRRW] for the series that run at once, under `loss`; empty unless all parts are pure.

    An event whose replacement may lie in another tick is in two ticks, so the series alive at either tick count. A
    user's events lie in one public window, so the series alive anywhere in that window count; without windows, all
    series count. The premises of `total`, which add up at one tick, bound the loss with certainty, so the result
    never exceeds their sum.
    """
    if built.ledger.filter.name != PURE:
        return {}
    each = [(p, alive) for part, alive in parts for p in _single(built, part)]
    epsilons = [differential_privacy(part.guarantee.measure).epsilon for part, _ in each]
    likely = loss_bound(epsilons, _touched(built, [alive for _, alive in each]))
    certain = sum(differential_privacy(p.guarantee.measure).epsilon for p in total.premises)
    bound = min(likely, certain)
    claim = "the privacy loss of everything that was released exceeds this, at any time, with probability delta at most"
    return {"loss": {"bound": text(bound), "delta": text(FAILS), "claim": claim}}


def _touched(built: Built, times: Sequence[Alive]) -> Sequence[Alive] | None:
    """Return, for each span of life, the ticks at which an event, or all events of a user, can reach that series.

    Return None if one event may be in two ticks.
    """
    protection = built.spec.protection
    if (users := protection.users) is not None:
        return [Alive(*users.rounded(time.first, time.last)) for time in times]
    return times if protection.steps == 1 else None


def _single(built: Built, part: Derivation) -> tuple[Derivation, ...]:
    """Return the series of the first block as separate parts, and any other part unchanged."""
    return part.premises if part is built.derivation else (part,)


def _charges(summary: JournalSummary, begins: Callable[[int], str]) -> list[dict[str, Any]]:
    """Return all charges; `start` is the first tick of the paid series, `end` the first after it (None: runs)."""
    later = list(spans(summary).values())
    ticks = [(0, None)] * (len(summary.charges) - len(later)) + later
    return [
        {
            "commit": n, "name": c.name, "analyst": c.analyst, "epsilon": text(c.epsilon), "delta": text(c.delta),
            "measure": c.measure, "rule": c.rule, "start": start, "start_time": begins(start),
            "end": end, "end_time": None if end is None else begins(end),
        }
        for (n, c), (start, end) in zip(summary.charges, ticks, strict=True)
    ]  # fmt: skip


def _messages(summary: JournalSummary) -> list[dict[str, Any]]:
    """Return the numbers of answered and of refused messages, by analyst and action."""
    kinds = sorted({(analyst, do) for analyst, do, _ in summary.messages})
    return [
        {
            "analyst": analyst,
            "do": do,
            "answered": summary.messages[analyst, do, False],
            "refused": summary.messages[analyst, do, True],
        }
        for analyst, do in kinds
    ]
