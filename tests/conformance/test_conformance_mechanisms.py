"""Every mechanism passes the published suite; a new mechanism is one line in `CASES`."""

from fractions import Fraction

import pytest

from stream_dp.core.composition import ConcurrentComposition
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.alerts import Alerts
from stream_dp.mechanisms.counter import Counter
from stream_dp.mechanisms.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.hand_over_counter import HandOverCounter
from stream_dp.mechanisms.hss import HSS, Statistic
from stream_dp.mechanisms.hybrid_counter import HybridCounter
from stream_dp.mechanisms.sparse_vector import SparseVector
from stream_dp.testing.conformance import TICKS, Case, Check, checks_of

ONE = Fraction(1)
ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE


def hss(
    statistic: Statistic, relation: Neighbors, composition: ConcurrentComposition | None = None
) -> HSS:
    """A histogram or maximum of three columns that closes several intervals in a few ticks."""
    shares, over = (Fraction(2),) * 3, composition or ConcurrentComposition()
    return HSS(3, statistic, *shares, relation, TICKS, composition=over)


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


def hand_over(width: int, relation: Neighbors) -> Case:
    """The case of a hand-over counter."""
    return Case(
        name=f"HandOverCounter {width} {relation}",
        make=lambda: HandOverCounter(width, ONE, relation),
        counts=True,
        column=lambda: HandOverCounter(1, ONE, relation),
    )


def gaussian(width: int, horizon: int | None, relation: Neighbors, ones: int = 1) -> Case:
    """The case of a Gaussian counter."""
    rho = Fraction(1, 50)
    return Case(
        name=f"GaussianCounter {width} {horizon} {relation}",
        make=lambda: GaussianCounter(width, rho, relation, horizon, ones),
        horizon=horizon,
        counts=True,
        column=lambda: GaussianCounter(1, rho, relation, horizon),
    )


def alerts(width: int, relation: Neighbors) -> Case:
    """The case of a block of alerts."""
    return Case(
        name=f"Alerts {width} {relation}",
        make=lambda: Alerts(width, ONE, relation, 40),
        column=lambda: Alerts(1, ONE, relation, 40),
    )


def sparse(offset: tuple[int, ...], threshold: int, relation: Neighbors) -> Case:
    """The case of a sparse vector instance."""
    return Case(
        name=f"SparseVector {len(offset)} {relation}",
        make=lambda: SparseVector(len(offset), ONE, ONE, relation, offset),
        threshold=threshold,
    )


def composite(statistic: Statistic, relation: Neighbors) -> Case:
    """The case of an HSS."""
    return Case(
        name=f"HSS {statistic} {relation}",
        make=lambda: hss(statistic, relation),
        composite=lambda composition: hss(statistic, relation, composition),
        touches=((SparseVector, 1), (HybridCounter, 1)),
    )


CASES = [
    counter(1, TICKS, ADD),
    counter(4, 40, ADD),
    counter(3, 100, REPLACE),
    gaussian(1, TICKS, ADD),
    gaussian(4, 40, REPLACE),
    gaussian(5, None, ADD, ones=3),
    hybrid(1, ADD),
    hybrid(4, REPLACE),
    hand_over(1, ADD),
    hand_over(4, REPLACE),
    sparse((0,), 400, ADD),
    sparse((5, 0, 2), 150, REPLACE),
    alerts(1, ADD),
    alerts(4, REPLACE),
    composite(Statistic.HISTOGRAM, ADD),
    composite(Statistic.HISTOGRAM, REPLACE),
    composite(Statistic.MAXIMUM, ADD),
    composite(Statistic.MAXIMUM, REPLACE),
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
