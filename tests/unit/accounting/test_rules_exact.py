"""Every composition rule on small instances against `exact_delta`: never below, and equal where it is tight.

The known-broken twins of the rules are here too; each is below the exact delta somewhere.
"""

import itertools
import math
from fractions import Fraction

import pytest
from oracles.universal import composed_delta

from stream_dp.accounting.amounts import budget_units, cost_units
from stream_dp.accounting.derive import derive
from stream_dp.accounting.optimal import least_epsilon
from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.situations import Fixed, Group, Local, Parallel, Situation, Touched
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import ApproxDP, Guarantee, PureDP, differential_privacy
from stream_dp.core.neighbors import Neighbors
from stream_dp.verify.exact.exact_delta import exact_delta
from stream_dp.verify.exact.exact_sparse_vector import AboveThreshold
from stream_dp.verify.exact.finite import (
    BIT_PAIRS,
    DifferAtMost,
    FiniteComposition,
    FirstPair,
    SparsePairs,
)
from stream_dp.verify.exact.randomized_response import (
    ASK,
    InteractiveRandomizedResponse,
    Ladder,
    LateResponse,
    LeakyBit,
    RandomizedResponse,
)
from stream_dp.verify.exact_checks.instance import logarithm, private, ratio

ADD = Neighbors.ADD_REMOVE
ONE, ZERO, TENTH = Fraction(1), Fraction(0), Fraction(1, 10)
TIGHT = Fraction(1, 10**9)
ROUND = 1 + Fraction(1, 10**25)  # what `ratio` leaves out
THREE, TWO = Fraction(3), Fraction(2)
ONE_PAIR, ASKED = FirstPair(BIT_PAIRS), FirstPair(BIT_PAIRS, (ASK,))


def part(odds: Fraction, delta: Fraction = ZERO) -> Derivation:
    """A leaf with the guarantee of RR, IRR and the like."""
    return leaf("part", Guarantee(private(odds, delta), ADD), "proof")


def claimed(premises: tuple[Derivation, ...], situation: Situation) -> ApproxDP:
    """What is derived, as (epsilon, delta)."""
    return differential_privacy(derive(premises, situation).guarantee.measure)


GRANTED = [Fraction(1, 5), Fraction(2, 5), Fraction(3, 5)]


@pytest.mark.parametrize("delta", [ZERO, TENTH])
@pytest.mark.parametrize("granted", GRANTED)
def test_fixed_composition_is_exact(delta: Fraction, granted: Fraction) -> None:
    """[HSV] Thm 4.10 on RR of two kinds: equality, at any granted delta."""
    machine = FiniteComposition((RandomizedResponse(THREE, delta), RandomizedResponse(TWO)))
    pairs = SparsePairs((ONE_PAIR, ONE_PAIR), (1, 1), 2)
    found = claimed((part(THREE, delta), part(TWO)), Fixed("two", granted))
    assert found.delta <= granted
    assert exact_delta(machine, pairs, ratio(found.epsilon), 4) <= found.delta * ROUND
    if found.epsilon > TIGHT:
        assert exact_delta(machine, pairs, ratio(found.epsilon - TIGHT), 4) > found.delta


def test_fixed_parameters_pay_for_all_that_were_fixed() -> None:
    """[HSV] Thm 4.12: any mechanisms with parameters from the multiset, created in any order."""
    fixed = (PureDP(logarithm(THREE)), PureDP(logarithm(THREE)), PureDP(logarithm(TWO)))
    found = claimed((part(THREE),), Fixed("some", Fraction(1, 5), parameters=fixed))
    machine = FiniteComposition((RandomizedResponse(THREE), RandomizedResponse(TWO)))
    pairs = SparsePairs((ONE_PAIR, ONE_PAIR), (2, 1), 3)
    assert exact_delta(machine, pairs, ratio(found.epsilon), 6) <= found.delta
    assert exact_delta(machine, pairs, ratio(found.epsilon - TIGHT), 6) > found.delta


