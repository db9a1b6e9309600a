"""AboveThreshold: exact losses, and the noise factor that is too small for general changes."""

import itertools
import math
from fractions import Fraction

import pytest
from oracles import naive, svt
from oracles.exact import clamped_laplace, decay, laplace_at_least, laplace_pmf, log_ratio
from oracles.svt import Decays

HALF = Decays(Fraction(1, 2), Fraction(1, 2))  # e1 = e2/s = ln 2, all arithmetic rational


def test_laws_are_exact() -> None:
    law = svt.transcript_probabilities(
        (0, 2, -1), (1, 1, 2), Decays(Fraction(2, 5), Fraction(3, 4))
    )
    assert sum(law) == 1
    one = svt.transcript_probabilities((0,), 0, HALF)  # nu > tau
    assert one[0] == Fraction(1, 3)
    assert svt.transcript_probabilities((0,), 0, HALF, strict=False)[0] == Fraction(2, 3)


def test_law_agrees_with_the_naive_rule() -> None:
    noise, size = Decays(Fraction(1, 4), Fraction(1, 5)), 16
    queries, thresholds = [1, 0, 2], [1, 2, 1]
    found = [0.0] * 4
    for tau, *nus in itertools.product(range(size), repeat=4):
        answers = naive.above_threshold(queries, thresholds, tau, nus)
        p = 0.75 * 0.25**tau * math.prod(0.8 * 0.2**n for n in nus)
        found[len(answers) - 1 if answers[-1] else 3] += p
    exact = svt.transcript_probabilities(queries, thresholds, noise)
    assert found == pytest.approx([float(p) for p in exact], abs=1e-9)


@pytest.mark.parametrize(
    ("e1", "e2", "expected"), [(0.3, 0.7, 0.7), (1, 1, 1.0), (0.7, 0.3, 0.7), (0.5, 0.5, 0.5)]
)
@pytest.mark.parametrize("strict", [True, False])
def test_count_alerts_under_add_remove_cost_the_larger_half(
    e1: float, e2: float, expected: float, strict: bool
) -> None:
    worst = svt.search_add_remove(4, 2, Decays.of(e1, e2), strict=strict)
    assert worst.loss == pytest.approx(expected, abs=1e-12)


def test_longer_count_alerts_cost_no_more() -> None:
    worst = svt.search_add_remove(6, 2, HALF, increments=(0, 1))
    assert worst.loss == pytest.approx(math.log(2), abs=1e-12)


def test_two_events_cost_twice() -> None:
    assert svt.search_add_remove(4, 2, HALF, events=2).loss == pytest.approx(
        2 * math.log(2), abs=1e-12
    )


def test_directions_of_a_count_alert() -> None:
    noise, more, less = Decays.of(0.3, 0.7), (1, 3, 4), (0, 2, 3)
    assert svt.directional_loss(less, more, 1, noise) == pytest.approx(0.3, abs=1e-12)
    assert svt.directional_loss(more, less, 1, noise) == pytest.approx(0.7, abs=1e-12)


@pytest.mark.parametrize("horizon", [3, 4, 5])
def test_general_changes_need_the_factor_two(horizon: int) -> None:
    broken = svt.search_replace(horizon, Decays.of(0.5, 0.5, s=1))
    assert broken.loss == pytest.approx(1.5, abs=1e-12)  # claimed 1
    sound = svt.search_replace(horizon, Decays.of(0.5, 0.5, s=2))
    assert sound.loss <= 1 + 1e-12


def test_the_longest_search() -> None:
    worst = svt.search_replace(6, Decays.of(0.3, 0.7, s=2), values=(-1, 0, 1, 2))
    assert 0.99 < worst.loss <= 1 + 1e-12


def test_one_signed_changes_that_are_not_constant_cost_both_halves() -> None:
    """A maximum over columns under add/remove: s = 1 is right, max(e1, e2) is not."""
    worst = svt.search_replace(4, Decays.of(0.3, 0.7, s=1), changes=(0, 1))
    assert worst.loss == pytest.approx(1.0, abs=1e-12)


def test_exact_search_result_is_rational() -> None:
    law_a = svt.transcript_probabilities((0, 2, -1), 0, HALF)
    law_b = svt.transcript_probabilities((1, 3, -2), 0, HALF)
    assert max(max(p / q, q / p) for p, q in zip(law_a, law_b, strict=True)) == 8  # 2^(1 + 2)


def test_log_ratio_of_impossible_outcomes() -> None:
    assert log_ratio(Fraction(0), Fraction(0)) == 0
    assert log_ratio(Fraction(1), Fraction(0)) == math.inf
    assert log_ratio(Fraction(0), Fraction(1)) == -math.inf


def test_laplace_laws() -> None:
    a = decay(0.5)
    for v in range(-3, 4):
        assert laplace_at_least(v, a) - laplace_at_least(v + 1, a) == laplace_pmf(v, a)
    assert sum(clamped_laplace(1, 3, a).values()) == 1
