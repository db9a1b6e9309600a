"""The discrete Gaussian: every integer has its probability, exactly; both ways of drawing agree; rare ways are right.

What a word decides is compared with `oracles.gaussian`, which knows neither tables nor blocks. Broken twins (a block's
own mass, no coin, a tail without one) are caught by the same comparison.
"""

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.gaussian import exp_enclosed, floor_exp, mass, weight, weights
from unit.noise.words import LAST, SEED, Script, middle_word

from stream_dp.errors import FailClosed
from stream_dp.noise.bits import BitStream
from stream_dp.noise.stream import (
    BLOCKS,
    COIN_BITS,
    LARGEST,
    LOW_BITS,
    MAX_VARIANCE,
    TAIL_DEVIATIONS,
    Blocks,
    GaussianSampler,
    below_exp_neg,
    gaussian_cuts,
    gaussian_sampler,
)

WIDTH = 256
FINE = Fraction(1, 10**50)
ONE_BLOCK = [Fraction(1, 10**6), Fraction(1, 3), Fraction(40)]
SPLIT = [Fraction(BLOCKS**2 + 1), Fraction(3 * 10**20, 7), Fraction(MAX_VARIANCE)]


def cell_masses(blocks: Blocks) -> list[Fraction]:
    cuts = [0, *(low for low, _ in gaussian_cuts(blocks, WIDTH)), 1 << WIDTH]
    return [Fraction(high - low, 1 << WIDTH) for low, high in pairwise(cuts)]


