"""Tables against `decimal`: the cuts, their first 64 bits, and the words that do not decide."""

from collections.abc import Iterable
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from stream_dp.noise.samplers import (
    Cuts,
    DigitCuts,
    GeometricCuts,
    Interval,
    LaplaceCuts,
    Split,
    Table,
    decided_floor,
    exact_floor,
)

SCALES = [Fraction(1, 1000), Fraction(1, 3), Fraction(1), Fraction(5, 2), Fraction(7), Fraction(96)]
WIDTH = 256
LAST = (1 << 64) - 1


class Script:
    """A hand-made source: gives these words, counts them, and fails after the last one."""

    def __init__(self, words: Iterable[int]) -> None:
        self._words = list(words)
        self.used = 0

    def word(self) -> int:
        self.used += 1
        return self._words[self.used - 1]


def laplace_cuts(scale: Fraction) -> LaplaceCuts:
    split = Split.of(scale)
    return LaplaceCuts(split.rate, split.top_step, split.reach)


def decimal_exp(x: Fraction) -> Decimal:
    return (-Decimal(x.numerator) / Decimal(x.denominator)).exp()


def laplace_cdf(scale: Fraction, x: int) -> Decimal:
    """P[X <= x], summed from the mass function (1 - a) / (1 + a) * a^|x|."""
    a = decimal_exp(1 / scale)
    if x < 0:
        return decimal_exp(-x / scale) / (1 + a)
    return 1 - decimal_exp((x + 1) / scale) / (1 + a)


def check(cuts: Cuts, expected: list[Decimal]) -> None:
    """All three ways to a cut agree with the expected values, to 58 digits at least."""
    together = cuts.all_cuts(WIDTH)
    floors = Table(cuts)._floors
    assert cuts.size == len(together) == len(expected) == len(floors)
    for index, value in enumerate(expected):
        for low, high in (together[index], cuts.cut(index, WIDTH)):
            assert low - 2**40 <= value * 2**WIDTH <= high + 2**40  # decimal: 75 digits of 77
            assert high - low < 1 << 60
        assert floors[index] == int(value * 2**64) == exact_floor(cuts, index, 64)


@pytest.mark.parametrize("scale", SCALES[1:])
def test_laplace_cuts_are_its_distribution_function(scale: Fraction) -> None:
    with localcontext() as context:
        context.prec = 90
        cuts = laplace_cuts(scale)
        check(cuts, [laplace_cdf(scale, i - cuts.reach - 1) for i in range(cuts.size)])


@pytest.mark.parametrize("scale", SCALES[1:])
def test_geometric_cuts_are_its_distribution_function(scale: Fraction) -> None:
    with localcontext() as context:
        context.prec = 90
        cuts = GeometricCuts(1 / scale, Split.of(scale).reach)
        check(cuts, [1 - decimal_exp((i + 1) / scale) for i in range(cuts.size)])


@pytest.mark.parametrize("step", [Fraction(1, 2), Fraction(1, 700), Fraction(1, 2**40)])
def test_digit_cuts_are_the_normalised_mass(step: Fraction) -> None:
    with localcontext() as context:
        context.prec = 90
        mass = [decimal_exp(i * step) for i in range(64)]
        check(
            DigitCuts(step, 64),
            [sum(mass[: i + 1], Decimal(0)) / sum(mass, Decimal(0)) for i in range(63)],
        )


def test_floors_are_decided_or_not() -> None:
    assert decided_floor((16, 31), 8, 4) == 1
    assert decided_floor((16, 32), 8, 4) is None
    assert decided_floor((-5, 3), 8, 4) == 0  # the cut itself is above 0
    assert decided_floor((250, 260), 8, 4) == 15  # and below 1


class Vague(GeometricCuts):
    """Cuts known only to within a quarter of [0, 1) until 1000 bits are asked for."""

    def cut(self, index: int, width: int) -> Interval:
        low, high = super().cut(index, width)
        return (low, high) if width > 1000 else (low - (1 << width - 3), high + (1 << width - 3))


def test_a_floor_is_asked_for_until_it_is_decided() -> None:
    exact = GeometricCuts(Fraction(1, 3), 42)
    assert exact_floor(Vague(Fraction(1, 3), 42), 5, 64) == exact_floor(exact, 5, 64)


@pytest.mark.parametrize("scale", SCALES)
def test_a_word_that_equals_a_cut_is_decided_by_the_next_bits(scale: Fraction) -> None:
    cuts = laplace_cuts(scale)
    table = Table(cuts)
    index = cuts.reach - 1 if scale >= 1 else 0  # in a narrow one several cuts share their bits
    depth = 64 * 50
    number = exact_floor(cuts, index, depth)
    word, *rest = [number >> (depth - 64 * (k + 1)) & LAST for k in range(50)]
    other = next(k for k, part in enumerate(rest) if 0 < part < LAST)
    for change, cell in ((-1, index), (1, index + 1)):
        script = Script([*rest[:other], rest[other] + change])
        assert table.cell(word, script) == cell
        assert script.used == other + 1


def test_three_words_deep() -> None:
    cuts = laplace_cuts(Fraction(5, 2))
    deep = exact_floor(cuts, 7, 256)
    parts = [deep >> shift & LAST for shift in (192, 128, 64, 0)]
    script = Script([parts[1], parts[2], parts[3] + 1])
    assert Table(cuts).cell(parts[0], script) == 8
    assert script.used == 3


def test_other_words_decide_alone() -> None:
    cuts = laplace_cuts(Fraction(7))
    table = Table(cuts)
    for index, floor in enumerate(table._floors):
        assert table.cell(floor - 1, Script([])) == index
        assert table.cell(floor + 1, Script([])) == index + 1


@pytest.mark.parametrize("scale", SCALES)
def test_arrays_agree_with_single_words(scale: Fraction) -> None:
    table = Table(laplace_cuts(scale))
    floors = table._sorted
    words = np.concatenate(
        [
            floors,
            floors[floors < LAST] + np.uint64(1),
            floors[floors > 0] - np.uint64(1),
            np.array([0, 1, 1 << 63, LAST], dtype=np.uint64),
            np.random.default_rng(1).integers(0, LAST, 20_000, dtype=np.uint64, endpoint=True),
        ]
    )
    cells, undecided = table.cells(words)
    assert undecided.tolist() == np.flatnonzero(np.isin(words, floors)).tolist()
    decided = np.setdiff1d(np.arange(len(words)), undecided)
    none = Script([])
    assert cells[decided].tolist() == [table.cell(word, none) for word in words[decided].tolist()]


@pytest.mark.parametrize("count", [1, 1 << 15 | 1])
def test_tables_have_a_size(count: int) -> None:
    with pytest.raises(ValueError, match="cuts"):
        Table(DigitCuts(Fraction(1, 9), count))
