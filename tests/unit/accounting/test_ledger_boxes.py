"""A ledger against every event, by brute force: charges into boxes and halts at random, at all ticks and records.

The oracle lists records and ticks, and adds up what is alive and sees the record; of a replacement within a tick, what
sees either of two records. No event meets more than the ledger has booked, and the budget holds.
"""

import random
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations_with_replacement, product
from random import Random
from typing import Any

import pytest
from oracles import met_loads as oracle
from oracles.met_loads import ANY_TICKS, EVENT, IN_TICK, Booked
from oracles.optimal_filter import root

from stream_dp.accounting.amounts import UNITS, Interval, budget_units, cost_units, exact
from stream_dp.accounting.filters.filter import DP, ZERO_CONCENTRATED, Entry, Filter, Spend
from stream_dp.accounting.filters.linear import BasicFilter, PureFilter
from stream_dp.accounting.filters.optimal import OptimalFilter
from stream_dp.accounting.filters.squares import ZCDPFilter
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.loads import Loads
from stream_dp.accounting.rules.fixed import reached
from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.situations import Alive
from stream_dp.core.box import Box, Side, Stretch, holds
from stream_dp.core.guarantee import Guarantee, Protected, PureDP
from stream_dp.core.neighbors import Neighbors, Users
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


# The ledger's loads against a brute force over all records and ticks, and what a box may be used for.


F, TICKS = Fraction, range(8)
ADD, MOVES = Neighbors.ADD_REMOVE, Neighbors.REPLACE_ANY_TICK
UNIT: dict[str, tuple[Protected, str]] = {
    "event": (Protected(ADD), EVENT),
    "replace": (Protected(Neighbors.REPLACE), IN_TICK),
    "moves": (Protected(MOVES), ANY_TICKS),
    "user": (Protected(ADD, Users(2)), ANY_TICKS),
}
RATIO = F(
    36
)  # e^epsilon of the optimal budget; the charges are logarithms of the others, rounded up
LOG = budget_units(F(Interval.of(RATIO).ln().low))
RATIOS = {cost_units(Interval.of(F(r)).ln().upper): F(r) for r in (F(9, 4), 4, 9, 16)}
OPTIMAL = {steps: OptimalFilter(Spend(LOG, UNITS // 8), steps) for steps in (1, 2)}
FILTERS: dict[str, Filter] = {
    "pure": PureFilter.of(F(2)),
    "basic": BasicFilter.of(F(2), F(1, 20)),
    "zcdp": ZCDPFilter.of(F(1)),
    "optimal": OPTIMAL[1],
}


def random_box(draw: random.Random) -> Box:
    sides: list[tuple[str, Side]] = []
    if draw.random() < 0.6:
        sides.append(("kind", frozenset(draw.sample(["x", "y", "z"], draw.randint(1, 2)))))
    if draw.random() < 0.5:
        low, high = sorted(draw.choices([0, 1, 2], k=2))
        sides.append(("size", draw.choice([Stretch(low, high), Stretch(low), Stretch(None, high)])))
    return Box(tuple(sides))


def random_entry(draw: random.Random, filter_: Filter) -> Entry:
    """Return a charge of some size: half of them fresh, some with a delta where the filter takes it."""
    epsilon, delta, measure = 2 * draw.randint(1, 4) * UNITS // 10, 0, DP
    if isinstance(filter_, ZCDPFilter) and draw.random() < 0.7:
        epsilon, measure = epsilon // 2, ZERO_CONCENTRATED
    elif isinstance(filter_, OptimalFilter):
        epsilon = draw.choice(list(RATIOS))
    if filter_ in (FILTERS["basic"], OPTIMAL[1]):
        delta = draw.choice([0, 0, 1, 2]) * UNITS // 100
    return Entry("m", epsilon, delta, "r", measure, draw.random() < 0.5, random_box(draw))


def booked(entry: Entry, filter_: Filter, pairs: str, start: int, end: int = 99) -> Booked:
    """State which parts of the cost only those events pay which the mechanism sees."""
    cost, pure = filter_.cost(entry), entry.measure == DP and not entry.delta
    if pairs == ANY_TICKS:
        met = (pure and not isinstance(filter_, ZCDPFilter),) * 2
    else:
        met = entry.fresh or entry.measure == DP, entry.fresh
    return Booked(cost.amount, cost.delta, entry.box, met, start, end)


def fits(history: tuple[Booked, ...], filter_: Filter, pairs: str) -> bool:
    if isinstance(filter_, OptimalFilter):
        step = root(RATIO, filter_.steps)
        return oracle.composed(history, pairs, TICKS, RATIOS, step) <= filter_.promise.delta
    return Spend(*oracle.most(history, pairs, TICKS)).within(filter_.capacity)


def check(used: Spend, history: tuple[Booked, ...], filter_: Filter, pairs: str, at: range) -> bool:
    """Assert that `used` is not below the oracle; return whether it is the same (under `optimal` nobody knows)."""
    if isinstance(filter_, OptimalFilter):
        epsilon = exact(filter_.reached(used).amount) / filter_.steps
        step = exact(cost_units(Interval.of(epsilon).exp().upper))
        assert oracle.composed(history, pairs, at, RATIOS, step) <= filter_.promise.delta
        return True
    owed = Spend(*oracle.most(history, pairs, at))
    assert owed.within(used)
    return owed == used


def play(seed: int, filter_: Filter, unit: str) -> list[bool]:
    """Charge and halt at random; return where the ledger says the same as the oracle."""
    draw, same, entries, history = (
        random.Random(seed),
        list[bool](),
        list[Entry](),
        tuple[Booked, ...](),
    )
    protected, pairs = UNIT[unit]
    ledger = Ledger.under(filter_, protected=protected)
    for _ in range(10):
        live = [number for number, part in enumerate(history) if part.end == 99]
        latest = max((part.start for part in history), default=0)
        if live and latest < TICKS[-1] and draw.random() < 0.35:
            number = draw.choice(live)
            end = min(TICKS[-1], latest + draw.randint(1, 2))
            ledger = ledger.halt(entries[number], end)
            halted = replace(history[number], end=end)
            history = (*history[:number], halted, *history[number + 1 :])
        else:
            entry = random_entry(draw, filter_)
            start = min(TICKS[-1], max(0, ledger.freed + draw.choice([-1, 0, 0, 0, 1])))
            more = (*history, booked(entry, filter_, pairs, start))
            try:
                ledger, history, entries = ledger.charge(entry, start), more, [*entries, entry]
            except BudgetRefused:
                same.append(start < ledger.freed or not fits(more, filter_, pairs))
            else:
                assert start >= ledger.freed
        assert fits(history, filter_, pairs)
        same.append(check(ledger.used, history, filter_, pairs, TICKS[ledger.freed :]))
        same.append(check(ledger.peak, history, filter_, pairs, TICKS))
    return same


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 30), marks=pytest.mark.full)])
@pytest.mark.parametrize("unit", UNIT)
@pytest.mark.parametrize("name", FILTERS)
def test_no_unit_pays_more_than_the_ledger_books(name: str, unit: str, seeds: range) -> None:
    """Where no more than epsilons of single events adds up, the ledger says exactly what is paid."""
    filter_ = OPTIMAL[2] if name == "optimal" and UNIT[unit][1] == ANY_TICKS else FILTERS[name]
    same = [verdict for seed in seeds for verdict in play(seed, filter_, unit)]
    assert sum(same) >= (1 if name == "pure" and unit != "replace" else 0.8) * len(same)


