"""Small HSS, exact against adaptive adversaries: its claim, and two broken scales.

That the real code is the naive oracle, at the scales of its claim, is in tests/statistical/test_privacy_hss.py.
"""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from oracles import hss as oracle

from stream_dp.verify.exact.exact_delta import exact_delta, worst_ratio
from stream_dp.verify.exact.exact_sparse_vector import SmallHSS, clamped_laplace
from stream_dp.verify.exact_checks.compositions import ADDED, SMALL, once

HALF, QUARTER = Fraction(1, 2), Fraction(1, 4)
MOVED = (*ADDED, ((1, 1), (0, 2)), ((1, 0), (0, 1)))
LN2 = math.log(2)
OTHER = oracle.Hss(e1=LN2, e2=LN2, e_c=LN2, s=1, l0=1, gamma=lambda *_: 0)


@pytest.mark.parametrize("centre", [0, 1, 3])
def test_clamping_keeps_all_mass_and_all_loss(centre: int) -> None:
    law, next_to = (clamped_laplace(c, QUARTER, 0, 4) for c in (centre, centre + 1))
    assert sum(law.values()) == 1
    assert max(max(law[v] / next_to[v], next_to[v] / law[v]) for v in law) == 4


@pytest.mark.parametrize(
    ("tau", "nu", "node"), [(HALF, HALF, QUARTER), (HALF, QUARTER, HALF), (QUARTER, HALF, HALF)]
)
def test_add_remove_meets_the_sum_of_three_exactly(
    tau: Fraction, nu: Fraction, node: Fraction
) -> None:
    """e1 + e2 + e_c with s = 1 and the full e_c per column, against adaptive adversaries."""
    machine = replace(SMALL, tau=tau, nu=nu, node=node)
    assert worst_ratio(machine, once(ADDED), 2) == 1 / (tau * nu * node) == 16


def test_it_is_delta_zero_at_the_claim_and_not_below() -> None:
    assert exact_delta(SMALL, once(ADDED), Fraction(8), 2) == 0
    assert exact_delta(SMALL, once(ADDED), Fraction(79, 10), 2) > 0


@pytest.mark.parametrize("pairs", [ADDED, MOVED])
def test_the_other_oracle_agrees(pairs: tuple[Any, ...]) -> None:
    """`oracles.hss` searches all pairs of streams with entries up to 2, in floats; this one plays, in fractions."""
    relation = oracle.Relation.ADD_REMOVE if pairs is ADDED else oracle.Relation.REPLACE
    searched = oracle.worst_loss(OTHER, relation, 2).loss
    assert math.log(worst_ratio(SMALL, once(pairs), 2)) == pytest.approx(searched, abs=1e-9)


CLAIM = Fraction(32)  # with s = 2 and L0 = 2 the same decays mean e1 = ln 2, e2 = e_c = 2 ln 2


def test_replace_keeps_its_claim() -> None:
    result = worst_ratio(SMALL, once(MOVED), 2)
    assert 0.85 * math.log(CLAIM) < math.log(result) < math.log(CLAIM)


@pytest.mark.parametrize("twin", [replace(SMALL, node=QUARTER), replace(SMALL, nu=QUARTER)])
def test_forgotten_l0_and_the_cheap_scale_break_the_claim_under_replace(twin: SmallHSS) -> None:
    """Each column at the full e_c; or s = 1 on a largest column. The very machines that add_remove allows."""
    assert math.log(worst_ratio(twin, once(MOVED), 2)) > 1.1 * math.log(CLAIM)
    assert exact_delta(twin, once(MOVED), CLAIM, 2) > 0
    assert worst_ratio(twin, once(ADDED), 2) <= CLAIM


@pytest.mark.slow
def test_a_third_tick_adds_nothing() -> None:
    """Three ticks, so two intervals and an event in any of them."""
    wider = replace(SMALL, high=6)
    assert worst_ratio(wider, once(ADDED), 3) == 8
    assert worst_ratio(wider, once(MOVED), 3) <= CLAIM


def test_sums_beyond_the_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="choose wider bounds"):
        replace(SMALL, high=1).step(((0, 0), ()), (2, 0))
