"""Odometers against their closed forms; the twin tuned with epsilon for 2 epsilon; inputs that are no pDP."""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

from stream_dp.accounting.conversions import approx_to_probabilistic
from stream_dp.accounting.filters.filter import Spend
from stream_dp.accounting.filters.linear import PureFilter
from stream_dp.accounting.filters.squares import TightApproximateFilter
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.ledger import truncated_odometer as truncated_bound
from stream_dp.accounting.ledger import truncated_odometer_at as bound_at
from stream_dp.accounting.situations import Alive
from stream_dp.core.guarantee import ZCDP, ApproxDP, GaussianDP, Measure, ProbabilisticDP, PureDP
from stream_dp.errors import InvalidCost, NotDerivable
from stream_dp.verify.counterexamples import DELTA, ODDS, RARE
from stream_dp.verify.exact.exact_delta import exact_delta
from stream_dp.verify.exact.finite import FirstPair
from stream_dp.verify.exact.randomized_response import RareAnswer
from stream_dp.verify.odometers import (
    Boundary,
    FilterBoundary,
    MixtureBoundary,
    Odometer,
    OneSidedMixtureBoundary,
    StitchedBoundary,
    loss_bound,
)

MILLIONTH = Fraction(1, 10**6)
BITS = math.log(1e6)
STEP = PureDP(Fraction(1, 10))


def plain(boundary: FilterBoundary, variance: Fraction) -> float:
    """The plain filter odometer at V."""
    above = boundary.above(variance)
    assert above is not None
    return float(above + variance / 2)


def advanced(variance: float) -> float:
    """Advanced composition, valid at one time only: sqrt(2 L V) + V/2."""
    return math.sqrt(2 * BITS * variance) + variance / 2


@pytest.mark.parametrize(
    ("epsilon", "ours", "printed"), [(1, 0.03494, 0.00889), (3, 0.2945, 0.0773)]
)
def test_the_filter_odometer_touches_at_epsilon_and_the_printed_one_at_half(
    epsilon: int, ours: float, printed: float
) -> None:
    tuned = FilterBoundary.tuned(Fraction(epsilon), MILLIONTH)
    assert float(tuned.touching) == pytest.approx(ours, rel=1e-3)
    assert plain(tuned, tuned.touching) == pytest.approx(epsilon, rel=1e-9)
    assert advanced(float(tuned.touching)) == pytest.approx(epsilon, rel=1e-9)
    step = Fraction(1, 10**6)
    slope = (plain(tuned, tuned.touching + step) - plain(tuned, tuned.touching)) * 1e6
    curve = (advanced(float(tuned.touching + step)) - advanced(float(tuned.touching))) * 1e6
    assert slope == pytest.approx(curve, rel=1e-4)
    if epsilon == 1:
        assert slope == pytest.approx(14.561, abs=1e-3)
    y = (math.sqrt(2 * BITS + epsilon) - math.sqrt(2 * BITS)) ** 2  # as printed
    twin = FilterBoundary(MILLIONTH, Fraction(y))
    assert y == pytest.approx(printed, rel=1e-3)
    assert plain(twin, twin.touching) == pytest.approx(epsilon / 2, rel=1e-9)


G = Fraction(1, 10)


