"""Exact worst-case privacy loss of small tree counters, by integer programming and by enumeration.

The release vector is counts + A z with iid discrete Laplace z. One more item at step i adds the 0/1
vector s_i = [t >= i]. An integer shift v with A v = s_i maps the noise of one copy onto the other's
with equal releases and density ratio at most exp(|v|_1 / scale): the upper bound. For the lower
bound let the releases run to infinity along R*o: the likelihood decays like exp(-N(o)/scale), N(o)
= min { |z|_1 : A z = o, z real }, so the log ratio tends to the directional derivative of N, whose
supremum is N(s_i): the linear relaxation of the same program.
"""

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from oracles.exact import max_log_ratio as max_log_ratio
from oracles.tree import Floats, Matrix, Node


def step_shift(horizon: int, step: int) -> Matrix:
    """How one more item at 1-based `step` moves the counts; shape (horizon,)."""
    return (np.arange(1, horizon + 1) >= step).astype(np.int64)


def canonical_shift(nodes: list[Node], k: int, step: int) -> Matrix:
    """1 on every node that holds the item of 1-based `step`; shape (len(nodes),)."""
    return np.array(
        [int((step - 1) // k**level == index) for level, index in nodes], dtype=np.int64
    )


def least_shift(
    matrix: Matrix | Floats, shift: Matrix, weights: Floats | None = None, *, integer: bool = True
) -> Floats:
    """The v of least weighted l1 norm with matrix @ v = shift; integer ones are checked.

    Raises:
        ArithmeticError: there is none, so the two copies can be told apart for sure.
    """
    size = matrix.shape[1]
    both = np.concatenate([matrix, -matrix], axis=1)
    found = milp(
        np.tile(np.ones(size) if weights is None else weights, 2),
        constraints=LinearConstraint(both, shift, shift),
        bounds=Bounds(0, np.inf),
        integrality=np.full(2 * size, int(integer)),
    )
    if found.x is None:
        raise ArithmeticError("no shift of the noise explains the releases")
    v = found.x[:size] - found.x[size:]
    if not integer:
        return np.asarray(v, dtype=np.float64)
    rounded = np.rint(v).astype(np.int64)
    if not np.array_equal(matrix @ rounded, shift):
        raise ArithmeticError("the solver's shift does not hold in integers")
    return rounded.astype(np.float64)


def loss_bracket(matrix: Matrix, scales: float | Floats) -> tuple[float, float]:
    """(lower, upper) of the worst-case loss over all steps; equal if the program is integral.

    `scales` is the node scale, or one scale per node.
    """
    weights = np.broadcast_to(1 / np.asarray(scales, dtype=np.float64), (matrix.shape[1],))
    lower = upper = 0.0
    for step in range(1, matrix.shape[0] + 1):
        shift = step_shift(matrix.shape[0], step)
        relaxed = least_shift(matrix, shift, weights, integer=False)
        lower = max(lower, float(weights @ np.abs(relaxed)))
        upper = max(upper, float(weights @ np.abs(least_shift(matrix, shift, weights))))
    return lower, upper


@dataclass(frozen=True, slots=True)
class ReleaseBounds:
    """Probabilities of release vectors: at least `lower[o]`, at most `lower[o] + missing`."""

    lower: dict[tuple[int, ...], float]
    missing: float


def release_bounds(matrix: Matrix, counts: Matrix, scale: float, radius: int) -> ReleaseBounds:
    """Enumerate all node noises in [-radius, radius]; the mass outside the box is `missing`."""
    a = math.exp(-1 / scale)
    values = np.array(list(itertools.product(range(-radius, radius + 1), repeat=matrix.shape[1])))
    weights = ((1 - a) / (1 + a)) ** matrix.shape[1] * a ** np.abs(values).sum(axis=1)
    outputs, inverse = np.unique(values @ matrix.T + counts, axis=0, return_inverse=True)
    sums = np.bincount(inverse.ravel(), weights=weights)
    lower = {tuple(map(int, o)): float(p) for o, p in zip(outputs, sums, strict=True)}
    inside = (1 - 2 * a ** (radius + 1) / (1 + a)) ** matrix.shape[1]
    return ReleaseBounds(lower, 1 - inside)


def certain_loss(a: ReleaseBounds, b: ReleaseBounds) -> float:
    """A loss that certainly occurs: max of ln(least P_a / greatest P_b), both ways."""
    return max(
        math.log(p / (y.lower.get(o, 0.0) + y.missing))
        for x, y in ((a, b), (b, a))
        for o, p in x.lower.items()
    )


def only_shift_norm(matrix: Matrix, shift: Matrix) -> Fraction:
    """For square invertible A: the l1 norm of the only v with A v = shift, solved in fractions.

    Then each release vector has one noise vector, and the loss is exactly norm / scale.
    """
    size = matrix.shape[0]
    rows = [[Fraction(int(v)) for v in matrix[i]] + [Fraction(int(shift[i]))] for i in range(size)]
    for col in range(size):
        pivot = next(r for r in range(col, size) if rows[r][col] != 0)
        rows[col], rows[pivot] = rows[pivot], rows[col]
        rows[col] = [v / rows[col][col] for v in rows[col]]
        for r in range(size):
            if r != col and rows[r][col] != 0:
                rows[r] = [v - rows[r][col] * w for v, w in zip(rows[r], rows[col], strict=True)]
    return sum((abs(row[-1]) for row in rows), Fraction(0))
