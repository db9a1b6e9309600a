"""A small top list of the real classes, all noise enumerated: what is told of ranks loses nothing, and twins lose.

Ranks are a function of the noisy counts, so the claim of the counts holds for them; here it is played.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from oracles.turns import Turns

from stream_dp.core.mechanism import IntArray, Message, Noise
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.noisy_forest import FLAT
from stream_dp.mechanisms.linear.window_forest import WindowForest
from stream_dp.statistics.top import TopSeries
from stream_dp.verify.exact.enumeration import Enumerated
from stream_dp.verify.exact.exact_delta import Bracket, delta_bracket

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
HALF, BASE = Fraction(1, 2), Fraction(1, 64)
NAMES = ("AA", "other")
COMES = (((0, 0), (1, 0)), ((1, 0), (0, 0)), ((0, 0), (0, 1)), ((0, 1), (0, 0)))
MOVES = (((1, 0), (0, 1)), ((0, 1), (1, 0)))
MORE = Turns(((1, 1), (0, 0)), COMES)
MOVED = Turns(((1, 1),), MOVES)


@dataclass(frozen=True)
class Ranked:
    """`mechanism` as its releases show it: ranks in place of counts, by the statistic's own words."""

    mechanism: Any
    place: int | None = None
    k: int = 2

    def init(self, noise: Noise) -> Any:
        """That of the mechanism, and no update so far."""
        return self.mechanism.init(noise), 0

    def step(self, state: Any, message: Message, noise: Noise) -> tuple[Any, Any]:
        inner, updates = state
        after, answer = self.mechanism.step(inner, message, noise)
        if answer is None:
            return (after, updates + 1), None
        counts = answer if self.place is None else np.split(answer, 2)[self.place]
        return (after, updates), self.told(after, counts, updates)

    def told(self, state: Any, counts: IntArray, updates: int) -> Any:
        series = TopSeries(name="a", epsilon="1", by="airline", k=self.k)
        tell = series.teller(self.mechanism, self.place, 0.5)
        return tell(NAMES, counts, updates - 1, state)["ranks"]


class RankedByExactCounts(Ranked):
    """Broken: names by the exact counts, only the values beside them are noisy."""

    def told(self, state: Any, counts: IntArray, updates: int) -> Any:
        order = np.argsort(-state.total, kind="stable")
        return tuple((NAMES[at], int(max(0, counts[at]))) for at in order)


class TiedByExactCounts(Ranked):
    """Broken: names and values by the noisy counts, who is not told apart by the exact ones."""

    def told(self, state: Any, counts: IntArray, updates: int) -> Any:
        """The ranks, and whether the true counts are near."""
        near = bool(abs(state.total[0] - state.total[1]) < 1)
        return super().told(state, counts, updates), near


def bounds(ranked: Ranked, pairs: Turns, units: int, ticks: int = 2, radius: int = 2) -> Bracket:
    """The bracket at a claim of `units` of epsilon, one unit being ln 64."""
    return delta_bracket(Enumerated(ranked, BASE, radius), pairs, BASE**-units, 2 * ticks)


@pytest.mark.parametrize("k", [1, 2])
def test_ranks_of_counts_so_far_meet_the_claim_of_the_counts(k: int) -> None:
    """Two ticks, the event in either and in either name; and no less would do."""
    ranked = Ranked(Counter(2, Fraction(2), ADD, 2), k=k)
    assert bounds(ranked, MORE, 2, radius=1).upper < Fraction(1, 10)
    assert bounds(ranked, MORE, 0, radius=1).lower > HALF


def test_ranks_of_one_tick_meet_the_claim_under_either_relation() -> None:
    """One tick, so that noise can be played far out: under replace each name has half of the claim."""
    assert bounds(Ranked(Counter(2, Fraction(1), ADD, 1)), MORE, 1, 1, 3).upper < Fraction(1, 100)
    assert bounds(Ranked(Counter(2, Fraction(2), REPLACE, 1)), MOVED, 2, 1, 3).upper < Fraction(
        1, 100
    )
    assert bounds(Ranked(Counter(2, Fraction(2), REPLACE, 1)), MOVED, 1, 1, 3).lower > HALF


@pytest.mark.parametrize("place", [0, 1])
def test_ranks_of_windows_meet_the_claim_of_the_windows(place: int) -> None:
    forest = WindowForest(2, Fraction(1), ADD, (1, 2), FLAT)
    assert bounds(Ranked(forest, place), MORE, 1, 2, 2).upper < Fraction(1, 100)


@pytest.mark.parametrize("twin", [RankedByExactCounts, TiedByExactCounts])
def test_what_looks_at_exact_counts_is_caught(twin: type[Ranked]) -> None:
    result = bounds(twin(Counter(2, Fraction(1), ADD, 1)), MORE, 1, 1, 3)
    assert result.lower > HALF
