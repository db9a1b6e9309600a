"""Sparse vectors and alerts: exact laws equal the oracles', the worst exact loss equals the claim.

No statistics: all noise of the real mechanisms is enumerated. The broken twins run through the same attack and
certainly lose more than they claim.
"""

import itertools
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import pytest
from oracles import rearmed
from oracles.svt import Decays, transcript_probabilities
from statistical import broken_privacy as broken
from statistical.attack import Attack, Rows, added, replaced

from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.hss.sparse_vector import SparseVector
from stream_dp.mechanisms.watches.alerts import Alerts

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
TWO, THREE = Fraction(2), Fraction(3)


def column(*values: int) -> Rows:
    """Rows of one column."""
    return tuple((v,) for v in values)


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


def test_a_sparse_vector_loses_exactly_its_claim() -> None:
    one = Attack(partial(SparseVector, 1, TWO, THREE, ADD, (0,)), threshold=2)
    found = one.worst(added(3, (0, 1, 2)))
    assert 3 - 1e-3 < found.least <= found.most < 3 + 1e-2  # one column: max(e1, e2), within 2 + 3
    two = Attack(partial(SparseVector, 2, TWO, TWO, ADD, (0, 0)), threshold=2)
    found = two.worst(added(2, (0, 1, 3), width=2))
    assert 3.6 < found.least <= 4 + 1e-9
    assert found.most <= 4 + 2e-2


def test_a_maximum_under_replace_needs_the_dear_noise() -> None:
    one = Fraction(1)

    def worst(kind: type[SparseVector]) -> float:
        attack = Attack(partial(kind, 2, one, one, REPLACE, (0, 0)), threshold=3)
        overtaken = (((0, 4), (4, 0)), ((1, 3), (4, 0)))  # the worst pair that oracles.hss finds
        return attack.worst([overtaken, *replaced(2, (0, 3))]).least

    assert 1.5 < worst(SparseVector) <= 2 + 1e-9
    assert worst(broken.CheapQueryNoise) > 1.1 * 2


def test_an_instance_that_goes_on_after_its_crossing_is_caught() -> None:
    attack = Attack(partial(broken.GoesOn, 1, TWO, TWO, ADD, (0,)), threshold=1)
    assert attack.worst(added(3, (0, 1))).least > 1.2 * 4


@pytest.mark.parametrize("values", [(0, 0, 2, 1), (2, 2, 0, 1), (1, 0, 1, 3)])
def test_alerts_have_the_oracles_law(values: tuple[int, ...]) -> None:
    law = Attack(partial(Alerts, 1, THREE, ADD, 3)).law(column(*values))
    for tops in itertools.product((False, True), repeat=4):
        transcript = tuple(e for top in tops for e in (None, (int(top),)))
        expected = float(rearmed.bits_probability(values, tops, 2, Decays.of(3.0, 3.0)))
        low, high = law.bounds(transcript)
        assert low - 1e-12 <= expected <= high + 1e-12
    assert law.missing < 1e-5


@pytest.mark.parametrize("horizon", [1, 2, 3, 4])
def test_alerts_lose_exactly_epsilon_however_long_they_run(horizon: int) -> None:
    attack = Attack(partial(Alerts, 1, THREE, ADD, 2), mass=1e-7)
    found = attack.worst(added(horizon, (0, 1, 2) if horizon < 3 else (0, 2)))
    assert 3 - 0.02 < found.least <= 3 + 1e-9
    assert found.most <= 3 + 0.02


@pytest.mark.parametrize(
    "kind", [broken.ReusedThreshold, broken.CarriesOvershoot, broken.FeedsTwice]
)
def test_wrong_ways_to_re_arm_are_caught(kind: Callable[..., Any]) -> None:
    attack = Attack(partial(kind, 1, THREE, ADD, 2), mass=1e-7)
    assert attack.worst(added(3, (0, 2))).least > 1.2 * 3


def test_alerts_of_two_keys_under_replace() -> None:
    def worst(kind: type[Alerts]) -> float:
        attack = Attack(partial(kind, 2, Fraction(6), REPLACE, 2), mass=1e-5)
        return attack.worst([*replaced(1, (0, 1, 2)), *replaced(2, (0,))]).least

    assert 6 - 0.3 < worst(Alerts) <= 6 + 1e-9
    assert worst(broken.OneKeyForgotten) > 1.2 * 6