@pytest.mark.parametrize("created", [1, 2, 3])
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("granted", [ZERO, Fraction(1, 5)])
def test_sparse_parallel_composition_of_pure_parts_is_exact(
    created: int, k: int, granted: Fraction
) -> None:
    """[HSV] Cor 5.5: k touched of any number created."""
    machine = FiniteComposition((RandomizedResponse(THREE),))
    pairs = SparsePairs((ONE_PAIR,), (created,), k)
    found = claimed((part(THREE),), Parallel("sparse", Touched(k, ADD, "why"), (created,), granted))
    assert exact_delta(machine, pairs, ratio(found.epsilon), 2 * created) <= found.delta * ROUND
    below = exact_delta(machine, pairs, ratio(found.epsilon - TIGHT), 2 * created)
    assert below > found.delta


@pytest.mark.parametrize("created", [1, 2, 3])
@pytest.mark.parametrize("more", [ZERO, Fraction(1, 20), Fraction(1, 5)])
def test_the_delta_budget_rule_is_exact(created: int, more: Fraction) -> None:
    """[HSV] Thm 5.4 as its proof combines it, 1 - (1 - delta)(1 - delta'), on the IRR family: equality."""
    machine = FiniteComposition((LateResponse(THREE, TENTH),))
    pairs = SparsePairs((DifferAtMost((0,), ((0, 1),)),), (created,), 1)
    granted = 1 - (1 - TENTH) ** created + more
    situation = Parallel("late", Touched(1, ADD, "why"), (created,), granted)
    found = claimed((part(THREE, TENTH),), situation)
    rounds = 2 * created + 1
    assert found.delta == granted
    assert exact_delta(machine, pairs, ratio(found.epsilon), rounds) <= found.delta * ROUND
    assert exact_delta(machine, pairs, ratio(found.epsilon - TIGHT), rounds) > found.delta


@pytest.mark.parametrize("created", [2, 3])
def test_max_delta_and_touched_deltas_are_caught(created: int) -> None:
    """The twins book delta once, or for the one touched part: below the exact delta at any epsilon."""
    late, leaky = LateResponse(THREE, TENTH), LeakyBit(TENTH)
    once = SparsePairs((DifferAtMost((0,), ((0, 1),)),), (created,), 1)
    leaks = SparsePairs((DifferAtMost((0, 1), ((0, 1), (1, 0))),), (created,), 1)
    twins = {"max": TENTH, "touched": 1 - (1 - TENTH) ** once.sparsity}
    rounds = 2 * created + 1
    for booked in twins.values():  # at the touched part's whole epsilon, and far beyond it
        assert exact_delta(FiniteComposition((late,)), once, THREE, rounds) > booked
        assert exact_delta(FiniteComposition((leaky,)), leaks, Fraction(100), rounds) > booked
    ours = claimed(
        (part(ONE, TENTH),), Parallel("leaky", Touched(1, ADD, "why"), (created,), Fraction(1, 2))
    )
    assert ours.epsilon == 0
    assert exact_delta(FiniteComposition((leaky,)), leaks, ONE, rounds) == ours.delta


@pytest.mark.parametrize("granted", [TENTH, Fraction(1, 5)])
def test_first_pair_consistent_composition_costs_the_touched_part(granted: Fraction) -> None:
    """[HSV] Thm 5.14 on IRR, whose first pair decides; a local protocol (Cor 8.8) is the same."""
    machine = FiniteComposition((InteractiveRandomizedResponse(THREE, TENTH),))
    pairs, touched = SparsePairs((ASKED,), (2,), 1), Touched(1, ADD, "one user differs")
    situations: list[Situation] = [
        Parallel("first pair", touched, delta=granted, first_pair="a data set comes first"),
        Local("users", 2, touched, "a data set comes first", granted),
    ]
    for situation in situations:
        found = claimed((part(THREE, TENTH),), situation)
        assert exact_delta(machine, pairs, ratio(found.epsilon), 8) <= found.delta * ROUND
        assert exact_delta(machine, pairs, ratio(found.epsilon - TIGHT), 8) > found.delta


