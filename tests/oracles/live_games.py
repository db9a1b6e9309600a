"""The privacy game of live creations, halts and boxes ([HSV] Def 4.1, 12.1), solved exactly.

An adversary creates mechanisms out of a list of offers, halts them, and chooses the event that differs (its tick and
its cell), by all answers so far. `Game.value` returns the largest divergence between the two views. It is a backward
recursion over transcripts, in Fractions, over every deterministic adversary ([HSV] Lemma 11.1: these suffice).

The recursion is exact. Mechanisms have their own coins, so given the transcript their hidden states are independent
under each bit. Every measure is homogeneous in the two probabilities of a transcript, so their quotient is enough.

This module knows nothing of budgets: `oracles.live_ledgers` holds the mechanisms and the ledgers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from itertools import product
from typing import TypeAlias

State: TypeAlias = tuple[int, ...]
Law: TypeAlias = tuple[tuple[State, Fraction], ...]
Event: TypeAlias = tuple[str, int]  # a cell and an amount, which is 1 where records are counted
Touch: TypeAlias = tuple[Event | None, Event | None, State]
# the event under bit 0, the event under bit 1, the state of the unit afterwards
Box: TypeAlias = frozenset[str]

ZERO, CERTAIN = Fraction(0), Fraction(1)


@dataclass(frozen=True, eq=False)
class Machine:
    """A continual mechanism: the law of its first state, and a step to (probability, answer, next state).

    `ratio` is its e^epsilon; `delta` is the delta that a mechanism which is not fresh books for ever.
    """

    start: Law
    step: Callable[[State, int], Sequence[tuple[Fraction, int, State]]]
    ratio: Fraction = CERTAIN
    delta: Fraction = ZERO


def counted(box: Box, event: Event | None) -> int:
    """Return the input of a series that counts the records in its box."""
    return int(event is not None and event[0] in box)


@dataclass(frozen=True, eq=False)
class Offer:
    """A mechanism in a box, and what the ledger books for it, as ratios.

    `ratio` is the whole cost. Where the unit is a replacement within a tick, `event` is the cost of one event more in
    the box and `replacement` the cost of a replacement inside it.
    """

    machine: Machine
    box: Box
    ratio: Fraction = CERTAIN
    event: Fraction = CERTAIN
    replacement: Fraction = CERTAIN
    kind: str = "divided"
    reads: Callable[[Box, Event | None], int] = counted


@dataclass(frozen=True)
class Ledger:
    """The rule `admits(alive, kept, new)`; an offer that `keeps` accepts stays booked after its halt."""

    admits: Callable[[Sequence[Offer], Sequence[Offer], Offer], bool]
    keeps: Callable[[Offer], bool] = lambda offer: False


@dataclass(frozen=True)
class Measure:
    """A divergence: the mean under P0 of `leaf(P1/P0)`, or its largest value."""

    leaf: Callable[[Fraction], Fraction]
    largest: bool = False

    def total(self, parts: Sequence[tuple[Fraction, Fraction]]) -> Fraction:
        """Return the divergence over (probability, value) pairs."""
        values = (value if self.largest else weight * value for weight, value in parts)
        return max(values) if self.largest else sum(values, ZERO)


PURE = Measure(lambda odds: 1 / odds, largest=True)  # e^(D_infinity)


def delta_at(ratio: int | Fraction) -> Measure:
    """Return the measure "least delta at e^epsilon = ratio"."""
    return Measure(lambda odds: max(ZERO, 1 - ratio * odds))


def renyi(order: int) -> Measure:
    """Return the measure e^((order - 1) D_order)."""
    return Measure(lambda odds: (1 / odds) ** (order - 1))


@dataclass(frozen=True)
class Unit:
    """What neighbouring data may differ in: the touches that a state allows, none when all are made."""

    start: State
    touches: Callable[[State], Sequence[Touch]]


def add_remove(cells: Sequence[str]) -> Unit:
    """Return the unit "one event more or less"; the adversary also chooses the side that has it."""
    events = [(cell, 1) for cell in cells]
    both = [touch for e in events for touch in ((e, None, (0,)), (None, e, (0,)))]
    return Unit((1,), lambda state: both if state == (1,) else ())


def replace_in_tick(cells: Sequence[str]) -> Unit:
    """Return the unit "the content of one event, in its tick"."""
    pairs = [((x, 1), (y, 1), (0,)) for x in cells for y in cells if x != y]
    return Unit((1,), lambda state: pairs if state == (1,) else ())


def replace_any_tick(cells: Sequence[str]) -> Unit:
    """Return the unit "one event, its content and its tick", the two places in either order."""
    events = [(cell, 1) for cell in cells]
    first: list[Touch] = [touch for e in events for touch in ((e, None, (1,)), (None, e, (2,)))]
    table: dict[State, list[Touch]] = {
        (0,): first + [(x, y, (3,)) for x in events for y in events if x != y],
        (1,): [(None, e, (3,)) for e in events],
        (2,): [(e, None, (3,)) for e in events],
    }
    return Unit((0,), lambda state: table.get(state, ()))


def user(cells: Sequence[str], events: int, amounts: Sequence[int] = (1,), total: int = 0) -> Unit:
    """Return the unit "all events of one user": at most `events`, one a tick, with amounts up to `total` together.

    The state is (events left, amount left, side). The first event fixes the side. A total of 0 sets no cap.
    """

    def touches(state: State) -> Sequence[Touch]:
        left, room, side = state
        allowed: list[Touch] = []
        for cell, amount in product(cells, amounts):
            if left and (not total or amount <= room):
                rest = (left - 1, room - amount if total else 0)
                if side != 2:
                    allowed.append(((cell, amount), None, (*rest, 1)))
                if side != 1:
                    allowed.append((None, (cell, amount), (*rest, 2)))
        return allowed

    return Unit((events, total, 0), touches)


Outcome: TypeAlias = tuple[Fraction, Law, Law, Fraction]
# probability under bit 0, laws of the hidden state under both bits, odds P1/P0 of the answer


@cache
def outcomes(
    machine: Machine, laws: tuple[Law, Law], inputs: tuple[int, int]
) -> tuple[Outcome, ...]:
    answers: dict[int, tuple[dict[State, Fraction], dict[State, Fraction]]] = {}
    for side in (0, 1):
        for state, weight in laws[side]:
            for chance, answer, after in machine.step(state, inputs[side]):
                table = answers.setdefault(answer, ({}, {}))[side]
                table[after] = table.get(after, ZERO) + weight * chance
    merged: dict[tuple[Law, Law, Fraction], Fraction] = {}
    for left, right in answers.values():
        p0, p1 = sum(left.values(), ZERO), sum(right.values(), ZERO)
        if p0:
            law0 = _normal(left, p0)
            key = (law0, _normal(right, p1) if p1 else law0, p1 / p0)
            merged[key] = merged.get(key, ZERO) + p0
    return tuple((chance, *key) for key, chance in merged.items())


def _normal(table: dict[State, Fraction], total: Fraction) -> Law:
    return tuple(sorted((state, weight / total) for state, weight in table.items() if weight))


Live: TypeAlias = tuple[int, Law, Law]
Position: TypeAlias = tuple[int, tuple[Live, ...], tuple[int, ...], int, State, Fraction]
# tick, mechanisms alive, creations kept, creations left, state of the unit, odds P1/P0 so far


@dataclass(frozen=True, eq=False)
class Game:
    """The game over `ticks` ticks with at most `most` creations.

    In a tick the adversary first halts and creates. Then the records of the tick arrive: the touched event, or
    nothing. Then every mechanism answers.
    """

    offers: Sequence[Offer]
    ledger: Ledger
    unit: Unit
    measure: Measure
    ticks: int
    most: int
    _known: dict[Position, Fraction] = field(default_factory=dict)

    def value(self) -> Fraction:
        """Return the divergence that the best adversary reaches."""
        return self._turn((0, (), (), self.most, self.unit.start, CERTAIN))

    def _turn(self, position: Position) -> Fraction:
        known = self._known.get(position)
        if known is None:
            known = self._known[position] = self._best(position)
        return known

    def _best(self, position: Position) -> Fraction:
        tick, live, kept, left, unit, odds = position
        untouched = bool(self.unit.touches(unit))
        undecided = untouched or any(law0 != law1 for _, law0, law1 in live)
        if tick == self.ticks or not odds or not undecided:
            return self.measure.leaf(odds)  # nothing that follows depends on the bit
        touches: list[Touch] = [(None, None, unit), *self.unit.touches(unit)]
        best = max(self._answers(position, touch) for touch in touches)
        if left and untouched:  # what is created after the last touch costs nothing
            for place in range(len(live)):  # a halt without a later creation only loses answers
                fewer = live[:place] + live[place + 1 :]
                best = max(best, self._turn((tick, fewer, kept, left, unit, odds)))
            alive = [self.offers[index] for index, _, _ in live]
            booked = [self.offers[index] for index in kept]
            for index, offer in enumerate(self.offers):
                if self.ledger.admits(alive, booked, offer):
                    more = tuple(sorted((*live, (index, offer.machine.start, offer.machine.start))))
                    books = tuple(sorted((*kept, index))) if self.ledger.keeps(offer) else kept
                    best = max(best, self._turn((tick, more, books, left - 1, unit, odds)))
        return best

    def _answers(self, position: Position, touch: Touch) -> Fraction:
        tick, live, kept, left, _, odds = position
        joint: list[tuple[Fraction, tuple[Live, ...], Fraction]] = [(CERTAIN, (), odds)]
        for index, law0, law1 in live:
            offer = self.offers[index]
            inputs = (offer.reads(offer.box, touch[0]), offer.reads(offer.box, touch[1]))
            joint = [
                (weight * chance, (*others, (index, new0, new1)), so_far * answer)
                for chance, new0, new1, answer in outcomes(offer.machine, (law0, law1), inputs)
                for weight, others, so_far in joint
            ]
        values = [
            (weight, self._turn((tick + 1, tuple(sorted(after)), kept, left, touch[2], so_far)))
            for weight, after, so_far in joint
        ]
        return self.measure.total(values)
