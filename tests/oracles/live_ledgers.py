"""Small mechanisms and ledgers for the game of `oracles.live_games`, in exact Fractions.

Ratios stand for e^epsilon, so budgets multiply. A ledger is the plain reading of a rule.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from math import prod
from typing import TypeAlias

from oracles import optimal_filter
from oracles.live_games import CERTAIN, Law, Ledger, Machine, Offer, State

Outcomes: TypeAlias = list[tuple[Fraction, int, State]]
NEW, HOT, COLD = (0,), (1,), (2,)
FIRST: Law = ((NEW, CERTAIN),)
CELLS = ("A", "B", "null")


def _response(ratio: int | Fraction, value: int, state: State) -> Outcomes:
    truth = Fraction(ratio) / (1 + ratio)
    return [(truth, value, state), (1 - truth, 1 - value, state)]


def response(ratio: int | Fraction) -> Machine:
    """Return the pure mechanism that answers every tick by randomized response."""
    return Machine(FIRST, lambda state, value: _response(ratio, value, NEW), Fraction(ratio))


def announcing(ratio: int | Fraction, hot: Fraction = Fraction(1, 2)) -> Machine:
    """Return the pure mechanism that first tells, without data, whether it will ever respond.

    With a small `hot` it is the mechanism of [HSV] Thm 13.5.
    """

    def step(state: State, value: int) -> Outcomes:
        if state == NEW:
            return [(hot, 2, HOT), (1 - hot, 3, COLD)]
        return _response(ratio, value, HOT) if state == HOT else [(CERTAIN, 3, COLD)]

    return Machine(FIRST, step, Fraction(ratio))


def leaking(ratio: int | Fraction, delta: Fraction) -> Machine:
    """Return an (ln ratio, delta) mechanism that is not fresh: it first tells whether it will reveal.

    At a ratio of 1 it is, but for its repeated answers, M_delta of [HSV] Thm 5.2.
    """

    def step(state: State, value: int) -> Outcomes:
        if state == NEW:
            return [(delta, 2, HOT), (1 - delta, 3, COLD)]
        return [(CERTAIN, value, HOT)] if state == HOT else _response(ratio, value, COLD)

    return Machine(FIRST, step, Fraction(ratio), delta)


def fresh_leak(ratio: int | Fraction, delta: Fraction) -> Machine:
    """Return a fresh (ln ratio, delta) mechanism: RR_(epsilon, delta) of [HSV] Def 2.3 in every tick."""

    def step(state: State, value: int) -> Outcomes:
        kept = [((1 - delta) * p, answer, NEW) for p, answer, _ in _response(ratio, value, NEW)]
        return [(delta, 2 + value, NEW), *kept]

    return Machine(FIRST, step, Fraction(ratio))


Noise: TypeAlias = Sequence[tuple[int, Fraction]]


CIRCLE_LAPLACE = [
    (z, Fraction(4 >> abs(z), 10)) for z in range(-2, 3)
]  # on a circle of 5, a shift by u <= 2 costs 2^u


def fresh_noise(noise: Noise, circle: int) -> Machine:
    """Return the mechanism that adds new noise in every tick, modulo `circle`."""
    return Machine(FIRST, lambda _, value: [(p, (value + z) % circle, NEW) for z, p in noise])


def first_records(ratio: int, most: int) -> Machine:
    """Return a series with a cap of its own: a user's first `most` records cost `ratio` a record."""

    def step(state: State, value: int) -> Outcomes:
        counts = value if state[0] < most else 0
        return _response(ratio, counts, (state[0] + counts,))

    return Machine(FIRST, step, Fraction(ratio**most))


def ratios_at(offers: Sequence[Offer], cell: str) -> list[Fraction]:
    """Return what the offers book whose boxes hold the cell."""
    return [offer.ratio for offer in offers if cell in offer.box]


def peak(offers: Sequence[Offer]) -> Fraction:
    """Return the cost of the dearest cell."""
    return max(prod(ratios_at(offers, cell), start=CERTAIN) for cell in CELLS)


def by_points(budget: int | Fraction) -> Ledger:
    """Return the rule of single cells: what is alive fits the budget in every cell, and a halt frees."""
    return Ledger(lambda alive, kept, new: peak([*alive, new]) <= budget)


def once(ledger: Ledger) -> Ledger:
    """Return the ledger that also refuses a second creation of the same offer."""

    def admits(alive: Sequence[Offer], kept: Sequence[Offer], new: Offer) -> bool:
        return new not in kept and ledger.admits(alive, kept, new)

    return Ledger(admits, lambda offer: True)


def with_deltas(budget: int | Fraction, delta: Fraction) -> Ledger:
    """Return the rule "epsilons by cells, 1 - prod(1 - delta_j) over all created"."""

    def failure(offers: Sequence[Offer]) -> Fraction:
        return 1 - prod((1 - offer.machine.delta for offer in offers), start=CERTAIN)

    def admits(alive: Sequence[Offer], kept: Sequence[Offer], new: Offer) -> bool:
        return peak([*alive, new]) <= budget and failure([*kept, new]) <= delta

    return Ledger(admits, lambda offer: offer.machine.delta > 0)


def optimal(ratio: int | Fraction, delta: Fraction, steps: int = 1) -> Ledger:
    def admits(alive: Sequence[Offer], kept: Sequence[Offer], new: Offer) -> bool:
        return all(
            optimal_filter.admits(ratios_at(alive, cell), new.ratio, Fraction(ratio), delta, steps)
            for cell in new.box
        )

    return Ledger(admits)


def renyi_sum(budget: Fraction) -> Ledger:
    """Return the rule at one order: cores (not fresh) for ever and everywhere, the rest by cells."""

    def admits(alive: Sequence[Offer], kept: Sequence[Offer], new: Offer) -> bool:
        cores = [o.ratio for o in [*kept, new] if o.kind == "core"]
        return prod(cores) * peak([o for o in [*alive, new] if o.kind != "core"]) <= budget

    return Ledger(admits, lambda offer: offer.kind == "core")


def pair_load(offers: Sequence[Offer], x: str, y: str) -> Fraction:
    """Return what replacing x by y costs: `replacement` in boxes with both, `event` in boxes with one."""
    touched = [o for o in offers if {x, y} & o.box]
    return prod((o.replacement if {x, y} <= o.box else o.event for o in touched), start=CERTAIN)


def by_pairs(budget: int | Fraction) -> Ledger:
    """Return the rule of all pairs of cells, for replacements within a tick."""
    pairs = list(combinations(CELLS, 2))
    return Ledger(
        lambda alive, kept, new: all(pair_load([*alive, new], x, y) <= budget for x, y in pairs)
    )


def by_kinds(budget: int | Fraction, events: int, frees: bool = False) -> Ledger:
    """Return the rule of users of at most `events` events: a load for every kind of entry, and these multiply.

    "divided" entries (an event costs its share) and "amount" entries (a shared total) load by cells. Of a "whole"
    entry one event may cost all: such entries stay booked, in full or `events` times the dearest cell. The twin
    `frees` frees them at their halt.
    """

    def admits(alive: Sequence[Offer], kept: Sequence[Offer], new: Offer) -> bool:
        now = [*alive, new]
        whole = [o for o in (now if frees else [*kept, new]) if o.kind == "whole"]
        in_full = prod((o.ratio for o in whole), start=CERTAIN)
        parallel = prod(peak([o for o in now if o.kind == k]) for k in ("divided", "amount"))
        return parallel * min(in_full, peak(whole) ** events) <= budget

    return Ledger(admits, lambda offer: offer.kind == "whole" and not frees)