def test_touched_deltas_are_not_enough_for_two_of_three() -> None:
    """As above where the two twins differ: two touched parts' deltas are more than the largest, and too few."""
    machine = FiniteComposition((LeakyBit(TENTH),))
    leaks = SparsePairs((DifferAtMost((0, 1), ((0, 1), (1, 0))),), (3,), 2)
    exact = exact_delta(machine, leaks, Fraction(100), 7)
    touched, every = 1 - (1 - TENTH) ** 2, 1 - (1 - TENTH) ** 3
    assert TENTH < touched < exact == every
    situation = Parallel("leaky", Touched(2, ADD, "why"), (3,), every)
    assert claimed((part(ONE, TENTH),), situation) == ApproxDP(ZERO, every)


def test_the_worst_parameters_cover_every_adaptive_choice() -> None:
    """One RR(3) and two RR(2) may be made, two may be touched: priced as RR(3) x RR(2), also if it is the RR(2)s."""
    machine = FiniteComposition((RandomizedResponse(THREE), RandomizedResponse(TWO)))
    pairs = SparsePairs((ONE_PAIR, ONE_PAIR), (1, 2), 2)
    situation = Parallel("kinds", Touched(2, ADD, "why"), (1, 2), TENTH)
    found = claimed((part(THREE), part(TWO)), situation)
    assert exact_delta(machine, pairs, ratio(found.epsilon), 6) <= found.delta * ROUND
    assert exact_delta(machine, pairs, ratio(found.epsilon - TIGHT), 6) > found.delta


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
    """Whichever k of the kinds are touched, in whatever order."""
    kinds = ((THREE, ZERO), (TWO, TENTH), (Fraction(5, 2), Fraction(1, 20)))
    premises = tuple(part(*kind) for kind in kinds)
    touched = Touched(2, ADD, "why")
    situation = Parallel("kinds", touched, (1, None, 2), Fraction(3, 10), first_pair="data first")
    found = claimed(premises, situation)
    made = [kinds[0], kinds[1], kinds[1], kinds[2], kinds[2]]
    assert all(
        composed_delta(pair, ratio(found.epsilon)) <= found.delta * ROUND
        for pair in itertools.combinations(made, 2)
    )


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_group_rule_is_met_and_k_delta_is_caught(k: int) -> None:
    """(e, d) for one event and exactly (k e, d (e^(ke) - 1) / (e^e - 1)) for k; the twin books (k e, k d)."""
    odds, delta = TWO, Fraction(1, 1000)
    machine = Ladder(odds, delta)
    for x in range(k):
        assert exact_delta(machine, FirstPair(((x, x + 1),)), odds, 1) == delta
    exact = exact_delta(machine, FirstPair(((0, k),)), odds**k, 1)
    group = derive((part(odds, delta),), Group("user", k))
    found = differential_privacy(group.guarantee.measure)
    assert group.guarantee.group == k
    assert found.epsilon == k * logarithm(odds)
    assert exact <= found.delta <= exact * ROUND
    assert (exact > k * delta) == (k > 1)


def test_k_events_in_one_interval_are_not_k_randomized_responses() -> None:
    """THEORY 5: an alert of e_S = 0.1 and 20 events of one user in one tick, at epsilon 1.

    The twin, k RR(e_S) by Kairouz-Oh-Viswanath, says .0024; the exact delta is above .113.
    """
    k, each = 20, Fraction(1, 10)
    decay = Fraction(math.exp(-0.1)).limit_denominator(10**4)  # both noises: cost max(e1, e2)
    at_least = Fraction(math.exp(1)).limit_denominator(10**4)
    alert = AboveThreshold(decay, decay)
    exact = max(
        exact_delta(alert, FirstPair(((((0,), t), ((k,), t)),)), at_least, 1) for t in range(4, 9)
    )
    assert exact > Fraction(113, 1000)
    assert least_epsilon([each] * k, Fraction(24, 10000)) <= 1  # the twin is content with .0024
    pure = leaf("alert", Guarantee(PureDP(each), ADD), "proof")
    ours = derive((pure,), Group("user", k)).guarantee
    assert ours == Guarantee(PureDP(k * each), ADD, k)
    assert exact_delta(alert, FirstPair(((((0,), 6), ((k,), 6)),)), 1 / decay**k, 1) == 0
