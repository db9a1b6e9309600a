"""Exact numbers, durations and times: what is read, and that nothing is ever rounded or guessed."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from stream_dp.records.scalars import Epsilon, Name, exact, milliseconds, moment

EPSILON: TypeAdapter[Fraction] = TypeAdapter(Epsilon)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", Fraction(2)),
        ("0.1", Fraction(1, 10)),
        ("1e-6", Fraction(1, 10**6)),
        ("1.5E1", Fraction(15)),
        ("1/3", Fraction(1, 3)),
        ("-0.5", Fraction(-1, 2)),
        ("+2", Fraction(2)),
    ],
)
def test_exact_reads_decimals_and_fractions(text: str, value: Fraction) -> None:
    assert exact(text) == value


@given(st.decimals(allow_nan=False, allow_infinity=False, places=12, min_value=0, max_value=10**6))
def test_exact_agrees_with_decimal(number: Decimal) -> None:
    assert exact(f"{number:f}") == Fraction(number)


@pytest.mark.parametrize(
    "bad",
    ["", " 1", "1_000", "1/0", "nan", "inf", "1e999", ".5", "٣", "1 / 3", 0.5, True, None, []],
)
def test_exact_refuses(bad: object) -> None:
    with pytest.raises(ValueError, match="must"):
        exact(bad)


@pytest.mark.parametrize("good", ["0.000001", "1/1000000", "100", "1/3", 1, Fraction(1, 7)])
def test_epsilon_in_range(good: object) -> None:
    assert EPSILON.validate_python(good) == Fraction(str(good))


@pytest.mark.parametrize("bad", ["0", "-1", "0.0000009", "100.0001", "1e9", 0.5, "much"])
def test_epsilon_out_of_range(bad: object) -> None:
    with pytest.raises(ValidationError):
        EPSILON.validate_python(bad)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1ms", 1), ("2s", 2000), ("3m", 180_000), ("1h", 3_600_000), ("1d", 86_400_000)],
)
def test_durations(text: str, value: int) -> None:
    assert milliseconds(text) == value


@pytest.mark.parametrize("bad", ["1", "1.5s", "-1s", "1 s", "s", "1w", 1.5, None, True, "９s"])
def test_durations_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="unit"):
        milliseconds(bad)


def test_moments() -> None:
    assert moment("1970-01-01T00:00:00.250Z") == 250
    assert moment("1970-01-01T01:00:00+01:00") == 0
    assert moment("1969-12-31T23:59:59Z") == -1000


@pytest.mark.parametrize("bad", ["1970-01-01T00:00:00", "1970-01-01", "soon", "", None, 1.5])
def test_moments_need_an_offset(bad: object) -> None:
    with pytest.raises(ValueError, match="offset"):
        moment(bad)


def test_moments_are_whole_milliseconds() -> None:
    with pytest.raises(ValueError, match="millisecond"):
        moment("1970-01-01T00:00:00.000001Z")


@pytest.mark.parametrize("bad", ["", "A", "-a", "a/b", "a" * 64, "a\n", "é"])
def test_names_refused(bad: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Name).validate_python(bad)


@pytest.mark.parametrize("good", ["a", "0-._", "a" * 63])
def test_names(good: str) -> None:
    assert TypeAdapter(Name).validate_python(good) == good
