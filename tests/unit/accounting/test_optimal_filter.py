"""The optimal filter against all answers of small randomized responses, its capacities, and what it refuses.

A ratio is e^epsilon, exactly; a charge is its logarithm rounded up to units of 10^-12, so the last units may differ.
"""

import math
import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
from oracles import optimal_filter as oracle
from oracles.compositions import closed_form
from oracles.universal import composed_delta

from stream_dp.accounting import optimal
from stream_dp.accounting.amounts import UNITS, Interval, budget_units, cost_units, exact
from stream_dp.accounting.filters.filter import NOTHING, Entry, Spend, largest
from stream_dp.accounting.filters.linear import PureFilter
from stream_dp.accounting.filters.optimal import KINDS, OptimalFilter, coarse
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.optimal import (
    grid_epsilon,
    joint_delta,
    least_epsilon,
    listed_epsilon,
    precision,
    spare,
)
from stream_dp.core.box import Box
from stream_dp.core.guarantee import ApproxDP, Protected
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import BudgetRefused, InvalidCost, NotDerivable

F = Fraction
MILLIONTH = F(1, 10**6)
WIDE = OptimalFilter.of(F(2), MILLIONTH)
BASES = [F(5, 4), F(3, 2), F(2), F(3)]
EVENT = Protected(Neighbors.ADD_REMOVE)


def log(ratio: Fraction) -> int:
    return cost_units(Interval.of(ratio).ln().upper)


def load(*epsilons: int, delta: int = 0) -> Spend:
    return Spend(sum(epsilons), delta, tuple(sorted(Counter(epsilons).items())))


def of(count: int, units: int) -> Spend:
    return load(*[units] * count)


def live(epsilon: int, delta: int = 0, name: str = "live") -> Entry:
    return Entry(name, epsilon, delta, "rule", fresh=True)


def close(ratio: Fraction, delta: Fraction, steps: int, spare: int = 0) -> OptimalFilter:
    """Return the filter with the budget (ln ratio, delta) rounded down, and `spare` units of each more."""
    log = budget_units(Fraction(Interval.of(ratio).ln().low)) + spare
    return OptimalFilter(Spend(log, budget_units(delta) + spare), steps)


def samples(steps: int) -> list[tuple[list[Fraction], Fraction, Fraction, Fraction]]:
    """Return ratios alive, a new one, and a budget, for so many steps; few or several kinds."""
    draw, drawn = random.Random(steps), []
    for _ in range(40):
        bases = draw.sample(BASES, draw.choice([1, 1, 2, 3]))
        *alive, new = (draw.choice(bases) for _ in range(draw.randint(1, 7)))
        budget, delta = draw.choice([*BASES, F(4), F(6)]), draw.choice([F(1, 50), F(1, 9), F(1, 3)])
        powers = [ratio**steps for ratio in alive]
        drawn.append((powers, new**steps, budget**steps, delta))
    return drawn


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_filter_admits_what_all_answers_admit(steps: int) -> None:
    verdicts = []
    for alive, new, ratio, delta in samples(steps):
        truth = oracle.admits(alive, new, ratio, delta, steps)
        used, more = load(*map(log, alive)), load(log(new))
        verdict = close(ratio, delta, steps).admits(used, more)
        assert truth or not verdict
        together = close(ratio, delta, steps).admits(used + more)
        assert truth or not together
        roomy = close(ratio, delta, steps, spare=len(alive) + 3)
        if oracle.root(new, steps) <= oracle.root(ratio, steps):
            assert roomy.admits(used, more) or not truth
        assert roomy.admits(used + more) or not truth
        verdicts.append(truth)
    assert 2 < sum(verdicts) < 38


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_least_epsilon_is_an_upper_bound_and_nearly_exact(steps: int) -> None:
    for alive, new, ratio, delta in samples(steps):
        ratios = tuple(sorted(oracle.root(odds, steps) for odds in (*alive, new)))
        filter_, used = close(ratio, delta, steps), load(*map(log, (*alive, new)))
        epsilon, promised = filter_.least(used).epsilon, filter_.promise.delta

        def delta_at(epsilon: Fraction) -> Fraction:
            step = Interval.of(epsilon / steps).exp().upper
            return oracle.chain(step, oracle.least_delta(ratios, step), steps)[1]  # noqa: B023

        assert epsilon <= exact(used.amount)
        assert delta_at(epsilon) <= promised
        less = epsilon - (F(20, UNITS) if steps == 1 else epsilon / 20)
        assert steps == 3 or less <= 0 or delta_at(less) > promised
        if filter_.admits(used):
            assert epsilon <= filter_.promise.epsilon


