"""Gaussian counters at (1, 1e-6): error by closed form and by simulation, and microseconds a step.

Run: PYTHONPATH=. python tests/benchmarks/bench_gaussian_counter.py
"""

import time
from fractions import Fraction

import numpy as np

from stream_dp.accounting.conversions import zcdp_budget
from stream_dp.accounting.gaussian_curve import gaussian_budget
from stream_dp.core.guarantee import ApproxDP
from stream_dp.core.mechanism import Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.noise import NoiseStream, fresh_seed

TARGET = ApproxDP(Fraction(1), Fraction(1, 10**6))
STEPS = 1 << 10
WIDTHS = (1, 100, 10_000)


def rmse(counter: GaussianCounter, steps: int) -> float:
    """The root of the mean square error over all steps: exact for the first 64, at 256 others, straight between."""
    points = sorted(
        {*range(1, min(64, steps) + 1), *(round(steps * k / 256) or 1 for k in range(1, 257))}
    )
    squares = [counter.lattice.deviation(t) ** 2 + 1 / 12 for t in points]
    return float(np.interp(np.arange(1, steps + 1), points, squares).mean() ** 0.5)


def errors() -> None:
    """Print RMSE over all steps and at the last one, by claim and horizon."""
    mu, rho = gaussian_budget(TARGET), zcdp_budget(TARGET)
    print(f"(1, 1e-6): mu {float(mu):.6f}, rho {float(rho):.6f}")
    print(f"{'steps':>6} {'claim':>6} {'horizon':>8} {'RMSE':>8} {'last':>8}")
    for bits in (10, 16, 20):
        for gdp, cost in ((True, mu**2 / 2), (False, rho)):
            for horizon in (1 << bits, None):
                counter = GaussianCounter(1, cost, Neighbors.ADD_REMOVE, horizon, gdp=gdp)
                last = counter.lattice.deviation(1 << bits)
                kind = "none" if horizon is None else "known"
                claim = "GDP" if gdp else "zCDP"
                print(
                    f"{f'2^{bits}':>6} {claim:>6} {kind:>8} {rmse(counter, 1 << bits):8.2f} {last:8.2f}"
                )


def steps() -> None:
    """Print the time of a step, and the expected maximum over all of them."""
    print(f"{'columns':>8} {'us a step':>10} {'E max':>8}   ({STEPS} steps)")
    for width in WIDTHS:
        counter = GaussianCounter(
            width, gaussian_budget(TARGET) ** 2 / 2, Neighbors.ADD_REMOVE, STEPS
        )
        noise, row = NoiseStream(fresh_seed(), 0), np.zeros(width, dtype=np.int64)
        state, largest = counter.init(noise), np.zeros(width, dtype=np.int64)
        spent = 0.0
        for _ in range(STEPS):
            start = time.perf_counter()
            state, _ = counter.step(state, Update(row), noise)
            spent += time.perf_counter() - start
            largest = np.maximum(largest, abs(counter.lattice.value(state.noise)))
        print(f"{width:>8} {spent / STEPS * 1e6:10.1f} {largest.mean():8.2f}")


def main() -> None:
    errors()
    steps()


if __name__ == "__main__":
    main()
