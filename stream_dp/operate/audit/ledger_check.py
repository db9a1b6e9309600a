"""A journal's ledger, derived again from the pipeline file and compared with what was charged."""

from typing import NamedTuple

from stream_dp.accounting.amounts import text
from stream_dp.accounting.filters.linear import PURE
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.situations import Alive
from stream_dp.accounting.subledgers import MAIN
from stream_dp.core.derivation import Derivation
from stream_dp.engine.admission import Admission, charge_of
from stream_dp.engine.history import JournalSummary
from stream_dp.engine.proposals import recorded
from stream_dp.engine.series import Registry
from stream_dp.errors import FailClosed, NotDerivable
from stream_dp.journal.commit import Charge, Created, Halted, Header
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.pipeline.budget import target
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.derivations import Part, heaviest_load, whole
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