def test_the_curves_are_the_closed_forms_and_the_tight_ones_lie_below() -> None:
    v = 0.01 * 50
    r = 50 * 0.1 * math.tanh(0.05)
    y = float(FilterBoundary.tuned(Fraction(3), MILLIONTH).touching)
    total, tight_total = v + 0.1, 2 * r + 0.1
    cases: list[tuple[Boundary, bool, float]] = [
        (FilterBoundary.tuned(Fraction(3), MILLIONTH), False,
         math.sqrt(2 * y * BITS) / 2 + math.sqrt(2 * BITS) / (2 * math.sqrt(y)) * v + v / 2),
        (FilterBoundary.tuned(Fraction(3), MILLIONTH), True,
         math.sqrt(2 * y * BITS) / 2 + math.sqrt(2 * BITS) / (2 * math.sqrt(y)) * 2 * r + r),
        (MixtureBoundary(MILLIONTH, G), False,
         math.sqrt(2 * math.log(1e6 * math.sqrt(total / 0.1)) * total) + v / 2),
        (OneSidedMixtureBoundary(MILLIONTH, G), True,
         r + math.sqrt(2 * tight_total * math.log(math.sqrt(tight_total / 0.1) * 5e5 + 1))),
        (StitchedBoundary(MILLIONTH, G), False,
         1.7 * math.sqrt(v * (math.log(math.log(20 * v)) + 0.72 * math.log(5.2e6))) + v / 2),
        (StitchedBoundary(MILLIONTH, G), True,
         1.7 * math.sqrt(2 * r * (math.log(math.log(40 * r)) + 0.72 * math.log(5.2e6))) + r),
    ]  # fmt: skip
    bounds = []
    for boundary, tight, expected in cases:
        odometer = Odometer.of(boundary, tight=tight)
        for _ in range(50):
            odometer = odometer.observe(STEP)
        bound = odometer.bound()
        assert bound is not None
        assert float(bound) == pytest.approx(expected, rel=1e-9)
        bounds.append(float(bound))
    assert all(tight < loose for loose, tight in zip(bounds[::2], bounds[1::2], strict=True))


@pytest.mark.parametrize("share", [Fraction(1, 10**6), Fraction(1, 10), Fraction(499, 1000)])
def test_the_normal_mixture_covers_tight_inputs_below_one_half(share: Fraction) -> None:
    """Its curve lies above the one-sided one, which is what stays of it; at delta' = .9 it does not."""
    for variance in (Fraction(0), G / 100, G, 100 * G):
        both, one = (
            b(share, G).above(variance) for b in (MixtureBoundary, OneSidedMixtureBoundary)
        )
        assert both is not None
        assert one is not None
        assert both >= one
    for boundary in (MixtureBoundary, OneSidedMixtureBoundary):
        with pytest.raises(InvalidCost, match="below 1/2"):
            boundary(Fraction(9, 10), G)


def test_bounds_round_up() -> None:
    """A perfect square under the root: the value is known exactly."""
    odometer = Odometer.of(StitchedBoundary(MILLIONTH, G)).observe(PureDP(Fraction(1)))
    bound = odometer.bound()
    assert bound is not None
    inside = math.log(math.log(20)) + 0.72 * math.log(5.2e6)
    assert 0 <= float(bound) - (1.7 * math.sqrt(inside) + 0.5) < 1e-14
    third = Odometer.of(MixtureBoundary(MILLIONTH, G)).observe(PureDP(Fraction(1, 3)))
    assert Fraction(third.variance, 10**24) > Fraction(1, 9)


def test_nothing_finite_holds_below_the_start_or_beyond_the_deltas() -> None:
    assert Odometer.of(StitchedBoundary(MILLIONTH, G)).observe(STEP).bound() is None
    odometer = Odometer.of(MixtureBoundary(MILLIONTH, G), Fraction(3, 10**6))
    step = ProbabilisticDP(Fraction(1, 10), Fraction(2, 10**6))
    once = odometer.observe(step)
    assert once.bound() is not None
    assert once.observe(step).bound() is None
    assert once.drift > odometer.observe(STEP).drift  # conditioning has its price
    assert odometer.variance == 0  # an odometer is a value


def test_what_is_no_pdp_is_refused_until_it_is_converted() -> None:
    approximate = ApproxDP(Fraction(1, 10), Fraction(1, 10**8))
    odometer = Odometer.of(MixtureBoundary(MILLIONTH, G), Fraction(1, 10**6))
    with pytest.raises(NotDerivable, match="Convert it first"):
        odometer.observe(approximate)
    converted = approx_to_probabilistic(approximate, Fraction(1, 10))
    assert odometer.observe(converted).bound() is not None
    bad: list[Measure] = [ZCDP(G), GaussianDP(G)]
    for measure in bad:
        with pytest.raises(NotDerivable):
            odometer.observe(measure)
    tight = Odometer.of(OneSidedMixtureBoundary(MILLIONTH, G), tight=True)
    assert tight.observe(ZCDP(G)).drift == 10**23
    for measure in (approximate, converted):
        with pytest.raises(NotDerivable, match="tight"):
            tight.observe(measure)


