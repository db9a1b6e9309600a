"""The real HSS of the maximum on a small counter, with the name of the leader in its answers, under all its noise.

The name is read off the counter's whole answer h, which is paid for, so the claim holds with it; here it is played
against every adaptive adversary. Twins: names from h plus what is pending, and names of the exact maximum.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from oracles.turns import Turns
from unit.verify.one_node_hss import RealSmallHSS

from stream_dp.core.mechanism import IntArray, Message, Noise
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.sealed import inside_of
from stream_dp.mechanisms.hss.hss import COUNTER, HSSState
from stream_dp.mechanisms.hss.quantities import MAXIMUM
from stream_dp.statistics.largest import MaximumSeries
from stream_dp.verify.exact.enumeration import Enumerated
from stream_dp.verify.exact.exact_delta import Bracket, delta_bracket

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
HALF, BASE = Fraction(1, 2), Fraction(1, 64)
NAMES, NOBODY = ("AA", "other"), -1


@dataclass(frozen=True)
class Named:
    """`mechanism` as its releases show it, by the statistic's own words."""

    mechanism: Any

    def init(self, noise: Noise) -> HSSState:
        state: HSSState = self.mechanism.init(noise)
        return state

    def step(self, state: Any, message: Message, noise: Noise) -> tuple[Any, IntArray | None]:
        after, answer = self.mechanism.step(state, message, noise)
        if answer is None:
            return after, None
        told = self.told(after, answer)
        name = NAMES.index(told["name"]) if "name" in told else NOBODY
        return after, np.array([told["value"], name], dtype=np.int64)

    def told(self, state: Any, answer: IntArray) -> Mapping[str, Any]:
        series = MaximumSeries(name="a", epsilon="1", by="airline")
        return series.teller(self.mechanism, None, 0.5)(NAMES, answer, 0, state)


class NamedByPendingToo(Named):
    """Broken: the name of the largest of h plus what is pending."""

    def told(self, state: Any, answer: IntArray) -> Mapping[str, Any]:
        return super().told(replace(state, released=state.released + state.pending), answer)


class NamedByExactCounts(Named):
    """Broken: the name of the exact maximum."""

    def told(self, state: Any, answer: IntArray) -> Mapping[str, Any]:
        counted = inside_of(state.parts.live[COUNTER].state).total
        return super().told(replace(state, released=counted + state.pending), answer)


COMES = (((0, 0), (1, 0)), ((1, 0), (0, 0)), ((0, 1), (1, 1)), ((1, 1), (0, 1)))
MORE = Turns(((0, 3), (0, 0)), COMES)
SWAPS = (((1, 0), (0, 1)), ((0, 1), (1, 0)), ((1, 3), (0, 4)), ((0, 4), (1, 3)))


def bracket(named: Named, pairs: Turns, units: int, ticks: int = 2, radius: int = 1) -> Bracket:
    """The bracket at a claim of `units` of epsilon, one unit being ln 64."""
    return delta_bracket(Enumerated(named, BASE, radius), pairs, BASE**-units, 2 * ticks)


def test_the_real_code_with_its_name_keeps_the_claim() -> None:
    """Under add_remove e1 = e2 = e_c = 1; under replace e2 and e_c are 2."""
    real = RealSmallHSS(2, MAXIMUM, Fraction(1), Fraction(1), Fraction(1), ADD, 10)
    assert bracket(Named(real), MORE, 3).upper < Fraction(1, 5)
    moved = RealSmallHSS(2, MAXIMUM, Fraction(1), Fraction(2), Fraction(2), REPLACE, 10)
    assert bracket(Named(moved), Turns(MORE.rows, SWAPS), 5).upper < Fraction(1, 5)


@pytest.mark.parametrize("twin", [NamedByPendingToo, NamedByExactCounts])
def test_a_name_by_private_counts_is_caught_in_the_real_code(twin: type[Named]) -> None:
    real = RealSmallHSS(2, MAXIMUM, Fraction(1), Fraction(1), Fraction(1), ADD, 10)
    assert bracket(twin(real), Turns((), COMES[:2]), 3, ticks=1, radius=3).lower > HALF
