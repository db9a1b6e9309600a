"""Ranks of one window with Gaussian noise of two factors: exact sensitivities, dense least squares, broken twins.

The dense oracle writes all releases of a few ticks as one matrix, a Kronecker product of a lower triangular one over
ticks and one over buckets, from float roots of its own; sensitivities are found by trying every event, every
replacement and every few events of a user.
"""

import math
from fractions import Fraction
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest
from unit.mechanisms.shifted_noise import NoNoise, answers

from stream_dp.core.guarantee import ZCDP
from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import BrokenCondition, FailClosed, NotDerivable
from stream_dp.mechanisms.linear.joint_windows import View
from stream_dp.mechanisms.linear.tree import FRACTION_BITS
from stream_dp.mechanisms.quantiles.bucket_windows import (
    BANDS,
    GAIN_BITS,
    LIMIT,
    ROW_UNIT,
    RankLevels,
    RankWindow,
    best_rank_levels,
    window_gains,
)
from stream_dp.mechanisms.quantiles.value_tree import SlidingQuantiles, ValueTree
from stream_dp.mechanisms.serving import derived
from stream_dp.testing.noise import Draw, ScriptedNoise, SeededNoise, ZeroNoise

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
HALF, RHO, SURE = Fraction(1, 2), Fraction(1, 50), Fraction(19, 20)
QUARTILES = (Fraction(1, 4), HALF, Fraction(3, 4))
LARGE = 1 << GAIN_BITS
SHAPES = [(1, 1), (2, 1), (2, 3), (4, 2), (5, 3)]
SHAPED = pytest.mark.parametrize(("leaves", "window"), SHAPES)


def made(leaves: int, window: int, kind: Any = RankWindow, **own: Any) -> Any:
    levels = RankLevels(leaves, own.pop("total", 300))
    return kind(leaves, own.pop("rho", RHO), own.pop("neighbors", ADD), window, levels)


# the two factors


def root_of_ranks(leaves: int) -> Any:
    """The symmetric root of T T', T the ranks less half the number of events, in units of its columns' norm."""
    ranks = np.where(np.tril(np.ones((leaves, leaves))) > 0, 0.5, -0.5)
    values, vectors = np.linalg.eigh(ranks @ ranks.T)
    root = vectors @ np.diag(values**0.25) @ vectors.T
    return root / np.sqrt((root**2).sum(axis=0)[0])


def root_of_window(window: int, number: int) -> Any:
    """The first coefficients of the root of a window's power series, one after the other from its square."""
    root = np.zeros(number)
    for k in range(number):
        asked = float(k < window) - float(root[1:k] @ root[1:k][::-1])
        root[k] = math.sqrt(asked) if k == 0 else asked / 2
    return root


@pytest.mark.parametrize("leaves", [1, 2, 3, 12, 53])
def test_weights_are_the_root_of_the_ranks_in_integers(leaves: int) -> None:
    found = RankLevels(leaves, 77).strategy
    np.testing.assert_allclose(found[:-1], ROW_UNIT * root_of_ranks(leaves), atol=0.51)
    assert found.dtype == np.int64
    assert (found[-1] == 77).all()


@pytest.mark.parametrize("window", [1, 2, 7, 24])
def test_gains_are_the_root_of_the_window_in_integers(window: int) -> None:
    found = np.array(window_gains(window))
    np.testing.assert_allclose(found, LARGE * root_of_window(window, BANDS * window), atol=0.51)
    assert found[0] == LARGE


@pytest.mark.parametrize("leaves", [4, 22, 102])
def test_no_factorization_of_the_ranks_of_the_median_is_better(leaves: int) -> None:
    """The largest norm of a row times that of a column is the mean of the singular values at least."""
    ranks = np.where(np.tril(np.ones((leaves, leaves))) > 0, 0.5, -0.5)
    least = float(np.linalg.svd(ranks, compute_uv=False).sum()) / leaves
    own = math.sqrt(RankLevels(leaves, 0).worst((HALF,)))
    assert least * 0.99 < own < least * 1.002


@pytest.mark.parametrize("window", [2, 7, 24, 168])
def test_no_correlation_over_ticks_is_much_better(window: int) -> None:
    counts = made(1, window)
    norm = sum(gain**2 for gain in window_gains(window)) / LARGE**2
    error = math.sqrt(norm * counts._growth[-1])
    assert error < 1.01 * View(window, 10_000).least