NO_NUMBERS: list[Any] = [0, Fraction(-1), math.inf, math.nan, 0.5, None]


@pytest.mark.parametrize("number", NO_NUMBERS, ids=repr)
def test_no_odometer_has_a_bad_parameter(number: Any) -> None:
    makers: list[Callable[[], object]] = [
        lambda: FilterBoundary(MILLIONTH, number),
        lambda: FilterBoundary(number, G),
        lambda: FilterBoundary.tuned(number, MILLIONTH),
        lambda: FilterBoundary.tuned(G, number),
        lambda: MixtureBoundary(MILLIONTH, number),
        lambda: MixtureBoundary(number, G),
        lambda: OneSidedMixtureBoundary(MILLIONTH, number),
        lambda: OneSidedMixtureBoundary(number, G),
        lambda: StitchedBoundary(MILLIONTH, number),
        lambda: StitchedBoundary(Fraction(1), G),
        lambda: bound_at(PureFilter.of(G), Spend(1), number),
    ]
    if number != 0:  # no delta of their own is the common case
        makers.append(lambda: Odometer.of(MixtureBoundary(MILLIONTH, G), number))
    for make in makers:
        with pytest.raises(InvalidCost, match=r"an odometer cannot have .*No odometer was created"):
            make()


# --- every adversary who chooses by past answers: exact, by backward recursion --------------------


Taken = tuple[tuple[int, int], ...]  # of each coin: how often tossed, how often the loss went up
Coin = tuple[
    float, float, float
]  # loss upwards, loss downwards (as a number above 0), chance of up
QUARTER = Fraction(1, 4)
HALF, TENTH = Fraction(1, 2), Fraction(1, 10)


def coin(up: float, down: float) -> Coin:
    """The coin whose losses are `up` and -`down`: the chances are those with which E exp(-L) = 1."""
    return up, down, math.expm1(down) / (math.exp(down) - math.exp(-up))


def menu(epsilon: Fraction) -> tuple[Coin, ...]:
    """RR, a coin that rarely loses much, one that often loses a little: all of this epsilon."""
    e = float(epsilon)
    return coin(e, e), coin(e, e / 5), coin(e / 5, e)


def worst_chance(coins: tuple[Coin, ...], bound: Callable[[int], float], depth: int) -> float:
    """The largest probability, over all adversaries, that the loss exceeds the bound after some toss."""

    @cache
    def best(taken: Taken) -> float:
        tosses = sum(n for n, _ in taken)
        loss = sum(k * c[0] - (n - k) * c[1] for (n, k), c in zip(taken, coins, strict=True))
        if tosses and loss > bound(tosses):
            return 1.0
        if tosses == depth:
            return 0.0
        result = 0.0
        for i, (_, _, chance) in enumerate(coins):
            n, k = taken[i]
            up, down = (best((*taken[:i], (n + 1, k + more), *taken[i + 1 :])) for more in (1, 0))
            result = max(result, chance * up + (1 - chance) * down)
        return result

    return best(((0, 0),) * len(coins))


def repeated(one: Coin, bound: Callable[[int], float], depth: int) -> float:
    """The same for one coin, forward: the mass that has exceeded the bound."""
    up, down, chance = one
    running, gone = {0: 1.0}, 0.0
    for tosses in range(1, depth + 1):
        after: dict[int, float] = {}
        for k, mass in running.items():
            for more, share in ((1, chance), (0, 1 - chance)):
                after[k + more] = after.get(k + more, 0.0) + mass * share
        over = [k for k in after if k * up - (tosses - k) * down > bound(tosses)]
        gone += sum(after.pop(k) for k in over)
        running = after
    return gone


