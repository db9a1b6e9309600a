"""What live ledgers may run in parallel where users' events cost shares, or all: every adversary is played, with twins.

The other rules are played by `audit --rules`, with the product's own ledger (test_live_instances). A value is what the
best adversary reaches; if that is the bound of a rule, the test says ==. Ratios and budgets stand for e^epsilon.
"""

from collections.abc import Sequence
from fractions import Fraction

from oracles import live_games as game
from oracles import live_ledgers as parts
from oracles.live_games import PURE, Box, Event, Game, Ledger, Machine, Offer, Unit
from oracles.live_ledgers import CELLS, by_kinds, by_points, once

F = Fraction
A, B, AB, NULL = Box("A"), Box("B"), Box("AB"), Box({"null"})
RR2 = parts.response(2)


def offer(
    machine: Machine, *boxes: Box, at: int | Fraction = 0, kind: str = "divided"
) -> list[Offer]:
    """Return an offer of the machine for every box, booked at its own ratio or at `at`."""
    return [Offer(machine, box, F(at) or machine.ratio, kind=kind) for box in boxes]


def worst(offers: Sequence[Offer], ledger: Ledger, unit: Unit, ticks: int, most: int) -> Fraction:
    """Return the value of the game without creations after the last touch, which cost nothing."""
    return Game(offers, ledger, unit, PURE, ticks, most).value()


def test_what_a_single_event_of_a_user_may_cost_in_full_is_booked_in_full() -> None:
    """Twins: by cells, mixed with a count by cells, freed at the halt."""
    whole, unit = parts.first_records(4, 1), game.user("AB", 2)
    entries = offer(whole, A, B, AB, kind="whole")
    for budget in (4, 16):
        assert worst(entries, by_kinds(budget, 2), unit, 3, 3) == budget
    apart = offer(whole, A, B, NULL, kind="whole")  # as many times as a user has events
    assert worst(apart, by_kinds(16, 2), game.user(CELLS, 2), 2, 3) == 16
    assert worst(offer(whole, A, B), once(by_points(4)), unit, 2, 2) == 16
    mixed = offer(RR2, A, at=4) + entries[1:2]
    assert worst(mixed, once(by_points(4)), unit, 2, 2) == 8
    three = offer(RR2, A, at=8) + offer(parts.first_records(8, 1), B)  # (2 - 1/k) epsilon, k = 3
    assert worst(three, once(by_points(8)), game.user("AB", 3), 3, 2) == 32
    assert worst(entries[:1], by_kinds(4, 2, frees=True), unit, 2, 2) == 16


def test_a_cap_of_a_series_of_its_own_is_no_share() -> None:
    """Users of k events, a cap of L: in full, or by cells at k / L of its epsilon; the twin costs 2.5 for 1."""
    single, double, unit = parts.first_records(16, 1), parts.first_records(2, 2), game.user("AB", 4)
    twin = offer(single, A, B) + offer(RR2, NULL, at=16)
    assert worst(twin, once(by_points(16)), game.user(CELLS, 4), 4, 3) == 16**2 * 4  # 16^2.5
    in_full = offer(double, A, B, kind="whole") + offer(RR2, A, at=8)
    assert worst(in_full, by_kinds(32, 3), game.user("AB", 3), 3, 3) == 32
    assert worst(offer(double, A, B, at=16), by_points(16), unit, 4, 3) == 16
    assert worst(offer(double, A, B), once(by_points(4)), unit, 4, 2) == 16  # at L / L


def summed(box: Box, event: Event | None) -> int:
    """Return the input of a series that adds amounts."""
    return event[1] if event and event[0] in box else 0


def test_a_shared_total_makes_sums_parallel() -> None:
    """The kinds of entries still multiply. Twins: the largest of the kinds, a total for every series."""
    sums = parts.fresh_noise(parts.CIRCLE_LAPLACE, 5)  # a ratio of 2 for an amount of 1
    amounts = [Offer(sums, box, F(4), kind="amount", reads=summed) for box in (A, B)]
    unit = game.user("AB", 2, (1, 2), 2)
    assert worst(amounts, by_kinds(4, 2), unit, 2, 3) == 4
    mixed = amounts + offer(RR2, B, at=4) + offer(parts.first_records(4, 1), B, kind="whole")
    assert worst(mixed, by_kinds(64, 2), unit, 2, 3) <= 64
    assert worst(mixed, once(by_points(4)), unit, 2, 3) > 4
    assert worst(amounts, once(by_points(4)), game.user("AB", 2, (2,)), 2, 2) == 16
