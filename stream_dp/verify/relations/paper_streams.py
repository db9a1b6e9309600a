"""The neighbour relations of [HSV] section 7, on the messages of this package.

Rules: the paper's reals are integers here (rows) or exact rationals (values), as everywhere in this package; a step
(x, threshold) of its sparse vector is an `Update` of x and a `Query` with the threshold. This file knows no mechanism.
"""

from fractions import Fraction

from stream_dp.core.row_relations import MOST_EVENTS, RowSpace, StepRows, Stream
from stream_dp.verify.relations.static import StaticDataSet, single_pair


def histogram(width: int) -> StepRows:
    """~_H on rows ([HSV] Def 7.2): streams in {0,1}^width that are identical except for one step."""
    return StepRows(None, 1, RowSpace(width, 0, 1))


def sparse_vector(width: int) -> Stream:
    """~_S on messages ([HSV] Lemma 7.4): identical thresholds, vectors in {0,1}^width that differ in one step."""
    return Stream(histogram(width))


def counter(width: int) -> StepRows:
    """~_C on rows ([HSV] Cor 7.5): one step differs, by at most 1 in each entry; entries of either sign."""
    return StepRows(None, 1, RowSpace(width, -MOST_EVENTS, MOST_EVENTS))


def laplace() -> StaticDataSet:
    """~_L on values ([HSV] 7.2): one pair of exact numbers that differ by at most 1."""
    return single_pair(_near)


def _near(left: object, right: object) -> bool:
    numbers = all(type(value) in (int, Fraction) for value in (left, right))
    return numbers and abs(left - right) <= 1  # type: ignore[operator]
