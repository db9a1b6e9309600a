"""What is told of quantiles, number by number: from the estimates and the margins, by a reading of the description.

The oracle works in fractions and knows no fixed point, no arrays and no order of quantiles but the one that is asked.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest

from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.noisy_forest import FLAT
from stream_dp.mechanisms.linear.window_forest import WindowForest
from stream_dp.mechanisms.linear.windows_and_ever import WindowsAndEver
from stream_dp.mechanisms.noise_quantiles import Term
from stream_dp.mechanisms.quantiles.sliding_quantiles import (
    EACH,
    PARTS,
    RUNNING,
    SlidingQuantiles,
    rank_margins,
)
from stream_dp.mechanisms.quantiles.value_tree import FRACTION_BITS, Over, ValueLevels, ValueTree
from stream_dp.testing.noise import ScriptedNoise, SeededNoise, ZeroNoise

ADD, HALF, SURE = Neighbors.ADD_REMOVE, Fraction(1, 2), Fraction(19, 20)
AT = (Fraction(1, 4), HALF, Fraction(9, 10))
LEVELS, FLAT_LEVELS = ValueLevels(11, 4), ValueLevels(5, 5)
EPSILON, TICKS = Fraction(1, 50), 10
FOREST = WindowForest(LEVELS.nodes, EPSILON, ADD, (2, 6), FLAT, LEVELS.height)
COUNTER = Counter(LEVELS.nodes, EPSILON / 5, ADD, TICKS, LEVELS.height)


def told(
    counts: Sequence[Fraction], at: Sequence[Fraction], margins: Sequence[Sequence[int]]
) -> list[tuple[int, int, int]]:
    """Of each quantile its bucket, and how many buckets below and above are ruled out."""
    through, last, found = list(accumulate(counts)), len(counts) - 1, []
    lowest = 0
    for share, margin in zip(at, margins, strict=True):
        ends = [rank - share * through[-1] for rank in through]
        sums = list(accumulate(ends, initial=Fraction(0)))[:-1]
        lowest = bucket = max(lowest, sums.index(min(sums)))
        low = next((b for b in range(last) if ends[b] >= -margin[b]), last)
        high = next((b for b in range(last, 0, -1) if ends[b - 1] <= margin[b - 1]), 0)
        found.append((bucket, min(low, bucket), last - max(high, bucket)))
    return found


def margins_of(
    terms: Sequence[Term | tuple[Fraction, int]], levels: ValueLevels, at: tuple[Fraction, ...]
) -> list[list[int]]:
    """Margins that all quantiles keep at once with the confidence."""
    failure = float(1 - SURE) / len(at)
    found: list[list[int]] = rank_margins(terms, *levels.spread(at), failure).tolist()
    return found


def windows_terms(updates: int) -> list[list[tuple[Fraction, int]]]:
    """The noises of a node's count over the windows of two and of six ticks."""
    return [[(LEVELS.height / EPSILON, min(updates, each))] for each in FOREST.windows]


def views_terms(counts: Over, updates: int) -> list[list[tuple[Fraction, int]]]:
    """Those of all views."""
    if isinstance(counts, WindowForest):
        return windows_terms(updates)
    so_far = [(scale, number) for scale, number, *_ in COUNTER.noise_terms(updates)]
    if not isinstance(counts, WindowsAndEver):
        return [so_far]
    every = windows_terms(updates)
    return [*every, every[-1] if updates <= counts.covered else so_far]


