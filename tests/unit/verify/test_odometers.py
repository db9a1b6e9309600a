"""Odometers against their closed forms; the twin tuned with epsilon for 2 epsilon; inputs that are no pDP."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from stream_dp.accounting.conversions import approx_to_probabilistic
from stream_dp.accounting.filters.filter import Spend
from stream_dp.accounting.filters.linear import PureFilter
from stream_dp.accounting.ledger import truncated_odometer_at as bound_at
from stream_dp.core.guarantee import (
    ZCDP,
    ApproxDP,
    GaussianDP,
    Measure,
    ProbabilisticDP,
    PureDP,
    RenyiCurve,
    RenyiDP,
)
from stream_dp.errors import InvalidCost, NotDerivable
from stream_dp.verify.odometers import (
    Boundary,
    FilterBoundary,
    MixtureBoundary,
    Odometer,
    OneSidedMixtureBoundary,
    StitchedBoundary,
)

DELTA = Fraction(1, 10**6)
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
    tuned = FilterBoundary.tuned(Fraction(epsilon), DELTA)
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
    twin = FilterBoundary(DELTA, Fraction(y))
    assert y == pytest.approx(printed, rel=1e-3)
    assert plain(twin, twin.touching) == pytest.approx(epsilon / 2, rel=1e-9)


def test_the_printed_tuning_is_valid_but_loses_a_quarter_of_the_budget() -> None:
    tuned = FilterBoundary.tuned(Fraction(1), DELTA)
    twin = FilterBoundary(DELTA, Fraction((math.sqrt(2 * BITS + 1) - math.sqrt(2 * BITS)) ** 2))
    for v in range(1, 200):  # both lie above the fixed-time curve everywhere: neither is unsafe
        for boundary in (tuned, twin):
            assert plain(boundary, Fraction(v, 1000)) >= advanced(v / 1000) * (1 - 1e-12)

    def reaches_one(boundary: FilterBoundary) -> float:
        start, slope = plain(boundary, Fraction(0)), plain(boundary, Fraction(1))
        return (1 - start) / (slope - start)

    assert reaches_one(tuned) == pytest.approx(0.0349, abs=1e-4)
    assert reaches_one(twin) == pytest.approx(0.0265, abs=1e-4)
    assert 1 - reaches_one(twin) / reaches_one(tuned) == pytest.approx(0.24, abs=0.005)


G = Fraction(1, 10)


def test_the_curves_are_the_closed_forms_and_the_tight_ones_lie_below() -> None:
    v = 0.01 * 50
    r = 50 * 0.1 * math.tanh(0.05)
    y = float(FilterBoundary.tuned(Fraction(3), DELTA).touching)
    total, tight_total = v + 0.1, 2 * r + 0.1
    cases: list[tuple[Boundary, bool, float]] = [
        (FilterBoundary.tuned(Fraction(3), DELTA), False,
         math.sqrt(2 * y * BITS) / 2 + math.sqrt(2 * BITS) / (2 * math.sqrt(y)) * v + v / 2),
        (FilterBoundary.tuned(Fraction(3), DELTA), True,
         math.sqrt(2 * y * BITS) / 2 + math.sqrt(2 * BITS) / (2 * math.sqrt(y)) * 2 * r + r),
        (MixtureBoundary(DELTA, G), False,
         math.sqrt(2 * math.log(1e6 * math.sqrt(total / 0.1)) * total) + v / 2),
        (OneSidedMixtureBoundary(DELTA, G), True,
         r + math.sqrt(2 * tight_total * math.log(math.sqrt(tight_total / 0.1) * 5e5 + 1))),
        (StitchedBoundary(DELTA, G), False,
         1.7 * math.sqrt(v * (math.log(math.log(20 * v)) + 0.72 * math.log(5.2e6))) + v / 2),
        (StitchedBoundary(DELTA, G), True,
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
    """Tight inputs are bounded above only, so the two-sided mixture of a silent mechanism's charges is no martingale.

    At rho = .1 and M = -r, V = 2r it is sqrt(.1 / (2r + .1)) exp(r^2 / (2(2r + .1))), which grows without bound. What
    stays is that its curve lies above the one-sided one. At delta' = .9 and V = 0 it does not: sqrt(.2 ln(1/.9)) is
    below sqrt(.2 ln(1 + 1/1.8)).
    """
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
    odometer = Odometer.of(StitchedBoundary(DELTA, G)).observe(PureDP(Fraction(1)))
    bound = odometer.bound()
    assert bound is not None
    inside = math.log(math.log(20)) + 0.72 * math.log(5.2e6)
    assert 0 <= float(bound) - (1.7 * math.sqrt(inside) + 0.5) < 1e-14
    third = Odometer.of(MixtureBoundary(DELTA, G)).observe(PureDP(Fraction(1, 3)))
    assert Fraction(third.variance, 10**24) > Fraction(1, 9)


def test_nothing_finite_holds_below_the_start_or_beyond_the_deltas() -> None:
    assert Odometer.of(StitchedBoundary(DELTA, G)).observe(STEP).bound() is None
    odometer = Odometer.of(MixtureBoundary(DELTA, G), Fraction(3, 10**6))
    step = ProbabilisticDP(Fraction(1, 10), Fraction(2, 10**6))
    once = odometer.observe(step)
    assert once.bound() is not None
    assert once.observe(step).bound() is None
    assert once.drift > odometer.observe(STEP).drift  # conditioning has its price
    assert odometer.variance == 0  # an odometer is a value


def test_what_is_no_pdp_is_refused_until_it_is_converted() -> None:
    approximate = ApproxDP(Fraction(1, 10), Fraction(1, 10**8))
    odometer = Odometer.of(MixtureBoundary(DELTA, G), Fraction(1, 10**6))
    with pytest.raises(NotDerivable, match="Convert it first"):
        odometer.observe(approximate)
    converted = approx_to_probabilistic(approximate, Fraction(1, 10))
    assert odometer.observe(converted).bound() is not None
    bad: list[Measure] = [ZCDP(G), GaussianDP(G)]
    for measure in bad:
        with pytest.raises(NotDerivable):
            odometer.observe(measure)
    tight = Odometer.of(OneSidedMixtureBoundary(DELTA, G), tight=True)
    assert tight.observe(ZCDP(G)).drift == 10**23
    for measure in (approximate, converted):
        with pytest.raises(NotDerivable, match="tight"):
            tight.observe(measure)


NO_NUMBERS: list[Any] = [0, Fraction(-1), math.inf, math.nan, 0.5, None]


@pytest.mark.parametrize("number", NO_NUMBERS, ids=repr)
def test_no_odometer_has_a_bad_parameter(number: Any) -> None:
    makers: list[Callable[[], object]] = [
        lambda: FilterBoundary(DELTA, number),
        lambda: FilterBoundary(number, G),
        lambda: FilterBoundary.tuned(number, DELTA),
        lambda: FilterBoundary.tuned(G, number),
        lambda: MixtureBoundary(DELTA, number),
        lambda: MixtureBoundary(number, G),
        lambda: OneSidedMixtureBoundary(DELTA, number),
        lambda: OneSidedMixtureBoundary(number, G),
        lambda: StitchedBoundary(DELTA, number),
        lambda: StitchedBoundary(Fraction(1), G),
        lambda: bound_at(PureFilter.of(G), Spend(1), number),
    ]
    if number != 0:  # no delta of their own is the common case
        makers.append(lambda: Odometer.of(MixtureBoundary(DELTA, G), number))
    for make in makers:
        with pytest.raises(InvalidCost, match=r"an odometer cannot have .*No odometer was made"):
            make()


def test_a_curve_is_not_observed() -> None:
    """Measures refuse what is no exact number; a curve is exact, but neither pDP nor pure nor zCDP."""
    curve = RenyiCurve((RenyiDP(Fraction(2), G), RenyiDP(Fraction(3), G)))
    for tight in (False, True):
        odometer = Odometer.of(MixtureBoundary(DELTA, G), tight=tight)
        with pytest.raises(NotDerivable, match="odometer takes"):
            odometer.observe(curve)
        assert odometer == Odometer.of(MixtureBoundary(DELTA, G), tight=tight)
