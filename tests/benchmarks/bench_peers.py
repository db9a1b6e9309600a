"""Counters beside those of dpcrpy 1.0, jax-privacy 2.0 and OpenDP 0.16, in one process: error and time a step.

Errors at epsilon 1, or at (1, 1e-6), over a stream of zeros: RMSE over all steps and runs, and the largest error of a
run, on average. Peers compute in floating point, ours draw exact integers. Of ours, 200 columns are as many runs.

Run: make bench-peers (it installs the peers, about 1 GB, beside the environment of this repository)
"""

import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_dp.accounting.gaussian_curve import gaussian_budget
from stream_dp.core.guarantee import ApproxDP
from stream_dp.core.mechanism import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.noise import NoiseStream, fresh_seed

Errors = NDArray[np.float64]  # shape (runs, steps)
Run = Callable[[int], Errors]  # the number of steps -> one run's errors, shape (1, steps)

EPSILON, DELTA = 1.0, 1e-6
RUNS = 200
BUFFERS, OPTIMISER_STEPS = 4, 100


@dataclass(frozen=True)
class Measured:
    """Errors of several runs, and microseconds a step."""

    errors: Errors
    microseconds: float


def measured(run: Run, steps: int, seconds: float) -> Measured:
    """Run it for so long, but 3 to RUNS times; the first run, with all that is worked out once, is not timed."""
    found = [run(steps)]
    began = time.perf_counter()
    while ((took := time.perf_counter() - began) < seconds and len(found) <= RUNS) or len(
        found
    ) < 4:
        found.append(run(steps))
    return Measured(np.concatenate(found[1:]), took / (len(found) - 1) / steps * 1e6)


def _stepped(mechanism: Any, steps: int) -> Errors:
    """Some of them are one step short of a power of two."""
    steps = min(steps, mechanism.size())
    return np.array([[float(mechanism.dpRelease(0)[0]) for _ in range(steps)]])


def _power(steps: int) -> int:
    return (steps - 1).bit_length()


def _dpcrpy() -> Iterator[tuple[str, bool, Run]]:
    from dpcrpy.bitMethods.abcrg import ABCRG
    from dpcrpy.framework.noiMech import GaussNoiMech, LapNoiMech
    from dpcrpy.treeMethods.binMech import BinMech
    from dpcrpy.treeMethods.honaker import Honaker

    gauss = GaussNoiMech(EPSILON, DELTA).sigma0  # calibrating it takes a second
    for name, kind in (("binary tree", BinMech), ("Honaker", Honaker), ("ABCRG", ABCRG)):

        def pure(steps: int, kind: Any = kind) -> Errors:
            return _stepped(kind(kOrder=_power(steps), noiMech=LapNoiMech(EPSILON)), steps)

        def gaussian(steps: int, kind: Any = kind) -> Errors:
            noise = GaussNoiMech(sigma0=gauss)
            return _stepped(kind(kOrder=_power(steps), noiMech=noise), steps)

        yield f"dpcrpy {name}", True, pure
        yield f"dpcrpy {name}", False, gaussian


def _jax_privacy(rho: float) -> Iterator[tuple[str, bool, Run]]:
    import jax

    jax.config.update("jax_enable_x64", True)
    from jax_privacy.matrix_factorization import buffered_toeplitz

    @cache
    def streamed(steps: int) -> tuple[Any, float]:
        made = buffered_toeplitz.optimize(
            n=steps,
            min_buffers=BUFFERS,
            max_buffers=BUFFERS,
            max_optimizer_steps=OPTIMISER_STEPS,
        )
        squared = float(buffered_toeplitz.sensitivity_squared(made, steps))
        matrix = made.inverse_as_streaming_matrix()
        scanned = jax.jit(lambda noise: _scanned(jax, matrix, noise))
        return scanned, math.sqrt(squared / (2 * rho))

    def run(steps: int) -> Errors:
        scanned, sigma = streamed(steps)
        noise = np.random.default_rng().normal(0, sigma, steps)
        return np.cumsum(np.asarray(scanned(noise)))[None, :]

    yield "jax-privacy BLT (floats, compiled)", False, run