@pytest.mark.parametrize("counts", [FOREST, COUNTER, WindowsAndEver(FOREST, COUNTER)])
def test_what_is_told_is_read_off_the_estimates_and_the_margins_of_the_tick(counts: Over) -> None:
    """Little data in much noise, with totals below 0, and more of it from run to run; every answer is the oracle's."""
    mechanism = SlidingQuantiles(ValueTree(LEVELS, counts), AT, SURE)
    tree, moved = mechanism.tree, 0
    for run in range(12):
        noise, rng = SeededNoise(run), np.random.default_rng(run)
        state = mechanism.init(noise)
        for updates in range(1, TICKS + 1):
            row = rng.integers(0, 1 + 120 * run, LEVELS.leaves)
            state, _ = mechanism.step(state, Update(row), noise)
            _, answer = mechanism.step(state, Query(), noise)
            _, nodes = tree.step(state, Query(), noise)
            assert answer is not None
            assert nodes is not None
            terms = views_terms(counts, updates)
            seen = answer.reshape(len(terms), len(AT), EACH)
            views = nodes.reshape(len(terms), LEVELS.nodes)
            for place, (one, view) in enumerate(zip(terms, views, strict=True)):
                margins = margins_of(one, LEVELS, AT)
                own, more = LEVELS.estimates(view)
                best = [
                    Fraction(int(a)) + Fraction(int(b), 1 << FRACTION_BITS)
                    for a, b in zip(own, more, strict=True)
                ]
                right = told(best, AT, margins)
                rows = seen[place].tolist()
                assert [(row[0] // PARTS, *row[1:]) for row in rows] == right
                moved += right != [
                    each
                    for q, m in zip(AT, margins, strict=True)
                    for each in told(best, (q,), (m,))
                ]
                band = mechanism.view_band(place, tree.view_public(place, updates), float(SURE))
                assert band - 1 < RUNNING * max(map(max, margins)) <= band
    assert moved, "no quantile was held back by the one before"


def flat(at: tuple[Fraction, ...], epsilon: Fraction = EPSILON) -> SlidingQuantiles:
    """Single ticks of five buckets."""
    counts = WindowForest(5, epsilon, ADD, (1,), FLAT)
    return SlidingQuantiles(ValueTree(FLAT_LEVELS, counts), at, SURE)


def answer_of(
    mechanism: SlidingQuantiles, row: Sequence[int], noise: ZeroNoise | ScriptedNoise
) -> IntArray:
    """The answer after one row."""
    state, _ = mechanism.step(mechanism.init(noise), Update(np.array(row, dtype=np.int64)), noise)
    _, answer = mechanism.step(state, Query(), noise)
    assert answer is not None
    return answer


def test_a_rank_at_its_margin_rules_nothing_out_and_one_beyond_does() -> None:
    """The noise may be as large as its margin; the median of events in the first and in the last bucket."""
    (margins,) = margins_of([(1 / EPSILON, 1)], FLAT_LEVELS, (HALF,))
    (margin,) = set(margins)
    for beyond in (0, 1):
        row = [7, 0, 0, 0, 7 + 2 * (margin + beyond)]
        place, low, high = answer_of(flat((HALF,)), row, ZeroNoise())
        assert (place // PARTS, low, high) == (4, 4 * beyond, 0)
        place, low, high = answer_of(flat((HALF,)), row[::-1], ZeroNoise())
        assert (place // PARTS, low, high) == (0, 0, 4 * beyond)


def test_where_all_counts_are_far_below_nothing_the_last_bucket_may_still_be() -> None:
    """It ends all events, whatever the noise says of their number."""
    few = Fraction(1, 100)
    place, low, high = answer_of(flat((few,)), [0] * 5, ScriptedNoise([-(10**6)] * 5))
    assert (place // PARTS, low, high) == (4, 4, 0)


def test_a_quantile_is_never_told_below_a_smaller_one_and_lies_among_what_may_be() -> None:
    """Where the noisy number of events is below 0, ranks are in the wrong order."""
    mechanism = flat((Fraction(1, 4), Fraction(9, 10)))
    found = answer_of(mechanism, [0] * 5, ScriptedNoise([-(10**6)] * 5)).reshape(2, EACH)
    assert [(place // PARTS, low, high) for place, low, high in found.tolist()] == [(4, 0, 0)] * 2


def test_margins_are_as_wide_as_the_noise_where_that_is_beyond_64_bits_of_ranks() -> None:
    at = (Fraction(999, 1000),)
    _, low, high = answer_of(flat(at, Fraction(1, 10**11)), [0, 9, 0, 1, 0], ZeroNoise())
    assert (low, high) == (0, 0)


def test_ranks_of_more_than_53_bits_are_compared_as_they_are() -> None:
    """One event more than half lies in the last but one bucket: the median is there and not where the others are."""
    place, *_ = answer_of(flat((HALF,)), [0, 1 << 57, 0, (1 << 57) + 1, 0], ZeroNoise())
    assert place // PARTS == 3
    place, *_ = answer_of(flat((HALF,)), [0, (1 << 57) + 1, 0, 1 << 57, 0], ZeroNoise())
    assert place // PARTS == 1


def test_a_place_between_the_ends_is_told_where_the_rank_passes_and_the_middle_where_it_ends() -> (
    None
):
    for row, wanted in (([0, 10, 0, 30, 0], 3), ([0, 20, 0, 20, 0], 1)):
        (place, *_) = answer_of(flat((HALF,)), row, ZeroNoise())
        inside = PARTS // 3 if wanted == 3 else PARTS // 2
        assert place == wanted * PARTS + inside


@pytest.mark.parametrize(
    ("row", "quantile", "inside"),
    [
        ((40, 0, 0, 0, 0), HALF, 50),
        ((30, 0, 10, 0, 0), HALF, 66),
        ((30, 10, 0, 0, 0), HALF / 5, 13),
    ],
)
def test_a_place_in_the_first_bucket_is_in_proportion_too(
    row: Sequence[int], quantile: Fraction, inside: int
) -> None:
    """No event lies before it, so that its ranks begin at less than 0."""
    (place, *_) = answer_of(flat((quantile,)), list(row), ZeroNoise())
    assert place == inside
