"""Re-armed alerts: one instance's loss when done right, and three ways to lose more."""

import itertools
import random
from fractions import Fraction

import pytest
from oracles import naive
from oracles.exact import log_ratio
from oracles.rearmed import Rearm, bits_probability, worst_loss
from oracles.svt import Decays, search_add_remove

CLAIM_ONE = Decays.of(0.5, 0.5)


@pytest.mark.parametrize("horizon", [1, 2, 3, 4])
def test_rearmed_alerts_cost_one_instance(horizon: int) -> None:
    for e1, e2 in ((0.5, 0.5), (0.3, 0.7)):
        noise = Decays.of(e1, e2)
        worst = worst_loss(horizon, 2, noise)
        assert worst.loss <= max(e1, e2) + 1e-12
        single = search_add_remove(horizon, 2, noise)
        assert worst.loss == pytest.approx(single.loss, abs=1e-12)


@pytest.mark.parametrize(("horizon", "expected"), [(2, 1.0), (3, 1.5), (4, 2.0), (5, 2.5)])
def test_carried_overshoot_has_no_bound(horizon: int, expected: float) -> None:
    values = (0, 1, 2) if horizon < 5 else (0, 1)
    worst = worst_loss(horizon, 2, CLAIM_ONE, Rearm.CARRY_OVERSHOOT, values)
    assert worst.loss == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("horizon", [2, 3, 4])
def test_feeding_the_crossing_tick_twice_doubles(horizon: int) -> None:
    right = worst_loss(horizon, 2, CLAIM_ONE).loss
    assert worst_loss(horizon, 2, CLAIM_ONE, Rearm.FEED_TWICE).loss == pytest.approx(2 * right)


def test_a_reused_noisy_threshold_has_no_bound() -> None:
    losses = [worst_loss(n, 2, CLAIM_ONE, Rearm.REUSED_TAU).loss for n in (1, 2, 3, 4)]
    assert losses == pytest.approx([0.5, 1.0, 1.5, 2.0], abs=1e-12)


@pytest.mark.parametrize("rearm", list(Rearm))
def test_the_bits_have_probability_one_together(rearm: Rearm) -> None:
    noise = Decays(Fraction(1, 3), Fraction(1, 2))
    bits = itertools.product((False, True), repeat=3)
    assert sum(bits_probability((1, 2, 0), b, 2, noise, rearm) for b in bits) == 1


def test_law_agrees_with_the_naive_rule() -> None:
    rng, runs, counts = random.Random(5), 20_000, (1, 2, 0)
    noise = Decays(Fraction(1, 2), Fraction(1, 2))

    def geometric() -> int:
        n = 0
        while rng.random() < 0.5:
            n += 1
        return n

    found: dict[tuple[bool, ...], int] = {}
    for _ in range(runs):
        bits = tuple(
            naive.rearmed_alerts(
                counts, 2, [geometric() for _ in counts] + [0], [geometric() for _ in counts]
            )
        )
        found[bits] = found.get(bits, 0) + 1
    for bits, n in found.items():
        p = float(bits_probability(counts, bits, 2, noise))
        assert abs(n - runs * p) < 6 * (runs * p * (1 - p)) ** 0.5


def test_replace_across_two_keys_costs_both_halves() -> None:
    """One event moves from key 1 to key 2: independent alerts, so the directed losses add up."""
    noise, bits = Decays.of(0.3, 0.7), list(itertools.product((False, True), repeat=2))
    pairs = (((2, 1), (1, 1)), ((1, 1), (2, 1)))  # key 1 loses the event, key 2 gains it
    worst = sum(
        max(
            log_ratio(bits_probability(a, b, 1, noise), bits_probability(c, b, 1, noise))
            for b in bits
        )
        for a, c in pairs
    )
    assert worst == pytest.approx(1.0, abs=1e-12)
