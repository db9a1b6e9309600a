"""Every mechanism passes the published suite; a new mechanism is one line in `CASES`."""

from fractions import Fraction

import pytest

from stream_dp.core.composition import ConcurrentComposition
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.alerts import Alerts
from stream_dp.mechanisms.counter import Counter
from stream_dp.mechanisms.hss import HSS
from stream_dp.mechanisms.hybrid_counter import HybridCounter
from stream_dp.mechanisms.quantities import MAXIMUM, ColumnsAbove, Largest, Quantity, Sum
from stream_dp.mechanisms.sparse_vector import SparseVector
from stream_dp.testing.conformance import TICKS, Case, Check, checks_of

ONE = Fraction(1)
ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE


def hss(
    quantity: Quantity | None, relation: Neighbors, composition: ConcurrentComposition | None = None
) -> HSS:
    """A histogram or maximum of three columns that closes several intervals in a few ticks."""
    shares, over = (Fraction(2),) * 3, composition or ConcurrentComposition()
    return HSS(3, quantity, *shares, relation, TICKS, composition=over)


def counter(width: int, horizon: int, relation: Neighbors) -> Case:
    """The case of a counter."""
    return Case(
        name=f"Counter {width} {relation}",
        make=lambda: Counter(width, ONE, relation, horizon),
        horizon=horizon,
        counts=True,
        column=lambda: Counter(1, ONE, relation, horizon),
    )


def hybrid(width: int, relation: Neighbors) -> Case:
    """The case of a hybrid counter."""
    return Case(
        name=f"HybridCounter {width} {relation}",
        make=lambda: HybridCounter(width, ONE, relation),
        counts=True,
        column=lambda: HybridCounter(1, ONE, relation),
    )


def alerts(width: int, relation: Neighbors) -> Case:
    """The case of a block of alerts."""
    return Case(
        name=f"Alerts {width} {relation}",
        make=lambda: Alerts(width, ONE, relation, 40),
        column=lambda: Alerts(1, ONE, relation, 40),
    )


def sparse(
    offset: tuple[int, ...], threshold: int, relation: Neighbors, quantity: Quantity = MAXIMUM
) -> Case:
    """The case of a sparse vector instance."""
    return Case(
        name=f"SparseVector {len(offset)} {relation} {quantity}",
        make=lambda: SparseVector(len(offset), ONE, ONE, relation, offset, quantity),
        threshold=threshold,
    )


def composite(quantity: Quantity | None, relation: Neighbors) -> Case:
    """The case of an HSS."""
    return Case(
        name=f"HSS {quantity} {relation}",
        make=lambda: hss(quantity, relation),
        composite=lambda composition: hss(quantity, relation, composition),
        touches=((SparseVector, 1), (HybridCounter, 1)),
    )


CASES = [
    counter(1, TICKS, ADD),
    counter(4, 40, ADD),
    counter(3, 100, REPLACE),
    hybrid(1, ADD),
    hybrid(4, REPLACE),
    sparse((0,), 400, ADD),
    sparse((5, 0, 2), 150, REPLACE),
    sparse((5, 0, 2), 150, ADD, Largest(2)),
    sparse((5, 0, 2), 600, REPLACE, Sum()),
    sparse((0, 0, 0), 2, ADD, ColumnsAbove(60)),
    alerts(1, ADD),
    alerts(4, REPLACE),
    composite(None, ADD),
    composite(None, REPLACE),
    composite(MAXIMUM, ADD),
    composite(MAXIMUM, REPLACE),
    composite(Largest(2), REPLACE),
    composite(Sum(), REPLACE),
    composite(ColumnsAbove(25), ADD),
]


@pytest.mark.parametrize(
    ("case", "check"),
    [
        pytest.param(case, check, id=f"{case.name}-{check.__name__}")
        for case in CASES
        for check in checks_of(case)
    ],
)
def test_conforms(case: Case, check: Check) -> None:
    check(case)
