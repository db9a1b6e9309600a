"""A forest and a counter on the same rows: what both together lose, exactly, for how many ones, and their bands.

All noise of two ticks is enumerated. The twin is one whose counter is handed the noise of the forest once more.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from oracles.turns import Turns

from stream_dp.core.mechanism import IntArray, Message, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.linear.counter import Counter, HybridCounter
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.linear.noisy_forest import FLAT, ForestShape
from stream_dp.mechanisms.linear.window_forest import GaussianForest, WindowForest
from stream_dp.mechanisms.linear.windows_and_ever import (
    GaussianAndEver,
    WindowsAndEver,
    WindowsAndEverState,
)
from stream_dp.testing.noise import SeededNoise
from stream_dp.verify.exact.enumeration import Enumerated
from stream_dp.verify.exact.exact_delta import delta_bracket

ADD, ONE, BASE = Neighbors.ADD_REMOVE, Fraction(1), Fraction(1, 64)
COMES = Turns(((0,),), (((0,), (1,)), ((1,), (0,))))
PAIRS = ForestShape((2,), (ONE / 2, ONE / 2))
FOREST, SO_FAR = WindowForest(1, 2 * ONE, ADD, (2,), PAIRS), Counter(1, 2 * ONE, ADD, 2)


def meets_its_claim(made: WindowsAndEver) -> bool:
    """Whether it loses four units of epsilon at most in two ticks, but for the noise beyond 1; a unit is -ln(BASE)."""
    return delta_bracket(Enumerated(made, BASE, 1), COMES, BASE**-4, 4).upper < Fraction(1, 20)


def test_both_meet_the_sum_of_their_claims() -> None:
    made = WindowsAndEver(FOREST, SO_FAR)
    assert made.guarantee.measure.epsilon == 4  # type: ignore[union-attr]
    assert meets_its_claim(made)


@dataclass(slots=True)
class Repeated:
    """Draws once, and hands that out again and again."""

    noise: Noise
    known: list[IntArray] = field(default_factory=list)

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """What was drawn first."""
        if not self.known:
            self.known.append(self.noise.laplace(scale, size))
        return self.known[0]

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        """Not used by counts."""
        raise NotImplementedError

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        """Nor this."""
        raise NotImplementedError


class NoiseReused(WindowsAndEver):
    """One noise a tick, for all nodes that are complete and for the count so far."""

    def step(
        self, state: WindowsAndEverState, message: Message, noise: Noise
    ) -> tuple[WindowsAndEverState, IntArray | None]:
        """What two answers differ by is exact."""
        return super().step(state, message, Repeated(noise))


def test_noise_that_both_have_is_caught() -> None:
    assert not meets_its_claim(NoiseReused(FOREST, SO_FAR))


@pytest.mark.parametrize(("forest", "ever"), [(1, 2), (2, 1), (2, 2)])
def test_it_is_made_for_events_of_as_many_ones_as_both_are(forest: int, ever: int) -> None:
    """So that no series of lists takes one whose noise is too small in one of the two."""
    windows = WindowForest(3, ONE, ADD, (1,), FLAT, forest)
    made = WindowsAndEver(windows, HybridCounter(3, ONE, ADD, ever))
    assert made.rows.ones == min(forest, ever)


@pytest.mark.parametrize(
    ("ever", "what"),
    [
        (Counter(3, ONE, ADD, 9), "width"),
        (HybridCounter(1, ONE, ADD), "width"),
        (Counter(2, ONE, Neighbors.REPLACE, 9), "neighbors"),
    ],
)
def test_both_are_made_for_the_same_rows(ever: Counter | HybridCounter, what: str) -> None:
    """Else it would begin, and refuse every row."""
    with pytest.raises(NotDerivable, match=f"windows and the count so far differ in {what}"):
        WindowsAndEver(WindowForest(2, ONE, ADD, (1,), FLAT), ever)


@pytest.mark.parametrize("share", [ONE / 9, ONE, 9 * ONE])
def test_its_band_is_the_largest_of_its_views(share: Fraction) -> None:
    """That of the longest window, or that of the count so far."""
    made = WindowsAndEver(WindowForest(2, ONE, ADD, (1, 6, 3), FLAT), Counter(2, share, ADD, 20))
    for updates in range(1, 21):
        each = [made.view_band(v, made.view_public(v, updates, None), 0.95) for v in range(4)]
        assert made.band(updates, 0.95) == max(each)


def test_the_longest_window_is_told_whatever_was_counted() -> None:
    """In its first ticks, which are public, and not by how large a count is."""
    made, noise = (
        WindowsAndEver(WindowForest(1, ONE, ADD, (1, 4), FLAT), Counter(1, ONE / 9, ADD, 10)),
        SeededNoise(5),
    )
    assert made.covered == 4
    state = made.init(noise)
    for tick, count in enumerate([0, 10**9, 1, 10**15, 10**6, 3]):
        state, _ = made.step(state, Update(np.array([count])), noise)
        _, answer = made.step(state, Query(), noise)
        assert answer is not None
        assert (answer[2] == answer[1]) == (tick < 4)


def test_a_gaussian_window_is_told_while_it_has_less_noise_than_the_counter() -> None:
    """In deviations; the counter is as good as the window, or has a hundredth or a tenth of its noise."""
    forest = GaussianForest(1, ONE / 2, ADD, (1, 400), FLAT)
    found: list[int] = []
    for rho in (ONE / 2, ONE / 10, ONE / 50):
        made: Any = GaussianAndEver(forest, GaussianCounter(1, rho, ADD, 1_000))
        less = [
            forest.view_variance(1, tick) < made.ever.lattice.deviation(tick) ** 2
            for tick in range(1, 401)
        ]
        found.append(made.covered)
        assert less == [tick <= made.covered for tick in range(1, 401)]
    assert found == sorted(found)
    assert 0 < found[0] < found[1] < 400


@pytest.mark.parametrize(
    ("relation", "ones", "what"), [(Neighbors.REPLACE, 2, "neighbors"), (ADD, 1, "ones")]
)
def test_gaussian_ones_that_are_made_for_different_events_are_not_put_together(
    relation: Neighbors, ones: int, what: str
) -> None:
    forest = GaussianForest(3, ONE, ADD, (1, 4), FLAT, 2)
    with pytest.raises(NotDerivable, match=f"differ in {what}"):
        GaussianAndEver(forest, GaussianCounter(3, ONE, relation, 9, ones))
