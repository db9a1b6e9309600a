"""Boxes, halts and the optimal filter, as `audit --rules` plays them: the figures of a second game, and broken ledgers.

`oracles.live_games` is another engine with another ledger; where it plays the same offers, the figures are the same. A
broken twin of the product's ledger, or of a price, makes an instance VIOLATED.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from oracles import live_games as game
from oracles import live_ledgers as parts
from oracles.compositions import FiniteComposition, SparsePairs
from oracles.live_games import Box, Game, Ledger, Machine, Measure, Offer, Unit
from oracles.live_ledgers import CELLS, by_pairs, by_points

from stream_dp.accounting import ledger as ledgers
from stream_dp.accounting import loads
from stream_dp.accounting.filters.filter import NOTHING, Filter, Spend
from stream_dp.accounting.filters.linear import BasicFilter
from stream_dp.accounting.filters.optimal import OptimalFilter
from stream_dp.accounting.loads import Loads
from stream_dp.accounting.rules import groups
from stream_dp.accounting.rules.fixed import filtered
from stream_dp.accounting.rules.rule import Rule
from stream_dp.core.box import EVERYTHING
from stream_dp.core.guarantee import Protected
from stream_dp.core.neighbors import Users
from stream_dp.verify.exact.exact_delta import exact_delta, exact_moment, worst_ratio
from stream_dp.verify.exact.finite import DifferAtMost
from stream_dp.verify.exact_checks import live
from stream_dp.verify.exact_checks.instance import Instance, Verdict, compare, logarithm
from stream_dp.verify.untrue_entries import untrue_entries

F = Fraction
A, B, AB, ANY = Box("A"), Box("B"), Box("AB"), Box(CELLS)
RR2, HOT3, LATE = parts.response(2), parts.announcing(3), parts.leaking(3, F(1, 10))
EVENT, ALL = game.add_remove("AB"), game.add_remove(CELLS)


def exact(instance: Instance, ratio: int = 0, order: int = 0) -> Any:
    """The exact worst case: delta at e^epsilon = ratio, the moment of an order, or the largest ratio."""
    played = instance.machine, instance.pairs
    if order:
        return exact_moment(*played, order, instance.rounds)
    if ratio:
        return exact_delta(*played, F(ratio), instance.rounds)
    return worst_ratio(*played, instance.rounds)


def offers(machine: Machine, *boxes: Box, at: int | Fraction = 0, kind: str = "") -> list[Offer]:
    return [Offer(machine, box, F(at) or machine.ratio, kind=kind) for box in boxes]


def second(
    some: Sequence[Offer], ledger: Ledger, unit: Unit, measure: Measure, ticks: int, most: int
) -> Fraction:
    return Game(some, ledger, unit, measure, ticks, most).value()


def test_boxes_reach_what_the_second_game_reaches() -> None:
    counts = [Offer(RR2, box, F(2), F(2)) for box in (A, B, AB)]
    values = [
        second(offers(RR2, A, B, AB, ANY) + offers(HOT3, A), by_points(6), ALL, game.PURE, 2, 3),
        4,
        second(offers(RR2, A, B, ANY, at=4), by_points(4), game.replace_any_tick(CELLS), game.PURE, 3, 3),
        second(counts, by_pairs(4), game.replace_in_tick(CELLS), game.PURE, 2, 3),
        8,
        second(offers(RR2, A, B, AB, at=4), by_points(4), game.user("AB", 2), game.PURE, 3, 3),
    ]  # fmt: skip
    assert [exact(instance) for instance in live.boxes()] == values == [6, 4, 4, 4, 8, 4]


def test_halts_reach_what_the_second_game_reaches() -> None:
    pure, fresh, not_fresh, core, nine = live.halts()
    at3, order2 = game.delta_at(3), game.renyi(2)
    leaks, twice = offers(parts.fresh_leak(3, F(1, 10)), A, B), parts.with_deltas(3, F(2, 10))
    assert exact(pure) == 3
    assert exact(fresh, 3) == second(leaks, by_points(3), EVENT, at3, 3, 3) == F(1, 10)
    assert exact(not_fresh, 3) == second(offers(LATE, A, B), twice, EVENT, at3, 4, 3) == F(19, 100)
    kept = offers(parts.announcing(9, F(1, 10)), A, at=F(77, 45), kind="core")
    paid, sums = offers(RR2, B, AB, at=F(3, 2)), parts.renyi_sum(F(77, 30))
    assert exact(core, order=2) == second(kept + paid, sums, EVENT, order2, 3, 3) == F(77, 30)
    assert exact(nine, order=2) == F(73, 9)


def test_sums_within_a_shared_total_lose_what_is_booked() -> None:
    """Whatever they see and whenever they come; counts beside them cost as much again, also those of means."""
    assert [exact(instance) for instance in live.sharing()] == [4, 4, 16, 16]


def test_the_optimal_filter_reaches_what_the_second_game_reaches() -> None:
    boxed, refilled, announced, beside, moves, alone = live.composed_at_best()
    hot, quarter = offers(RR2, A) + offers(HOT3, A), parts.optimal(3, F(1, 4))
    chain, moving = parts.optimal(4, F(2, 3), 2), game.replace_any_tick("A")
    assert exact(boxed, 3) == exact(refilled, 3) == F(1, 9)
    assert exact(announced, 3) == second(hot, quarter, EVENT, game.delta_at(3), 3, 4) == F(47, 216)
    assert exact(beside, 3) == 1 - (1 - F(1, 4)) * (1 - F(1, 10))
    at4 = game.delta_at(4)
    assert exact(moves, 4) == second(offers(RR2, A, at=4), chain, moving, at4, 3, 4) == F(68, 243)
    assert exact(alone, 4) == 0


BITS = DifferAtMost((0, 1), ((0, 1), (1, 0)))
ONE_CELL = DifferAtMost((0, 1, 2), tuple((a, b) for a in range(3) for b in range(3) if a != b))


@pytest.mark.parametrize(
    "kind", [live.response(live.TWO), live.announced(), live.failing(), live.late(), live.core()]
)
def test_the_claim_of_a_mechanism_is_true_alone(kind: live.Kind) -> None:
    (instance, *_) = live.boxes()
    alone = replace(instance, machine=kind.machine, pairs=BITS, rounds=4)
    assert compare(kind.premise.guarantee.measure, alone).verdict is Verdict.EQUAL


def test_a_table_loses_twice_as_much_to_a_record_that_changes_its_cell() -> None:
    table = live.NoisyCells(live.TWO, 2)
    assert worst_ratio(table, ONE_CELL, 2) == 4
    assert worst_ratio(table, DifferAtMost((0,), ((0, 1), (2, 0))), 2) == 2


@pytest.mark.parametrize(
    ("machine", "grows"),
    [(live.FailingBits(live.THREE, live.TENTH), False), (live.late().machine, True)],
)
def test_what_is_told_as_fresh_costs_no_more_in_copies(machine: Any, grows: bool) -> None:
    pair = DifferAtMost((0,), ((0, 1), (1, 0)))
    costs = [
        exact_delta(
            FiniteComposition((machine,)), SparsePairs((pair,), (copies,), 1), F(3), 3 * copies
        )
        for copies in (1, 2, 3)
    ]
    assert (costs == sorted(set(costs))) == grows
    assert costs[0] == live.TENTH
    assert grows or len(set(costs)) == 1


def test_a_condition_holds_for_no_null() -> None:
    assert not live.sees(live.A, live.NULL)
    assert live.sees(EVERYTHING, live.NULL)
    assert [live.sees(live.LARGE, record) for record in live.SIZED] == [False, True] * 2


def test_neighbours_differ_as_their_relation_says() -> None:
    """A replacement is one record on each side; a user has records on one side, at most as many as the cap."""

    def after(protected: Protected, *pairs: Any) -> list[Any]:
        differing = live.Differing.of(protected, (live.IN_A,))
        for pair in pairs:
            (differing,) = (rest for moved, rest in differing.moves() if moved == pair)
        return [pair for pair, _ in differing.moves()]

    left, right = (live.IN_A, None), (None, live.IN_A)
    assert after(live.EVENT) == [right, left]
    assert after(live.EVENT, left) == []
    moving, users = Protected(live.MOVES), Protected(live.ADD, Users(2))
    assert after(moving, left) == [right]
    assert after(moving, left, right) == []
    assert after(users, left) == [left]
    assert after(users, left, left) == []
    within = live.Differing.of(Protected(live.REPLACE), (live.IN_A, live.IN_B))
    assert [pair for pair, _ in within.moves()] == [(live.IN_A, live.IN_B), (live.IN_B, live.IN_A)]
    assert all(rest.over for _, rest in within.moves())


# --- broken twins ---------------------------------------------------------------------------------


def largest_alone(boxes: Any, *_: Any) -> Spend:
    """Where boxes overlap, the largest cost in place of the sum."""
    return max(boxes.values(), key=lambda spend: spend.amount, default=NOTHING)


def at_one_point(patch: pytest.MonkeyPatch) -> None:
    """A replacement costs what its new record meets."""
    real = Loads.at
    patch.setattr(Loads, "at", lambda self, *a, **k: real(replace(self, protected=None), *a, **k))


def without_steps(patch: pytest.MonkeyPatch) -> None:
    """A user's events, and an event that moves, cost what one event costs."""
    measure = lambda premises, _: premises[0].guarantee.measure  # noqa: E731
    patch.setattr(groups, "group", replace(groups.group, measure=measure))


