"""What a journal's ledger comes to, derived again from the pipeline file and the recorded definitions.

Rules: every charge is derived again and compared, and the total is derived on its own, from the mechanisms and the
ticks at which each was alive. This file changes nothing and shows nothing.
"""

from stream_dp.accounting.accounts import MAIN
from stream_dp.accounting.amounts import cost_units, text
from stream_dp.accounting.filters.pure import PURE
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.situations import Alive
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import differential_privacy
from stream_dp.errors import FailClosed, NotDerivable
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.derivations import whole
from stream_dp.pipeline.open_router import OpenRouter
from stream_dp.pipeline.questions import PipelineQuestions
from stream_dp.runtime.books import Books, charge_of
from stream_dp.runtime.commit import Created, Halted, Header
from stream_dp.runtime.roster import Roster
from stream_dp.runtime.statement import Statement


def header_of(built: Built, statement: Statement) -> Header:
    """The journal's header, if the journal is one of this pipeline and begins with the charges of its file.

    Raises:
        FailClosed: it is empty, belongs to another pipeline, or has other charges.
    """
    if statement.header is None:
        raise FailClosed(
            f"the journal of {built.spec.name} is empty: it never ran. If it has releases all the same, the journal "
            "was lost, and what was spent with it: restore it"
        )
    if statement.header.fingerprint != built.fingerprint:
        raise FailClosed(
            "the journal was written for another version of this pipeline file; use the one it was run with"
        )
    first = [charge for commit, charge in statement.charges if commit == 0]
    if first != [charge_of(entry) for entry in built.ledger.entries]:
        raise FailClosed("the journal's charges differ from what the pipeline file derives")
    return statement.header


def derived_again(built: Built, statement: Statement) -> tuple[Books, Derivation]:
    """The books after everything the journal records, and the total.

    Raises:
        FailClosed: a charge is not what it should be, or would be refused; or the two totals differ.
    """
    plan = built.plan(0)
    questions = PipelineQuestions(built.spec, OpenRouter(built.spec, plan.origin))
    books = Books(Roster(plan.series), built.accounts(), questions)
    for commit in statement.changing:
        books.replay(commit)
    return books, _total(built, books.accounts.main, _asked(questions, statement))


def _total(built: Built, main: Ledger, asked: list[tuple[Derivation, Alive]]) -> Derivation:
    """What everything guarantees, from the mechanisms and their ticks; compared with what the ledger says."""
    try:
        total = whole(built.spec.name, main.filter, [*built.frozen, *asked])
    except NotDerivable as refusal:
        raise FailClosed(
            f"the journal's ledger does not add up: {refusal}. Stop using this journal and report this"
        ) from None
    if main.filter.name == PURE:
        alive = differential_privacy(total.premises[0].guarantee.measure).epsilon
        if cost_units(alive) > main.peak.amount:
            raise FailClosed(
                f"the journal's ledger says {text(main.peak.amount)} at most, but the mechanisms alive at one tick add "
                f"up to {text(alive)}; stop using this journal and report this"
            )
    return total


def spans(statement: Statement) -> dict[int, tuple[int, int | None]]:
    """From the number of a question to its first tick, and the first one it does not see (None: it lives)."""
    changes = [change for commit in statement.changing for change in commit.changes]
    ends = {change.number: change.end for change in changes if isinstance(change, Halted)}
    return {c.number: (c.start, ends.get(c.number)) for c in changes if isinstance(c, Created)}


def _asked(questions: PipelineQuestions, statement: Statement) -> list[tuple[Derivation, Alive]]:
    """The questions that the main ledger paid for, with the ticks each has seen or will."""
    found, span = [], spans(statement)
    for commit in statement.changing:
        created = [change for change in commit.changes if isinstance(change, Created)]
        for one, charge in zip(created, commit.charges, strict=True):
            start, end = span[one.number]
            if charge.analyst == MAIN and (end is None or end > start):
                question = questions.ask(one.definition, one.start)
                found.append((question.derivation, Alive(start, None if end is None else end - 1)))
    return found
