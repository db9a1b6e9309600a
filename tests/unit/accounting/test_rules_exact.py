"""Rules of compositions with deltas, kinds and groups on small instances against `exact_delta`: met, never below.

An instance of every rule is in `stream_dp.verify.exact_checks`, which `test_exact_checks` compares. The known-broken
twins here book less than the exact delta somewhere.
"""

import itertools
import math
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
from stream_dp.accounting.optimal import least_epsilon
from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.situations import Fixed, Group, Parallel, Situation, Touched
from stream_dp.core.composition import Create
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import (
    ZCDP,
    ApproxDP,
    GaussianDP,
    Guarantee,
    Measure,
    PureDP,
    RenyiDP,
    differential_privacy,
)
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.relation import Claim
from stream_dp.core.row_relations import Stream, event
from stream_dp.errors import NotDerivable
from stream_dp.verify.exact.enumeration import Lawful
from stream_dp.verify.exact.exact_delta import exact_delta, exact_moment
from stream_dp.verify.exact.exact_sparse_vector import AboveThreshold
from stream_dp.verify.exact.finite import (
    BIT_PAIRS,
    DifferAtMost,
    FirstPair,
    Law,
)
from stream_dp.verify.exact.randomized_response import (
    Ladder,
    LateResponse,
    LeakyBit,
    RandomizedResponse,
)
from stream_dp.verify.exact_checks.instance import logarithm, private, ratio, related
from stream_dp.verify.relations.creation import approximate
from stream_dp.verify.relations.pair_conditions import k_sparse_first_pair
from stream_dp.verify.relations.streams import StaticDataSet

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


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_group_rule_is_met_and_k_delta_is_caught(k: int) -> None:
    """(e, d) for one event and exactly (k e, d (e^(ke) - 1) / (e^e - 1)) for k; the twin books (k e, k d)."""
    odds, delta = TWO, Fraction(1, 1000)
    machine = Ladder(odds, delta)
    for x in range(k):
        assert exact_delta(machine, FirstPair(((x, x + 1),)), odds, 1) == delta
    exact = exact_delta(machine, FirstPair(((0, k),)), odds**k, 1)
    group = derive((part(odds, delta),), Group("user", k))
    result = differential_privacy(group.guarantee.measure)
    assert group.guarantee.group == k
    assert result.epsilon == k * logarithm(odds)
    assert exact <= result.delta <= exact * ROUND
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


def test_what_is_not_first_pair_consistent_is_not_created() -> None:
    """A stream of rows may differ later; f_(inf, FPC) refuses its creation, and the accounting refuses the rule."""
    relation = k_sparse_first_pair([(ONE, ZERO)], approximate, lambda _: True)
    machine: Any = Lawful(RandomizedResponse(TWO))
    data = Create(machine, Claim(PureDP(ONE), StaticDataSet(related)))
    stream = Create(machine, Claim(PureDP(ONE), Stream(event(ADD, 1))))
    assert relation.accept(data, data) is not None
    assert relation.accept(stream, stream) is None
    for measure in (RenyiDP(Fraction(2), Fraction(1)), ZCDP(Fraction(1)), GaussianDP(Fraction(1))):
        premise = leaf("stream", Guarantee(measure, ADD, finite=True), "its proof")
        situation = Parallel("parts", Touched(1, ADD, "one"), (2,))
        with pytest.raises(NotDerivable, match="first-pair consistent"):
            derive((premise,), situation)
