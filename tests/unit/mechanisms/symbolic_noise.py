"""Noise as symbols: the linear map from node noises to answers, read off the streaming code itself.

Rules: a mechanism of `width` columns is fed with unit vectors: the n-th node noise it draws is 1 in column n and 0
elsewhere, so that column n of an answer, less its count, is the coefficient of that node. A node noise drawn anew is
another symbol, one used again is the same: no wrong use of noise can hide behind chance.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from stream_dp.core.messages import IntArray

Coefficients: TypeAlias = NDArray[np.int8]
N = TypeVar("N", bound=Hashable)


@dataclass(slots=True)
class Symbols:
    """Hands out unit vectors of `width`, one for each node, and remembers the scale asked for."""

    width: int
    scales: list[Fraction] = field(default_factory=list)

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """The next symbols; a node's noise is drawn for every column."""
        nodes, rest = divmod(size, self.width)
        assert rest == 0, "a node's noise is drawn for some columns only"
        drawn = np.zeros((nodes, self.width), dtype=np.int64)
        places = np.arange(len(self.scales), len(self.scales) + nodes)
        drawn[np.arange(nodes), places % self.width] = 1
        self.scales += [scale] * nodes
        return drawn.reshape(-1)

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        """A counter has no use for it."""
        raise AssertionError("a counter draws Laplace noise only")

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        """A tree has no use for it."""
        raise AssertionError("a tree draws Laplace noise only")


Play: TypeAlias = Callable[[int, Symbols], Iterable[IntArray]]


@dataclass(frozen=True, slots=True)
class LinearMap:
    """Answer t is its count plus (matrix z)[t], where z[n] is drawn once, at scale `scales[n]`.

    Draws that no answer uses are left out; the others stand in an order of scales and coefficients only, so that two
    maps are equal where they are the same up to the names of the draws.
    """

    matrix: Coefficients
    scales: tuple[Fraction, ...]

    @classmethod
    def of(cls, matrix: Coefficients, scales: Sequence[Fraction]) -> "LinearMap":
        """The map, in order."""
        order = places(matrix, scales)
        return cls(matrix[:, order], tuple(scales[n] for n in order))

    @classmethod
    def streamed(cls, play: Play) -> "LinearMap":
        """The map of what `play(width, noise)` answers, its counts taken off."""
        counting = Symbols(1)
        answers = sum(1 for _ in play(1, counting))
        width = len(counting.scales)
        noise, matrix = Symbols(width), np.zeros((answers, width), dtype=np.int8)
        for t, value in enumerate(play(width, noise)):
            assert int(np.abs(value).max(initial=0)) < 128
            matrix[t] = value
        assert len(noise.scales) == width, "how much noise is drawn depends on the noise"
        return cls.of(matrix, noise.scales)


def places(matrix: Coefficients, scales: Sequence[Fraction]) -> list[int]:
    """The columns in use, by scale and coefficients."""
    columns = np.ascontiguousarray(matrix.T)
    used = np.flatnonzero(columns.any(axis=1)).tolist()
    return sorted(used, key=lambda n: (scales[n], columns[n].tobytes()))


def dense(rows: Sequence[Mapping[N, int]], nodes: Sequence[N]) -> Coefficients:
    """The matrix of an oracle's node coefficients, a row an answer, a column a node."""
    place = {node: n for n, node in enumerate(nodes)}
    matrix = np.zeros((len(rows), len(nodes)), dtype=np.int8)
    for t, row in enumerate(rows):
        for node, sign in row.items():
            matrix[t, place[node]] = sign
    return matrix
