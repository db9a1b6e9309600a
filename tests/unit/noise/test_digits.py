"""Samples put together from digits: every integer once, with its probability; tails; overflow."""

from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache, partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.noise.words import LAST, SEED, Script, middle_word

from stream_dp.errors import FailClosed
from stream_dp.noise.bits import BitStream
from stream_dp.noise.stream import (
    DIGIT_BITS,
    MAX_SCALE,
    TAIL_SCALES,
    TOP_SCALE,
    Cuts,
    Sampler,
    Split,
    Table,
    geometric_sampler,
    laplace_sampler,
)

WIDTH = 320


def parts(sampler: Sampler) -> list[Table]:
    return [sampler._top, *(table for table, _ in sampler._low)]


def cell_mass(table: Table, cell: int) -> Decimal:
    """The length of one cell, from its cuts to about 90 digits."""
    every = enclosed(table._cuts)
    low = every[cell - 1] if cell else 0
    high = every[cell] if cell < len(every) else 1 << WIDTH
    return Decimal(high - low) / (1 << WIDTH)


@lru_cache(maxsize=8)
def enclosed(cuts: Cuts) -> list[int]:
    return [low for low, _ in cuts(WIDTH)]


def digit_cells(sampler: Sampler, x: int) -> list[int]:
    """The cells that mean x: what the theory in `digits` says, written the other way round."""
    magnitude, cells = (x if x >= 0 else -1 - x), []
    for _, width in reversed(sampler._low):
        magnitude, digit = divmod(magnitude, 1 << width)
        cells.append(digit)
    top = magnitude if x >= 0 else -1 - magnitude
    return [top + sampler._origin, *reversed(cells)]


def mass(scale: Fraction, x: int, *, two_sided: bool) -> Decimal:
    a = (-Decimal(scale.denominator) / Decimal(scale.numerator)).exp()
    power = (-Decimal(abs(x) * scale.denominator) / Decimal(scale.numerator)).exp()
    return power * (1 - a) / (1 + a) if two_sided else power * (1 - a)


