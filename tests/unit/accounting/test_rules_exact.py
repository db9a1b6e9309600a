"""Rules of compositions with deltas and kinds on small instances against `exact_delta`: met, never below.

An instance of every rule is in `stream_dp.verify.exact_checks`, which `test_exact_checks` compares. The known-broken
twins here book less than the exact delta somewhere.
"""

import itertools
import random
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from oracles.compositions import FiniteComposition, SparsePairs
from oracles.universal import composed_delta

from stream_dp.accounting.amounts import Interval, budget_units, cost_units
from stream_dp.accounting.derive import derive
from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.situations import Fixed, Parallel, Situation, Touched
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import (
    ApproxDP,
    Guarantee,
    Measure,
    RenyiDP,
    differential_privacy,
)
from stream_dp.core.neighbors import Neighbors
from stream_dp.verify.exact.exact_delta import exact_delta, exact_moment
from stream_dp.verify.exact.finite import (
    BIT_PAIRS,
    DifferAtMost,
    FirstPair,
    Law,
)
from stream_dp.verify.exact.randomized_response import (
    LeakyBit,
    RandomizedResponse,
)
from stream_dp.verify.exact_checks.instance import logarithm, private, ratio

ADD = Neighbors.ADD_REMOVE
ONE, ZERO, TENTH = Fraction(1), Fraction(0), Fraction(1, 10)
ROUND = 1 + Fraction(1, 10**25)  # what `ratio` leaves out
THREE, TWO = Fraction(3), Fraction(2)
ONE_PAIR = FirstPair(BIT_PAIRS)


def part(odds: Fraction, delta: Fraction = ZERO) -> Derivation:
    """A leaf with the guarantee of RR, IRR and the like."""
    return leaf("part", Guarantee(private(odds, delta), ADD), "proof")


def claimed(premises: tuple[Derivation, ...], situation: Situation) -> ApproxDP:
    return differential_privacy(derive(premises, situation).guarantee.measure)


def test_touched_deltas_are_not_enough_for_two_of_three() -> None:
    """As above where the two twins differ: two touched parts' deltas are more than the largest, and too few."""
    machine = FiniteComposition((LeakyBit(TENTH),))
    leaks = SparsePairs((DifferAtMost((0, 1), ((0, 1), (1, 0))),), (3,), 2)
    exact = exact_delta(machine, leaks, Fraction(100), 7)
    touched, every = 1 - (1 - TENTH) ** 2, 1 - (1 - TENTH) ** 3
    assert TENTH < touched < exact == every
    situation = Parallel("leaky", Touched(2, ADD, "why"), (3,), every)
    assert claimed((part(ONE, TENTH),), situation) == ApproxDP(ZERO, every)


def test_deltas_rounded_down_are_caught() -> None:
    """The twin books each delta in whole units of 10^-12, downwards: three times 10^-13 are nothing to it."""
    delta = Fraction(1, 10**13)
    machine = FiniteComposition((RandomizedResponse(TWO, delta),))
    exact = exact_delta(machine, SparsePairs((ONE_PAIR,), (3,), 3), Fraction(8), 6)
    twin = 3 * budget_units(delta)
    ours = claimed((part(TWO, delta),) * 3, Fixed("three", Fraction(1, 10**12)))
    assert twin == 0 < exact <= ours.delta
    assert cost_units(ours.delta) == 1


def test_kinds_of_different_price_are_covered_by_the_worst() -> None:
    kinds = ((THREE, ZERO), (TWO, TENTH), (Fraction(5, 2), Fraction(1, 20)))
    premises = tuple(part(*kind) for kind in kinds)
    touched = Touched(2, ADD, "why")
    situation = Parallel("kinds", touched, (1, None, 2), Fraction(3, 10), first_pair="data first")
    result = claimed(premises, situation)
    made = [kinds[0], kinds[1], kinds[1], kinds[2], kinds[2]]
    assert all(
        composed_delta(pair, ratio(result.epsilon)) <= result.delta * ROUND
        for pair in itertools.combinations(made, 2)
    )


# --- first-pair consistent parts ([HSV] Def 5.12, 5.13, Thm 13.6), two of them touched ------------


UP = Fraction(1, 10**6)
DATA_FIRST = FirstPair(BIT_PAIRS, ("more",))


def derived(kinds: list[Measure], creations: tuple[int | None, ...]) -> Measure:
    """What the package derives for two touched parts of these kinds, of which a data set comes first."""
    premises = tuple(
        leaf(f"kind {i}", Guarantee(m, ADD, finite=True), "exact") for i, m in enumerate(kinds)
    )
    touched = Touched(2, ADD, "2 users differ")
    situation = Parallel("parts", touched, creations, first_pair="the data set comes first")
    return derive(premises, situation).guarantee.measure


def draw(rng: random.Random, answers: int = 2) -> tuple[Fraction, ...]:
    weights = [rng.randint(2, 9) for _ in range(answers)]
    return tuple(Fraction(w, sum(weights)) for w in weights)


@dataclass(frozen=True)
class Answering:
    """Answers the data set's bit by `first[bit]`, and then one query by `then[bit, answer]`."""

    first: tuple[tuple[Fraction, ...], ...]
    then: tuple[tuple[tuple[Fraction, ...], ...], ...]

    def initial(self) -> Mapping[Hashable, Fraction]:
        return {"new": ONE}

    def step(self, state: Any, query: Hashable) -> Law[Any]:
        if state == "new" and isinstance(query, int):
            return {(a, (query, a)): chance for a, chance in enumerate(self.first[query])}
        if isinstance(state, tuple) and query == "more":
            bit, answer = state
            return {(a, "end"): chance for a, chance in enumerate(self.then[bit][answer])}
        return {(None, "end"): ONE}


def interactive(rng: random.Random) -> Answering:
    """A data set answered at random, and one query more whose law depends on the data set and the first answer."""
    then = tuple(tuple(draw(rng) for _ in range(2)) for _ in (0, 1))
    return Answering((draw(rng), draw(rng)), then)


@pytest.mark.parametrize(("order", "seed"), [(2, 0), (5, 2)])
def test_renyi_sums_are_met_at_whole_orders(order: int, seed: int) -> None:
    """[HSV] Thm 13.6 with equality; the twin that books the dearest touched part only is below."""
    rng = random.Random(seed)
    machines = (interactive(rng), interactive(rng))
    moments = [exact_moment(m, DATA_FIRST, order, 2) for m in machines]
    assert all(isinstance(m, Fraction) and m > 1 for m in moments)
    exact = exact_moment(
        FiniteComposition(machines), SparsePairs((DATA_FIRST,) * 2, (2, 1), 2), order, 6
    )
    a, b = (Fraction(m) for m in moments)
    assert exact == max(a * a, a * b)  # two of the first kind or one of each, whichever is worse
    claims: list[Measure] = [RenyiDP(Fraction(order), logarithm(m) / (order - 1)) for m in (a, b)]
    result = derived(claims, (2, 1))
    assert isinstance(result, RenyiDP)
    promised = Interval.of((order - 1) * result.epsilon).exp().upper
    assert exact <= promised <= exact * (1 + UP)
    assert exact > max(a, b) * (1 + UP)  # the twin
