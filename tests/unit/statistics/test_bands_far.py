"""Bands of mechanisms with very little epsilon: the work is bounded, and they bound the exact ones."""

import time
from fractions import Fraction

import pytest

from stream_dp.mechanisms import noise_quantiles
from stream_dp.mechanisms.noise_quantiles import laplace_quantile


def test_a_band_at_the_smallest_epsilon_takes_no_time() -> None:
    """Anyone with a quota of 10^-6 may ask for it, and the event loop waits."""
    started = time.process_time()
    band = laplace_quantile(((Fraction(3_000_000), 3), (Fraction(1_000_000), 2)), 0.05)
    assert 5_000_000 < band < 50_000_000
    assert time.process_time() - started < 5


@pytest.mark.parametrize("largest", [16, 64, 256])
def test_counting_in_steps_is_never_too_small_and_hardly_too_large(
    largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = ((Fraction(3000), 3), (Fraction(501, 2), 2))
    exact = laplace_quantile.__wrapped__(terms, 0.05)
    watch = noise_quantiles.lagging_quantile.__wrapped__(70, terms, Fraction(2000), 3, 0.05, 1.5)
    monkeypatch.setattr(noise_quantiles, "LARGEST_SCALE", largest)
    far = laplace_quantile.__wrapped__(terms, 0.05)
    assert exact <= far <= exact * (1 + 5 / largest)
    seen = noise_quantiles.lagging_quantile.__wrapped__(70, terms, Fraction(2000), 3, 0.05, 1.5)
    assert watch <= seen <= watch * (1 + 5 / largest)