@pytest.mark.parametrize(
    "scale",
    [Fraction(1, 3), Fraction(5, 2), Fraction(200), Fraction(10**6, 7), Fraction(MAX_SCALE)],
)
@pytest.mark.parametrize("two_sided", [True, False])
def test_every_integer_has_its_probability(scale: Fraction, two_sided: bool) -> None:
    make = laplace_sampler if two_sided else geometric_sampler
    sampler = make(scale.numerator, scale.denominator)
    split = Split.of(scale)
    end = split.reach << split.shift  # the tail begins here
    spread = (end * k // 40 + k for k in range(41))
    points = [x for x in {*range(9), *spread, int(scale), end - 1} if x < end]
    with localcontext() as context:
        context.prec = 90
        for x in [*points, *(-1 - x for x in points if two_sided)]:
            cells = digit_cells(sampler, x)
            tables = parts(sampler)
            product = Decimal(1)
            for table, cell in zip(tables, cells, strict=True):
                product *= cell_mass(table, cell)
            expected = mass(scale, x, two_sided=two_sided)
            assert abs(product / expected - 1) < Decimal(10) ** -60
            words = [middle_word(t, c) for t, c in zip(tables, cells, strict=True)]
            assert sampler.one(words, Script()) == x


def test_every_integer_of_a_split_scale_is_met_once() -> None:
    """Scale 200: all pairs of digits, no integer twice, none left out, the masses add up to 1."""
    sampler = laplace_sampler(200, 1)
    top, low = parts(sampler)
    reach = sampler._reach
    firsts = [middle_word(top, cell) for cell in range(1, 2 * reach + 1)]
    seconds = [middle_word(low, cell) for cell in range(len(low._floors) + 1)]
    found = sorted(sampler.one([a, b], Script()) for a in firsts for b in seconds)
    assert found == list(range(-len(seconds) * reach, len(seconds) * reach))


@pytest.mark.parametrize("scale", [Fraction(3), Fraction(10**9)])
def test_a_tail_restarts_beyond_the_table(scale: Fraction) -> None:
    both = laplace_sampler(scale.numerator, scale.denominator)
    side = geometric_sampler(scale.numerator, scale.denominator)
    last = LAST - 1
    reach = Split.of(scale).reach
    for sampler, signs in ((both, ((last, 1), (1, -1))), (side, ((last, 1),))):
        top = parts(sampler)[0]
        five = middle_word(top, sampler._origin + 5)
        lows = [middle_word(table, 0) for table in parts(sampler)[1:]]
        for word, sign in signs:
            for again, steps in (((five,), 1), ((last, last, five), 3)):
                magnitude = (steps * reach + 5) << sampler._shift
                expected = magnitude if sign > 0 else -1 - magnitude
                assert sampler.one([word, *lows], Script(*again)) == expected
    if both._low == ():  # the sign of the fresh digit is not used: -1 - 5 has magnitude 5
        minus = middle_word(parts(both)[0], both._origin - 6)
        assert both.one([last], Script(minus)) == reach + 5


def first_of(spare: BitStream, _: int) -> BitStream:
    return spare


@settings(max_examples=40, deadline=None)
@given(scale=st.fractions(min_value=Fraction(1, 50), max_value=10**9, max_denominator=99))
def test_both_ways_of_drawing_agree_on_rare_words(scale: Fraction) -> None:
    """Arrays against one by one, with words that are cuts or tails put in by hand."""
    for sampler in (
        laplace_sampler(scale.numerator, scale.denominator),
        geometric_sampler(scale.numerator, scale.denominator),
    ):
        words = BitStream(SEED, 1).array(200 * sampler.digits).reshape(200, sampler.digits)
        words = words.copy()
        for place, table in enumerate(parts(sampler)):
            words[5 * place : 5 * place + 40 : 3, place] = table._sorted[len(table._sorted) // 2]
        words[50:60, 0] = LAST - 1
        words[60:70, 0] = 1
        spare, same = BitStream(SEED, 2), BitStream(SEED, 2)
        assert sampler.many(words, partial(first_of, spare)).tolist() == [
            sampler.one(row, same) for row in words.tolist()
        ]
        assert spare.word() == same.word()


def test_rare_words_of_many_streams_go_on_in_their_own_spare_lane() -> None:
    sampler, each = laplace_sampler(5, 2), 6
    words = BitStream(SEED, 1).array(3 * each).reshape(-1, 1).copy()
    words[::2] = LAST - 1  # tails
    lanes, same = ([BitStream(SEED, 2, lane) for lane in range(3)] for _ in range(2))
    found = sampler.many(words, lambda index: lanes[index // each]).reshape(3, each)
    for lane, part, spare in zip(found, words.reshape(3, each, 1), same, strict=True):
        assert lane.tolist() == [sampler.one(row, spare) for row in part.tolist()]
    assert [lane.word() for lane in lanes] == [lane.word() for lane in same]
    assert len({tuple(lane) for lane in found.tolist()}) == 3


@given(scale=st.fractions(min_value=Fraction(1, 10**6), max_value=MAX_SCALE))
def test_splits_keep_tables_small(scale: Fraction) -> None:
    split = Split.of(scale)
    assert sum(split.widths) == split.shift
    assert all(1 <= width <= DIGIT_BITS for width in split.widths)
    assert scale <= TOP_SCALE << split.shift
    assert split.shift == 0 or scale > TOP_SCALE << (split.shift - 1)
    assert 2 * split.reach + 1 < 1 << 12
    for (upper, _), (lower, width) in pairwise(zip(split.low_steps, split.widths, strict=True)):
        assert upper == lower * (1 << width)


def test_constants_that_recorded_seeds_depend_on() -> None:
    """A tail is too rare for golden samples to notice a change of these."""
    assert (TOP_SCALE, DIGIT_BITS, TAIL_SCALES) == (128, 12, 14)
    assert Split.of(Fraction(10**9)).widths == (11, 12)
    assert Split.of(Fraction(128)).reach == 14 * 128
    assert Split.of(Fraction(129)).reach == 903  # 14 * 129 / 2, from one low bit


def test_samples_beyond_64_bits_are_refused() -> None:
    sampler = laplace_sampler(MAX_SCALE, 1)
    largest = (1 << (63 - sampler._shift)) - 1
    low = (1 << sampler._shift) - 1
    assert np.int64(sampler._join(largest, low)) == 2**63 - 1
    assert np.int64(sampler._join(~largest, low)) == -(2**63)
    for top in (largest + 1, ~(largest + 1)):
        with pytest.raises(FailClosed, match="64 bits"):
            sampler._join(top, 0)
