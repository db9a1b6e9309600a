"""The optimal composition as a filter over what is alive: every adversary is played, and wrong prices are beaten.

Budgets are pairs (e^epsilon, delta). At a single event the choices precede the event, so adaptive creation and halts
cost nothing above the fixed composition ([HSV] Thm 4.10). An event that moves, or a user, takes a chain of such games.
"""

from fractions import Fraction

import pytest
from oracles import live_games as game
from oracles.compositions import closed_form
from oracles.live_games import Box, Game, Ledger, Machine, Offer, Unit
from oracles.live_ledgers import CELLS, announcing, by_points, fresh_leak, once, optimal, response
from oracles.optimal_filter import chain, least_delta

F = Fraction
A, B, AB, ANY = Box("A"), Box("B"), Box("AB"), Box(CELLS)
EVENT = game.add_remove("AB")
HALVES, RR2, RR3, HOT3 = response(F(3, 2)), response(2), response(3), announcing(3)


def offer(machine: Machine, *boxes: Box, at: int = 0) -> list[Offer]:
    """Return an offer of the machine for every box, booked at its own ratio or at `at`."""
    return [Offer(machine, box, F(at) or machine.ratio) for box in boxes]


def worst(
    offers: list[Offer], ledger: Ledger, unit: Unit, ratio: int, ticks: int, most: int
) -> Fraction:
    """Return the largest delta at e^epsilon = ratio."""
    return Game(offers, ledger, unit, game.delta_at(ratio), ticks, most).value()


@pytest.mark.parametrize(
    ("ratio", "delta", "values"),
    [  # of three created in two ticks, and of four in three: more offers may reach more
        (3, F(1, 9), (F(1, 9), F(1, 9))),
        (4, F(1, 9), (F(0), F(0))),
        (4, F(1, 4), (F(4, 27), F(5, 27))),
        (2, F(1, 4), (F(17, 72), F(35, 144))),
        (3, F(1, 4), (F(5, 27), F(47, 216))),
    ],
)
def test_adaptive_creations_and_halts_never_exceed_the_budget(
    ratio: int, delta: Fraction, values: tuple[Fraction, Fraction]
) -> None:
    """Randomized responses, and a pure mechanism that first tells whether it will be of use."""
    offers, ledger = offer(RR2, ANY) + offer(HOT3, ANY), optimal(ratio, delta)
    games = ((2, 3), (3, 4))
    assert tuple(worst(offers, ledger, EVENT, ratio, *size) for size in games) == values
    assert max(values) <= delta


@pytest.mark.parametrize(
    ("ratio", "delta"), [(2, F(1, 4)), (2, F(1, 3)), (3, F(1, 5)), (4, F(1, 8))]
)
def test_responses_of_unlike_sizes_never_exceed_the_budget(ratio: int, delta: Fraction) -> None:
    offers = [o for machine in (HALVES, RR2, RR3) for o in offer(machine, A, AB)]
    assert 0 < worst(offers, optimal(ratio, delta), EVENT, ratio, 2, 3) <= delta


@pytest.mark.parametrize(("ratio", "delta"), [(3, F(1, 9)), (2, F(2, 9))])
def test_a_halt_makes_room_and_boxes_that_do_not_meet_share_the_delta(
    ratio: int, delta: Fraction
) -> None:
    """Two alive in a cell meet the budget, however many are created."""
    offers, ledger = offer(RR2, A, B, AB), optimal(ratio, delta)
    assert worst(offers, ledger, EVENT, ratio, 2, 3) == delta
    assert worst(offers[:1], ledger, EVENT, ratio, 3, 4) == delta


def test_boxes_that_overlap_taken_as_disjoint_break_the_budget() -> None:
    overlapping = offer(RR2, A, AB, ANY)
    assert worst(overlapping, once(game.FREE), EVENT, 3, 2, 3) == F(5, 27)  # for 1/9


def test_two_events_of_a_user_at_the_price_of_a_single_event_break_the_budget() -> None:
    assert worst(offer(RR2, A), optimal(2, F(2, 9)), game.user("A", 2), 2, 2, 3) == F(350, 729)


@pytest.mark.parametrize(
    ("unit", "steps", "budget", "value"),
    [
        (game.user("A", 2), 2, (4, F(2, 3)), F(68, 243)),
        (game.user("AB", 2), 2, (4, F(2, 3)), F(68, 243)),
        (game.replace_any_tick("A"), 2, (4, F(2, 3)), F(68, 243)),
        (game.user("A", 2), 2, (4, F(1, 2)), F(0)),
        (game.user("A", 2), 2, (9, F(4, 9)), F(7, 81)),
        (game.user("A", 3), 3, (27, F(13, 9)), F(37, 729)),
    ],
)
def test_users_and_events_that_move_keep_the_budget_of_the_chain(
    unit: Unit, steps: int, budget: tuple[int, Fraction], value: Fraction
) -> None:
    """Randomized responses of ratio 2 an event, booked for all events of the unit."""
    ratio, delta = budget
    ledger, offers = optimal(ratio, delta, steps), offer(RR2, A, at=2**steps)
    assert worst(offers, ledger, unit, ratio, steps + 1, 4) == value <= delta


def test_fresh_deltas_take_the_chain_too() -> None:
    offers = offer(fresh_leak(3, F(1, 10)), A, B)
    ratio, delta = chain(F(3), F(1, 10), 2)
    assert worst(offers, by_points(3), game.user("AB", 2), int(ratio), 3, 3) <= delta


def test_a_block_in_boxes_pays_its_delta_once() -> None:
    """Two of ratio 2 in A and in B are (3, 1/9); one live of ratio 2 beside them makes a ratio of 6."""
    assert least_delta((F(2), F(2)), F(3)) == F(1, 9)
    assert worst(offer(RR2, A, B), by_points(8), EVENT, 6, 2, 6) == F(2, 27) < F(1, 9)


def test_how_many_are_alive_at_once() -> None:
    """At epsilon 2 and delta 1e-6 and 1e-9; and the epsilon of so many of 0.05 at 1e-6."""
    for epsilon, counts in {0.01: (2012, 1240), 0.05: (84, 54), 0.1: (24, 20)}.items():
        for count, delta in zip(counts, (1e-6, 1e-9), strict=True):
            at, beyond = (closed_form(epsilon, 0, count + more, 2) for more in (0, 1))
            assert at <= delta < beyond
    for count, total in {10: 0.4992, 20: 0.8723, 25: 0.9952, 40: 1.2985, 100: 2.2075}.items():
        below, above = (closed_form(0.05, 0, count, total + off) for off in (-1e-4, 1e-4))
        assert above <= 1e-6 < below
