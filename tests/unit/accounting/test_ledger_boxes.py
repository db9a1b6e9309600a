"""A ledger against every event, by brute force: charges into boxes and halts at random, at all ticks and records.

The oracle lists records and ticks, and adds up what is alive and sees the record; of a replacement within a tick, what
sees either of two records. No event meets more than the ledger has booked, and the budget holds.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations_with_replacement, product
from random import Random
from typing import Any

import pytest

from stream_dp.accounting.amounts import budget_units
from stream_dp.accounting.filters.filter import Entry
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.loads import Loads
from stream_dp.core.box import Box, Side, Stretch, holds
from stream_dp.core.guarantee import Protected, PureDP
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import BudgetRefused

BUDGET = Fraction(3)
LETTERS, NUMBERS = "xyz", range(5)
Record = dict[str, Any]
RECORDS: list[Record] = [
    {"a": a, "b": b, "c": c}
    for a, b, c in product([*LETTERS, None], [*LETTERS, None], [*NUMBERS, None])
]


@dataclass
class Life:
    entry: Entry
    start: int
    end: int = 1000

    def sees(self, record: Record, tick: int) -> bool:
        sides = self.entry.box.sides
        inside = all(record[n] is not None and holds(side, record[n]) for n, side in sides)
        return inside and self.start <= tick < self.end


def some_box(random: Random) -> Box:
    sides = list[tuple[str, Side]]()
    for name in "ab":
        if random.random() < 0.35:
            sides.append((name, frozenset(random.sample(LETTERS, random.randint(1, 2)))))
    if random.random() < 0.35:
        low, high = random.randint(0, 2), random.randint(2, 4)
        ends = [Stretch(low=low), Stretch(high=high), Stretch(low, high)]
        sides.append(("c", random.choice(ends)))
    return Box(tuple(sides))


def played(random: Random, relation: Neighbors) -> tuple[Ledger, list[Life], int]:
    ledger, lives, tick = Ledger.of(BUDGET, Protected(relation)), list[Life](), 0
    alive: list[Life] = []
    for number in range(40):
        tick += random.random() < 0.4
        if alive and random.random() < 0.35:
            life = alive.pop(random.randrange(len(alive)))
            life.end = max(tick, life.start)
            ledger = ledger.halt(life.entry, life.end)
            continue
        epsilon = Fraction(random.choice([1, 2, 3, 5, 8]), 5)
        entry = replace(ledger.ask(f"m{number}", PureDP(epsilon), "any"), box=some_box(random))
        try:
            ledger = ledger.charge(entry, tick)
        except BudgetRefused:
            continue
        lives.append(Life(entry, tick))
        alive.append(lives[-1])
    return ledger, lives, tick


def met(lives: list[Life], ticks: int, relation: Neighbors) -> int:
    """The most that an event meets, in units."""
    most = 0
    for tick in range(ticks + 1):
        seen = {
            frozenset(n for n, life in enumerate(lives) if life.sees(record, tick))
            for record in RECORDS
        }
        pairs = combinations_with_replacement(seen, 2)
        unions = (x | y for x, y in pairs) if relation is Neighbors.REPLACE else iter(seen)
        most = max(most, *(sum(lives[n].entry.epsilon for n in union) for union in unions))
    return most


@pytest.mark.parametrize("relation", Neighbors)
def test_no_event_meets_more_than_is_booked(relation: Neighbors) -> None:
    """And the booked amount is met where one event has one record."""
    reached = 0
    for seed in range(12):
        ledger, lives, ticks = played(Random(seed), relation)
        most = met(lives, ticks, relation)
        assert most <= ledger.peak.amount <= budget_units(BUDGET)
        reached += most == ledger.peak.amount
    assert reached >= (1 if relation is Neighbors.REPLACE else 10)


def test_a_twin_that_books_replacements_at_single_points_books_too_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = Loads.at

    def at_a_point(loads: Loads, *more: Any, **named: Any) -> Any:
        return real(replace(loads, protected=None), *more, **named)

    monkeypatch.setattr(Loads, "at", at_a_point)
    ledger, lives, ticks = played(Random(0), Neighbors.REPLACE)
    assert met(lives, ticks, Neighbors.REPLACE) > ledger.peak.amount
