"""Quotients of intervals: against every pair of integers that the two intervals hold, and rounding that only widens."""

from decimal import Decimal
from fractions import Fraction
from itertools import product

import pytest

from stream_dp.core.quotients import Measured, quotient

SHARE = (Fraction(0), Fraction(1))


def measured(value: int, band: int, *, signed: bool = False) -> Measured:
    """A number with its band."""
    return Measured.around(Fraction(value), Fraction(band), signed=signed)


def possible(of: Measured, over: Measured) -> list[Fraction]:
    """Every quotient of two integers within their intervals, the lower one above 0: what may be the true one."""
    above = range(int(of.low), int(of.high) + 1)
    below = range(max(1, int(over.low)), int(over.high) + 1)
    return [Fraction(a, b) for a, b in product(above, below)]


def at(end: Decimal | None) -> Fraction:
    """An end that there is."""
    assert end is not None
    return Fraction(end)


CASES = [
    (of, over, bands, signed)
    for of, over in product((-7, -1, 0, 1, 9, 30), (0, 1, 4, 12, 31))
    for bands in product((0, 1, 5), (0, 3, 12))
    for signed in (False, True)
    if signed or of >= 0
]


@pytest.mark.parametrize(("of", "over", "bands", "signed"), CASES)
def test_the_interval_is_what_two_integers_can_be(
    of: int, over: int, bands: tuple[int, int], signed: bool
) -> None:
    """Both ends are reached where they are told, to the last digit; an open one may be as far as it likes."""
    above, below = measured(of, bands[0], signed=signed), measured(over, bands[1])
    found = quotient(above, below, 3)
    every = possible(above, below)
    if not every:
        return
    least, most = min(every), max(every)
    unit = Fraction(1, 1000)
    assert found.low is None or Fraction(found.low) <= least
    assert found.high is None or Fraction(found.high) >= most
    if below.low > 0:
        assert least - at(found.low) < unit
        assert at(found.high) - most < unit
    if found.low is None or found.high is None:
        assert below.low == 0
    if found.value is not None:
        assert abs(Fraction(found.value) - Fraction(of, over)) <= unit / 2
        assert found.low is None or found.low <= found.value
        assert found.high is None or found.high >= found.value


def test_an_end_is_open_only_where_the_denominator_may_be_0() -> None:
    assert quotient(measured(5, 2), measured(4, 4), 2).high is None
    assert quotient(measured(5, 2), measured(4, 4), 2).low == Decimal("0.37")
    assert quotient(measured(-5, 2, signed=True), measured(4, 4), 2).low is None
    assert quotient(measured(0, 0), measured(4, 4), 2).high == 0
    assert quotient(measured(5, 2), measured(4, 4), 2, SHARE).high == 1


def test_there_is_no_value_over_nothing() -> None:
    found = quotient(measured(3, 1), measured(0, 2), 4)
    assert (found.value, found.low, found.high) == (None, Decimal("1.0000"), None)
    assert quotient(measured(3, 1), measured(0, 0), 4).low is None


@pytest.mark.parametrize(
    ("of", "over", "digits", "told"),
    [(1, 8, 2, "0.12"), (3, 8, 2, "0.38"), (1, 3, 9, "0.333333333"), (2, 1, 1, "2.0"), (-1, 8, 2, "-0.12")],
)  # fmt: skip
def test_values_are_rounded_to_the_nearest_and_halves_to_the_even_digit(
    of: int, over: int, digits: int, told: str
) -> None:
    assert str(quotient(measured(of, 0, signed=True), measured(over, 0), digits).value) == told


def test_ends_are_rounded_outwards() -> None:
    found = quotient(measured(1, 0), measured(3, 0), 2)
    assert (str(found.low), str(found.high)) == ("0.33", "0.34")


def test_no_digit_is_lost_in_large_numbers() -> None:
    """A double would have 16 digits."""
    of = Measured.around(Fraction(10**18 + 1, 10**6), Fraction(0), signed=False)
    assert str(quotient(of, measured(1, 0), 6).value) == "1000000000000.000001"


@pytest.mark.parametrize(("of", "over"), [*product((0, 1, 7, 12), (0, 1, 5, 12))])
def test_within_bounds_the_interval_holds_what_it_held_there(of: int, over: int) -> None:
    above, below = measured(of, 3), measured(over, 4)
    found = quotient(above, below, 3, SHARE)
    inside = [each for each in possible(above, below) if each <= 1]
    assert all(at(found.low) <= each <= at(found.high) for each in inside)
    assert 0 <= at(found.low) <= at(found.high) <= 1
    assert found.value is None or at(found.low) <= found.value <= at(found.high)
