"""Checks of the numbers that filters and odometers are made with: exact, greater than 0, and a delta below 1.

Rules: a refusal names the parameter, the given value and what to do; no filter was made. This file knows no filter.
"""

from fractions import Fraction

from stream_dp.errors import InvalidCost


def exact_number(value: object) -> bool:
    """Say whether `value` is a whole number or a fraction; floats, and so infinity and NaN, are not exact."""
    return type(value) in (int, Fraction)


def budget(
    what: str, amount: Fraction, *, below: Fraction | None = None, owner: str = "a filter"
) -> Fraction:
    """Return `amount` if it is valid as the parameter `what` of `owner`.

    Raises:
        InvalidCost: the amount is not greater than 0, not below `below`, infinite, NaN or a float.
    """
    if not exact_number(amount) or amount <= 0 or (below is not None and amount >= below):
        limit = "" if below is None else f" and below {below}"
        raise InvalidCost(
            f"{owner} cannot have {what} {amount!r}: it takes an exact number greater than 0{limit} (a decimal or a "
            f"fraction, no float). No {owner.split()[-1]} was made"
        )
    return amount


def deltas(slack: Fraction, spent: Fraction) -> tuple[Fraction, Fraction]:
    """Return delta', the price of the theorem, and delta'', which may be 0, for the mechanisms' own deltas.

    Raises:
        InvalidCost: delta' is not between 0 and 1, delta'' is negative, together they are 1 or more, or one is a
            float.
    """
    budget("the delta'", slack, below=Fraction(1))
    return slack, own_delta(spent, below=1 - slack)


def own_delta(
    spent: Fraction, *, below: Fraction = Fraction(1), owner: str = "a filter"
) -> Fraction:
    """Return delta'', for the mechanisms' own deltas: 0, or a budget below `below`.

    Raises:
        InvalidCost: `spent` is neither.
    """
    none = exact_number(spent) and spent == 0
    return spent if none else budget("the delta''", spent, below=below, owner=owner)


def whole_units(what: str, units: int) -> int:
    """Return `units` of a capacity if they are at least 1; a smaller capacity would admit nothing.

    Raises:
        InvalidCost: `units` is not a whole number greater than 0.
    """
    if type(units) is not int or units <= 0:
        raise InvalidCost(
            f"a filter cannot have {what} of {units!r} units: it would admit nothing. No filter was made; "
            "name at least 10^-12"
        )
    return units
