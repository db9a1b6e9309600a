"""Amounts of budget as integers in units of 10^-12: costs round up, budgets round down."""

from fractions import Fraction

from stream_dp.accounting.directed import ceil_units, floor_units

UNITS = 10**12


def cost_units(amount: Fraction) -> int:
    """Return the units of an amount to be charged, rounded up.

    >>> cost_units(Fraction(1, 3))
    333333333334
    """
    return ceil_units(amount, UNITS)


def budget_units(amount: Fraction) -> int:
    """Return the units of an amount that may be spent, rounded down.

    >>> budget_units(Fraction(1, 3))
    333333333333
    """
    return floor_units(amount, UNITS)


def exact(units: int) -> Fraction:
    """Return the amount of `units` units."""
    return Fraction(units, UNITS)


def text(amount: Fraction | int) -> str:
    """Return a decimal without trailing zeros; an integer argument counts units.

    >>> text(Fraction(3, 2)), text(200000000000), text(Fraction(0)), text(Fraction(1, 3)), text(Fraction(-15, 2))
    ('1.5', '0.2', '0', '0.333333333334', '-7.5')
    """
    units = amount if isinstance(amount, int) else cost_units(amount)
    whole, rest = divmod(abs(units), UNITS)
    return f"{'-' * (units < 0)}{whole}.{rest:012d}".rstrip("0").rstrip(".")


def number(amount: Fraction | int) -> int | float:
    """Return `text`'s amount as a JSON number, for display and never for arithmetic; integers count units.

    >>> number(Fraction(2)), number(200000000000), number(Fraction(-15, 2))
    (2, 0.2, -7.5)
    """
    shown = text(amount)
    return float(shown) if "." in shown else int(shown)
