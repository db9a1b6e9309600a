"""Tables and the arithmetic below them, against `decimal`: enclosures, cuts, first bits, words that do not decide."""

from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.noise.words import LAST, Script, floor_of

from stream_dp.noise import stream as samplers
from stream_dp.noise.stream import (
    Cuts,
    Interval,
    Split,
    Table,
    decided_floor,
    digit_cuts,
    exact_floor,
    geometric_cuts,
    laplace_cuts,
)

RATIONALS = st.fractions(min_value=0, max_value=60, max_denominator=10**12)
SCALES = [Fraction(1, 1000), Fraction(1, 3), Fraction(5, 2), Fraction(96)]
WIDTH = 256


def decimal_exp(x: Fraction) -> Decimal:
    return (-Decimal(x.numerator) / Decimal(x.denominator)).exp()


def scaled_exp(x: Fraction, width: int) -> Decimal:
    """2^width * exp(-x) to 120 digits."""
    with localcontext() as context:
        context.prec = 120
        return decimal_exp(x) * Decimal(2) ** width


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
        for enclosure, value in (
            (samplers.multiply(a, b, width), p * q / one),
            (samplers.divide(a, samplers.one_plus(b, width), width), p * one / (one + q)),
            (samplers.complement(a, width), one - p),
            (samplers.powers(a, 5, width)[5], (p / one) ** 5 * one),
        ):
            assert enclosure[0] <= value <= enclosure[1]
            assert enclosure[1] - enclosure[0] <= 30


def test_a_divisor_that_may_be_zero_tells_nothing() -> None:
    assert samplers.divide((1, 2), (0, 3), 8) == (0, 256)


def two_sided(scale: Fraction) -> Cuts:
    split = Split.of(scale)
    return partial(laplace_cuts, split.rate, split.top_step, split.reach)


def laplace_cdf(scale: Fraction, x: int) -> Decimal:
    """P[X <= x], summed from the mass function (1 - a) / (1 + a) * a^|x|."""
    a = decimal_exp(1 / scale)
    if x < 0:
        return decimal_exp(-x / scale) / (1 + a)
    return 1 - decimal_exp((x + 1) / scale) / (1 + a)


def check(cuts: Cuts, expected: list[Decimal]) -> None:
    """The cuts are the expected values, to 58 digits at least, and a table keeps their floors."""
    floors = Table(cuts)._floors
    assert len(expected) == len(floors)
    for (low, high), value, floor in zip(cuts(WIDTH), expected, floors, strict=True):
        assert low - 2**40 <= value * 2**WIDTH <= high + 2**40  # decimal: 75 digits of 77
        assert high - low < 1 << 60
        assert floor == int(value * 2**64)


@pytest.mark.parametrize("scale", SCALES[1:])
def test_cuts_are_the_distribution_functions(scale: Fraction) -> None:
    with localcontext() as context:
        context.prec = 90
        reach = Split.of(scale).reach
        check(two_sided(scale), [laplace_cdf(scale, x) for x in range(-reach - 1, reach)])
        side = partial(geometric_cuts, 1 / scale, reach)
        check(side, [1 - decimal_exp((i + 1) / scale) for i in range(reach)])


@pytest.mark.parametrize("step", [Fraction(1, 2), Fraction(1, 2**40)])
def test_digit_cuts_are_the_normalised_mass(step: Fraction) -> None:
    with localcontext() as context:
        context.prec = 90
        mass = [decimal_exp(i * step) for i in range(64)]
        shares = [sum(mass[: i + 1], Decimal(0)) / sum(mass, Decimal(0)) for i in range(63)]
        check(partial(digit_cuts, step, 64), shares)


def test_floors_are_decided_or_not() -> None:
    assert decided_floor((16, 31), 8, 4) == 1
    assert decided_floor((16, 32), 8, 4) is None
    assert decided_floor((-5, 3), 8, 4) == 0  # the cut itself is above 0
    assert decided_floor((250, 260), 8, 4) == 15  # and below 1


def test_a_floor_is_asked_for_until_it_is_decided() -> None:
    """Of a number known only to within a quarter of [0, 1) until 1000 bits are asked for."""
    right = partial(samplers.exp_neg, Fraction(1, 3))

    def vague(width: int) -> Interval:
        low, high = right(width)
        return (low, high) if width > 1000 else (low - (1 << width - 3), high + (1 << width - 3))

    assert exact_floor(vague, 64) == exact_floor(right, 64)


@pytest.mark.parametrize("scale", SCALES)
def test_a_word_that_equals_a_cut_is_decided_by_the_next_bits(scale: Fraction) -> None:
    cuts = two_sided(scale)
    table = Table(cuts)
    # in a narrow one several cuts share their bits
    index = Split.of(scale).reach - 1 if scale >= 1 else 0
    depth = 64 * 50
    number = floor_of(cuts, index, depth)
    word, *rest = [number >> (depth - 64 * (k + 1)) & LAST for k in range(50)]
    other = next(k for k, part in enumerate(rest) if 0 < part < LAST)
    for change, cell in ((-1, index), (1, index + 1)):
        script = Script(*rest[:other], rest[other] + change)
        assert table.cell(word, script) == cell
        assert script.used == other + 1


def test_other_words_decide_alone_and_equal_ones_three_words_deep() -> None:
    cuts = two_sided(Fraction(5, 2))
    table, deep = Table(cuts), floor_of(cuts, 7, 256)
    for index, floor in enumerate(table._floors):
        assert table.cell(floor - 1, Script()) == index
        assert table.cell(floor + 1, Script()) == index + 1
    parts = [deep >> shift & LAST for shift in (192, 128, 64, 0)]
    script = Script(parts[1], parts[2], parts[3] + 1)
    assert table.cell(parts[0], script) == 8
    assert script.used == 3


@pytest.mark.parametrize("scale", SCALES)
def test_arrays_agree_with_single_words(scale: Fraction) -> None:
    table = Table(two_sided(scale))
    floors = table._sorted
    words = np.concatenate([
        floors, floors[floors < LAST] + np.uint64(1), floors[floors > 0] - np.uint64(1),
        np.array([0, 1, 1 << 63, LAST], dtype=np.uint64),
        np.random.default_rng(1).integers(0, LAST, 20_000, dtype=np.uint64, endpoint=True),
    ])  # fmt: skip
    cells, undecided = table.cells(words)
    assert undecided.tolist() == np.flatnonzero(np.isin(words, floors)).tolist()
    decided = np.setdiff1d(np.arange(len(words)), undecided)
    none = Script()
    assert cells[decided].tolist() == [table.cell(word, none) for word in words[decided].tolist()]


def test_tables_have_a_size() -> None:
    for count in (1, 1 << 15 | 1):
        with pytest.raises(ValueError, match="cuts"):
            Table(partial(digit_cuts, Fraction(1, 9), count))
