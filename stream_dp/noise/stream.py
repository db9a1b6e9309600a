"""The noise of one step: exact samples from the ChaCha20 stream of a recorded seed.

Rules: the same (seed, stream) and the same calls give the same samples on every machine and version, for recovery
replays them. Streams of one seed are independent. A stream cannot be duplicated: a forked process refuses to draw,
and copying and pickling are refused. `repr` shows no seed. No float, no global generator. Samples are as exact as
the words: the key stream is indistinguishable from uniform bits for computationally bounded adversaries only. The
drawing time depends on the samples (rare further words), so publish on a clock.

The samplers of the discrete Laplace, the one-sided geometric and the discrete Gaussian are tables of cuts. Tables use
Python integers only: no float, and no division that rounds to nearest. The constants here determine the samples of a
recorded seed: never change them. No table knows a seed or a cipher (`bits`).
"""

import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from typing import NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stream_dp.errors import FailClosed
from stream_dp.noise.bits import BitStream, IntArray, Words

# An `Interval` (lo, hi) at `width` w encloses a value in [0, 1], or in [1, 2] as a divisor: lo <= 2^w * value <= hi.
# Every operation rounds lo down and hi up, so a wide interval is possible and a wrong one is not.

Interval: TypeAlias = tuple[int, int]

_HEADROOM = 32  # extra bits, so that the result of `exp_neg` is only a few units wide


def exp_neg(x: Fraction, width: int) -> Interval:
    """Enclose exp(-x), x >= 0, at `width`: the alternating series of x / 2^j, then j squarings."""
    if x >= width:  # exp(-x) < 2^-x <= 2^-width
        return 0, 1
    halvings = max(0, x.numerator.bit_length() - x.denominator.bit_length() + 5)
    inner = width + halvings + _HEADROOM
    low = (x.numerator << inner) // (x.denominator << halvings)
    value = _series((low, low + 1), inner)
    for _ in range(halvings):
        value = multiply(value, value, inner)
    spare = inner - width
    return value[0] >> spare, -(-value[1] >> spare)


def _series(y: Interval, width: int) -> Interval:
    """Enclose exp(-y), y <= 1/8: terms fall, so the first omitted term bounds the rest."""
    term: Interval = (1 << width, 1 << width)
    low = high = 0
    n = 0
    while term[1] > 1:
        low, high = (low - term[1], high - term[0]) if n % 2 else (low + term[0], high + term[1])
        n += 1
        product = multiply(term, y, width)
        term = product[0] // n, -(-product[1] // n)
    return max(0, low - term[1]), min(1 << width, high + term[1])


def multiply(a: Interval, b: Interval, width: int) -> Interval:
    return a[0] * b[0] >> width, -(-(a[1] * b[1]) >> width)


def divide(a: Interval, b: Interval, width: int) -> Interval:
    """Enclose a / b, known to be in [0, 1]; where b may be 0 the enclosure is all of [0, 1]."""
    if b[0] <= 0:
        return 0, 1 << width
    return (a[0] << width) // b[1], -(-(a[1] << width) // b[0])


def complement(a: Interval, width: int) -> Interval:
    return (1 << width) - a[1], (1 << width) - a[0]


def one_plus(a: Interval, width: int) -> Interval:
    return (1 << width) + a[0], (1 << width) + a[1]


def powers(a: Interval, count: int, width: int) -> list[Interval]:
    results: list[Interval] = [(1 << width, 1 << width)]
    for _ in range(count):
        results.append(multiply(results[-1], a, width))
    return results


WORD_BITS = 64

_TABLE_GUARD = 96  # additional bits of the cuts of a table
_GUARD = 32  # additional bits in the first attempt at a single number
_SPREAD = 4  # log2 of the guide's buckets per cut
_FEW_WORDS = 64  # up to so many words are searched for in the cuts themselves; the guide takes longer to reach

