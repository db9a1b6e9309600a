"""The public class: reproducible for ever, natural blocks, never doubled, harmless refusals."""

import copy
import os
import pickle
import warnings
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

import stream_dp.noise
from stream_dp.core.mechanism import Noise
from stream_dp.errors import FailClosed
from stream_dp.noise import NoiseStream
from stream_dp.noise.bits import BitStream
from stream_dp.noise.samplers import MAX_SCALE

SEED = bytes(range(32))
SCALES = [Fraction(1, 1000), Fraction(1, 2), Fraction(5, 2), Fraction(100), Fraction(10**9)]

# What the seed 00 01 .. 1f, stream 7, means. A change here breaks every recorded journal.
GOLDEN = [
    ("laplace", Fraction(1, 2), [0, 1, 0, 0, 0, 0, -3, 0, 0, 0, -1, -1]),
    ("laplace", Fraction(5, 2), [-2, 7, 1, 2, -1, -3, -18, 0, 0, 1, -8, -4]),
    ("laplace", Fraction(1000), [-928, 558, -298, -7316, 76, -3233, -1593, -1241]),
    ("laplace", Fraction(10**9), [-930859882, 841953808, -7318775960, 226656717, -1594700366]),
    ("geometric", Fraction(7, 3), [0, 7, 2, 3, 1, 0, 0, 1, 1, 2, 0, 0]),
    ("geometric", Fraction(10**6, 7), [32700, 179780, 65798, 952, 109772, 2277, 14546]),
    ("gaussian", Fraction(1, 2), [-1, 1, 0, 1, 0, -1, -2, 0, 0, 0, -1, -1]),
    ("gaussian", Fraction(9), [-3, 5, 2, 2, -1, -3, -10, 0, 0, 1, -6, -4]),
    ("gaussian", Fraction(10**9), [-26876, 17892, -10513, -107708, 3021, -65167, -40206, -33540]),
    (
        "gaussian",
        Fraction(1 << 88),
        [-14978592482546, 9949534407479, -5850014990224, -59886763661139],
    ),
]


VARIANCES = [Fraction(1, 1000), Fraction(1, 2), Fraction(100), Fraction(10**9), Fraction(1 << 88)]


def draw(stream: NoiseStream, name: str, scale: Fraction, size: int) -> list[int]:
    samples = getattr(stream, name)(scale, size)
    assert samples.dtype == np.int64
    assert samples.shape == (size,)
    return list(samples.tolist())


@pytest.mark.parametrize(("name", "scale", "expected"), GOLDEN)
def test_a_recorded_seed_means_the_same_samples(
    name: str, scale: Fraction, expected: list[int]
) -> None:
    assert draw(NoiseStream(SEED, 7), name, scale, len(expected)) == expected
    assert draw(NoiseStream(SEED, 7), name, scale, 1000)[: len(expected)] == expected


def test_samples_are_the_inverse_of_the_distribution_function() -> None:
    """Against the words and a distribution function in `decimal`, one sample at a time."""
    scale = 6
    with localcontext() as context:
        context.prec = 50
        a = (Decimal(-1) / scale).exp()
        for word, x in zip(
            BitStream(SEED, 3).take(300),
            draw(NoiseStream(SEED, 3), "laplace", Fraction(scale), 300),
            strict=True,
        ):
            below = a ** (-(x - 1)) / (1 + a) if x <= 0 else 1 - a**x / (1 + a)
            upto = a ** (-x) / (1 + a) if x < 0 else 1 - a ** (x + 1) / (1 + a)
            assert below < Decimal(word) / 2**64 < upto


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", ["laplace", "geometric"])
def test_blocks_are_natural(name: str, scale: Fraction) -> None:
    whole = draw(NoiseStream(SEED, 1), name, scale, 20_000)
    pieces, stream = [], NoiseStream(SEED, 1)
    for size in (1, 1, 0, 5, 7, 32, 33, 100, 8192, 1, 8193, 20):
        pieces += draw(stream, name, scale, size)
    assert pieces == whole[: len(pieces)]


@pytest.mark.parametrize("variance", VARIANCES)
def test_blocks_of_gaussian_samples_are_natural(variance: Fraction) -> None:
    whole = draw(NoiseStream(SEED, 1), "gaussian", variance, 20_000)
    pieces, stream = [], NoiseStream(SEED, 1)
    for size in (1, 1, 0, 5, 7, 32, 33, 100, 8192, 1, 8193, 20):
        pieces += draw(stream, "gaussian", variance, size)
    assert pieces == whole[: len(pieces)]


