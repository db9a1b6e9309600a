"""The engine's exact integer noise, drawn in large blocks and handed out in pieces: the same laws, with fewer calls.

For benchmarks, whose samples no recovery replays. Rules: every sample comes from the product's own samplers, is handed
out once, and is independent of all others.
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from stream_dp.core.mechanism import IntArray
from stream_dp.noise import NoiseStream, fresh_seed

BLOCK = 1 << 15  # samples


class BlockNoise:
    """Exact noise (`stream_dp.core.mechanism.Noise`) from blocks of a fresh stream."""

    def __init__(self) -> None:
        self._stream = NoiseStream(fresh_seed(), 0)
        self._left: dict[tuple[str, Fraction], IntArray] = {}

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        return self._taken("laplace", self._stream.laplace, scale, size)

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        return self._taken("geometric", self._stream.geometric, scale, size)

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        return self._taken("gaussian", self._stream.gaussian, variance, size)

    def _taken(
        self, law: str, draw: Callable[[Fraction, int], IntArray], parameter: Fraction, size: int
    ) -> IntArray:
        """The next samples of a law, from its block; a new one is drawn where it is used up."""
        left = self._left.get((law, parameter), np.zeros(0, dtype=np.int64))
        if len(left) < size:
            left = np.concatenate((left, draw(parameter, max(BLOCK, size))))
        self._left[law, parameter] = left[size:]
        return left[:size]
