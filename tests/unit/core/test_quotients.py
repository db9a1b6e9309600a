"""Quotients of noisy numbers: against every quotient of a fine grid that the widths allow, and rounding that only
widens.
"""

from decimal import Decimal
from fractions import Fraction
from itertools import product

import pytest

from stream_dp.mechanisms.quotients import Quotient, Widths, quotient

SHARE = (Fraction(0), Fraction(1))
CENTRED = (Fraction(-3), Fraction(2))
UNIT = Fraction(1, 1000)
FAR = 60
NONE = Widths(((Fraction(0), Fraction(0)),))
FINE = [Fraction(n, 8) for n in range(-8 * FAR, 8 * FAR + 1)]


def widths(*pairs: tuple[int, int]) -> Widths:
    return Widths(tuple((Fraction(a, 2), Fraction(b, 2)) for a, b in pairs))


def divided(of: int, over: int, wide: Widths, digits: int = 3, *, signed: bool = False) -> Quotient:
    return quotient(Fraction(of), Fraction(over), wide, digits, signed=signed)


def at(end: Decimal | None) -> Fraction:
    assert end is not None
    return Fraction(end)


SHAPES = [
    widths((0, 0)),
    widths((4, 3)),
    widths((10, 0), (8, 5), (3, 12)),
    widths((0, 24)),
    widths((60, 2), (20, 21), (1, 40)),
]


@pytest.mark.parametrize("wide", SHAPES)
def test_the_ends_are_those_of_all_quotients_that_the_numbers_do_not_speak_against(
    wide: Widths,
) -> None:
    for of, over, signed in product((-30, -1, 0, 5, 31), (0, 1, 12), (False, True)):
        if signed or of >= 0:
            require_ends(of, over, wide, signed)


def require_ends(of: int, over: int, wide: Widths, signed: bool) -> None:
    """Of each in turn; an end that is open or beyond the grid is one that the grid's own end lies in or far behind."""
    result = divided(of, over, wide, signed=signed)
    held = [r for r in FINE if (signed or r >= 0) and abs(of - r * over) <= wide.at(r)]
    if held:
        assert result.low is None or Fraction(result.low) <= held[0]
        assert result.high is None or Fraction(result.high) >= held[-1]
    for end, towards in ((result.low, -1), (result.high, 1)):
        if end is None:
            steep = max(b for _, b in wide.pairs)
            assert over <= steep
            continue
        beyond = Fraction(end) + towards * 2 * UNIT
        if beyond >= 0 or signed:
            assert abs(of - beyond * over) > wide.at(beyond)
    assert signed or at(result.low) >= 0
    if result.value is not None:
        assert abs(Fraction(result.value) - Fraction(of, over)) <= UNIT / 2
        assert result.low is None or result.low <= result.value
        assert result.high is None or result.high >= result.value


@pytest.mark.parametrize("wide", SHAPES)
def test_within_bounds_the_interval_holds_what_it_held_there(wide: Widths) -> None:
    for of, over, (within, signed) in product(
        (-31, 0, 7, 45), (0, 5), ((SHARE, False), (CENTRED, True))
    ):
        if of < 0 and not signed:
            continue
        result = quotient(Fraction(of), Fraction(over), wide, 3, signed=signed, within=within)
        least, most = within
        inside = [r for r in FINE if least <= r <= most and abs(of - r * over) <= wide.at(r)]
        assert all(at(result.low) <= each <= at(result.high) for each in inside)
        assert least <= at(result.low) <= at(result.high) <= most
        assert result.value is None or at(result.low) <= result.value <= at(result.high)
        if inside and at(result.low) > least:
            assert inside[0] - at(result.low) < Fraction(1, 8) + UNIT
        if inside and at(result.high) < most:
            assert at(result.high) - inside[-1] < Fraction(1, 8) + UNIT


def test_an_end_is_open_only_where_the_denominator_may_be_0() -> None:
    wide = widths((4, 8))
    assert divided(5, 4, wide, 2).high is None
    assert divided(5, 4, wide, 2).low == Decimal("0.37")
    assert divided(-5, 4, wide, 2, signed=True).low is None
    assert quotient(Fraction(5), Fraction(4), wide, 2, signed=False, within=SHARE).high == 1


def test_there_is_no_value_over_nothing() -> None:
    result = divided(3, 0, widths((2, 4)), 4)
    assert (result.value, result.low, result.high) == (None, Decimal("1.0000"), None)
    assert divided(3, 0, NONE, 4).value is None


@pytest.mark.parametrize(
    ("of", "over", "digits", "expected"),
    [(1, 8, 2, "0.12"), (3, 8, 2, "0.38"), (1, 3, 9, "0.333333333"), (2, 1, 1, "2.0"), (-1, 8, 2, "-0.12")],
)  # fmt: skip
def test_values_are_rounded_to_the_nearest_and_halves_to_the_even_digit(
    of: int, over: int, digits: int, expected: str
) -> None:
    assert str(divided(of, over, NONE, digits, signed=True).value) == expected


@pytest.mark.parametrize(("of", "expected"), [(1, ("0.33", "0.34")), (-1, ("-0.34", "-0.33"))])
def test_ends_are_rounded_outwards(of: int, expected: tuple[str, str]) -> None:
    result = divided(of, 3, NONE, 2, signed=True)
    assert (str(result.low), str(result.high)) == expected


def test_no_digit_is_lost_in_large_numbers() -> None:
    """A double would have 16 digits."""
    result = quotient(Fraction(10**18 + 1, 10**6), Fraction(1), NONE, 6, signed=False)
    assert str(result.value) == str(result.low) == str(result.high) == "1000000000000.000001"
    many = quotient(Fraction(10**30 + 1, 10**9), Fraction(1), NONE, 9, signed=False)
    assert str(many.value) == "1000000000000000000000.000000001"


def test_widths_of_units_are_widths_of_numbers() -> None:
    wide = widths((4, 3), (1, 7)).scaled(Fraction(1, 100), Fraction(5))
    assert wide.pairs == ((Fraction(2, 100), Fraction(15, 2)), (Fraction(1, 200), Fraction(35, 2)))