def _scanned(jax: Any, matrix: Any, noise: Any) -> Any:
    """C^-1 times the noise, row after row."""

    def step(state: Any, one: Any) -> Any:
        value, after = matrix.multiply_next(one, state)
        return after, value

    return jax.lax.scan(step, matrix.init_multiply(noise[0]), noise)[1]


def _opendp() -> Iterator[tuple[str, bool, Run]]:
    import opendp.prelude as dp

    dp.enable_features("contrib")

    @cache
    def tree(steps: int) -> tuple[Any, Any]:
        space = dp.vector_domain(dp.atom_domain(T=int), steps), dp.l1_distance(T=int)
        cut: Any = dp.t.make_b_ary_tree(*space, leaf_count=steps, branching_factor=4)
        noisy = cut >> dp.m.then_laplace(scale=float(cut.map(1)) / EPSILON)
        return noisy, dp.t.make_consistent_b_ary_tree(branching_factor=4, TIA=int, TOA=float)

    def run(steps: int) -> Errors:
        noisy, consistent = tree(steps)
        return np.cumsum(consistent(noisy([0] * steps))[:steps])[None, :]

    yield "OpenDP 4-ary tree, once at the end", True, run


def peers(rho: float) -> Iterator[tuple[str, bool, Run | None]]:
    """Yield (name, whether pure, run); the run is None where the library is not installed."""
    for module, make in (("dpcrpy", _dpcrpy), ("opendp", _opendp), ("jax_privacy", None)):
        if find_spec(module) is None:
            yield module, True, None
        else:
            yield from make() if make else _jax_privacy(rho)


STEPS = (2**10, 2**16)
COLUMNS = 200
SECONDS = 20.0
ADD, ONE = Neighbors.ADD_REMOVE, Fraction(1)


def answers(counter: Any, steps: int) -> Errors:
    """The answers of a counter that counts nothing, a row for each of its columns."""
    noise, row = NoiseStream(fresh_seed(), 0), np.zeros(counter.width, dtype=np.int64)
    state, found = counter.init(noise), np.empty((counter.width, steps))
    for step in range(steps):
        state, _ = counter.step(state, Update(row), noise)
        found[:, step] = counter.step(state, Query(), noise)[1]
    return found


def ours(rho: Fraction, steps: int) -> Iterator[tuple[str, bool, Measured]]:
    """Each counter with many columns for its errors, and with one for its time."""
    kinds: dict[str, tuple[bool, Any]] = {
        "tree, optimally decoded": (True, lambda width: Counter(width, ONE, ADD, steps)),
        "Gaussian (BLT on integers)": (
            False,
            lambda width: GaussianCounter(width, rho, ADD, steps, gdp=True),
        ),
    }
    for name, (pure, made) in kinds.items():
        errors = answers(made(COLUMNS), steps)
        one = made(1)
        answers(one, 10)
        began = time.perf_counter()
        answers(one, steps)
        yield (
            f"stream_dp: {name}",
            pure,
            Measured(errors, (time.perf_counter() - began) / steps * 1e6),
        )


def line(name: str, pure: bool, found: Measured) -> str:
    rmse = math.sqrt(float(np.mean(found.errors**2)))
    worst = float(np.abs(found.errors).max(axis=1).mean())
    runs, claim = len(found.errors), "pure" if pure else "(1, 1e-6)"
    return f"{name:38} {claim:10} {rmse:8.2f} {worst:8.1f} {found.microseconds:9.2f} {runs:5}"


def main(all_steps: tuple[int, ...]) -> None:
    mu = gaussian_budget(ApproxDP(Fraction(EPSILON), Fraction("1e-6")))
    print(f"epsilon {EPSILON:g}, delta {DELTA:g} (mu {float(mu):.5f})")
    rho = mu**2 / 2
    for steps in all_steps:
        print(
            f"\n{steps} steps {'':27} {'claim':10} {'RMSE':>8} {'E max':>8} {'us/step':>9} {'runs':>5}"
        )
        for name, pure, found in ours(rho, steps):
            print(line(name, pure, found), flush=True)
        for name, pure, run in peers(float(rho)):
            if run is None:
                print(f"{name}: not installed")
            else:
                print(line(name, pure, measured(run, steps, SECONDS)), flush=True)


if __name__ == "__main__":
    main(tuple(map(int, sys.argv[1:])) or STEPS)
