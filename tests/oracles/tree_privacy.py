"""How far neighbouring streams can be told apart through the linear map from node noises to answers.

Answers are counts + A z with independent discrete Laplace z. A difference s of the exact answers that a real shift v of
the noise explains, A v = s, loses for sure, far out in the tails, the least sum of |v| / scale: the likelihood of
answers that run to infinity along R * o decays like exp(-min { |z| / scale : A z = o }).
"""

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from oracles.decoded_tree import Floats, Matrix


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
