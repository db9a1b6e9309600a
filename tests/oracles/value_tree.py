"""Dense oracle of a tree over value buckets: which node holds which buckets, and the best linear estimates.

Level 0 has the buckets; node i of the next level holds nodes i * k to (i + 1) * k - 1 of the one below, as many as are
there; a level of at most k nodes has none above it. Every node is measured with independent noise of equal variance.
Written from these sentences alone: it knows no gains and no passes.
"""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def nodes(leaves: int, arity: int) -> list[range]:
    """The buckets of each node, lowest level first."""
    found = level = [range(i, i + 1) for i in range(leaves)]
    while len(level) > arity:
        parts = [level[i : i + arity] for i in range(0, len(level), arity)]
        level = [range(part[0].start, part[-1].stop) for part in parts]
        found = found + level
    return found


def membership(leaves: int, arity: int) -> NDArray[np.int64]:
    """Which node holds which bucket, shape (nodes, leaves)."""
    every = nodes(leaves, arity)
    matrix = np.zeros((len(every), leaves), dtype=np.int64)
    for row, held in enumerate(every):
        matrix[row, held.start : held.stop] = 1
    return matrix


def best(leaves: int, arity: int) -> Floats:
    """The weights of the nodes in the best estimates of the buckets, shape (leaves, nodes)."""
    rows = membership(leaves, arity).astype(np.float64)
    return np.asarray(np.linalg.solve(rows.T @ rows, rows.T), dtype=np.float64)


def true_buckets(counts: "list[int]", quantile: Fraction) -> Iterator[int]:
    """The buckets that hold the rank q * n: some event's place, or the border of two."""
    asked, through = quantile * sum(counts), 0
    for bucket, count in enumerate(counts):
        before, through = through, through + count
        if before <= asked <= through:
            yield bucket


def rank_error(counts: "list[int]", quantile: Fraction, bucket: int) -> Fraction:
    """How many events lie between the rank q * n and those that a bucket holds."""
    asked, before = quantile * sum(counts), sum(counts[:bucket])
    return max(Fraction(0), before - asked, asked - before - counts[bucket])