def shown(boundary: Boundary, epsilon: Fraction, *, tight: bool) -> Callable[[int], float]:
    """What the odometer shows after so many of this epsilon; infinity where nothing finite holds."""
    kept = [Odometer.of(boundary, tight=tight)]

    @cache
    def bound(tosses: int) -> float:
        while len(kept) <= tosses:
            kept.append(kept[-1].observe(PureDP(epsilon)))
        result = kept[tosses].bound()
        return math.inf if result is None else float(result) + 1e-9

    return bound


BOUNDARIES: dict[str, Boundary] = {
    "filter": FilterBoundary.tuned(Fraction(2), QUARTER),
    "mixture": MixtureBoundary(QUARTER, HALF),
    "one-sided mixture": OneSidedMixtureBoundary(QUARTER, HALF),
    "stitched": StitchedBoundary(QUARTER, HALF),
}


@pytest.mark.parametrize("name", BOUNDARIES)
@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize("epsilon", [HALF, Fraction(1)])
def test_the_loss_exceeds_the_odometer_with_probability_delta_at_most(
    name: str, tight: bool, epsilon: Fraction
) -> None:
    bound = shown(BOUNDARIES[name], epsilon, tight=tight)
    assert worst_chance(menu(epsilon), bound, 12) <= QUARTER
    assert repeated(menu(epsilon)[0], bound, 120) <= QUARTER


def test_the_tight_filter_odometer_is_nearly_met_over_time() -> None:
    """Not vacuous: at 400 tosses of RR(1/10) more than half of delta' is used up."""
    bound = shown(FilterBoundary.tuned(Fraction(1), QUARTER), TENTH, tight=True)
    assert QUARTER / 2 < repeated(menu(TENTH)[0], bound, 400) <= QUARTER


def test_advanced_composition_read_at_all_times_is_caught() -> None:
    """The twin sqrt(2 L V) + V/2 holds at one time only."""
    bits = math.log(1 / QUARTER)

    def fixed_time(tosses: int) -> float:
        variance = tosses * 0.01
        return math.sqrt(2 * bits * variance) + variance / 2

    assert repeated(menu(TENTH)[0], fixed_time, 400) > 0.35 > QUARTER


# --- the loss of pure mechanisms that run at once: exact chances of crossing its bound ------------


FIFTH = Fraction(1, 5)


def crossing(bound: float, each: float, parts: int) -> float:
    """The chance that the loss of `parts` mechanisms, two answers of each / 2, is ever above `bound`."""
    step, truth = each / 2, 1 / (1 + math.exp(-each / 2))
    heights, crossed = {0: 1.0}, 0.0
    for _ in range(2 * parts):
        after: dict[int, float] = {}
        for height, chance in heights.items():
            for move, p in ((1, truth), (-1, 1 - truth)):
                if (height + move) * step > bound:
                    crossed += chance * p
                else:
                    after[height + move] = after.get(height + move, 0.0) + chance * p
        heights = after
    return crossed


@pytest.mark.parametrize(
    ("each", "parts"), [(Fraction(1, 2), 12), (Fraction(1, 10), 60), (Fraction(1), 6)]
)
def test_the_bound_is_crossed_seldom_enough(each: Fraction, parts: int) -> None:
    for fails in (FIFTH, Fraction(1, 20)):
        bound = loss_bound([each] * parts, fails=fails)
        assert crossing(float(bound), float(each), parts) <= fails
        assert bound <= parts * each


def test_the_price_of_half_the_epsilon_is_caught() -> None:
    """As if each of the two answers were another mechanism of which only one is counted."""
    less = loss_bound([Fraction(1, 40)] * 200, fails=FIFTH)
    assert crossing(float(less), 0.1, 200) > FIFTH


def test_a_load_that_forgets_what_was_halted_is_caught() -> None:
    less = loss_bound([Fraction(1, 10)] * 6, fails=FIFTH)
    assert crossing(float(less), 0.1, 60) > FIFTH


