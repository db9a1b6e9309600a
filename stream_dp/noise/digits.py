"""A large scale as a few small tables: the top digit and the independent low digits of one sample.

Theory: write g = 2^m * h + l with 0 <= l < 2^m. Then exp(-g / b) = exp(-h * 2^m / b) * exp(-l / b): the two are
independent, h geometric with scale b / 2^m, l geometric with scale b cut to [0, 2^m); l splits in the same way.
Two-sided: a sign s independent of g, x = g or x = -1 - g (never two zeros), joined to h in the table of the top
digit, whose cells are t = h or t = -1 - h; then x = 2^m * t + (l, or its complement).
Tail: a top digit at or beyond `reach` is reach + a fresh top digit, because h is memoryless.

Rules: a sample takes exactly one word per digit from the main lane; the rare further words (an undecided word, a
tail) come from the spare lane, sample by sample and top digit first. So a block of samples equals the same samples
drawn one by one, and both ways of drawing below give the same numbers.
The constants determine the samples of a recorded seed: never change them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from stream_dp.errors import FailClosed
from stream_dp.noise.bits import IntArray, Words
from stream_dp.noise.exact import Interval, complement, divide, exp_neg, powers
from stream_dp.noise.tables import Table

MAX_SCALE = 1 << 40  # leaves 2^23 scales below the end of int64
TOP_SCALE = 1 << 7  # largest scale of a top digit
DIGIT_BITS = 12  # largest low digit
TAIL_SCALES = 14  # a top table reaches this many scales: a tail once in 1.2 million samples
LARGEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class DigitCuts:
    """CDF of a geometric with ratio exp(-step) cut to 0..count-1: (1 - a^(i+1)) / (1 - a^count)."""

    step: Fraction
    count: int

    @property
    def size(self) -> int:
        """Number of cuts."""
        return self.count - 1

    def cut(self, index: int, width: int) -> Interval:
        """Return an interval around P[digit <= index]."""
        power = exp_neg((index + 1) * self.step, width)
        return self._share(power, exp_neg(self.count * self.step, width), width)

    def all_cuts(self, width: int) -> list[Interval]:
        """Return intervals around P[digit <= i] for i = 0..count-2."""
        found = powers(exp_neg(self.step, width), self.count, width)
        return [self._share(power, found[-1], width) for power in found[1:-1]]

    def _share(self, power: Interval, last: Interval, width: int) -> Interval:
        return divide(complement(power, width), complement(last, width), width)


def _ceiling(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


@dataclass(frozen=True, slots=True)
class Split:
    """How samples of a scale b are cut into digits."""

    rate: Fraction  # 1 / b
    shift: int  # m, the total number of bits of all low digits
    widths: tuple[int, ...]  # the number of bits of each low digit, from the highest down

    @classmethod
    def of(cls, scale: Fraction) -> "Split":
        """Return the split of a scale in (0, MAX_SCALE]: as few low digits as possible, of nearly equal width."""
        rate = Fraction(scale.denominator, scale.numerator)
        shift = max(0, _ceiling(scale.numerator, scale.denominator * TOP_SCALE) - 1).bit_length()
        count = _ceiling(shift, DIGIT_BITS)
        return cls(rate, shift, tuple((shift + i) // count for i in range(count)))

    @property
    def top_step(self) -> Fraction:
        """Exponent of the top digit's ratio, 2^m / b."""
        return self.rate * (1 << self.shift)

    @property
    def reach(self) -> int:
        """First top digit in the tail."""
        step = self.top_step
        return _ceiling(TAIL_SCALES * step.denominator, step.numerator)

    def low_cuts(self) -> tuple[DigitCuts, ...]:
        """The cuts of the low digits, from the highest down."""
        places = [sum(self.widths[i + 1 :]) for i in range(len(self.widths))]
        return tuple(
            DigitCuts(self.rate * (1 << place), 1 << width)
            for place, width in zip(places, self.widths, strict=True)
        )


class Sampler:
    """Draws samples of one distribution from words.

    Args:
        split: the digits of the scale.
        top: table of the top digit; cell c means the digit c - origin.
        origin: the cell of top digit 0.
    """

    __slots__ = ("_low", "_origin", "_reach", "_shift", "_top", "digits")

    def __init__(self, split: Split, top: Table, origin: int) -> None:
        self._top = top
        self._origin = origin
        self._reach = split.reach
        self._shift = split.shift
        self._low = tuple(
            (Table(cuts), width) for cuts, width in zip(split.low_cuts(), split.widths, strict=True)
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

    def many(self, words: NDArray[np.uint64], spare: Words) -> IntArray:
        """Return the samples of words of shape (n, digits), equal to those of `one` called row by row."""
        cells, undecided = self._top.cells(words[:, 0])
        top = cells - self._origin
        slow = [undecided, np.flatnonzero((top >= self._reach) | (top < -self._reach))]
        values = top
        if self._low:
            low = np.zeros(len(words), dtype=np.int64)
            for place, (table, width) in enumerate(self._low, start=1):
                cells, undecided = table.cells(words[:, place])
                slow.append(undecided)
                low = low << width | cells
            values = (top << self._shift) + (low ^ ((top >> 63) & ((1 << self._shift) - 1)))
        for index in np.unique(np.concatenate(slow)):
            values[index] = self.one(words[index].tolist(), spare)
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
