"""Exact numbers, durations and times: what is read, and that nothing is ever rounded or guessed."""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from stream_dp.records.scalars import Epsilon, Name, exact, milliseconds, moment

EPSILON: TypeAdapter[Fraction] = TypeAdapter(Epsilon)
NAME: TypeAdapter[str] = TypeAdapter(Name)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-6", Fraction(1, 10**6)), ("1.5E1", 15), ("1/3", Fraction(1, 3)), ("-0.5", Fraction(-1, 2)), ("+2", 2)],
)  # fmt: skip
def test_exact_reads_decimals_and_fractions(text: str, value: Fraction) -> None:
    assert exact(text) == value


@given(st.decimals(allow_nan=False, allow_infinity=False, places=12, min_value=0, max_value=10**6))
def test_exact_agrees_with_decimal(number: Decimal) -> None:
    assert exact(f"{number:f}") == Fraction(number)


@pytest.mark.parametrize("good", ["0.000001", "1/1000000", "100", 1, Fraction(1, 7)])
def test_epsilons_within_their_ends_are_taken(good: object) -> None:
    assert EPSILON.validate_python(good) == Fraction(str(good))


@pytest.mark.parametrize(
    ("text", "value"),
    [("1ms", 1), ("2s", 2000), ("3m", 180_000), ("1h", 3_600_000), ("1d", 86_400_000)],
)
def test_durations_have_a_unit(text: str, value: int) -> None:
    assert milliseconds(text) == value


def test_moments_have_an_offset() -> None:
    assert moment("1970-01-01T00:00:00.250Z") == 250
    assert moment("1970-01-01T01:00:00+01:00") == 0
    assert moment("1969-12-31T23:59:59Z") == -1000


@pytest.mark.parametrize("good", ["a", "0-._", "a" * 63])
def test_names_are_short_and_plain(good: str) -> None:
    assert NAME.validate_python(good) == good


REFUSED: list[tuple[Callable[[Any], Any], str, list[Any]]] = [
    (
        exact,
        "must",
        ["", " 1", "1_000", "1/0", "nan", "inf", "1e999", ".5", "٣", "1 / 3", 0.5, True, None],
    ),
    (EPSILON.validate_python, "", ["0", "-1", "0.0000009", "100.0001", 0.5, "much"]),
    (milliseconds, "unit", ["1", "1.5s", "-1s", "1 s", "s", "1w", 1.5, None, True, "９s"]),
    (moment, "offset", ["1970-01-01T00:00:00", "1970-01-01", "soon", "", None, 1.5]),
    (moment, "millisecond", ["1970-01-01T00:00:00.000001Z"]),
    (NAME.validate_python, "", ["", "A", "-a", "a/b", "a" * 64, "a\n", "é"]),
]


@pytest.mark.parametrize(
    ("read", "why", "bad"), [(read, why, bad) for read, why, values in REFUSED for bad in values]
)
def test_what_is_none_is_refused(read: Callable[[Any], Any], why: str, bad: Any) -> None:
    with pytest.raises(ValueError, match=why or None):
        read(bad)
