"""Sparse vectors: the exact law is the oracle's, and an instance that goes on is caught.

No statistics: all noise of the real mechanism is enumerated. What it loses is exact in
tests/unit/verify/exact/test_exact_mechanisms.py.
"""

import itertools
from fractions import Fraction
from functools import partial

import pytest
from oracles.svt import Decays, transcript_probabilities
from statistical import broken_privacy as broken
from statistical.attack import Attack, Rows, added

from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.hss.sparse_vector import SparseVector

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
TWO, THREE = Fraction(2), Fraction(3)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize(("offset", "threshold"), [((0, 0), 2), ((3, 1), 4)])
@pytest.mark.parametrize(
    "rows", [((1, 0), (0, 1), (2, 2)), ((0, 0), (0, 3), (1, 0)), ((0, 0),) * 3]
)
def test_a_sparse_vector_has_the_oracles_law(
    relation: Neighbors, offset: tuple[int, int], threshold: int, rows: Rows
) -> None:
    attack = Attack(partial(SparseVector, 2, TWO, THREE, relation, offset), threshold)
    law = attack.law(rows)
    sums = list(itertools.accumulate(rows, lambda a, b: (a[0] + b[0], a[1] + b[1])))
    queries = [max(offset[0] + a, offset[1] + b) for a, b in sums]
    expected = transcript_probabilities(
        queries, threshold, Decays.of(2.0, 3.0, 1 if relation is ADD else 2)
    )
    silent = (None, (0,))
    for tick in range(4):
        after = ("rejected",) * (2 * (2 - tick))
        crossing = (*silent * tick, None, (1,), *after) if tick < 3 else silent * 3
        low, high = law.bounds(crossing)
        assert low - 1e-12 <= float(expected[tick]) <= high + 1e-12
        assert high - low < 1e-5
    assert law.missing < 1e-5


def test_an_instance_that_goes_on_after_its_crossing_is_caught() -> None:
    attack = Attack(partial(broken.GoesOn, 1, TWO, TWO, ADD, (0,)), threshold=1)
    assert attack.worst(added(3, (0, 1))).least > 1.2 * 4
