"""AboveThreshold and the laws it is made of, by hand."""

import math
from fractions import Fraction

import pytest
from oracles import svt
from oracles.exact import clamped_laplace, decay, laplace_at_least, laplace_pmf, log_ratio
from oracles.svt import Decays

HALF = Decays(Fraction(1, 2), Fraction(1, 2))  # e1 = e2/s = ln 2, all arithmetic rational


def test_laws_are_exact() -> None:
    law = svt.transcript_probabilities(
        (0, 2, -1), (1, 1, 2), Decays(Fraction(2, 5), Fraction(3, 4))
    )
    assert sum(law) == 1
    for strict, chance in ((True, Fraction(1, 3)), (False, Fraction(2, 3))):  # nu > tau, nu >= tau
        assert svt.transcript_probabilities((0,), 0, HALF, strict=strict)[0] == chance
    pair = [svt.transcript_probabilities(q, 0, HALF) for q in ((0, 2, -1), (1, 3, -2))]
    assert max(max(p / q, q / p) for p, q in zip(*pair, strict=True)) == 8  # 2^(1 + 2)


def test_directions_of_a_count_alert() -> None:
    noise, more, less = Decays.of(0.3, 0.7), (1, 3, 4), (0, 2, 3)
    assert svt.directional_loss(less, more, 1, noise) == pytest.approx(0.3, abs=1e-12)
    assert svt.directional_loss(more, less, 1, noise) == pytest.approx(0.7, abs=1e-12)


def test_laplace_laws_and_ratios_of_impossible_outcomes() -> None:
    a = decay(0.5)
    for v in range(-3, 4):
        assert laplace_at_least(v, a) - laplace_at_least(v + 1, a) == laplace_pmf(v, a)
    assert sum(clamped_laplace(1, 3, a).values()) == 1
    assert log_ratio(Fraction(0), Fraction(0)) == 0
    assert log_ratio(Fraction(1), Fraction(0)) == -log_ratio(Fraction(0), Fraction(1)) == math.inf