@pytest.mark.parametrize("variance", ONE_BLOCK)
def test_every_integer_has_its_probability(variance: Fraction) -> None:
    """Up to a deviation of 256 a cell is an integer: its length is its mass, once the tails' coins are thrown."""
    sampler = GaussianSampler(variance)
    reach, lengths = sampler._blocks.reach, cell_masses(sampler._blocks)
    unit = lengths[reach + 1]  # of the integer 0, whose weight is 1
    tails = weights(reach, variance)[0] + weights(reach + 1, variance)[0]
    refused = lengths[0] + lengths[-1] - unit * tails
    assert 0 <= refused < Fraction(1, 10**12)
    for x in {0, 1, -1, reach - 1, -reach, reach // 2}:
        length = lengths[x + reach + 1]
        low, high = mass(x, variance)
        assert low - FINE <= length / (1 - refused) <= high + FINE
        if low > Fraction(1, 2**60):
            assert sampler.one([middle_word(sampler._top, x + reach + 1)], Script()) == x


@pytest.mark.parametrize("variance", SPLIT)
def test_a_block_and_its_coin_make_the_weight(variance: Fraction) -> None:
    """Length of the cell times exp(-y) is exp(-x^2 / 2v), up to one factor: at the blocks' ends and in between."""
    sampler = GaussianSampler(variance)
    blocks, lengths = sampler._blocks, cell_masses(sampler._blocks)
    unit = lengths[blocks.reach + 1]
    for top in (0, -1, 1, -2, 200, -201, 900, -901):
        length = lengths[top + blocks.reach + 1] / unit
        block, sign = (top, 0) if top >= 0 else (~top, 1)
        low, high = weight(blocks.least(block, sign), variance)
        assert low - FINE <= length <= high + FINE


def check_coin(make: Callable[[Fraction], GaussianSampler], variance: Fraction) -> None:
    """The first word's block, the second word's integer and coin: taken if and only if the coin is below exp(-y)."""
    sampler = make(variance)
    blocks = sampler._blocks
    shift, bits = blocks.shift, 64 - blocks.shift
    for top in (0, -1, 3, -4, 300, -301, 1000, -1001):
        word = middle_word(sampler._top, top + blocks.reach + 1)
        for low in (0, 1, (1 << shift) // 3, (1 << shift) - 1):
            magnitude = ((top if top >= 0 else ~top) << shift) + low
            x = magnitude if top >= 0 else ~magnitude
            least = blocks.least(top if top >= 0 else ~top, int(top < 0))
            y = Fraction(x * x - least * least) / (2 * variance)
            border = floor_exp(y, bits) if y else 1 << bits
            for coin, taken in ((0, True), (border - 1, True), (border + 1, False)):
                if coin >= 1 << bits:
                    continue
                found = sampler._proposed([word, low << bits | coin], Script())
                assert found == (x if taken else None), (top, low, coin - border)
            if (
                border < 1 << bits
            ):  # the first bits of the coin are those of exp(-y): one word more decides
                after = floor_exp(y, bits + 64) & (LAST)
                for more, taken in ((after - 1, True), (after + 1, False)):
                    found = sampler._proposed([word, low << bits | border], Script(more))
                    assert found == (x if taken else None)


@pytest.mark.parametrize("variance", SPLIT)
def test_the_coin_is_exact_to_its_last_bit(variance: Fraction) -> None:
    check_coin(GaussianSampler, variance)


class NoCoin(GaussianSampler):
    """A twin: every proposal is taken, so blocks are flat."""

    def _taken(self, least: int, low: int, coin: tuple[int, int], spare: object) -> bool:
        return True


class Linear(GaussianSampler):
    """A twin: the quick way out decides alone."""

    def _taken(self, least: int, low: int, coin: tuple[int, int], spare: object) -> bool:
        known, bits = coin
        return Fraction(known + 1, 1 << bits) <= 1 - self._blocks.lost(low * (2 * least + low))


@pytest.mark.parametrize("twin", [NoCoin, Linear])
def test_a_broken_coin_is_caught(twin: type[GaussianSampler]) -> None:
    with pytest.raises(AssertionError):
        check_coin(twin, SPLIT[1])


@pytest.mark.parametrize("variance", [Fraction(2), Fraction(10**9)])
@pytest.mark.parametrize("sign", [0, 1])
def test_a_tail_is_its_envelope_and_a_coin(variance: Fraction, sign: int) -> None:
    """Beyond the table: blocks by a geometric coin, and the last coin makes up for what its exponent lacks."""
    sampler = GaussianSampler(variance)
    blocks = sampler._blocks
    reach, shift = blocks.reach, blocks.shift
    lengths, least = cell_masses(blocks), blocks.least(reach, sign)
    again = exp_enclosed(Fraction(least << shift) / variance)[0]
    unit = lengths[reach + 1]
    expected = unit * weight(least, variance)[0] / (1 - again)
    length = lengths[0 if sign else -1]
    assert abs(length / expected - 1) < Fraction(1, 10**30)
    word = 1 if sign else LAST - 1
    low = (1 << shift) // 5
    words = [word, low << (64 - shift)] if shift else [word]
    for beyond in (0, 1, 4):
        x = (reach + beyond << shift) + low + sign
        missing = Fraction(x * x - least * least, 1) / (2 * variance) - beyond * (
            Fraction(least << shift) / variance
        )
        assert missing >= 0
        geometric = [0] * beyond + [LAST]
        found = sampler._proposed(words, Script(*geometric, 0))  # the coin at its lowest: taken
        assert found == (~(x - 1) if sign else x)
        if missing:
            bits = 64 - shift  # of the coin: beside the place in a block, or in a word of its own
            border = floor_exp(missing, bits)
            for coin, taken in ((border - 1, True), (border + 1, False)):
                beside = [word, low << bits | coin] if shift else [word]
                own = () if shift else (coin,)
                found = sampler._proposed(beside, Script(*geometric, *own))
                assert (found is not None) == taken


@settings(max_examples=8, deadline=None)
@given(
    variance=st.one_of(
        st.fractions(min_value=Fraction(1, 50), max_value=10**12, max_denominator=99),
        st.integers(1, MAX_VARIANCE).map(Fraction),
    )
)
def test_both_ways_of_drawing_agree_on_rare_words(variance: Fraction) -> None:
    """Arrays against one by one, with words that are cuts, tails and refused coins put in by hand."""
    sampler = gaussian_sampler(variance.numerator, variance.denominator)
    words = BitStream(SEED, 1).array(200 * sampler.digits).reshape(200, sampler.digits).copy()
    words[:40:3, 0] = sampler._top._sorted[len(sampler._top._sorted) // 2]
    words[50:60, 0] = LAST - 1
    words[60:70, 0] = 1
    words[100:130, -1] |= np.uint64((1 << 27) - 1)
    words[150:170, -1] = LAST
    spare, same = BitStream(SEED, 2), BitStream(SEED, 2)
    assert sampler.many(words, lambda _: spare).tolist() == [
        sampler.one(row, same) for row in words.tolist()
    ]
    assert spare.word() == same.word()


@given(
    y=st.fractions(min_value=0, max_value=40, max_denominator=10**6),
    bits=st.integers(0, 40),
    words=st.lists(st.integers(0, 2**64 - 1), min_size=3, max_size=3),
)
def test_the_coin_compares_with_the_exponential(y: Fraction, bits: int, words: list[int]) -> None:
    number = words[0] >> (64 - bits)
    whole = (number << 128) + (words[1] << 64) + words[2]
    low, high = exp_enclosed(y)
    uniform = Fraction(whole, 1 << (bits + 128))
    if uniform + Fraction(1, 1 << (bits + 128)) < low:
        assert below_exp_neg(y, number, bits, Script(*words[1:]))
    elif uniform > high:
        assert not below_exp_neg(y, number, bits, Script(*words[1:]))


def test_the_coin_draws_until_it_is_decided() -> None:
    y = Fraction(1, 3)
    border = floor_exp(y, 128)
    first, second = border >> 64, border & (LAST)
    assert below_exp_neg(y, 0, 0, Script(first, second - 1))
    assert not below_exp_neg(y, 0, 0, Script(first, second + 1))
    assert below_exp_neg(Fraction(0), 0, 0, Script())


@given(variance=st.fractions(min_value=Fraction(1, 10**12), max_value=MAX_VARIANCE))
def test_blocks_keep_tables_small_and_coins_long_enough(variance: Fraction) -> None:
    blocks = Blocks.of(variance)
    assert variance <= BLOCKS**2 << 2 * blocks.shift
    assert blocks.shift == 0 or variance > BLOCKS**2 << (2 * blocks.shift - 2)
    assert blocks.shift + COIN_BITS <= 64
    assert 2 * blocks.reach + 1 < 1 << 13
    assert (blocks.reach << blocks.shift) ** 2 >= TAIL_DEVIATIONS**2 * variance


def test_constants_that_recorded_seeds_depend_on() -> None:
    """A tail is too rare for golden samples to notice a change of these."""
    assert (BLOCKS, TAIL_DEVIATIONS, COIN_BITS, LOW_BITS) == (256, 8, 28, 16)
    assert Blocks.of(Fraction(65536)).shift == 0
    assert Blocks.of(Fraction(65536)).reach == 2048
    assert Blocks.of(Fraction(MAX_VARIANCE)).shift == 36


def test_samples_beyond_64_bits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = GaussianSampler(Fraction(MAX_VARIANCE))
    for magnitude in (LARGEST, ~LARGEST):
        monkeypatch.setattr(sampler, "_proposed", lambda *_, x=magnitude: x)
        assert sampler.one([0, 0], Script()) == magnitude
    for magnitude in (LARGEST + 1, ~(LARGEST + 1)):
        monkeypatch.setattr(sampler, "_proposed", lambda *_, x=magnitude: x)
        with pytest.raises(FailClosed, match="64 bits"):
            sampler.one([0, 0], Script())
