"""Exact inversion: in which cell of a partition of [0, 1) does a uniform real number lie?

Rules: the cuts c_0 < c_1 < ... are real numbers known to any precision; a table keeps floor(2^64 * c_i), exactly. A
64-bit word w stands for all reals in [w, w + 1) / 2^64: it decides against c_i unless it equals that floor, and
then further words are drawn and compared with further bits of the cut. So the law of the cell is exactly the
lengths of the partition, not within 2^-64 of them. Comparing ends: a cut is a non-constant rational function of
exp(rational), hence transcendental and never a dyadic number. This file knows no distribution, no seed and no
cipher.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stream_dp.noise.bits import IntArray, Words

# ---
# Enclosures, in integers, of exp(-x) and of values computed from it; the tables rest on them.
#
# Rules: an `Interval` (lo, hi) at `width` w says lo <= 2^w * value <= hi, always: every operation rounds lo down and
# hi up, so a wide interval is possible and a wrong one is not. Only Python integers: no float, no division that
# rounds to nearest. All values here are in [0, 1], or in [1, 2] as a divisor. This file knows no distribution, no
# bits and no table.

Interval: TypeAlias = tuple[int, int]

_HEADROOM = 32  # extra bits, so that the result of `exp_neg` is only a few units wide


def exp_neg(x: Fraction, width: int) -> Interval:
    """Return an enclosure of exp(-x), x >= 0, at `width`: alternating series of x / 2^j, then j squarings."""
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
    """Return an enclosure of exp(-y) for y <= 1/8: terms fall, so the first omitted one bounds the rest."""
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
    """Enclose a * b."""
    return a[0] * b[0] >> width, -(-(a[1] * b[1]) >> width)


def divide(a: Interval, b: Interval, width: int) -> Interval:
    """Enclose a / b, known to be in [0, 1]; where b may be 0 the enclosure is all of [0, 1]."""
    if b[0] <= 0:
        return 0, 1 << width
    return (a[0] << width) // b[1], -(-(a[1] << width) // b[0])


def complement(a: Interval, width: int) -> Interval:
    """Enclose 1 - a."""
    return (1 << width) - a[1], (1 << width) - a[0]


def one_plus(a: Interval, width: int) -> Interval:
    """Enclose 1 + a."""
    return (1 << width) + a[0], (1 << width) + a[1]


def powers(a: Interval, count: int, width: int) -> list[Interval]:
    """Enclose a^0, a^1, ..., a^count, each computed from the power before."""
    found: list[Interval] = [(1 << width, 1 << width)]
    for _ in range(count):
        found.append(multiply(found[-1], a, width))
    return found


WORD_BITS = 64

_GUARD = 96  # additional bits in the first attempt
_SPREAD = 4  # log2 of the guide's buckets per cut


class Cuts(Protocol):
    """The cuts of one partition of [0, 1), increasing, each strictly between 0 and 1."""

    @property
    def size(self) -> int:
        """Number of cuts; the number of cells is one more."""
        ...

    def cut(self, index: int, width: int) -> Interval:
        """Return an enclosure of one cut at `width`; arbitrarily narrow for large widths."""
        ...

    def all_cuts(self, width: int) -> Sequence[Interval]:
        """Return enclosures of all cuts at `width`; cheaper than one by one."""
        ...


def decided_floor(interval: Interval, width: int, bits: int) -> int | None:
    """Return floor(2^bits * c) for the c in (0, 1) inside `interval`; None if the interval does not decide it."""
    low = max(0, interval[0] >> (width - bits))
    high = min((1 << bits) - 1, interval[1] >> (width - bits))
    return low if low == high else None


def exact_floor(cuts: Cuts, index: int, bits: int) -> int:
    """Return floor(2^bits * c_index), raising the precision until the enclosure decides it."""
    guard = _GUARD
    while True:
        found = decided_floor(cuts.cut(index, bits + guard), bits + guard, bits)
        if found is not None:
            return found
        guard *= 2


class Table:
    """The cuts of a partition with their first 64 bits computed.

    Args:
        cuts: the partition; at most 2^15 - 1 cuts.
    """

    __slots__ = ("_cuts", "_floors", "_guide", "_shift", "_sorted")

    def __init__(self, cuts: Cuts) -> None:
        if not 0 < cuts.size < 1 << 15:
            raise ValueError(f"a table has 1 to {(1 << 15) - 1} cuts, not {cuts.size}")
        width = WORD_BITS + _GUARD
        floors = array("Q")
        for index, interval in enumerate(cuts.all_cuts(width)):
            found = decided_floor(interval, width, WORD_BITS)
            floors.append(exact_floor(cuts, index, WORD_BITS) if found is None else found)
        self._cuts = cuts
        self._floors = floors
        self._sorted: NDArray[np.uint64] = np.frombuffer(floors, dtype=np.uint64)
        buckets = len(floors).bit_length() + _SPREAD
        self._shift = np.uint64(WORD_BITS - buckets)
        self._guide: NDArray[np.int16] | None = None

    def cell(self, word: int, more: Words) -> int:
        """Return the number of cuts at or below the uniform number that starts with `word`.

        Args:
            word: its first 64 bits.
            more: source of its further bits, used only if the first 64 do not decide.
        """
        low = bisect_right(self._floors, word)
        if low == 0 or self._floors[low - 1] != word:
            return low
        return self._refine(bisect_left(self._floors, word), low, word, more)

    def cells(self, words: NDArray[np.uint64]) -> tuple[IntArray, IntArray]:
        """Return the cells of words of shape (n,), and the positions of words that do not decide.

        The first result is meaningless at such a position: use `cell` there.
        """
        guide = self._guide_table()
        found = guide[(words >> self._shift).view(np.int64)].astype(np.int64)
        shared = np.flatnonzero(found < 0)
        if not shared.size:
            return found, shared
        own = words[shared]
        exact = np.searchsorted(self._sorted, own, side="right").astype(np.int64)
        found[shared] = exact
        return found, shared[self._sorted[np.maximum(exact, 1) - 1] == own]

    def _refine(self, low: int, high: int, number: int, more: Words) -> int:
        """Draw words until no cut in low..high-1 shares all bits of the number."""
        bits = WORD_BITS
        while low < high:
            number = number << WORD_BITS | more.word()
            bits += WORD_BITS
            floors = [exact_floor(self._cuts, index, bits) for index in range(low, high)]
            low, high = low + bisect_left(floors, number), low + bisect_right(floors, number)
        return low

    def _guide_table(self) -> NDArray[np.int16]:
        """Return the cell for each value of the word's leading bits; -1 where a bucket contains a cut."""
        if self._guide is None:
            buckets = 1 << (WORD_BITS - int(self._shift))
            own = np.bincount((self._sorted >> self._shift).view(np.int64), minlength=buckets)
            guide = (np.cumsum(own) - own).astype(np.int16)
            guide[own > 0] = -1
            self._guide = guide
        return self._guide
