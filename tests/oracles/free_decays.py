"""The error of windows with correlated noise in floats, from dense matrices, and strategies fitted with free numbers.

Rules: nothing here knows halvings, lattices, eigenvalues or the search of the product. An error is the mean square
error of the last of `steps` ticks times the squared sensitivity, by view: a window, or None for all ticks so far.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular, toeplitz
from scipy.optimize import minimize
from scipy.signal import lfilter

Floats: TypeAlias = NDArray[np.float64]
Views: TypeAlias = Sequence[int | None]


def dense_errors(c: Floats, views: Views) -> Floats:
    """The mean square errors of every tick, shape (views, ticks), of z with variance 1, by A_W C^-1 as a matrix."""
    steps = len(c)
    strategy = toeplitz(c, np.zeros(steps))
    inverse = solve_triangular(strategy, np.eye(steps), lower=True)
    ages = np.subtract.outer(np.arange(steps), np.arange(steps))
    rows = []
    for window in views:
        workload = (ages >= 0) & (ages < (steps if window is None else window))
        rows.append(((workload @ inverse) ** 2).sum(axis=1))
    return np.array(rows)


def of_series(c: Floats, views: Views) -> Floats:
    """The errors of a Toeplitz strategy with these coefficients, by power series."""
    impulse = np.eye(1, len(c))[0]
    return _errors(lfilter(impulse[:1], c, impulse), float(c @ c), views)


def of_buffers(thetas: Floats, omegas: Floats, steps: int, views: Views) -> Floats:
    """The errors of c_k = sum of omegas * thetas^(k-1), by rational functions: 1 / c is one of their degree."""
    impulse = np.eye(1, steps)[0]
    below = np.poly(thetas)
    over = np.array(
        sum(
            omega * np.append([0.0], np.poly(np.delete(thetas, at)))
            for at, omega in enumerate(omegas)
        )
    )
    c = lfilter(below + over, below, impulse)
    return _errors(lfilter(below, below + over, impulse), float(c @ c), views)


def _errors(inverse: Floats, norm: float, views: Views) -> Floats:
    sums = np.cumsum(inverse)
    parts = []
    for window in views:
        part = sums.copy()
        if window is not None:
            part[window:] -= sums[:-window]
        parts.append(float(part @ part) * norm)
    return np.array(parts)


def least(steps: int, window: int | None) -> float:
    """The least error of a Toeplitz strategy for this view alone, by the square root of its series."""
    series = np.ones(steps)
    if window is not None:
        series[window:] = 0
    root = np.zeros(steps)
    root[0] = 1.0
    for k in range(1, steps):
        root[k] = (series[k] - root[1:k] @ root[k - 1 : 0 : -1]) / 2
    return float(root @ root) ** 2


def fitted(error: Callable[[Floats], Floats], start: Floats, least_errors: Floats) -> Floats:
    """The errors at a local optimum of the quotients' mean of power 8, by L-BFGS from `start`."""

    @np.errstate(over="ignore", invalid="ignore")  # a step too far has an endless error
    def score(free: Floats) -> Any:
        return np.nan_to_num(
            np.log(((error(free) / least_errors) ** 8).sum()) / 8, nan=1e9, posinf=1e9
        )

    end = minimize(score, start, method="L-BFGS-B", options={"maxfun": 40_000, "maxiter": 400})
    return error(end.x)
