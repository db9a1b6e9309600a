"""The ledger's loads against a brute force over all records and ticks, and what a box may be used for."""

import random
from dataclasses import replace
from fractions import Fraction

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
from stream_dp.accounting.rules.fixed import reached
from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.situations import Alive
from stream_dp.core.box import Box, Side, Stretch
from stream_dp.core.guarantee import Guarantee, Protected, PureDP
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.errors import BudgetRefused

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