Cuts: TypeAlias = Callable[[int], list[Interval]]
"""Function from a width to enclosures of the cuts of one partition of [0, 1): increasing, each strictly inside."""


def decided_floor(interval: Interval, width: int, bits: int) -> int | None:
    """Return floor(2^bits * c) for the c in (0, 1) inside `interval`; None if the interval does not decide it."""
    low = max(0, interval[0] >> (width - bits))
    high = min((1 << bits) - 1, interval[1] >> (width - bits))
    return low if low == high else None


def exact_floor(enclosed: Callable[[int], Interval], bits: int) -> int:
    """Return floor(2^bits * c) for c in (0, 1), from its enclosures at ever larger widths."""
    guard = _GUARD
    while (floor := decided_floor(enclosed(bits + guard), bits + guard, bits)) is None:
        guard *= 2
    return floor


class Table:
    """At most 2^15 - 1 cuts of a partition of [0, 1): in which of its cells does a uniform real number lie?

    The cuts are real numbers known to any precision, and the table keeps floor(2^64 * c), exactly. A 64-bit word w
    stands for all reals in [w, w + 1) / 2^64: it decides against c unless it equals that floor; then further words are
    compared with further bits of the cut. So the law of a cell is exactly its length, not within 2^-64 of it.
    Comparing ends: a cut is a non-constant rational function of exp(rational), hence transcendental and never dyadic.
    """

    def __init__(self, cuts: Cuts) -> None:
        width = WORD_BITS + _TABLE_GUARD
        enclosed = cuts(width)
        if not 0 < len(enclosed) < 1 << 15:
            raise ValueError(f"a table needs 1 to {(1 << 15) - 1} cuts, not {len(enclosed)}")
        self._cuts = cuts
        self._floors = array("Q")
        for index, interval in enumerate(enclosed):
            floor = decided_floor(interval, width, WORD_BITS)
            self._floors.append(self._floor(index, WORD_BITS) if floor is None else floor)
        self._sorted: NDArray[np.uint64] = np.frombuffer(self._floors, dtype=np.uint64)
        self._shift = np.uint64(WORD_BITS - len(enclosed).bit_length() - _SPREAD)

    def cell(self, word: int, more: Words) -> int:
        """Return the number of cuts at or below a uniform number that begins with `word`; `more` has further bits."""
        low = bisect_right(self._floors, word)
        if low == 0 or self._floors[low - 1] != word:
            return low
        return self._refine(bisect_left(self._floors, word), low, word, more)

    def cells(self, words: NDArray[np.uint64]) -> tuple[IntArray, IntArray]:
        """Return the cells of words of shape (n,), and the positions of words that do not decide.

        The first result is meaningless at such a position: use `cell` there.
        """
        if len(words) <= _FEW_WORDS:
            exact = self._sorted.searchsorted(words, side="right")
            return exact, (self._sorted.searchsorted(words) < exact).nonzero()[0]
        cells = self._guide[(words >> self._shift).view(np.int64)].astype(np.int64)
        shared = (cells < 0).nonzero()[0]
        if not shared.size:
            return cells, shared
        own = words[shared]
        exact = self._sorted.searchsorted(own, side="right")
        cells[shared] = exact
        return cells, shared[self._sorted[np.maximum(exact, 1) - 1] == own]

    def _floor(self, index: int, bits: int) -> int:
        return exact_floor(lambda width: self._cuts(width)[index], bits)

    def _refine(self, low: int, high: int, number: int, more: Words) -> int:
        """Draw words until no cut in low..high-1 shares all bits of the number."""
        bits = WORD_BITS
        while low < high:
            number = number << WORD_BITS | more.word()
            bits += WORD_BITS
            floors = [self._floor(index, bits) for index in range(low, high)]
            low, high = low + bisect_left(floors, number), low + bisect_right(floors, number)
        return low

    @cached_property
    def _guide(self) -> NDArray[np.int16]:
        """The cell for each value of the word's leading bits; -1 where a bucket contains a cut."""
        buckets = 1 << (WORD_BITS - int(self._shift))
        own = np.bincount((self._sorted >> self._shift).view(np.int64), minlength=buckets)
        guide = (np.cumsum(own) - own).astype(np.int16)
        guide[own > 0] = -1
        return guide


