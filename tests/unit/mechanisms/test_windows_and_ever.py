"""Windows beside the value so far: what both together lose, exactly; what is told; their bands.

The value so far is that of the longest window as long as this covers all ticks with less noise, then the counter's. All
noise of two ticks is enumerated; the twin is one whose counter is handed the noise of the forest once more. Oracle of
what is told: sums by hand under no noise; the two mechanisms run beside it.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from typing import Any

import pytest
from oracles.turns import Turns
from unit.mechanisms.shifted_noise import NoNoise, answers

from stream_dp.core.guarantee import ZCDP
from stream_dp.core.mechanism import IntArray, Noise
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.linear.counter import Counter, HybridCounter, SumCounter
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.linear.noisy_forest import FLAT, ForestShape, best_forest
from stream_dp.mechanisms.linear.pairs import (
    GaussianAndEver,
    SumsAndEver,
    WindowsAndEver,
)
from stream_dp.mechanisms.linear.window_forest import GaussianForest, SumForest, WindowForest
from stream_dp.mechanisms.serving import Differences, derived
from stream_dp.testing.noise import SeededNoise, ZeroNoise
from stream_dp.verify.exact.enumeration import Enumerated
from stream_dp.verify.exact.exact_delta import delta_bracket

ADD, REPLACE, ONE = Neighbors.ADD_REMOVE, Neighbors.REPLACE, Fraction(1)
BASE = Fraction(1, 64)
COMES = Turns(((0,),), (((0,), (1,)), ((1,), (0,))))
PAIRS = ForestShape((2,), (ONE / 2, ONE / 2))
WIDTH, TICKS, WINDOWS = 2, 12, (1, 5, 3)
FOREST = WindowForest(WIDTH, ONE, ADD, WINDOWS, FLAT)
MADE: dict[str, Callable[[], Any]] = {
    "counts": lambda: WindowsAndEver(FOREST, Counter(WIDTH, ONE / 3, ADD, TICKS)),
    "endless": lambda: WindowsAndEver(FOREST, HybridCounter(WIDTH, ONE / 3, ADD)),
    "sums": lambda: SumsAndEver(
        SumForest(WIDTH, ONE, ADD, WINDOWS, FLAT, -3, 9),
        SumCounter(WIDTH, ONE / 3, ADD, TICKS, -3, 9),
    ),
    "gaussian": lambda: GaussianAndEver(
        GaussianForest(WIDTH, ONE / 2, ADD, WINDOWS, FLAT),
        GaussianCounter(WIDTH, ONE / 20, ADD, TICKS),
    ),
}
every = pytest.mark.parametrize("make", MADE.values(), ids=MADE)


class Repeated(NoNoise):
    """Draws once, and hands that out again and again."""

    def __init__(self, noise: Noise) -> None:
        self.noise, self.known = noise, list[IntArray]()

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        if not self.known:
            self.known.append(self.noise.laplace(scale, size))
        return self.known[0]


class NoiseReused(WindowsAndEver):
    """One noise a tick, for all complete nodes and for the count so far: what two answers differ by is exact."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        return super().step(state, message, Repeated(noise))


def test_both_lose_the_sum_of_their_claims_and_shared_noise_more() -> None:
    """Four units of epsilon, -ln(BASE) each, in two ticks, but for the noise beyond 1."""
    forest, so_far = WindowForest(1, 2 * ONE, ADD, (2,), PAIRS), Counter(1, 2 * ONE, ADD, 2)
    for kind, holds in ((WindowsAndEver, True), (NoiseReused, False)):
        made = kind(forest, so_far)
        assert made.guarantee.measure.epsilon == 4  # type: ignore[union-attr]
        loss = delta_bracket(Enumerated(made, BASE, 1), COMES, BASE**-4, 4)
        assert (loss.upper < Fraction(1, 20)) == holds


def told(made: Any, noise: Any) -> Any:
    """The answer after each tick, shape (ticks, windows + 1, width); row t is (t, 1)."""
    rows = [(tick, 1) for tick in range(TICKS)]
    return answers(made, noise, rows).reshape(TICKS, -1, WIDTH)