def test_only_what_is_alive_at_one_tick_counts_and_the_sum_is_never_exceeded() -> None:
    epsilons = [Fraction(1, 20)] * 40
    at_once = loss_bound(epsilons)
    assert loss_bound(epsilons, [Alive(0, None)] * 40) == at_once
    assert 1.75 < at_once < 1.85  # of 2
    in_turn = [Alive(n, n) for n in range(40)]
    assert loss_bound(epsilons, in_turn) == Fraction(1, 20)
    assert loss_bound([Fraction(1)]) == 1
    assert loss_bound([]) == 0


# --- (epsilon, delta)-DP in place of pDP ([WRRW] App. F) ------------------------------------------


SLACK = Fraction(1, 10_000)  # delta', far below delta
ALLOWED = SLACK + DELTA
EPSILON = Fraction(math.ceil(math.log(ODDS) * 10**12) + 1, 10**12)
PAIR = FirstPair(((0, 1), (1, 0)))


def folded(odds: Fraction, delta: Fraction) -> RareAnswer:
    """B of App. F: RR_(ln odds, delta) without the mark that says when the bit was revealed.

    Its loss ln((delta + odds) / (1 - delta)) exceeds ln odds with probability (1 - delta) odds/(1 + odds) + delta.
    """
    heads = (1 - delta) * odds / (1 + odds) + delta
    return RareAnswer(1 - heads, heads)


def odometer() -> Odometer:
    """A valid one for pDP inputs, tuned to where the loss is."""
    return Odometer.of(FilterBoundary.tuned(Fraction(45, 100), SLACK), DELTA)


def test_the_mechanisms_are_approximately_private_and_not_probabilistically() -> None:
    assert (float(ALLOWED), float(RARE.exceeds(ODDS))) == (0.01, 0.0231)
    for odds, delta in ((ODDS, DELTA), (Fraction(3), Fraction(1, 8))):
        for answer in (RARE,) if odds == ODDS else (folded(odds, delta),):
            assert exact_delta(answer, PAIR, odds, 1) == delta  # (ln odds, delta)-DP and no better
            assert answer.exceeds(odds) > 2 * delta  # and no (ln odds, delta)-pDP
    odds, delta = Fraction(3), Fraction(1, 8)
    answer = folded(odds, delta)
    assert answer.second / answer.first == (delta + odds) / (1 - delta)  # as in App. F
    assert answer.exceeds(odds) == (1 - delta) * odds / (1 + odds) + delta


def test_ours_refuses_it_and_holds_for_what_it_converts_to() -> None:
    before = odometer()
    with pytest.raises(NotDerivable, match=r"takes only pDP mechanisms, not ApproxDP.*App\. F"):
        before.observe(ApproxDP(EPSILON, DELTA))
    assert before == odometer()
    slack = Fraction(7, 10)
    converted = approx_to_probabilistic(ApproxDP(EPSILON, DELTA), slack)
    own = converted.delta + Fraction(1, 10**6)
    honest = Odometer.of(FilterBoundary.tuned(Fraction(1), SLACK), own)
    bound = honest.observe(converted).bound()
    assert bound is not None
    assert RARE.exceeds(Fraction(math.exp(bound))) <= SLACK + own


def test_the_truncated_view_needs_no_privacy_loss() -> None:
    """Its claim is (epsilon, delta)-DP itself, so it takes what the pDP odometer must refuse."""
    ledger = Ledger.under(TightApproximateFilter.of(Fraction(1), SLACK, DELTA))
    ledger = ledger.charge(ledger.ask("rare", ApproxDP(EPSILON, DELTA), "leaf"))
    shown = truncated_bound(ledger.filter, ledger.used)
    assert isinstance(shown, ApproxDP)
    ratio = Fraction(math.exp(shown.epsilon)) * (1 - Fraction(1, 10**9))
    assert exact_delta(RARE, PAIR, ratio, 1) <= shown.delta == ALLOWED
