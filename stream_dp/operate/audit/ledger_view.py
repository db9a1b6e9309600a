"""The ledger of a pipeline as `stream-dp ledger` shows it: what was charged, and what all of it guarantees.

Rules: everything shown is public; it is derived again from the pipeline file and compared. This file changes
nothing.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stream_dp.accounting.amounts import text
from stream_dp.accounting.filters.pure import PURE
from stream_dp.accounting.situations import Alive
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import differential_privacy
from stream_dp.core.progress import Progress, unseen
from stream_dp.core.tick_grid import TickGrid
from stream_dp.engine.recovery.journal_summary import JournalSummary, read_summary
from stream_dp.operate.audit.journal_access import sealed_commits
from stream_dp.operate.audit.ledger_check import derived_again, header_of, spans
from stream_dp.operate.budget_view import budget_json
from stream_dp.operate.operator_key import sealer_for
from stream_dp.operate.run.awaited_brokers import source_there
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.file.yaml import load
from stream_dp.pipeline.promise import unit_words
from stream_dp.pipeline.report import condition_json, derivation_json
from stream_dp.verify.odometers.concurrent_loss import FAILS, loss_bound


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
    """Return the content of the journal's ledger, derived again and compared.

    Raises:
        FailClosed: the journal belongs to another pipeline, or does not add up.
    """
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
