"""The time rule on a finite instance: mechanisms come and go, every living one gets the row of each tick.

The rule (docs/time.md): for pure event-level guarantees the whole costs the largest sum of epsilons alive at one tick.
`TickComposition` is the machine, `OneTick` the verification function that the ledger's bookkeeping amounts to;
`exact_delta` and `worst_ratio` play every adaptive adversary of the two. Rules: prices are e^eps, rationals, so that
sums of epsilons are products of prices. This file knows no budget in units, no real ledger and no time but ticks.
"""

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeAlias

from stream_dp.verify.exact.finite import FiniteMachine, Law

ONE = Fraction(1)
Living: TypeAlias = tuple[tuple[int, Any], ...]  # (kind, its state), oldest first
TickState: TypeAlias = tuple[Living, tuple[Hashable, ...]]  # and the last rows, for backfill


@dataclass(frozen=True, slots=True)
class Begin:
    """Create a machine of this kind before the next tick; it also reads the rows of the last `past` ticks."""

    kind: int
    past: int = 0


@dataclass(frozen=True, slots=True)
class End:
    """Halt the machine at this place among the living ones; it sees no later row."""

    place: int


@dataclass(frozen=True, slots=True)
class TickRow:
    """One tick's row, for every living machine; the answers are theirs, oldest first."""

    row: Hashable


@dataclass(frozen=True)
class TickComposition:
    """Machines of these `kinds`, begun and ended at any time; `kept` rows stay for machines that read the past."""

    kinds: tuple[FiniteMachine[Any, Any], ...]
    kept: int = 0

    def initial(self) -> Mapping[TickState, Fraction]:
        """Return the law of the first state: nothing alive, nothing seen."""
        return {((), ()): ONE}

    def step(self, state: TickState, query: Begin | End | TickRow) -> Law[TickState]:
        """Begin, end, or pass on a row."""
        living, rows = state
        match query:
            case Begin(kind, past):
                return self._begun(living, rows, kind, rows[len(rows) - past :])
            case End(place):
                return {(True, ((*living[:place], *living[place + 1 :]), rows)): ONE}
            case TickRow(row):
                kept = (*rows, row)[-self.kept :] if self.kept else ()
                answered = self.answered(living, row)
                return {(answer, (after, kept)): p for (answer, after), p in answered.items()}

    def answered(self, living: Living, row: Hashable) -> Law[Living]:
        """The joint law of all answers to a row; the machines' coins are independent."""
        law: dict[tuple[Any, Living], Fraction] = {((), ()): ONE}
        for kind, inner in living:
            steps = self.kinds[kind].step(inner, row).items()
            law = {
                ((*answers, answer), (*before, (kind, after))): p * q
                for (answers, before), p in law.items()
                for (answer, after), q in steps
                if q
            }
        return law

    def _begun(
        self, living: Living, rows: tuple[Hashable, ...], kind: int, past: tuple[Hashable, ...]
    ) -> Law[TickState]:
        """A new machine, after it has answered the rows of the past."""
        law: dict[tuple[tuple[Hashable, ...], Any], Fraction] = {
            ((), s): p for s, p in self.kinds[kind].initial().items()
        }
        for row in past:
            longer: dict[tuple[tuple[Hashable, ...], Any], Fraction] = {}
            for (answers, inner), p in law.items():
                for (answer, after), q in self.kinds[kind].step(inner, row).items():
                    key = ((*answers, answer), after)
                    longer[key] = longer.get(key, Fraction(0)) + p * q
            law = longer
        return {(answers, ((*living, (kind, s)), rows)): p for (answers, s), p in law.items()}


@dataclass(frozen=True, slots=True)
class OneTick:
    """Streams whose rows differ in at most `times` ticks, and mechanisms that fit `budget` at every tick.

    `once_each`: each pair of `different` comes at most once: an event may be gone at one tick and come at another.

    `prices` holds e^eps of each kind. A beginning must fit beside the living at the next tick and, if it reads the past
    and `charges_past`, at each tick it reads; an end frees the ticks to come and no earlier one. With `charges_past`
    False an end frees past ticks as well: broken. `ticks` and `creations` bound the game.
    """

    prices: tuple[Fraction, ...]
    budget: Fraction
    rows: tuple[Hashable, ...]
    different: tuple[tuple[Hashable, Hashable], ...]
    ticks: int
    creations: int
    backfill: tuple[int, ...] = (0,)
    charges_past: bool = True
    times: int = 1
    once_each: bool = False
    living: tuple[int, ...] = ()
    spent: tuple[Fraction, ...] = ()

    def moves(self) -> Iterator[tuple[tuple[Any, Any], "OneTick"]]:
        """The pairs allowed next."""
        if self.creations:
            for kind in range(len(self.prices)):
                yield from self._begun(kind)
        for place in range(len(self.living)):
            living = (*self.living[:place], *self.living[place + 1 :])
            yield (End(place),) * 2, replace(self, living=living)
        if self.ticks:
            now = math.prod((self.prices[kind] for kind in self.living), start=ONE)
            after = replace(self, ticks=self.ticks - 1, spent=self._remembered(now))
            yield from (((TickRow(row), TickRow(row)), after) for row in self.rows)
            if self.times:
                touched = replace(after, times=self.times - 1)
                for a, b in self.different:
                    left = tuple(pair for pair in self.different if pair != (a, b))
                    rest = replace(touched, different=left) if self.once_each else touched
                    yield (TickRow(a), TickRow(b)), rest

    def _begun(self, kind: int) -> Iterator[tuple[tuple[Any, Any], "OneTick"]]:
        price = self.prices[kind]
        now = math.prod((self.prices[k] for k in self.living), start=ONE)
        if now * price > self.budget:
            return
        for past in self.backfill:
            if past > len(self.spent):
                continue
            read = self.spent[len(self.spent) - past :]
            charged = tuple(s * price for s in read)
            if self.charges_past and max(charged, default=ONE) > self.budget:
                continue
            spent = (*self.spent[: len(self.spent) - past], *charged)
            yield (
                (Begin(kind, past),) * 2,
                replace(
                    self, creations=self.creations - 1, living=(*self.living, kind), spent=spent
                ),
            )

    def _remembered(self, now: Fraction) -> tuple[Fraction, ...]:
        """What was spent at the ticks that can still be read, oldest first."""
        most = max(self.backfill)
        return (*self.spent, now)[-most:] if most else ()
