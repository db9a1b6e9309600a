"""Counters beside those of dpcrpy 1.0, jax-privacy 2.0 and OpenDP 0.16, in one process: error and time a step.

Errors at epsilon 1, or at (1, 1e-6), over a stream of zeros: RMSE over all steps and runs, and the largest error of a
run, on average. Peers compute in floating point, ours draw exact integers. Of ours, 200 columns are as many runs.

Run: make bench-peers (it installs the peers, about 1 GB, beside the environment of this repository)
"""

import math
import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from benchmarks.counter_peers import DELTA, EPSILON, Errors, Measured, measured, peers

from stream_dp.accounting.gaussian_curve import gaussian_budget
from stream_dp.core.guarantee import ApproxDP
from stream_dp.core.mechanism import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.noise import NoiseStream, fresh_seed

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
