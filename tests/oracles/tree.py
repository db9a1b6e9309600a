"""Dense oracle of the k-ary tree counter with subtraction, and of the hybrid counter on top of it.

Sources: Andersson, Pagh, Torkamani: Improved Counting under Continual Observation with Pure
Differential Privacy (k-ary trees with subtraction); Chan, Shi, Song: Private and Continual Release
of Statistics (the hybrid mechanism). A node (level l, index i) covers the 0-based items i*k^l ..
(i+1)*k^l - 1.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Matrix: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Node: TypeAlias = tuple[int, int]


def capacity(k: int, h: int) -> int:
    """The largest T that h balanced base-k digits can write."""
    return int((k**h - 1) // 2)


def terms(t: int, k: int, h: int) -> dict[Node, int]:
    """The node coefficients (+1 or -1) of the release after t items."""
    if k % 2 == 0 or not 0 <= t <= capacity(k, h):
        raise ValueError(f"need odd k and 0 <= t <= {capacity(k, h)}, got k={k}, t={t}")
    found: dict[Node, int] = {}
    x = t
    for level in range(h):
        digit = (x + k // 2) % k - k // 2
        x = (x - digit) // k
        low, high, sign = (k * x, k * x + digit, 1) if digit > 0 else (k * x + digit, k * x, -1)
        found.update({(level, i): sign for i in range(low, high)})
    return found


def coefficient_matrix(k: int, h: int, horizon: int) -> tuple[Matrix, list[Node]]:
    """(A, nodes): release t is the count plus (A z)[t-1]; A has shape (horizon, len(nodes))."""
    rows = [terms(t, k, h) for t in range(1, horizon + 1)]
    nodes = sorted({node for row in rows for node in row})
    column = {node: j for j, node in enumerate(nodes)}
    matrix = np.zeros((horizon, len(nodes)), dtype=np.int64)
    for t, row in enumerate(rows):
        for node, sign in row.items():
            matrix[t, column[node]] = sign
    return matrix, nodes


def term_counts(k: int, h: int, horizon: int) -> Matrix:
    """How many node noises each release t = 1..horizon adds up; shape (horizon,)."""
    x = np.arange(1, horizon + 1, dtype=np.int64)
    count = np.zeros_like(x)
    for _ in range(h):
        digit = (x + k // 2) % k - k // 2
        count += np.abs(digit)
        x = (x - digit) // k
    if np.any(x):
        raise ValueError(f"(k={k}, h={h}) cannot count to {horizon}")
    return count


def laplace_variance(scale: float) -> float:
    """Variance of the continuous Laplace variable."""
    return 2 * scale**2


def discrete_laplace_variance(scale: float) -> float:
    """Variance of the discrete Laplace variable with P[x] proportional to exp(-|x| / scale)."""
    return 2 * math.exp(-1 / scale) / math.expm1(-1 / scale) ** 2


def variances(k: int, h: int, horizon: int, scale: float) -> Floats:
    """Exact variance of each release with DLap(scale) in every node; shape (horizon,)."""
    return term_counts(k, h, horizon).astype(np.float64) * discrete_laplace_variance(scale)


def mse(k: int, h: int, horizon: int) -> tuple[float, float]:
    """(average, maximum) over t <= horizon of the MSE at eps = 1 with continuous Laplace(h)."""
    count = term_counts(k, h, horizon)
    return float(count.mean()) * laplace_variance(h), float(count.max()) * laplace_variance(h)


def candidates(horizon: int, extra: int = 4) -> list[tuple[int, int]]:
    """For each height the `extra` smallest odd branching factors that reach the horizon."""
    found = []
    for h in range(1, max(2, math.ceil(math.log(2 * horizon + 1, 3))) + 1):
        k = 3
        while capacity(k, h) < horizon:
            k += 2
        found += [(k + 2 * i, h) for i in range(extra)]
    return found


@lru_cache
def best(horizon: int) -> tuple[int, int]:
    """The (k, h) with the least average MSE up to the horizon; ties go to the least maximum."""
    return min(candidates(horizon), key=lambda shape: mse(shape[0], shape[1], horizon))


@dataclass(frozen=True, slots=True)
class Hybrid:
    """Coefficients and node scales of the hybrid: release t is count_t + (matrix z)[t-1]."""

    matrix: Matrix
    scales: Floats
    nodes: list[tuple[int, int, int]]  # (epoch or -1 for the tree of epoch totals, level, index)

    def variances(self) -> Floats:
        """Variance of each release, continuous Laplace noise; shape (horizon,)."""
        return np.abs(self.matrix) @ (2 * self.scales**2)


def hybrid_terms(t: int, outer: tuple[int, int] = (9, 2)) -> dict[tuple[int, int, int], int]:
    """Node coefficients at time t: totals of the closed epochs, then inside the open one.

    Epoch e holds the items 2^e .. 2^(e+1)-1; its last release still comes from the inside.
    """
    e = t.bit_length() - 1
    inner = best(2**e)
    found = {(-1, *node): sign for node, sign in terms(e, *outer).items()}
    found.update({(e, *node): sign for node, sign in terms(t - 2**e + 1, *inner).items()})
    return found


def hybrid_matrix(
    horizon: int, epsilon: float = 1.0, w: float = 0.25, outer: tuple[int, int] = (9, 2)
) -> Hybrid:
    """The dense hybrid counter: epochs at (1-w) epsilon, the tree of their totals at w epsilon."""
    heights = {e: best(2**e)[1] for e in range(horizon.bit_length())}
    rows = [hybrid_terms(t, outer) for t in range(1, horizon + 1)]
    nodes = sorted({node for row in rows for node in row})
    column = {node: j for j, node in enumerate(nodes)}
    matrix = np.zeros((horizon, len(nodes)), dtype=np.int64)
    for t, row in enumerate(rows):
        for node, sign in row.items():
            matrix[t, column[node]] = sign
    scales = [
        outer[1] / (w * epsilon) if e < 0 else heights[e] / ((1 - w) * epsilon) for e, _, _ in nodes
    ]
    return Hybrid(matrix, np.array(scales), nodes)


def hybrid_variances(horizon: int, w: float = 0.25, outer: tuple[int, int] = (9, 2)) -> Floats:
    """Variance of each release at eps = 1 without the dense matrix; shape (horizon,)."""
    found = np.zeros(horizon)
    for e in range(horizon.bit_length()):
        here = found[2**e - 1 : 2 ** (e + 1) - 1]
        k, h = best(2**e)
        here += len(terms(e, *outer)) * laplace_variance(outer[1] / w)
        here += term_counts(k, h, here.size) * laplace_variance(h / (1 - w))
    return found
