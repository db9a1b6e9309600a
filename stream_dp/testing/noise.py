"""Noise that is not private, for tests: none at all, or from a seed.

Rules: reachable only through the test kit; a journal written with it is marked not-private and the product
refuses it.
"""

from fractions import Fraction

import numpy as np

from stream_dp.core.messages import IntArray


class ZeroNoise:
    """Every sample is 0, so that answers are exact."""

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """Zeros of shape (size,)."""
        return np.zeros(size, dtype=np.int64)

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        """Zeros of shape (size,)."""
        return np.zeros(size, dtype=np.int64)
