"""Admission of series to a run: which ones run, what was charged for them, and every change of both.

Rules: charge first, then open; a refusal changes nothing. A start repeats every change that the journal records and
derives it again. It fails if a recorded charge is not the price of its definition, or if the ledger would refuse
it. This file knows no state, noise or actor.
"""

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter

from stream_dp.accounting.filters.filter import Entry, Spend
from stream_dp.accounting.ledger import Ledger, Preview
from stream_dp.accounting.subledgers import MAIN, Subledgers
from stream_dp.core.wording import meant
from stream_dp.engine.proposals import Proposal, SeriesPlanner, WatchProposal, recorded
from stream_dp.engine.series import LiveSeries, Registry, version_of
from stream_dp.errors import BudgetRefused, FailClosed, UnknownMechanism, UsageError
from stream_dp.journal.answer_body import read_answer
from stream_dp.journal.checkpoint import Account, Ended, Running, Spent, Standing, Watching
from stream_dp.journal.commit import (
    Applied,
    Asked,
    Charge,
    Commit,
    Created,
    Halted,
    Unwatched,
    Watched,
    digest,
)

REMEMBERED = 20
"""How many halted series are remembered of those that one ledger paid for: the last ones."""


class UsedNames:
    """The digests of names, sorted: a name takes `_BYTES`, for none is ever forgotten."""

    _BYTES, _NEW = 16, 1_000

    def __init__(self, saved: bytes = b"") -> None:
        self._old, self._new = saved, set[bytes]()

    def __contains__(self, name: str) -> bool:
        wanted = self._of(name)
        at = self._place(wanted)
        return wanted in self._new or self._old[at : at + self._BYTES] == wanted

    def add(self, name: str) -> None:
        if name not in self:
            self._new.add(self._of(name))
        if len(self._new) > self._NEW:
            self.saved()

    def saved(self) -> bytes:
        parts, begin = list[bytes](), 0
        for one in sorted(self._new):
            end = self._place(one)
            parts += [self._old[begin:end], one]
            begin = end
        self._old = b"".join([*parts, self._old[begin:]])
        self._new.clear()
        return self._old

    def _place(self, wanted: bytes) -> int:
        """Return where this digest is, or would be, in those that are sorted."""
        places = range(0, len(self._old), self._BYTES)
        return self._BYTES * bisect_left(
            places, wanted, key=lambda at: self._old[at : at + self._BYTES]
        )

    def _of(self, name: str) -> bytes:
        return digest(name.encode())[: self._BYTES]


@dataclass(frozen=True, slots=True)
class Halting:
    """A halt of a live series: it sees no tick from `end` on. `ledger` is that of before, which was charged `entry`."""

    name: str
    number: int
    end: int
    analyst: str
    entry: Entry
    ledger: Ledger


