"""Why a row of tree counters is private: one column's noise, then all columns in parallel.

Shared by the counters with and without a horizon. This file draws nothing.
"""

from collections.abc import Sequence
from fractions import Fraction

from stream_dp.accounting.amounts import text
from stream_dp.accounting.derive import derive
from stream_dp.accounting.rules.leaf import leaf
from stream_dp.accounting.situations import Parallel, Touched
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.linear.tree import TreeNoise


def columns_derivation(
    subject: str,
    source: str,
    trees: Sequence[TreeNoise],
    column_epsilon: Fraction,
    neighbors: Neighbors,
    ones: int = 1,
) -> Derivation:
    """Derive what a counter of `width` columns guarantees, each with the noise of `trees` at `column_epsilon`.

    An event sets at most `ones` of the columns.

    Raises:
        NotDerivable: the noise is too small for `column_epsilon`, or no rule covers the columns.
    """
    width = trees[0].width
    each = Guarantee(PureDP(column_epsilon), neighbors)
    one = leaf(subject, each, source, (_noise(trees, column_epsilon),))
    touched = Touched.columns(neighbors, width, ones=ones)
    return derive((one,), Parallel(f"{width} column(s)", touched, (width,)))


def _noise(trees: Sequence[TreeNoise], epsilon: Fraction) -> Condition:
    """The noise that will be drawn: l1 sensitivity over scale, summed over the trees."""
    paid = sum((tree.shape.height / tree.scale for tree in trees), Fraction(0))
    sums = " + ".join(f"{tree.shape.height} / {text(tree.scale)}" for tree in trees)
    return Condition("noise", paid <= epsilon, f"height / scale = {sums}, at most {text(epsilon)}")
