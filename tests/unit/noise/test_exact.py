"""Enclosures of exp(-x) against `decimal`, and the directed operations made from them."""

from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.noise import samplers

RATIONALS = st.fractions(min_value=0, max_value=60, max_denominator=10**12)


def scaled_exp(x: Fraction, width: int) -> Decimal:
    """2^width * exp(-x) to 120 digits."""
    with localcontext() as context:
        context.prec = 120
        value = Decimal(x.numerator) / Decimal(x.denominator)
        return (-value).exp() * Decimal(2) ** width


@given(x=RATIONALS, width=st.integers(16, 200))
def test_exp_is_enclosed_and_narrow(x: Fraction, width: int) -> None:
    low, high = samplers.exp_neg(x, width)
    assert low <= scaled_exp(x, width) <= high
    assert high - low <= 3


@pytest.mark.parametrize("x", [Fraction(1, 10**400), Fraction(1, 2**40), Fraction(10**400)])
def test_extreme_exponents_cost_nothing(x: Fraction) -> None:
    low, high = samplers.exp_neg(x, 160)
    assert 0 <= low <= scaled_exp(x, 160) <= high <= 1 << 160
    assert high - low <= 3


@given(x=RATIONALS, y=RATIONALS)
def test_operations_enclose(x: Fraction, y: Fraction) -> None:
    width = 100
    a, b = samplers.exp_neg(x, width), samplers.exp_neg(y, width)
    with localcontext() as context:
        context.prec = 120
        one = Decimal(2) ** width
        p, q = scaled_exp(x, width), scaled_exp(y, width)
        for found, value in (
            (samplers.multiply(a, b, width), p * q / one),
            (samplers.divide(a, samplers.one_plus(b, width), width), p * one / (one + q)),
            (samplers.complement(a, width), one - p),
            (samplers.powers(a, 5, width)[5], (p / one) ** 5 * one),
        ):
            assert found[0] <= value <= found[1]
            assert found[1] - found[0] <= 30


def test_a_divisor_that_may_be_zero_tells_nothing() -> None:
    assert samplers.divide((1, 2), (0, 3), 8) == (0, 256)