@dataclass(slots=True)
class Admission:
    """Which series run, and the ledgers that paid for them; only creations, halts and changed files change this.

    `names` holds every name ever used, because releases carry the name. `left` has those of the series that a changed
    file ends at this cut, with their versions: the same change may go on with the name, and nothing else ever. Where
    `private` is False (noise of the test kit), every release of a created series says so. `applied` is the last change
    of the pipeline file.
    """

    registry: Registry
    subledgers: Subledgers
    planner: SeriesPlanner | None = None
    names: UsedNames = field(default_factory=UsedNames)
    private: bool = True
    applied: Applied | None = None
    left: dict[str, int] = field(default_factory=dict)
    first_ended: dict[str, int] = field(default_factory=dict)
    _running: dict[int, Running] = field(default_factory=dict)
    _ended: dict[str, deque[Ended]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for series in self.registry.releasing:
            self.names.add(series.name)

    @property
    def ended(self) -> Sequence[Ended]:
        """The last halted series, at most `REMEMBERED` of each ledger, sorted by `end`."""
        return sorted(chain.from_iterable(self._ended.values()), key=attrgetter("end"))

    def propose(self, definition: bytes, start: int, version: int = 1) -> Proposal:
        """Derive the series of a definition, for ticks from `start` on; may take seconds, changes nothing. Raises
        `UsageError` (no series of this pipeline, or a name used before) or `NotDerivable`.
        """
        proposal = self._plans.propose(definition, start)
        self._require_new(proposal, version)
        proposal.predicted()  # the answer reports it after the charge, so fail before if it cannot be computed
        return proposal

    @property
    def _plans(self) -> SeriesPlanner:
        if self.planner is None:
            raise UsageError("this engine does not accept live series")
        return self.planner

    def _require_new(self, proposal: Proposal, version: int) -> None:
        """Raise `UsageError` if a series has or had the name, unless it is left to this `version`."""
        runs = self.registry.named(proposal.name) is not None
        if not runs and version > 1 and self.left.get(proposal.name) == version - 1:
            return
        if version != 1 or proposal.name in self.names:
            raise UsageError("name: a series has or had this name; choose another name")

    async def foresee(self, proposal: Proposal | UsageError, analyst: str) -> None:
        """Let a thread compute what the series costs beside what runs now; a cut need not search, if nothing changes
        until then. A refusal is told at the cut. The caller lets one work at a time, for cuts use the same threads.
        """
        if isinstance(proposal, UsageError):
            return
        with suppress(UsageError, BudgetRefused):
            entry = self.subledgers.price(proposal.derivation, analyst, proposal.box)
            ledger = self.subledgers.ledgers[analyst]
            if ledger.searches:
                await asyncio.to_thread(ledger.foresee, entry, proposal.start)

    def preview(self, proposal: Proposal, analyst: str) -> Preview:
        """Return what creating the series would do to its ledger; changes nothing. Errors as of `create`."""
        entry, _ = self._priced(proposal, analyst, 1)
        return self.subledgers.preview(entry, analyst, proposal.start)

    def create(
        self, proposal: Proposal, analyst: str, start: int, version: int = 1
    ) -> tuple[Created, Charge, LiveSeries]:
        """Charge for a series that sees ticks from `start` on, and open it. Raises `UsageError` (no such analyst, or a
        name used before), `NoRoom` or `BudgetRefused`; then nothing has changed.
        """
        entry, column = self._priced(proposal, analyst, version)
        self.subledgers.charge(entry, analyst, start)
        number = self.registry.next_number
        created = Created(number, proposal.definition, start, column, proposal.mechanism, version)
        charge = charge_of(entry, analyst)
        return created, charge, self._admit(proposal, created, charge, entry)

    def halt(self, name: str, end: int, *, by_file: bool = False) -> Halted:
        """End a created series: it sees no tick from `end` on, and no tick at all if it has not begun by then. Raises
        `UnknownMechanism` if no created series of this name runs, `UsageError` if no other is released at this tick;
        then nothing has changed. A changed file (`by_file`) may go on with the name, and sees itself that others stay.
        """
        halting = self.halting(name, end)
        if not by_file and not self.stays(end) - {name}:
            raise UsageError(
                "series: is the last one that runs, and each tick must have a release. Create another series, and halt "
                "this one after the first release of the other"
            )
        return self._end(halting.number, name, halting.end, by_file=by_file)

    def stays(self, tick: int) -> set[str]:
        """Return the names of the series with a mechanism that are released at this tick if nothing changes."""
        return {live.series.name for live in self.registry.at(tick)}

    def halting(self, name: str, end: int) -> Halting:
        """Return what `halt` would do; changes nothing. Errors as of `halt`."""
        live = self.registry.named(name)
        if live is not None and live.created:
            analyst, entry = self.subledgers.running[name]
            ledger = self.subledgers.ledgers[analyst]
            return Halting(name, live.number, max(end, live.start), analyst, entry, ledger)
        if any(series.name == name for series in self.registry.releasing):
            raise UnknownMechanism(
                "this series comes from the pipeline file and cannot be halted. Only a series that "
                "was created later can be halted"
            )
        near = meant(name, [live.series.name for live in self.registry.live if live.created])
        raise UnknownMechanism(
            "no series of this name runs: it was never created, or has been halted; `stream-dp query list` shows "
            f"all{near}"
        )

    def apply(self, applied: Applied) -> list[int]:
        """Go on with a changed file, and end the first series that it lacks; return the numbers of those that had one.

        What the first series were charged, together, stays charged. Raises `UsageError` if one comes back; then nothing
        has changed.
        """
        before = () if self.applied is None else self.applied.ended
        if not set(before) <= set(applied.ended):
            raise UsageError("a series of the first pipeline file has ended and cannot start again")
        first = {live.series.name for live in self.registry.live if not live.created}
        self.left |= dict.fromkeys(first.intersection(applied.ended), 1)
        self.applied = applied
        self.first_ended = dict.fromkeys(applied.ended, applied.at) | self.first_ended
        ended = self.registry.end(applied.ended)
        for number in ended if self.planner is not None else ():
            self._plans.close(number)  # also what its watches count
        return ended

    def hold(self) -> None:
        if self.planner is not None:
            self.planner.hold()

    def renew(self) -> None:
        if self.planner is not None:
            self.planner.renew()

    def watched(
        self, live: LiveSeries, watch: bytes | str, at: int, analyst: str = ""
    ) -> WatchProposal:
        """Derive a watch of a running series, from tick `at` on; changes nothing; raises `UsageError`. `watch` is an
        analyst's definition (bytes), or the name of a watch that is to end (str).
        """
        if self.planner is None:
            raise UsageError("this engine does not accept watches")
        if isinstance(watch, str):
            return self.planner.unwatch(live, watch, at)
        return self.planner.watch(live, watch, at, analyst)

    def take(self, number: int, proposal: WatchProposal) -> LiveSeries:
        proposal.take()
        return self.registry.change(number, proposal.series)

    def watched_again(self, change: Watched | Unwatched) -> WatchProposal:
        """Derive a watch again from a journal's change; `UsageError` if it is refused or has another place."""
        live = self.registry.numbered(change.number)
        if live is None:
            raise UsageError(f"series number {change.number} has a watch, but does not run")
        if isinstance(change, Unwatched):
            return self.watched(live, change.name, change.at)
        proposal = self.watched(live, change.definition, change.at, change.analyst)
        if proposal.place != change.place:
            raise UsageError("the watch would get another place than the journal records")
        return proposal

    def answered(self, commit: Commit) -> None:
        """Update the series that a durable commit asked, from the answers in the commit."""
        bodies = {answer.number: answer.body for answer in commit.answers}
        for change in commit.changes:
            if not isinstance(change, Asked):
                continue
            live = self.registry.numbered(change.number)
            if live is None or live.series.asking is None:
                continue
            if change.answer not in bodies:
                raise _broken(
                    f"at commit {commit.sequence}", "the commit records a query without its answer"
                )
            content = read_answer(bodies[change.answer]).answer or {}
            asking = live.series.asking.answered(content, change.at)
            self.registry.change(live.number, replace(live.series, asking=asking))

    def fresh_columns(self, live: LiveSeries) -> slice:
        """Return the columns of a series; an empty slice if another running series counts on any of them."""
        mine = live.series.rows
        others = (other.series.rows for other in self.registry.live if other is not live)
        shared = any(rows.start < mine.stop and mine.start < rows.stop for rows in others)
        return slice(0, 0) if shared else mine

    def replay(self, commit: Commit) -> list[tuple[LiveSeries, slice]]:
        """Repeat the changes of a commit, derive each again, and return the series that the commit created, each with
        its fresh columns: those among what ran when it was created, before the changes that follow it. Raises
        `FailClosed` if the journal's ledger does not add up.
        """
        charges, created = list(commit.charges), list[tuple[LiveSeries, slice]]()
        self.left.clear()
        by_file = any(isinstance(change, Applied) for change in commit.changes)
        try:
            for change in commit.changes:
                match change:
                    case Halted(number=number, end=end):
                        live = self.registry.numbered(number)
                        if live is None or not live.created:
                            raise UnknownMechanism(
                                f"a halt names series number {number}, which does not run"
                            )
                        self._end(number, live.series.name, end, by_file=by_file)
                    case Created():
                        charge = charges.pop(0) if charges else None
                        live = self._create_again(change, charge)
                        created.append((live, self.fresh_columns(live)))
                    case Watched() | Unwatched():
                        self.take(change.number, self.watched_again(change))
                    case Applied():
                        self.apply(change)
        except (UsageError, BudgetRefused) as error:
            raise _broken(f"at commit {commit.sequence}", str(error)) from None
        self.left.clear()
        if charges:
            raise _broken(
                f"at commit {commit.sequence}",
                "the commit charges for a series that it does not create",
            )
        self.answered(commit)
        return created

    def _priced(self, proposal: Proposal, analyst: str, version: int) -> tuple[Entry, int]:
        self._require_new(proposal, version)
        entry = self.subledgers.price(proposal.derivation, analyst, proposal.box)
        return entry, self._place(proposal, analyst)

    def _place(self, proposal: Proposal, analyst: str) -> int:
        """Return where the series' entries would begin, beside the analyst's other series; raises `NoRoom`. A replay
        does not call this: the journal records the column.
        """
        payers = self.subledgers.running
        created = (live for live in self.registry.live if live.created)
        return proposal.place(
            analyst, [live.number for live in created if payers[live.series.name][0] == analyst]
        )

    def _create_again(self, created: Created, charge: Charge | None) -> LiveSeries:
        proposal, entry = self._derive_again(created, charge)
        analyst = MAIN if charge is None else charge.analyst
        self.subledgers.charge(entry, analyst, created.start)
        return self._admit(proposal, created, charge_of(entry, analyst), entry)

    def _derive_again(self, created: Created, charge: Charge | None) -> tuple[Proposal, Entry]:
        """Return a recorded series and its entry; raises `UsageError` unless they are what was recorded."""
        proposal = recorded(self._plans, created)
        self._require_new(proposal, created.version)
        analyst = MAIN if charge is None else charge.analyst
        entry = self.subledgers.price(proposal.derivation, analyst, proposal.box)
        if charge_of(entry, analyst) != charge:
            raise UsageError(f"the charge for {proposal.name} differs from its price")
        if proposal.mechanism != created.mechanism:
            raise UsageError(
                f"{proposal.name} would run on with another mechanism or other parameters"
            )
        return proposal, entry

    def _admit(
        self, proposal: Proposal, created: Created, charge: Charge, entry: Entry
    ) -> LiveSeries:
        version = created.version
        series = replace(proposal.open(created), private=self.private, version=version)
        self.left.pop(proposal.name, None)
        self.names.add(proposal.name)
        derived = digest(f"{proposal.derivation.stated} {entry.box.order}".encode())
        self._running[created.number] = Running(created, charge, derived)
        return self.registry.add(created.number, series, created.start)

    def save(self) -> Standing:
        """Return what a checkpoint holds of all series and ledgers, as they are between two ticks."""
        ledgers = self.subledgers.ledgers
        return Standing(
            tuple(self._running.values()),
            tuple(self._watching()),
            tuple(_account(analyst, ledgers[analyst]) for analyst in ledgers),
            tuple(chain.from_iterable(self._ended.values())),
            self.names.saved(),
            self.registry.next_number,
            self.applied,
            dict(self.first_ended),
        )

    def _watching(self) -> Iterator[Watching]:
        for live in self.registry.live:
            kept = None if self.planner is None else self.planner.watching(live)
            if kept is not None:
                yield kept

    def load(self, saved: Standing) -> None:
        """Become, before any change, what was saved; each series that runs is derived again and compared.

        Raises `FailClosed` if one is not derived as when it was saved.
        """
        running = self.subledgers.running
        try:
            if saved.applied is not None:
                self.first_ended = dict(saved.first_ended)
                self.apply(saved.applied)
            for one in saved.running:
                self._run_again(one)
            for kept in saved.watching:
                self._watch_again(kept)
        except (UsageError, BudgetRefused) as error:
            raise _broken("in its last checkpoint", str(error)) from None
        self.left.clear()
        for account in saved.accounts:
            analyst, (everywhere, used, peak) = account.analyst, map(_spend, account.sums)
            entries = (entry for payer, entry in running.values() if payer == analyst)
            self.subledgers.ledgers[analyst] = self.subledgers.ledgers[analyst].restored(
                entries, (everywhere, used, peak), account.count, account.freed,
                {currency: (until, _spend(met)) for currency, until, met in account.held},
            )  # fmt: skip
        for ended in saved.ended:
            self._remember(ended)
        self.names, self.registry.next_number = UsedNames(saved.names), saved.next_number

    def _run_again(self, one: Running) -> None:
        number, analyst, version = one.created.number, one.charge.analyst, one.created.version
        self.left = {one.charge.name: version - 1} if version > 1 else {}
        proposal, entry = self._derive_again(one.created, one.charge)
        self.registry.next_number = number
        self._admit(proposal, one.created, one.charge, entry)
        self.subledgers.running[entry.name] = (analyst, entry)
        if self._running[number].derived != one.derived:
            raise UsageError(f"the derivation of {proposal.name} differs from the recorded one")

    def _watch_again(self, kept: Watching) -> None:
        live = self.registry.numbered(kept.number)
        if live is None or self.planner is None:
            raise UsageError(f"series number {kept.number} has watches, but does not run")
        self.registry.change(kept.number, self.planner.watch_again(live, kept))

    def _remember(self, ended: Ended) -> None:
        self._ended.setdefault(ended.analyst, deque(maxlen=REMEMBERED)).append(ended)

    def _end(self, number: int, name: str, end: int, *, by_file: bool) -> Halted:
        analyst, _ = self.subledgers.halt(name, end)
        live = self.registry.remove(number)
        if by_file and analyst == MAIN:
            self.left[name] = live.series.version
        del self._running[number]
        shown = {} if self.planner is None else self.planner.close(number)
        about = {**shown, **version_of(live.series)}
        self._remember(Ended(name, analyst, live.start, end, about))
        return Halted(number, end)


def _broken(where: str, why: str) -> FailClosed:
    return FailClosed(
        f"the ledger in the journal does not add up {where}: {why}. Restore the journal, or run the version of the "
        "code that wrote it"
    )


def _account(analyst: str, ledger: Ledger) -> Account:
    everywhere, used, peak = map(_spent, (ledger.loads.everywhere, ledger.used, ledger.peak))
    held = tuple((name, until, _spent(met)) for name, (until, met) in ledger.loads.held.items())
    return Account(analyst, (everywhere, used, peak), ledger.count, ledger.freed, held)


def _spent(spend: Spend) -> Spent:
    return Spent(str(spend.amount), spend.delta, spend.epsilons)


def _spend(spent: Spent) -> Spend:
    return Spend(int(spent.amount), spent.delta, spent.epsilons)


def charge_of(entry: Entry, analyst: str = MAIN) -> Charge:
    return Charge(entry.name, entry.epsilon, entry.delta, entry.rule, entry.measure, analyst)
