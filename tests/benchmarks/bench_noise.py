"""Discrete Laplace and discrete Gaussian: ours against OpenDP's vectorised one, in one process.

Run: PYTHONPATH=. python tests/benchmarks/bench_noise.py
"""

import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import opendp.prelude as dp

from stream_dp.noise import NoiseStream, fresh_seed
from stream_dp.noise.stream import GaussianSampler

SIZE = 100_000
REPEATS = 5
SCALES = [Fraction(1), Fraction(10), Fraction(100), Fraction(1000), Fraction(10**9)]
DEVIATIONS = [1, 10, 256, 1000, 10**6, 1 << 42]


def best_of(action: Callable[[], object]) -> float:
    """The shortest of a few runs, in seconds."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def opendp_laplace(scale: Fraction) -> Callable[[], object]:
    """A call that draws SIZE samples with OpenDP."""
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    measurement, zeros = dp.m.make_laplace(*space, scale=float(scale)), [0] * SIZE
    return lambda: measurement(zeros)


def opendp_gaussian(deviation: int) -> Callable[[], object]:
    """A call that draws SIZE samples with OpenDP."""
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    measurement, zeros = dp.m.make_gaussian(*space, scale=float(deviation)), [0] * SIZE
    return lambda: measurement(zeros)


def thousand_draws(stream: NoiseStream, scale: Fraction) -> None:
    """Draw one sample at a time from one stream."""
    for _ in range(1000):
        stream.laplace(scale, 1)


def thousand_streams(seed: bytes, scale: Fraction) -> None:
    """Draw one sample from each new stream."""
    for number in range(1000):
        NoiseStream(seed, number).laplace(scale, 1)


def main() -> None:
    print(f"samples per batch {SIZE}, best of {REPEATS}; microseconds")
    print(f"{'scale':>12} {'ours':>8} {'OpenDP':>8} {'ratio':>7} {'draw of 1':>10} {'new + 1':>8}")
    seed = fresh_seed()
    for scale in SCALES:
        stream = NoiseStream(seed, 0)
        stream.laplace(scale, SIZE)  # tables are built once per scale
        ours = best_of(partial(stream.laplace, scale, SIZE)) / SIZE
        theirs = best_of(opendp_laplace(scale)) / SIZE
        one = best_of(partial(thousand_draws, stream, scale)) / 1000
        new = best_of(partial(thousand_streams, seed, scale))
        figures = f"{ours * 1e6:8.4f} {theirs * 1e6:8.3f} {theirs / ours:7.0f}"
        print(f"{scale!s:>12} {figures} {one * 1e6:10.2f} {new * 1e3:8.2f}")
    gaussian(seed)


def gaussian(seed: bytes) -> None:
    """Print the same for the discrete Gaussian; building a table is timed too, in milliseconds."""
    print(f"{'deviation':>14} {'ours':>8} {'OpenDP':>8} {'ratio':>7} {'table ms':>10}")
    for deviation in DEVIATIONS:
        stream, variance = NoiseStream(seed, 0), Fraction(deviation**2)
        table = best_of(partial(GaussianSampler, variance))
        stream.gaussian(variance, SIZE)
        ours = best_of(partial(stream.gaussian, variance, SIZE)) / SIZE
        theirs = best_of(opendp_gaussian(deviation)) / SIZE
        print(
            f"{deviation:>14} {ours * 1e6:8.4f} {theirs * 1e6:8.3f} {theirs / ours:7.0f} {table * 1e3:10.1f}"
        )


if __name__ == "__main__":
    main()
