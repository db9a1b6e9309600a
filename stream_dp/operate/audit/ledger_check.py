"""The total of a journal's ledger, derived again from the pipeline file and the recorded definitions.

Rules: each charge is derived again and compared. The total is derived separately, from the mechanisms and the ticks
at which each was alive. This file changes nothing and shows nothing.
"""

from fractions import Fraction

from stream_dp.accounting.amounts import cost_units, text
from stream_dp.accounting.filters.basic import by_ticks
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.situations import Alive
from stream_dp.accounting.subledgers import MAIN
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import differential_privacy
from stream_dp.engine.admission import Admission, charge_of
from stream_dp.engine.recovery.journal_summary import JournalSummary
from stream_dp.engine.registry import Registry
from stream_dp.errors import FailClosed, NotDerivable
from stream_dp.journal.commit import Created, Halted, Header
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.pipeline.budget import target
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.derivations import whole
from stream_dp.pipeline.routing.open_router import OpenRouter


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
    if by_ticks(main.filter):
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