@pytest.mark.parametrize("window", [1, 2, 3, 7, 24, 168])
def test_correlated_noise_stays_bounded(window: int) -> None:
    """The inverse of the gains' series falls, so 64 bits hold the noise of any number of ticks."""
    gains = np.array(window_gains(window)) / LARGE
    inverse = np.zeros(100 * window)
    for k in range(len(inverse)):
        back = min(k, len(gains) - 1)
        inverse[k] = float(k == 0) - float(gains[1 : back + 1] @ inverse[k - back : k][::-1])
    assert float(inverse @ inverse) < 2
    assert np.abs(inverse[-window:]).max() < 1e-12


@pytest.mark.parametrize(
    ("leaves", "sums"), [(5, (991, -579)), (102, (830, -148_392)), (999, (729, -4_620_697))]
)
def test_weights_are_frozen(leaves: int, sums: tuple[int, int]) -> None:
    """Releases of a journal rest on them."""
    first = RankLevels(leaves, 0).strategy[:, 0]
    assert (int(first.sum()), int(first @ np.arange(leaves + 1))) == sums


def test_gains_are_frozen() -> None:
    assert window_gains(2) == (4096, 2048, -512, 256, -160, 112)
    assert sum(k * gain for k, gain in enumerate(window_gains(24))) == 136_461


def test_the_row_of_all_buckets_is_weighed_for_the_quantiles() -> None:
    for leaves, at in ((22, QUARTILES), (102, QUARTILES), (102, (HALF,)), (52, (SURE,))):
        best = best_rank_levels(leaves, at)
        others = [RankLevels(leaves, total).worst(at) for total in range(0, 1_000, 100)]
        assert best.worst(at) <= 1.01 * min(others)
        exact = best.covariance
        rows = best.strategy.astype(float)
        np.testing.assert_allclose(exact, np.linalg.inv(rows.T @ rows), rtol=1e-6, atol=1e-12)


# what is claimed


def dense(counts: RankWindow, ticks: int) -> Any:
    """All weights of the events of each tick and bucket in what is released, from the definitions, in integers."""
    gains = np.array([*window_gains(counts.window), *[0] * ticks])
    over = np.array([[gains[t - s] if t >= s else 0 for s in range(ticks)] for t in range(ticks)])
    return np.kron(over, counts.levels.strategy)


def most_squares(counts: RankWindow, ticks: int) -> tuple[int, int, int]:
    """The largest squared shift of one event, of a replacement in its tick, and of three events, in columns' sums."""
    matrix = dense(counts, ticks).astype(object)
    columns = list(matrix.T)
    alone = max(int(column @ column) for column in columns)
    swapped = [
        int((a - b) @ (a - b))
        for tick in range(ticks)
        for a in columns[tick * counts.width : (tick + 1) * counts.width]
        for b in columns[tick * counts.width : (tick + 1) * counts.width]
    ]
    three = max(
        int((a + b + c) @ (a + b + c)) for a, b, c in combinations_with_replacement(columns, 3)
    )
    return alone, max(alone, *swapped), three


class TicksForgotten(RankWindow):
    """A twin: the norm of the factor over ticks is left out."""

    @cached_property
    def shifts(self) -> int:
        return self.levels.squares(self.neighbors) * LARGE**2


class BucketsForgotten(RankWindow):
    """A twin: the norm of the factor over buckets is that of the root alone."""

    @cached_property
    def shifts(self) -> int:
        return ROW_UNIT**2 * sum(gain**2 for gain in window_gains(self.window))


def covers(counts: RankWindow, squares: int) -> bool:
    return squares <= 2 * counts.rho * counts.variance


@SHAPED
def test_the_claim_is_that_of_the_worst_of_all_events_and_of_all_replacements(
    leaves: int, window: int
) -> None:
    ticks = BANDS * window + 1
    alone, swapped, three = most_squares(made(leaves, window), ticks)
    added, replaced = made(leaves, window), made(leaves, window, neighbors=REPLACE)
    assert (added.shifts, replaced.shifts) == (alone, swapped)
    assert three == 9 * alone  # of a user's events in any ticks and buckets
    for counts, squares in ((added, alone), (replaced, swapped)):
        assert covers(counts, squares)
        assert counts.variance - 1 < Fraction(squares) / (2 * RHO)
        assert derived(counts, "it").guarantee.measure == ZCDP(RHO)
    assert not covers(made(leaves, window, BucketsForgotten), alone)
    assert covers(made(leaves, window, TicksForgotten), alone) == (window == 1)


