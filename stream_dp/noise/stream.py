"""The noise of one step: exact samples from the ChaCha20 stream of a recorded seed.

Rules: the same (seed, stream) and the same calls give the same samples on every machine and version, for recovery
replays them. Streams of one seed are independent. A stream cannot be duplicated: a forked process refuses to draw,
and copying and pickling are refused. `repr` shows no seed. No float, no global generator. Samples are as exact as
the words: the key stream is indistinguishable from uniform bits for computationally bounded adversaries only. The
drawing time depends on the samples (rare further words), so publish on a clock.
"""

import os
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stream_dp.errors import FailClosed
from stream_dp.noise.bits import BitStream, IntArray
from stream_dp.noise.samplers import (
    MAX_SCALE,
    MAX_VARIANCE,
    GaussianSampler,
    Sampler,
    gaussian_sampler,
    geometric_sampler,
    laplace_sampler,
)

_FEW = 14  # up to so many samples are drawn one by one; an array pass takes as long as 14 of them
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
        if size <= _FEW:
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