X, Y, XY = (Box((("kind", frozenset(values)),)) for values in ("x", "y", "xy"))


@pytest.mark.parametrize(
    ("filter_", "full", "more"),
    [
        (ZCDPFilter.of(F(1)), (UNITS, 0, ZERO_CONCENTRATED, True), (1, 0, ZERO_CONCENTRATED, False)),
        (BasicFilter.of(F(1), F(1, 9)), (1, UNITS // 9, DP, True), (1, 1, DP, False)),
        (OptimalFilter.of(F(1), F(1, 9)), (1, UNITS // 9, DP, True), (1, 1, DP, False)),
    ],
    ids=["zcdp", "basic", "optimal"],
)  # fmt: skip
def test_what_is_not_fresh_is_refused_where_another_box_is_full(
    filter_: Filter, full: tuple[int, int, str, bool], more: tuple[int, int, str, bool]
) -> None:
    """It counts everywhere, also in the box that it does not meet."""
    first, second = (
        Entry("m", epsilon, delta, "r", measure, fresh, box)
        for (epsilon, delta, measure, fresh), box in ((full, X), (more, Y))
    )
    ledger = Ledger.under(filter_, protected=Protected(ADD)).charge(first)
    with pytest.raises(BudgetRefused):
        ledger.charge(second)
    assert ledger.charge(replace(second, fresh=True)).used.delta == first.delta
    assert (
        Ledger.under(filter_, protected=Protected(ADD))
        .charge(second)
        .charge(replace(first, epsilon=1, delta=second.delta))
    )


def test_parts_of_a_charge_fit_together_or_none_is_charged() -> None:
    ledger, whole = Ledger.of(F(2), Protected(ADD)), Entry("whole", 2 * UNITS, 0, "r")
    parts = [Entry("part", UNITS, 0, "r", box=box) for box in (X, XY, Y)]
    charged = ledger.charge(whole, parts=parts)
    assert (charged.used, charged.entries, charged.count) == (Spend(2 * UNITS), (whole,), 1)
    with pytest.raises(BudgetRefused):
        ledger.charge(whole, parts=[*parts, parts[0]])
    with pytest.raises(BudgetRefused):
        charged.charge(Entry("more", 1, 0, "r", box=X))


def test_the_ticks_of_parts_are_first_and_last() -> None:
    draw, filter_ = random.Random(5), PureFilter.of(F(9))
    for _ in range(30):
        parts, alive, boxes, history = [], [], [], []
        for number in range(8):
            first, units = draw.choice(TICKS), draw.randint(1, 9)
            last = draw.choice([None, *range(first, 8)])
            parts.append(leaf(str(number), Guarantee(PureDP(exact(units)), ADD), "its proof"))
            alive.append(Alive(first, last))
            boxes.append(random_box(draw))
            end = 99 if last is None else last + 1
            history.append(Booked(units, 0, boxes[-1], (True, True), first, end))
        loads = reached(tuple(parts), alive, boxes, filter_)
        assert max(load.amount for load in loads) == oracle.most(tuple(history), EVENT, TICKS)[0]