def test_a_delta_that_is_spent_is_not_there_for_the_composition() -> None:
    """RR of ratios 2 and 2 needs (3, 1/9): beside a delta of 1/10, in all 1 - (8/9) (9/10) = 1/5."""
    tenth = budget_units(F(1, 10))
    for granted, fits in ((F(1, 5) + F(1, 10**11), True), (F(1, 5) - F(1, 10**11), False)):
        filter_ = close(F(3) + F(2, 10**11), granted, 1)
        for first, second in ((0, tenth), (tenth, 0)):
            assert (
                filter_.admits(load(log(F(2)), delta=first), load(log(F(2)), delta=second)) == fits
            )
        assert (
            filter_.least(load(log(F(2)), log(F(2)), delta=tenth)).epsilon <= F(1.09861228868)
        ) == fits
    spent = load(log(F(2)), log(F(2)), delta=filter_.capacity.delta)
    assert filter_.least(spent).epsilon == exact(spent.amount)
    assert not filter_.admits(load(delta=filter_.capacity.delta), load(1, delta=1))


@pytest.mark.parametrize(("units", "count"), [(UNITS // 20, 84), (UNITS // 10, 24)])
def test_so_many_are_alive_at_once_and_after_halts_for_ever(units: int, count: int) -> None:
    ledger = Ledger.under(WIDE, protected=EVENT)
    entries = [live(units, name=str(number)) for number in range(count + 1)]
    for entry in entries[:-1]:
        ledger = ledger.charge(entry)
    assert ledger.spent <= 2 * UNITS < ledger.used.amount
    with pytest.raises(BudgetRefused, match=f"{count} asks for"):
        ledger.charge(entries[-1])
    for tick in range(1, 50):
        ledger = ledger.halt(entries[0], tick).charge(entries[0], tick)
    with pytest.raises(BudgetRefused):
        ledger.charge(entries[-1], 50)
    with pytest.raises(BudgetRefused, match="Start at that tick or later"):
        ledger.halt(entries[0], 60).charge(entries[0], 59)


def test_no_more_than_the_budget_is_spent_where_two_boxes_are_full() -> None:
    """84 of 0.05 fill a box and one of 1.9 another: the bound takes both together, but no record meets both."""
    ledger = Ledger.under(WIDE, protected=EVENT)
    for count, units, kind in (
        (84, UNITS // 20, "x"),
        (1, UNITS * 19 // 10, "y"),
        (1, UNITS // 20, "z"),
    ):
        for _ in range(count):
            box = Box((("kind", frozenset(kind)),))
            ledger = ledger.charge(replace(live(units), box=box))
    assert (ledger.spent, ledger.left) == (2 * UNITS, 0)
    assert WIDE.reached(ledger.used).amount > 3 * UNITS
    with pytest.raises(BudgetRefused, match="has spent 2 and delta 0 and has 0 and"):
        ledger.charge(live(1))


def test_forty_reach_what_is_published() -> None:
    for count, reached in ((10, 0.4992), (25, 0.9952), (40, 1.2985)):
        epsilon = WIDE.least(of(count, UNITS // 20)).epsilon
        assert abs(epsilon - F(reached)) < F(1, 10**4)


def test_of_many_kinds_neighbours_count_as_the_larger_one() -> None:
    draw = random.Random(8)
    for _ in range(60):
        epsilons = Counter(draw.choices(range(1, 40), k=draw.randint(9, 30)))
        few = coarse(epsilons.items())
        assert len(few) <= KINDS
        true, raised = (sorted(Counter(dict(it)).elements()) for it in (epsilons, few))
        assert len(true) == len(raised)
        assert all(epsilon <= larger for epsilon, larger in zip(true, raised, strict=True))
    ratios = tuple(1 + F(number, 10) for number in range(1, 10))
    used = load(*map(log, ratios))
    epsilon = close(F(9), F(1, 20), 1).least(used).epsilon
    assert epsilon < exact(used.amount)
    assert oracle.least_delta(ratios, Interval.of(epsilon).exp().upper) <= F(1, 20)


@pytest.mark.parametrize("steps", [1, 2])
def test_the_largest_request_fits_and_not_a_unit_more(steps: int) -> None:
    filter_ = OptimalFilter.of(F(2), MILLIONTH, steps)
    mixed = of(30, UNITS // 50) + of(6, UNITS // 10)  # on grids, which differ
    for used in (NOTHING, of(30, UNITS // 20), load(UNITS // 3, UNITS // 2, UNITS // 2), mixed):
        best = largest(filter_, live(UNITS), used)
        assert filter_.admits(used, filter_.cost(best))
        assert filter_.least(used + filter_.cost(best)).epsilon <= 2  # also as a whole
        assert not filter_.admits(used, filter_.cost(live(best.epsilon + 1)))
    cut = largest(WIDE, live(1, 10**9), load(1, delta=10**5))
    assert cut.delta == WIDE.capacity.delta - 10**5


@pytest.mark.parametrize("steps", [1, 3])
def test_what_the_pure_filter_admits_is_admitted_and_less_is_never_more(steps: int) -> None:
    draw, pure = random.Random(steps), PureFilter.of(F(2))
    filter_ = OptimalFilter.of(F(2), MILLIONTH, steps)
    for _ in range(6):
        *used, more = (draw.randint(1, UNITS // 2) for _ in range(draw.randint(2, 8)))
        room = UNITS * 2 - sum(used)
        if room > 0:
            assert pure.admits(load(*used), load(room))
            assert filter_.admits(load(*used), load(room))
        assert filter_.least(load(*used)).epsilon <= filter_.least(load(*used, more)).epsilon
    assert filter_.least(NOTHING) == ApproxDP(F(0), F(0))


def test_steps_take_no_delta_and_steps_are_whole() -> None:
    assert WIDE.cost(live(5, 3)) == Spend(5, 3, ((5, 1),))
    assert WIDE.cost(live(0, 3)) == Spend(0, 3)
    with pytest.raises(BudgetRefused, match="has a delta"):
        OptimalFilter.of(F(2), MILLIONTH, 2).cost(live(5, 3))
    for steps in (0, True):
        with pytest.raises(InvalidCost):
            OptimalFilter.of(F(2), MILLIONTH, steps)


# Optimal composition: against all answers listed in Fractions, the closed form and dp_accounting.


TIGHT = Fraction(1, 10**12)
DELTAS = [Fraction(1, 10**n) for n in (1, 4, 7)]
ODDS = [
    [Fraction(3)],
    [Fraction(3)] * 4,
    [Fraction(3), Fraction(7, 2), Fraction(11, 10)],
    [Fraction(21, 20)] * 3 + [Fraction(2)] * 2 + [Fraction(9, 8)],
]


def logarithm(odds: Fraction) -> Fraction:
    """ln(odds), rounded up: RR at it is no better than RR at the odds."""
    return Interval.of(odds).ln().upper


def ratio(epsilon: Fraction) -> Fraction:
    """e^epsilon, rounded down, so that the exact delta at it is not below the one at epsilon."""
    return max(Interval.of(epsilon).exp().lower, Fraction(1))


@pytest.mark.parametrize("odds", ODDS, ids=str)
@pytest.mark.parametrize("delta", DELTAS)
def test_the_least_epsilon_is_the_least(odds: list[Fraction], delta: Fraction) -> None:
    """Against every answer in Fractions: never below, and 10^-12 less would not do."""
    result = least_epsilon([logarithm(o) for o in odds], delta)
    parts = [(o, Fraction(0)) for o in odds]
    assert composed_delta(parts, ratio(result)) <= delta * (1 + Fraction(1, 10**40))
    if result > TIGHT:
        assert composed_delta(parts, ratio(result - TIGHT)) > delta


@pytest.mark.parametrize(
    ("epsilon", "delta", "k", "target", "expected"),
    [  # the numbers of dp_accounting, at parts' deltas of 1e-6, 0, 1e-8
        ("0.1", "1e-6", 30, "1.5", 0.000938424819768),
        ("0.1", "0", 100, "3", 0.00136139869483),
        ("0.5", "1e-8", 20, "5", 0.0544205817),
    ],
)
def test_kairouz_oh_viswanath(
    epsilon: str, delta: str, k: int, target: str, expected: float
) -> None:
    """At the closed form's delta the least epsilon is the target again."""
    own = [Fraction(delta)] * k
    closed = closed_form(float(epsilon), float(delta), k, float(target))
    assert closed == pytest.approx(expected, rel=1e-9)
    left = spare(Fraction(closed), joint_delta(own))
    for result in (
        least_epsilon([Fraction(epsilon)] * k, left),
        grid_epsilon(Counter([Fraction(epsilon)] * k), left),
    ):
        assert float(result) == pytest.approx(float(target), rel=1e-7)
    assert 1 - (1 - left) * (1 - joint_delta(own)) == Fraction(closed)


def different(seed: int, k: int) -> list[Fraction]:
    """k epsilons up to 1, none alike."""
    rng = random.Random(seed)
    return [Fraction(rng.randrange(1, 10**9), 10**9) for _ in range(k)]


def test_the_grid_is_never_below_the_list_and_close() -> None:
    """Different epsilons off the grid: losses are rounded up, by at most one step each."""
    epsilons = Counter(different(0, 9))
    for delta in (Fraction(1, 100), Fraction(1, 10**5)):
        exact = listed_epsilon(epsilons, delta)
        assert exact <= grid_epsilon(epsilons, delta) <= exact * Fraction(1005, 1000)
        parts = [(Fraction(math.exp(e)), Fraction(0)) for e in epsilons]
        listed = composed_delta(parts, Fraction(math.exp(exact)))
        assert float(listed) == pytest.approx(float(delta), rel=1e-9)


def test_losses_rounded_down_to_the_grid_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: the same grid, each epsilon in whole steps from below."""
    epsilons, delta = Counter(different(1, 9)), Fraction(1, 100)

    def down(parts: Counter[Fraction], points: int) -> tuple[Fraction, Counter[int]]:
        step = sum(parts.elements(), Fraction(0)) / points
        return step, Counter(math.floor(e / step) for e in parts.elements())

    monkeypatch.setattr(optimal, "_grid", down)
    assert grid_epsilon(epsilons, delta) < listed_epsilon(epsilons, delta)


def test_many_different_epsilons_go_by_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    epsilons, delta = different(5, 12), Fraction(48003, 10**6)
    with monkeypatch.context() as patched:
        patched.setattr(optimal, "listed_epsilon", None)  # 2^12 answers are too many
        result = least_epsilon(epsilons, delta)
    exact = listed_epsilon(Counter(epsilons), delta)
    assert exact <= result <= exact * Fraction(101, 100)
    with pytest.raises(NotDerivable, match="cannot be computed exactly enough"):
        grid_epsilon(Counter(epsilons), Fraction(1, 10**12))
    assert least_epsilon(epsilons, Fraction(1, 10**12)) == sum(epsilons)
    assert precision(epsilons, Fraction(1, 10**12)).endswith("so the sum is used")
    assert "of the delta set aside for floats" in precision(epsilons, delta)
    assert precision([Fraction(1)] * 9, delta).startswith("all 10 combinations of answers")


def test_never_looser_than_basic_and_corners() -> None:
    epsilons = [Fraction(1, 3), Fraction(1, 7), Fraction(0)]
    assert least_epsilon(epsilons, Fraction(0)) == Fraction(10, 21)
    assert least_epsilon(epsilons, Fraction(1, 10**300)) <= Fraction(10, 21)
    assert least_epsilon(epsilons, Fraction(1, 2)) == 0
    assert least_epsilon([], Fraction(1, 100)) == least_epsilon([Fraction(0)], Fraction(0)) == 0
    huge = [Fraction(20_000), Fraction(1)]
    assert least_epsilon(huge, Fraction(1, 2)) == 20_001
    assert least_epsilon([Fraction(200)], 1 - Fraction(1, 10**70)) <= 200  # p rounds to 1
    assert spare(Fraction(1, 100), Fraction(1, 50)) < 0
    assert spare(Fraction(1, 10), Fraction(1, 10)) == 0