MAX_SCALE = 1 << 40  # leaves 2^23 scales below the end of int64
TOP_SCALE = 1 << 7  # largest scale of a top digit
DIGIT_BITS = 12  # largest low digit
TAIL_SCALES = 14  # a top table reaches this many scales: a tail once in 1.2 million samples
LARGEST = (1 << 63) - 1


def _ceiling(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


@dataclass(frozen=True, slots=True)
class Split:
    """How samples of a scale b are cut into digits: one top digit and independent low digits, each with a small table.

    Write g = 2^m * h + l with 0 <= l < 2^m. Then exp(-g / b) = exp(-h * 2^m / b) * exp(-l / b): the two are
    independent, h geometric with scale b / 2^m, l geometric with scale b cut to [0, 2^m); l splits in the same way.
    """

    rate: Fraction  # 1 / b
    shift: int  # m, the total number of bits of all low digits
    widths: tuple[int, ...]  # the number of bits of each low digit, from the highest down

    @classmethod
    def of(cls, scale: Fraction) -> "Split":
        """Return the split of a scale in (0, MAX_SCALE]: as few low digits as possible, of nearly equal width."""
        shift = max(0, _ceiling(scale.numerator, scale.denominator * TOP_SCALE) - 1).bit_length()
        count = _ceiling(shift, DIGIT_BITS)
        widths = tuple((shift + i) // count for i in range(count))
        return cls(Fraction(scale.denominator, scale.numerator), shift, widths)

    @property
    def top_step(self) -> Fraction:
        return self.rate * (1 << self.shift)

    @property
    def reach(self) -> int:
        """First top digit in the tail."""
        step = self.top_step
        return _ceiling(TAIL_SCALES * step.denominator, step.numerator)

    @property
    def low_steps(self) -> list[Fraction]:
        return [self.rate * (1 << sum(self.widths[i + 1 :])) for i in range(len(self.widths))]


def digit_cuts(step: Fraction, count: int, width: int) -> list[Interval]:
    """Enclose the CDF of a geometric with ratio exp(-step) cut to 0..count-1: (1 - a^(i+1)) / (1 - a^count)."""
    *parts, last = powers(exp_neg(step, width), count, width)
    whole = complement(last, width)
    return [divide(complement(power, width), whole, width) for power in parts[1:]]


class Sampler:
    """Draws samples of one distribution from words.

    Two-sided: a sign s independent of g, x = g or x = -1 - g (never two zeros), joined to h in the table of the top
    digit, whose cells are t = h or t = -1 - h; then x = 2^m * t + (l, or its complement). A top digit at or beyond
    `reach` is reach + a fresh top digit, because h is memoryless.

    A sample takes exactly one word per digit from the main lane. The rare further words (an undecided word, a tail)
    come from the spare lane, sample by sample and top digit first. So `many` and `one` give the same samples.

    `split` has the digits of the scale, `top` is the table of the top digit; its cell c means the digit c - `origin`.
    """

    __slots__ = ("_low", "_origin", "_reach", "_shift", "_top", "digits")

    def __init__(self, split: Split, top: Table, origin: int) -> None:
        self._top = top
        self._origin = origin
        self._reach = split.reach
        self._shift = split.shift
        self._low = tuple(
            (Table(partial(digit_cuts, step, 1 << width)), width)
            for step, width in zip(split.low_steps, split.widths, strict=True)
        )
        self.digits = 1 + len(self._low)

    def one(self, words: Sequence[int], spare: Words) -> int:
        """Return the sample that `digits` words give; the reference for `many`.

        Raises:
            FailClosed: the sample does not fit 64 bits (less likely than exp(-2^22)).
        """
        top = self._top.cell(words[0], spare) - self._origin
        if not -self._reach <= top < self._reach:
            top = self._tail(top, spare)
        low = 0
        for (table, width), word in zip(self._low, words[1:], strict=True):
            low = low << width | table.cell(word, spare)
        return self._join(top, low)

    def many(self, words: NDArray[np.uint64], spare_of: Callable[[int], Words]) -> IntArray:
        """Return the samples of words of shape (n, digits), equal to those of `one` called row by row.

        `spare_of` returns the spare lane of a row; rows of one lane stand in the order in which they are drawn.
        """
        cells, undecided = self._top.cells(words[:, 0])
        top = cells - self._origin
        slow = [undecided, ((top >= self._reach) | (top < -self._reach)).nonzero()[0]]
        values = top
        if self._low:
            low = np.zeros(len(words), dtype=np.int64)
            for place, (table, width) in enumerate(self._low, start=1):
                cells, undecided = table.cells(words[:, place])
                slow.append(undecided)
                low = low << width | cells
            values = (top << self._shift) + (low ^ ((top >> 63) & ((1 << self._shift) - 1)))
        if any(map(len, slow)):
            for index in np.unique(np.concatenate(slow)):
                values[index] = self.one(words[index].tolist(), spare_of(index))
        return values

    def _tail(self, top: int, spare: Words) -> int:
        """Return the top digit of a sample whose table cell is the tail; it keeps the sign of `top`."""
        beyond = self._reach
        while True:
            fresh = self._top.cell(spare.word(), spare) - self._origin
            magnitude = fresh if fresh >= 0 else ~fresh  # the magnitude is independent of the sign
            if magnitude < self._reach:
                break
            beyond += self._reach
        return beyond + magnitude if top >= 0 else ~(beyond + magnitude)

    def _join(self, top: int, low: int) -> int:
        magnitude = ((top if top >= 0 else ~top) << self._shift) + low
        if magnitude > LARGEST:
            raise FailClosed("a noise sample does not fit 64 bits: the noise source is broken")
        return magnitude if top >= 0 else ~magnitude


# Reference for both distributions: Ghosh, Roughgarden, Sundararajan, STOC 2009 (the "geometric mechanism").


def geometric_cuts(step: Fraction, reach: int, width: int) -> list[Interval]:
    """Enclose P[h <= i] = 1 - a^(i+1), a = exp(-step), for i = 0..reach-1; the last cell is the tail, h >= reach."""
    return [complement(power, width) for power in powers(exp_neg(step, width), reach, width)[1:]]


@lru_cache(maxsize=256)
def geometric_sampler(numerator: int, denominator: int) -> Sampler:
    split = Split.of(Fraction(numerator, denominator))
    return Sampler(split, Table(partial(geometric_cuts, split.top_step, split.reach)), origin=0)


def laplace_cuts(unit: Fraction, step: Fraction, reach: int, width: int) -> list[Interval]:
    """Enclose P[t <= i - reach - 1] for i = 0..2*reach; the first and the last cell are the tails.

    With r = exp(-1/b) / (1 + exp(-1/b)) = P[s = 1], x = g if s = 0 and x = -1 - g if s = 1 is discrete Laplace: zero
    comes from s = 0 only. The sign joins the top digit: P[t <= -1 - h] = r * a^h, P[t <= h] = 1 - (1 - r) * a^(h+1).
    `unit` is 1 / b, the exponent of the sign; `step` is 2^m / b, that of the top digit.
    """
    sign = exp_neg(unit, width)
    whole = one_plus(sign, width)
    shares = [divide(p, whole, width) for p in powers(exp_neg(step, width), reach, width)]
    lower = [multiply(share, sign, width) for share in reversed(shares)]
    return lower + [complement(share, width) for share in shares[1:]]


@lru_cache(maxsize=256)
def laplace_sampler(numerator: int, denominator: int) -> Sampler:
    split = Split.of(Fraction(numerator, denominator))
    cuts = partial(laplace_cuts, split.rate, split.top_step, split.reach)
    return Sampler(split, Table(cuts), origin=split.reach + 1)


MAX_VARIANCE = 1 << 88  # a standard deviation of 2^44 leaves 2^19 of them below the end of int64
BLOCKS = 1 << 8  # most blocks per standard deviation
TAIL_DEVIATIONS = 8  # a table reaches this many deviations: a tail comes once in 8e14 samples
COIN_BITS = 28  # bits of a word that remain beside the longest l
LOW_BITS = 16  # bits of l in the shortcut for arrays
ONE = 1 << (COIN_BITS + LOW_BITS)
FINE_BITS = 64  # bits of y in the shortcut for one sample

_REACHES = range(TAIL_DEVIATIONS * BLOCKS + 1)


@dataclass(frozen=True, slots=True)
class Blocks:
    """How samples of a variance v are cut into blocks: x = 2^m * k + l, or -1 - that, with 0 <= l < 2^m.

    Blocks are narrow (128 to 256 per standard deviation), so about one proposal in 300 is rejected. Up to a standard
    deviation of 256 a block is one integer, m = 0, and no proposal is rejected.
    """

    variance: Fraction
    shift: int  # m
    reach: int  # first block in the tail

    @classmethod
    def of(cls, variance: Fraction) -> "Blocks":
        """Return the blocks of a variance in (0, MAX_VARIANCE]: as wide as allowed."""
        shift = 0
        while variance > BLOCKS**2 << 2 * shift:
            shift += 1
        wanted = TAIL_DEVIATIONS**2 * variance
        reach = bisect_left(_REACHES, True, key=lambda r: (r << shift) ** 2 >= wanted)
        return cls(variance, shift, reach)

    def least(self, block: int, sign: int) -> int:
        """Return the least |x| of a block; `sign` is 1 for x = -1 - (2^m * block + l)."""
        return (block << self.shift) + sign

    def lost(self, numerator: int) -> Fraction:
        """Return the exponent numerator / 2v."""
        return Fraction(numerator * self.variance.denominator, 2 * self.variance.numerator)


def gaussian_cuts(blocks: Blocks, width: int) -> list[Interval]:
    """Enclose P[t <= i - reach - 1] for i = 0..2*reach, t = k or t = -1 - k; the first and the last cell are tails.

    Comparing with the cuts ends: a cut is a rational function of exp(-1/N), N a common denominator of all exponents.
    It tends to 0 or 1 as exp(-1/N) does to 0, and is neither, so it is not constant, and exp(-1/N) is transcendental.
    """
    sums = [(0, 0)]
    for low, high in (*reversed(_masses(blocks, 1, width)), *_masses(blocks, 0, width)):
        sums.append((sums[-1][0] + low, sums[-1][1] + high))
    return [divide(part, sums[-1], width) for part in sums[1:-1]]


def _masses(blocks: Blocks, sign: int, width: int) -> list[Interval]:
    """Return exp(-c^2 / 2v) for one sign's blocks before the tail, by differences of exponents; then the tail."""
    lost, block = blocks.lost, 1 << blocks.shift
    second = exp_neg(lost(2 * block**2), width)
    ratio = exp_neg(lost(block**2 + 2 * block * sign), width)
    masses = [exp_neg(lost(sign), width)]
    for _ in range(blocks.reach):
        masses.append(multiply(masses[-1], ratio, width))
        ratio = multiply(ratio, second, width)
    again = exp_neg(lost(2 * block * blocks.least(blocks.reach, sign)), width)
    masses[-1] = divide(masses[-1], complement(again, width), width)
    return masses


class GaussianSampler:
    """Draws samples of the discrete Gaussian from words: P[X = x] proportional to exp(-x^2 / (2 * variance)).

    The variance v is in (0, MAX_VARIANCE].

    Let c = 2^m * k (or 2^m * k + 1) be the least |x| of a block. A block is proposed with probability proportional to
    exp(-c^2 / 2v), l uniformly, and x is accepted with probability exp(-y), y = l * (2c + l) / 2v: together exp(-x^2 /
    2v), so the law of accepted x is exact. The blocks from `reach` on (8 standard deviations) share one cell on either
    side, with the mass of a geometric envelope: block reach + h with exp(-c^2 / 2v) * a^h, a = exp(-2^m * c / v), c the
    least |x| of the first one; the rest of the exponent, (2 c l + (2^m h + l)^2) / 2v, goes into y.

    A sample takes exactly one word from the main lane, or two where m > 0: the block, then l (its highest m bits) and
    the first bits of the coin. All rarer words (for an undecided word, a tail, a rejected proposal) come from the spare
    lane, sample by sample. So a block of samples equals the same samples drawn one by one.

    Two shortcuts come before the exact coin (`below_exp_neg`) and never decide differently: u <= 1 - y <= exp(-y) for
    arrays, 1 - y + y^2/2 - y^3/6 <= exp(-y) <= 1 - y + y^2/2 one by one, in integers rounded to the safe side.

    Reference for the distribution: Canonne, Kamath, Steinke, NeurIPS 2020 (their sampler is another).
    """

    def __init__(self, variance: Fraction) -> None:
        self._blocks = Blocks.of(variance)
        self._top = Table(partial(gaussian_cuts, self._blocks))
        self._origin = self._blocks.reach + 1  # the cell of block 0
        self._dropped = max(0, self._blocks.shift - LOW_BITS)  # bits of l that `many` ignores
        self._rate = variance.denominator << FINE_BITS, 2 * variance.numerator
        self.digits = 2 if self._blocks.shift else 1

    def one(self, words: Sequence[int], spare: Words) -> int:
        """Return the sample that `digits` words give; the reference for `many`.

        Raises:
            FailClosed: the sample does not fit 64 bits (less likely than exp(-2^36)).
        """
        while (sample := self._proposed(words, spare)) is None:
            words = [spare.word() for _ in range(self.digits)]
        if sample > LARGEST or ~sample > LARGEST:
            raise FailClosed("a noise sample does not fit 64 bits: the noise source is broken")
        return sample

    def many(self, words: NDArray[np.uint64], spare_of: Callable[[int], Words]) -> IntArray:
        shift = self._blocks.shift
        cells, undecided = self._top.cells(words[:, 0])
        values = cells - self._origin
        if shift:
            second = words[:, 1]
            low = (second >> np.uint64(WORD_BITS - shift)).view(np.int64)
            coin = (second >> np.uint64(WORD_BITS - COIN_BITS - shift)).view(np.int64)
            coin &= (1 << COIN_BITS) - 1
            bound = self._slopes[cells] * ((low >> self._dropped) + 1)
            slow = np.flatnonzero(((coin + 1) << LOW_BITS) + bound > ONE)
            values = (values << shift) + (low ^ ((values >> 63) & ((1 << shift) - 1)))
        else:
            slow = np.flatnonzero((cells == 0) | (cells == len(self._slopes) - 1))
        for index in np.unique(np.concatenate([slow, undecided])):
            values[index] = self.one(words[index].tolist(), spare_of(index))
        return values

    @cached_property
    def _slopes(self) -> IntArray:
        """Slopes by cell: y * ONE <= slope * ((l >> dropped) + 1) for all l; tails never pass the test."""
        return np.array([self._slope(cell) for cell in range(2 * self._blocks.reach + 2)])

    def _slope(self, cell: int) -> int:
        block, sign = self._signed(cell)
        if block >= self._blocks.reach:
            return ONE
        steepest = 2 * self._blocks.least(block, sign) + (1 << self._blocks.shift) - 1
        slope = self._blocks.lost(steepest << self._dropped) * ONE
        return _ceiling(slope.numerator, slope.denominator)

    def _signed(self, cell: int) -> tuple[int, int]:
        """Return the block of a cell, and its sign as `Blocks.least` takes it."""
        top = cell - self._origin
        return (top, 0) if top >= 0 else (~top, 1)

    def _proposed(self, words: Sequence[int], spare: Words) -> int | None:
        """Return the integer that these words propose if the coin accepts it, else None."""
        shift = self._blocks.shift
        block, sign = self._signed(self._top.cell(words[0], spare))
        bits = WORD_BITS - shift if shift else 0  # bits of the coin in the second word
        low, coin = (words[1] >> bits, words[1] & ((1 << bits) - 1)) if shift else (0, 0)
        if block >= self._blocks.reach:
            magnitude = self._tail(sign, low, (coin, bits), spare)
        else:
            taken = self._taken(self._blocks.least(block, sign), low, (coin, bits), spare)
            magnitude = (block << shift) + low if taken else None
        return ~magnitude if sign and magnitude is not None else magnitude

    def _taken(self, least: int, low: int, coin: tuple[int, int], spare: Words) -> bool:
        """Throw the coin for the integer at distance `low` from the least one of its block."""
        if low == 0:
            return True
        rate, denominator = self._rate
        numerator = low * (2 * least + low)
        y = rate * numerator // denominator + 1  # too large by at most 1 / 2^FINE_BITS
        lower = (1 << FINE_BITS) - y + (half := (y - 1) ** 2 >> FINE_BITS + 1)
        known, bits = coin
        known <<= FINE_BITS - bits
        if known + (1 << FINE_BITS - bits) <= lower - (half * y >> FINE_BITS) // 3 - 2:
            return True
        if known >= lower + 4:
            return False
        return below_exp_neg(self._blocks.lost(numerator), *coin, spare)

    def _tail(self, sign: int, low: int, coin: tuple[int, int], spare: Words) -> int | None:
        """Return a magnitude beyond the table if the coin accepts it, else None."""
        reach, shift = self._blocks.reach, self._blocks.shift
        least = self._blocks.least(reach, sign)
        again, beyond = self._blocks.lost(2 * least << shift), 0
        while below_exp_neg(again, 0, 0, spare):  # a geometric number of further blocks
            beyond += 1
        missing = self._blocks.lost(2 * least * low + ((beyond << shift) + low) ** 2)
        return (reach + beyond << shift) + low if below_exp_neg(missing, *coin, spare) else None


@lru_cache(maxsize=256)
def gaussian_sampler(numerator: int, denominator: int) -> GaussianSampler:
    return GaussianSampler(Fraction(numerator, denominator))


def below_exp_neg(y: Fraction, number: int, bits: int, more: Words) -> bool:
    """Say whether the uniform number whose first `bits` bits are `number` is below exp(-y), y >= 0; exact.

    Bits are drawn until they differ from those of exp(-y), which is transcendental for a rational y > 0, so no dyadic
    number. There may be no known bits; `more` has further bits, used only if the known ones do not decide.
    """
    if y == 0:
        return True
    while number == (floor := exact_floor(partial(exp_neg, y), bits)):
        number = number << WORD_BITS | more.word()
        bits += WORD_BITS
    return number < floor


_FEW_SAMPLES = (
    14  # up to so many samples are drawn one by one; an array pass takes as long as 14 of them
)
_CHUNK = 1 << 13  # samples per array pass, so that they stay in the processor's cache

SamplerOf: TypeAlias = Callable[[int, int], Sampler | GaussianSampler]


class NoiseStream:
    """Exact integer noise (`stream_dp.core.mechanism.Noise`) of one stream under a 32-byte seed; for one thread.

    For one distribution and scale, drawing 5 and then 7 samples gives the same 12 as drawing 12 at once, always.
    Other calls in between change the later samples.

    Raises:
        ValueError: the seed has another length, or the stream number is not in [0, 2^64).

    Example:
        >>> noise = NoiseStream(bytes(32), stream=0)  # a known seed: for this example only
        >>> noise.laplace(Fraction(5, 2), 4).shape
        (4,)
    """

    __slots__ = ("_main", "_process", "_spare", "_stream")

    def __init__(self, seed: bytes, stream: int) -> None:
        self._main = BitStream(seed, stream, lane=0)
        self._spare = BitStream(seed, stream, lane=1)
        self._stream = stream
        self._process = os.getpid()

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """Draw discrete Laplace noise, P[X = x] proportional to exp(-|x| / scale), x any integer; shape (size,).

        Raises:
            ValueError: a scale that is not in (0, 2^40], or a negative size.
            TypeError: a scale that is not exact (a float).
            FailClosed: drawn in a forked process, or the stream is used up.
        """
        return self._draw(laplace_sampler, _checked(scale, "scale", MAX_SCALE), size)

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        """Draw geometric noise, P[X = x] proportional to exp(-x / scale), x = 0, 1, 2, ...; errors as of `laplace`."""
        return self._draw(geometric_sampler, _checked(scale, "scale", MAX_SCALE), size)

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        """Draw discrete Gaussian noise, P[X = x] proportional to exp(-x^2 / (2 * variance)), x any integer.

        `variance`, of the Gaussian whose density is taken at the integers, is in (0, 2^88]; errors as of `laplace`.
        """
        return self._draw(gaussian_sampler, _checked(variance, "variance", MAX_VARIANCE), size)

    def _draw(self, sampler_of: SamplerOf, parameter: tuple[int, int], size: int) -> IntArray:
        self._require(size)
        sampler, spare = sampler_of(*parameter), self._spare
        digits, one, take = sampler.digits, sampler.one, self._main.take
        if size <= _FEW_SAMPLES:
            return np.array([one(take(digits), spare) for _ in range(size)], dtype=np.int64)
        result: IntArray = np.empty(size, dtype=np.int64)
        for start in range(0, size, _CHUNK):
            part = result[start : start + _CHUNK]
            words = self._main.array(len(part) * digits).reshape(len(part), digits)
            part[:] = sampler.many(words, lambda _: spare)
        return result

    def words(self, samples: int, digits: int) -> NDArray[np.uint64]:
        """Return the next words of the main lane, for so many samples; errors as of `laplace`."""
        self._require(samples)
        return self._main.array(samples * digits)

    @property
    def spare(self) -> BitStream:
        return self._spare

    def _require(self, size: int) -> None:
        if os.getpid() != self._process:
            raise FailClosed(
                "a noise stream cannot be used in a forked process; open a new one there"
            )
        if size < 0:
            raise ValueError(f"the number of samples must be 0 or more, not {size}")

    @staticmethod
    def laplace_of_each(streams: "Sequence[NoiseStream]", scale: Fraction, size: int) -> IntArray:
        """Draw `size` samples from each stream, in one pass; shape (streams, size). Samples and errors are those of
        `laplace`, called stream by stream.
        """
        sampler = laplace_sampler(*_checked(scale, "scale", MAX_SCALE))
        drawn = [stream.words(size, sampler.digits) for stream in streams]
        words = np.concatenate(drawn).reshape(-1, sampler.digits)
        samples = sampler.many(words, lambda index: streams[index // size].spare)
        return samples.reshape(len(streams), size)

    def __repr__(self) -> str:
        return f"<NoiseStream {self._stream}>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise FailClosed(
            "a noise stream cannot be copied or pickled: its samples would be used twice"
        )


def _checked(value: Fraction, name: str, largest: int) -> tuple[int, int]:
    if not isinstance(value, (Fraction, int)):
        raise TypeError(f"a noise {name} must be an exact Fraction, not {type(value).__name__}")
    numerator, denominator = value.numerator, value.denominator
    if not 0 < numerator <= largest * denominator:
        bits = largest.bit_length() - 1
        raise ValueError(f"a noise {name} must be positive and at most 2^{bits}, not {value}")
    return numerator, denominator