@pytest.mark.parametrize(
    "variance", [Fraction(0), Fraction(-1), (1 << 88) + Fraction(1, 9), Fraction(10**400)]
)
def test_variances_out_of_range_are_refused_and_change_nothing(variance: Fraction) -> None:
    stream = NoiseStream(SEED, 0)
    with pytest.raises(ValueError, match=r"variance is positive and at most 2\^88"):
        stream.gaussian(variance, 1)
    with pytest.raises(TypeError, match="variance is an exact Fraction, not float"):
        stream.gaussian(0.5, 1)  # type: ignore[arg-type]
    nine = Fraction(9)
    assert draw(stream, "gaussian", nine, 5) == draw(NoiseStream(SEED, 0), "gaussian", nine, 5)


@pytest.mark.parametrize("variance", [Fraction(1, 10**400), Fraction(1, 10**9), Fraction(1 << 88)])
def test_extreme_variances_work(variance: Fraction) -> None:
    assert any(draw(NoiseStream(SEED, 0), "gaussian", variance, 100)) == (variance > 1)


def test_streams_and_seeds_differ() -> None:
    seen = {
        tuple(draw(NoiseStream(seed, stream), "laplace", Fraction(1000), 8))
        for seed in (SEED, SEED[::-1])
        for stream in (0, 1, 2, 2**32, 2**64 - 1)
    }
    assert len(seen) == 10


def test_it_is_the_noise_of_the_mechanisms() -> None:
    noise: Noise = NoiseStream(SEED, 0)
    assert noise.geometric(Fraction(3), 50).min() >= 0


@pytest.mark.parametrize(
    "scale", [Fraction(0), Fraction(-1, 3), Fraction(MAX_SCALE) + Fraction(1, 9), Fraction(10**400)]
)
@pytest.mark.parametrize("name", ["laplace", "geometric"])
def test_scales_out_of_range_are_refused_and_change_nothing(name: str, scale: Fraction) -> None:
    stream = NoiseStream(SEED, 0)
    with pytest.raises(ValueError, match=r"positive and at most 2\^40"):
        getattr(stream, name)(scale, 1)
    with pytest.raises(ValueError, match="0 or more"):
        stream.laplace(Fraction(1), -1)
    with pytest.raises(TypeError, match="exact Fraction, not float"):
        stream.laplace(0.5, 1)  # type: ignore[arg-type]
    assert draw(stream, name, Fraction(9), 5) == draw(NoiseStream(SEED, 0), name, Fraction(9), 5)


@pytest.mark.parametrize("scale", [Fraction(1, 10**400), Fraction(1, 10**9), Fraction(MAX_SCALE)])
def test_extreme_scales_work(scale: Fraction) -> None:
    samples = draw(NoiseStream(SEED, 0), "laplace", scale, 100)
    assert any(samples) == (scale > 1)


def test_a_forked_process_does_not_draw() -> None:
    stream = NoiseStream(SEED, 0)
    stream.laplace(Fraction(1), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: forking beside other threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            stream.laplace(Fraction(1), 1)
        except FailClosed:
            code = 42
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 42
    assert stream.laplace(Fraction(1), 1).shape == (1,)


def test_another_process_number_is_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = NoiseStream(SEED, 0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(FailClosed, match="forked process"):
            stream.geometric(Fraction(1), 1)
    assert draw(stream, "laplace", Fraction(9), 5) == draw(
        NoiseStream(SEED, 0), "laplace", Fraction(9), 5
    )


def test_a_stream_is_not_doubled() -> None:
    stream = NoiseStream(SEED, 0)
    for double in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(FailClosed, match="not copied"):
            double(stream)


def test_no_text_shows_the_seed() -> None:
    stream = NoiseStream(SEED, 4)
    assert repr(stream) == str(stream) == "<NoiseStream 4>"
    assert SEED.hex() not in repr(stream._main)
    assert not hasattr(stream, "__dict__")


def test_the_package_exports_what_it_says() -> None:
    assert stream_dp.noise.__all__ == ["NoiseStream", "fresh_seed"]
    assert len(stream_dp.noise.fresh_seed()) == 32