def test_it_is_made_for_no_event_in_two_ticks() -> None:
    """Of two buckets that are far apart, one tick's event and another's shift the noise by more than either pair."""
    for leaves in (1, 2, 5):
        with pytest.raises(NotDerivable, match="changes two rows"):
            made(leaves, 2, neighbors=Neighbors.REPLACE_ANY_TICK)


def test_less_noise_and_subclasses_are_not_derived() -> None:
    counts = made(4, 2)
    vars(counts)["variance"] = counts.variance * 9 / 10
    with pytest.raises(BrokenCondition):
        derived(counts, "it")
    with pytest.raises(NotDerivable):
        derived(made(4, 2, TicksForgotten), "it")
    other = made(4, 2)
    vars(other)["levels"] = OtherLevels(4, 300)
    with pytest.raises(NotDerivable, match="another class"):
        derived(other, "it")


class OtherLevels(RankLevels):
    """Weights of which nothing is proven."""


class OneNoise(RankWindow):
    """A twin: all entries of a tick have the noise of the first one."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        return super().step(state, message, Repeated(noise))


class Repeated(NoNoise):
    def __init__(self, noise: Any) -> None:
        self.noise = noise

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        return np.repeat(self.noise.gaussian(variance, size)[:1], size)


def released(counts: RankWindow, rows: Any, drawn: Any) -> list[list[int]]:
    """All sums of releases, and the answers."""
    noise = ScriptedNoise(drawn.ravel().tolist())
    state, told = counts.init(noise), []
    for row in rows:
        state, _ = counts.step(state, Update(row), noise)
        told.append(state.sums[-1][-1].tolist())
        state, answer = counts.step(state, Query(), noise)
        assert answer is not None
        told.append(answer.tolist())
    return told


def moves_alike(kind: Any, leaves: int, window: int) -> bool:
    """Whether shifts of the noise by the two factors hide each event to the last bit, at the claimed cost."""
    counts, ticks = made(leaves, window, kind), BANDS * window + 3
    rng = np.random.default_rng(leaves)
    rows = rng.integers(0, 9, (ticks, leaves))
    drawn = rng.integers(-(1 << 30), 1 << 30, (ticks, leaves + 1))
    gains = window_gains(window)
    for at in range(ticks):
        for bucket in range(leaves):
            loud, quiet = rows.copy(), drawn.copy()
            loud[at, bucket] += 1
            for later, gain in enumerate(gains[: ticks - at]):
                quiet[at + later] += gain * counts.levels.strategy[:, bucket]
            assert int(((quiet - drawn).astype(object) ** 2).sum()) <= counts.shifts
            if released(counts, rows, quiet) != released(counts, loud, drawn):
                return False
    return True


@SHAPED
def test_a_shift_of_the_noise_hides_an_event_to_the_last_bit(leaves: int, window: int) -> None:
    assert moves_alike(RankWindow, leaves, window)


def test_a_shift_hides_nothing_where_rows_have_one_noise() -> None:
    assert not moves_alike(OneNoise, 4, 2)


# answers and bands


class OneTooFew(RankWindow):
    """A twin: a window has a tick too few."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        asked = made(self.width, self.window - 1) if isinstance(message, Query) else self
        return RankWindow.step(asked, state, message, noise)


@pytest.mark.parametrize("large", [9, 1 << 26])
def test_without_noise_answers_are_the_counts_of_the_window(large: int) -> None:
    rows = np.random.default_rng(2).integers(0, large, (20, 22))
    held = [rows[max(0, t - 3) : t + 1].sum(axis=0) << FRACTION_BITS for t in range(20)]
    told = answers(made(22, 4), ZeroNoise(), rows)
    assert np.abs(told - np.array(held)).max() < (1 << FRACTION_BITS) // 100
    less = answers(made(22, 4, OneTooFew), ZeroNoise(), rows)
    assert np.abs(less - np.array(held)).max() > 1 << FRACTION_BITS


