"""The books of a run: which series live, what was charged for them, and every change of both.

Rules: charge first, then open; a refusal leaves everything as it was. What a journal records is done again here, and
derived again: a recorded charge that is not what its definition costs, or that its ledger would refuse, ends the
start. This file knows no state, noise or actor.
"""

from dataclasses import dataclass, field

from stream_dp.accounting.accounts import MAIN, Accounts
from stream_dp.accounting.entry import Entry
from stream_dp.accounting.ledger import Preview
from stream_dp.errors import BudgetRefused, FailClosed, UnknownMechanism, UsageError
from stream_dp.runtime.commit import Charge, Commit, Created, Halted
from stream_dp.runtime.questions import Question, Questions
from stream_dp.runtime.roster import Roster, Seat


@dataclass(frozen=True, slots=True)
class Ended:
    """A series that was halted: it saw the ticks from `start` up to, and not including, `end`."""

    name: str
    start: int
    end: int


@dataclass(slots=True)
class Books:
    """`names` are all names ever used, for a name means one series for ever; `ended` lists the halted ones."""

    roster: Roster
    accounts: Accounts
    questions: Questions | None = None
    names: set[str] = field(default_factory=set)
    ended: list[Ended] = field(default_factory=list)

    def __post_init__(self) -> None:
        """The series of the first start have their names."""
        self.names |= {seat.series.name for seat in self.roster.live}

    def preview(self, definition: bytes, analyst: str, start: int) -> tuple[Question, Preview]:
        """What creating it for ticks from `start` on would do; changes nothing.

        Raises:
            UsageError, NotDerivable, BudgetRefused: see `create`.
        """
        question = self._asked(definition, start)
        entry = self.accounts.price(question.derivation, analyst)
        return question, self.accounts.preview(entry, analyst)

    def create(self, definition: bytes, analyst: str, start: int) -> tuple[Created, Charge, Seat]:
        """Charge for a series that sees ticks from `start` on, and open it.

        Raises:
            UsageError: no series of this pipeline, a name that was used before, or no such analyst.
            NotDerivable: no rule covers it.
            BudgetRefused: it does not fit. In all cases nothing has changed.
        """
        question = self._asked(definition, start)
        entry = self.accounts.price(question.derivation, analyst)
        self.accounts.charge(entry, analyst, start)
        column = self._open().place(question.definition)
        created = Created(self.roster.next_number, question.definition, start, column)
        return created, charge_of(entry, analyst), self._admit(question.name, created)

    def halt(self, name: str, end: int) -> Halted:
        """End a series that was created; it sees no tick from `end` on.

        Raises:
            UnknownMechanism: none of this name was created and runs; nothing has changed.
        """
        number = self._number(name)
        self.accounts.halt(name, end)
        return self._end(number, end)

    def fresh_columns(self, seat: Seat) -> slice:
        """The columns of a series, if no other live one counts on them; none else."""
        mine = seat.series.rows
        others = (other.series.rows for other in self.roster.live if other is not seat)
        shared = any(rows.start < mine.stop and mine.start < rows.stop for rows in others)
        return slice(0, 0) if shared else mine

    def replay(self, commit: Commit) -> list[Seat]:
        """Do what the commit recorded, and derive it again; return what it created.

        Raises:
            FailClosed: the journal's ledger does not add up.
        """
        charges, created = list(commit.charges), []
        try:
            for change in commit.changes:
                if isinstance(change, Halted):
                    self._halt_again(change)
                else:
                    created.append(self._create_again(change, charges.pop(0) if charges else None))
        except (UsageError, BudgetRefused) as error:
            raise self._broken(commit, str(error)) from None
        if charges:
            raise self._broken(commit, "it charges for what it does not create")
        return created

    def _create_again(self, created: Created, charge: Charge | None) -> Seat:
        question = self._asked(created.definition, created.start)
        analyst = MAIN if charge is None else charge.analyst
        entry = self.accounts.price(question.derivation, analyst)
        if charge_of(entry, analyst) != charge:
            raise UsageError(f"the charge for {question.name} is not what it costs")
        self.accounts.charge(entry, analyst, created.start)
        return self._admit(question.name, created)

    def _halt_again(self, halted: Halted) -> None:
        names = [s.series.name for s in self.roster.live if s.number == halted.number and s.created]
        if not names:
            raise UnknownMechanism(f"series number {halted.number} is halted, which does not run")
        self.accounts.halt(names[0], halted.end)
        self._end(halted.number, halted.end)

    def _asked(self, definition: bytes, start: int) -> Question:
        question = self._open().ask(definition, start)
        if question.name in self.names:
            raise UsageError("name: a series of this name is or was there; choose another name")
        return question

    def _admit(self, name: str, created: Created) -> Seat:
        series = self._open().open(created)
        self.names.add(name)
        return self.roster.add(created.number, series, created.start)

    def _end(self, number: int, end: int) -> Halted:
        seat = self.roster.remove(number)
        self._open().close(number)
        self.ended.append(Ended(seat.series.name, seat.start, end))
        return Halted(number, end)

    def _number(self, name: str) -> int:
        for seat in self.roster.live:
            if seat.series.name == name and seat.created:
                return seat.number
        if any(seat.series.name == name for seat in self.roster.live):
            raise UnknownMechanism(
                f"{name} belongs to the pipeline file and runs as long as it; only what was created later can be halted"
            )
        raise UnknownMechanism(
            "no series of this name runs: it was never created, or has been halted"
        )

    def _open(self) -> Questions:
        if self.questions is None:
            raise UsageError("this engine takes no questions")
        return self.questions

    @staticmethod
    def _broken(commit: Commit, why: str) -> FailClosed:
        return FailClosed(
            f"the ledger in the journal does not add up at commit {commit.sequence}: {why}. Restore the journal, or "
            "run the version of the code that wrote it"
        )


def charge_of(entry: Entry, analyst: str = MAIN) -> Charge:
    """The entry as a journal holds it."""
    return Charge(entry.name, entry.epsilon, entry.delta, entry.rule, entry.measure, analyst)
