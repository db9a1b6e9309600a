"""Counters of peer libraries on a stream of zeros, so that an answer is its error; all at sensitivity 1.

dpcrpy 1.0 releases step by step, in floating point. jax-privacy 2.0 optimises a buffered Toeplitz factorisation for
the number of steps and streams its inverse; noise and accounting are the caller's: rho is given to it. Its optimiser is
bounded, to BUFFERS buffers and OPTIMISER_STEPS steps: half a minute each, where the default takes many. OpenDP 0.16 has
no continual counter: a consistent b-ary tree is released once, after the last step, and prefix sums are taken from it,
which is an easier task. What is not installed is left out, by name.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
