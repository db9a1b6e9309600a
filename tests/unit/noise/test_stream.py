"""The public class: reproducible for ever, natural blocks, never doubled, harmless refusals."""

import copy
import os
import pickle
import warnings
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from unit.noise.words import SEED

import stream_dp.noise
from stream_dp.core.mechanism import Noise
from stream_dp.errors import FailClosed
from stream_dp.noise import NoiseStream
from stream_dp.noise import stream as samplers
from stream_dp.noise.bits import BitStream
from stream_dp.noise.stream import MAX_SCALE

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
    ("gaussian", Fraction(1 << 88), [-14978592482546, 9949534407479, -5850014990224]),
]
MOST = {"laplace": MAX_SCALE, "geometric": MAX_SCALE, "gaussian": 1 << 88}
NAMED = pytest.mark.parametrize("name", MOST)
NINE = Fraction(9)


def draw(stream: NoiseStream, name: str, scale: Fraction, size: int) -> list[int]:
    samples = getattr(stream, name)(scale, size)
    assert samples.dtype == np.int64
    assert samples.shape == (size,)
    return list(samples.tolist())


def unchanged(stream: NoiseStream, name: str = "laplace") -> bool:
    """Whether it draws what a fresh stream 0 draws."""
    return draw(stream, name, NINE, 5) == draw(NoiseStream(SEED, 0), name, NINE, 5)


@pytest.mark.parametrize(("name", "scale", "expected"), GOLDEN)
def test_a_recorded_seed_means_the_same_samples(
    name: str, scale: Fraction, expected: list[int]
) -> None:
    assert draw(NoiseStream(SEED, 7), name, scale, len(expected)) == expected
    assert draw(NoiseStream(SEED, 7), name, scale, 1000)[: len(expected)] == expected


def test_samples_are_the_inverse_of_the_distribution_function() -> None:
    """Against the words and a distribution function in `decimal`, one sample at a time."""
    scale, samples = 6, draw(NoiseStream(SEED, 3), "laplace", Fraction(6), 300)
    with localcontext() as context:
        context.prec = 50
        a = (Decimal(-1) / scale).exp()
        for word, x in zip(BitStream(SEED, 3).take(300), samples, strict=True):
            below = a ** (-(x - 1)) / (1 + a) if x <= 0 else 1 - a**x / (1 + a)
            upto = a ** (-x) / (1 + a) if x < 0 else 1 - a ** (x + 1) / (1 + a)
            assert below < Decimal(word) / 2**64 < upto


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(100), Fraction(10**9)])
@NAMED
def test_blocks_are_natural(name: str, scale: Fraction) -> None:
    whole = draw(NoiseStream(SEED, 1), name, scale, 20_000)
    pieces, stream = [], NoiseStream(SEED, 1)
    for size in (1, 1, 0, 5, 7, 32, 33, 100, 8192, 1, 8193, 20):
        pieces += draw(stream, name, scale, size)
    assert pieces == whole[: len(pieces)]


@NAMED
def test_what_is_out_of_range_is_refused_and_changes_nothing(name: str) -> None:
    stream, most = NoiseStream(SEED, 0), MOST[name]
    for scale in (Fraction(0), Fraction(-1, 3), most + Fraction(1, 9), Fraction(10**400)):
        with pytest.raises(ValueError, match=rf"positive and at most 2\^{most.bit_length() - 1}"):
            getattr(stream, name)(scale, 1)
    with pytest.raises(ValueError, match="0 or more"):
        getattr(stream, name)(Fraction(1), -1)
    with pytest.raises(TypeError, match="exact Fraction, not float"):
        getattr(stream, name)(0.5, 1)
    assert unchanged(stream, name)


@NAMED
def test_extreme_scales_work(name: str) -> None:
    for scale in (Fraction(1, 10**400), Fraction(1, 10**9), Fraction(MOST[name])):
        assert any(draw(NoiseStream(SEED, 0), name, scale, 100)) == (scale > 1)


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


def test_a_forked_process_does_not_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = NoiseStream(SEED, 0)
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
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(FailClosed, match="forked process"):
            stream.geometric(Fraction(1), 1)
    assert unchanged(stream)


def test_a_stream_is_not_doubled() -> None:
    for double in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(FailClosed, match="cannot be copied"):
            double(NoiseStream(SEED, 0))


def test_no_text_shows_the_seed() -> None:
    stream = NoiseStream(SEED, 4)
    assert repr(stream) == str(stream) == "<NoiseStream 4>"
    assert SEED.hex() not in repr(stream._main)
    assert not hasattr(stream, "__dict__")


def test_the_package_exports_what_it_says() -> None:
    assert stream_dp.noise.__all__ == ["NoiseStream", "fresh_seed"]
    assert len(stream_dp.noise.fresh_seed()) == 32


@pytest.mark.parametrize(
    "scale", [Fraction(1, 3), Fraction(5, 2), Fraction(1000), Fraction(1 << 30)]
)
@pytest.mark.parametrize("size", [0, 1, 14, 15, 300])
def test_streams_drawn_in_one_pass_are_those_drawn_one_by_one(scale: Fraction, size: int) -> None:
    streams, same = ([NoiseStream(SEED, number) for number in (7, 3, 11)] for _ in range(2))
    for number in range(3):
        streams[number].laplace(Fraction(2), number), same[number].laplace(Fraction(2), number)
    for _ in range(2):
        found = NoiseStream.laplace_of_each(streams, scale, size)
        assert found.tolist() == [stream.laplace(scale, size).tolist() for stream in same]


def test_streams_drawn_in_one_pass_have_tails_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samplers, "TAIL_SCALES", 1)  # a third of the samples
    scale, streams = Fraction(7, 2), (7, 3, 11)
    samplers.laplace_sampler.cache_clear()
    found = NoiseStream.laplace_of_each([NoiseStream(SEED, n) for n in streams], scale, 100)
    alone = [NoiseStream(SEED, n).laplace(scale, 100).tolist() for n in streams]
    samplers.laplace_sampler.cache_clear()
    assert found.tolist() == alone
