"""Dense oracle of a forest of windows: which nodes are complete when, and the best linear estimate of each window.

A node (level, index) covers the 0-based ticks i * K_l .. (i + 1) * K_l - 1, K_l the product of the first l arities;
there is nothing above the highest level. After n ticks the nodes that end by n are measured, each with independent
noise of its level's variance; the estimate of the ticks a .. n - 1 of least variance is that of generalised least
squares (Gauss, Markov). Written from these sentences alone: it knows no cover, no gain and no recursion.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from oracles.decoded_tree import Floats, Node


def spans(arities: Sequence[int]) -> list[int]:
    """How many ticks a node covers, by level."""
    return [math.prod(arities[:level]) for level in range(len(arities) + 1)]


def complete(arities: Sequence[int], ticks: int) -> list[Node]:
    """The nodes whose ticks are all among the first `ticks`, in the order in which they are: lower levels first."""
    sizes = spans(arities)
    return [
        (level, (tick + 1) // size - 1)
        for tick in range(ticks)
        for level, size in enumerate(sizes)
        if (tick + 1) % size == 0
    ]


def membership(arities: Sequence[int], ticks: int) -> NDArray[np.int64]:
    """R, shape (complete nodes, ticks): which node covers which tick."""
    sizes, nodes = spans(arities), complete(arities, ticks)
    matrix = np.zeros((len(nodes), ticks), dtype=np.int64)
    for row, (level, index) in enumerate(nodes):
        matrix[row, index * sizes[level] : (index + 1) * sizes[level]] = 1
    return matrix


def asked(ticks: int, window: int) -> NDArray[np.int64]:
    """The window's indicator after so many ticks: as many of the last ones as there are."""
    return (np.arange(ticks) >= ticks - window).astype(np.int64)


def best(arities: Sequence[int], variances: Sequence[float], ticks: int, window: int) -> Floats:
    """The weights of the complete nodes in the best estimate: L with L R = the window's indicator."""
    rows = membership(arities, ticks).astype(np.float64)
    inverse = np.array([1 / variances[level] for level, _ in complete(arities, ticks)])
    normal = rows.T @ (inverse[:, None] * rows)
    weights = asked(ticks, window) @ np.linalg.solve(normal, rows.T * inverse[None, :])
    return np.asarray(weights, dtype=np.float64)


def exact_least_variance(
    arities: Sequence[int], variances: Sequence[Fraction], ticks: int, window: int
) -> Fraction:
    """The same in fractions: a N^-1 a for the normal matrix N, by Gaussian elimination."""
    rows = membership(arities, ticks)
    each = [variances[level] for level, _ in complete(arities, ticks)]
    wanted = [Fraction(int(entry)) for entry in asked(ticks, window)]
    system = [
        [
            sum(
                (1 / v for row, v in zip(rows, each, strict=True) if row[i] and row[j]), Fraction(0)
            )
            for j in range(ticks)
        ]
        + [wanted[i]]
        for i in range(ticks)
    ]
    for column in range(ticks):
        pivot = next(r for r in range(column, ticks) if system[r][column])
        system[column], system[pivot] = system[pivot], system[column]
        system[column] = [v / system[column][column] for v in system[column]]
        for row in range(ticks):
            if row != column and (factor := system[row][column]):
                system[row] = [
                    v - factor * w for v, w in zip(system[row], system[column], strict=True)
                ]
    return sum((w * line[-1] for w, line in zip(wanted, system, strict=True)), Fraction(0))