def frees_all(patch: pytest.MonkeyPatch) -> None:
    """A halt frees also what is not fresh."""
    for module in (loads, ledgers):
        patch.setattr(module, "local_part", lambda filter_, entry, _: filter_.cost(entry))


def too_cheap(kind: type[Filter], spend: Callable[[Spend], Spend]) -> Any:
    def broken(patch: pytest.MonkeyPatch) -> None:
        cost = kind.cost
        patch.setattr(kind, "cost", lambda self, entry: spend(cost(self, entry)))

    return broken


def half_of_epsilons(spend: Spend) -> Spend:
    return replace(spend, epsilons=tuple((e // 2, n) for e, n in spend.epsilons))


def one_delta_for_all_steps(patch: pytest.MonkeyPatch) -> None:
    """Each step has the whole delta."""
    patch.setattr(OptimalFilter, "_step_delta", lambda self, *_: self.promise.delta)


def one_currency(patch: pytest.MonkeyPatch) -> None:
    """Events and units of a total cost no more together than the heavier of them."""
    patch.setattr(groups, "TOTAL", "")


def frees_the_window(patch: pytest.MonkeyPatch) -> None:
    """A halt frees at once what may have been met in the open window, for other currencies, too."""
    patch.setattr(Loads, "_holding", lambda self, *_: self.held)


def without_a_total(patch: pytest.MonkeyPatch) -> None:
    """Each series sees all of each amount."""
    patch.setattr(live, "Sharing", lambda behind: Unguarded(behind))


class Unguarded(live.Sharing):
    def step(self, state: Any, query: Any) -> Any:
        return super().step((0, state[1]), query)


def overlaps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(loads, "_heaviest", largest_alone)


BOXES, HALTS, BEST, SHARING = live.boxes, live.halts, live.composed_at_best, live.sharing


@pytest.mark.parametrize(
    ("broken", "instances", "places"),
    [
        (overlaps, BOXES, [0, 1]),
        (overlaps, BEST, [0]),
        (at_one_point, BOXES, [3, 4]),
        (without_steps, BOXES, [2, 5]),
        (frees_all, HALTS, [2, 3]),
        (frees_all, BEST, [3]),
        (too_cheap(BasicFilter, lambda spend: replace(spend, delta=spend.delta // 2)), HALTS, [2]),
        (too_cheap(OptimalFilter, half_of_epsilons), BEST, [0, 1]),
        (one_delta_for_all_steps, BEST, [5]),
        (one_currency, SHARING, [1]),
        (frees_the_window, SHARING, [1]),
        (without_a_total, SHARING, [0, 1, 2, 3]),
    ],
    ids=[
        "the largest where boxes overlap", "the largest under the optimal filter",
        "a replacement at its new record", "several steps at the price of one", "what is not fresh is freed",
        "its delta is freed under the optimal filter", "half of a delta", "half of the epsilons that compose",
        "two steps at the delta of one", "events and units of a total as one currency",
        "a halt frees the open window for other currencies", "no total in front of all",
    ],
)  # fmt: skip
def test_a_broken_ledger_is_violated(
    monkeypatch: pytest.MonkeyPatch,
    broken: Any,
    instances: Callable[[], tuple[Instance, ...]],
    places: list[int],
) -> None:
    rule: Rule[Any] = filtered
    broken(monkeypatch)
    played = instances()
    for place in places:
        instance: Any = played[place]
        booked = rule.measure(instance.premises, instance.situation)
        assert compare(booked, instance).verdict is Verdict.VIOLATED, instance.words


# --- untrue entries -------------------------------------------------------------------------------

LN2, LN3, LN8 = (logarithm(F(n)) for n in (2, 3, 8))
EXCEEDED = {  # the exact worst case; logarithms are rounded
    "boxes that overlap, booked as disjoint": LN8,
    "a null value booked in no box, but counted in two": 2 * LN2,
    "two values of a list as disjoint boxes": 2 * LN2,
    "the box of a watch booked instead of its monitor's box": 2 * LN2,
    "a value at the end of two ranges, booked only in one": 2 * LN2,
    "a replacement booked only at its new record": 2 * LN2,
    "an event that moves, booked as an event that does not move": 2 * LN2,
    "a halt frees the delta of what is not fresh": F(271, 1000),
    "two boxes, booked at the larger delta of what is not fresh": F(19, 100),
    "a halt frees the Renyi epsilon of what is not fresh": logarithm(F(3293, 1125)),
    "a halt frees ticks that are over": 3 * LN3,
    "optimal filter: two events of a user, booked at the price of one": F(350, 729),
    "which users were there, booked by boxes": 4 * LN2,
}


def test_every_untrue_entry_is_exceeded_and_refused() -> None:
    entries = untrue_entries()
    assert {entry.title for entry in entries} == EXCEEDED.keys()
    for entry in entries:
        assert entry.promised < entry.exact
        assert abs(entry.exact - EXCEEDED[entry.title]) < F(1, 10**9), entry.title
        assert "asks for" in entry.ours or "freed the privacy loss only from tick" in entry.ours
        assert not entry.ours.endswith(".")
