"""The best linear decoding of a tree's node noises: integer gains, and the weight of each noise in an answer.

All node totals R x are measured once, each with its node's noise z; the answer is A x + L z with L R = A, for A x
the prefix sums. Least squares, in one pass along a tree: a finished node is estimated from its own noise and its
children (`TreeShape.finished`); then, from the top down, the estimates of (prefix up to the path's node, total of
that node) are corrected by the surplus of the node's total over its children's. Both corrections are multiples of
differences that no count moves, so any gain keeps L R = A; exact gains give the least variance.
Rules: a gain is an integer over 2^GAIN_BITS, a function of digits alone. This file knows no noise and no state.
"""

from functools import lru_cache

from stream_dp.mechanisms.linear.tree_shape import TreeShape

GAIN_BITS = 16
UNIT = 1 << GAIN_BITS
KEPT = 1 << 11  # cached gains of nodes: enough for the paths of many trees at their last steps


def children_gain(shape: TreeShape, level: int) -> int:
    """Return the gain of the children's sum in a finished node's estimate, against the node's own noise."""
    return round((1 - shape.finished[level]) * UNIT)


@lru_cache(maxsize=KEPT)
def path_gains(shape: TreeShape, level: int, index: int) -> tuple[int, int]:
    """Return the gains of the parent's surplus for (prefix, total) at node `index` of an inner level."""
    surplus, moved = _surplus(shape, level, index)
    return round(moved / surplus * UNIT), round(UNIT / surplus)


@lru_cache(maxsize=KEPT)
def window_gains(shape: TreeShape, parent: int) -> tuple[int, int]:
    """Return the gains of the surplus of node `parent` of level 1: for the prefix before its window, and for each
    step.

    The prefix before the window loses the first; each step in the window adds the second.
    """
    cross, total = _known(shape, 1, parent)
    return round(cross / (total + shape.arity) * UNIT), round(UNIT / (total + shape.arity))


@lru_cache(maxsize=16)  # a tick's band and quotients use the same
def weights(shape: TreeShape, prefix: int) -> tuple[tuple[int, float], ...]:
    """Return (number, |weight|) of the independent node noises in the answer after `prefix` steps: the row of L."""
    if prefix == 0 or shape.height == 1:
        return ((prefix, 1.0),)
    index, place = divmod(prefix - 1, shape.arity)
    at_first, each = window_gains(shape, index)
    passed = (at_first - each * (place + 1)) / UNIT
    found = [(place + 1, 1 + passed), (shape.arity - place - 1, passed)]
    carried = -passed
    for level in range(1, shape.height - 1):
        upper, place = divmod(index, shape.arity)
        to_prefix, to_total = (gain / UNIT for gain in path_gains(shape, level, index))
        passed = carried * to_total - to_prefix
        found += [(1, carried - passed), (shape.arity - place - 1, -passed)]
        found += _below(shape, level, place, 1 - passed)
        index, carried = upper, passed
    found += [(1, carried), *_below(shape, shape.height - 1, index, 1.0)]
    return tuple((number, abs(weight)) for number, weight in found if number and weight)


def _below(shape: TreeShape, level: int, number: int, weight: float) -> list[tuple[int, float]]:
    """Return (number, weight) of the noises in the estimates of `number` finished nodes of a level."""
    found = []
    for lower in range(level, 0, -1):
        to_children = children_gain(shape, lower) / UNIT
        found.append((number, weight * (1 - to_children)))
        number, weight = number * shape.arity, weight * to_children
    return [*found, (number, weight)]


@lru_cache(maxsize=KEPT)
def _known(shape: TreeShape, level: int, index: int) -> tuple[float, float]:
    """Return the covariance of prefix and total, and the variance of the total, at node `index`.

    Both are for estimates from the node's level and the levels above.
    """
    if level == shape.height - 1:
        return 0.0, 1.0
    surplus, moved = _surplus(shape, level, index)
    return moved / surplus, 1 - 1 / surplus


def _surplus(shape: TreeShape, level: int, index: int) -> tuple[float, float]:
    """Return the variance of the parent's surplus, and its covariance with the prefix up to node `index`."""
    parent, place = divmod(index, shape.arity)
    cross, total = _known(shape, level + 1, parent)
    left = place * shape.finished[level]
    return total + left + (shape.arity - place), cross - left
