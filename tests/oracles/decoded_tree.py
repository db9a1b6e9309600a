"""Dense oracle of the decoded k-ary tree: which nodes are measured when, and the best linear decoding of them.

A node (level, index) covers the 0-based items i*k^l .. (i+1)*k^l - 1; there is nothing above the highest level. A
window is all children of one parent, drawn when an item first comes below that parent; a highest node is drawn alone.
With R the nodes' membership and a_t the prefix of t items, release t is a_t x + L_t z, and the L_t of least variance
with L_t R = a_t is a_t R^+ over the nodes drawn by then (Gauss, Markov; for trees Honaker 2015).
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Matrix: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Node: TypeAlias = tuple[int, int]


def drawn_with(k: int, h: int, item: int) -> list[Node]:
    """The nodes drawn when this item (from 0) comes, the lowest level first, from left to right."""
    found = []
    for level in range(h - 1):
        if item % k ** (level + 1) == 0:
            parent = item // k ** (level + 1)
            found += [(level, parent * k + child) for child in range(k)]
    if item % k ** (h - 1) == 0:
        found.append((h - 1, item // k ** (h - 1)))
    return found


def drawn(k: int, h: int, steps: int) -> list[Node]:
    """All nodes drawn in the first `steps` items, in order."""
    return [node for item in range(steps) for node in drawn_with(k, h, item)]


def first_and_last(node: Node, k: int) -> tuple[int, int]:
    """The first and last step, counted from 1, that the node covers."""
    level, index = node
    return index * k**level + 1, (index + 1) * k**level


def membership(nodes: list[Node], k: int, items: int) -> Matrix:
    """R: which node (row) covers which item (column)."""
    matrix = np.zeros((len(nodes), items), dtype=np.int64)
    for row, node in enumerate(nodes):
        first, last = first_and_last(node, k)
        matrix[row, first - 1 : last] = 1
    return matrix


def least_squares(k: int, h: int, steps: int) -> Floats:
    """L, shape (steps, nodes drawn in all): row t - 1 decodes the prefix of t items from what is drawn by then."""
    nodes = drawn(k, h, steps)
    matrix = np.zeros((steps, len(nodes)))
    known = 0
    for step in range(1, steps + 1):
        known += len(drawn_with(k, h, step - 1))
        items = max(first_and_last(node, k)[1] for node in nodes[:known])
        prefix = (np.arange(items) < step).astype(np.float64)
        inverse = np.linalg.pinv(membership(nodes[:known], k, items).astype(np.float64))
        matrix[step - 1, :known] = prefix @ inverse
    return matrix