@SHAPED
@pytest.mark.parametrize("ticks", [1, 2, 9])
def test_the_law_is_that_of_dense_least_squares(leaves: int, window: int, ticks: int) -> None:
    counts = made(leaves, window)
    matrix = dense(counts, ticks) / LARGE
    inverse = np.linalg.inv(matrix.T @ matrix) * float(counts.variance) / LARGE**2
    law = counts.noise(counts.view_public(0, ticks, None))
    squares, fourths = counts.levels.spread(QUARTILES)
    for place, quantile in enumerate(QUARTILES):
        for bucket in range(leaves):
            asked = (np.arange(leaves) <= bucket) - float(quantile)
            over = np.kron(np.arange(ticks) >= ticks - window, asked)
            best = float(over @ inverse @ over)
            assert law.variance * squares[place, bucket] == pytest.approx(best, rel=1e-6)
    widest = max(
        float(over @ inverse @ over)
        for one in np.eye(leaves)
        for over in [np.kron(np.arange(ticks) >= ticks - window, one)]
    )
    assert law.variance == pytest.approx(widest, rel=1e-6)
    assert not fourths.any()


def test_noisy_ranks_have_the_variance_of_their_law_and_stay_in_their_bands() -> None:
    counts = made(12, 3)
    quantiles = SlidingQuantiles(ValueTree(counts.levels, counts, 1), QUARTILES, SURE)
    rows = np.zeros((6_000, 12), dtype=np.int64)
    told = answers(counts, SeededNoise(4), rows)[100:] / (1 << FRACTION_BITS)
    ranks, law = np.cumsum(told, axis=1), counts.noise(counts.view_public(0, 10**6, None))
    margins = quantiles._margins(0, counts.view_public(0, 10**6, None))
    for place, quantile in enumerate(QUARTILES):
        found = (ranks - float(quantile) * ranks[:, -1:])[:, :-1]
        asked = law.variance * counts.levels.spread(QUARTILES)[0][place][:-1]
        np.testing.assert_allclose((found**2).mean(axis=0), asked, rtol=0.15)
        outside = (np.abs(found) > margins[place][:-1]).mean(axis=0)
        assert 0.005 < outside.max() < 0.024  # of a failure of .05 / 3


def test_each_update_draws_once_at_the_variance_of_the_claim_and_a_query_never() -> None:
    counts, noise = made(4, 2, rho=Fraction(101, 7_001)), SeededNoise(1)
    answers(counts, noise, [[1, 0, 2, 0]] * 9)
    assert noise.calls == [Draw("gaussian", counts.variance, 5)] * 9
    assert derived(counts, "it").guarantee.measure == ZCDP(counts.rho)
    assert covers(counts, counts.shifts)


def test_early_ticks_have_less_noise_and_later_ones_the_same() -> None:
    counts = made(5, 4)
    spreads = [counts.noise(counts.view_public(0, n, None)).variance for n in (1, 2, 4, 8, 96)]
    assert spreads == sorted(spreads)
    assert counts.view_public(0, 10**9, None) == 96
    assert counts.noise(0).spread == 0


def test_it_is_refused_where_64_bits_or_a_state_have_no_room() -> None:
    with pytest.raises(NotDerivable, match="more noise than 64 bits hold"):
        made(4, 2, rho=Fraction(1, 10**9))
    with pytest.raises(NotDerivable, match="would hold"):
        made(100, 1_440)
    with pytest.raises(NotDerivable, match=r"rho in \(0, 1000\]"):
        made(4, 2, rho=Fraction(0))
    with pytest.raises(NotDerivable, match="at least one bucket"):
        RankLevels(0, 0)
    with pytest.raises(NotDerivable, match="weights are for 3 buckets, but there are 4"):
        RankWindow(4, RHO, ADD, 2, RankLevels(3, 0))
    counts = made(2, 1)
    with pytest.raises(FailClosed, match="noise source is broken"):
        counts.step(
            counts.init(ZeroNoise()),
            Update(np.zeros(2, dtype=np.int64)),
            ScriptedNoise([LIMIT] * 3),
        )


def test_bands_of_a_day_of_hours_meet_their_targets() -> None:
    """Quartiles of 20, 50 and 100 buckets at (0.3, 1e-6): the aim is 190 at 100; the pure tree has 220, 284, 341."""
    bands = []
    for buckets in (20, 50, 100):
        levels = best_rank_levels(buckets + 2, QUARTILES)
        rho = Fraction(2_539_642_523, 10**12)  # of (0.3, 1e-6)
        counts = RankWindow(levels.leaves, rho, ADD, 24, levels)
        tree = ValueTree(levels, counts, 1)
        bands.append(SlidingQuantiles(tree, QUARTILES, SURE).band(8_760, 0.95))
    assert bands == [148, 171, 190]
