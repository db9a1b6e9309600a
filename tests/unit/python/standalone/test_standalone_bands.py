"""Bands of mechanisms that run alone cover what they say; a twin with more noise than they know is found.

Error probability: below 1e-9 for each assertion on the product (a binomial tail), below 1e-6 that a twin passes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import pytest
from scipy.stats import binom

from stream_dp import Budget
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray
from stream_dp.python.standalone import blocks
from stream_dp.testing.noise import SeededNoise

KEYS = [str(number) for number in range(400)]  # counters with independent noise
TICKS, CONFIDENCE = 7, 0.8
EVENTS = 500  # so many that no value is clipped at 0, which would hide the noise
LEAST = int(binom.ppf(1e-9, len(KEYS), CONFIDENCE))


@dataclass(frozen=True)
class Louder:
    """Noise of twice the scale that the mechanism asks for."""

    noise: Noise

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """Twice the scale."""
        return self.noise.laplace(2 * scale, size)

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        """Twice the scale."""
        return self.noise.geometric(2 * scale, size)

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        """Twice the deviation."""
        return self.noise.gaussian(4 * variance, size)


def covered(horizon: int | None) -> int:
    """How many values of the last release lie within its band of the truth."""
    histogram = Budget(epsilon=1).histogram(
        epsilon="0.1", keys=KEYS, horizon=horizon, confidence=CONFIDENCE, method="tree"
    )
    *_, last = histogram.over([dict.fromkeys(KEYS, EVENTS)] * TICKS)
    return sum(abs(value - EVENTS * TICKS) <= last.band for value in last.value.values())


@pytest.mark.parametrize("horizon", [TICKS, None])
def test_the_band_covers(horizon: int | None) -> None:
    assert covered(horizon) >= LEAST


@pytest.mark.parametrize("horizon", [TICKS, None])
def test_more_noise_than_the_band_knows_is_found(
    horizon: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    product: Callable[[], Noise] = blocks.new_noise
    monkeypatch.setattr(blocks, "new_noise", lambda: Louder(product()))
    assert covered(horizon) < LEAST


def test_the_band_looks_at_nothing_private(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other events under the same noise: the same bands, as long as the same is released."""
    bands = []
    for events in ([0, 0, 0], [9, 1, 4]):
        streams = iter(range(10))
        monkeypatch.setattr(blocks, "new_noise", lambda s=streams: SeededNoise(next(s)))
        counter = Budget(epsilon=1).counter(epsilon=1, horizon=3)
        bands.append([release.band for release in counter.over(events)])
    assert bands[0] == bands[1]
