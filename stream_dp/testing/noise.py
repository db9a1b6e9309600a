"""Noise that is not private, for tests: none, from a known seed, or from a script.

Rules: only the test kit reaches this noise. A journal written with it is marked not private, and the product refuses
such a journal. Samples have shape (size,).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, TypeAlias

import numpy as np

from stream_dp.core.mechanism import IntArray
from stream_dp.noise import NoiseStream

Kind: TypeAlias = Literal["laplace", "geometric", "gaussian"]


class ZeroNoise:
    """Every sample is 0, so that answers are exact."""

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        return np.zeros(size, dtype=np.int64)

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        return np.zeros(size, dtype=np.int64)

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        return np.zeros(size, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Draw:
    """One call of a noise source; `scale` is the variance if the kind is gaussian."""

    kind: Kind
    scale: Fraction
    size: int


class SeededNoise:
    """The product's exact samplers with a known seed; records the calls.

    >>> noise = SeededNoise(1)
    >>> noise.laplace(Fraction(2), 3).size, noise.drawn
    (3, 3)
    """

    def __init__(self, seed: int, stream: int = 0) -> None:
        self._stream = NoiseStream(seed.to_bytes(32, "big"), stream)
        self.calls: list[Draw] = []

    @property
    def drawn(self) -> int:
        return sum(call.size for call in self.calls)

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        self.calls.append(Draw("laplace", scale, size))
        return self._stream.laplace(scale, size)

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        self.calls.append(Draw("geometric", scale, size))
        return self._stream.geometric(scale, size)

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        self.calls.append(Draw("gaussian", variance, size))
        return self._stream.gaussian(variance, size)


@dataclass(slots=True)
class ScriptedNoise:
    """Returns the given values in order for any call, and records the calls; IndexError if the script is over."""

    values: Sequence[int]
    calls: list[Draw] = field(default_factory=list)
    used: int = 0

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        return self._take(Draw("laplace", scale, size))

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        taken = self._take(Draw("geometric", scale, size))
        if np.any(taken < 0):
            raise ValueError("a geometric sample is never negative")
        return taken

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        return self._take(Draw("gaussian", variance, size))

    def _take(self, draw: Draw) -> IntArray:
        if self.used + draw.size > len(self.values):
            raise IndexError("the mechanism asks for more noise than the script has")
        self.calls.append(draw)
        self.used += draw.size
        return np.array(self.values[self.used - draw.size : self.used], dtype=np.int64)