def right_so_far(made: Any) -> bool:
    """Whether under no noise the value so far is that of all ticks."""
    sums = [[tick * (tick + 1) // 2, tick + 1] for tick in range(TICKS)]
    return bool(told(made, ZeroNoise())[:, -1].tolist() == sums)


@every
def test_it_is_the_longest_window_while_that_covers_all_ticks(make: Callable[[], Any]) -> None:
    made = make()
    assert made.covered == 5
    assert right_so_far(made)
    for tick, answer in enumerate(told(made, SeededNoise(3)).tolist()):
        assert (answer[-1] == answer[1]) == (tick < 5)


class Later(WindowsAndEver):
    """A broken twin: it tells the window one tick longer than that covers all."""

    @cached_property
    def covered(self) -> int:
        return max(self.forest.windows) + 1


def test_a_window_that_covers_no_longer_all_is_found() -> None:
    right = MADE["counts"]()
    assert not right_so_far(Later(right.forest, right.ever))


@every
def test_its_band_is_that_of_what_is_told(make: Callable[[], Any]) -> None:
    made = make()
    for updates in range(1, TICKS + 1):
        public = made.view_public(3, updates, None)
        window = made.forest.view_band(1, updates, 0.95) if updates <= 5 else None
        counter = made.ever.band(updates, 0.95)
        assert made.view_band(3, public, 0.95) == (counter if window is None else window)
        assert window is None or window < counter
        views = [made.view_band(v, made.view_public(v, updates, None), 0.95) for v in range(4)]
        assert made.band(updates, 0.95) == max(views)
        if not isinstance(made, SumsAndEver):  # no ranks are read off sums
            other = Differences(made.ever) if window is None else Differences(made.forest, 1)
            assert Differences(made, 3).band(public, 0.95) == other.band(updates, 0.95)


def test_the_longest_window_is_told_whatever_was_counted() -> None:
    """In its first ticks, which are public, and not by how large a count is."""
    forest = WindowForest(1, ONE, ADD, (1, 4), FLAT)
    made, counts = (
        WindowsAndEver(forest, Counter(1, ONE / 9, ADD, 10)),
        [0, 10**9, 1, 10**15, 10**6, 3],
    )
    assert made.covered == 4
    for tick, answer in enumerate(answers(made, SeededNoise(5), [[n] for n in counts])):
        assert (answer[2] == answer[1]) == (tick < 4)


def test_a_window_with_more_noise_than_the_counter_is_not_told() -> None:
    """Long windows of single ticks have more noise than a tree: the switch comes as soon as it has less."""
    forest = WindowForest(1, ONE / 4, ADD, (1, 4000), FLAT)
    assert WindowsAndEver(forest, Counter(1, ONE, ADD, 4000)).covered == 0
    even = WindowsAndEver(forest, Counter(1, ONE / 4, ADD, 4000))
    at = even.covered
    assert 0 < at < 4000
    assert forest.view_band(1, at, 0.95) < even.ever.band(at, 0.95)
    assert forest.view_band(1, at + 1, 0.95) >= even.ever.band(at + 1, 0.95)


def test_a_gaussian_window_is_told_while_it_has_less_noise_than_the_counter() -> None:
    """In deviations; the counter is as good as the window, or has a tenth of its noise."""
    forest, switches = GaussianForest(1, ONE / 2, ADD, (1, 400), FLAT), list[int]()
    for rho in (ONE / 2, ONE / 10):
        made: Any = GaussianAndEver(forest, GaussianCounter(1, rho, ADD, 1_000))
        switches.append(made.covered)
        for tick in range(1, 401):
            less = forest.view_variance(1, tick) < made.ever.lattice.deviation(tick) ** 2
            assert less == (tick <= made.covered)
    assert 0 < switches[0] < switches[1] < 400


def test_of_a_long_window_few_ticks_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked at would hold up the first tick: all of a month of minutes are 43,200."""
    asked, less = list[int](), WindowsAndEver._less_noise

    def counted(made: WindowsAndEver, updates: int) -> bool:
        asked.append(updates)
        return less(made, updates)

    monkeypatch.setattr(WindowsAndEver, "_less_noise", counted)
    windows = (60, 1440, 43_200)
    forest = WindowForest(1, ONE * 3 / 4, ADD, windows, best_forest(windows))
    assert WindowsAndEver(forest, HybridCounter(1, ONE / 4, ADD)).covered == 43_200
    assert len(asked) < 400
    assert asked[:256] == list(range(1, 257))
    assert asked[-1] == 43_200


@pytest.mark.parametrize("until", [0, 256, 257, 2_999, 4_000])
def test_the_switch_is_found_whichever_ticks_are_looked_at(
    until: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WindowsAndEver, "_less_noise", lambda _, updates: updates <= until)
    made = WindowsAndEver(WindowForest(1, ONE, ADD, (1, 4000), FLAT), HybridCounter(1, ONE, ADD))
    assert made.covered == until


def test_it_is_made_for_events_of_as_many_ones_as_both_are() -> None:
    """So that no series of lists takes one whose noise is too small in one of the two."""
    for forest, ever in ((1, 2), (2, 1), (2, 2)):
        windows = WindowForest(3, ONE, ADD, (1,), FLAT, forest)
        assert WindowsAndEver(windows, HybridCounter(3, ONE, ADD, ever)).rows.ones == min(
            forest, ever
        )


def test_what_is_made_for_different_rows_is_not_put_together() -> None:
    """Else it would begin, and refuse every row."""
    counts, normal = (
        WindowForest(2, ONE, ADD, (1,), FLAT),
        GaussianForest(3, ONE, ADD, (1, 4), FLAT, 2),
    )
    for ever, what in (
        (Counter(3, ONE, ADD, 9), "width"), (HybridCounter(1, ONE, ADD), "width"),
        (Counter(2, ONE, REPLACE, 9), "neighbors"),
    ):  # fmt: skip
        with pytest.raises(
            NotDerivable, match=f"windows and the count so far must have the same {what}"
        ):
            WindowsAndEver(counts, ever)
    for other, what in (
        (GaussianCounter(2, ONE, ADD, 9, 2), "must have the same width"),
        (GaussianCounter(3, ONE, REPLACE, 9, 2), "must have the same neighbors"),
        (GaussianCounter(3, ONE, ADD, 9, 1), "must have the same ones"),
        (GaussianCounter(3, ONE, ADD, 9, 2, gdp=True), "Gaussian DP"),
    ):
        with pytest.raises(NotDerivable, match=what):
            GaussianAndEver(normal, other)


def test_gaussian_windows_and_the_count_so_far_add_up_in_zcdp() -> None:
    forest = GaussianForest(3, ONE / 3, ADD, (1, 6), FLAT)
    both = GaussianAndEver(forest, GaussianCounter(3, ONE / 2, ADD, 50))
    assert derived(both, "it").guarantee.measure == ZCDP(ONE / 3 + ONE / 2)
