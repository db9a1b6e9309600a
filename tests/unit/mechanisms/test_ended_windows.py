"""Windows that follow one another: what they tell, and what an event loses through the real map of their noises.

Independent of the code: streams differ as raw events do, and what tells them apart is found from the real map from
noises to answers (`oracles.tree_privacy`). Twins lose more.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from oracles.mean_contents import pairs
from oracles.tree_privacy import least_shift
from unit.mechanisms.shifted_noise import answers, linear_map

from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import IntArray, Message, Noise, Query
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.linear.counter import Counter, SumCounter
from stream_dp.mechanisms.linear.ended_windows import (
    EndedCounts,
    EndedSums,
    EndedWindowsState,
    RunningWindows,
    RunningWindowsState,
)
from stream_dp.mechanisms.linear.noisy_forest import FLAT
from stream_dp.mechanisms.linear.pairs import SumsAndCounts
from stream_dp.mechanisms.linear.window_forest import SumForest, WindowForest
from stream_dp.mechanisms.serving import derived
from stream_dp.testing.noise import SeededNoise, ZeroNoise

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
ONE, EPSILON = Fraction(1), Fraction(4, 5)
FEW, MANY = EPSILON / 4, EPSILON * 3 / 4  # of a mean's sums, and of its counts
CLAMP, FROM_MIDDLE = (3, 7), (-2, 2)
TICKS = 6
mean_of = SumsAndCounts


def test_a_window_is_told_when_it_has_ended_and_until_the_next_one_ends() -> None:
    counts = EndedCounts(2, ONE, ADD, (1, 3))
    rows = [(1, 0), (0, 2), (4, 0), (8, 1), (0, 0), (0, 16), (32, 0)]
    whole = [(0, 0), (0, 0), (5, 2), (5, 2), (5, 2), (8, 17), (8, 17)]
    told = [(*row, *window) for row, window in zip(rows, whole, strict=True)]
    assert answers(counts, ZeroNoise(), rows).tolist() == [list(answer) for answer in told]


def test_sums_are_those_of_signed_amounts() -> None:
    sums = EndedSums(1, ONE, ADD, (2,), -5, 3)
    rows = [(3,), (-5,), (-4,), (1,)]
    assert answers(sums, ZeroNoise(), rows).tolist() == [[0], [-2], [-2], [-3]]


def test_a_window_has_its_noise_once_and_no_other_window_has_it() -> None:
    noise = SeededNoise(3)
    told = answers(EndedCounts(1, ONE, ADD, (2,)), noise, [(0,)] * 7)[:, 0].tolist()
    assert told[1:3] == told[1:2] * 2
    assert told[3:5] == told[3:4] * 2
    assert [call.size for call in noise.calls] == [1, 1, 1]
    assert len({told[1], told[3], told[5]}) > 1


def running(*counters: Counter | SumCounter) -> RunningWindows:
    return RunningWindows(counters)


def test_a_running_window_is_told_at_every_tick_and_begins_anew() -> None:
    counts = running(Counter(2, ONE, ADD, 2), Counter(2, ONE, ADD, 3))
    rows = [(1, 0), (0, 2), (4, 0), (8, 1), (0, 0), (0, 16), (32, 0)]
    two = [(1, 0), (1, 2), (4, 0), (12, 1), (0, 0), (0, 16), (32, 0)]
    three = [(1, 0), (1, 2), (5, 2), (8, 1), (8, 1), (8, 17), (32, 0)]
    told = [[*short, *long] for short, long in zip(two, three, strict=True)]
    assert answers(counts, ZeroNoise(), rows).tolist() == told
    drawn = answers(running(Counter(1, ONE, ADD, 2)), SeededNoise(3), [(0,)] * 60)[:, 0]
    assert len({tuple(window) for window in drawn.reshape(-1, 2).tolist()}) > 10


def test_the_band_of_a_running_window_is_that_of_its_counter_at_that_tick() -> None:
    day, week = Counter(1, ONE, ADD, 24), Counter(1, ONE, ADD, 168)
    counts = running(day, week)
    for updates in (1, 24, 25, 168, 169, 400):
        for place, counter in enumerate((day, week)):
            inside = (updates - 1) % counter.horizon + 1
            known = counts.view_public(place, updates, None)
            assert known == inside
            assert counts.view_band(place, known, 0.95) == counter.band(inside, 0.95)


def event_streams(mechanism: Any) -> Iterator[tuple[IntArray, IntArray]]:
    """Streams that differ in one raw event: all of one tick, with every content that the rows allow."""
    for tick, (left, right) in itertools.product(range(TICKS), contents_of(mechanism)):
        rows = np.zeros((2, TICKS, mechanism.width), np.int64)
        rows[0, tick], rows[1, tick] = left, right
        yield rows[0], rows[1]


def contents_of(mechanism: Any) -> Iterator[tuple[Any, Any]]:
    """What an event adds to its tick's row, in one stream and in the other."""
    ones, width = mechanism.ones, mechanism.width
    if isinstance(mechanism, SumsAndCounts):
        yield from pairs(mechanism.neighbors, width // 2, ones, *CLAMP)
        return
    (counted, *_) = getattr(mechanism, "counters", [mechanism])
    amounts = {getattr(counted, "lowest", 1), getattr(counted, "highest", 1)} - {0}
    entries = [c for n in range(1, ones + 1) for c in itertools.combinations(range(width), n)]
    contents = [np.zeros(width, np.int64)]
    for places, amount in itertools.product(entries, amounts):
        content = np.zeros(width, np.int64)
        content[list(places)] = amount
        contents.append(content)
    yield from itertools.product(
        contents if mechanism.neighbors is REPLACE else contents[:1], contents
    )


def worst(mechanism: Any) -> float:
    """The largest loss of a pair of neighbouring streams, in parts of the claim."""
    matrix, scales = linear_map(mechanism, TICKS)
    used = np.abs(matrix).max(axis=0) > 1e-4
    weights = np.array([float(1 / scale) for scale in scales])[used]
    losses = [0.0]
    for left, right in event_streams(mechanism):
        move = answers(mechanism, ZeroNoise(), left) - answers(mechanism, ZeroNoise(), right)
        if move.any():
            shift = least_shift(matrix[:, used], move.ravel(), weights, integer=False)
            losses.append(float(weights @ np.abs(shift)))
    return max(losses) / float(EPSILON)


@pytest.mark.parametrize(
    "mechanism",
    [
        EndedCounts(1, EPSILON, ADD, (2,)),
        EndedCounts(3, EPSILON, REPLACE, (1, 3)),
        EndedCounts(3, EPSILON, ADD, (2, 3, 6), 2),
        EndedCounts(3, EPSILON, REPLACE, (3,), 2),
        EndedSums(1, EPSILON, ADD, (3,), -3, 8),
        EndedSums(2, EPSILON, REPLACE, (2, 6), -3, 8),
        running(Counter(1, EPSILON, ADD, 2)),
        running(Counter(3, EPSILON / 2, REPLACE, 2), Counter(3, EPSILON / 2, REPLACE, 3)),
        running(Counter(2, EPSILON, ADD, 6, 2)),
        running(SumCounter(1, EPSILON, ADD, 3, -3, 8)),
        running(SumCounter(2, EPSILON, REPLACE, 2, -3, 8)),
        mean_of(
            running(SumCounter(1, FEW, ADD, 2, *FROM_MIDDLE)), running(Counter(1, MANY, ADD, 2))
        ),
        mean_of(EndedSums(1, FEW, ADD, (2, 3), *FROM_MIDDLE), EndedCounts(1, MANY, ADD, (2, 3))),
        mean_of(EndedSums(2, FEW, ADD, (3,), *FROM_MIDDLE, 2), EndedCounts(2, MANY, ADD, (3,), 2)),
        mean_of(
            EndedSums(2, FEW, REPLACE, (3,), *FROM_MIDDLE), EndedCounts(2, MANY, REPLACE, (3,))
        ),
    ],
    ids=str,
)
def test_an_event_loses_the_claim_and_no_more(mechanism: Any) -> None:
    assert worst(mechanism) == pytest.approx(1, abs=1e-6)
    assert derived(mechanism, "it").guarantee == mechanism.guarantee
    assert mechanism.guarantee == Guarantee(PureDP(EPSILON), mechanism.neighbors)


def test_a_band_holds_for_one_noise_of_the_scale() -> None:
    """95 % of a discrete Laplace law of scale s lie within the band, and not within one less."""
    for epsilon in (ONE, Fraction(1, 3)):
        band = EndedCounts(1, epsilon, ADD, (24,)).view_band(0, None, 0.95)
        a = float(np.exp(-float(epsilon)))
        inside = [1 - 2 * a ** (b + 1) / (1 + a) for b in (band - 1, band)]
        assert inside[0] < 0.95 <= inside[1]


def test_noise_that_is_too_wide_to_be_drawn_is_refused() -> None:
    with pytest.raises(NotDerivable, match="too wide"):
        EndedSums(1, Fraction(1, 10**6), ADD, (2,), 0, 10**9).derivation()


def test_sums_and_counts_of_other_windows_make_no_mean() -> None:
    """Their answers would not be of the same records: windows of another length, and windows that slide."""
    ended = (
        EndedSums(1, FEW, ADD, (2,), *FROM_MIDDLE),
        EndedCounts(1, MANY, ADD, (2,)),
        EndedCounts(1, MANY, ADD, (3,)),
    )
    sliding = (
        SumForest(1, FEW, ADD, (2,), FLAT, *FROM_MIDDLE),
        WindowForest(1, MANY, ADD, (2,), FLAT),
    )
    run = running(SumCounter(1, FEW, ADD, 2, *FROM_MIDDLE)), running(Counter(1, MANY, ADD, 2))
    assert mean_of(ended[0], ended[1]).views == mean_of(*run).views == 1
    others = (
        (ended[0], ended[2]),
        (ended[0], sliding[1]),
        (sliding[0], ended[1]),
        (run[0], ended[1]),
    )
    for sums, counts in others:
        with pytest.raises(NotDerivable, match="must have the same windows"):
            mean_of(sums, counts)


# Broken twins: what an event loses of them.


@dataclass(frozen=True)
class LengthsFree(EndedCounts):
    """Each length has the whole epsilon."""

    @cached_property
    def scale(self) -> Fraction:
        return 1 / self.unit_epsilon


@dataclass(frozen=True)
class RunsOn(EndedCounts):
    """A window's exact totals stay for the next one."""

    def step(self, state: EndedWindowsState, message: Message, noise: Noise) -> Any:
        after, answer = super().step(state, message, noise)
        if not isinstance(message, Query):
            after = EndedWindowsState(
                after.updates, state.totals + self.checked_row(message.row), after.told
            )
        return after, answer


@dataclass(frozen=True)
class AmountsOfOne(EndedSums):
    """Noise for amounts of 1."""

    @cached_property
    def scale(self) -> Fraction:
        return len(self.windows) / self.epsilon


@dataclass(frozen=True)
class NeverAnew(RunningWindows):
    """A window goes on where the one before ended, with new noise."""

    def step(self, state: RunningWindowsState, message: Message, noise: Noise) -> Any:
        after, answer = super().step(state, message, noise)
        if isinstance(message, Query) or state.updates % (self.windows[0] or 1):
            return after, answer
        (old,), (new,) = state.counters, after.counters
        return replace(after, counters=(replace(new, total=old.total + message.row),)), answer


@dataclass(frozen=True)
class EveryLengthInFull(RunningWindows):
    """Claims the epsilon of one length."""

    @property
    def epsilon(self) -> Fraction:
        return self.counters[0].epsilon


def test_counters_of_other_rows_or_without_an_end_make_no_windows() -> None:
    for counters in (
        (Counter(1, ONE, ADD, 2), Counter(2, ONE, ADD, 3)),
        (Counter(1, ONE, ADD, 2), Counter(1, ONE, REPLACE, 3)),
        (SumCounter(1, ONE, ADD, None, 0, 3),),
    ):
        with pytest.raises(NotDerivable):
            running(*counters)
    with pytest.raises(NotDerivable):
        derived(EveryLengthInFull((Counter(1, ONE, ADD, 2), Counter(1, ONE, ADD, 3))), "it")


@pytest.mark.parametrize(
    ("twin", "loss"),
    [
        (NeverAnew((Counter(1, EPSILON, ADD, 2),)), 3),
        (running(Counter(1, EPSILON, ADD, 2), Counter(1, EPSILON, ADD, 3)), 2),
        (LengthsFree(1, EPSILON, ADD, (2, 3)), 2),
        (RunsOn(1, EPSILON, ADD, (2,)), 3),
        (AmountsOfOne(1, EPSILON, ADD, (3,), -3, 8), 8),
        (
            mean_of(
                EndedSums(1, EPSILON, ADD, (2,), *FROM_MIDDLE), EndedCounts(1, EPSILON, ADD, (2,))
            ),
            2,
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_twin_loses_more(twin: Any, loss: float) -> None:
    assert worst(twin) > loss - 1e-6
